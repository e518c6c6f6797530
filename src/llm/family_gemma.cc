// Gemma 3 and Gemma 4: sandwich norms, sliding and full layers with a rotary table each (families.md, sections 8, 9).
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "llm/families.h"
#include "llm/rope.h"

namespace milwright {
namespace {

constexpr std::array<std::string_view, 2> kKinds = {"full_attention", "sliding_attention"};
constexpr int kFull = 0;  // index into ModelPlan::ropes
constexpr int kSliding = 1;

std::vector<TensorRule> SandwichTensors() {
  return {{"{p}layers.{i}.input_layernorm.weight", "h", "mixer_norm"},
          {"{p}layers.{i}.post_attention_layernorm.weight", "h", "post_mixer_norm"},
          {"{p}layers.{i}.pre_feedforward_layernorm.weight", "h", "mlp_norm"},
          {"{p}layers.{i}.post_feedforward_layernorm.weight", "h", "post_mlp_norm"}};
}

/// Marks sliding layers from `layer_types`, or every one but each `pattern`-th.
void ReadKinds(const PlanRequest& request, ModelPlan& plan, int64_t pattern) {
  ConfigReader& text = request.text;
  plan.window = text.Size("sliding_window");
  const std::vector<std::string> types = ReadLayerTypes(text, plan.layer_count(), kKinds);
  for (int64_t i = 0; i < plan.layer_count(); ++i) {
    LayerPlan& layer = plan.layers[static_cast<size_t>(i)];
    layer.sliding = types.empty() ? (i + 1) % pattern != 0 : types[static_cast<size_t>(i)] == "sliding_attention";
    layer.rope = layer.sliding ? kSliding : kFull;
  }
}

void ReadGemma3(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  ReadDecoder(request, plan, {.tied_by_default = true});
  plan.norm = NormKind::kRmsPlusOne;
  plan.embedding_scale = std::sqrt(static_cast<double>(plan.hidden));
  plan.final_softcap = text.NumberOr("final_logit_softcapping", 0);
  text.RequireOff("attn_logit_softcapping");
  text.RequireOff("use_bidirectional_attention");
  const int64_t inner_pattern = text.SizeOr("_sliding_window_pattern", 6);
  const int64_t pattern = text.SizeOr("sliding_window_pattern", inner_pattern);
  const double scalar = text.Number("query_pre_attn_scalar");
  if (!(scalar > 0)) text.Fail("query_pre_attn_scalar", "must be positive");
  if (!text.status().ok()) return;
  ReadKinds(request, plan, pattern);
  for (LayerPlan& layer : plan.layers) layer.attention_scale = 1 / std::sqrt(scalar);
  RopeRequest rope;
  rope.head_size = plan.layers.front().head_size;
  rope.max_positions = plan.max_positions;
  rope.context_length = request.context_length;
  rope.name = "full";
  rope.kind = "full_attention";
  plan.ropes.push_back(ReadRope(text, rope));
  rope.name = "sliding";
  rope.kind = "sliding_attention";
  rope.theta_key = "rope_local_base_freq";
  rope.scaling_key = {};
  plan.ropes.push_back(ReadRope(text, rope));
}

/// Head sizes and KV heads of full layers: `global_head_dim`, `num_global_key_value_heads`, or transformers 5's
/// `per_layer_config`, which lists the layers that differ.
void ReadGemma4Heads(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  const bool k_equals_v = text.BoolOr("attention_k_eq_v", false);
  const int64_t sliding_kv_heads = plan.layers.front().kv_heads;
  const bool per_layer = text.Has("per_layer_config");
  const int64_t global_size = text.SizeOr("global_head_dim", 512);
  if (!per_layer && !text.Has("global_head_dim")) plan.notes.emplace_back("global_head_dim is absent: 512");
  const int64_t global_kv_heads = text.SizeOr("num_global_key_value_heads", sliding_kv_heads);
  ConfigReader& layers = text.Section("per_layer_config");
  for (int64_t i = 0; i < plan.layer_count(); ++i) {
    LayerPlan& layer = plan.layers[static_cast<size_t>(i)];
    layer.attention_scale = 1;
    layer.k_equals_v = k_equals_v && !layer.sliding;
    ConfigReader& own = layers.Section(std::to_string(i));
    if (per_layer) {
      layer.head_size = own.SizeOr("head_dim", layer.head_size);
      layer.kv_heads = own.SizeOr("num_key_value_heads", layer.kv_heads);
    } else if (!layer.sliding) {
      layer.head_size = global_size;
      if (k_equals_v) layer.kv_heads = global_kv_heads;
    }
    if (layer.heads % layer.kv_heads != 0) text.Fail("num_key_value_heads", "does not divide the number of heads");
  }
}

/// The last `num_kv_shared_layers` layers attend to the K and V of the last earlier layer of their kind.
void ReadGemma4Sharing(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  const int64_t shared = text.CountOr("num_kv_shared_layers", 0);
  const bool double_wide = text.BoolOr("use_double_wide_mlp", false);
  const int64_t first = plan.layer_count() - shared;
  for (int64_t i = std::max<int64_t>(first, 0); i < plan.layer_count(); ++i) {
    LayerPlan& layer = plan.layers[static_cast<size_t>(i)];
    if (double_wide) layer.mlp_width *= 2;
    int64_t source = first - 1;
    while (source >= 0 && plan.layers[static_cast<size_t>(source)].sliding != layer.sliding) --source;
    if (source < 0) {
      text.Fail("num_kv_shared_layers", fmt::format("leaves layer {} without a layer to share K and V with", i));
      return;
    }
    layer.kv_source = source;
  }
}

void ReadGemma4(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  ReadDecoder(request, plan, {.tied_by_default = true});
  plan.embedding_scale = std::sqrt(static_cast<double>(plan.hidden));
  plan.final_softcap = text.NumberOr("final_logit_softcapping", 0);
  plan.normalize_values = true;
  plan.per_layer_size = text.CountOr("hidden_size_per_layer_input", 0);
  plan.per_layer_vocabulary = text.CountOr("vocab_size_per_layer_input", plan.vocabulary);
  text.RequireOff("enable_moe_block");
  for (const std::string_view key : {"moe_intermediate_size", "num_experts", "top_k_experts"}) {
    if (text.Has(key)) text.Fail(key, "is given: mixtures of experts are not supported");
    text.CountOr(key, 0);
  }
  constexpr std::array<std::string_view, 2> kTextIsCausal = {"vision", "false"};
  text.RequireOneOf("use_bidirectional_attention", kTextIsCausal);
  constexpr std::array<std::string_view, 1> kUnusedPattern = {"sliding_window_pattern"};
  text.Ignore(kUnusedPattern);
  if (!text.Has("layer_types")) text.Fail("layer_types", "is missing, and this family needs it");
  if (!text.status().ok()) return;
  ReadKinds(request, plan, 1);
  ReadGemma4Heads(request, plan);
  ReadGemma4Sharing(request, plan);
  if (!text.status().ok()) return;

  for (const bool sliding : {false, true}) {
    RopeRequest rope;
    rope.name = sliding ? "sliding" : "full";
    rope.kind = sliding ? kKinds[1] : kKinds[0];
    rope.max_positions = plan.max_positions;
    rope.context_length = request.context_length;
    rope.head_size = plan.layers.front().head_size;
    for (const LayerPlan& layer : plan.layers) {
      if (layer.sliding == sliding) rope.head_size = layer.head_size;
    }
    if (!text.Has("rope_parameters")) text.Fail("rope_parameters", "is missing, and this family needs it");
    plan.ropes.push_back(ReadRope(text, rope));
  }
}

}  // namespace

Family Gemma3Family() {
  return {"gemma3",
          {"gemma3_text"},
          {"Gemma3ForCausalLM"},
          ReadGemma3,
          {"model.", "language_model.model.", "model.language_model."},
          Concatenate({OuterTensors(), SandwichTensors(), AttentionTensors(), HeadNormTensors(), GatedMlpTensors()}),
          {kTiedHead, {"vision_tower.*", "vision tower"}, {"multi_modal_projector.*", "vision tower"}}};
}

Family Gemma4Family() {
  const std::vector<TensorRule> own = {
      {"{p}layers.{i}.layer_scalar", "1", "layer_scalar"},
      {"{p}embed_tokens_per_layer.weight", "Vp, L*P", "per_layer_embedding", "per_layer"},
      {"{p}per_layer_model_projection.weight", "L*P, h", "per_layer_projection", "per_layer"},
      {"{p}per_layer_projection_norm.weight", "P", "per_layer_norm", "per_layer"},
      {"{p}layers.{i}.per_layer_input_gate.weight", "P, h", "per_layer_gate", "per_layer"},
      {"{p}layers.{i}.per_layer_projection.weight", "h, P", "per_layer_out", "per_layer"},
      {"{p}layers.{i}.post_per_layer_input_norm.weight", "h", "post_per_layer_norm", "per_layer"},
  };
  constexpr std::string_view kShared = "the layer shares the K and V of an earlier one";
  return {
      "gemma4",
      {"gemma4"},
      {"Gemma4ForConditionalGeneration"},
      ReadGemma4,
      {"model.language_model."},
      Concatenate({OuterTensors(), SandwichTensors(), AttentionTensors(), HeadNormTensors(), GatedMlpTensors(), own}),
      {kTiedHead,
       {"model.vision_tower.*", "vision tower"},
       {"model.audio_tower.*", "audio tower"},
       {"model.embed_vision.*", "vision tower"},
       {"model.embed_audio.*", "audio tower"},
       {"{p}layers.{i}.self_attn.k_proj.weight", kShared, "!own_kv"},
       {"{p}layers.{i}.self_attn.v_proj.weight", kShared, "!own_kv"},
       {"{p}layers.{i}.self_attn.k_norm.weight", kShared, "!own_kv"},
       {"{p}layers.{i}.self_attn.v_norm.weight", kShared, "!own_kv"}}};
}

}  // namespace milwright
