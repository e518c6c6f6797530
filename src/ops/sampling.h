// Sampling grids of the resize family: which source positions an output pixel reads.
#ifndef MILWRIGHT_OPS_SAMPLING_H_
#define MILWRIGHT_OPS_SAMPLING_H_

#include <cstdint>

#include "ops/op.h"

namespace milwright {

/// How output samples are spread over the source (op-semantics.md, section 3, resizing).
enum class SamplingMode : uint8_t { kStrictAlignCorners, kAlignCorners, kDefault, kOffsetCorners, kUnalignCorners };

/// The mode that parameter `sampling_mode` names.
Result<SamplingMode> SamplingModeParameter(const OpContext& ctx);

/// Where sample `i` of `count` reads in a source of `size` pixels (not necessarily whole), clamped to [0, size - 1].
double GridPoint(SamplingMode mode, int64_t i, double size, int64_t count);

/// The two pixels that linear interpolation mixes: low * (1 - fraction) + high * fraction.
struct LinearTap {
  int64_t low = 0;
  int64_t high = 0;  ///< equals low when fraction is 0
  float fraction = 0;
};

/// The pixels around `position`, which lies in [0, size - 1].
LinearTap TapAt(double position, int64_t size);

/// The interpolation itself; exact (also for infinities) when both pixels are one.
inline float Mix(const LinearTap& tap, float low, float high) {
  return tap.low == tap.high ? low : low * (1.0F - tap.fraction) + high * tap.fraction;
}

/// Checks that x has a height and a width as its last two dimensions and at least `rank` dimensions in all (exactly
/// `rank` when `exact`), with sizes that the grids can be computed on.
Status CheckImage(const OpContext& ctx, size_t rank, bool exact);

/// A target size that a parameter gives: 1 to 2^31-1.
Result<int64_t> TargetSize(const OpContext& ctx, std::string_view parameter);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_SAMPLING_H_
