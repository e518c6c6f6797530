// Decoding of compressed weights: what the constexpr_* ops compute (package-format.md, section 5), as functions of
// tensors. The interpreter, constant folding, the compressor and the size report share them.
//
// (data - offset) * scale is rounded once, to float, and then to the type of the result; with integer data and offsets
// that equals arithmetic in fp32. Errors say what does not fit and name the shapes; the caller adds the place.
#ifndef MILWRIGHT_OPS_DECOMPRESS_H_
#define MILWRIGHT_OPS_DECOMPRESS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

// ---- scales by block ----

/// Whether tensors of shape `data` can have a scale (or offset) of shape `scale`: equal rank, and every size of `scale`
/// divides that of `data`, each entry serving a block of data.shape / scale.shape.
Status CheckBlocks(const Shape& data, const Shape& scale);
/// (data - offset) * scale, of the type of `scale`; a null offset is zero.
Result<Tensor> DequantizeBlockwise(const Tensor& data, const Tensor& scale, const Tensor* offset);

// ---- scales by channel ----

/// Scale and zero point of the channels of one axis, either of them one for all.
struct ChannelParameters {
  std::vector<float> scale;
  std::vector<float> zero_point;
  int64_t channels = 1;
  int64_t inner = 1;  ///< elements between neighbours on the axis

  [[nodiscard]] float ScaleOf(int64_t channel) const { return At(scale, channel); }
  [[nodiscard]] float ZeroPointOf(int64_t channel) const { return At(zero_point, channel); }

 private:
  static float At(const std::vector<float>& values, int64_t channel) {
    return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
  }
};

/// Whether `parameter` (a scale or zero point) is a scalar, or a vector of the size of `axis` of `data`.
Status CheckChannels(const Shape& data, const Shape& parameter, std::optional<int64_t> axis);
/// Reads the parameters for data of shape `data`; a null zero point is 0. Vectors need `axis`.
Result<ChannelParameters> ReadChannels(const Shape& data, const Tensor& scale, const Tensor* zero_point,
                                       std::optional<int64_t> axis);
/// (data - zero_point) * scale, of the type of `scale`.
Result<Tensor> DequantizeAffine(const Tensor& data, const Tensor& scale, const Tensor* zero_point,
                                std::optional<int64_t> axis);

// ---- tables ----

/// The shape that indices of type `indices` decode to with a table of shape `lut`: [g0, g1, .., 2^bits, vector], where
/// axis i has g_i groups with a table each, and vectors longer than 1 are laid along `vector_axis`.
Result<Shape> LookUpShape(const TensorType& indices, const Shape& lut, std::optional<int64_t> vector_axis);
/// Every index replaced by its table entry; of the type of `lut`.
Result<Tensor> LookUp(const Tensor& indices, const Tensor& lut, std::optional<int64_t> vector_axis);
/// The unsigned type with this many table entries (2, 4, 8, 16, 64 or 256), or an error.
Result<DataType> IndexType(int64_t entries);

// ---- sparse pairs: a bit mask and the elements where it is set, in row-major order ----

/// `mask` with every bit repeated `times` along `axis`.
Result<Tensor> RepeatMask(const Tensor& mask, int64_t axis, int64_t times);
/// A tensor of the mask's shape with `nonzero` where the mask is set, and zeros.
Result<Tensor> SparseToDense(const Tensor& nonzero, const Tensor& mask);
/// The elements of `dense` where the mask, of equal shape, is set.
Result<Tensor> DenseToSparse(const Tensor& dense, const Tensor& mask);

// ---- bits ----

/// A vector of bytes seen as an LSB-first stream of elements of `dtype`: how the forms before iOS18 hold indices and
/// masks.
Result<Tensor> UnpackBits(const Tensor& packed, DataType dtype, Shape shape);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_DECOMPRESS_H_
