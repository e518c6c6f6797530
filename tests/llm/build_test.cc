// What a build can be asked for besides layouts and contracts, and what it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file_io.h"
#include "check/rule.h"
#include "format/package.h"
#include "golden.h"

namespace milwright {
namespace {

using testing::Difference;
using testing::Golden;
using ::testing::HasSubstr;

class BuildTest : public ::testing::Test {
 protected:
  /// Options for a checkpoint; an empty checkpoint folder (then the test skips) when it is missing.
  BuildOptions For(const std::string& name) {
    BuildOptions options;
    options.checkpoint = testing::FindCheckpoint(name);
    options.output = folder_.path() + "/model";
    options.context_length = 48;
    options.compute = DataType::kFp32;
    options.durable = false;
    options.hash_checkpoint = false;
    if (options.checkpoint.empty()) return options;
    auto golden = testing::ReadGolden(options.checkpoint);
    EXPECT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *std::move(golden);
    return options;
  }

  std::string Refusal(const BuildOptions& options) {
    const auto report = BuildCheckpoint(options);
    EXPECT_EQ(report.status().code(), ErrorCode::kUsage) << report.status().message();
    return report.status().message();
  }

  testing::TemporaryFolder folder_;
  Golden golden_;
};

#define MW_NEEDS(options) \
  if ((options).checkpoint.empty()) GTEST_SKIP() << "needs ../shared/checkpoints"

TEST_F(BuildTest, DefaultPackageIsClean) {
  for (const std::string& name : testing::CheckpointNames()) {
    BuildOptions options = For("llama-tiny");
    MW_NEEDS(options);
    options.checkpoint = testing::FindCheckpoint(name);
    options.compute = DataType::kFp16;
    options.functions = *ParseFunctions("decode,prefill:4");
    const auto report = BuildCheckpoint(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_TRUE(report->warnings.empty()) << report->warnings.front();
    const auto spec = OpenModel(options.output + "/model.mlpackage");
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    for (const Finding& finding : CheckModel(*spec)) {
      EXPECT_LT(finding.severity, Severity::kWarning) << name << ": " << finding.id << ": " << finding.message;
    }
    RemoveTree(options.output);
  }
}

TEST_F(BuildTest, EqualBuildsAreEqualBytes) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  std::vector<std::string> models, manifests;
  for (const char* name : {"a", "b"}) {
    options.output = folder_.path() + "/" + name;
    ASSERT_TRUE(BuildCheckpoint(options).ok());
    const std::string data = options.output + "/model.mlpackage/Data/com.apple.CoreML/";
    models.push_back(*ReadFile(data + "model.mlmodel", 1 << 30) + *ReadFile(data + "weights/weight.bin", 1 << 30));
    manifests.push_back(*ReadFile(options.output + "/milwright.json", 1 << 30));
  }
  EXPECT_EQ(models[0], models[1]);
  EXPECT_EQ(manifests[0], manifests[1]);
}

TEST_F(BuildTest, FunctionsShareWeightsAndStates) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  ASSERT_TRUE(BuildCheckpoint(options).ok());
  const std::string weights = options.output + "/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
  const auto one = std::filesystem::file_size(weights);
  options.functions = *ParseFunctions("decode,prefill:8,prefill4:4");
  ASSERT_TRUE(BuildCheckpoint(options).ok());
  EXPECT_LT(std::filesystem::file_size(weights), one + one / 50);  // position offsets, masks and the like
  const auto logits = testing::RunFolder(options.output, golden_);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_LE(testing::Compare(*logits, golden_.logits, golden_.vocabulary, 0.1).max, 5e-2);
}

TEST_F(BuildTest, SeparatePackagesForFunctions) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  options.functions = *ParseFunctions("decode,prefill:8");
  options.separate_functions = true;
  const auto report = BuildCheckpoint(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->packages.size(), 2U);
  const auto logits = testing::RunFolder(options.output, golden_);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_LE(testing::Compare(*logits, golden_.logits, golden_.vocabulary, 0.1).max, 5e-2);
}

TEST_F(BuildTest, ChunksByBytes) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  // A layer has 4 matrices of 64 x 128 or 64 x 64 pairs and three of 64 x 128: 196,000 bytes in fp32 and some norms.
  options.chunks = *ParseChunks("450KB");
  const auto report = BuildCheckpoint(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->packages.size(), 2U);
  options.chunks = *ParseChunks("1KB");
  EXPECT_THAT(Refusal(options), HasSubstr("layer 0 alone"));
}

