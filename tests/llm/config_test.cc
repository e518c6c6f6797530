// config.json and tensors: both spellings give one plan; whatever a family does not know is an error that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "golden.h"
#include "llm/checkpoint.h"
#include "llm/families.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kLlama[] = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
  "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "vocab_size": 10, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true})";

class ConfigTest : public ::testing::Test {
 protected:
  Result<ModelPlan> Read(const Json& config, int64_t context_length = 32) {
    const std::string path = folder_.path() + "/config.json";
    MW_RETURN_IF_ERROR(WriteFileAtomically(path, config.dump()));
    return ReadModelPlan(path, context_length);
  }
  /// The message when `config` with `patch` merged in is refused.
  std::string Refusal(const char* patch) {
    Json config = Json::parse(kLlama);
    config.merge_patch(Json::parse(patch));
    // merge_patch drops keys that are null, which is what absent means.
    const auto plan = Read(config);
    EXPECT_FALSE(plan.ok()) << patch;
    return plan.status().message();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ConfigTest, ReadsLlama) {
  const auto plan = Read(Json::parse(kLlama));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->layer_count(), 2);
  EXPECT_EQ(plan->layers[0].head_size, 4);
  EXPECT_TRUE(plan->tied_head);
  EXPECT_EQ(plan->ropes[0].rotary_size(), 4);
}

TEST_F(ConfigTest, NamesWhatItDoesNotKnow) {
  EXPECT_THAT(Refusal(R"({"router_jitter": 0.1})"), HasSubstr("'router_jitter'"));
  EXPECT_THAT(Refusal(R"({"model_type": "mamba"})"), HasSubstr("'mamba'"));
  EXPECT_THAT(Refusal(R"({"hidden_act": "relu"})"), HasSubstr("'hidden_act'"));
  EXPECT_THAT(Refusal(R"({"rms_norm_eps": null})"), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(Refusal(R"({"rope_theta": null})"), HasSubstr("'rope_theta'"));
  EXPECT_THAT(Refusal(R"({"hidden_size": -8})"), HasSubstr("'hidden_size'"));
  EXPECT_THAT(Refusal(R"({"hidden_size": 8.5})"), HasSubstr("'hidden_size'"));
  EXPECT_THAT(Refusal(R"({"hidden_size": 1099511627776})"), HasSubstr("'hidden_size'"));
  EXPECT_THAT(Refusal(R"({"num_hidden_layers": 1000000})"), HasSubstr("'num_hidden_layers'"));
  EXPECT_THAT(Refusal(R"({"num_key_value_heads": 3})"), HasSubstr("'num_key_value_heads'"));
  EXPECT_THAT(Refusal(R"({"architectures": ["LlamaForSequenceClassification"]})"), HasSubstr("SequenceClassification"));
  EXPECT_THAT(Refusal(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})"), HasSubstr("'yarn'"));
  EXPECT_THAT(Refusal(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "extra": 1}})"),
              HasSubstr("'rope_scaling.extra'"));
}

TEST_F(ConfigTest, RefusesWhatIsNoConfig) {
  const std::string path = folder_.path() + "/config.json";
  for (const char* text : {"", "[]", "{", "null", "\"x\""}) {
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
    EXPECT_EQ(ReadModelPlan(path, 32).status().code(), ErrorCode::kUnreadable) << text;
  }
  EXPECT_EQ(ReadModelPlan(folder_.path() + "/missing.json", 32).status().code(), ErrorCode::kUnreadable);
}

/// A plan as text, to compare two.
std::string PlanText(const ModelPlan& plan) {
  Json json = {plan.family,
               plan.hidden,
               plan.vocabulary,
               plan.norm_eps,
               static_cast<int>(plan.norm),
               static_cast<int>(plan.activation),
               plan.tied_head,
               plan.embedding_scale,
               plan.final_softcap,
               plan.window,
               plan.conv_kernel,
               plan.delta.kernel,
               plan.per_layer_size,
               plan.deepstack_layers,
               plan.eos_ids,
               plan.qkv_bias,
               plan.o_bias,
               plan.mlp_bias};
  for (const RopeTable& rope : plan.ropes) {
    json.push_back({rope.name, rope.frequencies, rope.scale, rope.mrope_section});
  }
  for (const LayerPlan& l : plan.layers) {
    json.push_back({static_cast<int>(l.mixer), l.sliding, l.heads, l.kv_heads, l.head_size, l.attention_scale, l.rope,
                    l.kv_source, l.k_equals_v, l.mlp_width});
  }
  return json.dump();
}

