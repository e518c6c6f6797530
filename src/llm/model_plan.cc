#include "llm/model_plan.h"

#include <algorithm>

namespace milwright {

bool ModelPlan::HasSliding() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerPlan& layer) { return layer.sliding; });
}

bool ModelPlan::HasMixer(Mixer mixer) const {
  return std::any_of(layers.begin(), layers.end(), [&](const LayerPlan& layer) { return layer.mixer == mixer; });
}

bool ModelPlan::HasMrope() const {
  return std::any_of(ropes.begin(), ropes.end(), [](const RopeTable& rope) { return !rope.mrope_section.empty(); });
}

Symbols PlanSymbols(const ModelPlan& plan, int64_t layer) {
  const DeltaNetPlan& delta = plan.delta;
  Symbols symbols = {
      {"h", plan.hidden},
      {"V", plan.vocabulary},
      {"L", plan.layer_count()},
      {"P", plan.per_layer_size},
      {"Vp", plan.per_layer_vocabulary},
      {"N", plan.learned_positions},
      {"conv_kernel", plan.conv_kernel},
      {"nk", delta.key_heads},
      {"nv", delta.value_heads},
      {"dk", delta.key_size},
      {"dv", delta.value_size},
      {"delta_kernel", delta.kernel},
      {"tied", plan.tied_head ? 1 : 0},
      {"qkv_bias", plan.qkv_bias ? 1 : 0},
      {"o_bias", plan.o_bias ? 1 : 0},
      {"mlp_bias", plan.mlp_bias ? 1 : 0},
      {"conv_bias", plan.conv_bias ? 1 : 0},
      {"per_layer", plan.per_layer_size > 0 ? 1 : 0},
  };
  if (layer < 0) return symbols;
  const LayerPlan& l = plan.layers[static_cast<size_t>(layer)];
  const bool own_kv = l.mixer == Mixer::kAttention && l.kv_source == layer;
  symbols["i"] = layer;
  symbols["H"] = l.heads;
  symbols["K"] = l.kv_heads;
  symbols["d"] = l.head_size;
  symbols["I"] = l.mlp_width;
  symbols["attention"] = l.mixer == Mixer::kAttention ? 1 : 0;
  symbols["short_conv"] = l.mixer == Mixer::kShortConv ? 1 : 0;
  symbols["delta_net"] = l.mixer == Mixer::kDeltaNet ? 1 : 0;
  symbols["own_kv"] = own_kv ? 1 : 0;
  symbols["own_v"] = own_kv && !l.k_equals_v ? 1 : 0;
  return symbols;
}

}  // namespace milwright
