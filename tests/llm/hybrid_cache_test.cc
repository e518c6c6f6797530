// Caches of convolutions and recurrences in fp16: as sums of two halves, or rounded. What the halves keep, what shapes
// they have, and that everything that reads packages still knows what they are.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "analysis/state_analysis.h"
#include "check/rule.h"
#include "format/package.h"
#include "golden.h"
#include "llm/detect.h"
#include "milwright/engine.h"
#include "sessions.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kHybrids[] = {"qwen3_5-tiny", "lfm2-tiny"};

class HybridCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindCheckpoint(kHybrids[0]).empty()) GTEST_SKIP() << "needs ../shared/checkpoints";
  }

  BuildOptions Options(const std::string& checkpoint, const std::string& layout = "by-role") {
    BuildOptions options;
    options.checkpoint = FindCheckpoint(checkpoint);
    options.output = folder_.path() + "/model";
    options.context_length = 48;
    options.compute = DataType::kFp32;
    options.layout = *ParseLayout(layout);
    options.functions = *ParseFunctions("decode,prefill:4");
    options.durable = false;
    options.hash_checkpoint = false;
    return options;
  }

  static std::string Package(const BuildOptions& options, const std::string& name = "model") {
    return fmt::format("{}/{}.mlpackage", options.output, name);
  }

  TemporaryFolder folder_;
};

// Caches that Core ML states hold in fp16, and the same as inputs and outputs: within the bound of stateful builds, and
// equal to each other.
TEST_F(HybridCacheTest, StatesOfAllLayoutsKeepTheGoldenLogits) {
  for (const char* name : kHybrids) {
    const auto golden = ReadGolden(FindCheckpoint(name));
    ASSERT_OK(golden);
    double worst = 0, apart = 0;
    for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
      BuildOptions reference = Options(name, "explicit-io:whole:per-layer");
      reference.style = style;
      reference.cache_dtype = reference.hybrid_dtype = DataType::kFp16;
      const auto expected = BuildAndRun(reference, *golden);
      ASSERT_OK(expected);
      for (const char* layout : {"kv-pair", "unified", "per-layer", "by-role"}) {
        for (const int64_t chunks : {1, 2}) {
          BuildOptions options = Options(name, layout);
          options.style = style;
          options.chunks.count = chunks;
          options.hybrid_caches = CacheStorage::kState;
          const auto logits = BuildAndRun(options, *golden);
          ASSERT_OK(logits);
          const Difference d = Compare(*logits, golden->logits, golden->vocabulary, 0.1);
          EXPECT_LE(d.max, 5e-2) << name << " " << layout;
          EXPECT_EQ(d.wrong_top, 0) << name << " " << layout;
          worst = std::max(worst, d.max);
          apart = std::max(apart, Compare(*logits, *expected, golden->vocabulary, 1).max);
        }
      }
    }
    EXPECT_LE(apart, 1e-5) << name;
    fmt::print("{:14} states {:.1e} from golden, {:.1e} from explicit fp16\n", name, worst, apart);
  }
}

// With K and V in fp32, halves are all that differs from an fp32 build: 22 bits of a number instead of 24, once a call.
// That stays within the bound of fp32 builds, where rounded caches leave it far behind.
TEST_F(HybridCacheTest, HalvesAreWithinTheBoundOfFp32) {
  for (const char* name : kHybrids) {
    const auto golden = ReadGolden(FindCheckpoint(name));
    ASSERT_OK(golden);
    BuildOptions options = Options(name, "explicit-io");
    options.hybrid_dtype = DataType::kFp16;
    const auto halves = BuildAndRun(options, *golden);
    ASSERT_OK(halves);
    options.hybrid_precision = HybridPrecision::kRounded;
    const auto rounded = BuildAndRun(options, *golden);
    ASSERT_OK(rounded);
    const double error = Compare(*halves, golden->logits, golden->vocabulary, 1).max;
    const double rounded_error = Compare(*rounded, golden->logits, golden->vocabulary, 1).max;
    fmt::print("{:14} halves {:.1e}, rounded {:.1e} from golden\n", name, error, rounded_error);
    EXPECT_LE(error, Fp32Bound(name)) << name;
    EXPECT_GT(rounded_error, Fp32Bound(name)) << name;
  }
}

