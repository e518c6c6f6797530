// Packages under each contract: names, types and shapes as published, and the logits all the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file_io.h"
#include "format/package.h"
#include "golden.h"

namespace milwright {
namespace {

using testing::Difference;
using ::testing::ElementsAre;
using testing::Golden;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

/// "name: dtype[shape]" of features, in order.
std::vector<std::string> Describe(const std::vector<FeatureDescription>& features) {
  std::vector<std::string> all;
  for (const FeatureDescription& feature : features) {
    const ArrayFeature& array = feature.type.array;
    all.push_back(fmt::format("{}: {}{}", feature.name, DataTypeName(array.dtype), ShapeToString(array.shape)));
  }
  return all;
}

class ContractTest : public ::testing::Test {
 protected:
  /// Builds `checkpoint` in fp32 into the folder; skips when it is missing.
  void Build(const std::string& checkpoint, BuildOptions options) {
    const std::string path = testing::FindCheckpoint(checkpoint);
    if (path.empty()) GTEST_SKIP() << "needs ../shared/checkpoints/" << checkpoint;
    options.checkpoint = path;
    options.output = Folder();
    options.context_length = 48;
    options.durable = false;
    options.hash_checkpoint = false;
    const auto report = BuildCheckpoint(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    auto golden = testing::ReadGolden(path);
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *std::move(golden);
  }

  std::string Folder() const { return folder_.path() + "/model"; }

  FunctionDescription Function(const std::string& package, const std::string& function) {
    const auto spec = OpenModel(Folder() + "/" + package + ".mlpackage");
    EXPECT_TRUE(spec.ok()) << spec.status().message();
    const FunctionDescription* found = spec.ok() ? spec->description.Find(function) : nullptr;
    EXPECT_NE(found, nullptr) << function;
    return found == nullptr ? FunctionDescription() : *found;
  }

  /// Runs the built folder and compares with the golden logits: all rows, or the last one of each call.
  void ExpectGolden(double bound, bool last_rows = false) {
    if (IsSkipped() || HasFatalFailure()) return;
    auto pipeline = Pipeline::Open(Folder(), ReferenceEngine());
    ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
    std::vector<float> logits;
    const auto width = static_cast<size_t>(golden_.vocabulary);
    if (last_rows) {
      // Prefill the prompt, then token by token: rows 23, 24, ...
      const size_t prompt = 24;
      for (size_t done = 0; done < golden_.tokens.size();) {
        const size_t count = done == 0 ? prompt : 1;
        const auto step = (*pipeline)->Prefill(std::span(golden_.tokens).subspan(done, count));
        ASSERT_TRUE(step.ok()) << step.status().message();
        ASSERT_GE(step->logits.size(), width);
        logits.insert(logits.end(), step->logits.end() - static_cast<std::ptrdiff_t>(width), step->logits.end());
        done += count;
      }
      golden_.logits.erase(golden_.logits.begin(),
                           golden_.logits.begin() + static_cast<std::ptrdiff_t>((prompt - 1) * width));
    } else {
      const auto all = (*pipeline)->Prefill(golden_.tokens);
      ASSERT_TRUE(all.ok()) << all.status().message();
      logits = all->logits;
    }
    const Difference d = testing::Compare(logits, golden_.logits, golden_.vocabulary, 2 * bound);
    fmt::print("{:60} max {:.2e} (bound {:.0e})\n", ::testing::UnitTest::GetInstance()->current_test_info()->name(),
               d.max, bound);
    EXPECT_LE(d.max, bound);
    EXPECT_EQ(d.wrong_top, 0);
  }

  testing::TemporaryFolder folder_;
  Golden golden_;
};

BuildOptions Options(const std::string& contract, DataType compute = DataType::kFp32) {
  BuildOptions options;
  options.contract = contract;
  options.compute = compute;
  return options;
}

constexpr double kStateBound = 5e-2;  // caches in fp16 states (checkpoints/README.md)

TEST_F(ContractTest, SimpleNamesAndShapes) {
  BuildOptions options = Options("simple", DataType::kFp16);
  options.functions = *ParseFunctions("decode,prefill:8");
  Build("qwen3-tiny", options);
  if (IsSkipped()) return;
  const FunctionDescription prefill = Function("model", "prefill");
  EXPECT_THAT(Describe(prefill.inputs),
              ElementsAre("input_ids: int32[1, 8]", "position: int32[1]", "mask: fp16[1, 1, 8, 48]"));
  EXPECT_THAT(Describe(prefill.outputs), ElementsAre("logits: fp16[1, 8, 512]"));
  EXPECT_THAT(Describe(prefill.states),
              ElementsAre("key_cache: fp16[4, 2, 48, 32]", "value_cache: fp16[4, 2, 48, 32]"));
  EXPECT_THAT(Describe(Function("model", "decode").inputs),
              ElementsAre("input_ids: int32[1, 1]", "position: int32[1]", "mask: fp16[1, 1, 1, 48]"));
}

TEST_F(ContractTest, CoreMlLlmQwen3Vl) {
  BuildOptions options = Options("coreml-llm", DataType::kFp16);
  options.functions = *ParseFunctions("decode,prefill:8");
  options.chunks.count = 2;
  Build("qwen3_vl-tiny", options);
  if (IsSkipped()) return;
  const FunctionDescription first = Function("chunk_0", "prefill_b8");
  EXPECT_THAT(Describe(first.inputs),
              ElementsAre("hidden_in: fp16[1, 8, 64]", "cos: fp16[1, 8, 32]", "sin: fp16[1, 8, 32]",
                          "causal_mask: fp16[1, 1, 8, 48]", "current_pos: int32[1]", "ds_0: fp16[1, 8, 64]",
                          "ds_1: fp16[1, 8, 64]", "visual_active: fp32[1]"));
  EXPECT_THAT(Describe(first.outputs), ElementsAre("hidden: fp16[1, 8, 64]"));
  EXPECT_THAT(Describe(first.states), ElementsAre("kv_cache_0: fp16[4, 2, 48, 32]"));
  EXPECT_THAT(Describe(Function("chunk_1", "infer").states), ElementsAre("kv_cache_0: fp16[6, 2, 48, 32]"));
  const FunctionDescription head = Function("chunk_head", "main");
  EXPECT_THAT(Describe(head.inputs), ElementsAre("hidden_in: fp16[1, 1, 64]"));
  EXPECT_THAT(Describe(head.outputs), ElementsAre("next_token: int32[1]"));
  EXPECT_EQ(std::filesystem::file_size(Folder() + "/embed_weight.bin"), 512 * 64 * 2);
}

TEST_F(ContractTest, CoreMlLlmQwen35) {
  BuildOptions options = Options("coreml-llm", DataType::kFp16);
  options.chunks.count = 2;
  Build("qwen3_5-tiny", options);
  if (IsSkipped()) return;
  const FunctionDescription last = Function("chunk_1", "main");
  EXPECT_THAT(Describe(last.states), ElementsAre("kv_cache: fp16[2, 2, 48, 32]"));
  EXPECT_THAT(Describe(last.outputs),
              UnorderedElementsAre("logits: fp16[1, 1, 512]", "new_conv_state_4: fp16[1, 160, 4]",
                                   "new_conv_state_5: fp16[1, 160, 4]", "new_conv_state_6: fp16[1, 160, 4]",
                                   "new_rec_state_4: fp16[1, 4, 16, 24]", "new_rec_state_5: fp16[1, 4, 16, 24]",
                                   "new_rec_state_6: fp16[1, 4, 16, 24]"));
  EXPECT_THAT(Describe(last.inputs), ::testing::Contains("cos: fp16[1, 1, 8]"));
  EXPECT_TRUE(std::filesystem::exists(Folder() + "/final_norm.bin"));
  EXPECT_TRUE(std::filesystem::exists(Folder() + "/head_meta.json"));
}

TEST_F(ContractTest, CoreMlLlmGemma4) {
  BuildOptions options = Options("coreml-llm", DataType::kFp16);
  options.functions = *ParseFunctions("decode,prefill:4");
  options.chunks.count = 2;
  Build("gemma4-tiny", options);
  if (IsSkipped()) return;
  const FunctionDescription first = Function("chunk_0", "infer");
  EXPECT_THAT(Describe(first.inputs),
              ElementsAre("hidden_states: fp16[1, 1, 64]", "causal_mask_full: fp16[1, 1, 1, 48]",
                          "causal_mask_sliding: fp16[1, 1, 1, 8]", "per_layer_raw: fp16[1, 1, 160]",
                          "cos_s: fp16[1, 1, 1, 16]", "sin_s: fp16[1, 1, 1, 16]", "cos_f: fp16[1, 1, 1, 32]",
                          "sin_f: fp16[1, 1, 1, 32]", "current_pos: int32[1]", "ring_pos: int32[1]"));
  EXPECT_THAT(Describe(first.outputs),
              ElementsAre("hidden_states_out: fp16[1, 1, 64]", "per_layer_combined_out: fp16[1, 1, 160]",
                          "kv3_k: fp16[1, 1, 8, 16]", "kv3_v: fp16[1, 1, 8, 16]", "kv4_k: fp16[1, 1, 48, 32]",
                          "kv4_v: fp16[1, 1, 48, 32]"));
  EXPECT_THAT(Describe(first.states),
              UnorderedElementsAre("kv_cache_sliding: fp16[8, 1, 8, 32]", "kv_cache_full: fp16[2, 1, 48, 32]"));
  EXPECT_THAT(Describe(Function("chunk_1", "infer").outputs),
              ElementsAre("token_id: int32[1]", "token_logit: fp16[1]", "hidden_normed: fp16[1, 1, 64]"));
}

TEST_F(ContractTest, CoreMlLlmLfm2) {
  Build("lfm2-tiny", Options("coreml-llm", DataType::kFp16));
  if (IsSkipped()) return;
  const FunctionDescription function = Function("model", "main");
  EXPECT_THAT(Describe(function.inputs),
              ElementsAre("input_ids: int32[1, 1]", "position_ids: int32[1]", "causal_mask: fp16[1, 1, 1, 48]",
                          "update_mask: fp16[1, 1, 48, 1]", "conv_state_in: fp16[4, 64, 3]"));
  EXPECT_THAT(Describe(function.outputs),
              ElementsAre("token_id: int32[1]", "token_logit: fp16[1]", "conv_state_out: fp16[4, 64, 3]"));
  EXPECT_THAT(Describe(function.states), ElementsAre("kv_cache_0: fp16[4, 2, 48, 16]"));
}

TEST_F(ContractTest, AnemllKinds) {
  BuildOptions options = Options("anemll", DataType::kFp16);
  options.functions = *ParseFunctions("decode,prefill:8");
  options.chunks.count = 2;
  options.head_splits = 2;
  Build("llama-tiny", options);
  if (IsSkipped()) return;
  EXPECT_THAT(Describe(Function("model_embeddings", "infer").outputs), ElementsAre("hidden_states: fp16[1, 1, 64]"));
  const FunctionDescription chunk = Function("model_FFN_PF_chunk_01of02", "prefill");
  EXPECT_THAT(Describe(chunk.inputs), ElementsAre("hidden_states: fp16[1, 8, 64]", "position_ids: int32[8]",
                                                  "causal_mask: fp16[1, 1, 8, 48]", "current_pos: int32[1]"));
  EXPECT_THAT(Describe(chunk.outputs), ElementsAre("output_hidden_states: fp16[1, 8, 64]"));
  // One state for all layers, in every chunk.
  EXPECT_THAT(Describe(chunk.states), ElementsAre("model_model_kv_cache_0: fp16[8, 2, 48, 16]"));
  EXPECT_THAT(Describe(Function("model_lm_head", "main").outputs),
              ElementsAre("logits1: fp16[1, 1, 256]", "logits2: fp16[1, 1, 256]"));
  const auto meta = ReadFile(Folder() + "/meta.yaml", 1 << 16);
  ASSERT_TRUE(meta.ok());
  EXPECT_THAT(*meta, HasSubstr("model_prefix: model\n"));
  EXPECT_THAT(*meta, HasSubstr("num_chunks: 2\n"));
}

/// Counts the predictions of packages whose path has a part.
class CountedEngine : public PackageEngine {
 public:
  CountedEngine(std::unique_ptr<PackageEngine> engine, int* count) : engine_(std::move(engine)), count_(count) {}
  Result<State> MakeState() override { return engine_->MakeState(); }
  [[nodiscard]] const ModelSpec& spec() const override { return engine_->spec(); }
  Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) override {
    ++*count_;
    return engine_->Predict(function, inputs, state);
  }

