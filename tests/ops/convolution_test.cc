#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpCall;

constexpr DataType kFp16 = DataType::kFp16;
constexpr DataType kFp32 = DataType::kFp32;

std::vector<float> Sequence(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST(Conv, CrossCorrelatesWithoutFlippingTheKernel) {
  // x = 1..4, kernel (1, 10): 1 + 20, 2 + 30, 3 + 40.
  const auto conv = OpCall("conv").Floats("x", {1, 1, 4}, Sequence(4)).Floats("weight", {1, 1, 2}, {1, 10});
  EXPECT_THAT(conv.Output(), ElementsAre(21, 32, 43));
}

TEST(Conv, AddsTheBiasAndKeepsGroupsApart) {
  const auto conv = OpCall("conv")
                        .Floats("x", {1, 2, 2}, {1, 2, 3, 4})
                        .Floats("weight", {2, 1, 1}, {10, 100})
                        .Floats("bias", {2}, {0.5F, 0.25F})
                        .Int("groups", 2);
  EXPECT_THAT(conv.Output(), ElementsAre(10.5F, 20.5F, 300.25F, 400.25F));
}

TEST(Conv, PadsAtTheEndForSameAndAtTheStartForSameLower) {
  const auto conv = [](const char* pad_type) {
    return OpCall("conv")
        .Floats("x", {1, 1, 3}, {1, 2, 3})
        .Floats("weight", {1, 1, 2}, {1, 10})
        .Text("pad_type", pad_type);
  };
  EXPECT_THAT(conv("same").Output(), ElementsAre(21, 32, 3));
  EXPECT_THAT(conv("same_lower").Output(), ElementsAre(10, 21, 32));
  EXPECT_THAT(OpCall("conv", Opset::kIOS15)
                  .Floats("x", {1, 1, 3}, {1, 2, 3})
                  .Floats("weight", {1, 1, 2}, {1, 10})
                  .Text("pad_type", "same_lower")
                  .InferError(),
              HasSubstr("same_lower"));
}

TEST(Conv, IgnoresPadUnlessItIsCustom) {
  const auto conv = [](const char* pad_type) {
    return OpCall("conv")
        .Floats("x", {1, 1, 2}, {1, 2})
        .Floats("weight", {1, 1, 1}, {1})
        .Ints("pad", {1, 2})
        .Text("pad_type", pad_type);
  };
  EXPECT_THAT(conv("valid").Output(), ElementsAre(1, 2));
  EXPECT_THAT(conv("custom").Output(), ElementsAre(0, 1, 2, 0, 0));
}

TEST(Conv, RoundsTheSumOnceToTheTypeOfX) {
  // 2048 + 1 + 1 = 2050 is an fp16 number; rounding after each step would give 2048.
  const auto conv =
      OpCall("conv").Floats("x", {1, 3, 1}, {2048, 1, 1}, kFp16).Floats("weight", {1, 3, 1}, {1, 1, 1}, kFp32);
  const auto results = conv.Run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ(results->front().type(), (TensorType{kFp16, {1, 1, 1}}));
  EXPECT_EQ(results->front().GetFloat(0), 2050);
}

TEST(Conv, InfersUnknownSizes) {
  const auto conv = [](Shape x) {
    return OpCall("conv").Typed("x", kFp32, std::move(x)).Typed("weight", kFp32, {8, 4, 3, 3}).Ints("strides", {2, 1});
  };
  EXPECT_EQ(conv({kUnknownDim, 4, 9, kUnknownDim}).InferredShape(), "[?, 8, 4, ?]");
  EXPECT_EQ(conv({2, kUnknownDim, 9, 3}).InferredShape(), "[2, 8, 4, 1]");
}

TEST(Conv, ErrorsNameShapesAndAxes) {
  const auto conv = [](Shape x, Shape weight) {
    return OpCall("conv").Typed("x", kFp32, std::move(x)).Typed("weight", kFp32, std::move(weight));
  };
  EXPECT_EQ(conv({1, 4, 9}, {8, 3, 3}).InferError(),
            "conv: x [1, 4, 9] and weight [8, 3, 3] with 1 groups: x has 4 channels, but weight is for 3");
  EXPECT_THAT(conv({1, 4, 2}, {8, 4, 3}).InferError(), HasSubstr("spatial dimension 0 of x [1, 4, 2]"));
  EXPECT_THAT(conv({1, 4}, {8, 4}).InferError(), HasSubstr("equal rank, 3 to 5"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 0, 3}).InferError(), HasSubstr("weight [8, 0, 3] has 0 channels"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, int64_t{1} << 40}).InferError(), HasSubstr("the window [1099511627776]"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Ints("strides", {0}).InferError(),
              HasSubstr("strides of spatial dimension 0"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Ints("strides", {1, 1}).InferError(), HasSubstr("strides has 2 entries"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Int("groups", 0).InferError(), HasSubstr("groups is 0"));
  EXPECT_THAT(conv({1, 4, 9}, {9, 2, 3}).Int("groups", 2).InferError(), HasSubstr("9 output channels"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Text("pad_type", "full").InferError(), HasSubstr("pad_type 'full'"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Text("pad_type", "custom").Ints("pad", {1}).InferError(),
              HasSubstr("pad has 1 entries"));
  EXPECT_THAT(conv({1, 4, 9}, {8, 4, 3}).Typed("bias", kFp32, {4}).InferError(), HasSubstr("bias of shape [4]"));
}

TEST(ConvQuantized, DequantizesTheWeightLinearly) {
  Tensor weight = *Tensor::Zeros({DataType::kUInt8, {1, 1, 1}});
  weight.SetInt(0, 200);
  const auto conv = OpCall("conv_quantized")
                        .Floats("x", {1, 1, 2}, {1, 2})
                        .Value("weight", Literal(weight))
                        .Text("quantization_type", "linear")
                        .Float("quant_scale", 0.5)
                        .Float("quant_bias", -1);
  EXPECT_THAT(conv.Output(), ElementsAre(99, 198));
}

TEST(ConvTranspose, SpreadsEveryInputOverItsWindow) {
  const auto conv = OpCall("conv_transpose")
                        .Floats("x", {1, 1, 2}, {1, 2})
                        .Floats("weight", {1, 1, 3}, {1, 10, 100})
                        .Floats("bias", {1}, {0.5F});
  EXPECT_THAT(conv.Output(), ElementsAre(1.5F, 12.5F, 120.5F, 200.5F));
}

TEST(ConvTranspose, CropsByPadAndHonoursTheOutputShape) {
  const auto conv = [] {
    return OpCall("conv_transpose")
        .Floats("x", {1, 1, 2}, {1, 2})
        .Floats("weight", {1, 1, 3}, {1, 10, 100})
        .Ints("strides", {2});
  };
  EXPECT_THAT(conv().Output(), ElementsAre(1, 10, 102, 20, 200));
  EXPECT_THAT(conv().Text("pad_type", "custom").Ints("pad", {1, 0}).Output(), ElementsAre(10, 102, 20, 200));
  EXPECT_THAT(conv().Text("pad_type", "same").Output(), ElementsAre(1, 10, 102, 20));
  EXPECT_THAT(conv().Ints("output_shape", {1, 1, 6}).Output(), ElementsAre(1, 10, 102, 20, 200, 0));
  EXPECT_THAT(conv().Ints("output_shape", {1, 2, 6}).InferError(), HasSubstr("output_shape [1, 2, 6]"));
  EXPECT_THAT(conv().Ints("output_shape", {1, 1, -6}).InferError(), HasSubstr("positive"));
}

TEST(ConvTranspose, InfersUnknownSizes) {
  const auto conv = OpCall("conv_transpose")
                        .Typed("x", kFp16, {kUnknownDim, 4, kUnknownDim, 5})
                        .Typed("weight", kFp16, {4, 3, 2, 2})
                        .Int("groups", 2)
                        .Ints("strides", {2, 2});
  EXPECT_EQ(conv.InferredShape(), "[?, 6, ?, 10]");
}

// ---- properties over random geometries ----

struct RandomConv {
  Shape x;
  Shape weight;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pad;
  int64_t groups = 1;
};

RandomConv Draw(std::mt19937& generator) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  RandomConv conv;
  conv.groups = pick(1, 3);
  const int64_t in_channels = pick(1, 3);
  conv.x = {pick(1, 2), in_channels * conv.groups};
  conv.weight = {pick(1, 3) * conv.groups, in_channels};
  for (int64_t d = pick(1, 3); d > 0; --d) {
    conv.x.push_back(pick(3, 7));
    conv.weight.push_back(pick(1, 2));
    conv.strides.push_back(pick(1, 3));
    conv.dilations.push_back(pick(1, 2));
    conv.pad.push_back(pick(0, 2));
    conv.pad.push_back(pick(0, 2));
  }
  return conv;
}

std::string Describe(const RandomConv& conv, unsigned seed) {
  return "seed " + std::to_string(seed) + ": x " + ShapeToString(conv.x) + " weight " + ShapeToString(conv.weight) +
         " strides " + ShapeToString(conv.strides) + " dilations " + ShapeToString(conv.dilations) + " pad " +
         ShapeToString(conv.pad) + " groups " + std::to_string(conv.groups);
}

// Small integers, so that every sum is exact whatever its order.
std::vector<float> SmallIntegers(std::mt19937& generator, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(shape)));
  for (float& value : values) value = static_cast<float>(std::uniform_int_distribution<int>(-4, 4)(generator));
  return values;
}

OpCall CallOf(const RandomConv& conv, std::string_view op) {
  return OpCall(op)
      .Ints("strides", conv.strides)
      .Ints("dilations", conv.dilations)
      .Text("pad_type", "custom")
      .Ints("pad", conv.pad)
      .Int("groups", conv.groups);
}

std::vector<int64_t> Unflatten(int64_t index, std::span<const int64_t> sizes) {
  std::vector<int64_t> coordinate(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; index /= sizes[d]) coordinate[d] = index % sizes[d];
  return coordinate;
}

// The definition, one multiplication at a time.
float Direct(const RandomConv& conv, const std::vector<float>& x, const std::vector<float>& weight,
             const std::vector<int64_t>& out) {
  const std::span<const int64_t> window(conv.weight.begin() + 2, conv.weight.end());
  const int64_t taps = *ElementCount({window.begin(), window.end()});
  const int64_t group = out[1] / (conv.weight[0] / conv.groups);
  float sum = 0;
  for (int64_t c = 0; c < conv.weight[1]; ++c) {
    for (int64_t t = 0; t < taps; ++t) {
      const auto tap = Unflatten(t, window);
      int64_t source = out[0] * conv.x[1] + group * conv.weight[1] + c;
      bool inside = true;
      for (size_t d = 0; d < window.size(); ++d) {
        const int64_t i = out[d + 2] * conv.strides[d] + tap[d] * conv.dilations[d] - conv.pad[2 * d];
        inside = inside && i >= 0 && i < conv.x[d + 2];
        source = source * conv.x[d + 2] + i;
      }
      if (!inside) continue;
      const int64_t w = (out[1] * conv.weight[1] + c) * taps + t;
      sum += x[static_cast<size_t>(source)] * weight[static_cast<size_t>(w)];
    }
  }
  return sum;
}

TEST(Conv, EqualsTheDefinitionOnRandomGeometries) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 generator(seed);
    const RandomConv conv = Draw(generator);
    const std::vector<float> x = SmallIntegers(generator, conv.x);
    const std::vector<float> weight = SmallIntegers(generator, conv.weight);
    const auto results = CallOf(conv, "conv").Floats("x", conv.x, x).Floats("weight", conv.weight, weight).Run();
    ASSERT_TRUE(results.ok()) << Describe(conv, seed) << ": " << results.status().message();
    const Tensor& y = results->front();
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y.GetFloat(i), Direct(conv, x, weight, Unflatten(i, y.shape()))) << Describe(conv, seed) << " at " << i;
    }
  }
}

