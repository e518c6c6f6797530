#include "llm/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "milwright/half.h"

namespace milwright {
namespace {

// Every bf16 number, in order and shuffled (so that blocks of 64 mix what fits fp16 with what does not).
TEST(Converter, EveryBf16) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const Converter converter(DataType::kBf16, DataType::kFp16);
  std::mt19937 random(5);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<uint16_t> half(bits.size());
    for (size_t i = 0; i < bits.size(); i += 61) {
      const size_t count = std::min<size_t>(61, bits.size() - i);
      bool finite_lost = false;
      for (size_t k = i; k < i + count; ++k) {
        const float value = BFloat16ToFloat(bits[k]);
        finite_lost |= std::isfinite(value) && std::isinf(RoundToHalf(value));
      }
      EXPECT_EQ(converter.Convert(reinterpret_cast<const std::byte*>(bits.data() + i),
                                  reinterpret_cast<std::byte*>(half.data() + i), count),
                !finite_lost);
    }
    // Once more in one go, which takes the fast path where it can.
    std::vector<uint16_t> whole(bits.size());
    EXPECT_FALSE(converter.Convert(reinterpret_cast<const std::byte*>(bits.data()),
                                   reinterpret_cast<std::byte*>(whole.data()), bits.size()));
    EXPECT_EQ(half, whole);
    for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(half[i], FloatToHalf(BFloat16ToFloat(bits[i]))) << bits[i];
    std::shuffle(bits.begin(), bits.end(), random);
  }
}

TEST(Converter, OtherTypes) {
  const std::vector<float> values = {0.0F, -0.0F, 1.0F, -2.5F, 65504.0F, 1e-8F, 3e-5F, 1.0009765625F};
  std::vector<uint16_t> half(values.size());
  const Converter to_half(DataType::kFp32, DataType::kFp16);
  ASSERT_TRUE(to_half.Convert(reinterpret_cast<const std::byte*>(values.data()),
                              reinterpret_cast<std::byte*>(half.data()), values.size()));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(half[i], FloatToHalf(values[i]));
  const float large = 70000.0F, infinite = INFINITY;
  uint16_t out = 0;
  EXPECT_FALSE(to_half.Convert(reinterpret_cast<const std::byte*>(&large), reinterpret_cast<std::byte*>(&out), 1));
  EXPECT_TRUE(to_half.Convert(reinterpret_cast<const std::byte*>(&infinite), reinterpret_cast<std::byte*>(&out), 1));
  const Converter from_fp8(DataType::kFp8E4M3, DataType::kFp32);
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::byte>(bits);
    float wide = 0;
    ASSERT_TRUE(from_fp8.Convert(&byte, reinterpret_cast<std::byte*>(&wide), 1));
    const float expected = Float8E4M3ToFloat(static_cast<uint8_t>(bits));
    EXPECT_TRUE(wide == expected || (std::isnan(wide) && std::isnan(expected))) << bits;
  }
}

}  // namespace
}  // namespace milwright
