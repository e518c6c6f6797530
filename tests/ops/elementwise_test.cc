#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/run_op.h"

namespace milwright {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using testing::Fp16;
using testing::Fp32;
using ::testing::HasSubstr;
using testing::Int32s;
using testing::Integers;
using testing::kInf;
using testing::kNan;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMinInt = std::numeric_limits<int32_t>::min();

TEST(Elementwise, BinaryBroadcastsBothWays) {
  const Tensor sum =
      Call("add", Opset::kIOS15).With("x", Fp32({2, 1}, {10, 20})).With("y", Fp32({3}, {1, 2, 3})).Result1();
  EXPECT_EQ(sum.shape(), (Shape{2, 3}));
  EXPECT_THAT(sum.ToFloats(), ElementsAre(11, 12, 13, 21, 22, 23));
  const Tensor rank3 = Call("sub", Opset::kIOS15)
                           .With("x", Int32s({2, 1, 2}, {1, 2, 3, 4}))
                           .With("y", Int32s({2, 1}, {10, 20}))
                           .Result1();
  EXPECT_EQ(rank3.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(rank3.ToInts(), ElementsAre(-9, -8, -19, -18, -7, -6, -17, -16));
  const Tensor scalar = Call("mul", Opset::kIOS15).With("x", Fp32({}, {3})).With("y", Fp32({}, {4})).Result1();
  EXPECT_EQ(scalar.shape(), Shape{});
  EXPECT_THAT(scalar.ToFloats(), ElementsAre(12));
  EXPECT_EQ(Call("add", Opset::kIOS15).With("x", Fp32({0, 3}, {})).With("y", Fp32({1}, {1})).Result1().size(), 0);
}

TEST(Elementwise, InferenceKeepsUnknownSizesAndNamesBadShapes) {
  const Type dynamic = Type::Tensor(DataType::kFp16, {kUnknownDim, 1, 4});
  const auto types =
      Call("add", Opset::kIOS15).WithType("x", dynamic).WithType("y", Type::Tensor(DataType::kFp16, {5, 1})).Infer();
  ASSERT_TRUE(types.ok());
  EXPECT_EQ(types->front(), Type::Tensor(DataType::kFp16, {kUnknownDim, 5, 4}));
  const auto compared = Call("less", Opset::kIOS15).WithType("x", dynamic).WithType("y", dynamic).Infer();
  EXPECT_EQ(compared->front(), Type::Tensor(DataType::kBool, {kUnknownDim, 1, 4}));
  const auto bad = Call("mul", Opset::kIOS15)
                       .WithType("x", Type::Tensor(DataType::kFp16, {2, 3}))
                       .WithType("y", Type::Tensor(DataType::kFp16, {4}))
                       .Infer();
  EXPECT_EQ(bad.status().message(), "mul: the shapes [2, 3] and [4] do not broadcast");
}

TEST(Elementwise, IntegersWrapAndNeverFault) {
  const auto run = [](const char* op, std::vector<int64_t> x, std::vector<int64_t> y) {
    const auto size = static_cast<int64_t>(x.size());
    return Call(op, Opset::kIOS15).With("x", Int32s({size}, x)).With("y", Int32s({size}, y)).Result1().ToInts();
  };
  EXPECT_THAT(run("add", {kMaxInt}, {1}), ElementsAre(kMinInt));
  EXPECT_THAT(run("mul", {65536}, {65536}), ElementsAre(0));
  EXPECT_THAT(run("real_div", {7, -7, 5, kMinInt}, {2, 2, 0, -1}), ElementsAre(3, -3, 0, kMinInt));
  EXPECT_THAT(run("floor_div", {7, -7, 7, 5}, {2, 2, -2, 0}), ElementsAre(3, -4, -4, 0));
  EXPECT_THAT(run("mod", {7, -7, 7, -7, 5}, {3, 3, -3, -3, 0}), ElementsAre(1, 2, -2, -1, 0));
  EXPECT_THAT(run("pow", {2, -3, 0, 1, -1, 2, 0}, {10, 3, 0, -5, -3, -1, -1}), ElementsAre(1024, -27, 1, 1, -1, 0, 0));
  EXPECT_THAT(Call("exp2", Opset::kIOS15).With("x", Int32s({4}, {-1, 0, 30, 31})).Result1().ToInts(),
              ElementsAre(0, 1, 1 << 30, kMaxInt));
  EXPECT_THAT(Call("square", Opset::kIOS15).With("x", Int32s({1}, {65537})).Result1().ToInts(), ElementsAre(131073));
}

TEST(Elementwise, FloorDivisionAndRemainderFollowTheDivisor) {
  const auto run = [](const char* op, float x, float y) {
    return Call(op, Opset::kIOS15).With("x", Fp32({}, {x})).With("y", Fp32({}, {y})).Result1().GetFloat(0);
  };
  EXPECT_EQ(run("floor_div", -7, 2), -4);
  EXPECT_EQ(run("floor_div", 1, 0.1F), 9);  // fp32 0.1 is above 0.1, so it fits nine times
  EXPECT_EQ(run("floor_div", -1, kInf), -1);
  EXPECT_EQ(run("floor_div", 1, 0), kInf);
  EXPECT_EQ(run("mod", -7, 3), 2);
  EXPECT_EQ(run("mod", 7, -3), -2);
  EXPECT_TRUE(std::isnan(run("mod", 1, 0)));
  EXPECT_TRUE(std::isnan(run("pow", -8, 1.0F / 3)));
  EXPECT_EQ(run("pow", 0, 0), 1);
  EXPECT_TRUE(std::isnan(run("maximum", 1, kNan)));
  EXPECT_TRUE(std::isnan(run("minimum", kNan, 1)));
}

TEST(Elementwise, ComparisonsWithNanAreFalseButNotEqual) {
  const auto run = [](const char* op) {
    return Call(op, Opset::kIOS15)
        .With("x", Fp32({3}, {kNan, 1, 2}))
        .With("y", Fp32({3}, {kNan, 1, 1}))
        .Result1()
        .ToInts();
  };
  EXPECT_THAT(run("equal"), ElementsAre(0, 1, 0));
  EXPECT_THAT(run("not_equal"), ElementsAre(1, 0, 1));
  EXPECT_THAT(run("greater"), ElementsAre(0, 0, 1));
  EXPECT_THAT(run("greater_equal"), ElementsAre(0, 1, 1));
  EXPECT_THAT(run("less"), ElementsAre(0, 0, 0));
  EXPECT_THAT(run("less_equal"), ElementsAre(0, 1, 0));
}

TEST(Elementwise, Fp16RoundsOnceAndOverflowsToInfinity) {
  const Tensor sum = Call("add", Opset::kIOS16)
                         .With("x", Fp16({3}, {2048, 65504, 1}))
                         .With("y", Fp16({3}, {1, 65504, 0.0004883F}))
                         .Result1();
  EXPECT_EQ(sum.dtype(), DataType::kFp16);
  // 2049 is a tie between 2048 and 2050; 1 + 2^-11 one between 1 and 1 + 2^-10. Both go to the even pattern.
  EXPECT_THAT(sum.ToFloats(), ElementsAre(2048, kInf, 1));
}

TEST(Elementwise, EpsilonIsInsideAndTakesTheTypeOfX) {
  const auto at_zero = [](const char* op, Literal x) {
    return Call(op, Opset::kIOS15).With("x", std::move(x)).Result1().GetFloat(0);
  };
  EXPECT_EQ(at_zero("rsqrt", Fp32({1}, {0})), static_cast<float>(1 / std::sqrt(double{1e-12F})));
  EXPECT_EQ(at_zero("rsqrt", Fp16({1}, {0})), kInf);  // 1e-12 is 0 in fp16
  EXPECT_EQ(at_zero("log", Fp16({1}, {0})), -kInf);
  EXPECT_NEAR(at_zero("log", Fp32({1}, {0})), -103.28F, 0.01F);  // log(2^-149)
  EXPECT_EQ(at_zero("inverse", Fp32({1}, {0})), 10000);
  // From iOS17 on the parameter may be fp32 though x is fp16.
  EXPECT_EQ(
      Call("inverse", Opset::kIOS17).With("x", Fp16({1}, {1})).With("epsilon", Fp32({}, {1})).Result1().GetFloat(0),
      0.5F);
}

TEST(Elementwise, ClipOrdersItsBoundsFromIos17On) {
  const auto clip = [](Opset opset, float alpha, float beta) {
    return Call("clip", opset)
        .With("x", Fp32({4}, {-5, 0.5F, 5, kNan}))
        .With("alpha", Fp32({}, {alpha}))
        .With("beta", Fp32({}, {beta}));
  };
  const std::vector<float> clipped = clip(Opset::kIOS17, -1, 1).Result1().ToFloats();
  EXPECT_THAT(std::vector<float>(clipped.begin(), clipped.begin() + 3), ElementsAre(-1, 0.5F, 1));
  EXPECT_TRUE(std::isnan(clipped[3]));
  EXPECT_EQ(clip(Opset::kIOS15, 1, -1).Result1().GetFloat(0), -1);
  EXPECT_EQ(clip(Opset::kIOS17, 1, -1).Infer().status().message(), "clip: alpha (1) must be less than beta (-1)");
}

TEST(Elementwise, RoundingGoesToEven) {
  const Literal x = Fp32({5}, {0.5F, 1.5F, 2.5F, -0.5F, -1.5F});
  EXPECT_THAT(Call("round", Opset::kIOS15).With("x", x).Result1().ToFloats(), ElementsAre(0, 2, 2, 0, -2));
  EXPECT_THAT(Call("sign", Opset::kIOS15).With("x", Fp32({3}, {-2, 0, 3})).Result1().ToFloats(), ElementsAre(-1, 0, 1));
  EXPECT_THAT(Call("logical_not", Opset::kIOS15).With("x", Literal::Bools({0, 1})).Result1().ToInts(),
              ElementsAre(1, 0));
}

TEST(Cast, FloatsTruncateAndSaturate) {
  const Literal x = Fp32({6}, {2.9F, -2.9F, 1e20F, -1e20F, kNan, 300});
  const auto cast = [&x](const char* dtype) {
    return Call("cast", Opset::kIOS17).With("x", x).With("dtype", Literal::String(dtype)).Result1().ToInts();
  };
  EXPECT_THAT(cast("int32"), ElementsAre(2, -2, kMaxInt, kMinInt, 0, 300));
  EXPECT_THAT(cast("int8"), ElementsAre(2, -2, 127, -128, 0, 127));
  EXPECT_THAT(cast("uint16"), ElementsAre(2, 0, 65535, 0, 0, 300));
  EXPECT_THAT(cast("bool"), ElementsAre(1, 1, 1, 1, 1, 1));
}

// field-reports.md, T23 and T24: an index cast to a narrower integer wraps.
TEST(Cast, IntegersWrap) {
  const auto cast = [](int64_t value, const char* dtype) {
    return Call("cast", Opset::kIOS17).With("x", Literal::Int32(value)).With("dtype", Literal::String(dtype)).Result1();
  };
  EXPECT_EQ(cast(40000, "int16").GetInt(0), -25536);
  EXPECT_EQ(cast(66000, "uint16").GetInt(0), 464);
  EXPECT_EQ(cast(70000, "fp16").GetFloat(0), kInf);
  EXPECT_EQ(cast(16777217, "fp32").GetFloat(0), 16777216);  // a tie, to even
}

TEST(Cast, EveryPairOfTypesIsCovered) {
  const char* names[] = {"fp16", "fp32", "int8", "uint8", "int16", "uint16", "int32", "bool"};
  for (const char* from : names) {
    for (const char* to : names) {
      const Tensor x = *Tensor::FromFloats({*DataTypeFromName(from), {2}}, std::vector<float>{0, 1});
      const Tensor y = Call("cast", Opset::kIOS17).With("x", Literal(x)).With("dtype", Literal::String(to)).Result1();
      EXPECT_EQ(DataTypeName(y.dtype()), to);
      EXPECT_THAT(y.ToFloats(), ElementsAre(0, 1)) << from << " to " << to;
    }
  }
  EXPECT_THAT(Call("cast", Opset::kIOS16)
                  .With("x", Literal::Int32(1))
                  .With("dtype", Literal::String("int8"))
                  .Infer()
                  .status()
                  .message(),
              HasSubstr("cannot cast to int8 in opset iOS16"));
}

TEST(Select, TakesItsShapeFromAAndB) {
  const Tensor chosen = Call("select", Opset::kIOS15)
                            .With("cond", Literal::Bools({1, 0}))
                            .With("a", Fp16({2, 2}, {1, kNan, 3, kNan}))
                            .With("b", Fp16({}, {-1}))
                            .Result1();
  EXPECT_EQ(chosen.shape(), (Shape{2, 2}));
  EXPECT_THAT(chosen.ToFloats(), ElementsAre(1, -1, 3, -1));
  const auto bad = Call("select", Opset::kIOS15)
                       .WithType("cond", Type::Tensor(DataType::kBool, {3}))
                       .WithType("a", Type::Scalar(DataType::kFp16))
                       .WithType("b", Type::Tensor(DataType::kFp16, {1}))
                       .Infer();
  EXPECT_EQ(bad.status().message(), "select: cond of shape [3] does not broadcast to the shape [1] of a and b");
}

// field-reports.md, report 7.
TEST(Identity, RefusesAState) {
  const auto bad = Call("identity", Opset::kIOS18).WithType("x", Type::State({DataType::kFp16, {4}})).Infer();
  EXPECT_THAT(bad.status().message(), HasSubstr("x is a state<tensor<fp16, [4]>>"));
  EXPECT_THAT(Call("identity", Opset::kIOS15).With("x", Int32s({2}, {4, 5})).Result1().ToInts(), ElementsAre(4, 5));
}

}  // namespace
}  // namespace milwright