 private:
  std::unique_ptr<PackageEngine> engine_;
  int* count_;
};

TEST_F(ContractTest, OnlyTokensWhoseLogitsAreWantedGoThroughAHeadOfItsOwn) {
  BuildOptions options = Options("anemll");
  options.functions = *ParseFunctions("decode,prefill:8");
  Build("llama-tiny", options);
  if (IsSkipped()) return;
  int heads = 0;
  const EngineLoader loader =
      [&heads, inner = ReferenceEngine()](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<PackageEngine> engine, inner(path));
    if (path.find("lm_head") == std::string::npos) return engine;
    return std::unique_ptr<PackageEngine>(std::make_unique<CountedEngine>(std::move(engine), &heads));
  };
  const auto pipeline = Pipeline::Open(Folder(), loader);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status().message();
  const auto tokens = std::span(golden_.tokens).first(8);
  const auto all = (*pipeline)->Prefill(tokens);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(heads, 8);
  ASSERT_TRUE((*pipeline)->Reset().ok());
  (*pipeline)->SetLogitRows(LogitRows::kLast);
  const auto last = (*pipeline)->Prefill(tokens);
  ASSERT_TRUE(last.ok()) << last.status().message();
  EXPECT_EQ(heads, 9);
  EXPECT_EQ(last->logit_rows, 1);
  EXPECT_EQ(last->logits, std::vector<float>(all->logits.end() - golden_.vocabulary, all->logits.end()));
}

TEST_F(ContractTest, HuggingFaceFlexibleShapes) {
  BuildOptions options = Options("hf", DataType::kFp16);
  Build("qwen2-tiny", options);
  if (IsSkipped()) return;
  const FunctionDescription function = Function("model", "main");
  ASSERT_EQ(function.inputs.size(), 2U);
  EXPECT_EQ(function.inputs[0].name, "inputIds");
  const ArrayFeature& ids = function.inputs[0].type.array;
  ASSERT_EQ(ids.shape_range.size(), 2U);
  EXPECT_EQ(ids.shape_range[1].lower, 1U);
  EXPECT_EQ(ids.shape_range[1].upper, 48);
  EXPECT_EQ(function.inputs[1].name, "causalMask");
  EXPECT_EQ(function.inputs[1].type.array.shape_range.size(), 4U);
  EXPECT_THAT(Describe(function.states), ElementsAre("keyCache: fp16[4, 2, 48, 16]", "valueCache: fp16[4, 2, 48, 16]"));
}

struct Case {
  std::string contract;
  std::string checkpoint;
  std::string functions;
  int64_t chunks = 1;
  bool last_rows = false;
};

class ContractLogitsTest : public ContractTest, public ::testing::WithParamInterface<Case> {};

TEST_P(ContractLogitsTest, EqualGolden) {
  const Case& c = GetParam();
  for (const GraphStyle style : {GraphStyle::kPlain, GraphStyle::kAne}) {
    if (c.contract == "hf" && style == GraphStyle::kAne) continue;  // flexible lengths
    BuildOptions options = Options(c.contract);
    options.functions = *ParseFunctions(c.functions);
    options.chunks.count = c.chunks;
    options.head = HeadOption{HeadKind::kLogits, 1};
    options.style = style;
    Build(c.checkpoint, options);
    if (IsSkipped()) return;
    ExpectGolden(kStateBound, c.last_rows);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContractLogitsTest,
                         ::testing::Values(Case{"coreml-llm", "qwen3_vl-tiny", "decode,prefill:8", 2},
                                           Case{"coreml-llm", "llama-tiny", "decode,prefill:8", 4},
                                           Case{"coreml-llm", "gpt2-tiny", "decode", 2},
                                           Case{"coreml-llm", "phi3-tiny", "decode,prefill:4", 1},
                                           Case{"coreml-llm", "mistral-tiny", "decode,prefill:4", 2},
                                           Case{"coreml-llm", "smollm3-tiny", "decode", 2},
                                           Case{"coreml-llm", "qwen3_5-tiny", "decode", 4, true},
                                           Case{"coreml-llm", "gemma4-tiny", "decode,prefill:4", 2, true},
                                           Case{"coreml-llm", "gemma4dense-tiny", "decode,prefill:4", 1, true},
                                           Case{"coreml-llm", "gemma3-tiny", "decode,prefill:4", 3, true},
                                           Case{"coreml-llm", "lfm2-tiny", "decode,prefill:4", 1, true},
                                           Case{"anemll", "llama-tiny", "decode,prefill:8", 2},
                                           Case{"anemll", "qwen3-tiny", "decode", 3},
                                           Case{"anemll", "mistral-tiny", "decode,prefill:4", 2},
                                           Case{"hf", "qwen2-tiny", "main:any"}, Case{"hf", "mistral-tiny", "main:any"},
                                           Case{"hf", "gemma3-tiny", "main:any"}, Case{"hf", "gemma4-tiny", "main:any"},
                                           Case{"hf", "lfm2-tiny", "main:any"}, Case{"hf", "gpt2-tiny", "main:any"},
                                           Case{"hf", "qwen3_vl-tiny", "main:any"}),
                         [](const auto& info) {
                           std::string name = info.param.contract + "_" + info.param.checkpoint;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace milwright
