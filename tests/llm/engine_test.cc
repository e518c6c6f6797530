// The engine against the reference on built checkpoints: every family, both styles, every layout.
#include "milwright/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden.h"

namespace milwright {
namespace {

struct Variant {
  const char* layout;
  CacheUpdate update;
};

using testing::Deviation;
using testing::kRecurrenceFactor;
using testing::kStrictBound;
using testing::RunFolder;

constexpr Variant kVariants[] = {
    {"kv-pair", CacheUpdate::kSlice},         {"unified:interleaved", CacheUpdate::kMask},
    {"per-layer", CacheUpdate::kSlice},       {"explicit-io:whole", CacheUpdate::kSlice},
    {"by-role", CacheUpdate::kSlice},         {"unified:split", CacheUpdate::kSlice},
    {"explicit-io:new", CacheUpdate::kSlice}, {"kv-pair", CacheUpdate::kMask},
    {"by-role", CacheUpdate::kRing},          {"by-role", CacheUpdate::kShift},
};

// Fast leaves out roundings inside fusions that the reference makes, so both walks (kStrictBound) differ.
constexpr double kFastBound = 2 * kStrictBound;
double Feedback(const std::string& checkpoint) { return checkpoint == "qwen3_5-tiny" ? kRecurrenceFactor : 1; }

TEST(EngineOnCheckpoints, GivesTheReferencesLogits) {
  size_t turn = 0;
  double worst_strict = 0;
  double worst_fast = 0;
  int cases = 0;
  for (const std::string& name : testing::CheckpointNames()) {
    const std::string checkpoint = testing::FindCheckpoint(name);
    if (checkpoint.empty()) continue;
    auto golden = testing::ReadGolden(checkpoint);
    if (!golden.ok()) continue;  // a sharded checkpoint has the same weights and no golden file of its own
    if (golden->tokens.size() > 24) golden->tokens.resize(24);
    for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
      for (size_t i = 0; i < std::size(kVariants); ++i) {
        // A sample walks through the variants; the full run takes all.
        if (!testing::FullTests() && i != turn % std::size(kVariants)) continue;
        const Variant& variant = kVariants[i];
        testing::TemporaryFolder folder;
        BuildOptions options = testing::QuickBuild(checkpoint, folder.path() + "/build");
        options.context_length = 64;
        options.style = style;
        options.layout = *ParseLayout(variant.layout);
        options.update = variant.update;
        options.functions = *ParseFunctions("decode,prefill:8");
        const auto report = BuildCheckpoint(options);
        if (!report.ok()) {  // rings and shifts need sliding layers
          ASSERT_EQ(report.status().code(), ErrorCode::kUsage) << report.status().message();
          continue;
        }
        const auto reference = RunFolder(options.output, golden->tokens, ReferenceEngine());
        ASSERT_TRUE(reference.ok()) << reference.status().message();
        EngineOptions engine;
        engine.threads = 2;
        engine.numerics = Numerics::kStrict;
        const auto strict = RunFolder(options.output, golden->tokens, FastEngine(engine));
        ASSERT_TRUE(strict.ok()) << strict.status().message();
        engine.numerics = Numerics::kFast;
        const auto fast = RunFolder(options.output, golden->tokens, FastEngine(engine));
        ASSERT_TRUE(fast.ok()) << fast.status().message();
        const double strict_error = Deviation(*strict, *reference);
        const double fast_error = Deviation(*fast, *reference);
        fmt::print("{:18} {:5} {:20} {:6} strict {:.1e} fast {:.1e}\n", name, StyleName(style), variant.layout,
                   UpdateName(variant.update), strict_error, fast_error);
        EXPECT_LE(strict_error, Feedback(name) * kStrictBound) << name << " " << variant.layout;
        EXPECT_LE(fast_error, Feedback(name) * kFastBound) << name << " " << variant.layout;
        worst_strict = std::max(worst_strict, strict_error);
        worst_fast = std::max(worst_fast, fast_error);
        ++cases;
      }
      ++turn;
    }
  }
  ASSERT_GT(cases, 0);
  fmt::print("{} cases; largest difference of logits, as a share of 1 + the largest: strict {:.1e}, fast {:.1e}\n",
             cases, worst_strict, worst_fast);
}

TEST(EngineOnCheckpoints, Fp32BuildsGiveTheGoldenLogits) {
  int cases = 0;
  for (const std::string& name : testing::CheckpointNames()) {
    const std::string checkpoint = testing::FindCheckpoint(name);
    const auto golden = testing::ReadGolden(checkpoint);
    if (!golden.ok()) continue;
    for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
      testing::TemporaryFolder folder;
      BuildOptions options = testing::QuickBuild(checkpoint, folder.path() + "/build");
      options.style = style;
      options.context_length = (static_cast<int64_t>(golden->tokens.size()) + 7) / 8 * 8;
      options.compute = DataType::kFp32;
      options.layout = *ParseLayout("explicit-io");
      options.functions = *ParseFunctions("decode,prefill:8");
      ASSERT_TRUE(BuildCheckpoint(options).ok());
      EngineOptions engine;
      engine.threads = 2;
      const auto logits = RunFolder(options.output, golden->tokens, FastEngine(engine));
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      const double bound = testing::Fp32Bound(name);
      const testing::Difference d = testing::Compare(*logits, golden->logits, golden->vocabulary, 2 * bound);
      fmt::print("{:18} {:5} fp32: max {:.1e} (bound {:.0e})\n", name, StyleName(style), d.max, bound);
      EXPECT_LE(d.max, bound) << name;
      EXPECT_EQ(d.wrong_top, 0) << name;
      ++cases;
    }
  }
  ASSERT_GT(cases, 0);
}

