#include "compress/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "milwright/half.h"

namespace milwright::compress {

Elements::Elements(const Tensor& weight)
    : dtype_(weight.dtype()),
      size_(static_cast<size_t>(weight.size())),
      half_to_float_(kernels::AvailableKernels().front()->half_to_float) {
  if (dtype_ == DataType::kFp16) {
    halves_ = weight.As<uint16_t>();
  } else {
    floats_ = weight.As<float>();
  }
}

void Elements::ReadRaw(size_t begin, std::span<float> out) const {
  if (dtype_ == DataType::kFp16) {
    half_to_float_(halves_.data() + begin, static_cast<int64_t>(out.size()), out.data());
  } else {
    std::ranges::copy(floats_.subspan(begin, out.size()), out.begin());
  }
}

void Elements::Read(size_t begin, std::span<float> out) const {
  ReadRaw(begin, out);
  const float largest = dtype_ == DataType::kFp16 ? 65504.0F : std::numeric_limits<float>::max();
  for (float& value : out) {
    const float number = value == value ? value : 0.0F;
    const float below = number < largest ? number : largest;
    value = below > -largest ? below : -largest;
  }
}

void AddError(const Elements& weight, size_t begin, std::span<const float> decoded, CompressionError& error) {
  constexpr size_t kLanes = 4;  // independent sums, which the compiler may keep in one register
  std::array<float, kBlock> values;
  std::array<double, kLanes> squares{};
  std::array<double, kLanes> errors{};
  std::array<double, kLanes> largest{};
  const auto add = [&](size_t lane, float value, float code_value) {
    const bool finite = std::abs(value) <= std::numeric_limits<float>::max();
    const double x = finite ? static_cast<double>(value) : 0.0;
    const double d = finite ? std::abs(static_cast<double>(value) - static_cast<double>(code_value)) : 0.0;
    squares[lane] += x * x;
    errors[lane] += d * d;
    largest[lane] = d > largest[lane] ? d : largest[lane];
  };
  for (size_t done = 0; done < decoded.size();) {
    const size_t count = std::min(kBlock, decoded.size() - done);
    weight.ReadRaw(begin + done, std::span(values).first(count));
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) add(lane, values[i + lane], decoded[done + i + lane]);
    }
    for (; i < count; ++i) add(0, values[i], decoded[done + i]);
    done += count;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    error.squares += squares[lane];
    error.error_squares += errors[lane];
    error.largest = std::max(error.largest, largest[lane]);
  }
}

CompressionError SumOf(const std::vector<CompressionError>& pieces) {
  CompressionError sum;
  for (const CompressionError& piece : pieces) {
    sum.squares += piece.squares;
    sum.error_squares += piece.error_squares;
    sum.largest = std::max(sum.largest, piece.largest);
  }
  return sum;
}

float RoundTo(DataType dtype, double value) {
  return dtype == DataType::kFp16 ? RoundToHalf(static_cast<float>(value)) : static_cast<float>(value);
}

float RoundScale(DataType dtype, double scale) {
  const float rounded = RoundTo(dtype, scale);
  if (scale > 0 && rounded == 0) return dtype == DataType::kFp16 ? 0x1p-24F : std::numeric_limits<float>::denorm_min();
  if (std::isinf(rounded)) return dtype == DataType::kFp16 ? 65504.0F : std::numeric_limits<float>::max();
  return rounded > 0 ? rounded : 1.0F;
}

float LargestMagnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    const float magnitude = std::abs(value);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

void PackCodes(std::span<const uint8_t> codes, int bits, size_t begin, std::span<std::byte> stream) {
  const auto width = static_cast<size_t>(bits);
  size_t i = 0;
  if (bits == 8) {
    std::transform(codes.begin(), codes.end(), stream.begin() + static_cast<std::ptrdiff_t>(begin),
                   [](uint8_t code) { return std::byte{code}; });
    return;
  }
  if (bits == 4 && begin % 2 == 0) {
    std::byte* out = stream.data() + begin / 2;
    for (; i + 2 <= codes.size(); i += 2) {
      *out++ = static_cast<std::byte>((codes[i] & 15U) | static_cast<uint32_t>(codes[i + 1] << 4U));
    }
  }
  for (; i < codes.size(); ++i) {
    const uint32_t code = codes[i] & ((1U << width) - 1U);
    const size_t position = (begin + i) * width;
    const uint32_t shifted = code << (position % 8);
    stream[position / 8] |= static_cast<std::byte>(shifted & 255U);
    if (shifted > 255U) stream[position / 8 + 1] |= static_cast<std::byte>(shifted >> 8U);
  }
}

Result<Tensor> CodeTensor(const TensorType& type, std::span<const uint8_t> codes) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  PackCodes(codes, BitWidth(type.dtype), 0, tensor.mutable_bytes());
  return tensor;
}

size_t GroupsPerPiece(size_t length, int bits) {
  const size_t step = length * static_cast<size_t>(bits) % 8 == 0 ? 1 : 8;
  return std::max<size_t>(step, kPiece / length / step * step);
}

}  // namespace milwright::compress
