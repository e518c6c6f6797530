// Llama and its close relatives: pre-norm decoders with rotary embedding and a gated MLP (families.md, sections 1-5,
// 10, 11).
#include <fmt/format.h>

#include <array>

#include "llm/families.h"

namespace milwright {
namespace {

constexpr std::array<std::string_view, 1> kFullOnly = {"full_attention"};
constexpr std::array<std::string_view, 2> kFullOrSliding = {"full_attention", "sliding_attention"};
constexpr IgnoredRule kRopeBuffer = {"*.rotary_emb.inv_freq", "buffer: frequencies follow from the config"};

/// A window on every layer when `sliding_window` is given (Mistral 0.1, Phi-3-mini-4k).
void ReadWindowOfAll(const PlanRequest& request, ModelPlan& plan) {
  if (!request.text.Has("sliding_window")) {
    request.text.CountOr("sliding_window", 0);
    return;
  }
  plan.window = request.text.Size("sliding_window");
  for (LayerPlan& layer : plan.layers) layer.sliding = true;
}

/// Qwen's window: only if `use_sliding_window`, from layer `max_window_layers` on.
void ReadQwenWindow(const PlanRequest& request, ModelPlan& plan) {
  ConfigReader& text = request.text;
  const bool use = text.BoolOr("use_sliding_window", false);
  const int64_t window = text.CountOr("sliding_window", 0);
  const int64_t from = text.CountOr("max_window_layers", plan.layer_count());
  const std::vector<std::string> types = ReadLayerTypes(text, plan.layer_count(), kFullOrSliding);
  for (int64_t i = 0; i < plan.layer_count(); ++i) {
    const auto index = static_cast<size_t>(i);
    const bool sliding = use && i >= from;
    if (!types.empty() && (types[index] == "sliding_attention") != sliding) {
      text.Fail("layer_types", fmt::format("says {} for layer {}, but use_sliding_window and max_window_layers do not",
                                           types[index], i));
      return;
    }
    plan.layers[index].sliding = sliding;
    if (sliding) plan.window = window;
  }
  if (plan.HasSliding() && window < 1) text.Fail("sliding_window", "must be given when use_sliding_window is true");
}

void ReadLlama(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan);
  ReadOneRope(request, plan);
}

void ReadMistral(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan);
  ReadOneRope(request, plan);
  ReadWindowOfAll(request, plan);
}

void ReadQwen2(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan);
  plan.qkv_bias = true;
  ReadOneRope(request, plan);
  ReadQwenWindow(request, plan);
}

void ReadQwen3(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan);
  ReadOneRope(request, plan);
  ReadQwenWindow(request, plan);
}

void ReadQwen3Vl(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan);
  ReadOneRope(request, plan);
  ConfigReader& vision = request.top.Section("vision_config");
  if (vision.Has("deepstack_visual_indexes")) {
    plan.deepstack_layers = static_cast<int64_t>(vision.Integers("deepstack_visual_indexes").size());
    if (plan.deepstack_layers > plan.layer_count()) {
      vision.Fail("deepstack_visual_indexes", "has more entries than the decoder has layers");
    }
  }
  constexpr std::array<std::string_view, 13> kVisionKeys = {"depth",
                                                            "hidden_act",
                                                            "hidden_size",
                                                            "in_channels",
                                                            "initializer_range",
                                                            "intermediate_size",
                                                            "model_type",
                                                            "num_heads",
                                                            "num_position_embeddings",
                                                            "out_hidden_size",
                                                            "patch_size",
                                                            "spatial_merge_size",
                                                            "temporal_patch_size"};
  vision.Ignore(kVisionKeys);
}

void ReadPhi3(const PlanRequest& request, ModelPlan& plan) {
  request.text.RequireOff("attention_bias");
  ReadDecoder(request, plan);
  ReadOneRope(request, plan);
  ReadWindowOfAll(request, plan);
}

void ReadSmolLm3(const PlanRequest& request, ModelPlan& plan) {
  ReadDecoder(request, plan, {.tied_by_default = true});
  ReadOneRope(request, plan);
  ConfigReader& text = request.text;
  text.RequireOff("use_sliding_window");
  constexpr std::array<std::string_view, 2> kUnused = {"sliding_window", "max_window_layers"};
  text.Ignore(kUnused);
  ReadLayerTypes(text, plan.layer_count(), kFullOnly);
  const int64_t interval = text.SizeOr("no_rope_layer_interval", 4);
  std::vector<int64_t> flags;
  if (text.Has("no_rope_layers")) {
    flags = text.Integers("no_rope_layers");
    if (static_cast<int64_t>(flags.size()) != plan.layer_count()) {
      text.Fail("no_rope_layers", fmt::format("has {} entries for {} layers", flags.size(), plan.layer_count()));
      return;
    }
  }
  for (int64_t i = 0; i < plan.layer_count(); ++i) {
    const bool rotated = flags.empty() ? (i + 1) % interval != 0 : flags[static_cast<size_t>(i)] != 0;
    if (!rotated) plan.layers[static_cast<size_t>(i)].rope = -1;
  }
}

}  // namespace

Family LlamaFamily() {
  return {"llama",
          {"llama"},
          {"LlamaForCausalLM"},
          ReadLlama,
          {"model."},
          Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), GatedMlpTensors()}),
          {kTiedHead, kRopeBuffer}};
}

Family MistralFamily() {
  return {"mistral",
          {"mistral"},
          {"MistralForCausalLM"},
          ReadMistral,
          {"model."},
          Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), GatedMlpTensors()}),
          {kTiedHead, kRopeBuffer}};
}

Family Qwen2Family() {
  return {"qwen2",
          {"qwen2"},
          {"Qwen2ForCausalLM"},
          ReadQwen2,
          {"model."},
          Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), GatedMlpTensors()}),
          {kTiedHead, kRopeBuffer}};
}

Family Qwen3Family() {
  return {"qwen3",
          {"qwen3"},
          {"Qwen3ForCausalLM"},
          ReadQwen3,
          {"model."},
          Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), HeadNormTensors(), GatedMlpTensors()}),
          {kTiedHead}};
}

Family Qwen3VlFamily() {
  return {"qwen3_vl",
          {"qwen3_vl"},
          {"Qwen3VLForConditionalGeneration"},
          ReadQwen3Vl,
          {"model.language_model."},
          Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), HeadNormTensors(), GatedMlpTensors()}),
          {kTiedHead, {"model.visual.*", "vision tower"}}};
}

Family Phi3Family() {
  const std::vector<TensorRule> fused = {
      {"{p}layers.{i}.self_attn.qkv_proj.weight", "(H+2*K)*d, h", "q:H*d k:K*d v:K*d"},
      {"{p}layers.{i}.self_attn.o_proj.weight", "h, H*d", "o"},
      {"{p}layers.{i}.mlp.gate_up_proj.weight", "2*I, h", "gate:I up:I"},
      {"{p}layers.{i}.mlp.down_proj.weight", "h, I", "down"},
  };
  return {"phi3",
          {"phi3"},
          {"Phi3ForCausalLM"},
          ReadPhi3,
          {"model."},
          Concatenate({OuterTensors(), NormTensors(), fused}),
          {kTiedHead, kRopeBuffer}};
}

Family SmolLm3Family() {
  return {"smollm3",   {"smollm3"}, {"SmolLM3ForCausalLM"},
          ReadSmolLm3, {"model."},  Concatenate({OuterTensors(), NormTensors(), AttentionTensors(), GatedMlpTensors()}),
          {kTiedHead}};
}

}  // namespace milwright
