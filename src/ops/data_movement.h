// Strided copies: the one way in which shape, slice, gather and padding ops move elements.
#ifndef MILWRIGHT_OPS_DATA_MOVEMENT_H_
#define MILWRIGHT_OPS_DATA_MOVEMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// Where a walk over a tensor begins and how far apart its neighbours lie on each axis; all in elements. Strides may be
/// zero (a repeated element) or negative (a reversed axis).
struct Walk {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

/// The walk over a dense tensor of this shape.
Walk DenseWalk(const Shape& shape);

/// Bytes of one element. An error for strings and sub-byte types, which no op that moves elements takes.
Result<int64_t> ElementBytes(DataType type);

/// Copies `sizes` elements from `source`, walked as `from`, to `target`, walked as `to`. Elements are `width` bytes and
/// the walks must stay inside their tensors. Runs that are contiguous on both sides are copied whole.
void CopyStrided(const Shape& sizes, int64_t width, const std::byte* source, const Walk& from, std::byte* target,
                 const Walk& to);

/// A dense tensor of shape `sizes` with the elements that `from` visits in `source`.
Result<Tensor> Collect(const Tensor& source, const Shape& sizes, const Walk& from);

/// `source` seen under the shape `view` (of equal element count), its axes permuted by `perm` (result axis i is view
/// axis perm[i]), and the outcome seen under `result`. Depth-to-space and its kin are of this form.
Result<Tensor> PermuteView(const Tensor& source, const Shape& view, const std::vector<int64_t>& perm, Shape result);

/// Advances a row-major index over `sizes`; false when it wraps round to zero.
bool NextIndex(const Shape& sizes, std::vector<int64_t>& index);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_DATA_MOVEMENT_H_
