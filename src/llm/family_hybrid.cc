// Families that mix attention with layers of constant state: Qwen3.5 (Gated DeltaNet) and LFM2 (short convolutions)
// (families.md, sections 6, 7).
#include <fmt/format.h>

#include <array>

#include "llm/families.h"
#include "llm/rope.h"

namespace milwright {
namespace {

constexpr std::array<std::string_view, 1> kTrue = {"true"};

void ReadQwen35(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  text.RequireOff("attention_bias");
  ReadDecoder(request, plan);
  plan.norm = NormKind::kRmsPlusOne;
  text.RequireOneOf("attn_output_gate", kTrue);
  if (text.Has("mlp_only_layers") && !text.Integers("mlp_only_layers").empty()) {
    text.Fail("mlp_only_layers", "is not empty: mixtures of experts are not supported");
  }
  constexpr std::array<std::string_view, 3> kUnused = {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
                                                       "mlp_only_layers"};
  text.Ignore(kUnused);
  constexpr std::array<std::string_view, 1> kFp32 = {"float32"};
  text.RequireOneOf("mamba_ssm_dtype", kFp32);
  plan.delta = {text.Size("linear_num_key_heads"), text.Size("linear_num_value_heads"),
                text.Size("linear_key_head_dim"), text.Size("linear_value_head_dim"),
                text.Size("linear_conv_kernel_dim")};
  if (plan.delta.value_heads % plan.delta.key_heads != 0) {
    text.Fail("linear_num_key_heads", "does not divide linear_num_value_heads");
  }
  constexpr std::array<std::string_view, 2> kKinds = {"full_attention", "linear_attention"};
  const std::vector<std::string> types = ReadLayerTypes(text, plan.layer_count(), kKinds);
  const int64_t interval = text.SizeOr("full_attention_interval", 4);
  ReadOneRope(request, plan);
  for (int64_t i = 0; i < plan.layer_count(); ++i) {
    const bool full = types.empty() ? (i + 1) % interval == 0 : types[static_cast<size_t>(i)] == "full_attention";
    if (!full) plan.layers[static_cast<size_t>(i)].mixer = Mixer::kDeltaNet;
  }
}

/// Width of the MLP by LFM2's rule.
int64_t Lfm2Width(ConfigReader& text) {
  const int64_t given = text.Has("block_ff_dim") ? text.Size("block_ff_dim") : text.Size("intermediate_size");
  constexpr std::array<std::string_view, 1> kOverridden = {"intermediate_size"};
  text.Ignore(kOverridden);
  const bool adjust = text.BoolOr("block_auto_adjust_ff_dim", true);
  const double multiplier = text.NumberOr("block_ffn_dim_multiplier", 1);
  const int64_t multiple = text.SizeOr("block_multiple_of", 256);
  if (!adjust) return given;
  const int64_t two_thirds = 2 * given / 3;  // a whole number, as there
  const double width = multiplier * static_cast<double>(two_thirds);
  if (!(width >= 1 && width < 1 << 24)) {
    text.Fail("block_ffn_dim_multiplier", "gives no sensible width");
    return 1;
  }
  return (static_cast<int64_t>(width) + multiple - 1) / multiple * multiple;
}

void ReadLfm2(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  if (text.Has("tie_embedding") && !text.BoolOr("tie_embedding", true)) {
    text.Fail("tie_embedding", "is false: an untied head is not supported under this old key");
  }
  ReadDecoder(request, plan, {.tied_by_default = true, .eps = "norm_eps", .mlp_width = {}});
  constexpr std::array<std::string_view, 7> kUnused = {"block_dim",
                                                       "block_mlp_init_scale",
                                                       "block_norm_eps",
                                                       "block_out_init_scale",
                                                       "block_use_xavier_init",
                                                       "conv_use_xavier_init",
                                                       "tie_embedding"};
  text.Ignore(kUnused);
  text.RequireOneOf("block_use_swiglu", kTrue);
  text.RequireOneOf("use_pos_enc", kTrue);
  for (const std::string_view key : {"conv_dim", "conv_dim_out"}) {
    if (text.SizeOr(key, plan.hidden) != plan.hidden) text.Fail(key, "must equal hidden_size");
  }
  plan.conv_kernel = text.Size("conv_L_cache");
  plan.conv_bias = text.BoolOr("conv_bias", false);
  const int64_t width = Lfm2Width(text);
  ReadOneRope(request, plan);
  if (!text.status().ok()) return;
  if (text.SizeOr("num_heads", plan.layers.front().heads) != plan.layers.front().heads) {
    text.Fail("num_heads", "contradicts num_attention_heads");
  }
  constexpr std::array<std::string_view, 2> kKinds = {"full_attention", "conv"};
  const std::vector<std::string> types = ReadLayerTypes(text, plan.layer_count(), kKinds);
  std::vector<bool> attends(plan.layers.size(), false);
  if (text.Has("full_attn_idxs")) {
    for (const int64_t index : text.Integers("full_attn_idxs")) {
      if (index < 0 || index >= plan.layer_count()) {
        text.Fail("full_attn_idxs", fmt::format("names layer {} of {}", index, plan.layer_count()));
        return;
      }
      attends[static_cast<size_t>(index)] = true;
    }
  } else if (types.empty()) {
    text.Fail("layer_types", "is missing, and so is full_attn_idxs");
  }
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const bool full = types.empty() ? attends[i] : types[i] == "full_attention";
    if (text.Has("full_attn_idxs") && full != attends[i]) text.Fail("layer_types", "contradicts full_attn_idxs");
    plan.layers[i].mlp_width = width;
    if (!full) plan.layers[i].mixer = Mixer::kShortConv;
  }
}

}  // namespace