TEST_F(BuildTest, SidecarEmbeddingUnderSimple) {
  for (const char* name : {"gemma4-tiny", "gpt2-tiny", "llama-tiny"}) {
    BuildOptions options = For(name);
    MW_NEEDS(options);
    options.embedding = EmbeddingKind::kSidecar;
    options.layout = *ParseLayout("explicit-io");
    const auto logits = testing::BuildAndRun(options, golden_);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    // bf16 weights are fp16 numbers but for tiny ones; GPT-2's fp32 table is rounded to u = 2^-11, which moves its
    // logits by no more than half precision moves them in all.
    const double bound = std::string(name) == "gpt2-tiny" ? 2e-2 : 2e-4;
    EXPECT_LE(testing::Compare(*logits, golden_.logits, golden_.vocabulary, 2 * bound).max, bound) << name;
  }
}

TEST_F(BuildTest, HeadsOfOtherKinds) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  options.functions = *ParseFunctions("decode,prefill:8");
  for (const char* head : {"argmax", "topk:5"}) {
    options.head = *ParseHead(head);
    ASSERT_TRUE(BuildCheckpoint(options).ok());
    const auto pipeline = Pipeline::Open(options.output, ReferenceEngine());
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
    const auto result = (*pipeline)->Prefill(golden_.tokens);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const float* last = golden_.logits.data() + golden_.logits.size() - golden_.vocabulary;
    EXPECT_EQ(result->next_token, std::max_element(last, last + golden_.vocabulary) - last) << head;
    EXPECT_EQ(result->top_tokens.size(), options.head->kind == HeadKind::kTopK ? 5U : 0U);
    EXPECT_TRUE(result->logits.empty());
  }
}

TEST_F(BuildTest, ImagesInQwen3Vl) {
  BuildOptions options = For("qwen3_vl-tiny");
  MW_NEEDS(options);
  const auto file = Safetensors::Open(options.checkpoint + "/golden_image.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto load = [&](const char* name) { return *file->Load(name); };
  const std::vector<int64_t> tokens = load("input_ids").ToInts();
  const std::vector<int64_t> places = load("position_ids").ToInts();
  ImageFeatures image;
  image.embeddings = load("image_embeds").ToFloats();
  for (const char* name : {"deepstack.0", "deepstack.1", "deepstack.2"}) {
    image.deepstack.push_back(load(name).ToFloats());
  }
  for (const int64_t flag : load("visual_mask").ToInts()) image.is_image.push_back(flag != 0);
  std::vector<std::array<int64_t, 3>> positions;
  for (size_t t = 0; t < tokens.size(); ++t) {
    positions.push_back({places[t], places[tokens.size() + t], places[2 * tokens.size() + t]});
  }
  for (const char* contract : {"simple", "coreml-llm"}) {
    options.contract = contract;
    options.embedding = EmbeddingKind::kSidecar;
    options.head = HeadOption{};
    options.functions = *ParseFunctions("decode,prefill:8");
    ASSERT_TRUE(BuildCheckpoint(options).ok());
    const auto pipeline = Pipeline::Open(options.output, ReferenceEngine());
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
    const auto result = (*pipeline)->Prefill(tokens, 0, positions, &image);
    ASSERT_TRUE(result.ok()) << result.status().message();
    const Difference d = testing::Compare(result->logits, load("logits").ToFloats(), 512, 0.1);
    fmt::print("image case under {}: max {:.2e}\n", contract, d.max);
    EXPECT_LE(d.max, 5e-2);  // states are fp16
    EXPECT_EQ(d.wrong_top, 0);
    RemoveTree(options.output);
  }
}

TEST_F(BuildTest, LongTexts) {
  // 160 tokens: windows of 8 go round twenty times, llama's scaled rope passes its original 64 positions.
  for (const char* name : {"llama-tiny", "mistral-tiny", "gemma3-tiny", "gemma4-tiny", "qwen3_5-tiny", "lfm2-tiny"}) {
    BuildOptions options = For(name);
    MW_NEEDS(options);
    options.context_length = 168;
    options.layout = *ParseLayout("explicit-io");
    options.functions = *ParseFunctions("decode,prefill:8");
    const bool sliding = ReadModelPlan(options.checkpoint + "/config.json", 168)->HasSliding();
    options.update = sliding ? CacheUpdate::kRing : CacheUpdate::kSlice;
    const auto file = Safetensors::Open(options.checkpoint + "/golden_long.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().message();
    Golden all;
    all.tokens = file->Load("input_ids")->ToInts();
    const auto logits = testing::BuildAndRun(options, all);
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    std::vector<float> some;
    for (const int64_t row : file->Load("positions")->ToInts()) {
      some.insert(some.end(), logits->begin() + row * 512, logits->begin() + (row + 1) * 512);
    }
    const double bound = testing::Fp32Bound(name);
    const Difference d = testing::Compare(some, file->Load("logits")->ToFloats(), 512, 2 * bound);
    fmt::print("{:14} 160 tokens: max {:.2e} (bound {:.0e})\n", name, d.max, bound);
    EXPECT_LE(d.max, bound) << name;
  }
}

TEST_F(BuildTest, SnapshotsComeBack) {
  for (const char* layout : {"kv-pair", "explicit-io:new"}) {
    BuildOptions options = For("qwen3_5-tiny");
    MW_NEEDS(options);
    options.layout = *ParseLayout(layout);
    ASSERT_TRUE(BuildCheckpoint(options).ok());
    const auto pipeline = Pipeline::Open(options.output, ReferenceEngine());
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
    ASSERT_TRUE((*pipeline)->Prefill(std::span(golden_.tokens).first(10)).ok());
    const auto snapshot = (*pipeline)->Save();
    ASSERT_TRUE(snapshot.ok());
    const auto first = (*pipeline)->Prefill(std::span(golden_.tokens).subspan(10, 5));
    ASSERT_TRUE((*pipeline)->Restore(*snapshot).ok());
    EXPECT_EQ((*pipeline)->position(), 10);
    const auto second = (*pipeline)->Prefill(std::span(golden_.tokens).subspan(10, 5));
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->logits, second->logits) << layout;
  }
}

TEST_F(BuildTest, PipelineRefusesBadCalls) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  options.context_length = 4;
  ASSERT_TRUE(BuildCheckpoint(options).ok());
  const auto pipeline = Pipeline::Open(options.output, ReferenceEngine());
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
  EXPECT_EQ((*pipeline)->Step(512).status().code(), ErrorCode::kUsage);
  EXPECT_EQ((*pipeline)->Step(-1).status().code(), ErrorCode::kUsage);
  EXPECT_TRUE((*pipeline)->Prefill(std::span(golden_.tokens).first(4)).ok());
  EXPECT_THAT((*pipeline)->Step(1).status().message(), HasSubstr("context of 4 tokens is full"));
}

