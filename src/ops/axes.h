// Reading axes and sizes out of op parameters, with errors that name the shape they fail on.
#ifndef MILWRIGHT_OPS_AXES_H_
#define MILWRIGHT_OPS_AXES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace milwright {

/// Ranks beyond this are refused: Core ML itself stops at 5, and a hostile length must not become an allocation.
inline constexpr int64_t kMaxRank = 64;

/// The axis in a scalar parameter, counted from the front, for a tensor of this shape.
Result<int64_t> AxisParameter(const OpContext& ctx, std::string_view parameter, const Shape& shape);
/// The axes in a vector parameter, counted from the front, in the order given; an error when one stands twice.
Result<std::vector<int64_t>> AxesParameter(const OpContext& ctx, std::string_view parameter, int64_t rank);

/// a * b for sizes that may be unknown; an error on overflow.
Result<int64_t> MultiplySizes(const OpContext& ctx, int64_t a, int64_t b);
/// The one size that two tensors must share; a known size wins over an unknown one. `what` names the axis in the error.
Result<int64_t> EqualSizes(const OpContext& ctx, int64_t a, int64_t b, std::string_view what);

/// A type of rank `rank` of which no size is known, for results whose shape is data; an error beyond kMaxRank.
Result<Type> TypeOfRank(const OpContext& ctx, DataType dtype, int64_t rank);

/// An error of this op that a run met: an index or a position that the data made wrong.
Status RuntimeError(const OpContext& ctx, std::string_view message);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_AXES_H_
