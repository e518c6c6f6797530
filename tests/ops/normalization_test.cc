#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using testing::OpCall;

constexpr float kNormUlps = 1e-6F;  // a handful of fp32 roundings of values near 1

TEST(BatchNorm, ScalesEachChannelWithEpsilonInsideTheRoot) {
  const auto norm = OpCall("batch_norm")
                        .Floats("x", {1, 2, 2}, {1, 3, 10, 20})
                        .Floats("mean", {2}, {1, 10})
                        .Floats("variance", {2}, {3, 24})
                        .Floats("gamma", {2}, {1, 2})
                        .Floats("beta", {2}, {0.5F, -1})
                        .Float("epsilon", 1);
  EXPECT_THAT(norm.Output(), ElementsAre(0.5F, 1.5F, -1, 3));
}

TEST(InstanceNorm, UsesThePopulationVariance) {
  // Mean 2, variance 1 (divided by N), epsilon 3: (x - 2) / 2.
  const auto norm = OpCall("instance_norm")
                        .Floats("x", {1, 1, 2}, {1, 3})
                        .Floats("gamma", {1}, {4})
                        .Floats("beta", {1}, {1})
                        .Float("epsilon", 3);
  EXPECT_THAT(norm.Output(), ElementsAre(-1, 3));
}

TEST(LayerNorm, NormalisesOverItsAxesInAnyPosition) {
  // Over axis 0 of [[1, 10], [3, 30]]: means (2, 20), variances (1, 100); epsilon 0 up to rounding.
  const auto norm = [](const std::vector<int64_t>& axes) {
    return OpCall("layer_norm").Floats("x", {2, 2}, {1, 10, 3, 30}).Ints("axes", axes).Float("epsilon", 0);
  };
  EXPECT_THAT(norm({0}).Output(), ElementsAre(-1, -1, 1, 1));
  EXPECT_THAT(norm({-2}).Output(), ElementsAre(-1, -1, 1, 1));
  EXPECT_THAT(norm({1}).Output(), ElementsAre(-1, 1, -1, 1));
}

TEST(LayerNorm, AbsentAxesMeanAllAndGammaFollowsTheAxes) {
  const auto norm = OpCall("layer_norm")
                        .Floats("x", {1, 2}, {1, 3})
                        .Floats("gamma", {1, 2}, {2, 4})
                        .Floats("beta", {1, 2}, {1, 1})
                        .Float("epsilon", 0);
  EXPECT_THAT(norm.Output(), ElementsAre(-1, 5));
}

TEST(LayerNorm, AcceptsAnUnknownSizeAndNamesWrongAxes) {
  const auto norm = [](const std::vector<int64_t>& axes) {
    return OpCall("layer_norm").Typed("x", DataType::kFp16, {kUnknownDim, 4}).Ints("axes", axes);
  };
  EXPECT_EQ(norm({1}).InferredShape(), "[?, 4]");
  EXPECT_THAT(norm({2}).InferError(), HasSubstr("axis 2 is outside a tensor of rank 2"));
  EXPECT_THAT(norm({1, -1}).InferError(), HasSubstr("axis 1 of x [?, 4] twice"));
  EXPECT_THAT(norm({1}).Typed("gamma", DataType::kFp16, {3}).InferError(),
              HasSubstr("gamma has shape [3], but x of shape [?, 4] needs [4]"));
}

TEST(L2Norm, TakesTheLastThreeDimensions) {
  const auto norm = OpCall("l2_norm").Floats("x", {2, 1, 1, 2}, {3, 4, 0, 12}).Float("epsilon", 0);
  EXPECT_THAT(norm.Output(), ElementsAre(0.6F, 0.8F, 0, 1));
}

TEST(LocalResponseNorm, WindowReachesFurtherBack) {
  // size 2: channels c-1 and c. x = 1, 2, 3; k = 1, alpha = 2, beta = 1: x / (1 + sum of squares).
  const auto norm = OpCall("local_response_norm")
                        .Floats("x", {1, 3, 1}, {1, 2, 3})
                        .Int("size", 2)
                        .Float("alpha", 2)
                        .Float("beta", 1)
                        .Float("k", 1);
  EXPECT_THAT(norm.Output(), ElementsAre(0.5F, FloatNear(2.0F / 6, kNormUlps), FloatNear(3.0F / 14, kNormUlps)));
  EXPECT_THAT(OpCall("local_response_norm").Typed("x", DataType::kFp32, {1, 3, 1}).Int("size", 0).InferError(),
              HasSubstr("size is 0"));
}

TEST(Normalization, EmptyTensorsGiveEmptyTensors) {
  for (const Shape& shape : {Shape{int64_t{1} << 40, 0, 4}, Shape{2, 3, 0}}) {
    const auto layer = OpCall("layer_norm").Floats("x", shape, {}).Ints("axes", {0}).Run();
    ASSERT_TRUE(layer.ok()) << layer.status().message();
    EXPECT_EQ(layer->front().shape(), shape);
    const auto instance = OpCall("instance_norm").Floats("x", shape, {}).Run();
    ASSERT_TRUE(instance.ok()) << instance.status().message();
    EXPECT_EQ(instance->front().shape(), shape);
  }
}

TEST(Normalization, RanksAndShapesAreChecked) {
  EXPECT_THAT(OpCall("instance_norm").Typed("x", DataType::kFp32, {1, 2}).InferError(),
              HasSubstr("x has shape [1, 2]; it takes rank 3 to 4"));
  EXPECT_THAT(OpCall("batch_norm")
                  .Typed("x", DataType::kFp32, {1, 2, 5})
                  .Floats("mean", {3}, {0, 0, 0})
                  .Floats("variance", {3}, {1, 1, 1})
                  .InferError(),
              HasSubstr("mean has shape [3], but x of shape [1, 2, 5] needs [2]"));
}

}  // namespace
}  // namespace milwright
