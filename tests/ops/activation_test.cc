#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/run_op.h"

namespace milwright {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using testing::Fp16;
using testing::Fp32;

Tensor Apply(const char* op, float alpha, float beta, const Literal& x) {
  return Call(op, Opset::kIOS17).With("x", x).With("alpha", Fp32({}, {alpha})).With("beta", Fp32({}, {beta})).Result1();
}

TEST(Activation, PiecewiseLinear) {
  const Literal x = Fp32({4}, {-2, 0, 0.5F, 3});
  EXPECT_THAT(Call("relu", Opset::kIOS15).With("x", x).Result1().ToFloats(), ElementsAre(0, 0, 0.5F, 3));
  EXPECT_THAT(Call("relu6", Opset::kIOS15).With("x", Fp32({2}, {7, -1})).Result1().ToFloats(), ElementsAre(6, 0));
  EXPECT_THAT(Apply("clamped_relu", 0.5F, 1, x).ToFloats(), ElementsAre(-1, 0, 0.5F, 1));
  EXPECT_THAT(Apply("linear_activation", 2, 1, x).ToFloats(), ElementsAre(-3, 1, 2, 7));
  EXPECT_THAT(Apply("sigmoid_hard", 0.25F, 0.5F, x).ToFloats(), ElementsAre(0, 0.5F, 0.625F, 1));
  EXPECT_THAT(Call("leaky_relu", Opset::kIOS17).With("x", x).With("alpha", Fp32({}, {0.25F})).Result1().ToFloats(),
              ElementsAre(-0.5F, 0, 0.5F, 3));
  EXPECT_THAT(Call("thresholded_relu", Opset::kIOS17).With("x", x).With("alpha", Fp32({}, {0.5F})).Result1().ToFloats(),
              ElementsAre(0, 0, 0.5F, 3));
}

TEST(Activation, SmoothFunctionsAtKnownPoints) {
  const auto at = [](const char* op, float x) {
    return Call(op, Opset::kIOS15).With("x", Fp32({1}, {x})).Result1().GetFloat(0);
  };
  EXPECT_EQ(at("sigmoid", 0), 0.5F);
  EXPECT_EQ(at("sigmoid", -1000), 0);
  EXPECT_EQ(at("silu", 0), 0);
  EXPECT_EQ(at("softsign", 1), 0.5F);
  EXPECT_EQ(at("softplus", 1000), 1000);  // does not overflow
  EXPECT_THAT(at("softplus", 0), FloatEq(std::log(2.0F)));
  EXPECT_THAT(Call("elu", Opset::kIOS17).With("x", Fp32({1}, {-1})).With("alpha", Fp32({}, {2})).Result1().GetFloat(0),
              FloatEq(static_cast<float>(2 * std::expm1(-1.0))));
}

TEST(Activation, GeluModes) {
  const auto gelu = [](const char* mode) {
    return Call("gelu", Opset::kIOS15).With("x", Fp32({1}, {1})).With("mode", Literal::String(mode));
  };
  EXPECT_NEAR(gelu("EXACT").Result1().GetFloat(0), 0.8413447F, 1e-6F);               // Phi(1)
  EXPECT_NEAR(gelu("TANH_APPROXIMATION").Result1().GetFloat(0), 0.8411920F, 1e-6F);  // known value of the approximation
  EXPECT_NEAR(gelu("SIGMOID_APPROXIMATION").Result1().GetFloat(0), 1 / (1 + std::exp(-1.702F)), 1e-6F);
  EXPECT_EQ(gelu("FAST").Infer().status().message(),
            "gelu: mode 'FAST' is none of EXACT, TANH_APPROXIMATION, SIGMOID_APPROXIMATION");
}

TEST(Activation, OneSlopePerChannel) {
  const Literal x = Fp16({1, 2, 1, 2}, {-1, 1, -1, 1});
  EXPECT_THAT(Call("prelu", Opset::kIOS17).With("x", x).With("alpha", Fp32({2}, {0.5F, 0.25F})).Result1().ToFloats(),
              ElementsAre(-0.5F, 1, -0.25F, 1));
  const auto wrong = Call("prelu", Opset::kIOS17).With("x", x).With("alpha", Fp32({3}, {1, 1, 1})).Infer();
  EXPECT_EQ(wrong.status().message(),
            "prelu: alpha of shape [3] must hold one number per channel (axis 1) of x of shape [1, 2, 1, 2]");
  const auto unequal =
      Call("prelu", Opset::kIOS15).With("x", Fp32({1, 2, 1}, {1, 2})).With("alpha", Fp32({2}, {1, 2})).Infer();
  EXPECT_FALSE(unequal.ok());
  EXPECT_THAT(Call("softplus_parametric", Opset::kIOS15)
                  .With("x", Fp32({1, 2, 1, 1}, {0, 0}))
                  .With("alpha", Fp32({2}, {1, 2}))
                  .With("beta", Fp32({2}, {1, 5}))
                  .Result1()
                  .ToFloats(),
              ElementsAre(FloatEq(std::log(2.0F)), FloatEq(2 * std::log(2.0F))));
}

TEST(Activation, ParametersAreSingleNumbers) {
  const auto bad = Call("elu", Opset::kIOS15).With("x", Fp32({2}, {1, 2})).With("alpha", Fp32({2}, {1, 2})).Infer();
  EXPECT_EQ(bad.status().message(), "elu: parameter 'alpha' must be one number, but has shape [2]");
}

// field-reports.md, T20: -65504 on both scores makes them -inf in fp16 and the row NaN; -10000 keeps their
// difference...
TEST(Softmax, MaskedRows) {
  const auto softmax = [](const Literal& x) {
    return Call("softmax", Opset::kIOS16).With("x", x).Result1().ToFloats();
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float value : softmax(Fp16({2}, {-kInf, -kInf}))) EXPECT_TRUE(std::isnan(value));
  // ... as far as fp16 has it there, in steps of 8: -40 - 10000 and -50 - 10000 become -10040 and -10048.
  EXPECT_THAT(softmax(Fp16({2}, {-40 - 10000, -50 - 10000})),
              ElementsAre(0.99951171875F, ::testing::FloatNear(3.3545e-4F, 5e-8F)));
}

TEST(Softmax, AlongAnyAxis) {
  const float quarter = std::log(0.25F);
  const float rest = std::log(0.75F);
  const Tensor y = Call("softmax", Opset::kIOS15)
                       .With("x", Fp32({2, 1, 2}, {quarter, 1000, rest, 1000}))
                       .With("axis", Literal::Int32(-3))
                       .Result1();
  EXPECT_THAT(y.ToFloats(), ElementsAre(FloatEq(0.25F), 0.5F, FloatEq(0.75F), 0.5F));
  EXPECT_EQ(Call("softmax", Opset::kIOS15)
                .WithType("x", Type::Tensor(DataType::kFp16, {2, kUnknownDim}))
                .With("axis", Literal::Int32(2))
                .Infer()
                .status()
                .message(),
            "softmax: axis 2 is outside the shape [2, ?]");
}

}  // namespace
}  // namespace milwright