TEST_F(BuildTest, RefusesCombinationsThatMakeNoSense) {
  const auto with = [&](const std::string& checkpoint, auto change) {
    BuildOptions options = For(checkpoint);
    change(options);
    return Refusal(options);
  };
  MW_NEEDS(For("qwen3-tiny"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.update = CacheUpdate::kRing; }), HasSubstr("sliding"));
  EXPECT_THAT(with("gemma3-tiny",
                   [](auto& o) {
                     o.update = CacheUpdate::kRing;
                     o.layout = *ParseLayout("explicit-io:new");
                   }),
              HasSubstr("ring"));
  EXPECT_THAT(with("qwen3-tiny",
                   [](auto& o) {
                     o.update = CacheUpdate::kMask;
                     o.layout = *ParseLayout("explicit-io:new");
                   }),
              HasSubstr("no new slice"));
  EXPECT_THAT(with("gemma3-tiny",
                   [](auto& o) {
                     o.update = CacheUpdate::kShift;
                     o.functions = *ParseFunctions("decode,prefill:16");
                   }),
              HasSubstr("window"));
  EXPECT_THAT(with("qwen3_5-tiny",
                   [](auto& o) {
                     o.context_length = 256;
                     o.functions = *ParseFunctions("prefill:128");
                   }),
              HasSubstr("unrolled"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.functions = *ParseFunctions("prefill:64"); }), HasSubstr("context"));
  EXPECT_THAT(with("gpt2-tiny", [](auto& o) { o.context_length = 65; }), HasSubstr("positions"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.chunks.count = 5; }), HasSubstr("5 chunks"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.contract = "coreml-llm", o.layout = *ParseLayout("kv-pair"); }),
              HasSubstr("no names for state layout kv-pair"));
  EXPECT_THAT(with("gemma3-tiny", [](auto& o) { o.contract = "anemll"; }), HasSubstr("sliding"));
  EXPECT_THAT(with("qwen3_5-tiny", [](auto& o) { o.contract = "anemll"; }), HasSubstr("conv"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.contract = "hf", o.style = GraphStyle::kAne; }),
              HasSubstr("style plain"));
  EXPECT_THAT(with("qwen3-tiny", [](auto& o) { o.head = HeadOption{HeadKind::kTopK, 513}; }), HasSubstr("vocabulary"));
}