TEST(ConvTranspose, IsTheAdjointOfConv) {
  // <conv(x), y> = <x, conv_transpose(y)>, with the same weights and the size of x as output shape.
  const auto inner = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 generator(seed);
    const RandomConv conv = Draw(generator);
    const std::vector<float> x = SmallIntegers(generator, conv.x);
    const std::vector<float> weight = SmallIntegers(generator, conv.weight);
    const auto forward = CallOf(conv, "conv").Floats("x", conv.x, x).Floats("weight", conv.weight, weight).Run();
    ASSERT_TRUE(forward.ok()) << Describe(conv, seed) << ": " << forward.status().message();
    const Shape& shape = forward->front().shape();
    const std::vector<float> y = SmallIntegers(generator, shape);
    const auto back = CallOf(conv, "conv_transpose")
                          .Floats("x", shape, y)
                          .Floats("weight", conv.weight, weight)
                          .Ints("output_shape", conv.x)
                          .Run();
    ASSERT_TRUE(back.ok()) << Describe(conv, seed) << ": " << back.status().message();
    ASSERT_EQ(back->front().shape(), conv.x) << Describe(conv, seed);
    ASSERT_EQ(inner(forward->front().ToFloats(), y), inner(x, back->front().ToFloats())) << Describe(conv, seed);
  }
}

}  // namespace
}  // namespace milwright
