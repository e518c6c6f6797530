// IEEE binary16 ("fp16") and bfloat16 as 16-bit patterns, converted to and from float bit-exactly.
#ifndef MILWRIGHT_HALF_H_
#define MILWRIGHT_HALF_H_

#include <bit>
#include <cstdint>

namespace milwright {

/// The float that the fp16 bit pattern `h` stands for (exact; NaN payloads kept).
inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16U;
  const uint32_t exponent = (h >> 10U) & 0x1FU;
  uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  uint32_t shift = 0;  // subnormal: normalise it
  while ((mantissa & 0x400U) == 0) {
    mantissa <<= 1U;
    ++shift;
  }
  return std::bit_cast<float>(sign | ((113U - shift) << 23U) | ((mantissa & 0x3FFU) << 13U));
}

/// The fp16 bit pattern nearest to `f`, ties to even; overflow gives infinity, NaN stays NaN.
inline uint16_t FloatToHalf(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>((bits >> 16U) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x3FFU));
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // >= 65520 rounds to infinity
  if (magnitude < 0x33000001U) return sign;                                    // <= 2^-25 rounds to zero
  uint32_t exponent = magnitude >> 23U;
  const uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  uint32_t shift = 13;
  if (exponent < 113U) {  // subnormal result
    shift += 113U - exponent;
    exponent = 112;
  }
  uint32_t rounded = mantissa >> shift;
  const uint32_t rest = mantissa & ((1U << shift) - 1U);
  const uint32_t half = 1U << (shift - 1U);
  if (rest > half || (rest == half && (rounded & 1U) != 0)) ++rounded;
  // The hidden bit of `rounded` adds one to the exponent field, and so does a carry.
  const uint32_t base = exponent == 112U ? 0U : (exponent - 113U) << 10U;
  return static_cast<uint16_t>(sign | (base + rounded));
}

/// `f` rounded to fp16 and back.
inline float RoundToHalf(float f) { return HalfToFloat(FloatToHalf(f)); }

inline float BFloat16ToFloat(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16U); }

/// The bfloat16 bit pattern nearest to `f`, ties to even.
inline uint16_t FloatToBFloat16(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// 8-bit floats of the blob format (f8e4m3fn: no infinity, S.1111.111 is NaN; f8e5m2: IEEE-like).
float Float8E4M3ToFloat(uint8_t bits);
float Float8E5M2ToFloat(uint8_t bits);

}  // namespace milwright

#endif  // MILWRIGHT_HALF_H_
