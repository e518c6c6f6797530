// Folders without a manifest: what is found from the packages is what the build had written, and parts of different
// builds are errors that name both sides.
#include "llm/detect.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file_io.h"
#include "golden.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The manifest as text, without what packages do not tell: provenance, layers, files that are only copied, and the
/// order of features.
std::string Comparable(Manifest manifest) {
  manifest.provenance = {};
  manifest.tokenizer_files.clear();
  for (ManifestStage& stage : manifest.stages) {
    stage.first_layer = 0;
    stage.last_layer = 0;
    for (ManifestFunction& function : stage.functions) {
      std::ranges::sort(function.inputs, {}, &ManifestFeature::name);
      std::ranges::sort(function.outputs, {}, &ManifestFeature::name);
      std::ranges::sort(function.caches, {}, &ManifestCache::input);
      std::ranges::sort(function.states);
    }
    std::ranges::sort(stage.functions, {}, &ManifestFunction::name);
  }
  return FormatManifest(manifest);
}

struct Case {
  std::string contract;
  std::string checkpoint;
  std::string functions = "decode";
  int64_t chunks = 1;
  std::string layout = {};
  std::string update = {};
};

BuildReport Build(const Case& c, const std::string& output, int64_t context = 48) {
  BuildOptions options;
  options.contract = c.contract;
  options.checkpoint = FindCheckpoint(c.checkpoint);
  options.output = output;
  options.functions = *ParseFunctions(c.functions);
  options.chunks.count = c.chunks;
  options.context_length = context;
  if (!c.layout.empty()) options.layout = *ParseLayout(c.layout);
  if (!c.update.empty()) options.update = *ParseUpdate(c.update);
  options.durable = false;
  options.hash_checkpoint = false;
  const auto report = BuildCheckpoint(options);
  EXPECT_OK(report);
  return report.ok() ? *report : BuildReport();
}

/// Takes the manifest away, and gives it back; puts the checkpoint's config.json there instead.
Manifest TakeManifest(const Case& c, const std::string& folder) {
  const auto manifest = ReadManifest(folder);
  EXPECT_OK(manifest);
  fs::remove(folder + "/milwright.json");
  fs::copy_file(FindCheckpoint(c.checkpoint) + "/config.json", folder + "/config.json");
  return *manifest;
}

class DetectTest : public ::testing::TestWithParam<Case> {};

TEST_P(DetectTest, FindsWhatTheBuildWrote) {
  const Case& c = GetParam();
  if (FindCheckpoint(c.checkpoint).empty()) GTEST_SKIP() << "needs ../shared/checkpoints/" << c.checkpoint;
  const TemporaryFolder folder;
  Build(c, folder.path() + "/model");
  const Manifest built = TakeManifest(c, folder.path() + "/model");
  const auto found = DetectManifest(folder.path() + "/model");
  ASSERT_OK(found);
  EXPECT_EQ(Comparable(*found), Comparable(built));
}

