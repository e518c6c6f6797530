// Layers whose cache does not grow: short convolutions (LFM2) and Gated DeltaNet (Qwen3.5).
#include <fmt/format.h>

#include <cmath>

#include "llm/layers.h"

namespace milwright {
namespace {

/// Depthwise causal convolution of `channels` [1, C, T] behind the cached columns [1, C, taps] (the last column is the
/// newest; the oldest is not needed any more). Updates the cache.
Value* CausalConv(FunctionContext& context, int64_t layer, std::string_view role, Value* channels, int64_t taps) {
  Blocks& blocks = context.blocks();
  Builder& b = blocks.builder();
  if (channels == nullptr) return nullptr;
  const int64_t count = channels->type.shape()[1];
  const CacheSlot& slot = context.cache(layer).conv;
  const std::string name = Blocks::Name(layer, role);
  Value* cached = blocks.Cast(context.ReadRow(slot, {1, count, taps}), blocks.compute());
  Value* columns = blocks.Concat({cached, context.ThroughHalves(slot, channels)}, 2, name + "_columns");
  context.WriteRow(slot, blocks.Slice(columns, 2, -taps, Blocks::kToEnd, name + "_window"));
  Value* seen = blocks.Slice(columns, 2, 1, Blocks::kToEnd, name + "_seen");
  Value* weight = blocks.Weight(layer, role, blocks.compute());
  if (blocks.ane()) {  // rank 4, as the Neural Engine wants it
    seen = b.Op("expand_dims", {{"x", seen}, {"axes", Literal::Int32s({2})}}, name + "_seen_4d");
    weight = blocks.Reshape(weight, {count, 1, 1, taps}, name + "_weight_4d");
  }
  std::vector<Binding> bindings = {{"x", seen}, {"weight", weight}, {"groups", Literal::Int32(count)}};
  const std::string bias = fmt::format("{}.bias", role);
  if (blocks.weights().Has(layer, bias)) bindings.emplace_back("bias", blocks.Weight(layer, bias, blocks.compute()));
  Value* out = b.Op("conv", std::move(bindings), name);
  return blocks.ane() ? blocks.Reshape(out, {1, count, blocks.length()}, name + "_3d") : out;
}

/// x / sqrt(sum of squares over the last axis + 1e-6)
Value* UnitLength(Blocks& blocks, Value* x, std::string_view name) {
  Builder& b = blocks.builder();
  Value* sum =
      b.Op("reduce_sum_square", {{"x", x}, {"axes", Literal::Int32s({-1})}, {"keep_dims", Literal::Bool(true)}},
           fmt::format("{}_square_sum", name));
  Value* factor =
      b.Op("rsqrt", {{"x", sum}, {"epsilon", Literal::Float(x == nullptr ? DataType::kFp32 : x->type.dtype(), 1e-6)}},
           fmt::format("{}_rsqrt", name));
  return blocks.Binary("mul", x, factor, name);
}

}  // namespace

Value* WriteShortConv(FunctionContext& context, int64_t layer, Value* stream) {
  Blocks& blocks = context.blocks();
  const int64_t h = blocks.plan().hidden;
  const std::vector<Value*> parts =
      blocks.SplitChannels(blocks.Project(stream, layer, "conv_in"), {h, h, h}, Blocks::Name(layer, "conv_parts"));
  Value* gated = blocks.Binary("mul", parts[0], parts[2], Blocks::Name(layer, "conv_gated"));
  Value* mixed = CausalConv(context, layer, "conv", blocks.ToChannels(gated, h), blocks.plan().conv_kernel);
  Value* out = blocks.Binary("mul", parts[1], blocks.FromChannels(mixed), Blocks::Name(layer, "conv_mixed"));
  return blocks.Project(out, layer, "conv_out");
}

Value* WriteDeltaNet(FunctionContext& context, int64_t layer, Value* stream) {
  Blocks& blocks = context.blocks();
  Builder& b = blocks.builder();
  const DeltaNetPlan& d = blocks.plan().delta;
  const int64_t length = blocks.length();
  const int64_t nk = d.key_heads, nv = d.value_heads, group = nv / nk;
  const auto name = [&](std::string_view what) { return Blocks::Name(layer, what); };
  if (length == kUnknownDim || length > kMaxDeltaNetLength) {
    blocks.Fail({ErrorCode::kUsage, fmt::format("Gated DeltaNet layers are unrolled token by token: functions of up to "
                                                "{} tokens are possible, and of fixed length",
                                                kMaxDeltaNetLength)});
    return nullptr;
  }
  // The recurrence runs in fp32 whatever the build computes in: its state accumulates over the whole text.
  constexpr DataType kWide = DataType::kFp32;

  Value* projected = blocks.ToChannels(blocks.Project(stream, layer, "delta_qkv"), d.conv_channels());
  Value* mixed = CausalConv(context, layer, "delta_conv", projected, d.kernel);
  mixed = blocks.Cast(b.Op("silu", {{"x", mixed}}, name("delta_conv_silu")), kWide);
  const std::vector<Value*> qkv =
      blocks.Split(mixed, {nk * d.key_size, nk * d.key_size, nv * d.value_size}, 1, name("delta_parts"));
  // [1, heads * size, T] to [1, heads, T, size]
  const auto heads = [&](Value* x, int64_t count, int64_t size, std::string_view what) {
    return blocks.Transpose(blocks.Reshape(x, {1, count, size, length}, name(fmt::format("{}_split", what))),
                            {0, 1, 3, 2}, name(what));
  };
  // Value head j uses key head floor(j / group).
  const auto repeat = [&](Value* x, std::string_view what) {
    if (group == 1) return x;
    Value* wide = b.Op("expand_dims", {{"x", x}, {"axes", Literal::Int32s({2})}}, name(fmt::format("{}_5d", what)));
    wide = blocks.Tile(wide, {1, 1, group, 1, 1}, name(fmt::format("{}_tiled", what)));
    return blocks.Reshape(wide, {1, nv, length, d.key_size}, name(fmt::format("{}_repeated", what)));
  };
  Value* q = repeat(UnitLength(blocks, heads(qkv[0], nk, d.key_size, "delta_q"), name("delta_q_unit")), "delta_q");
  q = blocks.Multiply(q, 1 / std::sqrt(static_cast<double>(d.key_size)), name("delta_q_scaled"));
  Value* k = repeat(UnitLength(blocks, heads(qkv[1], nk, d.key_size, "delta_k"), name("delta_k_unit")), "delta_k");
  Value* v = heads(qkv[2], nv, d.value_size, "delta_v");

  // Per head and token, [1, nv, T, 1]: the step size beta, and the decay exp(-exp(A_log) softplus(a + dt_bias)).
  const auto per_head = [&](std::string_view role) {
    Value* channels = blocks.ToChannels(blocks.Project(stream, layer, role), nv);
    return blocks.Cast(blocks.Reshape(channels, {1, nv, length, 1}, name(fmt::format("{}_heads", role))), kWide);
  };
  Value* beta = b.Op("sigmoid", {{"x", per_head("delta_b")}}, name("delta_beta"));
  auto rate = blocks.weights().Values(layer, "delta_a_log");
  const auto bias = blocks.weights().Values(layer, "delta_dt_bias");
  if (!rate.ok() || !bias.ok()) {
    blocks.Fail(rate.ok() ? bias.status() : rate.status());
    return nullptr;
  }
  for (float& value : *rate) value = -std::exp(value);
  Value* shifted = blocks.Binary("add", per_head("delta_a"),
                                 blocks.Constant(*bias, {1, nv, 1, 1}, kWide, name("delta_dt_bias")), name("delta_dt"));
  Value* log_decay =
      blocks.Binary("mul", b.Op("softplus", {{"x", shifted}}, name("delta_softplus")),
                    blocks.Constant(*rate, {1, nv, 1, 1}, kWide, name("delta_rate")), name("delta_log_decay"));
  Value* decay = b.Op("exp", {{"x", log_decay}}, name("delta_decay"));

  const CacheSlot& slot = context.cache(layer).recurrent;
  Value* state = blocks.Cast(context.ReadRow(slot, {1, nv, d.key_size, d.value_size}), kWide);
  std::vector<Value*> outputs;
  for (int64_t t = 0; t < length; ++t) {
    const auto step = [&](std::string_view what) { return name(fmt::format("delta_{}_{}", what, t)); };
    const auto token = [&](Value* x, std::string_view what) {
      return length == 1 ? x : blocks.Slice(x, 2, t, t + 1, step(what));
    };
    if (t > 0) state = context.ThroughHalves(slot, state);
    Value* key = token(k, "key");
    state = blocks.Binary("mul", state, token(decay, "decay"), step("decayed"));
    Value* recalled = b.Op("matmul", {{"x", key}, {"y", state}}, step("recalled"));
    Value* error = blocks.Binary("sub", token(v, "value"), recalled, step("error"));
    Value* delta = blocks.Binary("mul", error, token(beta, "beta"), step("delta"));
    Value* outer = b.Op("matmul", {{"x", key}, {"y", delta}, {"transpose_x", Literal::Bool(true)}}, step("outer"));
    state = blocks.Binary("add", state, outer, step("state"));
    outputs.push_back(b.Op("matmul", {{"x", token(q, "query")}, {"y", state}}, step("read")));
  }
  context.WriteRow(slot, state);
  Value* out = length == 1 ? outputs.front() : blocks.Concat(outputs, 2, name("delta_reads"));  // [1, nv, T, dv]
  out = blocks.NormLast(blocks.Cast(out, blocks.compute()), layer, "delta_norm", NormKind::kRms, name("delta_norm"));
  Value* gate = b.Op("silu", {{"x", blocks.Project(stream, layer, "delta_z")}}, name("delta_z_silu"));
  out = blocks.Binary("mul", blocks.FromHeads(out, nv, d.value_size, name("delta_merged")), gate, name("delta_gated"));
  return blocks.Project(out, layer, "delta_out");
}

}  // namespace milwright
