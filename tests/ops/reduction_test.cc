#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/run_op.h"

namespace milwright {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using testing::Fp16;
using testing::Fp32;
using ::testing::HasSubstr;
using testing::Int32s;
using testing::kInf;
using testing::kNan;

const Literal kCube = Fp32({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});

TEST(Reduce, OverAnyAxes) {
  const auto sum = [](const std::vector<int64_t>& axes, bool keep) {
    return Call("reduce_sum", Opset::kIOS15)
        .With("x", kCube)
        .With("axes", Literal::Int32s(axes))
        .With("keep_dims", Literal::Bool(keep))
        .Result1();
  };
  EXPECT_THAT(sum({1}, false).ToFloats(), ElementsAre(5, 7, 9, 17, 19, 21));
  EXPECT_THAT(sum({-1, 0}, false).ToFloats(), ElementsAre(30, 48));
  EXPECT_EQ(sum({-1, 0}, true).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(sum({0, 1, 2}, false).shape(), Shape{});
  const Tensor all = Call("reduce_sum", Opset::kIOS15).With("x", kCube).Result1();
  EXPECT_EQ(all.shape(), Shape{});
  EXPECT_EQ(all.GetFloat(0), 78);
}

TEST(Reduce, EveryFold) {
  const auto fold = [](const char* op, const Literal& x) {
    return Call(op, Opset::kIOS15).With("x", x).Result1().GetFloat(0);
  };
  const Literal x = Fp32({4}, {3, -4, 1, 0});
  EXPECT_EQ(fold("reduce_l1_norm", x), 8);
  EXPECT_THAT(fold("reduce_l2_norm", x), FloatEq(std::sqrt(26.0F)));
  EXPECT_EQ(fold("reduce_sum_square", x), 26);
  EXPECT_EQ(fold("reduce_max", x), 3);
  EXPECT_EQ(fold("reduce_min", x), -4);
  EXPECT_EQ(fold("reduce_mean", x), 0);
  EXPECT_EQ(fold("reduce_prod", Fp32({3}, {2, -3, 4})), -24);
  EXPECT_THAT(fold("reduce_log_sum", Fp32({2}, {1, 2})), FloatEq(std::log(3.0F)));
  EXPECT_THAT(fold("reduce_log_sum_exp", Fp32({2}, {1000, 1000})), FloatEq(1000 + std::log(2.0F)));
  EXPECT_EQ(fold("reduce_log_sum_exp", Fp32({2}, {-kInf, -kInf})), -kInf);
  EXPECT_TRUE(std::isnan(fold("reduce_max", Fp32({3}, {1, kNan, 2}))));
}

TEST(Reduce, IntegersStayIntegers) {
  const auto fold = [](const char* op, const std::vector<int64_t>& x) {
    return Call(op, Opset::kIOS15).With("x", Literal::Int32s(x)).Result1().GetInt(0);
  };
  EXPECT_EQ(fold("reduce_mean", {-3, -4}), -3);  // toward zero
  EXPECT_EQ(fold("reduce_sum", {16777217, 1}), 16777218);
  EXPECT_EQ(fold("reduce_prod", {65536, 65536}), 0);
  EXPECT_EQ(fold("reduce_max", {-5, -7}), -5);
  EXPECT_EQ(fold("reduce_l2_norm", {3, 4}), 5);
}

// 4096 ones in fp16 add up in fp32, where a running fp16 sum would stall at 2048.
TEST(Reduce, SumsInFp32) {
  const Tensor x = *Tensor::FromFloats({DataType::kFp16, {4096}}, std::vector<float>(4096, 1));
  EXPECT_EQ(Call("reduce_sum", Opset::kIOS16).With("x", Literal(x)).Result1().GetFloat(0), 4096);
}

TEST(Reduce, InferenceOfDynamicShapesAndErrors) {
  const Type dynamic = Type::Tensor(DataType::kFp16, {2, kUnknownDim, 4});
  const auto infer = [&dynamic](const std::vector<int64_t>& axes) {
    return Call("reduce_mean", Opset::kIOS15).WithType("x", dynamic).With("axes", Literal::Int32s(axes)).Infer();
  };
  EXPECT_EQ(infer({2})->front(), Type::Tensor(DataType::kFp16, {2, kUnknownDim}));
  EXPECT_EQ(infer({-2})->front(), Type::Tensor(DataType::kFp16, {2, 4}));
  EXPECT_THAT(infer({3}).status().message(), HasSubstr("axis 3"));
  EXPECT_THAT(infer({3}).status().message(), HasSubstr("[2, ?, 4]"));
  EXPECT_THAT(infer({0, -3}).status().message(), HasSubstr("twice"));
  const auto nothing = Call("reduce_max", Opset::kIOS15).With("x", Fp32({0}, {})).Run();
  EXPECT_THAT(nothing.status().message(), HasSubstr("nothing to choose from"));
  // An empty tensor must not turn into a giant result.
  const Tensor empty = *Tensor::Zeros({DataType::kFp32, {0, int64_t{1} << 40}});
  EXPECT_FALSE(
      Call("reduce_sum", Opset::kIOS15).With("x", Literal(empty)).With("axes", Literal::Int32s({0})).Run().ok());
}

TEST(ReduceArg, FirstOfEqualsAndNanWin) {
  const auto arg = [](const char* op, const Literal& x, int64_t axis) {
    return Call(op, Opset::kIOS15).With("x", x).With("axis", Literal::Int32(axis)).Result1();
  };
  EXPECT_THAT(arg("reduce_argmax", Fp32({2, 3}, {1, 3, 3, 9, 8, 9}), 1).ToInts(), ElementsAre(1, 0));
  EXPECT_THAT(arg("reduce_argmin", Fp32({2, 3}, {1, 3, 1, 9, 8, 0}), 0).ToInts(), ElementsAre(0, 0, 1));
  EXPECT_THAT(arg("reduce_argmax", Fp32({4}, {1, kNan, 5, kNan}), 0).ToInts(), ElementsAre(1));
  EXPECT_THAT(arg("reduce_argmax", Int32s({2}, {16777216, 16777217}), 0).ToInts(), ElementsAre(1));
}

TEST(ReduceArg, OutputTypeFromIos17On) {
  const auto infer = [](const char* dtype) {
    return Call("reduce_argmax", Opset::kIOS17)
        .WithType("x", Type::Tensor(DataType::kFp16, {2, kUnknownDim}))
        .With("keep_dims", Literal::Bool(true))
        .With("output_dtype", Literal::String(dtype))
        .Infer();
  };
  EXPECT_EQ(infer("uint16")->front(), Type::Tensor(DataType::kUInt16, {2, 1}));
  EXPECT_THAT(infer("int8").status().message(), HasSubstr("must be int32 or uint16, not int8"));
}

TEST(Cumsum, EveryDirection) {
  const auto cumsum = [](const Literal& x, int64_t axis, bool exclusive, bool reverse) {
    return Call("cumsum", Opset::kIOS15)
        .With("x", x)
        .With("axis", Literal::Int32(axis))
        .With("exclusive", Literal::Bool(exclusive))
        .With("reverse", Literal::Bool(reverse))
        .Result1();
  };
  const Literal x = Fp16({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(cumsum(x, 1, false, false).ToFloats(), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(cumsum(x, 1, true, false).ToFloats(), ElementsAre(0, 1, 3, 0, 4, 9));
  EXPECT_THAT(cumsum(x, 1, false, true).ToFloats(), ElementsAre(6, 5, 3, 15, 11, 6));
  EXPECT_THAT(cumsum(x, 1, true, true).ToFloats(), ElementsAre(5, 3, 0, 11, 6, 0));
  EXPECT_THAT(cumsum(x, 0, false, false).ToFloats(), ElementsAre(1, 2, 3, 5, 7, 9));
  EXPECT_THAT(cumsum(Literal::Int32s({1, 2, 3}), 0, false, false).ToInts(), ElementsAre(1, 3, 6));
}

}  // namespace
}  // namespace milwright
