#include "text/number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace milwright {
namespace {

// FormatNumber then ParseNumber (or ParseNanPattern) must give the bits back.
uint64_t ThereAndBack(DataType dtype, uint64_t bits) {
  const std::string text = FormatNumber(dtype, bits);
  const bool is_pattern = text.starts_with("nan(");
  const ParsedNumber parsed =
      is_pattern ? ParseNanPattern(dtype, text.substr(4, text.size() - 5)) : ParseNumber(dtype, text);
  EXPECT_EQ(parsed.error, "") << text;
  return parsed.bits;
}

TEST(Number, EveryPatternOfTheNarrowTypesComesBack) {
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16, DataType::kFp8E4M3, DataType::kFp8E5M2,
                               DataType::kInt8, DataType::kUInt8, DataType::kInt16, DataType::kUInt16}) {
    const uint64_t count = uint64_t{1} << BitWidth(dtype);
    for (uint64_t bits = 0; bits < count; ++bits) {
      ASSERT_EQ(ThereAndBack(dtype, bits), bits) << DataTypeName(dtype) << " " << FormatNumber(dtype, bits);
    }
  }
}

TEST(Number, PatternsOfTheWideTypesComeBack) {
  const uint64_t seed = 20240611;
  std::mt19937_64 random(seed);
  const auto check = [](DataType dtype, uint64_t bits) {
    ASSERT_EQ(ThereAndBack(dtype, bits), bits) << DataTypeName(dtype) << " " << FormatNumber(dtype, bits);
  };
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = random();
    check(DataType::kFp32, bits & 0xFFFFFFFFU);
    check(DataType::kFp32, bits & 0x807FFFFFU);                  // denormals
    check(DataType::kFp32, (bits & 0x807FFFFFU) | 0x7F800000U);  // infinities and NaNs
    check(DataType::kFp64, bits);
    check(DataType::kFp64, bits & 0x800FFFFFFFFFFFFFU);
    check(DataType::kFp64, (bits & 0x800FFFFFFFFFFFFFU) | 0x7FF0000000000000U);
    check(DataType::kInt64, bits);
    check(DataType::kUInt64, bits);
    check(DataType::kInt32, bits & 0xFFFFFFFFU);
  }
}

TEST(Number, FloatsAreWrittenAsAppleWritesThem) {
  // These texts stand in the compiled files under real-files.
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x0000), "0x0p+0");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x4000), "0x1p+1");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x0001), "0x1p-24");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x70E2), "0x1.388p+13");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0xFC00), "-inf");
  EXPECT_EQ(FormatNumber(DataType::kFp32, 0xBE2A83FAU), "-0x1.5507f4p-3");
  EXPECT_EQ(FormatNumber(DataType::kFp64, std::bit_cast<uint64_t>(0.125)), "0x1p-3");
}

TEST(Number, SpecialFloats) {
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x8000), "-0x0p+0");
  EXPECT_EQ(FormatNumber(DataType::kFp32, 0x00000001), "0x1p-149");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x7C00), "inf");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x7E00), "nan");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0xFE00), "-nan");
  EXPECT_EQ(FormatNumber(DataType::kFp16, 0x7D01), "nan(0x7d01)");
  EXPECT_EQ(FormatNumber(DataType::kFp32, 0xFFC00001U), "nan(0xffc00001)");
  EXPECT_EQ(FormatNumber(DataType::kFp8E4M3, 0x7F), "nan");
  EXPECT_EQ(FormatNumber(DataType::kFp8E4M3, 0x7E), "0x1.cp+8");  // 448, the largest
}

