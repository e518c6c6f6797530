// Streaming attention against the formula in double precision, and the skipping of masked columns.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/stored_weights.h"
#include "milwright/half.h"

namespace milwright::kernels::testing {
namespace {

/// Inputs of one attention in fp16 or fp32, contiguous.
struct Case {
  int64_t heads = 4, kv_heads = 2, queries = 1, columns = 100, dim = 32, value_dim = 32;
  bool half = true;
  float scale = 0.2F;
  float soft_cap = 0;
  bool masked = true;

  std::vector<float> q, k, v, mask;
  std::vector<uint16_t> k_half, v_half, mask_half;

  void Fill(Random& random) {
    q = RandomFloats(random, heads * queries * dim);
    k = RandomFloats(random, kv_heads * columns * dim);
    v = RandomFloats(random, kv_heads * columns * value_dim);
    mask = std::vector<float>(static_cast<size_t>(queries * columns), 0.0F);
    Halve();
  }

  /// Keeps the fp16 copies up to date and the fp32 ones equal to them.
  void Halve() {
    if (!half) return;
    k_half = ToHalves(k);
    v_half = ToHalves(v);
    mask_half = ToHalves(mask);
    for (size_t i = 0; i < k.size(); ++i) k[i] = HalfToFloat(k_half[i]);
    for (size_t i = 0; i < v.size(); ++i) v[i] = HalfToFloat(v_half[i]);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = HalfToFloat(mask_half[i]);
  }

  AttentionParams Params(std::vector<float>& out) const {
    out.assign(static_cast<size_t>(heads * queries * value_dim), -99.0F);
    AttentionParams p;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.queries = queries;
    p.columns = columns;
    p.dim = dim;
    p.value_dim = value_dim;
    p.scale = scale;
    p.soft_cap = soft_cap;
    p.q = q.data();
    p.q_head_stride = queries * dim;
    p.q_row_stride = dim;
    const DataType type = half ? DataType::kFp16 : DataType::kFp32;
    p.k = {half ? static_cast<const void*>(k_half.data()) : k.data(), type, columns * dim, dim};
    p.v = {half ? static_cast<const void*>(v_half.data()) : v.data(), type, columns * value_dim, value_dim};
    if (masked) p.mask = {half ? static_cast<const void*>(mask_half.data()) : mask.data(), type, columns};
    p.out = out.data();
    p.out_head_stride = queries * value_dim;
    p.out_row_stride = value_dim;
    p.k_abs_max = 8.0F;  // far beyond what a standard normal reaches
    return p;
  }
};

std::vector<float> RunAttention(const Kernels& kernels, const Case& c, bool skip, int threads,
                                int64_t* visited = nullptr) {
  std::vector<float> out;
  AttentionParams params = c.Params(out);
  MaskScan scan;
  if (skip) {
    ScanMask(params.mask, c.queries, c.columns, &scan);
    params.scan = &scan;
  }
  ThreadPool pool(threads);
  auto scratch = AlignedBuffer::Allocate(AttentionScratchBytes(params, threads));
  const AttentionStats stats = Attention(kernels, pool, params, scratch->As<uint8_t>());
  if (visited != nullptr) *visited = stats.columns_visited;
  return out;
}

/// The formula in double precision, and what rounding errors of each output are relative to.
void Judge(const Case& c, std::vector<double>& out, std::vector<double>& bounds) {
  for (int64_t h = 0; h < c.heads; ++h) {
    const int64_t g = h / (c.heads / c.kv_heads);
    for (int64_t t = 0; t < c.queries; ++t) {
      std::vector<double> scores;
      double score_error = 0;
      double largest = -1e300;
      for (int64_t j = 0; j < c.columns; ++j) {
        double dot = 0;
        double norm = 0;
        for (int64_t d = 0; d < c.dim; ++d) {
          const double product = static_cast<double>(c.q[static_cast<size_t>((h * c.queries + t) * c.dim + d)]) *
                                 c.k[static_cast<size_t>((g * c.columns + j) * c.dim + d)];
          dot += product;
          norm += std::fabs(product);
        }
        double score = dot * c.scale;
        if (c.soft_cap > 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
        const double mask = c.masked ? c.mask[static_cast<size_t>(t * c.columns + j)] : 0.0;
        scores.push_back(score + mask);
        largest = std::max(largest, scores.back());
        if (mask > -1e3) {
          score_error = std::max(score_error, static_cast<double>(c.dim + 4) * kUnit * norm * c.scale +
                                                  4 * kUnit * (std::fabs(mask) + 4 * std::fabs(c.soft_cap)));
        }
      }
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (int64_t d = 0; d < c.value_dim; ++d) {
        double value = 0;
        double norm = 0;
        for (int64_t j = 0; j < c.columns; ++j) {
          const double v = c.v[static_cast<size_t>((g * c.columns + j) * c.value_dim + d)];
          value += scores[static_cast<size_t>(j)] / sum * v;
          norm += scores[static_cast<size_t>(j)] / sum * std::fabs(v);
        }
        out.push_back(value);
        // A score's error is the relative error of its weight, in the sum above and below; the two sums over columns
        // and the corrections per tile add the rest.
        bounds.push_back((4 * score_error + 2 * static_cast<double>(c.columns + 32) * kUnit) * norm + 1e-30);
      }
    }
  }
}

void Compare(const Kernels& kernels, const Case& c, const char* what) {
  std::vector<double> expected;
  std::vector<double> bounds;
  Judge(c, expected, bounds);
  const std::vector<float> out = RunAttention(kernels, c, false, 1);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected[i], bounds[i])
        << kernels.name << " " << what << ", output " << i << ", seed " << TestSeed();
  }
}

class AttentionTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
  Random random_{TestSeed()};
};

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTest, ::testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(AttentionTest, ShapesAgreeWithTheFormula) {
  struct Shape {
    int64_t heads, kv_heads, queries, columns, dim, value_dim;
  };
  for (const Shape s : {Shape{1, 1, 1, 1, 1, 1},
                        {4, 2, 1, 100, 32, 32},
                        {3, 1, 1, 64, 7, 5},
                        {8, 8, 3, 65, 16, 16},
                        {6, 2, 5, 200, 80, 80},
                        {2, 1, 1, 129, 128, 64},
                        {16, 8, 2, 130, 128, 128},
                        {4, 1, 2, 63, 100, 36}}) {
    for (const bool half : {true, false}) {
      for (const bool masked : {true, false}) {
        Case c;
        c.heads = s.heads;
        c.kv_heads = s.kv_heads;
        c.queries = s.queries;
        c.columns = s.columns;
        c.dim = s.dim;
        c.value_dim = s.value_dim;
        c.half = half;
        c.masked = masked;
        c.Fill(random_);
        for (float& m : c.mask) m = RandomFloats(random_, 1)[0];
        c.Halve();
        ASSERT_NO_FATAL_FAILURE(Compare(kernels(), c, half ? "fp16" : "fp32"));
      }
    }
  }
}

