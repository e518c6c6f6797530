#include "llm/layers.h"

#include <cmath>

namespace milwright {
namespace {

Value* WriteMixer(FunctionContext& context, int64_t layer, Value* stream) {
  switch (context.layer(layer).mixer) {
    case Mixer::kAttention:
      return WriteAttention(context, layer, stream);
    case Mixer::kShortConv:
      return WriteShortConv(context, layer, stream);
    case Mixer::kDeltaNet:
      return WriteDeltaNet(context, layer, stream);
  }
  return nullptr;
}

/// Norm by `role` when the checkpoint has it.
Value* OptionalNorm(Blocks& blocks, Value* stream, int64_t layer, std::string_view role) {
  return blocks.weights().Has(layer, role) ? blocks.Norm(stream, layer, role) : stream;
}

Value* WritePerLayerBlock(FunctionContext& context, int64_t layer, Value* stream, Value* per_layer) {
  Blocks& blocks = context.blocks();
  const int64_t size = blocks.plan().per_layer_size;
  Value* own = blocks.ToStream(
      blocks.Slice(per_layer, 2, layer * size, (layer + 1) * size, Blocks::Name(layer, "per_layer_input")));
  Value* gate = blocks.Activate(blocks.Project(stream, layer, "per_layer_gate"), Activation::kGeluTanh,
                                Blocks::Name(layer, "per_layer_activated"));
  Value* gated = blocks.Binary("mul", gate, own, Blocks::Name(layer, "per_layer_gated"));
  Value* out = blocks.Norm(blocks.Project(gated, layer, "per_layer_out"), layer, "post_per_layer_norm");
  return blocks.Binary("add", stream, out, Blocks::Name(layer, "per_layer_sum"));
}

}  // namespace

Value* WriteLayer(FunctionContext& context, int64_t layer, Value* stream, Value* per_layer) {
  Blocks& blocks = context.blocks();
  Value* mixed = WriteMixer(context, layer, blocks.Norm(stream, layer, "mixer_norm"));
  mixed = OptionalNorm(blocks, mixed, layer, "post_mixer_norm");
  stream = blocks.Binary("add", stream, mixed, Blocks::Name(layer, "mixer_sum"));
  Value* inner = blocks.Mlp(blocks.Norm(stream, layer, "mlp_norm"), layer);
  inner = OptionalNorm(blocks, inner, layer, "post_mlp_norm");
  stream = blocks.Binary("add", stream, inner, Blocks::Name(layer, "mlp_sum"));
  if (per_layer != nullptr) stream = WritePerLayerBlock(context, layer, stream, per_layer);
  if (!blocks.weights().Has(layer, "layer_scalar")) return stream;
  const auto scalar = blocks.weights().Values(layer, "layer_scalar");
  if (!scalar.ok()) {
    blocks.Fail(scalar.status());
    return nullptr;
  }
  return blocks.Multiply(stream, scalar->front(), Blocks::Name(layer, "scaled"));
}

Value* WritePerLayerInputs(FunctionContext& context, Value* raw, Value* stream) {
  Blocks& blocks = context.blocks();
  const ModelPlan& plan = blocks.plan();
  const Shape by_layer = {1, blocks.length(), plan.layer_count(), plan.per_layer_size};
  Value* projected = blocks.FromStream(blocks.Project(stream, kNoLayer, "per_layer_projection"));
  projected = blocks.Multiply(projected, 1 / std::sqrt(static_cast<double>(plan.hidden)), "per_layer_projected");
  projected = blocks.NormLast(blocks.Reshape(projected, by_layer, "per_layer_by_layer"), kNoLayer, "per_layer_norm",
                              plan.norm, "per_layer_normed");
  projected =
      blocks.Reshape(projected, {1, blocks.length(), plan.layer_count() * plan.per_layer_size}, "per_layer_flat");
  Value* sum = blocks.Binary("add", projected, raw, "per_layer_sum");
  return blocks.Multiply(sum, 1 / std::sqrt(2.0), "per_layer_combined_value");
}

Value* WriteAttention(FunctionContext& context, int64_t layer, Value* stream) {
  Blocks& blocks = context.blocks();
  const LayerPlan& l = context.layer(layer);
  const ModelPlan& plan = blocks.plan();
  const bool head_norms = blocks.weights().Has(layer, "q_norm");
  const auto rotate = [&](Value* heads, std::string_view role) {
    if (l.rope < 0) return heads;
    const auto [cosine, sine] = context.Rotary(l.rope);
    return blocks.Rotate(heads, cosine, sine, Blocks::Name(layer, role));
  };
  Value* q = blocks.ToHeads(blocks.Project(stream, layer, "q"), l.heads, l.head_size, Blocks::Name(layer, "q_heads"));
  if (head_norms) q = blocks.NormLast(q, layer, "q_norm", plan.norm, Blocks::Name(layer, "q_norm"));
  q = rotate(q, "q_rotated");

  FunctionContext::View view;
  if (l.kv_source == layer) {
    Value* key =
        blocks.ToHeads(blocks.Project(stream, layer, "k"), l.kv_heads, l.head_size, Blocks::Name(layer, "k_heads"));
    Value* value = l.k_equals_v ? key
                                : blocks.ToHeads(blocks.Project(stream, layer, "v"), l.kv_heads, l.head_size,
                                                 Blocks::Name(layer, "v_heads"));
    if (head_norms) key = blocks.NormLast(key, layer, "k_norm", plan.norm, Blocks::Name(layer, "k_norm"));
    if (plan.normalize_values) value = blocks.NormLast(value, layer, {}, plan.norm, Blocks::Name(layer, "v_norm"));
    view = context.Update(layer, rotate(key, "k_rotated"), value);
  } else {
    view = context.Shared(l.kv_source);
  }
  Value* heads = blocks.Attend(q, view.key, view.value, view.mask, l, Blocks::Name(layer, "attention"));
  Value* merged = blocks.FromHeads(heads, l.heads, l.head_size, Blocks::Name(layer, "attention_merged"));
  if (blocks.weights().Has(layer, "attention_gate")) {
    Value* gate = blocks.builder().Op("sigmoid", {{"x", blocks.Project(stream, layer, "attention_gate")}},
                                      Blocks::Name(layer, "attention_gate_sigmoid"));
    merged = blocks.Binary("mul", merged, gate, Blocks::Name(layer, "attention_gated"));
  }
  return blocks.Project(merged, layer, "o");
}

}  // namespace milwright