INSTANTIATE_TEST_SUITE_P(
    All, DetectTest,
    ::testing::Values(
        Case{"simple", "qwen3-jacobean", "decode,prefill:8"}, Case{"simple", "llama-tiny", "decode", 3},
        Case{"simple", "qwen3-tiny", "decode,prefill:4", 2, "unified:split"},
        Case{"simple", "qwen2-tiny", "decode", 2, "explicit-io:new:kv-pair"},
        Case{"simple", "phi3-tiny", "decode", 2, "explicit-io:whole:per-layer"},
        Case{"simple", "gemma3-tiny", "decode,prefill:4", 2, "by-role", "ring"},
        Case{"simple", "gemma3-tiny", "decode,prefill:4", 1, "by-role", "shift"},
        Case{"simple", "gemma3-tiny", "decode", 1, "kv-pair", "slice"}, Case{"simple", "gemma4-tiny", "decode", 2},
        Case{"simple", "mistral-tiny", "decode", 2}, Case{"simple", "lfm2-tiny", "decode", 2},
        Case{"simple", "qwen3_5-tiny", "decode,prefill:4", 2}, Case{"simple", "qwen3_vl-tiny", "decode,prefill:4", 2},
        Case{"coreml-llm", "qwen3-jacobean", "decode,prefill:8", 3},
        Case{"coreml-llm", "qwen3_vl-tiny", "decode,prefill:8", 2}, Case{"coreml-llm", "gpt2-tiny", "decode", 2},
        Case{"coreml-llm", "mistral-tiny", "decode", 2}, Case{"coreml-llm", "qwen3_5-tiny", "decode", 4},
        Case{"coreml-llm", "gemma4-tiny", "decode,prefill:4", 2},
        Case{"coreml-llm", "gemma4dense-tiny", "decode,prefill:4", 1},
        Case{"coreml-llm", "gemma3-tiny", "decode,prefill:4", 3},
        Case{"coreml-llm", "lfm2-tiny", "decode,prefill:4", 1}, Case{"anemll", "qwen3-jacobean", "decode,prefill:8", 2},
        Case{"anemll", "llama-tiny", "decode", 3}, Case{"hf", "qwen3-jacobean", "main:any"},
        Case{"hf", "mistral-tiny", "main:any"}, Case{"hf", "gemma3-tiny", "main:any"},
        Case{"hf", "gemma4-tiny", "main:any"}, Case{"hf", "lfm2-tiny", "main:any"}),
    [](const auto& info) {
      const Case& c = info.param;
      std::string name = fmt::format("{}_{}_{}_{}_{}", c.contract, c.checkpoint, c.chunks, c.layout, c.update);
      for (char& letter : name) {
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
      }
      return name;
    });

// Found folders run, with the logits of the built ones.
TEST(Detect, FoundFoldersRun) {
  for (const Case& c :
       {Case{"simple", "qwen3-jacobean", "decode,prefill:8", 2},
        Case{"coreml-llm", "qwen3-jacobean", "decode,prefill:8", 2},
        Case{"anemll", "qwen3-jacobean", "decode,prefill:8", 2}, Case{"hf", "qwen3-jacobean", "main:any"}}) {
    const TemporaryFolder folder;
    Build(c, folder.path() + "/model");
    Golden golden;
    golden.tokens = {49, 46, 44, 36, 46, 320, 7, 300, 12, 9, 41};
    const auto run = [&] {
      auto pipeline = Pipeline::Open(folder.path() + "/model", ReferenceEngine());
      EXPECT_OK(pipeline);
      if (!pipeline.ok()) return std::pair<std::vector<float>, std::optional<int64_t>>();
      const auto result = (*pipeline)->Prefill(golden.tokens);
      EXPECT_OK(result);
      return std::pair(result->logits, result->next_token);
    };
    const auto built = run();
    TakeManifest(c, folder.path() + "/model");
    EXPECT_EQ(run(), built) << c.contract;
  }
}

// ---- parts that do not go together ----

class PairingTest : public ::testing::Test {
 protected:
  /// Builds twice; the second build's `parts` replace the first's. The error of opening that without a manifest.
  std::string Mixed(const Case& a, const Case& b, const std::vector<std::string>& parts, int64_t context_b = 48) {
    const std::string x = folder_.path() + "/a/model";
    const std::string y = folder_.path() + "/b/model";
    Build(a, x);
    Build(b, y, context_b);
    TakeManifest(a, x);
    for (const std::string& part : parts) {
      fs::remove_all(x + "/" + part);
      if (fs::exists(y + "/" + part)) fs::copy(y + "/" + part, x + "/" + part, fs::copy_options::recursive);
    }
    return ErrorOf(x);
  }
  static std::string ErrorOf(const std::string& folder) {
    const auto found = DetectManifest(folder);
    EXPECT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), ErrorCode::kUnreadable);
    return found.status().message();
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() + "/a/model/" + name) << text;
  }
  TemporaryFolder folder_;
  const Case three_{"coreml-llm", "qwen3-jacobean", "decode,prefill:8", 3};
};

TEST_F(PairingTest, ContextLength) {
  EXPECT_THAT(Mixed(three_, three_, {"chunk_1.mlpackage"}, 64),
              AllOf(HasSubstr("context length is 48 in chunk_0.mlpackage (input 'causal_mask')"),
                    HasSubstr("but 64 in chunk_1.mlpackage (input 'causal_mask')")));
}

