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

/// Where the taps of a window read, for one output position at a time. The geometry must be static.
class WindowTaps {
 public:
  static constexpr int64_t kPadding = -1;  ///< a tap on the padding
  static constexpr int64_t kBeyond = -2;   ///< a tap behind the padded input (ceil_mode)

  explicit WindowTaps(const SpatialGeometry& geometry) : geometry_(geometry) {}

  /// Row-major over the window: the flat index into the spatial input that each tap reads, or kPadding or kBeyond.
  /// `position` is a flat index into the spatial output. The span is valid until the next call.
  std::span<const int64_t> At(int64_t position);

 private:
  const SpatialGeometry& geometry_;
  std::vector<int64_t> coordinate_;
  std::vector<int64_t> taps_;
  std::vector<int64_t> widened_;
};

}  // namespace milwright

#endif  // MILWRIGHT_OPS_SPATIAL_H_
