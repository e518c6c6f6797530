#include "ops/decompress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked_math.h"
#include "ops/data_movement.h"
#include "ops/float_access.h"
#include "ops/op.h"

namespace milwright {
namespace {

Status Misfit(std::string message) { return {ErrorCode::kInvalidProgram, std::move(message)}; }

// Visits the rows (last axis) of a tensor of `shape`, of which axis i is cut into counts[i] blocks: visit(e, b), where
// e is the first element of the row and b the number of its first block.
template <typename Visit>
void ForEachRow(const Shape& shape, const Shape& counts, Visit visit) {
  if (std::ranges::find(shape, 0) != shape.end()) return;
  if (shape.empty()) return visit(0, 0);
  const Shape leading(shape.begin(), shape.end() - 1);
  const std::vector<int64_t> strides = Strides(counts);
  std::vector<int64_t> index(leading.size(), 0);
  int64_t element = 0;
  do {
    int64_t block = 0;
    for (size_t i = 0; i < index.size(); ++i) block += index[i] / (shape[i] / counts[i]) * strides[i];
    visit(element, block);
    element += shape.back();
  } while (NextIndex(leading, index));
}

// (value - offset) * scale: exact, or nearly so, in double, and rounded once to float.
float Scaled(float value, float offset, float scale) {
  return static_cast<float>((static_cast<double>(value) - offset) * scale);
}

// Element `p` of a tensor whose axis with `inner` elements behind it grows `times`-fold lies at this place, and its
// copies `inner` apart behind it.
int64_t GrownPlace(int64_t p, int64_t inner, int64_t times) { return p / inner * times * inner + p % inner; }

int64_t InnerSize(const Shape& shape, int64_t axis) { return Strides(shape)[static_cast<size_t>(axis)]; }

void CopyElement(const Tensor& source, int64_t from, Tensor& target, int64_t to) {
  const int64_t bits = BitWidth(source.dtype());
  if (bits < 8) return target.SetInt(to, source.GetInt(from));
  std::memcpy(target.mutable_bytes().data() + to * bits / 8, source.bytes().data() + from * bits / 8,
              static_cast<size_t>(bits / 8));
}

}  // namespace

Status CheckBlocks(const Shape& data, const Shape& scale) {
  if (data.size() != scale.size()) {
    return Misfit(
        fmt::format("a scale or offset {} has not the rank of the data {}", ShapeToString(scale), ShapeToString(data)));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (scale[i] < 1 || data[i] % scale[i] != 0) {
      return Misfit(fmt::format("axis {}: a scale or offset {} does not divide the data {}", i, ShapeToString(scale),
                                ShapeToString(data)));
    }
  }
  return Status::Ok();
}

Result<Tensor> DequantizeBlockwise(const Tensor& data, const Tensor& scale, const Tensor* offset) {
  MW_RETURN_IF_ERROR(CheckBlocks(data.shape(), scale.shape()));
  if (offset != nullptr && offset->shape() != scale.shape()) {
    return Misfit(fmt::format("the offset {} has not the shape of the scale {}", ShapeToString(offset->shape()),
                              ShapeToString(scale.shape())));
  }
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({scale.dtype(), data.shape()}));
  const std::vector<float> scales = scale.ToFloats();
  const std::vector<float> offsets = offset != nullptr ? offset->ToFloats() : std::vector<float>(scales.size(), 0.0F);
  std::vector<float> row(static_cast<size_t>(data.rank() == 0 ? 1 : data.shape().back()));
  const size_t block_size = data.rank() == 0 ? 1 : row.size() / static_cast<size_t>(scale.shape().back());
  ForEachRow(data.shape(), scale.shape(), [&](int64_t element, int64_t first_block) {
    ReadFloats(data, element, row);
    auto block = static_cast<size_t>(first_block);
    for (size_t begin = 0; begin < row.size(); begin += block_size, ++block) {
      for (float& value : std::span(row).subspan(begin, block_size))
        value = Scaled(value, offsets[block], scales[block]);
    }
    WriteFloats(row, result, element);
  });
  return result;
}