TEST_P(AttentionTest, SoftCap) {
  Case c;
  c.soft_cap = 3.0F;
  c.scale = 1.0F;
  c.queries = 3;
  c.Fill(random_);
  Compare(kernels(), c, "soft cap");
}

TEST_P(AttentionTest, SkippingMaskedColumnsChangesNoBit) {
  for (const float hidden : {-1e4F, -65504.0F, -kInf}) {
    for (const int64_t queries : {1, 4}) {
      // Filled part in front, in the middle (left padding), and in two pieces (a ring).
      for (const int layout : {0, 1, 2}) {
        Case c;
        c.columns = 1000;
        c.queries = queries;
        c.Fill(random_);
        for (int64_t t = 0; t < queries; ++t) {
          for (int64_t j = 0; j < c.columns; ++j) {
            const bool visible = layout == 0   ? j < 90 + t
                                 : layout == 1 ? j >= 500 && j < 590 + t
                                               : j < 30 || j >= 900 + t;
            c.mask[static_cast<size_t>(t * c.columns + j)] = visible ? 0.0F : hidden;
          }
        }
        c.Halve();
        int64_t all = 0;
        int64_t visited = 0;
        const std::vector<float> plain = RunAttention(kernels(), c, false, 1, &all);
        const std::vector<float> skipped = RunAttention(kernels(), c, true, 1, &visited);
        EXPECT_EQ(plain, skipped) << kernels().name << " mask " << hidden << " layout " << layout << " seed "
                                  << TestSeed();
        EXPECT_LE(visited * 4, all) << "most columns are masked";
        ASSERT_NO_FATAL_FAILURE(Compare(kernels(), c, "masked"));
      }
    }
  }
}