TEST_F(BuildTest, WarnsOfLayoutsThatFailOnDevices) {
  const auto warnings = [&](const std::string& checkpoint, auto change) {
    BuildOptions options = For(checkpoint);
    change(options);
    const auto report = BuildCheckpoint(options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? report->warnings : std::vector<std::string>();
  };
  MW_NEEDS(For("qwen3-tiny"));
  EXPECT_THAT(warnings("gemma3-tiny", [](auto& o) { o.layout = *ParseLayout("by-role"); }),
              ::testing::ElementsAre(HasSubstr("K16")));
  EXPECT_THAT(warnings("gemma3-tiny", [](auto& o) { o.update = CacheUpdate::kShift; }),
              ::testing::ElementsAre(HasSubstr("K12")));
  EXPECT_THAT(warnings("qwen3-tiny", [](auto& o) { o.contract = "hf"; }), ::testing::ElementsAre(HasSubstr("K09")));
}

TEST_F(BuildTest, ContractFromAFile) {
  BuildOptions options = For("qwen3-tiny");
  MW_NEEDS(options);
  options.contract = folder_.path() + "/mine.json";
  ASSERT_TRUE(WriteFileAtomically(options.contract, R"({"name": "mine", "single_package": "{prefix}_lm", "forms": [{
    "inputs": [{"kind": "token_ids", "name": "tokens", "shape": "1, T"},
               {"kind": "position", "name": "pos", "shape": "1"},
               {"kind": "mask", "name": "attention_mask", "shape": "1, 1, T, C"}],
    "outputs": [{"kind": "logits", "name": "scores", "shape": "1, T, V"}],
    "caches": {"keys_values": {"name": "cache", "shape": "2*n, K, C, D"}},
    "state_layout": "unified:split"}]})")
                  .ok());
  const auto report = BuildCheckpoint(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->packages[0].path, "model_lm.mlpackage");
  const auto logits = testing::RunFolder(options.output, golden_);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  EXPECT_LE(testing::Compare(*logits, golden_.logits, golden_.vocabulary, 0.1).max, 5e-2);
}

TEST_F(BuildTest, ManifestSurvivesItsFile) {
  BuildOptions options = For("gemma4-tiny");
  MW_NEEDS(options);
  options.contract = "coreml-llm";
  options.chunks.count = 2;
  options.hash_checkpoint = true;
  ASSERT_TRUE(BuildCheckpoint(options).ok());
  const auto manifest = ReadManifest(options.output);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(manifest->provenance.checkpoint_hash.size(), 64U);
  EXPECT_THAT(manifest->provenance.ignored_tensors, ::testing::Contains(HasSubstr("vision_tower")));
  const std::string text = FormatManifest(*manifest);
  EXPECT_EQ(text, *ReadFile(options.output + "/milwright.json", 1 << 24));
  // Hostile variants: each is refused, none crashes.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"version\": 1", "\"version\": 2"},
                                                        {"chunk_0.mlpackage", "../chunk_0.mlpackage"},
                                                        {"embed_weight.bin", "/etc/passwd"},
                                                        {"\"kind\": \"hidden\"", "\"kind\": \"nonsense\""},
                                                        {"\"dtype\": \"fp32\"", "\"dtype\": \"fp99\""},
                                                        {"\"length\": 1", "\"length\": 0"},
                                                        {"\"stages\": [", "\"stages\": [null, "},
                                                        {"\"context_length\": 48", "\"context_length\": -1"}}) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    EXPECT_EQ(ParseManifest(changed, "test").status().code(), ErrorCode::kUnreadable) << to;
  }
}

TEST_F(BuildTest, ShardsGiveTheSameHash) {
  const std::string one = testing::FindCheckpoint("qwen3-tiny"), many = testing::FindCheckpoint("qwen3-tiny-sharded");
  if (one.empty() || many.empty()) GTEST_SKIP() << "needs ../shared/checkpoints";
  EXPECT_EQ(*CheckpointHash(*Safetensors::Open(one)), *CheckpointHash(*Safetensors::Open(many)));
}

}  // namespace
}  // namespace milwright
