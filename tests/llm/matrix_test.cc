// State layout × update form × style × functions × chunks for every checkpoint: against the golden logits, against the
// explicit build of the same form with fp16 caches, and calls of several tokens against calls of one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "golden.h"
#include "llm/cache_plan.h"

namespace milwright {
namespace {

using testing::Difference;
using testing::Golden;

struct Combination {
  std::string layout;
  CacheUpdate update = CacheUpdate::kSlice;
  GraphStyle style = GraphStyle::kPlain;
  std::string functions = "decode";
  int64_t chunks = 1;

  [[nodiscard]] std::string Name() const {
    return fmt::format("{} {} {} {} x{}", layout, UpdateName(update), StyleName(style), functions, chunks);
  }
};

/// All combinations that the validity table allows for a model with or without sliding layers.
std::vector<Combination> Combinations(bool sliding) {
  std::vector<Combination> all;
  for (const char* layout : {"kv-pair", "unified:interleaved", "unified:split", "per-layer", "by-role",
                             "explicit-io:whole:kv-pair", "explicit-io:whole:per-layer", "explicit-io:whole:by-role",
                             "explicit-io:new:kv-pair", "explicit-io:new:unified"}) {
    const bool fresh = std::string_view(layout).starts_with("explicit-io:new");
    for (const CacheUpdate update :
         {CacheUpdate::kSlice, CacheUpdate::kMask, CacheUpdate::kRing, CacheUpdate::kShift}) {
      const bool windowed = update == CacheUpdate::kRing || update == CacheUpdate::kShift;
      if ((windowed && !sliding) || (fresh && update != CacheUpdate::kSlice)) continue;
      for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
        for (const char* functions : {"decode", "decode,prefill:4"}) {
          for (const int64_t chunks : {1, 2}) all.push_back({layout, update, style, functions, chunks});
        }
      }
    }
  }
  return all;
}

class MatrixTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string checkpoint = testing::FindCheckpoint(GetParam());
    if (checkpoint.empty()) GTEST_SKIP() << "needs ../shared/checkpoints/" << GetParam();
    auto golden = testing::ReadGolden(checkpoint);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *std::move(golden);
    base_.checkpoint = checkpoint;
    base_.context_length = 48;
    base_.compute = DataType::kFp32;
    auto plan = ReadModelPlan(checkpoint + "/config.json", base_.context_length);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = *std::move(plan);
  }

  BuildOptions Options(const Combination& c) const {
    BuildOptions options = base_;
    options.layout = *ParseLayout(c.layout);
    options.update = c.update;
    options.style = c.style;
    options.functions = *ParseFunctions(c.functions);
    options.chunks.count = c.chunks;
    return options;
  }

  /// Logits of the explicit build of the same update form, style and functions, in one chunk. With `half`, its caches
  /// are fp16 where the stateful one has states. (The form matters: a ring holds its columns in another order,
  /// so sums differ in their last bits, and a cache entry near the middle between two fp16 numbers then rounds the
  /// other way.)
  const std::vector<float>* Reference(const Combination& c, bool half, bool hybrid_states) {
    const std::string key =
        fmt::format("{} {} {} {} {}", UpdateName(c.update), StyleName(c.style), c.functions, half, hybrid_states);
    if (const auto known = references_.find(key); known != references_.end()) return &known->second;
    Combination reference = c;
    reference.layout = "explicit-io:whole:per-layer";
    reference.chunks = 1;
    BuildOptions options = Options(reference);
    if (half) options.cache_dtype = DataType::kFp16;
    if (half && hybrid_states) options.hybrid_dtype = DataType::kFp16;
    auto logits = testing::BuildAndRun(options, golden_);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) return nullptr;
    return &(references_[key] = *std::move(logits));
  }

  /// Bound on the error of half precision. Every op rounds to fp16, u = 2^-11; along the residual stream of L layers
  /// some 16 roundings a layer follow one another, and to first order each moves the logits by at most u times their
  /// size when no step amplifies errors; so L * 16 * u * max|logit| bounds the sum even if all point one way.
  double HalfBound() const {
    double largest = 0;
    for (const float logit : golden_.logits) largest = std::max(largest, std::fabs(static_cast<double>(logit)));
    return static_cast<double>(plan_.layer_count()) * 16 * 0x1p-11 * largest;
  }

  Golden golden_;
  BuildOptions base_;
  ModelPlan plan_;
  std::map<std::string, std::vector<float>> references_;
};

