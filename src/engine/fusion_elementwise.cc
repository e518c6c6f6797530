// Norms, rotary embeddings and gated activations as one node each.
#include <cmath>
#include <string>

#include "engine/fusion_patterns.h"
#include "engine/pattern.h"
#include "ops/slice_bounds.h"

namespace milwright::engine {
namespace {

// Whether `weight` multiplies every element along `axis` of x by its own number.
bool IsAxisWeight(const GraphValue* weight, const GraphValue* x, int64_t axis) {
  if ((weight->known == nullptr && weight->weight == nullptr) || !IsFloat(weight->dtype())) return false;
  const Shape& shape = weight->shape();
  const auto rank = static_cast<int64_t>(x->shape().size());
  const int64_t place = axis - (rank - static_cast<int64_t>(shape.size()));
  if (place < 0) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != (static_cast<int64_t>(i) == place ? x->shape()[static_cast<size_t>(axis)] : 1)) return false;
  }
  return true;
}

// ---- RMSNorm ----

struct Normed {
  GraphValue* x = nullptr;
  int64_t axis = 0;
  float epsilon = 0;
  int operations = 0;
};

// x of x * x, square(x) or pow(x, 2).
GraphValue* SquareOf(GraphValue* value) {
  if (const Node* square = MadeBy(value, "square")) return square->Arg("x");
  if (const Node* mul = MadeBy(value, "mul"); mul != nullptr && mul->Arg("x") == mul->Arg("y")) return mul->Arg("x");
  if (const Node* pow = MadeBy(value, "pow"); pow != nullptr && NumberOf(pow->Arg("y")) == 2.0F) return pow->Arg("x");
  return nullptr;
}

// x * rsqrt(mean(x^2) + epsilon)
std::optional<Normed> MatchWrittenNorm(const Node& mul) {
  const auto operands = Operands(mul, [](const GraphValue* v) { return MadeBy(v, "rsqrt") != nullptr; });
  if (!operands.has_value()) return std::nullopt;
  const Node* rsqrt = MadeBy(operands->first, "rsqrt");
  Normed normed;
  normed.epsilon = static_cast<float>(rsqrt->Context().Double("epsilon"));
  normed.operations = 4;
  GraphValue* mean = rsqrt->Arg("x");
  if (const Node* add = MadeBy(mean, "add")) {
    const auto sum = Operands(*add, [](const GraphValue* v) { return NumberOf(v).has_value(); });
    if (!sum.has_value()) return std::nullopt;
    normed.epsilon += *NumberOf(sum->first);
    mean = sum->second;
    ++normed.operations;
  }
  const Node* reduce = MadeBy(mean, "reduce_mean");
  if (reduce == nullptr || !reduce->Context().Bool("keep_dims")) return std::nullopt;
  GraphValue* squared = SquareOf(reduce->Arg("x"));
  if (squared == nullptr || ThroughCasts(squared) != ThroughCasts(operands->second)) return std::nullopt;
  const auto axis = OnlyAxis(*reduce, squared);
  if (!axis.has_value()) return std::nullopt;
  normed.x = ThroughCasts(squared);
  normed.axis = *axis;
  return normed;
}

// Whether `negative` is -x.
bool IsNegated(const GraphValue* negative, const GraphValue* x) {
  const auto scaled = Scaled(negative);
  if (scaled.has_value()) return scaled->first == x && scaled->second == -1.0F;
  const Node* sub = MadeBy(negative, "sub");
  return sub != nullptr && sub->Arg("y") == x && NumberOf(sub->Arg("x")) == 0.0F;
}

