// Row kernels of every instruction set against formulas in double precision.
//
// Bounds: u = 2^-24. exp errs by less than 4 units of 2^-23 of its result (Cephes' polynomial plus the final product),
// so functions of exp get 16 u per operation chain; sums of n terms add (n + 4) u of the sum of their magnitudes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/stored_weights.h"
#include "milwright/half.h"

namespace milwright::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kLengths[] = {1, 3, 8, 15, 16, 17, 64, 100, 1000};

class RowKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
  Random random_{TestSeed()};
};

INSTANTIATE_TEST_SUITE_P(Isa, RowKernels, ::testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(RowKernels, HalfToFloatIsExactForAllPatterns) {
  std::vector<uint16_t> halves;
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    // Hardware makes signalling NaNs quiet; everything else is equal to the bit.
    const bool signalling = (pattern & 0x7C00U) == 0x7C00U && (pattern & 0x3FFU) != 0 && (pattern & 0x200U) == 0;
    if (!signalling) halves.push_back(static_cast<uint16_t>(pattern));
  }
  halves.pop_back();  // an odd number of values
  std::vector<float> floats(halves.size());
  kernels().half_to_float(halves.data(), static_cast<int64_t>(halves.size()), floats.data());
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(HalfToFloat(halves[i]))) << halves[i];
  }
  std::vector<uint16_t> back(halves.size());
  kernels().float_to_half(floats.data(), static_cast<int64_t>(floats.size()), back.data());
  EXPECT_EQ(back, halves);
}

TEST_P(RowKernels, FloatToHalfRoundsToEven) {
  std::vector<float> floats = {65519.0F,      65520.0F,      -65520.0F,     1e30F,          kInf,
                               5.9604645e-8F, 2.9802322e-8F, 2.9802326e-8F, 1.00048828125F, 1.00146484375F,
                               -0.0F,         6.1e-5F,       0.1F};
  for (int i = 0; i < 5000; ++i) {
    floats.push_back(std::ldexp(RandomFloats(random_, 1)[0], static_cast<int>(random_() % 45) - 30));
  }
  std::vector<uint16_t> halves(floats.size());
  kernels().float_to_half(floats.data(), static_cast<int64_t>(floats.size()), halves.data());
  std::vector<float> rounded = floats;
  kernels().round_to_half(rounded.data(), static_cast<int64_t>(rounded.size()));
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(halves[i], FloatToHalf(floats[i])) << floats[i];
    ASSERT_EQ(rounded[i], RoundToHalf(floats[i])) << floats[i];
  }
}

TEST_P(RowKernels, AbsMax) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = RandomFloats(random_, n);
    x[static_cast<size_t>(n / 2)] = -9.5F;
    EXPECT_EQ(kernels().abs_max_f32(x.data(), n), 9.5F);
    EXPECT_EQ(kernels().abs_max_f16(ToHalves(x).data(), n), 9.5F);
    x[0] = kNan;
    EXPECT_EQ(kernels().abs_max_f32(x.data(), n), n > 1 ? 9.5F : 0.0F);
  }
  EXPECT_EQ(kernels().abs_max_f32(nullptr, 0), 0.0F);
}

TEST_P(RowKernels, AddMulScaleAreExactlyRounded) {
  for (const int64_t n : kLengths) {
    const std::vector<float> a = RandomFloats(random_, n);
    const std::vector<float> b = RandomFloats(random_, n);
    std::vector<float> sum(a.size());
    std::vector<float> product(a.size());
    std::vector<float> scaled(a.size());
    kernels().add(a.data(), b.data(), n, sum.data());
    kernels().mul(a.data(), b.data(), n, product.data());
    kernels().scale(a.data(), 0.3F, n, scaled.data());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(sum[i], a[i] + b[i]);
      EXPECT_EQ(product[i], a[i] * b[i]);
      EXPECT_EQ(scaled[i], a[i] * 0.3F);
    }
  }
}

TEST_P(RowKernels, GatedActivations) {
  for (const int64_t n : kLengths) {
    std::vector<float> gate = RandomFloats(random_, n, 6.0F);
    gate[0] = -200.0F;  // far in the tail: the result is a tiny number or 0
    const std::vector<float> up = RandomFloats(random_, n);
    std::vector<float> silu(gate.size());
    std::vector<float> gelu(gate.size());
    kernels().silu_mul(gate.data(), up.data(), n, silu.data());
    kernels().gelu_tanh_mul(gate.data(), up.data(), n, gelu.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double u = up[i];
      const double expected_silu = g / (1 + std::exp(-g)) * u;
      EXPECT_NEAR(silu[i], expected_silu, 16 * kUnit * std::fabs(expected_silu) + 1e-34);
      const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      const double expected_gelu = g / (1 + std::exp(-2 * inner)) * u;
      // The argument errs by a few u of itself, which exp turns into as much relative error of the result; the scalar
      // form 1 + tanh cancels for negative gates and errs by u |g u|.
      const double bound =
          16 * kUnit * (1 + 2 * std::fabs(inner)) * std::fabs(expected_gelu) + 4 * kUnit * std::fabs(g * u);
      EXPECT_NEAR(gelu[i], expected_gelu, bound) << g;
    }
  }
}

