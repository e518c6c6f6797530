// Every matrix-vector kernel of every instruction set of this machine, on every format and odd sizes, against the
// scalar one.
//
// Bound: a dot product of K terms computed in fp32 in any order errs by at most (K + c) u sum|w||x| with u = 2^-24 (one
// rounding per product and per addition; c = 6 covers the rounding of the weight itself, of scale and offset, and of
// the bias). Two such results differ by at most twice that. A kernel with int8 activations is compared with the scalar
// kernel that rounds the activation by the same formula, so the same bound holds.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/matmul.h"
#include "kernels/stored_weights.h"

namespace milwright::kernels::testing {
namespace {

struct MatVecSize {
  int64_t rows;
  int64_t cols;
};

constexpr MatVecSize kMatVecSizes[] = {{1, 1},   {3, 7},   {2, 32},   {5, 64},  {7, 100},
                                       {9, 256}, {6, 258}, {13, 384}, {4, 1000}};

std::vector<float> RunMatVec(const MatVecKernel& kernel, ThreadPool& pool, const WeightView& view, const float* x,
                             const float* bias) {
  auto scratch = AlignedBuffer::Allocate(MatVecScratchBytes(kernel, view));
  std::vector<float> y(static_cast<size_t>(view.rows), 1e30F);
  MatVec(kernel, pool, view, x, bias, scratch->As<uint8_t>(), y.data());
  return y;
}

/// The scalar kernel that rounds its operands as `kernel` does.
const MatVecKernel& Judge(const MatVecKernel& kernel) {
  for (const MatVecKernel& judge : Scalar().matvec) {
    if (judge.operands == kernel.operands) return judge;
  }
  return Scalar().matvec.back();
}

void Compare(const Kernels& kernels, const MatVecKernel& kernel, const Format& format, MatVecSize size, uint64_t seed) {
  Random random(seed);
  const StoredWeights weights(format, size.rows, size.cols, random);
  const std::vector<float> x = RandomFloats(random, size.cols);
  const std::vector<float> bias = RandomFloats(random, size.rows);
  ASSERT_TRUE(CheckWeights(weights.view).ok()) << CheckWeights(weights.view).message();
  ThreadPool pool(1);
  const std::vector<float> y = RunMatVec(kernel, pool, weights.view, x.data(), bias.data());
  const std::vector<float> expected = RunMatVec(Judge(kernel), pool, weights.view, x.data(), bias.data());
  const std::vector<double> norms = RowNorms(weights.view, x.data());
  for (int64_t row = 0; row < size.rows; ++row) {
    const auto i = static_cast<size_t>(row);
    const double norm = norms[i] + std::fabs(bias[i]);
    const double bound = 2 * static_cast<double>(size.cols + 6) * kUnit * norm + 1e-30;
    ASSERT_NEAR(y[i], expected[i], bound)
        << kernel.name << " (" << kernels.name << "), format " << format.name << ", row " << row << " of " << size.rows
        << " x " << size.cols << ", seed " << seed;
  }
}

TEST(MatVecTest, EveryKernelAgreesWithScalar) {
  const uint64_t seed = TestSeed();
  for (const Kernels* kernels : AvailableKernels()) {
    for (const MatVecKernel& kernel : kernels->matvec) {
      int formats = 0;
      for (const Format& format : AllFormats()) {
        bool used = false;
        for (const MatVecSize size : kMatVecSizes) {
          Random random(seed);
          const StoredWeights weights(format, size.rows, size.cols, random);
          if (!kernel.supports(weights.view, Precision::kExact) && !kernel.supports(weights.view, Precision::kFast)) {
            continue;
          }
          used = true;
          ASSERT_NO_FATAL_FAILURE(Compare(*kernels, kernel, format, size, seed));
        }
        formats += used ? 1 : 0;
      }
      EXPECT_GT(formats, 0) << kernel.name << " supports no format of the test";
    }
  }
}

TEST(MatVecTest, ExactNeverPicksARoundingKernel) {
  Random random(TestSeed());
  for (const Kernels* kernels : AvailableKernels()) {
    for (const Format& format : AllFormats()) {
      const StoredWeights weights(format, 8, 128, random);
      EXPECT_EQ(FindMatVec(*kernels, weights.view, Precision::kExact).operands, Operands::kFp32) << format.name;
      EXPECT_EQ(FindMatMul(*kernels, weights.view, Precision::kExact).operands, Operands::kFp32) << format.name;
    }
  }
}

TEST(MatVecTest, FastStaysWithinItsBound) {
  const uint64_t seed = TestSeed();
  for (const Kernels* kernels : AvailableKernels()) {
    for (const Format& format : AllFormats()) {
      Random random(seed);
      const StoredWeights weights(format, 16, 512, random);
      const std::vector<float> x = RandomFloats(random, 512);
      ThreadPool pool(1);
      const auto fast =
          RunMatVec(FindMatVec(*kernels, weights.view, Precision::kFast), pool, weights.view, x.data(), nullptr);
      const auto exact =
          RunMatVec(FindMatVec(*kernels, weights.view, Precision::kExact), pool, weights.view, x.data(), nullptr);
      const std::vector<double> norms = RowNorms(weights.view, x.data());
      for (int64_t row = 0; row < 16; ++row) {
        std::vector<float> decoded(512);
        kernels->decode_row(weights.view, row, 0, 512, decoded.data());
        const auto i = static_cast<size_t>(row);
        const double bound = FastErrorBound(weights.view, row, decoded.data(), x.data()) + 2 * 518 * kUnit * norms[i];
        EXPECT_NEAR(fast[i], exact[i], bound)
            << kernels->name << " " << format.name << " row " << row << " seed " << seed;
      }
    }
  }
}

TEST(MatVecTest, ResultsDoNotDependOnThreads) {
  Random random(TestSeed());
  ThreadPool one(1);
  ThreadPool three(3);
  for (const Kernels* kernels : AvailableKernels()) {
    for (const Format& format : AllFormats()) {
      const StoredWeights weights(format, 70, 160, random);
      const std::vector<float> x = RandomFloats(random, 160);
      for (const Precision precision : {Precision::kExact, Precision::kFast}) {
        const MatVecKernel& kernel = FindMatVec(*kernels, weights.view, precision);
        EXPECT_EQ(RunMatVec(kernel, one, weights.view, x.data(), nullptr),
                  RunMatVec(kernel, three, weights.view, x.data(), nullptr))
            << kernel.name << " " << format.name;
      }
    }
  }
}

TEST(DecodeTest, EveryFormatEqualsTheDefinition) {
  const uint64_t seed = TestSeed();
  for (const Kernels* kernels : AvailableKernels()) {
    for (const Format& format : AllFormats()) {
      for (const MatVecSize size : kMatVecSizes) {
        Random random(seed);
        const StoredWeights weights(format, size.rows, size.cols, random);
        for (int64_t row = 0; row < size.rows; ++row) {
          const int64_t begin = row % size.cols;
          std::vector<float> out(static_cast<size_t>(size.cols - begin));
          kernels->decode_row(weights.view, row, begin, size.cols - begin, out.data());
          for (int64_t k = begin; k < size.cols; ++k) {
            // One subtraction and one product, each rounded once: equal to the bit.
            ASSERT_EQ(out[static_cast<size_t>(k - begin)], WeightAt(weights.view, row, k))
                << kernels->name << " " << format.name << " at (" << row << ", " << k << ") of " << size.rows << " x "
                << size.cols << ", seed " << seed;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace milwright::kernels::testing