// The package that ships with the project.
class EngineOnExample : public ::testing::Test {
 protected:
  void Build(GraphStyle style, const char* layout, int64_t context_length, CacheUpdate update = CacheUpdate::kSlice) {
    BuildOptions options = testing::QuickBuild(testing::FindCheckpoint("qwen3-jacobean"), folder_.path() + "/build");
    options.style = style;
    options.layout = *ParseLayout(layout);
    options.update = update;
    options.context_length = context_length;
    options.functions = *ParseFunctions("decode,prefill:8");
    const auto report = BuildCheckpoint(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
  }

  // Runs `tokens` one by one from position `from`, and keeps the engine.
  std::vector<float> Decode(int64_t from, int tokens, const EngineOptions& options) {
    std::vector<Engine> engines;
    const EngineLoader loader = [&](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
      MW_ASSIGN_OR_RETURN(Engine engine, Engine::Load(path, options));
      engine.SetProfiling(true);
      engines.push_back(engine);
      return MakePackageEngine(std::move(engine));
    };
    const auto pipeline = Pipeline::Open(folder_.path() + "/build", loader);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status().message();
    EXPECT_TRUE((*pipeline)->SkipTo(from).ok());
    std::vector<float> logits;
    for (int i = 0; i < tokens; ++i) {
      const auto result = (*pipeline)->Step(5 + i);
      EXPECT_TRUE(result.ok()) << result.status().message();
      logits.insert(logits.end(), result->logits.begin(), result->logits.end());
    }
    counters_ = engines.front().counters();
    profile_ = engines.front().Profile();
    return logits;
  }

  int Steps(std::string_view kind) const {
    return static_cast<int>(
        std::ranges::count_if(profile_, [kind](const ProfileEntry& entry) { return entry.kind.starts_with(kind); }));
  }

  testing::TemporaryFolder folder_;
  EngineCounters counters_;
  std::vector<ProfileEntry> profile_;
};

// 6 layers, 2 KV heads of 32: what config.json of the example says.
constexpr int64_t kLayers = 6;
constexpr int64_t kSliceBytes = kLayers * 2 * 2 * 32 * 2;

TEST_F(EngineOnExample, StyleDoesNotMatterToFusion) {
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    for (const char* layout : {"kv-pair", "unified:interleaved", "per-layer"}) {
      ASSERT_NO_FATAL_FAILURE(Build(style, layout, 64));
      Decode(0, 2, {});
      SCOPED_TRACE(std::string(StyleName(style)) + " " + layout);
      EXPECT_EQ(Steps("fused_attention"), kLayers);
      EXPECT_EQ(Steps("fused_rope"), 2 * kLayers);
      EXPECT_EQ(Steps("fused_silu_mul"), kLayers);
      EXPECT_EQ(Steps("fused_rms_norm"), 4 * kLayers + 1);  // two of the layer, one each for q and k, and the last
      EXPECT_EQ(Steps("linear") + Steps("conv"), 4 * kLayers + 1);  // q, k, v; o; gate, up; down; and the head
      EXPECT_TRUE(std::ranges::none_of(profile_, &ProfileEntry::reference));
      // Of two tokens: q and o 128 x 128, k and v 64 x 128, the MLP's three 384 x 128, and the head 1024 x 128.
      EXPECT_EQ(counters_.multiply_adds, 2 * 128 * (kLayers * (2 * 128 + 2 * 64 + 3 * 384) + 1024));
    }
  }
}