// 160 tokens: what a recurrent state loses at each of them would add up.
TEST_F(HybridCacheTest, HalvesDoNotDriftOverLongTexts) {
  for (const char* name : kHybrids) {
    BuildOptions options = Options(name);
    options.context_length = 168;
    options.functions = *ParseFunctions("decode");
    const auto file = Safetensors::Open(options.checkpoint + "/golden_long.safetensors");
    ASSERT_OK(file);
    Golden all;
    all.tokens = file->Load("input_ids")->ToInts();
    const auto logits = BuildAndRun(options, all);
    ASSERT_OK(logits);
    const std::vector<float> wanted = file->Load("logits")->ToFloats();
    const std::vector<int64_t> rows = file->Load("positions")->ToInts();
    const auto width = static_cast<std::ptrdiff_t>(wanted.size() / rows.size());
    std::vector<float> some;
    for (const int64_t row : rows) {
      some.insert(some.end(), logits->begin() + row * width, logits->begin() + (row + 1) * width);
    }
    const Difference d = Compare(some, wanted, width, 0.1);
    fmt::print("{:14} 160 tokens: {:.1e} from golden\n", name, d.max);
    EXPECT_LE(d.max, 5e-2) << name;
    EXPECT_EQ(d.wrong_top, 0) << name;
  }
}

// "name: dtype[shape]" of the conv and recurrent states of the first function.
std::vector<std::string> HybridStates(const std::string& package) {
  const auto spec = OpenModel(package);
  EXPECT_OK(spec);
  std::vector<std::string> all;
  if (!spec.ok()) return all;
  for (const FeatureDescription& state : spec->description.functions.front().states) {
    if (state.name.find("_state") == std::string::npos) continue;
    const ArrayFeature& array = state.type.array;
    all.push_back(fmt::format("{}: {}{}", state.name, DataTypeName(array.dtype), ShapeToString(array.shape)));
  }
  return all;
}

TEST_F(HybridCacheTest, ShapesFollowTheOption) {
  BuildOptions options = Options("qwen3_5-tiny");
  const auto states = [&] {
    EXPECT_OK(BuildCheckpoint(options));
    return HybridStates(Package(options));
  };
  options.hybrid_precision = HybridPrecision::kRounded;  // six layers
  const std::vector<std::string> rounded = states();
  EXPECT_THAT(rounded, ElementsAre(HasSubstr("conv_state: fp16[6, 1,"), HasSubstr("recurrent_state: fp16[6,")));
  options.hybrid_precision.reset();
  EXPECT_THAT(states(), ElementsAre(HasSubstr("conv_state: fp16[12, 1,"), HasSubstr("recurrent_state: fp16[12,")));
  // In fp16 the contract's shapes are the default; on request recurrent states, which are computed in fp32, have
  // halves, and conv windows, which are fp16 numbers anyway, have not.
  options.compute = DataType::kFp16;
  EXPECT_EQ(states(), rounded);
  options.hybrid_precision = HybridPrecision::kHalves;
  EXPECT_THAT(states(), ElementsAre(HasSubstr("conv_state: fp16[6, 1,"), HasSubstr("recurrent_state: fp16[12,")));
}