TEST_F(ConfigTest, BothSpellingsGiveOnePlan) {
  int compared = 0;
  for (const std::string& name : testing::CheckpointNames()) {
    const std::string checkpoint = testing::FindCheckpoint(name);
    const auto published = ReadModelPlan(checkpoint + "/config.json", 48);
    const auto version5 = ReadModelPlan(checkpoint + "/config_v5.json", 48);
    if (checkpoint.empty() || version5.status().code() == ErrorCode::kUnreadable) continue;
    ASSERT_TRUE(published.ok()) << published.status().message();
    ASSERT_TRUE(version5.ok()) << version5.status().message();
    EXPECT_EQ(PlanText(*published), PlanText(*version5)) << name;
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "needs ../shared/checkpoints";
  EXPECT_EQ(compared, 13);
}

class TensorsTest : public ConfigTest {
 protected:
  /// Binds a small llama whose tensor `changed` is left out (empty shape) or has another shape or type.
  Result<CheckpointTensors> Bind(const std::string& changed, const TensorType& type) {
    MW_ASSIGN_OR_RETURN(const ModelPlan plan, Read(Json::parse(kLlama)));
    std::map<std::string, TensorType> tensors;
    const Family* family = FindFamily("llama");
    for (const TensorRule& rule : family->tensors) {
      for (int64_t layer = kNoLayer; layer < plan.layer_count(); ++layer) {
        const bool of_layer = rule.pattern.find("{i}") != std::string_view::npos;
        const Symbols symbols = PlanSymbols(plan, layer);
        if (of_layer != (layer != kNoLayer) || !ConditionHolds(rule.when, symbols)) continue;
        std::string name = ExpandPattern(rule.pattern, symbols);
        if (const size_t at = name.find("{p}"); at != std::string::npos) name.replace(at, 3, "model.");
        MW_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(rule.shape, symbols));
        tensors[name] = {DataType::kBf16, std::move(shape)};
      }
    }
    if (!changed.empty()) tensors[changed] = type;
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      if (tensor.dtype == DataType::kInvalid) continue;
      entries.push_back({name, tensor, [tensor = tensor] { return Tensor::Zeros(tensor); }});
    }
    MW_RETURN_IF_ERROR(WriteSafetensors(folder_.path() + "/model.safetensors", entries));
    MW_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(folder_.path() + "/model.safetensors"));
    return BindTensors(*family, plan, file);
  }
};

TEST_F(TensorsTest, BindsAll) {
  const auto tensors = Bind("", {});
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  EXPECT_TRUE(tensors->ignored.empty());
  EXPECT_EQ(tensors->roles.count({1, "down"}), 1U);
}

TEST_F(TensorsTest, NamesMissingUnexpectedAndMisshapen) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  EXPECT_THAT(Bind(name, {}).status().message(), AllOf(HasSubstr(name), HasSubstr("missing")));
  EXPECT_THAT(Bind(name, {DataType::kBf16, {16, 9}}).status().message(), AllOf(HasSubstr(name), HasSubstr("[16, 9]")));
  EXPECT_THAT(Bind(name, {DataType::kInt8, {16, 8}}).status().message(), AllOf(HasSubstr(name), HasSubstr("int8")));
  EXPECT_THAT(Bind("model.layers.2.mlp.up_proj.weight", {DataType::kBf16, {16, 8}}).status().message(),
              AllOf(HasSubstr("layers.2"), HasSubstr("unexpected")));
}

TEST_F(TensorsTest, ReportsWhatItLeavesAside) {
  const auto tensors = Bind("model.layers.0.self_attn.rotary_emb.inv_freq", {DataType::kFp32, {2}});
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->ignored.size(), 1U);
  EXPECT_EQ(tensors->ignored[0].name, "model.layers.0.self_attn.rotary_emb.inv_freq");
}

}  // namespace
}  // namespace milwright
