#include "llm/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "llm/rope.h"

namespace milwright {
namespace {

constexpr int64_t kMaxLayers = 4096;

/// Keys that say how a model was trained, stored or sampled, not what its forward pass computes.
constexpr std::array<std::string_view, 24> kIrrelevantKeys = {"transformers_version",
                                                              "torch_dtype",
                                                              "dtype",
                                                              "use_cache",
                                                              "cache_implementation",
                                                              "initializer_range",
                                                              "attention_dropout",
                                                              "embd_pdrop",
                                                              "resid_pdrop",
                                                              "attn_pdrop",
                                                              "pretraining_tp",
                                                              "bos_token_id",
                                                              "pad_token_id",
                                                              "sep_token_id",
                                                              "_name_or_path",
                                                              "output_attentions",
                                                              "output_hidden_states",
                                                              "return_dict",
                                                              "id2label",
                                                              "label2id",
                                                              "problem_type",
                                                              "is_encoder_decoder",
                                                              "chunk_size_feed_forward",
                                                              "auto_map"};
/// What composite files say about the towers that a decoder build leaves aside.
constexpr std::array<std::string_view, 14> kTowerKeys = {
    "vision_config",  "audio_config",          "image_token_id",      "video_token_id",
    "audio_token_id", "vision_start_token_id", "vision_end_token_id", "boi_token_id",
    "eoi_token_id",   "boa_token_id",          "eoa_token_index",     "vision_soft_tokens_per_image",
    "architectures",  "eoa_token_id"};

std::vector<Family> MakeFamilies() {
  return {LlamaFamily(),  MistralFamily(), Qwen2Family(), Qwen3Family(), Qwen3VlFamily(), Qwen35Family(),
          Gemma3Family(), Gemma4Family(),  Lfm2Family(),  Phi3Family(),  SmolLm3Family(), Gpt2Family()};
}

std::string KnownModelTypes() {
  std::string known;
  for (const Family& family : Families()) {
    for (const std::string_view type : family.model_types) {
      if (!known.empty()) known += ", ";
      known += type;
    }
  }
  return known;
}

}  // namespace

std::span<const Family> Families() {
  static const std::vector<Family> families = MakeFamilies();
  return families;
}

const Family* FindFamily(std::string_view name) {
  for (const Family& family : Families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

Result<ModelPlan> ReadModelPlan(const std::string& config_path, int64_t context_length) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<ConfigReader> config, ConfigReader::Open(config_path));
  const std::string model_type = config->StringOr("model_type", "");
  const auto families = Families();
  const auto family = std::find_if(families.begin(), families.end(), [&](const Family& f) {
    return std::find(f.model_types.begin(), f.model_types.end(), model_type) != f.model_types.end();
  });
  if (family == families.end()) {
    return Status(ErrorCode::kPrecondition, fmt::format("{}: 'model_type' is '{}', which no family knows (known: {})",
                                                        config_path, model_type, KnownModelTypes()));
  }
  if (config->Has("architectures")) {
    for (const std::string& name : config->Strings("architectures")) {
      if (std::find(family->architectures.begin(), family->architectures.end(), name) == family->architectures.end()) {
        config->Fail("architectures", fmt::format("names {}, which has no language-model head that family {} builds",
                                                  name, family->name));
      }
    }
  }
  const bool composite = config->Has("text_config");
  ConfigReader& text = composite ? config->Section("text_config") : *config;
  if (composite) text.StringOr("model_type", "");
  config->Ignore(kIrrelevantKeys);
  if (composite) config->Ignore(kTowerKeys);
  text.Ignore(kIrrelevantKeys);

  ModelPlan plan;
  plan.family = family->name;
  family->read({*config, text, context_length}, plan);
  plan.eos_ids = text.IntegerOrList("eos_token_id");
  const std::vector<int64_t> outer_eos = composite ? config->IntegerOrList("eos_token_id") : std::vector<int64_t>();
  if (plan.eos_ids.empty()) plan.eos_ids = outer_eos;
  MW_RETURN_IF_ERROR(config->Finish());
  return plan;
}

void ReadDecoder(const PlanRequest& request, ModelPlan& plan, const DecoderKeys& keys) {
  ConfigReader& text = request.text;
  plan.hidden = text.Size("hidden_size");
  plan.vocabulary = text.Size("vocab_size");
  plan.max_positions = text.Size("max_position_embeddings");
  const int64_t layers = text.Size("num_hidden_layers");
  if (layers > kMaxLayers) text.Fail("num_hidden_layers", fmt::format("is beyond {}", kMaxLayers));
  LayerPlan layer;
  layer.heads = text.Size("num_attention_heads");
  if (!text.Has("num_key_value_heads")) plan.notes.emplace_back("num_key_value_heads is absent: as many as heads");
  layer.kv_heads = text.SizeOr("num_key_value_heads", layer.heads);
  if (layer.heads % layer.kv_heads != 0) {
    text.Fail("num_key_value_heads", fmt::format("is {}, which does not divide {} heads", layer.kv_heads, layer.heads));
  }
  if (!text.Has("head_dim") && plan.hidden % layer.heads != 0)
    text.Fail("head_dim", "is missing, and heads do not divide hidden_size");
  layer.head_size = text.SizeOr("head_dim", std::max<int64_t>(1, plan.hidden / layer.heads));
  if (!keys.mlp_width.empty()) layer.mlp_width = text.Size(keys.mlp_width);
  plan.norm_eps = text.Number(keys.eps);
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(layer.head_size));

