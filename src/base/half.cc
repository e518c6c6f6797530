#include "milwright/half.h"

#include <cmath>
#include <limits>

namespace milwright {
namespace {

float DecodeFloat8(uint8_t bits, int mantissa_bits, int bias) {
  const float sign = (bits & 0x80U) != 0 ? -1.0F : 1.0F;
  const int exponent = (bits & 0x7F) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), exponent - bias - mantissa_bits);
}

}  // namespace

// OCP 8-bit floating point specification, revision 1.0, section 5.
float Float8E4M3ToFloat(uint8_t bits) {
  if ((bits & 0x7FU) == 0x7FU) return std::numeric_limits<float>::quiet_NaN();
  return DecodeFloat8(bits, 3, 7);
}

float Float8E5M2ToFloat(uint8_t bits) {
  if ((bits & 0x7CU) == 0x7CU) {
    if ((bits & 3U) != 0) return std::numeric_limits<float>::quiet_NaN();
    return (bits & 0x80U) != 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  return DecodeFloat8(bits, 2, 15);
}

}  // namespace milwright