TEST(Number, DecimalFloatsRoundToNearestEven) {
  EXPECT_EQ(ParseNumber(DataType::kFp32, "0.1").bits, 0x3DCCCCCDU);
  EXPECT_EQ(ParseNumber(DataType::kFp64, "0.0091552738483776253").bits, std::bit_cast<uint64_t>(0.0091552738483776253));
  EXPECT_EQ(ParseNumber(DataType::kFp16, "1").bits, 0x3C00U);
  EXPECT_EQ(ParseNumber(DataType::kFp16, "2049").bits, 0x6800U);  // between 2048 and 2050: to the even one, 2048
  EXPECT_EQ(ParseNumber(DataType::kFp16, "2051").bits, 0x6802U);  // between 2050 and 2052: 2052
  // Just above the middle of 2048 and 2050; rounding to float first would lose the excess and give 2048.
  EXPECT_EQ(ParseNumber(DataType::kFp16, "2049.000000001").bits, 0x6801U);
  EXPECT_EQ(ParseNumber(DataType::kFp16, "0x1p-25").bits, 0x0000U);    // half the smallest: to even
  EXPECT_EQ(ParseNumber(DataType::kFp16, "0x1.8p-25").bits, 0x0001U);  // more than half
  EXPECT_EQ(ParseNumber(DataType::kFp16, "65519").bits, 0x7BFFU);
  EXPECT_EQ(ParseNumber(DataType::kFp16, "-65519").bits, 0xFBFFU);
}

TEST(Number, WhatATypeDoesNotHoldIsAnError) {
  EXPECT_EQ(ParseNumber(DataType::kFp16, "65520").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp16, "1e300").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp32, "0x1p+128").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp64, "1e400").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp8E4M3, "464").bits, 0x7EU);  // the tie with 480, which is no number here
  EXPECT_EQ(ParseNumber(DataType::kFp8E4M3, "465").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp8E4M3, "inf").error, "does not exist in this type");
  EXPECT_EQ(ParseNumber(DataType::kInt8, "128").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kInt8, "-128").bits, 0x80U);
  EXPECT_EQ(ParseNumber(DataType::kInt8, "-129").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kUInt4, "16").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kInt4, "-8").bits, 0x8U);
  EXPECT_EQ(ParseNumber(DataType::kUInt1, "-1").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kUInt64, "18446744073709551615").bits, ~uint64_t{0});
  EXPECT_EQ(ParseNumber(DataType::kUInt64, "18446744073709551616").error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kInt64, "-9223372036854775808").bits, uint64_t{1} << 63);
}

TEST(Number, MalformedNumbersAreErrors) {
  for (const char* text : {"", "-", "--1", "-+1", "0x", "0x-1p+0", "0xinf", "0xnan", "1p", "1.2.3", "0x1p+", "infinity",
                           "NaN", "e5", "1e5x", "x1"}) {
    EXPECT_NE(ParseNumber(DataType::kFp32, text).error, "") << text;
    EXPECT_NE(ParseNumber(DataType::kFp64, text).error, "") << text;
    EXPECT_NE(ParseNumber(DataType::kFp16, text).error, "") << text;
    EXPECT_NE(ParseNumber(DataType::kInt32, text).error, "") << text;
  }
  EXPECT_EQ(ParseNumber(DataType::kInt32, "1.5").error, "is not an integer");
  EXPECT_EQ(ParseNumber(DataType::kBool, "yes").error, "is neither true nor false");
  EXPECT_EQ(ParseNanPattern(DataType::kFp16, "0x7c00").error, "is not the bit pattern of a NaN");
  EXPECT_EQ(ParseNanPattern(DataType::kFp16, "0x17e00").error, "is not the bit pattern of a NaN");
  EXPECT_EQ(ParseNanPattern(DataType::kFp16, "32256").error, "is not the bit pattern of a NaN");
}

TEST(Number, ALongNumberTakesNoLongTime) {
  const std::string digits(5'000'000, '9');
  EXPECT_EQ(ParseNumber(DataType::kInt64, digits).error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp64, digits).error, "is out of range");
  EXPECT_EQ(ParseNumber(DataType::kFp64, "0." + digits).bits, std::bit_cast<uint64_t>(1.0));
}

}  // namespace
}  // namespace milwright
