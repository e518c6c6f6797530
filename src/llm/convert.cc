#include "llm/convert.h"

#include <cmath>
#include <cstring>

#include "milwright/half.h"

namespace milwright {
namespace {

uint16_t Load16(const std::byte* p, size_t i) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * i, 2);
  return bits;
}

constexpr bool IsHalfInfinityOrNan(uint16_t half) { return (half & 0x7C00U) == 0x7C00U; }

constexpr size_t kBlock = 64;

/// Converts a block of bf16 numbers to fp16 when all of them are normal numbers in fp16: those have seven bits behind
/// the point in either format, so only the exponent's bias changes. Else returns false. Vector code, as the sizes are
/// fixed.
bool ConvertNormalBlock(const std::byte* source, std::byte* target) {
  constexpr uint16_t kBias = (127 - 15) << 7;
  constexpr uint16_t kSmallest = 113 << 7;  // 2^-14
  uint16_t in[kBlock], out[kBlock];
  std::memcpy(in, source, sizeof in);
  uint16_t outside = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const auto magnitude = static_cast<uint16_t>(in[i] & 0x7FFFU);
    const auto above = static_cast<uint16_t>(magnitude - kSmallest);
    outside |= static_cast<uint16_t>(above >= (30U << 7U) ? 1U : 0U);
    out[i] = static_cast<uint16_t>((in[i] & 0x8000U) | static_cast<uint16_t>((magnitude - kBias) << 3U));
  }
  if (outside != 0) return false;
  std::memcpy(target, out, sizeof out);
  return true;
}

}  // namespace

bool Converter::Supports(DataType source) {
  return source == DataType::kFp32 || source == DataType::kFp16 || source == DataType::kBf16 ||
         source == DataType::kFp8E4M3 || source == DataType::kFp8E5M2;
}

float Converter::Load(const std::byte* source, DataType type, size_t i) {
  switch (type) {
    case DataType::kFp32: {
      float value;
      std::memcpy(&value, source + 4 * i, 4);
      return value;
    }
    case DataType::kFp16:
      return HalfToFloat(Load16(source, i));
    case DataType::kBf16:
      return BFloat16ToFloat(Load16(source, i));
    case DataType::kFp8E4M3:
      return Float8E4M3ToFloat(static_cast<uint8_t>(source[i]));
    case DataType::kFp8E5M2:
      return Float8E5M2ToFloat(static_cast<uint8_t>(source[i]));
    default:
      return 0;
  }
}

Converter::Converter(DataType source, DataType target) : source_(source), target_(target) {
  if (target != DataType::kFp16 || source == DataType::kFp16 || source == DataType::kFp32) return;
  half_table_.resize(size_t{1} << static_cast<unsigned>(BitWidth(source)));
  for (size_t bits = 0; bits < half_table_.size(); ++bits) {
    const auto wide = static_cast<uint16_t>(bits);
    std::byte bytes[2];
    std::memcpy(bytes, &wide, 2);
    half_table_[bits] = FloatToHalf(Load(bytes, source, 0));
  }
}

bool Converter::Convert(const std::byte* source, std::byte* target, size_t count) const {
  if (source_ == target_) {
    std::memcpy(target, source, count * static_cast<size_t>(BitWidth(source_)) / 8);
    return true;
  }
  if (target_ == DataType::kFp32) {
    for (size_t i = 0; i < count; ++i) {
      const float value = Load(source, source_, i);
      std::memcpy(target + 4 * i, &value, 4);
    }
    return true;
  }
  bool suspect = false;
  for (size_t i = 0; i < count; ++i) {
    if (source_ == DataType::kBf16 && i % kBlock == 0) {
      while (i + kBlock <= count && ConvertNormalBlock(source + 2 * i, target + 2 * i)) i += kBlock;
      if (i == count) break;
    }
    uint16_t half;
    if (source_ == DataType::kFp32) {
      half = FloatToHalf(Load(source, DataType::kFp32, i));
    } else if (source_ == DataType::kBf16) {
      half = half_table_[Load16(source, i)];
    } else {
      half = half_table_[static_cast<uint8_t>(source[i])];
    }
    suspect |= IsHalfInfinityOrNan(half);
    std::memcpy(target + 2 * i, &half, 2);
  }
  if (!suspect) return true;
  for (size_t i = 0; i < count; ++i) {
    if (IsHalfInfinityOrNan(Load16(target, i)) && std::isfinite(Load(source, source_, i))) return false;
  }
  return true;
}

}  // namespace milwright