TEST_F(EngineOnExample, AStepWritesTheNewSliceAndCopiesNothing) {
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    for (const CacheUpdate update : {CacheUpdate::kSlice, CacheUpdate::kMask}) {
      ASSERT_NO_FATAL_FAILURE(Build(style, "kv-pair", 64, update));
      Decode(10, 3, {});
      SCOPED_TRACE(std::string(StyleName(style)) + " " + std::string(UpdateName(update)));
      EXPECT_EQ(counters_.state_bytes_written, 3 * kSliceBytes);
      // The fp16 update mask is an input of 64 columns, brought to fp32 once in each step.
      EXPECT_EQ(counters_.bytes_copied, update == CacheUpdate::kMask ? 3 * 64 * 4 : 0);
    }
  }
}

TEST_F(EngineOnExample, AStepCostsTheFilledPartOfTheCache) {
  int64_t columns = 0;
  for (const int64_t context : {512, 4096}) {
    ASSERT_NO_FATAL_FAILURE(Build(GraphStyle::kPlain, "kv-pair", context));
    Decode(100, 2, {});
    // Tiles of 64 columns: 101 and 102 positions take two of them, in each layer and KV head.
    EXPECT_EQ(counters_.attention_columns, 2 * kLayers * 2 * 128);
    columns = std::max(columns, counters_.attention_columns);
  }
}

TEST_F(EngineOnExample, ResultsDoNotDependOnThreadsOrPlacement) {
  ASSERT_NO_FATAL_FAILURE(Build(GraphStyle::kAne, "unified:split", 64));
  for (const Numerics numerics : {Numerics::kStrict, Numerics::kFast}) {
    EngineOptions options;
    options.numerics = numerics;
    options.threads = 1;
    options.weights = WeightPlacement::kMap;
    const std::vector<float> one = Decode(0, 4, options);
    for (const int threads : {2, 3}) {
      options.threads = threads;
      options.weights = WeightPlacement::kCopy;
      EXPECT_EQ(Decode(0, 4, options), one) << threads << " threads";
    }
  }
}

TEST_F(EngineOnExample, TheLastRowAloneIsThatOfAll) {
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    ASSERT_NO_FATAL_FAILURE(Build(style, "kv-pair", 64));
    const std::vector<int64_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
    for (const EngineLoader& loader : {FastEngine(), ReferenceEngine()}) {
      const auto pipeline = Pipeline::Open(folder_.path() + "/build", loader);
      ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
      const auto all = (*pipeline)->Prefill(tokens);
      ASSERT_TRUE(all.ok()) << all.status().message();
      ASSERT_EQ(all->logit_rows, 8);
      ASSERT_TRUE((*pipeline)->Reset().ok());
      (*pipeline)->SetLogitRows(LogitRows::kLast);
      const auto last = (*pipeline)->Prefill(tokens);
      ASSERT_TRUE(last.ok()) << last.status().message();
      EXPECT_EQ(last->logit_rows, 1);
      // One row is a matrix-vector product, several are a matrix product: sums in another order, then rounded to fp16
      // (2^-11 of logits up to 32).
      const std::vector<float> row(all->logits.end() - static_cast<int64_t>(last->logits.size()), all->logits.end());
      for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(last->logits[i], row[i], 32.0 / 2048) << i;
    }
  }
}

}  // namespace
}  // namespace milwright