TEST_F(HybridCacheTest, OptionIsRefusedWhereItMeansNothing) {
  const auto refusal = [&](const std::string& checkpoint, auto change) {
    BuildOptions options = Options(checkpoint, "kv-pair");
    options.hybrid_precision = HybridPrecision::kHalves;
    change(options);
    const auto report = BuildCheckpoint(options);
    EXPECT_EQ(report.status().code(), ErrorCode::kUsage) << report.status().message();
    return report.status().message();
  };
  EXPECT_THAT(refusal("llama-tiny", [](auto&) {}), HasSubstr("no conv or recurrent cache in fp16"));
  EXPECT_THAT(refusal("qwen3_5-tiny", [](auto&) {}), HasSubstr("no conv or recurrent cache in fp16"));
  EXPECT_THAT(refusal("lfm2-tiny", [](auto& o) { o.compute = DataType::kFp16; }),
              HasSubstr("no conv or recurrent cache in fp16"));
  EXPECT_FALSE(ParseHybridPrecision("exact").ok());
}

TEST_F(HybridCacheTest, OnlyRoundedStatesAreWarnedOf) {
  for (const char* name : kHybrids) {
    BuildOptions options = Options(name);
    const auto halves = BuildCheckpoint(options);
    ASSERT_OK(halves);
    EXPECT_THAT(halves->warnings, Not(Contains(HasSubstr("rounded to fp16")))) << name;
    options.hybrid_precision = HybridPrecision::kRounded;
    const auto rounded = BuildCheckpoint(options);
    ASSERT_OK(rounded);
    EXPECT_THAT(rounded->warnings, Contains(HasSubstr("--hybrid-precision halves"))) << name;
  }
}

StateRole RoleByName(const std::string& name) {
  return name.starts_with("conv_state")        ? StateRole::kConv
         : name.starts_with("recurrent_state") ? StateRole::kRecurrent
                                               : StateRole::kKv;
}

// Halves are seen through: roles and update forms are those of rounded caches, states and explicit ones alike.
TEST_F(HybridCacheTest, RolesAndUpdateFormsAreFound) {
  for (const char* name : kHybrids) {
    for (const char* layout : {"by-role", "per-layer", "explicit-io:whole:per-layer"}) {
      for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
        BuildOptions options = Options(name, layout);
        options.style = style;
        options.hybrid_dtype = DataType::kFp16;
        const bool state = options.layout->storage == CacheStorage::kState;
        if (state) options.hybrid_caches = CacheStorage::kState;
        std::vector<std::string> facts[2];
        for (const HybridPrecision precision : {HybridPrecision::kRounded, HybridPrecision::kHalves}) {
          options.hybrid_precision = precision;
          ASSERT_OK(BuildCheckpoint(options));
          const auto spec = OpenModel(Package(options));
          ASSERT_OK(spec);
          std::vector<std::string>& seen = facts[precision == HybridPrecision::kHalves ? 1 : 0];
          const auto add = [&](const std::string& cache, StateRole role, UpdateForm form) {
            EXPECT_EQ(role, RoleByName(cache)) << name << " " << layout << " " << cache;
            seen.push_back(fmt::format("{} {} {}", cache, StateRoleName(role), UpdateFormName(form)));
          };
          for (const auto& function : spec->program.functions()) {
            const FunctionStates states = AnalyzeStates(*function);
            for (const StateFacts& one : states.states) add(one.state->name, one.role, one.form);
            for (const CachePair& one : states.cache_pairs) add(one.input->name, one.role, one.form);
          }
        }
        EXPECT_FALSE(facts[0].empty());
        EXPECT_EQ(facts[0], facts[1]) << name << " " << layout;
      }
    }
  }
}

TEST_F(HybridCacheTest, ChecksFindWhatTheyFindInRoundedOnes) {
  for (const char* name : kHybrids) {
    std::multiset<std::string> found[2];
    for (const HybridPrecision precision : {HybridPrecision::kRounded, HybridPrecision::kHalves}) {
      BuildOptions options = Options(name);
      options.hybrid_precision = precision;
      ASSERT_OK(BuildCheckpoint(options));
      const auto spec = OpenModel(Package(options));
      ASSERT_OK(spec);
      for (const Finding& finding : CheckModel(*spec)) {
        EXPECT_LT(finding.severity, Severity::kError) << finding.id << ": " << finding.message;
        found[precision == HybridPrecision::kHalves ? 1 : 0].insert(finding.id);
      }
    }
    EXPECT_EQ(found[0], found[1]) << name;
  }
}