Status CheckChannels(const Shape& data, const Shape& parameter, std::optional<int64_t> axis) {
  if (parameter.empty()) return Status::Ok();
  if (!axis.has_value()) {
    return Misfit(fmt::format("a scale or zero point of shape {} needs an axis", ShapeToString(parameter)));
  }
  const auto normalized = NormalizeAxis(*axis, static_cast<int64_t>(data.size()));
  if (!normalized.ok()) return Misfit(fmt::format("axis {} is outside the data {}", *axis, ShapeToString(data)));
  const int64_t channels = data[static_cast<size_t>(*normalized)];
  if (parameter.size() != 1 || (parameter[0] != channels && channels != kUnknownDim)) {
    return Misfit(fmt::format("a scale or zero point {} does not fit axis {} of the data {}", ShapeToString(parameter),
                              *axis, ShapeToString(data)));
  }
  return Status::Ok();
}

Result<ChannelParameters> ReadChannels(const Shape& data, const Tensor& scale, const Tensor* zero_point,
                                       std::optional<int64_t> axis) {
  MW_RETURN_IF_ERROR(CheckChannels(data, scale.shape(), axis));
  ChannelParameters parameters{scale.ToFloats(), {0.0F}, 1, 1};
  bool vectors = scale.rank() == 1;
  if (zero_point != nullptr) {
    MW_RETURN_IF_ERROR(CheckChannels(data, zero_point->shape(), axis));
    parameters.zero_point = zero_point->ToFloats();
    vectors = vectors || zero_point->rank() == 1;
  }
  parameters.inner = data.empty() ? 1 : data.back();  // one channel: any run will do
  if (vectors) {
    MW_ASSIGN_OR_RETURN(const int64_t normalized, NormalizeAxis(*axis, static_cast<int64_t>(data.size())));
    parameters.channels = data[static_cast<size_t>(normalized)];
    parameters.inner = InnerSize(data, normalized);
  }
  return parameters;
}

Result<Tensor> DequantizeAffine(const Tensor& data, const Tensor& scale, const Tensor* zero_point,
                                std::optional<int64_t> axis) {
  MW_ASSIGN_OR_RETURN(const ChannelParameters parameters, ReadChannels(data.shape(), scale, zero_point, axis));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({scale.dtype(), data.shape()}));
  std::vector<float> run(static_cast<size_t>(parameters.inner));
  for (int64_t first = 0, k = 0; first < data.size(); first += parameters.inner, ++k) {
    const int64_t channel = k % parameters.channels;
    ReadFloats(data, first, run);
    for (float& value : run) value = Scaled(value, parameters.ZeroPointOf(channel), parameters.ScaleOf(channel));
    WriteFloats(run, result, first);
  }
  return result;
}

Result<DataType> IndexType(int64_t entries) {
  for (const DataType type :
       {DataType::kUInt1, DataType::kUInt2, DataType::kUInt3, DataType::kUInt4, DataType::kUInt6, DataType::kUInt8}) {
    if (entries == int64_t{1} << static_cast<unsigned>(BitWidth(type))) return type;
  }
  return Misfit(fmt::format("a table of {} entries fits no index type", entries));
}

Result<Shape> LookUpShape(const TensorType& indices, const Shape& lut, std::optional<int64_t> vector_axis) {
  const auto fails = [&](std::string_view why) {
    return Misfit(
        fmt::format("indices {} and a table {} do not fit: {}", TypeToString(indices), ShapeToString(lut), why));
  };
  Shape shape = indices.shape;
  if (lut.size() != shape.size() + 2) return fails("the table must have two axes more");
  if (lut[shape.size()] != int64_t{1} << static_cast<unsigned>(BitWidth(indices.dtype))) {
    return fails("the table has not one entry for every index");
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (lut[i] < 1 || shape[i] % lut[i] != 0) return fails(fmt::format("the groups do not divide axis {}", i));
  }
  const int64_t length = lut.back();
  if (length == 1) return shape;
  if (length < 1 || !vector_axis.has_value()) return fails("vectors need a vector_axis");
  const auto axis = NormalizeAxis(*vector_axis, static_cast<int64_t>(shape.size()));
  if (!axis.ok()) return fails(fmt::format("vector_axis {} is outside", *vector_axis));
  int64_t& size = shape[static_cast<size_t>(*axis)];
  if (!CheckedMultiply(size, length, &size)) return fails("the result is too large");
  return shape;
}