// Whether `value` is elements [first, last) along `axis` of `whole`, all of its other axes.
bool IsPart(const GraphValue* value, const GraphValue* whole, int64_t axis, int64_t first, int64_t last) {
  const auto at = static_cast<size_t>(axis);
  if (const Node* split = MadeBy(value, "split"); split != nullptr && split->Arg("x") == whole) {
    const int64_t along = split->Context().Int("axis");
    if ((along < 0 ? along + static_cast<int64_t>(whole->shape().size()) : along) != axis) return false;
    int64_t begin = 0;
    for (const GraphValue* output : split->outputs) {
      if (output == value) return begin == first && begin + output->shape()[at] == last;
      begin += output->shape()[at];
    }
    return false;
  }
  const Node* slice = MadeBy(value, "slice_by_index");
  if (slice == nullptr || slice->Arg("x") != whole || slice->Arg("begin")->known == nullptr ||
      slice->Arg("end")->known == nullptr) {
    return false;
  }
  const OpContext context = slice->Context();
  const std::vector<int64_t> begin = context.Ints("begin");
  const std::vector<int64_t> end = context.Ints("end");
  const size_t rank = whole->shape().size();
  if (value->shape().size() != rank) return false;
  const std::vector<int64_t> begin_mask = context.Ints("begin_mask", std::vector<int64_t>(rank, 0));
  const std::vector<int64_t> end_mask = context.Ints("end_mask", std::vector<int64_t>(rank, 0));
  const std::vector<int64_t> stride = context.Ints("stride", std::vector<int64_t>(rank, 1));
  for (size_t i = 0; i < rank; ++i) {
    const AxisSlice taken = ClampedSlice(whole->shape()[i], begin_mask[i] != 0 ? std::nullopt : std::optional(begin[i]),
                                         end_mask[i] != 0 ? std::nullopt : std::optional(end[i]), stride[i]);
    const int64_t from = i == at ? first : 0;
    const int64_t to = i == at ? last : whole->shape()[i];
    if (stride[i] != 1 || taken.begin != from || taken.size != to - from) return false;
  }
  return true;
}

// The first half of layer_norm([x, -x]): its mean is 0, so it is x / sqrt(mean(x^2) + epsilon).
std::optional<Normed> MatchDoubledNorm(const GraphValue* value) {
  const Node* part = value->producer;
  if (part == nullptr || (part->kind != "slice_by_index" && part->kind != "split")) return std::nullopt;
  GraphValue* whole = part->Arg("x");
  const Node* norm = MadeBy(whole, "layer_norm");
  if (norm == nullptr || norm->Arg("gamma") != nullptr || norm->Arg("beta") != nullptr) return std::nullopt;
  const Node* concat = MadeBy(norm->Arg("x"), "concat");
  const auto axis = OnlyAxis(*norm, whole);
  if (concat == nullptr || !axis.has_value() || concat->Args("values").size() != 2) return std::nullopt;
  const int64_t along = concat->Context().Int("axis");
  if ((along < 0 ? along + static_cast<int64_t>(whole->shape().size()) : along) != *axis) return std::nullopt;
  GraphValue* x = concat->Args("values")[0];
  if (!IsNegated(concat->Args("values")[1], x)) return std::nullopt;
  const int64_t size = x->shape()[static_cast<size_t>(*axis)];
  if (!IsPart(value, whole, *axis, 0, size)) return std::nullopt;
  return Normed{x, *axis, static_cast<float>(norm->Context().Double("epsilon")), 4};
}

std::optional<Normed> MatchNorm(GraphValue* value) {
  GraphValue* bare = ThroughCasts(value);
  if (const Node* mul = MadeBy(bare, "mul"); mul != nullptr) {
    if (auto normed = MatchWrittenNorm(*mul); normed.has_value()) return normed;
  }
  return MatchDoubledNorm(bare);
}

}  // namespace

std::unique_ptr<Node> MatchRmsNorm(Graph&, const Node& root) {
  if (root.kind != "mul" && root.kind != "slice_by_index" && root.kind != "split") return nullptr;
  GraphValue* weight = nullptr;
  std::optional<Normed> normed;
  if (root.kind == "mul") {
    const auto operands = Operands(root, [](GraphValue* v) { return MatchNorm(v).has_value(); });
    if (operands.has_value()) {
      normed = MatchNorm(operands->first);
      if (IsAxisWeight(operands->second, normed->x, normed->axis)) {
        weight = operands->second;
        ++normed->operations;
      } else {
        normed.reset();
      }
    }
  }
  if (!normed.has_value() && root.outputs.size() == 1) normed = MatchNorm(root.output());
  if (!normed.has_value()) return nullptr;
  auto fused = Fused(root, "fused_rms_norm", normed->operations);
  AddArg(*fused, "x", normed->x);
  if (weight != nullptr) AddArg(*fused, "weight", weight);
  fused->numbers.axis = normed->axis;
  fused->numbers.epsilon = normed->epsilon;
  return fused;
}

