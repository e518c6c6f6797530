// GPT-2: learned positions, LayerNorm, weights stored [in, out] (families.md, section 12).
#include <array>
#include <cmath>

#include "llm/families.h"

namespace milwright {
namespace {

void ReadGpt2(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  plan.hidden = text.Size("n_embd");
  plan.vocabulary = text.Size("vocab_size");
  plan.learned_positions = text.Size("n_positions");
  plan.max_positions = plan.learned_positions;
  plan.norm = NormKind::kLayerNorm;
  plan.norm_eps = text.Number("layer_norm_epsilon");
  plan.activation = Activation::kGeluTanh;
  plan.qkv_bias = plan.o_bias = plan.mlp_bias = true;
  plan.tied_head = text.BoolOr("tie_word_embeddings", true);
  if (!plan.tied_head) text.Fail("tie_word_embeddings", "is false: GPT-2 with a head of its own is not supported");
  constexpr std::array<std::string_view, 2> kGelu = {"gelu_new", "gelu_pytorch_tanh"};
  text.RequireOneOf("activation_function", kGelu);
  text.RequireOff("add_cross_attention");
  text.RequireOff("scale_attn_by_inverse_layer_idx");
  text.RequireOff("reorder_and_upcast_attn");
  constexpr std::array<std::string_view, 1> kTrue = {"true"};
  text.RequireOneOf("scale_attn_weights", kTrue);
  constexpr std::array<std::string_view, 8> kUnused = {"n_ctx",
                                                       "summary_activation",
                                                       "summary_first_dropout",
                                                       "summary_type",
                                                       "summary_proj_to_labels",
                                                       "summary_use_proj",
                                                       "task_specific_params",
                                                       "gradient_checkpointing"};
  text.Ignore(kUnused);
  LayerPlan layer;
  layer.heads = layer.kv_heads = text.Size("n_head");
  layer.mlp_width = text.SizeOr("n_inner", 4 * plan.hidden);
  const int64_t layers = text.Size("n_layer");
  if (layers > 4096) text.Fail("n_layer", "is beyond 4096");
  if (plan.hidden % layer.heads != 0) text.Fail("n_head", "does not divide n_embd");
  if (!text.status().ok()) return;
  layer.head_size = plan.hidden / layer.heads;
  layer.attention_scale = 1 / std::sqrt(static_cast<double>(layer.head_size));
  for (int64_t i = 0; i < layers; ++i) {
    layer.kv_source = i;
    plan.layers.push_back(layer);
  }
}

}  // namespace

Family Gpt2Family() {
  const std::vector<TensorRule> tensors = {
      {"{p}wte.weight", "V, h", "embedding"},
      {"{p}wpe.weight", "N, h", "position_embedding"},
      {"{p}ln_f.weight", "h", "final_norm"},
      {"{p}ln_f.bias", "h", "final_norm.bias"},
      {"{p}h.{i}.ln_1.weight", "h", "mixer_norm"},
      {"{p}h.{i}.ln_1.bias", "h", "mixer_norm.bias"},
      {"{p}h.{i}.ln_2.weight", "h", "mlp_norm"},
      {"{p}h.{i}.ln_2.bias", "h", "mlp_norm.bias"},
      {"{p}h.{i}.attn.c_attn.weight", "h, 3*h", "q:h k:h v:h", {}, /*transposed=*/true},
      {"{p}h.{i}.attn.c_attn.bias", "3*h", "q.bias:h k.bias:h v.bias:h"},
      {"{p}h.{i}.attn.c_proj.weight", "h, h", "o", {}, /*transposed=*/true},
      {"{p}h.{i}.attn.c_proj.bias", "h", "o.bias"},
      {"{p}h.{i}.mlp.c_fc.weight", "h, I", "up", {}, /*transposed=*/true},
      {"{p}h.{i}.mlp.c_fc.bias", "I", "up.bias"},
      {"{p}h.{i}.mlp.c_proj.weight", "I, h", "down", {}, /*transposed=*/true},
      {"{p}h.{i}.mlp.c_proj.bias", "h", "down.bias"},
  };
  return {"gpt2",
          {"gpt2"},
          {"GPT2LMHeadModel"},
          ReadGpt2,
          {"", "transformer."},
          tensors,
          {kTiedHead,
           {"{p}h.{i}.attn.bias", "buffer: the causal mask"},
           {"{p}h.{i}.attn.masked_bias", "buffer: the causal mask"}}};
}

}  // namespace milwright