TEST_P(MatrixTest, EveryCombination) {
  // A sample in the quick run: every 13th combination, starting elsewhere for each checkpoint, so that all kinds come
  // up.
  const std::vector<Combination> all = Combinations(plan_.HasSliding());
  const size_t step = testing::FullTests() ? 1 : 13;
  const size_t start = testing::FullTests() ? 0 : std::hash<std::string>()(GetParam()) % step;
  const double explicit_bound = testing::Fp32Bound(GetParam());
  double worst_state = 0, worst_explicit = 0, worst_apart = 0, worst_calls = 0;
  size_t count = 0;
  for (size_t i = start; i < all.size(); i += step) {
    const Combination& c = all[i];
    SCOPED_TRACE(fmt::format("{} {}", GetParam(), c.Name()));
    const BuildOptions options = Options(c);
    const auto logits = testing::BuildAndRun(options, golden_);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    const bool state = options.layout->storage == CacheStorage::kState;
    const bool by_role = options.layout->layout == StateLayout::kByRole;
    const double bound = state ? 5e-2 : explicit_bound;
    const Difference golden = testing::Compare(*logits, golden_.logits, golden_.vocabulary, 2 * bound);
    EXPECT_LE(golden.max, bound);
    EXPECT_EQ(golden.wrong_top, 0);
    (state ? worst_state : worst_explicit) = std::max(state ? worst_state : worst_explicit, golden.max);
    if (state) {
      const auto* reference = Reference(c, /*half=*/true, by_role);
      ASSERT_NE(reference, nullptr);
      const Difference apart = testing::Compare(*logits, *reference, golden_.vocabulary, 1);
      EXPECT_LE(apart.max, 1e-5);
      worst_apart = std::max(worst_apart, apart.max);
    }
    // A ring has its columns in another order in calls of several tokens, so sums differ in their last bits. What fp16
    // caches make of that, an entry that rounds the other way, is within the bound on states only.
    const bool same_order = c.update != CacheUpdate::kRing || !state;
    if (c.functions != "decode" && same_order) {
      Combination stepwise = c;
      stepwise.functions = "decode";
      const auto* reference = Reference(stepwise, state, state && by_role);
      ASSERT_NE(reference, nullptr);
      const Difference apart = testing::Compare(*logits, *reference, golden_.vocabulary, 1);
      EXPECT_LE(apart.max, 1e-4);
      worst_calls = std::max(worst_calls, apart.max);
    }
    ++count;
  }
  fmt::print(
      "{:18} {:4} combinations: states {:.1e} from golden, {:.1e} from explicit fp16; explicit fp32 {:.1e}; calls of "
      "several tokens {:.1e} from single ones\n",
      GetParam(), count, worst_state, worst_apart, worst_explicit, worst_calls);
}

TEST_P(MatrixTest, HalfPrecision) {
  const double bound = HalfBound();
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    BuildOptions options = base_;
    options.compute = DataType::kFp16;
    options.style = style;
    const auto logits = testing::BuildAndRun(options, golden_);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    const Difference d = testing::Compare(*logits, golden_.logits, golden_.vocabulary, 2 * bound);
    fmt::print("{:18} fp16 {:6} max {:.2e} mean {:.2e} (bound {:.2e})\n", GetParam(), StyleName(style), d.max, d.mean,
               bound);
    EXPECT_LE(d.max, bound);
    EXPECT_EQ(d.wrong_top, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MatrixTest,
                         ::testing::Values("llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "qwen3_vl-tiny",
                                           "qwen3_5-tiny", "gemma3-tiny", "gemma4-tiny", "gemma4dense-tiny",
                                           "lfm2-tiny", "phi3-tiny", "smollm3-tiny", "gpt2-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace milwright
