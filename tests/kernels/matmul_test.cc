// Every matrix-matrix kernel of every instruction set of this machine against the scalar one, with the bound of
// matvec_test.cc.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/stored_weights.h"

namespace milwright::kernels::testing {
namespace {

struct MatMulSize {
  int64_t m;
  int64_t rows;
  int64_t cols;
};

constexpr MatMulSize kMatMulSizes[] = {{1, 1, 1},     {2, 5, 7},    {16, 12, 64}, {17, 50, 100},
                                       {33, 13, 384}, {34, 61, 64}, {3, 55, 258}};

std::vector<float> RunMatMul(const MatMulKernel& kernel, int threads, const WeightView& view, const float* x, int64_t m,
                             const float* bias) {
  ThreadPool pool(threads);
  auto scratch = AlignedBuffer::Allocate(MatMulScratchBytes(kernel, view, m, threads));
  std::vector<float> y(static_cast<size_t>(m * view.rows), 1e30F);
  MatMul(kernel, pool, view, x, view.cols, m, bias, scratch->As<uint8_t>(), y.data(), view.rows);
  return y;
}

/// The scalar kernel that rounds its operands as `kernel` does.
const MatMulKernel& Judge(const MatMulKernel& kernel) {
  for (const MatMulKernel& judge : Scalar().matmul) {
    if (judge.operands == kernel.operands) return judge;
  }
  return Scalar().matmul.back();
}

void Compare(const MatMulKernel& kernel, const Format& format, MatMulSize size, uint64_t seed) {
  Random random(seed);
  const StoredWeights weights(format, size.rows, size.cols, random);
  const std::vector<float> x = RandomFloats(random, size.m * size.cols);
  const std::vector<float> bias = RandomFloats(random, size.rows);
  const std::vector<float> y = RunMatMul(kernel, 1, weights.view, x.data(), size.m, bias.data());
  const std::vector<float> expected = RunMatMul(Judge(kernel), 1, weights.view, x.data(), size.m, bias.data());
  const std::vector<double> magnitudes = Magnitudes(weights.view);
  for (int64_t i = 0; i < size.m; ++i) {
    for (int64_t row = 0; row < size.rows; ++row) {
      const auto at = static_cast<size_t>(i * size.rows + row);
      double norm = std::fabs(bias[static_cast<size_t>(row)]);
      for (int64_t k = 0; k < size.cols; ++k) {
        norm += magnitudes[static_cast<size_t>(row * size.cols + k)] *
                std::fabs(static_cast<double>(x[static_cast<size_t>(i * size.cols + k)]));
      }
      const double bound = 2 * static_cast<double>(size.cols + 6) * kUnit * norm + 1e-30;
      ASSERT_NEAR(y[at], expected[at], bound)
          << kernel.name << ", format " << format.name << ", output (" << i << ", " << row << ") of " << size.m << " x "
          << size.rows << " x " << size.cols << ", seed " << seed;
    }
  }
}

TEST(MatMulTest, EveryKernelAgreesWithScalar) {
  const uint64_t seed = TestSeed();
  for (const Kernels* kernels : AvailableKernels()) {
    for (const MatMulKernel& kernel : kernels->matmul) {
      int formats = 0;
      for (const Format& format : AllFormats()) {
        bool used = false;
        for (const MatMulSize size : kMatMulSizes) {
          Random random(seed);
          const StoredWeights weights(format, size.rows, size.cols, random);
          if (!kernel.supports(weights.view, Precision::kExact) && !kernel.supports(weights.view, Precision::kFast)) {
            continue;
          }
          used = true;
          ASSERT_NO_FATAL_FAILURE(Compare(kernel, format, size, seed));
        }
        formats += used ? 1 : 0;
      }
      EXPECT_GT(formats, 0) << kernel.name << " supports no format of the test";
    }
  }
}

TEST(MatMulTest, ResultsDoNotDependOnThreadsNorOnTheNumberOfRows) {
  Random random(TestSeed());
  for (const Kernels* kernels : AvailableKernels()) {
    for (const char* name : {"fp16", "int8_block32", "int4_block32", "lut4_grouped"}) {
      const StoredWeights weights(FormatNamed(name), 100, 320, random);
      const std::vector<float> x = RandomFloats(random, 37 * 320);
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        const MatMulKernel& kernel = FindMatMul(*kernels, weights.view, precision);
        const std::vector<float> all = RunMatMul(kernel, 1, weights.view, x.data(), 37, nullptr);
        EXPECT_EQ(RunMatMul(kernel, 3, weights.view, x.data(), 37, nullptr), all) << kernel.name << " " << name;
        const std::vector<float> some = RunMatMul(kernel, 1, weights.view, x.data(), 5, nullptr);
        EXPECT_EQ(some, std::vector<float>(all.begin(), all.begin() + 500)) << kernel.name << " " << name;
      }
    }
  }
}

/// Kernels may split numbers into shorter ones, and leave out parts that are 0.
TEST(MatMulTest, ActivationsOfAnyLengthInBitsAgreeWithScalar) {
  Random random(TestSeed());
  const StoredWeights weights(FormatNamed("fp16"), 40, 96, random);
  const std::vector<float> x = RandomFloats(random, 20 * 96);
  for (const uint32_t kept : {0xFFFFFFFFU, 0xFFFFE000U, 0xFFFF0000U, 0U}) {  // fp32, fp16, bf16, zeros
    std::vector<float> rounded = x;
    for (float& value : rounded) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & kept);
    const auto expected = RunMatMul(Scalar().matmul.back(), 1, weights.view, rounded.data(), 20, nullptr);
    for (const Kernels* kernels : AvailableKernels()) {
      const MatMulKernel& kernel = FindMatMul(*kernels, weights.view, Precision::kFast);
      const auto y = RunMatMul(kernel, 1, weights.view, rounded.data(), 20, nullptr);
      for (size_t i = 0; i < y.size(); ++i) {
        double norm = 0;  // |w| < 2 in this format
        for (size_t k = 0; k < 96; ++k) norm += 2 * std::fabs(rounded[i / 40 * 96 + k]);
        ASSERT_NEAR(y[i], expected[i], 2 * (96 + 6) * kUnit * norm) << kernel.name << ", bits " << kept;
      }
    }
  }
}