// Folders without a manifest: the contract is found although rows are twice as many, and the folder runs.
TEST_F(HybridCacheTest, FoldersWithoutAManifestRun) {
  struct Case {
    const char* contract;
    const char* layout;
    const char* checkpoint;
    bool state;
  };
  for (const Case& c :
       {Case{"simple", "by-role", "qwen3_5-tiny", true}, Case{"simple", "per-layer", "lfm2-tiny", true},
        Case{"simple", "per-layer", "qwen3_5-tiny", true}, Case{"simple", "kv-pair", "qwen3_5-tiny", false},
        Case{"coreml-llm", "unified", "qwen3_5-tiny", true}, Case{"coreml-llm", "unified", "qwen3_5-tiny", false}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", c.contract, c.layout, c.checkpoint));
    BuildOptions options = Options(c.checkpoint, c.layout);
    options.contract = c.contract;
    options.chunks.count = 2;
    options.hybrid_caches = c.state ? CacheStorage::kState : CacheStorage::kExplicitWhole;
    options.hybrid_dtype = DataType::kFp16;
    ASSERT_OK(BuildCheckpoint(options));
    auto golden = ReadGolden(options.checkpoint);
    ASSERT_OK(golden);
    golden->tokens.resize(12);
    const auto built = RunFolder(options.output, *golden);
    ASSERT_OK(built);
    fs::remove(options.output + "/milwright.json");
    fs::copy_file(options.checkpoint + "/config.json", options.output + "/config.json");
    const auto found = DetectManifest(options.output);
    ASSERT_OK(found);
    EXPECT_EQ(found->contract, c.contract);
    const auto again = RunFolder(options.output, *golden);
    ASSERT_OK(again);
    EXPECT_EQ(*again, *built);
    fs::remove_all(options.output);
  }
}

TEST_F(HybridCacheTest, SnapshotsOfHalvesComeBack) {
  for (const char* name : kHybrids) {
    const BuildOptions options = Options(name);
    const auto golden = ReadGolden(options.checkpoint);
    ASSERT_OK(golden);
    ASSERT_OK(BuildCheckpoint(options));
    const auto session = OpenSession(options.output);
    ASSERT_NE(session, nullptr);
    ASSERT_OK(session->SetPrompt({golden->tokens.begin(), golden->tokens.begin() + 10}));
    const auto saved = session->Save();
    ASSERT_OK(saved);
    const auto first = session->Append(golden->tokens[10]);
    ASSERT_OK(session->Restore(*saved));
    const auto second = session->Append(golden->tokens[10]);
    ASSERT_OK(first);
    ASSERT_OK(second);
    EXPECT_EQ(first->logits, second->logits) << name;
  }
}

// The engine computes the halves as the reference does: golden logits within the bound of stateful builds.
TEST_F(HybridCacheTest, EngineKeepsHalves) {
  for (const char* name : kHybrids) {
    const BuildOptions options = Options(name);
    const auto golden = ReadGolden(options.checkpoint);
    ASSERT_OK(golden);
    ASSERT_OK(BuildCheckpoint(options));
    for (const Numerics numerics : {Numerics::kStrict, Numerics::kFast}) {
      EngineOptions engine;
      engine.threads = 2;
      engine.numerics = numerics;
      const auto pipeline = Pipeline::Open(options.output, FastEngine(engine));
      ASSERT_OK(pipeline);
      const auto result = (*pipeline)->Prefill(golden->tokens);
      ASSERT_OK(result);
      const Difference d = Compare(result->logits, golden->logits, golden->vocabulary, 0.1);
      fmt::print("{:14} engine, {}: {:.1e} from golden\n", name, numerics == Numerics::kStrict ? "strict" : "fast",
                 d.max);
      EXPECT_LE(d.max, 5e-2) << name;
      EXPECT_EQ(d.wrong_top, 0) << name;
    }
  }
}

}  // namespace
}  // namespace milwright::testing
