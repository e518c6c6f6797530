// The geometry of a window that slides over the spatial dimensions of x: shared by conv, conv_transpose and the pools.
#ifndef MILWRIGHT_OPS_SPATIAL_H_
#define MILWRIGHT_OPS_SPATIAL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ops/op.h"

namespace milwright {

/// One window geometry; every vector has one entry per spatial dimension (x's dimensions after batch and channel).
struct SpatialGeometry {
  Shape input;                     ///< spatial sizes of x
  std::vector<int64_t> kernel;     ///< window sizes, undilated
  std::vector<int64_t> strides;    ///< steps of the window
  std::vector<int64_t> dilations;  ///< steps between the taps of a window
  std::vector<int64_t> before;     ///< padding (conv_transpose: cropping) in front
  std::vector<int64_t> after;      ///< and behind
  Shape output;  ///< spatial sizes of the result; kUnknownDim where the input or the window is unknown
};

/// Reads strides, dilations, pad_type, pad and ceil_mode of a conv or pool whose window is `kernel` and gives
/// floor((in + before + after - (kernel-1)*dilation - 1) / stride) + 1 per dimension (op-semantics.md, section 3, conv
/// and pooling). Errors name x's shape, the spatial dimension and the offending parameter.
Result<SpatialGeometry> SlidingWindow(const OpContext& ctx, const Shape& kernel);

/// The same for conv_transpose: (in-1)*stride + (kernel-1)*dilation + 1, cropped by `before` and `after`; pad_type same
/// gives in*stride; a non-zero output_shape (with batch and channel) replaces the sizes.
Result<SpatialGeometry> TransposedWindow(const OpContext& ctx, const Shape& kernel);

/// The geometry of the convolution whose adjoint is the given transposed one: input and output change places.
SpatialGeometry Adjoint(SpatialGeometry geometry);

/// Where the taps of a window read, for one output position at a time. The geometry must be static and outlive this.
/// Positions and results are flat row-major indices into the spatial output and input. Spans are valid until the next
/// call.
class WindowTaps {
 public:
  static constexpr int64_t kOutside = -1;

  explicit WindowTaps(const SpatialGeometry& geometry) : geometry_(geometry) {}

  /// The input index of every tap, row-major over the window; kOutside for those on the padding.
  std::span<const int64_t> All(int64_t position);
  /// Only the taps on the input, in the same order: the cost follows the input, however large the window is.
  std::span<const int64_t> Inside(int64_t position);
  /// How many taps lie on the input or its padding: all, unless ceil_mode lets the window hang over.
  double PaddedCount(int64_t position);

 private:
  void Locate(int64_t position);

  const SpatialGeometry& geometry_;
  std::vector<int64_t> starts_;  // input index of the first tap, per dimension
  std::vector<int64_t> taps_;
  std::vector<int64_t> widened_;
};

}  // namespace milwright

#endif  // MILWRIGHT_OPS_SPATIAL_H_