TEST(MatMulTest, InfinitiesAndNanOfTheActivationComeThrough) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(TestSeed());
  StoredWeights weights(FormatNamed("fp16"), 40, 96, random);
  std::vector<float> x = RandomFloats(random, 20 * 96);
  x[5] = kInfinity;                             // row 0: one infinity
  x[96 + 7] = std::nanf("");                    // row 1
  x[2 * 96 + 3] = x[2 * 96 + 90] = -kInfinity;  // row 2: two, which some outputs subtract
  x[19 * 96 + 95] = kInfinity;                  // in the last, incomplete group of rows
  const auto expected = RunMatMul(Scalar().matmul.back(), 1, weights.view, x.data(), 20, nullptr);
  for (const Kernels* kernels : AvailableKernels()) {
    const MatMulKernel& kernel = FindMatMul(*kernels, weights.view, Precision::kFast);
    const auto y = RunMatMul(kernel, 1, weights.view, x.data(), 20, nullptr);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << kernel.name << " " << i;
      if (std::isinf(expected[i])) {
        ASSERT_EQ(y[i], expected[i]) << kernel.name << " " << i;
      }
      ASSERT_EQ(std::isfinite(y[i]), std::isfinite(expected[i])) << kernel.name << " " << i;
    }
  }
}

TEST(MatMulTest, RowsMayBeFartherApartThanTheyAreLong) {
  Random random(TestSeed());
  const StoredWeights weights(FormatNamed("fp16"), 20, 40, random);
  const std::vector<float> x = RandomFloats(random, 3 * 50);
  for (const Kernels* kernels : AvailableKernels()) {
    const MatMulKernel& kernel = FindMatMul(*kernels, weights.view, Precision::kExact);
    ThreadPool pool(2);
    auto scratch = AlignedBuffer::Allocate(MatMulScratchBytes(kernel, weights.view, 3, 2));
    std::vector<float> y(3 * 30, -7.0F);
    MatMul(kernel, pool, weights.view, x.data(), 50, 3, nullptr, scratch->As<uint8_t>(), y.data(), 30);
    for (int i = 0; i < 3; ++i) {
      const auto one = RunMatMul(kernel, 1, weights.view, x.data() + i * 50, 1, nullptr);
      EXPECT_EQ(std::vector<float>(y.begin() + i * 30, y.begin() + i * 30 + 20), one) << kernels->name;
      for (int n = 20; n < 30; ++n) EXPECT_EQ(y[static_cast<size_t>(i * 30 + n)], -7.0F);
    }
  }
}

}  // namespace
}  // namespace milwright::kernels::testing
