// Compression of one tensor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/compress.h"
#include "compress/kmeans.h"
#include "milwright/half.h"

namespace milwright {
namespace {

using Kind = CompressionFormat::Kind;
using Granularity = CompressionFormat::Granularity;

// The values with NaN and infinities defined away (compress.h).
std::vector<float> FiniteValues(const Tensor& weight) {
  std::vector<float> values = weight.ToFloats();
  const float largest = weight.dtype() == DataType::kFp16 ? 65504.0F : std::numeric_limits<float>::max();
  for (float& value : values) {
    if (std::isnan(value)) value = 0;
    value = std::clamp(value, -largest, largest);
  }
  return values;
}

float RoundTo(DataType dtype, double value) {
  return dtype == DataType::kFp16 ? RoundToHalf(static_cast<float>(value)) : static_cast<float>(value);
}

// A scale as its type holds it; never zero, never infinite.
float RoundScale(DataType dtype, double scale) {
  const float rounded = RoundTo(dtype, scale);
  if (scale > 0 && rounded == 0) return dtype == DataType::kFp16 ? 0x1p-24F : std::numeric_limits<float>::denorm_min();
  if (std::isinf(rounded)) return dtype == DataType::kFp16 ? 65504.0F : std::numeric_limits<float>::max();
  return rounded > 0 ? rounded : 1.0F;
}

float LargestMagnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

Result<Tensor> Floats(DataType dtype, Shape shape, const std::vector<float>& values) {
  return Tensor::FromFloats({dtype, std::move(shape)}, values);
}

// Codes of 1 to 8 bits as one LSB-first stream, or bytes.
Result<Tensor> Codes(DataType dtype, const Shape& shape, std::span<const uint8_t> codes) {
  const int bits = BitWidth(dtype);
  std::vector<std::byte> bytes((codes.size() * static_cast<size_t>(bits) + 7) / 8);
  for (size_t i = 0; i < codes.size(); ++i) {
    const uint32_t code = codes[i] & ((1U << static_cast<unsigned>(bits)) - 1U);
    const size_t position = i * static_cast<size_t>(bits);
    const uint32_t shifted = code << (position % 8);
    bytes[position / 8] |= static_cast<std::byte>(shifted & 255U);
    if (shifted > 255U) bytes[position / 8 + 1] |= static_cast<std::byte>(shifted >> 8U);
  }
  return Tensor::FromBytes({dtype, shape}, std::move(bytes));
}

// The contiguous groups that share a scale, and the shape of the scales.
struct Groups {
  int64_t count = 1;
  int64_t length = 0;
  Shape shape;  ///< of the scales, of the rank of the weight
};

Result<Groups> LinearGroups(const Tensor& weight, const CompressionFormat& format) {
  const Shape& shape = weight.shape();
  Groups groups{1, weight.size(), Shape(shape.size(), 1)};
  if (format.granularity == Granularity::kTensor) return groups;
  groups.count = shape[0];
  groups.shape[0] = shape[0];
  if (format.granularity == Granularity::kBlock) {
    if (shape[1] % format.block_size != 0) {
      return Status(ErrorCode::kPrecondition,
                    fmt::format("blocks of {} do not divide the {} inputs", format.block_size, shape[1]));
    }
    groups.shape[1] = shape[1] / format.block_size;
    groups.count *= groups.shape[1];
  }
  groups.length = weight.size() / groups.count;
  return groups;
}

Result<CompressedTensor> Linear(const Tensor& weight, const CompressionFormat& format) {
  MW_ASSIGN_OR_RETURN(const Groups groups, LinearGroups(weight, format));
  const std::vector<float> values = FiniteValues(weight);
  const int top = (1 << (format.bits - 1)) - 1;  // symmetric codes use [-top, top], as coremltools does
  const int unsigned_top = (1 << format.bits) - 1;
  std::vector<uint8_t> codes(values.size());
  std::vector<uint8_t> offsets;
  std::vector<float> scales;
  CompressedTensor result;
  result.decoded.resize(values.size());
  for (int64_t g = 0; g < groups.count; ++g) {
    const auto begin = static_cast<size_t>(g * groups.length);
    const auto group = std::span(values).subspan(begin, static_cast<size_t>(groups.length));
    int offset = 0;
    float scale = 1;
    if (format.asymmetric) {
      const auto [low, high] = std::ranges::minmax(group);
      const double from = std::min(0.0F, low);
      const double to = std::max(0.0F, high);
      scale = RoundScale(weight.dtype(), (to - from) / unsigned_top);
      offset = static_cast<int>(std::clamp(std::nearbyint(-from / scale), 0.0, static_cast<double>(unsigned_top)));
    } else {
      scale = RoundScale(weight.dtype(), static_cast<double>(LargestMagnitude(group)) / top);
    }
    const double lowest = format.asymmetric ? 0 : -top;
    const double highest = format.asymmetric ? unsigned_top : top;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto code =
          static_cast<int>(std::clamp(std::nearbyint(static_cast<double>(group[i]) / scale) + offset, lowest, highest));
      codes[begin + i] = static_cast<uint8_t>(code);
      result.decoded[begin + i] = static_cast<float>(code - offset) * scale;
    }
    scales.push_back(scale);
    offsets.push_back(static_cast<uint8_t>(offset));
  }
  result.op = "constexpr_blockwise_shift_scale";
  const DataType dtype = format.asymmetric ? (format.bits == 8 ? DataType::kUInt8 : DataType::kUInt4)
                                           : (format.bits == 8 ? DataType::kInt8 : DataType::kInt4);
  MW_ASSIGN_OR_RETURN(Tensor data, Codes(dtype, weight.shape(), codes));
  MW_ASSIGN_OR_RETURN(Tensor scale, Floats(weight.dtype(), groups.shape, scales));
  result.parts = {{"data", std::move(data)}, {"scale", std::move(scale)}};
  if (format.asymmetric) {
    MW_ASSIGN_OR_RETURN(Tensor offset, Codes(dtype, groups.shape, offsets));
    result.parts.push_back({"offset", std::move(offset)});
  }
  return result;
}

DataType IndexType(int bits) {
  switch (bits) {
    case 1:
      return DataType::kUInt1;
    case 2:
      return DataType::kUInt2;
    case 3:
      return DataType::kUInt3;
    case 4:
      return DataType::kUInt4;
    case 6:
      return DataType::kUInt6;
    default:
      return DataType::kUInt8;
  }
}

Result<CompressedTensor> Palette(const Tensor& weight, const CompressionFormat& format) {
  const Shape& shape = weight.shape();
  const bool grouped = format.granularity == Granularity::kChannel;
  if (grouped && shape[0] % format.block_size != 0) {
    return Status(ErrorCode::kPrecondition,
                  fmt::format("groups of {} do not divide the {} output channels", format.block_size, shape[0]));
  }
  const int64_t groups = grouped ? shape[0] / format.block_size : 1;
  const auto entries = static_cast<size_t>(1) << static_cast<unsigned>(format.bits);
  std::vector<float> values = FiniteValues(weight);
  const auto row = values.size() / static_cast<size_t>(shape[0]);
  std::vector<float> row_scales(static_cast<size_t>(shape[0]), 1.0F);
  for (size_t r = 0; format.channel_scale && r < row_scales.size(); ++r) {
    const auto channel = std::span(values).subspan(r * row, row);
    const float largest = LargestMagnitude(channel);
    row_scales[r] = largest > 0 ? RoundScale(weight.dtype(), largest) : 1.0F;
    for (float& value : channel) value /= row_scales[r];
  }
  CompressedTensor result;
  result.op = "constexpr_lut_to_dense";
  result.decoded.resize(values.size());
  std::vector<uint8_t> indices(values.size());
  std::vector<float> tables;
  std::vector<float> table_scales;
  std::vector<uint8_t> table_codes;
  const size_t length = values.size() / static_cast<size_t>(groups);
  std::vector<float> scratch;
  for (int64_t g = 0; g < groups; ++g) {
    const auto begin = static_cast<size_t>(g) * length;
    const auto group = std::span(values).subspan(begin, length);
    scratch.assign(group.begin(), group.end());
    std::vector<float> centers = KMeans1d(scratch, static_cast<int>(entries));
    if (format.int8_table) {
      const float scale = RoundScale(weight.dtype(), static_cast<double>(LargestMagnitude(centers)) / 127);
      table_scales.push_back(scale);
      for (float& center : centers) {
        const float code = std::clamp(std::nearbyint(center / scale), -127.0F, 127.0F);
        table_codes.push_back(static_cast<uint8_t>(static_cast<int8_t>(code)));
        center = RoundTo(weight.dtype(), static_cast<double>(code) * scale);
      }
      table_codes.resize(static_cast<size_t>(g + 1) * entries, table_codes.back());
    } else {
      for (float& center : centers) center = RoundTo(weight.dtype(), center);
    }
    NearestCenters(group, centers, std::span(indices).subspan(begin, length));
    for (size_t i = 0; i < length; ++i) {
      result.decoded[begin + i] = centers[indices[begin + i]] * row_scales[(begin + i) / row];
    }
    centers.resize(entries, centers.back());
    tables.insert(tables.end(), centers.begin(), centers.end());
  }
  Shape table_shape(shape.size() + 2, 1);
  table_shape[0] = groups;
  table_shape[shape.size()] = static_cast<int64_t>(entries);
  MW_ASSIGN_OR_RETURN(Tensor codes, Codes(IndexType(format.bits), shape, indices));
  result.parts.push_back({"indices", std::move(codes)});
  if (format.int8_table) {
    MW_ASSIGN_OR_RETURN(Tensor data, Codes(DataType::kInt8, table_shape, table_codes));
    Shape scale_shape(table_shape.size(), 1);
    scale_shape[0] = groups;
    MW_ASSIGN_OR_RETURN(Tensor scale, Floats(weight.dtype(), std::move(scale_shape), table_scales));
    result.table_parts = {{"data", std::move(data)}, {"scale", std::move(scale)}};
  } else {
    MW_ASSIGN_OR_RETURN(Tensor lut, Floats(weight.dtype(), table_shape, tables));
    result.parts.push_back({"lut", std::move(lut)});
  }
  if (format.channel_scale) {
    Shape scale_shape(shape.size(), 1);
    scale_shape[0] = shape[0];
    MW_ASSIGN_OR_RETURN(Tensor scale, Floats(weight.dtype(), std::move(scale_shape), row_scales));
    result.scale_parts = {{"scale", std::move(scale)}};
  }
  return result;
}

Result<CompressedTensor> Sparse(const Tensor& weight, const CompressionFormat& format) {
  CompressedTensor result;
  result.op = "constexpr_sparse_to_dense";
  result.decoded = FiniteValues(weight);
  std::vector<size_t> order(result.decoded.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto zeros = static_cast<size_t>(format.sparsity * static_cast<double>(order.size()));
  // The smallest magnitudes go; of equals those that come first.
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(zeros), order.end(),
                   [&](size_t a, size_t b) {
                     const float x = std::abs(result.decoded[a]);
                     const float y = std::abs(result.decoded[b]);
                     return x != y ? x < y : a < b;
                   });
  for (size_t i = 0; i < zeros; ++i) result.decoded[order[i]] = 0;
  std::vector<uint8_t> mask(order.size());
  std::vector<float> kept;
  for (size_t i = 0; i < mask.size(); ++i) {
    mask[i] = result.decoded[i] != 0 ? 1 : 0;
    if (mask[i] != 0) kept.push_back(result.decoded[i]);
  }
  MW_ASSIGN_OR_RETURN(Tensor bitmap, Codes(DataType::kUInt1, weight.shape(), mask));
  MW_ASSIGN_OR_RETURN(Tensor data, Floats(weight.dtype(), {static_cast<int64_t>(kept.size())}, kept));
  result.parts = {{"mask", std::move(bitmap)}, {"nonzero_data", std::move(data)}};
  return result;
}

}  // namespace

Result<CompressedTensor> CompressTensor(const Tensor& weight, const CompressionFormat& format) {
  if (weight.rank() < 2 || weight.size() == 0) {
    return Status(ErrorCode::kPrecondition, fmt::format("{} is no weight matrix", TypeToString(weight.type())));
  }
  switch (format.kind) {
    case Kind::kLinear:
      return Linear(weight, format);
    case Kind::kPalette:
      return Palette(weight, format);
    case Kind::kSparse:
      return Sparse(weight, format);
    case Kind::kNone:
      break;
  }
  return Status(ErrorCode::kUsage, "nothing to do for format none");
}

}  // namespace milwright
