#include "llm/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace milwright {
namespace {

/// Names in MIL are identifiers.
std::string AsIdentifier(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

std::string DataTypeText(DataType dtype) { return std::string(DataTypeName(dtype)); }

}  // namespace

std::string Blocks::Name(int64_t layer, std::string_view role) {
  return AsIdentifier(layer == kNoLayer ? std::string(role) : fmt::format("layers_{}_{}", layer, role));
}

Value* Blocks::Constant(const std::vector<float>& values, Shape shape, DataType dtype, std::string_view name) {
  auto tensor = Tensor::FromFloats({dtype, std::move(shape)}, values);
  if (!tensor.ok()) {
    Fail(tensor.status());
    return nullptr;
  }
  return b_.Const(Literal(*std::move(tensor)), name);
}

Value* Blocks::Scalar(double value, DataType dtype, std::string_view name) {
  return b_.Const(Literal::Float(dtype, value), name);
}

Value* Blocks::Weight(int64_t layer, std::string_view role, DataType dtype) {
  if (!status().ok()) return nullptr;
  auto tensor = weights_.Load(layer, role, dtype);
  if (!tensor.ok()) {
    Fail(tensor.status());
    return nullptr;
  }
  return b_.Const(Literal(*std::move(tensor)), Name(layer, role) + "_weight");
}

Value* Blocks::Cast(Value* x, DataType dtype) {
  if (x == nullptr || x->type.dtype() == dtype) return x;
  return b_.Op("cast", {{"x", x}, {"dtype", Literal::String(DataTypeText(dtype))}},
               fmt::format("{}_to_{}", x->name, DataTypeText(dtype)));
}

Value* Blocks::Binary(std::string_view op, Value* x, Value* y, std::string_view name) {
  return b_.Op(op, {{"x", x}, {"y", y}}, name);
}

Value* Blocks::Multiply(Value* x, double factor, std::string_view name) {
  if (factor == 1 || x == nullptr) return x;
  return b_.Op("mul", {{"x", x}, {"y", Literal::Float(x->type.dtype(), factor)}}, name);
}

Value* Blocks::Reshape(Value* x, const Shape& shape, std::string_view name) {
  return b_.Op("reshape", {{"x", x}, {"shape", Literal::Int32s(shape)}}, name);
}

Value* Blocks::Transpose(Value* x, const std::vector<int64_t>& perm, std::string_view name) {
  return b_.Op("transpose", {{"x", x}, {"perm", Literal::Int32s(perm)}}, name);
}

Value* Blocks::Concat(const std::vector<Value*>& values, int64_t axis, std::string_view name) {
  return b_.Op("concat", {{"values", values}, {"axis", Literal::Int32(axis)}, {"interleave", Literal::Bool(false)}},
               name);
}

Value* Blocks::Tile(Value* x, const std::vector<int64_t>& reps, std::string_view name) {
  if (std::all_of(reps.begin(), reps.end(), [](int64_t r) { return r == 1; })) return x;
  return b_.Op("tile", {{"x", x}, {"reps", Literal::Int32s(reps)}}, name);
}

std::vector<Value*> Blocks::Split(Value* x, const std::vector<int64_t>& sizes, int64_t axis, std::string_view name) {
  std::vector<Value*> parts =
      b_.Ops("split", {{"x", x}, {"split_sizes", Literal::Int32s(sizes)}, {"axis", Literal::Int32(axis)}}, name);
  parts.resize(sizes.size(), nullptr);  // after an error there are none
  return parts;
}

Value* Blocks::Slice(Value* x, int64_t axis, int64_t begin, int64_t end, std::string_view name) {
  if (x == nullptr) return nullptr;
  const auto rank = static_cast<size_t>(x->type.rank());
  std::vector<int64_t> begins(rank, 0), ends(rank, 0), end_masks(rank, 1);
  begins[static_cast<size_t>(axis)] = begin;
  if (end != kToEnd) {
    ends[static_cast<size_t>(axis)] = end;
    end_masks[static_cast<size_t>(axis)] = 0;
  }
  return b_.Op("slice_by_index",
               {{"x", x},
                {"begin", Literal::Int32s(begins)},
                {"end", Literal::Int32s(ends)},
                {"end_mask", Literal::Bools(end_masks)}},
               name);
}

Value* Blocks::ToStream(Value* tokens) {
  if (!ane() || tokens == nullptr) return tokens;
  const Shape& shape = tokens->type.shape();
  return Reshape(Transpose(tokens, {0, 2, 1}, tokens->name + "_channels"), {1, shape[2], 1, length_},
                 tokens->name + "_stream");
}

Value* Blocks::FromStream(Value* stream) {
  if (!ane() || stream == nullptr) return stream;
  const Shape& shape = stream->type.shape();
  return Transpose(Reshape(stream, {1, shape[1], length_}, stream->name + "_channels"), {0, 2, 1},
                   stream->name + "_tokens");
}

Value* Blocks::ToChannels(Value* stream, int64_t channels) {
  if (stream == nullptr) return nullptr;
  return ane() ? Reshape(stream, {1, channels, length_}, stream->name + "_channels")
               : Transpose(stream, {0, 2, 1}, stream->name + "_channels");
}

Value* Blocks::FromChannels(Value* channels) {
  if (channels == nullptr) return nullptr;
  return ane() ? Reshape(channels, {1, channels->type.shape()[1], 1, length_}, channels->name + "_stream")
               : Transpose(channels, {0, 2, 1}, channels->name + "_stream");
}

Value* Blocks::ToHeads(Value* stream, int64_t heads, int64_t size, std::string_view name) {
  const std::string split = fmt::format("{}_split", name);
  if (ane()) return Transpose(Reshape(stream, {1, heads, size, length_}, split), {0, 1, 3, 2}, name);
  return Transpose(Reshape(stream, {1, length_, heads, size}, split), {0, 2, 1, 3}, name);
}

Value* Blocks::FromHeads(Value* heads, int64_t count, int64_t size, std::string_view name) {
  const std::string turned = fmt::format("{}_turned", name);
  if (ane()) return Reshape(Transpose(heads, {0, 1, 3, 2}, turned), {1, count * size, 1, length_}, name);
  return Reshape(Transpose(heads, {0, 2, 1, 3}, turned), {1, length_, count * size}, name);
}

std::vector<Value*> Blocks::SplitChannels(Value* stream, const std::vector<int64_t>& sizes, std::string_view name) {
  return Split(stream, sizes, channel_axis(), name);
}

Value* Blocks::Project(Value* stream, int64_t layer, std::string_view role) {
  if (!status().ok()) return nullptr;
  auto weight = weights_.Load(layer, role, compute_);
  if (!weight.ok()) {
    Fail(weight.status());
    return nullptr;
  }
  const std::string name = Name(layer, role);
  if (ane()) {  // the same bytes as a 1x1 convolution
    weight = weight->Reshaped({weight->shape()[0], weight->shape()[1], 1, 1});
    if (!weight.ok()) {
      Fail(weight.status());
      return nullptr;
    }
  }
  std::vector<Binding> bindings = {{"x", stream}, {"weight", b_.Const(Literal(*weight), name + "_weight")}};
  const std::string bias = fmt::format("{}.bias", role);
  if (weights_.Has(layer, bias)) bindings.emplace_back("bias", Weight(layer, bias, compute_));
  return b_.Op(ane() ? "conv" : "linear", std::move(bindings), name);
}

Value* Blocks::NormWeight(int64_t layer, std::string_view role, NormKind kind, Shape shape) {
  if (!status().ok() || role.empty()) return nullptr;
  auto values = weights_.Values(layer, role);
  if (!values.ok()) {
    Fail(values.status());
    return nullptr;
  }
  if (kind == NormKind::kRmsPlusOne) {
    for (float& value : *values) value += 1;
  }
  return Constant(*values, std::move(shape), compute_, Name(layer, role) + "_weight");
}

Value* Blocks::RmsNorm(Value* x, int64_t axis, Value* weight, std::string_view name) {
  if (x == nullptr) return nullptr;
  Value* normed = nullptr;
  if (ane()) {
    // Mean of [x, -x] is zero, and its variance is mean(x^2): layer norm is RMS norm.
    Value* negative = Multiply(x, -1, fmt::format("{}_negative", name));
    Value* both = Concat({x, negative}, axis, fmt::format("{}_both", name));
    normed =
        b_.Op("layer_norm",
              {{"x", both}, {"axes", Literal::Int32s({axis})}, {"epsilon", Literal::Float(compute_, plan_.norm_eps)}},
              fmt::format("{}_layer_norm", name));
    normed = Slice(normed, axis, 0, x->type.shape()[static_cast<size_t>(axis)], fmt::format("{}_normed", name));
  } else {
    // In fp32: the square of an fp16 value beyond 255 is infinite.
    Value* wide = Cast(x, DataType::kFp32);
    Value* square = b_.Op("square", {{"x", wide}}, fmt::format("{}_square", name));
    Value* mean =
        b_.Op("reduce_mean", {{"x", square}, {"axes", Literal::Int32s({axis})}, {"keep_dims", Literal::Bool(true)}},
              fmt::format("{}_mean", name));
    Value* factor = b_.Op("rsqrt", {{"x", mean}, {"epsilon", Literal::Float(DataType::kFp32, plan_.norm_eps)}},
                          fmt::format("{}_rsqrt", name));
    normed = Cast(Binary("mul", wide, factor, fmt::format("{}_normed", name)), compute_);
  }
  return weight == nullptr ? normed : Binary("mul", normed, weight, name);
}

Value* Blocks::Norm(Value* stream, int64_t layer, std::string_view role) {
  if (stream == nullptr) return nullptr;
  const int64_t channels = stream->type.shape()[static_cast<size_t>(channel_axis())];
  const std::string name = Name(layer, role);
  if (plan_.norm == NormKind::kLayerNorm) {
    return b_.Op("layer_norm",
                 {{"x", stream},
                  {"axes", Literal::Int32s({channel_axis()})},
                  {"gamma", Weight(layer, role, compute_)},
                  {"beta", Weight(layer, fmt::format("{}.bias", role), compute_)},
                  {"epsilon", Literal::Float(compute_, plan_.norm_eps)}},
                 name);
  }
  const Shape shape = ane() ? Shape{1, channels, 1, 1} : Shape{channels};
  return RmsNorm(stream, channel_axis(), NormWeight(layer, role, plan_.norm, shape), name);
}

Value* Blocks::NormLast(Value* x, int64_t layer, std::string_view role, NormKind kind, std::string_view name) {
  if (x == nullptr) return nullptr;
  const int64_t axis = x->type.rank() - 1;
  const Shape shape = {x->type.shape().back()};
  return RmsNorm(x, axis, NormWeight(layer, role, kind, shape), name);
}

Value* Blocks::Activate(Value* x, Activation activation, std::string_view name) {
  if (activation == Activation::kSilu) return b_.Op("silu", {{"x", x}}, name);
  return b_.Op("gelu", {{"x", x}, {"mode", Literal::String("TANH_APPROXIMATION")}}, name);
}

Value* Blocks::Mlp(Value* stream, int64_t layer) {
  Value* up = Project(stream, layer, "up");
  Value* inner = nullptr;
  if (weights_.Has(layer, "gate")) {
    Value* gate = Activate(Project(stream, layer, "gate"), plan_.activation, Name(layer, "gate_activated"));
    inner = Binary("mul", gate, up, Name(layer, "gated"));
  } else {
    inner = Activate(up, plan_.activation, Name(layer, "up_activated"));
  }
  return Project(inner, layer, "down");
}

Value* Blocks::Rotate(Value* heads, Value* cosine, Value* sine, std::string_view name) {
  if (heads == nullptr || cosine == nullptr) return nullptr;
  const int64_t size = heads->type.shape().back();
  const int64_t rotary = cosine->type.shape().back();
  Value* turning = heads;
  Value* still = nullptr;
  if (rotary < size) {
    const std::vector<Value*> parts = Split(heads, {rotary, size - rotary}, 3, fmt::format("{}_parts", name));
    turning = parts[0];
    still = parts[1];
  }
  const std::vector<Value*> halves = Split(turning, {rotary / 2, rotary / 2}, 3, fmt::format("{}_halves", name));
  Value* negative = Multiply(halves[1], -1, fmt::format("{}_negative", name));
  Value* turned = Concat({negative, halves[0]}, 3, fmt::format("{}_turned", name));
  Value* result = Binary("add", Binary("mul", turning, cosine, fmt::format("{}_cosine", name)),
                         Binary("mul", turned, sine, fmt::format("{}_sine", name)), name);
  return still == nullptr ? result : Concat({result, still}, 3, fmt::format("{}_whole", name));
}

Value* Blocks::Softmax(Value* x, std::string_view name) {
  const auto reduce = [&](std::string_view op, Value* value, std::string_view what) {
    return b_.Op(op, {{"x", value}, {"axes", Literal::Int32s({-1})}, {"keep_dims", Literal::Bool(true)}},
                 fmt::format("{}_{}", name, what));
  };
  Value* shifted = Binary("sub", x, reduce("reduce_max", x, "max"), fmt::format("{}_shifted", name));
  Value* exponential = b_.Op("exp", {{"x", shifted}}, fmt::format("{}_exp", name));
  return Binary("real_div", exponential, reduce("reduce_sum", exponential, "sum"), name);
}

Value* Blocks::Attend(Value* q, Value* k, Value* v, Value* mask, const LayerPlan& layer, std::string_view name) {
  if (q == nullptr || k == nullptr || mask == nullptr) return nullptr;
  const int64_t group = layer.heads / layer.kv_heads;
  const int64_t size = layer.head_size;
  const std::string text(name);
  // Query heads that share a K head stand behind each other, so grouped heads are a reshape: [1, K, group * T, d].
  const auto group_queries = [&](Value* x) {
    return group == 1 ? x : Reshape(x, {1, layer.kv_heads, -1, size}, text + "_grouped");
  };
  const auto ungroup = [&](Value* x) {
    return group == 1 ? x : Reshape(x, {1, layer.heads, -1, size}, text + "_ungrouped");
  };
  if (!ane()) {
    // The fused op scales by d^-1/2 itself.
    Value* query = Multiply(q, layer.attention_scale * std::sqrt(static_cast<double>(size)), text + "_scaled");
    Value* rows = length_ == 1 ? mask : Tile(mask, {1, 1, group, 1}, text + "_mask");
    Value* out = b_.Op("scaled_dot_product_attention",
                       {{"query", group_queries(query)}, {"key", k}, {"value", v}, {"attn_mask", rows}}, text);
    return ungroup(out);
  }
  const int64_t columns = k->type.shape()[2];
  Value* query = group_queries(Multiply(q, layer.attention_scale, text + "_scaled"));
  Value* scores = b_.Op("matmul", {{"x", query}, {"y", k}, {"transpose_y", Literal::Bool(true)}}, text + "_scores");
  if (group != 1) scores = Reshape(scores, {1, layer.heads, length_, columns}, text + "_scores_by_head");
  Value* weights = Softmax(Binary("add", scores, mask, text + "_masked"), text + "_softmax");
  if (group != 1) weights = Reshape(weights, {1, layer.kv_heads, group * length_, columns}, text + "_weights");
  Value* out = b_.Op("matmul", {{"x", weights}, {"y", v}}, text);
  return ungroup(out);
}

}  // namespace milwright
