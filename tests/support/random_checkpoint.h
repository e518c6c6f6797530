// Checkpoints of any family and shape with random weights: for benchmarks, and for shapes that no checkpoint at hand
// has.
#ifndef MILWRIGHT_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_
#define MILWRIGHT_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_

#include <string>
#include <string_view>

#include "milwright/status.h"

namespace milwright::testing {

/// The config.json of Qwen3-0.6B's shape (1.2 GB in bf16).
extern const std::string_view kQwen3Config;

/// Writes `config` as config.json, and model.safetensors with the bf16 tensors that the config's family asks for, into
/// `folder`, which exists. Matrices have entries of a size that keeps the size of what they multiply, vectors lie
/// around 1 and biases around 0. The same arguments give the same bytes. Errors: those of ReadModelPlan and of writing.
Status WriteRandomCheckpoint(const std::string& folder, std::string_view config);

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_RANDOM_CHECKPOINT_H_
