#include "milwright/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "milwright/half.h"

namespace milwright {
namespace {

TEST(Half, EveryPatternSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
    } else {
      EXPECT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

// Between two neighbouring halves a < b the float midpoint goes to the one with the even pattern, and the floats next
// to the midpoint to their own side.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float a = HalfToFloat(static_cast<uint16_t>(bits));
    const float b = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = (a + b) / 2;
    EXPECT_EQ(FloatToHalf(middle), (bits & 1U) == 0 ? bits : bits + 1);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), bits);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 1e9F)), bits + 1);
  }
  EXPECT_EQ(FloatToHalf(65519.0F), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00);
  EXPECT_EQ(FloatToHalf(-1e30F), 0xFC00);
}

TEST(Half, EightBitFloats) {
  EXPECT_EQ(Float8E4M3ToFloat(0x7E), 448.0F);
  EXPECT_TRUE(std::isnan(Float8E4M3ToFloat(0x7F)));
  EXPECT_EQ(Float8E4M3ToFloat(0x01), std::ldexp(1.0F, -9));
  EXPECT_EQ(Float8E5M2ToFloat(0x7B), 57344.0F);
  EXPECT_TRUE(std::isinf(Float8E5M2ToFloat(0xFC)));
}

TEST(Tensor, SubByteElementsAreOneLsbFirstStream) {
  Tensor tensor = *Tensor::Zeros({DataType::kUInt3, {4}});
  for (int64_t i = 0; i < 4; ++i) tensor.SetInt(i, i + 4);  // 4, 5, 6, 7
  ASSERT_EQ(tensor.bytes().size(), 2U);
  EXPECT_EQ(std::to_integer<int>(tensor.bytes()[0]), (4 | 5 << 3 | 6 << 6) & 255);
  EXPECT_EQ(tensor.ToInts(), (std::vector<int64_t>{4, 5, 6, 7}));
  Tensor int4 = *Tensor::Zeros({DataType::kInt4, {3}});
  int4.SetInt(1, -8);
  int4.SetInt(2, 7);
  EXPECT_EQ(int4.ToInts(), (std::vector<int64_t>{0, -8, 7}));
}

TEST(Tensor, CopiesAreValues) {
  Tensor a = *Tensor::FromFloats({DataType::kFp16, {2}}, std::vector<float>{1, 2});
  Tensor b = a;
  b.SetDouble(0, 9);
  EXPECT_EQ(a.GetDouble(0), 1);
  EXPECT_EQ(b.GetDouble(0), 9);
}

TEST(Tensor, ConversionsSaturate) {
  Tensor t = *Tensor::Zeros({DataType::kInt8, {3}});
  t.SetDouble(0, 1000);
  t.SetDouble(1, -1000);
  t.SetDouble(2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(t.ToInts(), (std::vector<int64_t>{127, -128, 0}));
  Tensor wide = *Tensor::Zeros({DataType::kInt64, {2}});
  wide.SetDouble(0, 1e30);
  wide.SetDouble(1, -1e30);
  EXPECT_EQ(wide.ToInts(),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}));
}

TEST(Type, SizesThatOverflowAreErrors) {
  EXPECT_FALSE(ElementCount({int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(ElementCount({int64_t{1} << 40, int64_t{1} << 40, 0}).ok());
  EXPECT_FALSE(ByteSize({DataType::kFp32, {int64_t{1} << 61}}).ok());
  EXPECT_FALSE(ElementCount({-1}).ok());
  EXPECT_EQ(*ElementCount({}), 1);
  EXPECT_EQ(*ByteSize({DataType::kUInt3, {5}}), 2);
  EXPECT_FALSE(Tensor::Zeros({DataType::kFp32, {int64_t{1} << 40}}).ok());
}

TEST(Type, PrintsAsMil) {
  EXPECT_EQ(TypeToString(Type::State({DataType::kFp16, {2, 64}})), "state<tensor<fp16, [2, 64]>>");
  EXPECT_EQ(TypeToString(Type::List(Type::Tensor(DataType::kFp32, {kUnknownDim}), 3)), "list<tensor<fp32, [?]>, 3>");
  EXPECT_EQ(OpsetFromName("coreml8"), Opset::kIOS18);
  EXPECT_EQ(OpsetFromName("ios26"), Opset::kIOS26);
  EXPECT_FALSE(OpsetFromName("ios14").has_value());
}

}  // namespace
}  // namespace milwright