TEST_P(AttentionTest, NothingIsSkippedThatCouldMatter) {
  Case c;
  c.heads = c.kv_heads = 1;
  c.half = false;
  c.columns = 300;
  c.scale = 1.0F;
  c.Fill(random_);
  for (int64_t j = 100; j < 300; ++j) c.mask[static_cast<size_t>(j)] = -1e4F;
  // A key so large that its score makes up for the mask.
  for (int64_t d = 0; d < c.dim; ++d) c.k[static_cast<size_t>(250 * c.dim + d)] = c.q[static_cast<size_t>(d)] * 1000.0F;
  std::vector<float> out;
  AttentionParams params = c.Params(out);
  MaskScan scan;
  ScanMask(params.mask, 1, c.columns, &scan);
  params.scan = &scan;
  params.k_abs_max = kernels().abs_max_f32(c.k.data(), static_cast<int64_t>(c.k.size()));
  ThreadPool pool(1);
  auto scratch = AlignedBuffer::Allocate(AttentionScratchBytes(params, 1));
  EXPECT_EQ(Attention(kernels(), pool, params, scratch->As<uint8_t>()).columns_visited, 300);
  for (int64_t d = 0; d < c.value_dim; ++d) {
    EXPECT_NEAR(out[static_cast<size_t>(d)], c.v[static_cast<size_t>(250 * c.value_dim + d)], 1e-4);
  }
}

TEST_P(AttentionTest, FullyMaskedRowsFollowTheFormula) {
  Case c;
  c.columns = 70;
  c.Fill(random_);
  std::fill(c.mask.begin(), c.mask.end(), -1e4F);
  c.Halve();
  // The mask cancels, but scores are rounded at the magnitude of 1e4 first: 2^-10 at most.
  const std::vector<float> masked = RunAttention(kernels(), c, true, 1);
  std::fill(c.mask.begin(), c.mask.end(), 0.0F);
  c.Halve();
  const std::vector<float> open = RunAttention(kernels(), c, true, 1);
  for (size_t i = 0; i < open.size(); ++i) EXPECT_NEAR(masked[i], open[i], 4.0 / 1024 * 4);
  std::fill(c.mask.begin(), c.mask.end(), -kInf);
  c.Halve();
  for (const float value : RunAttention(kernels(), c, true, 1)) EXPECT_TRUE(std::isnan(value));
}

TEST_P(AttentionTest, ResultsDoNotDependOnThreads) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    Case c;
    c.kv_heads = kv_heads;
    c.queries = 3;
    c.columns = 150;
    c.Fill(random_);
    EXPECT_EQ(RunAttention(kernels(), c, true, 1), RunAttention(kernels(), c, true, 3));
  }
}

TEST(ScanMaskTest, FindsRangesAndGap) {
  std::vector<float> mask(400, -1e4F);
  for (int i = 130; i < 140; ++i) mask[static_cast<size_t>(i)] = 0.0F;
  mask[399] = 1.0F;
  MaskScan scan;
  ScanMask({mask.data(), DataType::kFp32, 400}, 1, 400, &scan);
  ASSERT_EQ(scan.rows.size(), 1U);
  EXPECT_EQ(scan.ranges, (std::vector<ColumnRange>{{128, 192}, {384, 400}}));
  EXPECT_EQ(scan.rows[0].gap, 10001.0F);
  const std::vector<uint16_t> half = ToHalves(mask);
  MaskScan half_scan;
  ScanMask({half.data(), DataType::kFp16, 400}, 1, 400, &half_scan);
  EXPECT_EQ(half_scan.ranges, scan.ranges);
  EXPECT_EQ(half_scan.rows[0].gap, 10001.0F);
}

TEST(ScanMaskTest, EqualRowsKeepAllColumns) {
  for (const float value : {0.0F, -1e4F, -kInf}) {
    const std::vector<float> mask(200, value);
    MaskScan scan;
    ScanMask({mask.data(), DataType::kFp32, 0}, 1, 200, &scan);
    EXPECT_EQ(scan.ranges, (std::vector<ColumnRange>{{0, 200}})) << value;
  }
}

}  // namespace
}  // namespace milwright::kernels::testing