Family Qwen35Family() {
  const std::vector<TensorRule> mixers = {
      // Per head, the projection of q holds the query and then the gate.
      {"{p}layers.{i}.self_attn.q_proj.weight", "2*H*d, h", "~q:d attention_gate:d", "attention"},
      {"{p}layers.{i}.self_attn.k_proj.weight", "K*d, h", "k", "attention"},
      {"{p}layers.{i}.self_attn.v_proj.weight", "K*d, h", "v", "attention"},
      {"{p}layers.{i}.self_attn.o_proj.weight", "h, H*d", "o", "attention"},
      {"{p}layers.{i}.linear_attn.in_proj_qkv.weight", "2*nk*dk+nv*dv, h", "delta_qkv", "delta_net"},
      {"{p}layers.{i}.linear_attn.in_proj_z.weight", "nv*dv, h", "delta_z", "delta_net"},
      {"{p}layers.{i}.linear_attn.in_proj_b.weight", "nv, h", "delta_b", "delta_net"},
      {"{p}layers.{i}.linear_attn.in_proj_a.weight", "nv, h", "delta_a", "delta_net"},
      {"{p}layers.{i}.linear_attn.conv1d.weight", "2*nk*dk+nv*dv, 1, delta_kernel", "delta_conv", "delta_net"},
      {"{p}layers.{i}.linear_attn.A_log", "nv", "delta_a_log", "delta_net"},
      {"{p}layers.{i}.linear_attn.dt_bias", "nv", "delta_dt_bias", "delta_net"},
      {"{p}layers.{i}.linear_attn.norm.weight", "dv", "delta_norm", "delta_net"},
      {"{p}layers.{i}.linear_attn.out_proj.weight", "h, nv*dv", "delta_out", "delta_net"},
  };
  return {"qwen3_5",
          {"qwen3_5", "qwen3_5_text"},
          {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"},
          ReadQwen35,
          {"model.language_model.", "model."},
          Concatenate({OuterTensors(), NormTensors(), mixers, HeadNormTensors(), GatedMlpTensors()}),
          {kTiedHead, {"mtp.*", "multi-token prediction"}, {"model.visual.*", "vision tower"}}};
}

Family Lfm2Family() {
  const std::vector<TensorRule> tensors = {
      {"{p}embed_tokens.weight", "V, h", "embedding"},
      {"{p}embedding_norm.weight", "h", "final_norm"},  // despite its name it follows the last layer
      {"lm_head.weight", "V, h", "head", "!tied"},
      {"{p}layers.{i}.operator_norm.weight", "h", "mixer_norm"},
      {"{p}layers.{i}.ffn_norm.weight", "h", "mlp_norm"},
      {"{p}layers.{i}.self_attn.q_proj.weight", "H*d, h", "q", "attention"},
      {"{p}layers.{i}.self_attn.k_proj.weight", "K*d, h", "k", "attention"},
      {"{p}layers.{i}.self_attn.v_proj.weight", "K*d, h", "v", "attention"},
      {"{p}layers.{i}.self_attn.out_proj.weight", "h, H*d", "o", "attention"},
      {"{p}layers.{i}.self_attn.q_layernorm.weight", "d", "q_norm", "attention"},
      {"{p}layers.{i}.self_attn.k_layernorm.weight", "d", "k_norm", "attention"},
      {"{p}layers.{i}.conv.in_proj.weight", "3*h, h", "conv_in", "short_conv"},
      {"{p}layers.{i}.conv.conv.weight", "h, 1, conv_kernel", "conv", "short_conv"},
      {"{p}layers.{i}.conv.out_proj.weight", "h, h", "conv_out", "short_conv"},
      {"{p}layers.{i}.conv.in_proj.bias", "3*h", "conv_in.bias", "short_conv conv_bias"},
      {"{p}layers.{i}.conv.conv.bias", "h", "conv.bias", "short_conv conv_bias"},
      {"{p}layers.{i}.conv.out_proj.bias", "h", "conv_out.bias", "short_conv conv_bias"},
      {"{p}layers.{i}.feed_forward.w1.weight", "I, h", "gate"},
      {"{p}layers.{i}.feed_forward.w3.weight", "I, h", "up"},
      {"{p}layers.{i}.feed_forward.w2.weight", "h, I", "down"},
  };
  return {"lfm2", {"lfm2"}, {"Lfm2ForCausalLM"}, ReadLfm2, {"model."}, tensors, {kTiedHead}};
}

}  // namespace milwright