TEST_F(PairingTest, FunctionsOfChunks) {
  EXPECT_THAT(Mixed(three_, {"coreml-llm", "qwen3-jacobean", "decode", 3}, {"chunk_2.mlpackage"}),
              AllOf(HasSubstr("chunk_1.mlpackage has functions of 1, 8 tokens"), HasSubstr("chunk_2.mlpackage of 1")));
}

TEST_F(PairingTest, ChunksMissingOrRenamed) {
  const std::string model = folder_.path() + "/a/model";
  EXPECT_THAT(Mixed(three_, {"hf", "qwen3-jacobean", "main:any"}, {"chunk_1.mlpackage"}),
              AllOf(HasSubstr("chunk 1 is missing between chunk_0.mlpackage and chunk_2.mlpackage")));
  fs::rename(model + "/chunk_2.mlpackage", model + "/chunk_1.mlpackage");
  fs::remove_all(model + "/chunk_head.mlpackage");
  EXPECT_THAT(ErrorOf(model),
              HasSubstr("chunk_1.mlpackage is the last, but gives a hidden state: the head is missing"));
  fs::remove_all(model + "/chunk_0.mlpackage");
  fs::remove_all(model + "/chunk_1.mlpackage");
  EXPECT_THAT(ErrorOf(model), HasSubstr("has neither milwright.json nor any .mlpackage"));
}

TEST_F(PairingTest, SideFiles) {
  const std::string model = folder_.path() + "/a/model";
  Build(three_, model);
  TakeManifest(three_, model);
  Write("model_config.json", R"({"context_length": 2048, "head_dim": 32})");
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("context length is 2048 in model_config.json ('context_length')"),
                                    HasSubstr("48 in chunk_0.mlpackage (input 'causal_mask')")));
  Write("model_config.json", R"({"context_length": 48, "head_dim": 64})");
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("head size is 64 in model_config.json ('head_dim')"),
                                    HasSubstr("32 in chunk_0.mlpackage (state 'kv_cache_0')")));
  Write("model_config.json", "[]");
  EXPECT_THAT(ErrorOf(model), HasSubstr("is not a JSON object"));
  fs::remove(model + "/model_config.json");
  Write("embed_weight.bin", std::string(1000, 'a'));
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("embed_weight.bin has 1000 bytes"), HasSubstr("128 fp16 numbers"),
                                    HasSubstr("'hidden_in' of chunk_0.mlpackage")));
  Write("embed_weight.bin", std::string(256 * 10, 'a'));
  EXPECT_THAT(ErrorOf(model), HasSubstr("embed_weight.bin has 10 rows of 128 numbers, but the vocabulary is 1024"));
  fs::remove(model + "/embed_weight.bin");
  EXPECT_THAT(ErrorOf(model), HasSubstr("embed_weight.bin: is missing"));
  fs::remove(model + "/config.json");
  EXPECT_THAT(ErrorOf(model), HasSubstr("do not tell the"));
}

TEST_F(PairingTest, MetaYaml) {
  const Case anemll{"anemll", "qwen3-jacobean", "decode,prefill:8", 2};
  const std::string model = folder_.path() + "/a/model";
  Build(anemll, model);
  TakeManifest(anemll, model);
  const auto meta = ReadFile(model + "/meta.yaml", 1 << 16);
  ASSERT_OK(meta);
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string text = *meta;
    text.replace(text.find(from), from.size(), to);
    Write("meta.yaml", text);
    return ErrorOf(model);
  };
  EXPECT_THAT(
      change("context_length: 48", "context_length: 512"),
      AllOf(HasSubstr("context length is 512 in meta.yaml ('context_length')"), HasSubstr("48 in model_FFN_PF")));
  EXPECT_THAT(change("num_chunks: 2", "num_chunks: 4"),
              AllOf(HasSubstr("meta.yaml ('num_chunks') is 4"), HasSubstr("has 2 chunks")));
  EXPECT_THAT(change("batch_size: 8", "batch_size: 64"),
              AllOf(HasSubstr("meta.yaml ('batch_size') is 64"), HasSubstr("'prefill' of model_FFN_PF_chunk_01of02")));
  Write("meta.yaml", *meta);
  fs::remove_all(model + "/model_FFN_PF_chunk_02of02.mlpackage");
  EXPECT_THAT(ErrorOf(model), HasSubstr("model_FFN_PF_chunk_01of02.mlpackage is one of 2 chunks"));
}

