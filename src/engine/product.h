// Which operations are products of an activation with a stored matrix.
#ifndef MILWRIGHT_ENGINE_PRODUCT_H_
#define MILWRIGHT_ENGINE_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/graph.h"

namespace milwright::engine {

/// Products of one activation that one step computes at most.
inline constexpr size_t kMaxProductParts = 8;

/// The axis of x that the matrix multiplies, when `node` is a linear or a pointwise convolution with a stored weight.
std::optional<int64_t> ProductChannel(const Node& node);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_PRODUCT_H_