// ---- rotary embedding: x cos + [-x2, x1] sin ----

std::unique_ptr<Node> MatchRope(Graph&, const Node& root) {
  if (root.kind != "add") return nullptr;
  const auto turned_by = [](GraphValue* value, const Node** concat, GraphValue** other) {
    const Node* mul = MadeBy(value, "mul");
    if (mul == nullptr) return false;
    const auto operands = Operands(*mul, [](const GraphValue* v) { return MadeBy(v, "concat") != nullptr; });
    if (!operands.has_value()) return false;
    *concat = MadeBy(operands->first, "concat");
    *other = operands->second;
    return (*concat)->Args("values").size() == 2 && !(*concat)->Context().Bool("interleave");
  };
  for (const auto& [straight, turned] :
       {std::pair(root.Arg("x"), root.Arg("y")), std::pair(root.Arg("y"), root.Arg("x"))}) {
    const Node* concat = nullptr;
    GraphValue* sin = nullptr;
    const Node* mul = MadeBy(straight, "mul");
    if (mul == nullptr || !turned_by(turned, &concat, &sin)) continue;
    const auto rank = static_cast<int64_t>(root.output()->shape().size());
    int64_t axis = concat->Context().Int("axis");
    if (axis < 0) axis += rank;
    const int64_t size = root.output()->shape()[static_cast<size_t>(axis)];
    const auto negated = Scaled(concat->Args("values")[0]);
    if (!negated.has_value() || negated->second != -1.0F || size % 2 != 0) continue;
    for (const auto& [x, cos] : {std::pair(mul->Arg("x"), mul->Arg("y")), std::pair(mul->Arg("y"), mul->Arg("x"))}) {
      if (x->shape() != root.output()->shape()) continue;
      if (!IsPart(negated->first, x, axis, size / 2, size) ||
          !IsPart(concat->Args("values")[1], x, axis, 0, size / 2)) {
        continue;
      }
      auto fused = Fused(root, "fused_rope", 6);
      AddArg(*fused, "x", x);
      AddArg(*fused, "cos", cos);
      AddArg(*fused, "sin", sin);
      fused->numbers.axis = axis;
      return fused;
    }
  }
  return nullptr;
}

namespace {

// ---- gated activations: silu(gate) * up, gelu(gate) * up ----

// The gate of an activation, and which one it is.
GraphValue* GateOf(const GraphValue* value, bool* gelu) {
  if (const Node* silu = MadeBy(value, "silu")) return silu->Arg("x");
  if (const Node* node = MadeBy(value, "gelu"); node != nullptr) {
    *gelu = true;
    return node->Context().String("mode", "EXACT") == "TANH_APPROXIMATION" ? node->Arg("x") : nullptr;
  }
  if (const Node* mul = MadeBy(value, "mul"); mul != nullptr) {
    const auto operands = Operands(*mul, [](const GraphValue* v) { return MadeBy(v, "sigmoid") != nullptr; });
    if (operands.has_value() && MadeBy(operands->first, "sigmoid")->Arg("x") == operands->second) {
      return operands->second;
    }
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Node> MatchGated(Graph&, const Node& root) {
  if (root.kind != "mul") return nullptr;
  bool gelu = false;
  const auto operands = Operands(root, [&gelu](const GraphValue* v) {
    gelu = false;
    return GateOf(v, &gelu) != nullptr;
  });
  if (!operands.has_value() || operands->first->shape() != operands->second->shape()) return nullptr;
  GraphValue* gate = GateOf(operands->first, &gelu);
  if (gate == operands->second) return nullptr;  // silu itself, written out
  auto fused = Fused(root, gelu ? "fused_gelu_mul" : "fused_silu_mul", 2);
  AddArg(*fused, "gate", gate);
  AddArg(*fused, "up", operands->second);
  return fused;
}

}  // namespace milwright::engine