Result<Tensor> LookUp(const Tensor& indices, const Tensor& lut, std::optional<int64_t> vector_axis) {
  MW_ASSIGN_OR_RETURN(const Shape shape, LookUpShape(indices.type(), lut.shape(), vector_axis));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(lut.dtype()));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({lut.dtype(), shape}));
  const int64_t length = lut.shape().back();
  const int64_t entries = lut.shape()[lut.shape().size() - 2];
  int64_t inner = 1;
  if (length > 1) {
    MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(*vector_axis, indices.rank()));
    inner = InnerSize(indices.shape(), axis);
  }
  const Shape groups(lut.shape().begin(), lut.shape().end() - 2);
  const int64_t row_size = indices.rank() == 0 ? 1 : indices.shape().back();
  const int64_t group_size = indices.rank() == 0 ? 1 : row_size / groups.back();
  const std::byte* table = lut.bytes().data();
  std::byte* target = result.mutable_bytes().data();
  ForEachRow(indices.shape(), groups, [&](int64_t first, int64_t group) {
    for (int64_t j = 0; j < row_size; ++j) {
      const int64_t entry = (group + j / group_size) * entries + indices.GetInt(first + j);
      const int64_t place = GrownPlace(first + j, inner, length);
      for (int64_t t = 0; t < length; ++t) {
        std::memcpy(target + (place + t * inner) * width, table + (entry * length + t) * width,
                    static_cast<size_t>(width));
      }
    }
  });
  return result;
}

Result<Tensor> RepeatMask(const Tensor& mask, int64_t axis, int64_t times) {
  MW_ASSIGN_OR_RETURN(const int64_t normalized, NormalizeAxis(axis, mask.rank()));
  Shape shape = mask.shape();
  int64_t& size = shape[static_cast<size_t>(normalized)];
  if (times < 1 || !CheckedMultiply(size, times, &size)) {
    return Misfit(fmt::format("a mask {} cannot grow {}-fold", ShapeToString(mask.shape()), times));
  }
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({mask.dtype(), shape}));
  const int64_t inner = InnerSize(mask.shape(), normalized);
  for (int64_t p = 0; p < mask.size(); ++p) {
    if (mask.GetInt(p) == 0) continue;
    for (int64_t t = 0; t < times; ++t) result.SetInt(GrownPlace(p, inner, times) + t * inner, 1);
  }
  return result;
}

Result<Tensor> SparseToDense(const Tensor& nonzero, const Tensor& mask) {
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({nonzero.dtype(), mask.shape()}));
  int64_t used = 0;
  for (int64_t p = 0; p < mask.size(); ++p) {
    if (mask.GetInt(p) == 0) continue;
    if (used < nonzero.size()) CopyElement(nonzero, used, result, p);
    ++used;
  }
  if (used != nonzero.size()) {
    return Misfit(fmt::format("the mask {} has {} bits set, but there are {} elements", ShapeToString(mask.shape()),
                              used, nonzero.size()));
  }
  return result;
}

Result<Tensor> DenseToSparse(const Tensor& dense, const Tensor& mask) {
  if (dense.shape() != mask.shape()) {
    return Misfit(fmt::format("the mask {} has not the shape of the data {}", ShapeToString(mask.shape()),
                              ShapeToString(dense.shape())));
  }
  int64_t count = 0;
  for (int64_t p = 0; p < mask.size(); ++p) count += mask.GetInt(p);
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({dense.dtype(), {count}}));
  int64_t used = 0;
  for (int64_t p = 0; p < mask.size(); ++p) {
    if (mask.GetInt(p) != 0) CopyElement(dense, p, result, used++);
  }
  return result;
}

Result<Tensor> UnpackBits(const Tensor& packed, DataType dtype, Shape shape) {
  TensorType type{dtype, std::move(shape)};
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type));
  if (BitWidth(packed.dtype()) != 8 || packed.size() != bytes) {
    return Misfit(fmt::format("{} takes {} packed bytes, but there are {}", TypeToString(type), bytes, packed.size()));
  }
  return Tensor::FromBytes(type, {packed.bytes().begin(), packed.bytes().end()});
}

}  // namespace milwright