  constexpr std::array<std::string_view, 1> kSilu = {"silu"};
  constexpr std::array<std::string_view, 2> kGelu = {"gelu_pytorch_tanh", "gelu_new"};
  const bool gelu = text.Has("hidden_activation");
  text.RequireOneOf("hidden_act", kSilu);
  text.RequireOneOf("hidden_activation", kGelu);
  if (!gelu && !text.Has("hidden_act")) plan.notes.emplace_back("hidden_act is absent: silu");
  plan.activation = gelu ? Activation::kGeluTanh : Activation::kSilu;

  const bool attention_bias = text.BoolOr("attention_bias", false);
  plan.qkv_bias = attention_bias;
  plan.o_bias = attention_bias;
  plan.mlp_bias = text.BoolOr("mlp_bias", false);
  // Composite files: the outer key decides; transformers 5 writes a contradicting inner one (families.md, section 0).
  const bool inner_tied = text.BoolOr("tie_word_embeddings", keys.tied_by_default);
  plan.tied_head = request.top.BoolOr("tie_word_embeddings", inner_tied);
  if (!text.Has("tie_word_embeddings") && !request.top.Has("tie_word_embeddings")) {
    plan.notes.push_back(
        fmt::format("tie_word_embeddings is absent: {} by the family's default", keys.tied_by_default));
  }
  if (!text.status().ok()) return;
  for (int64_t i = 0; i < layers; ++i) {
    layer.kv_source = i;
    plan.layers.push_back(layer);
  }
}

void ReadOneRope(const PlanRequest& request, ModelPlan& plan) {
  if (!request.text.status().ok()) return;
  RopeRequest rope;
  rope.head_size = plan.layers.front().head_size;
  rope.context_length = request.context_length;
  rope.max_positions = plan.max_positions;
  plan.ropes.push_back(ReadRope(request.text, rope));
  for (LayerPlan& layer : plan.layers) layer.rope = 0;
}

std::vector<std::string> ReadLayerTypes(ConfigReader& text, int64_t layers, std::span<const std::string_view> allowed) {
  if (!text.Has("layer_types")) return {};
  std::vector<std::string> types = text.Strings("layer_types");
  if (static_cast<int64_t>(types.size()) != layers) {
    text.Fail("layer_types", fmt::format("has {} entries for {} layers", types.size(), layers));
    return {};
  }
  for (const std::string& type : types) {
    if (std::find(allowed.begin(), allowed.end(), type) == allowed.end()) {
      text.Fail("layer_types", fmt::format("has a layer of kind '{}', which this family does not support", type));
      return {};
    }
  }
  return types;
}

std::vector<TensorRule> OuterTensors() {
  return {{"{p}embed_tokens.weight", "V, h", "embedding"},
          {"{p}norm.weight", "h", "final_norm"},
          {"lm_head.weight", "V, h", "head", "!tied"}};
}

std::vector<TensorRule> AttentionTensors() {
  return {{"{p}layers.{i}.self_attn.q_proj.weight", "H*d, h", "q", "attention"},
          {"{p}layers.{i}.self_attn.k_proj.weight", "K*d, h", "k", "own_kv"},
          {"{p}layers.{i}.self_attn.v_proj.weight", "K*d, h", "v", "own_v"},
          {"{p}layers.{i}.self_attn.o_proj.weight", "h, H*d", "o", "attention"},
          {"{p}layers.{i}.self_attn.q_proj.bias", "H*d", "q.bias", "attention qkv_bias"},
          {"{p}layers.{i}.self_attn.k_proj.bias", "K*d", "k.bias", "own_kv qkv_bias"},
          {"{p}layers.{i}.self_attn.v_proj.bias", "K*d", "v.bias", "own_v qkv_bias"},
          {"{p}layers.{i}.self_attn.o_proj.bias", "h", "o.bias", "attention o_bias"}};
}

std::vector<TensorRule> HeadNormTensors() {
  return {{"{p}layers.{i}.self_attn.q_norm.weight", "d", "q_norm", "attention"},
          {"{p}layers.{i}.self_attn.k_norm.weight", "d", "k_norm", "own_kv"}};
}

std::vector<TensorRule> NormTensors() {
  return {{"{p}layers.{i}.input_layernorm.weight", "h", "mixer_norm"},
          {"{p}layers.{i}.post_attention_layernorm.weight", "h", "mlp_norm"}};
}

std::vector<TensorRule> GatedMlpTensors() {
  return {{"{p}layers.{i}.mlp.gate_proj.weight", "I, h", "gate"},
          {"{p}layers.{i}.mlp.up_proj.weight", "I, h", "up"},
          {"{p}layers.{i}.mlp.down_proj.weight", "h, I", "down"},
          {"{p}layers.{i}.mlp.gate_proj.bias", "I", "gate.bias", "mlp_bias"},
          {"{p}layers.{i}.mlp.up_proj.bias", "I", "up.bias", "mlp_bias"},
          {"{p}layers.{i}.mlp.down_proj.bias", "h", "down.bias", "mlp_bias"}};
}

std::vector<TensorRule> Concatenate(std::initializer_list<std::vector<TensorRule>> lists) {
  std::vector<TensorRule> all;
  for (const std::vector<TensorRule>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace milwright
