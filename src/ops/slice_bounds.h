// What a slice with begin, end and stride takes of one axis.
#ifndef MILWRIGHT_OPS_SLICE_BOUNDS_H_
#define MILWRIGHT_OPS_SLICE_BOUNDS_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "milwright/type.h"

namespace milwright {

/// `size` elements from `begin` on, `stride` apart.
struct AxisSlice {
  int64_t begin = 0;
  int64_t stride = 1;
  int64_t size = kUnknownDim;
  bool squeeze = false;  ///< the axis goes; its one element is that at `begin`
};

/// The slice of an axis of known size, clamped as numpy's x[begin:end:stride]. Unset ends mean as far as the stride
/// leads.
inline AxisSlice ClampedSlice(int64_t size, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t stride) {
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  const int64_t from = begin.has_value() ? clamp(*begin) : (stride > 0 ? low : high);
  const int64_t to = end.has_value() ? clamp(*end) : (stride > 0 ? high : low);
  const int64_t span = stride > 0 ? to - from : from - to;
  const int64_t step = std::abs(stride);
  return {from, stride, span > 0 ? (span + step - 1) / step : 0, false};
}

}  // namespace milwright

#endif  // MILWRIGHT_OPS_SLICE_BOUNDS_H_