TEST_F(PairingTest, OrderOfChunks) {
  const Case hybrid{"coreml-llm", "qwen3_5-tiny", "decode", 4};
  if (FindCheckpoint(hybrid.checkpoint).empty()) GTEST_SKIP() << "needs ../shared/checkpoints/qwen3_5-tiny";
  const std::string model = folder_.path() + "/a/model";
  Build(hybrid, model);
  TakeManifest(hybrid, model);
  const auto swap = [&](const std::string& a, const std::string& b) {
    fs::rename(model + "/" + a, model + "/other");
    fs::rename(model + "/" + b, model + "/" + a);
    fs::rename(model + "/other", model + "/" + b);
  };
  swap("chunk_0.mlpackage", "chunk_2.mlpackage");
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("the chunks are out of order: chunk_1.mlpackage has layer"),
                                    HasSubstr("chunk_0.mlpackage before it layer")));
  swap("chunk_0.mlpackage", "chunk_2.mlpackage");
  swap("chunk_0.mlpackage", "chunk_3.mlpackage");
  EXPECT_THAT(ErrorOf(model), HasSubstr("chunk_0.mlpackage gives no hidden state for chunk_1.mlpackage"));
}

TEST_F(PairingTest, OrderOfSharedLayers) {
  const Case gemma{"coreml-llm", "gemma4-tiny", "decode,prefill:4", 2};
  if (FindCheckpoint(gemma.checkpoint).empty()) GTEST_SKIP() << "needs ../shared/checkpoints/gemma4-tiny";
  const std::string model = folder_.path() + "/a/model";
  Build(gemma, model);
  TakeManifest(gemma, model);
  fs::rename(model + "/chunk_0.mlpackage", model + "/chunk_2.mlpackage");
  EXPECT_THAT(ErrorOf(model), AllOf(HasSubstr("the chunks are out of order"), HasSubstr("of chunk_1.mlpackage"),
                                    HasSubstr("chunk_2.mlpackage, which comes later")));
}

TEST_F(PairingTest, SizesOfOtherModels) {
  if (FindCheckpoint("llama-tiny").empty()) GTEST_SKIP() << "needs ../shared/checkpoints/llama-tiny";
  EXPECT_THAT(Mixed(three_, {"coreml-llm", "llama-tiny", "decode,prefill:8", 3}, {"chunk_1.mlpackage"}),
              AllOf(HasSubstr("chunk_0.mlpackage"), HasSubstr("chunk_1.mlpackage"), HasSubstr("128"), HasSubstr("64")));
}

TEST_F(PairingTest, OtherContracts) {
  const std::string error =
      Mixed(three_, {"anemll", "qwen3-jacobean", "decode,prefill:8", 3}, {"model_embeddings.mlpackage"});
  EXPECT_THAT(error, AllOf(HasSubstr("no known contract fits its packages"), HasSubstr("model_embeddings.mlpackage"),
                           HasSubstr("has no output 'hidden_states'")));
}

// With a manifest, every package is held against it.
TEST_F(PairingTest, ManifestAndPackage) {
  const std::string x = folder_.path() + "/a/model";
  const std::string y = folder_.path() + "/b/model";
  Build(three_, x);
  Build(three_, y, 64);
  fs::remove_all(x + "/chunk_1.mlpackage");
  fs::copy(y + "/chunk_1.mlpackage", x + "/chunk_1.mlpackage", fs::copy_options::recursive);
  const auto opened = Pipeline::Open(x, ReferenceEngine());
  EXPECT_THAT(opened.status().message(),
              AllOf(HasSubstr("chunk_1.mlpackage"),
                    HasSubstr("'causal_mask' of function 'infer' is tensor<fp16, [1, 1, 1, 64]>"),
                    HasSubstr("milwright.json says tensor<fp16, [1, 1, 1, 48]>")));
}

}  // namespace
}  // namespace milwright::testing
