// Floats as whole numbers of the same order.
#ifndef MILWRIGHT_COMPRESS_ORDERED_BITS_H_
#define MILWRIGHT_COMPRESS_ORDERED_BITS_H_

#include <bit>
#include <cstdint>

namespace milwright::compress {

constexpr uint32_t kFloatSign = 1U << 31U;

/// Ascending with the value; -0 comes just before 0.
inline uint32_t OrderedBits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & kFloatSign) != 0 ? ~bits : bits | kFloatSign;
}
inline float FromOrderedBits(uint32_t key) {
  return std::bit_cast<float>((key & kFloatSign) != 0 ? key & ~kFloatSign : ~key);
}

}  // namespace milwright::compress

#endif  // MILWRIGHT_COMPRESS_ORDERED_BITS_H_