TEST_P(RowKernels, RmsNorm) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = RandomFloats(random_, n);
    const std::vector<float> weight = RandomFloats(random_, n);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    std::vector<float> y(x.size());
    std::vector<float> in_place = x;
    kernels().rms_norm(x.data(), weight.data(), 1e-5F, n, y.data());
    kernels().rms_norm(in_place.data(), nullptr, 1e-5F, n, in_place.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double relative = static_cast<double>(n + 8) * kUnit;
      EXPECT_NEAR(y[i], x[i] * factor * weight[i], relative * std::fabs(x[i] * factor * weight[i]) + 1e-30);
      EXPECT_NEAR(in_place[i], x[i] * factor, relative * std::fabs(x[i] * factor) + 1e-30);
    }
  }
}

TEST_P(RowKernels, LayerNorm) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = RandomFloats(random_, n);
    for (float& v : x) v += 3.0F;
    const std::vector<float> gamma = RandomFloats(random_, n);
    const std::vector<float> beta = RandomFloats(random_, n);
    double mean = 0;
    double magnitude = 0;
    for (const float v : x) {
      mean += v;
      magnitude = std::max(magnitude, std::fabs(static_cast<double>(v)));
    }
    mean /= static_cast<double>(n);
    double variance = 0;
    for (const float v : x) variance += (v - mean) * (v - mean);
    variance /= static_cast<double>(n);
    const double factor = 1 / std::sqrt(variance + 1e-5);
    std::vector<float> y(x.size());
    std::vector<float> plain = x;
    kernels().layer_norm(x.data(), gamma.data(), beta.data(), 1e-5F, n, y.data());
    kernels().layer_norm(plain.data(), nullptr, nullptr, 1e-5F, n, plain.data());
    for (size_t i = 0; i < x.size(); ++i) {
      // The mean errs by (n + 2) u max|x|, and so does each centred value; factor scales that.
      const double bound =
          4 * static_cast<double>(n + 8) * kUnit * (magnitude * factor + std::fabs((x[i] - mean) * factor));
      EXPECT_NEAR(plain[i], (x[i] - mean) * factor, bound);
      EXPECT_NEAR(y[i], (x[i] - mean) * factor * gamma[i] + beta[i],
                  bound * std::fabs(gamma[i]) + 2 * kUnit * std::fabs(beta[i]));
    }
  }
}

TEST_P(RowKernels, Softmax) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = RandomFloats(random_, n, 5.0F);
    if (n > 3) x[1] = -kInf;
    if (n > 3) x[2] = -1e4F;
    double largest = -1e30;
    for (const float v : x) largest = std::max(largest, static_cast<double>(v));
    double sum = 0;
    for (const float v : x) sum += std::exp(v - largest);
    std::vector<float> y = x;
    kernels().softmax(y.data(), n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = std::exp(x[i] - largest) / sum;
      EXPECT_NEAR(y[i], expected, static_cast<double>(n + 24) * 2 * kUnit * expected + 1e-37);
    }
    if (n > 3) {
      EXPECT_EQ(y[1], 0.0F);
      EXPECT_EQ(y[2], 0.0F);
    }
  }
  std::vector<float> masked(20, -kInf);
  kernels().softmax(masked.data(), 20, masked.data());
  EXPECT_TRUE(std::isnan(masked[0]) && std::isnan(masked[19]));
  std::vector<float> equal(20, -1e4F);
  kernels().softmax(equal.data(), 20, equal.data());
  EXPECT_FLOAT_EQ(equal[7], 0.05F);
}

TEST_P(RowKernels, Rope) {
  for (const int64_t n : {2, 6, 32, 64, 128}) {
    const std::vector<float> x = RandomFloats(random_, n);
    std::vector<float> cos(x.size());
    std::vector<float> sin(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      cos[i] = std::cos(static_cast<float>(i));
      sin[i] = std::sin(static_cast<float>(i));
    }
    std::vector<float> y = x;
    kernels().rope(y.data(), cos.data(), sin.data(), n, y.data());
    const auto half = static_cast<size_t>(n / 2);
    for (size_t i = 0; i < half; ++i) {
      EXPECT_NEAR(y[i], x[i] * cos[i] - x[i + half] * sin[i], 3 * kUnit * (std::fabs(x[i]) + std::fabs(x[i + half])));
      EXPECT_NEAR(y[i + half], x[i + half] * cos[i + half] + x[i] * sin[i + half],
                  3 * kUnit * (std::fabs(x[i]) + std::fabs(x[i + half])));
    }
  }
}

TEST_P(RowKernels, ArgMaxTakesTheFirstAndIgnoresNan) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = RandomFloats(random_, n);
    const int64_t at = n / 3;
    x[static_cast<size_t>(at)] = 50.0F;
    x.back() = 50.0F;
    EXPECT_EQ(kernels().argmax(x.data(), n), at) << n;
    if (at > 0) x[0] = kNan;
    EXPECT_EQ(kernels().argmax(x.data(), n), at) << n;
  }
  EXPECT_EQ(kernels().argmax(nullptr, 0), 0);
  const std::vector<float> nothing(40, -kInf);
  EXPECT_EQ(kernels().argmax(nothing.data(), 40), 0);
}

}  // namespace
}  // namespace milwright::kernels::testing
