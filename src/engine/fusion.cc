#include "engine/fusion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "engine/pattern.h"
#include "engine/product.h"
#include "ops/slice_bounds.h"

namespace milwright::engine {
namespace {

void AddArg(Node& node, std::string name, GraphValue* value) { node.parameters.push_back({std::move(name), {value}}); }

int64_t Product(const Shape& shape, size_t begin, size_t end) {
  return std::accumulate(shape.begin() + static_cast<int64_t>(begin), shape.begin() + static_cast<int64_t>(end),
                         int64_t{1}, std::multiplies<>());
}

// The only axis of a parameter `axes`, from the front.
std::optional<int64_t> OnlyAxis(const Node& node, const GraphValue* x) {
  if (node.Arg("axes") == nullptr || node.Arg("axes")->known == nullptr) return std::nullopt;
  const std::vector<int64_t> axes = node.Context().Ints("axes");
  if (axes.size() != 1) return std::nullopt;
  return axes[0] < 0 ? axes[0] + static_cast<int64_t>(x->shape().size()) : axes[0];
}

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

// ---- attention ----

// The scores of a softmax over the last axis, as the op or written out; null when `value` is none.
GraphValue* SoftmaxOf(GraphValue* value) {
  const auto last = static_cast<int64_t>(value->shape().size()) - 1;
  if (const Node* softmax = MadeBy(value, "softmax"); softmax != nullptr) {
    const int64_t axis = softmax->Context().Int("axis", -1);
    return axis == -1 || axis == last ? softmax->Arg("x") : nullptr;
  }
  const Node* div = MadeBy(value, "real_div");
  if (div == nullptr) return nullptr;
  const Node* exp = MadeBy(ThroughCasts(div->Arg("x")), "exp");
  const Node* sum = MadeBy(ThroughCasts(div->Arg("y")), "reduce_sum");
  if (exp == nullptr || sum == nullptr || ThroughCasts(sum->Arg("x")) != exp->output()) return nullptr;
  const Node* sub = MadeBy(ThroughCasts(exp->Arg("x")), "sub");
  if (sub == nullptr) return nullptr;
  GraphValue* scores = sub->Arg("x");
  const Node* max = MadeBy(ThroughCasts(sub->Arg("y")), "reduce_max");
  if (max == nullptr || ThroughCasts(max->Arg("x")) != ThroughCasts(scores)) return nullptr;
  if (OnlyAxis(*sum, scores) != last || OnlyAxis(*max, scores) != last) return nullptr;
  return scores;
}

// What `value`, [.., heads * n, length, dim], repeats n times head by head; `value` itself when it is no repetition.
GraphValue* RepeatedHeads(GraphValue* value) {
  if (const Node* reshape = MadeBy(value, "reshape")) {
    const Node* tile = MadeBy(reshape->Arg("x"), "tile");
    if (tile == nullptr || tile->Arg("reps") == nullptr || tile->Arg("reps")->known == nullptr) return value;
    GraphValue* spread = tile->Arg("x");
    const std::vector<int64_t> reps = tile->Context().Ints("reps");
    const size_t rank = spread->shape().size();
    size_t axis = rank;
    for (size_t i = 0; i < rank; ++i) {
      if (reps[i] == 1) continue;
      if (axis != rank || spread->shape()[i] != 1) return value;
      axis = i;
    }
    if (axis == rank || axis == 0 || axis + 2 >= rank) return value;
    GraphValue* base = ThroughViews(spread);
    Shape without = spread->shape();
    without.erase(without.begin() + static_cast<int64_t>(axis));
    Shape joined = without;
    joined[axis - 1] *= reps[axis];
    return base->shape() == without && value->shape() == joined ? base : value;
  }
  if (const Node* tile = MadeBy(value, "tile"); tile != nullptr && tile->Arg("reps")->known != nullptr) {
    GraphValue* base = tile->Arg("x");
    const std::vector<int64_t> reps = tile->Context().Ints("reps");
    const size_t rank = base->shape().size();
    for (size_t i = 0; i < rank; ++i) {
      if (reps[i] != 1 && (base->shape()[i] != 1 || i + 3 != rank)) return value;
    }
    return base;
  }
  return value;
}

bool IsMask(const GraphValue* mask, int64_t queries, int64_t columns) {
  const Shape& shape = mask->shape();
  if (!IsFloat(mask->dtype()) || shape.size() < 2 || shape.back() != columns) return false;
  const int64_t rows = shape[shape.size() - 2];
  return (rows == queries || rows == 1) && Product(shape, 0, shape.size() - 2) == 1;
}

struct AttentionParts {
  GraphValue* q = nullptr;
  GraphValue* k = nullptr;
  GraphValue* v = nullptr;
  GraphValue* mask = nullptr;
  FusedNumbers numbers;
  int operations = 0;
};

// Fills heads from the shapes: scores are [heads, queries, columns], k is [kv heads, columns, dim].
bool FillHeads(AttentionParts& parts, int64_t heads, int64_t queries, int64_t columns) {
  const Shape& k = parts.k->shape();
  const Shape& v = parts.v->shape();
  if (k.size() < 3 || v.size() < 3) return false;
  parts.numbers.heads = heads;
  parts.numbers.queries = queries;
  parts.numbers.kv_heads = Product(k, 0, k.size() - 2);
  const int64_t dim = k.back();
  return k[k.size() - 2] == columns && v[v.size() - 2] == columns && parts.numbers.kv_heads > 0 &&
         Product(v, 0, v.size() - 2) == parts.numbers.kv_heads && heads % parts.numbers.kv_heads == 0 &&
         Product(parts.q->shape(), 0, parts.q->shape().size()) == heads * queries * dim &&
         parts.q->shape().back() == dim && (parts.mask == nullptr || IsMask(parts.mask, queries, columns));
}

std::optional<AttentionParts> MatchWrittenAttention(const Node& product) {
  if (product.kind != "matmul" || product.Context().Bool("transpose_x") || product.Context().Bool("transpose_y")) {
    return std::nullopt;
  }
  AttentionParts parts;
  GraphValue* weights = ThroughViews(product.Arg("x"));
  GraphValue* scores = SoftmaxOf(weights);
  if (scores == nullptr || weights->shape().size() < 3) return std::nullopt;
  const Shape& shape = weights->shape();
  const int64_t columns = shape.back();
  const int64_t queries = shape[shape.size() - 2];
  const int64_t heads = Product(shape, 0, shape.size() - 2);
  parts.operations = 3;
  GraphValue* at = ThroughCasts(scores);
  if (const Node* add = MadeBy(at, "add")) {
    const auto operands = Operands(*add, [&](const GraphValue* v) { return IsMask(v, queries, columns); });
    if (!operands.has_value()) return std::nullopt;
    parts.mask = operands->first;
    at = ThroughCasts(operands->second);
    ++parts.operations;
  }
  if (const auto capped = Scaled(at); capped.has_value() && MadeBy(ThroughCasts(capped->first), "tanh") != nullptr) {
    parts.numbers.soft_cap = capped->second;
    const auto inner = Scaled(ThroughCasts(MadeBy(ThroughCasts(capped->first), "tanh")->Arg("x")));
    if (!inner.has_value() || std::fabs(inner->second * capped->second - 1.0F) > 1e-3F) return std::nullopt;
    at = ThroughViews(inner->first);
    parts.operations += 3;
  }
  at = ThroughViews(at);
  if (const auto scaled = Scaled(at); scaled.has_value()) {
    parts.numbers.scale *= scaled->second;
    at = ThroughViews(scaled->first);
    ++parts.operations;
  }
  const Node* inner = MadeBy(at, "matmul");
  if (inner == nullptr || inner->Context().Bool("transpose_x")) return std::nullopt;
  parts.k = inner->Arg("y");
  if (!inner->Context().Bool("transpose_y")) {
    const Node* transpose = MadeBy(parts.k, "transpose");
    if (transpose == nullptr) return std::nullopt;
    std::vector<int64_t> perm = transpose->Context().Ints("perm");
    const auto rank = static_cast<int64_t>(perm.size());
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t want = i == rank - 2 ? rank - 1 : i == rank - 1 ? rank - 2 : i;
      if ((perm[static_cast<size_t>(i)] + rank) % rank != want) return std::nullopt;
    }
    parts.k = transpose->Arg("x");
  }
  parts.k = RepeatedHeads(parts.k);
  parts.v = RepeatedHeads(product.Arg("y"));
  parts.q = inner->Arg("x");
  // The scale may stand before the product.
  GraphValue* q = ThroughViews(parts.q);
  if (const auto scaled = Scaled(q); scaled.has_value() && scaled->first->shape().back() == parts.q->shape().back()) {
    parts.numbers.scale *= scaled->second;
    q = scaled->first;
    ++parts.operations;
  }
  if (q->shape().back() == parts.q->shape().back()) parts.q = q;
  if (!FillHeads(parts, heads, queries, columns)) return std::nullopt;
  return parts;
}

std::optional<AttentionParts> MatchAttentionOp(const Node& attention) {
  if (attention.kind != "scaled_dot_product_attention") return std::nullopt;
  AttentionParts parts;
  parts.q = attention.Arg("query");
  parts.k = RepeatedHeads(attention.Arg("key"));
  parts.v = RepeatedHeads(attention.Arg("value"));
  parts.mask = attention.Arg("attn_mask");
  const Shape& shape = parts.q->shape();
  const int64_t columns = attention.Arg("key")->shape()[shape.size() - 2];
  int64_t queries = shape[shape.size() - 2];
  int64_t heads = Product(shape, 0, shape.size() - 2);
  parts.numbers.scale = 1.0F / std::sqrt(static_cast<float>(shape.back()));
  parts.operations = 1;
  // Groups of heads written one after another along the queries, with the mask repeated for each.
  if (const Node* tile = MadeBy(parts.mask, "tile"); tile != nullptr && tile->Arg("reps")->known != nullptr) {
    const Shape& before = tile->Arg("x")->shape();
    const int64_t rows = before.size() < 2 ? 0 : before[before.size() - 2];
    std::vector<int64_t> wanted(before.size(), 1);
    if (rows > 0 && queries % rows == 0) {
      wanted[before.size() - 2] = queries / rows;
      if (tile->Context().Ints("reps") == wanted) {
        heads *= queries / rows;
        queries = rows;
        parts.mask = tile->Arg("x");
        ++parts.operations;
      }
    }
  }
  if (parts.mask != nullptr && !IsFloat(parts.mask->dtype())) return std::nullopt;
  // Where all queries see the same, it does not matter which of them are heads.
  if (parts.mask == nullptr || parts.mask->shape().size() < 2 ||
      parts.mask->shape()[parts.mask->shape().size() - 2] == 1) {
    heads *= queries;
    queries = 1;
  }
  if (!FillHeads(parts, heads, queries, columns)) return std::nullopt;
  return parts;
}

std::unique_ptr<Node> FuseAttention(const Node& root, std::optional<AttentionParts> parts) {
  if (!parts.has_value()) return nullptr;
  auto fused = Fused(root, "fused_attention", parts->operations);
  AddArg(*fused, "q", parts->q);
  AddArg(*fused, "k", parts->k);
  AddArg(*fused, "v", parts->v);
  if (parts->mask != nullptr) AddArg(*fused, "mask", parts->mask);
  fused->numbers = parts->numbers;
  return fused;
}

// A reshape behind the product that splits grouped heads is taken along: then heads lie side by side for the output
// projection.
template <typename Match>
std::unique_ptr<Node> AttentionAt(const Node& root, Match&& match) {
  if (root.kind == "reshape") {
    const GraphValue* x = root.Arg("x");
    if (x == nullptr || x->producer == nullptr || x->uses != 1) return nullptr;
    auto parts = match(*x->producer);
    const Shape& shape = root.output()->shape();
    if (!parts.has_value() || shape.size() < 3 || shape[shape.size() - 2] != parts->numbers.queries ||
        shape.back() != x->shape().back()) {
      return nullptr;
    }
    ++parts->operations;
    return FuseAttention(root, std::move(parts));
  }
  return FuseAttention(root, match(root));
}

std::unique_ptr<Node> MatchAttention(Graph&, const Node& root) { return AttentionAt(root, MatchWrittenAttention); }
std::unique_ptr<Node> MatchGroupedAttention(Graph&, const Node& root) { return AttentionAt(root, MatchAttentionOp); }

// ---- masked update: old * keep + placed ----

// m of 1 - m or 1 - sum(m, last axis).
GraphValue* KeptBeside(const GraphValue* keep) {
  const Node* sub = MadeBy(keep, "sub");
  if (sub == nullptr || NumberOf(sub->Arg("x")) != 1.0F) return nullptr;
  GraphValue* mask = sub->Arg("y");
  if (const Node* sum = MadeBy(mask, "reduce_sum"); sum != nullptr) {
    const GraphValue* x = sum->Arg("x");
    if (OnlyAxis(*sum, x) == static_cast<int64_t>(x->shape().size()) - 1) return sum->Arg("x");
  }
  return mask;
}

// What is placed: new * m element by element, or m @ new.
struct Placed {
  GraphValue* mask = nullptr;
  GraphValue* fresh = nullptr;
  bool product = false;
};

std::optional<Placed> MatchPlaced(const GraphValue* value, const GraphValue* mask) {
  if (const Node* mul = MadeBy(value, "mul"); mul != nullptr) {
    const auto operands = Operands(*mul, [mask](const GraphValue* v) { return v == mask; });
    if (operands.has_value() && mask->shape().back() == 1) return Placed{operands->first, operands->second, false};
  }
  if (const Node* product = MadeBy(value, "matmul"); product != nullptr && product->Arg("x") == mask &&
                                                     !product->Context().Bool("transpose_x") &&
                                                     !product->Context().Bool("transpose_y")) {
    return Placed{product->Arg("x"), product->Arg("y"), true};
  }
  return std::nullopt;
}

struct Blend {
  GraphValue* old = nullptr;
  GraphValue* keep = nullptr;
  Placed placed;
};

// old * keep + placed, where keep and placed come from one mask.
std::optional<Blend> MatchKeepAndPlace(const Node& add) {
  for (const auto& [kept, placed] : {std::pair(add.Arg("x"), add.Arg("y")), std::pair(add.Arg("y"), add.Arg("x"))}) {
    const Node* mul = MadeBy(kept, "mul");
    if (mul == nullptr || add.output()->shape() != kept->shape() || !IsFloat(kept->dtype())) continue;
    const auto operands = Operands(*mul, [](const GraphValue* v) { return KeptBeside(v) != nullptr; });
    if (!operands.has_value()) continue;
    const auto& [keep, old] = *operands;
    if (old->shape() != kept->shape() || keep->shape().back() != 1) continue;
    const auto parts = MatchPlaced(placed, KeptBeside(keep));
    if (parts.has_value()) return Blend{old, keep, *parts};
  }
  return std::nullopt;
}

// What slice_by_index takes or slice_update replaces of `whole`, when it is known and has no strides and no squeezed
// axes.
std::optional<std::vector<AxisSlice>> RegionOf(const Node& node, const GraphValue* whole) {
  if (node.Arg("x") != whole || node.Arg("begin")->known == nullptr || node.Arg("end")->known == nullptr ||
      node.Arg("stride") != nullptr || node.Arg("squeeze_mask") != nullptr) {
    return std::nullopt;
  }
  const OpContext context = node.Context();
  const size_t rank = whole->shape().size();
  const std::vector<int64_t> begin = context.Ints("begin");
  const std::vector<int64_t> end = context.Ints("end");
  const std::vector<int64_t> begin_mask = context.Ints("begin_mask", std::vector<int64_t>(rank, 0));
  const std::vector<int64_t> end_mask = context.Ints("end_mask", std::vector<int64_t>(rank, 0));
  std::vector<AxisSlice> slices(rank);
  for (size_t i = 0; i < rank; ++i) {
    slices[i] = ClampedSlice(whole->shape()[i], begin_mask[i] != 0 ? std::nullopt : std::optional(begin[i]),
                             end_mask[i] != 0 ? std::nullopt : std::optional(end[i]), 1);
  }
  return slices;
}

// The blend itself, or the slice update that puts it where its old content came from.
std::unique_ptr<Node> MatchBlend(Graph& graph, const Node& root) {
  const Node* add = root.kind == "add" ? &root : nullptr;
  if (root.kind == "slice_update") add = MadeBy(root.Arg("update"), "add");
  if (add == nullptr) return nullptr;
  const auto blend = MatchKeepAndPlace(*add);
  if (!blend.has_value()) return nullptr;
  auto fused = Fused(root, "fused_blend", root.kind == "add" ? 4 : 6);
  if (add == &root) {
    AddArg(*fused, "x", blend->old);
  } else {
    GraphValue* whole = root.Arg("x");
    const Node* slice = MadeBy(blend->old, "slice_by_index");
    const auto written = RegionOf(root, whole);
    const auto read = slice != nullptr ? RegionOf(*slice, whole) : std::nullopt;
    if (!written.has_value() || !read.has_value()) return nullptr;
    std::vector<int64_t> begins(read->size());
    for (size_t i = 0; i < read->size(); ++i) {
      if ((*read)[i].begin != (*written)[i].begin || (*read)[i].size != (*written)[i].size) return nullptr;
      begins[i] = (*read)[i].begin;
    }
    graph.literals.push_back(Literal::Int32s(begins));
    GraphValue* begin = graph.NewValue("", graph.literals.back().type);
    begin->known = &graph.literals.back();
    AddArg(*fused, "x", whole);
    AddArg(*fused, "begin", begin);
    AddArg(*fused, "region", graph.NewValue("", add->output()->type));  // only its shape counts
  }
  AddArg(*fused, "keep", blend->keep);
  AddArg(*fused, "mask", blend->placed.mask);
  AddArg(*fused, "new", blend->placed.fresh);
  fused->numbers.product = blend->placed.product;
  return fused;
}

// Linear operations of the same activation (q, k and v; gate and up) become one, where the first of them stands.
void GroupProducts(Graph& graph) {
  std::map<const GraphValue*, std::vector<size_t>> by_activation;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (ProductChannel(*graph.nodes[i]).has_value()) by_activation[graph.nodes[i]->Arg("x")].push_back(i);
  }
  for (const auto& [x, places] : by_activation) {
    if (places.size() < 2) continue;
    for (size_t begin = 0; begin < places.size(); begin += kMaxProductParts) {
      const size_t end = std::min(places.size(), begin + kMaxProductParts);
      const Node& first = *graph.nodes[places[begin]];
      auto group = Fused(first, "fused_products", static_cast<int>(end - begin));
      group->outputs.clear();
      AddArg(*group, "x", first.Arg("x"));
      group->parameters.push_back({"weights", {}});
      group->numbers.axis = *ProductChannel(first);
      for (size_t i = begin; i < end; ++i) {
        const Node& node = *graph.nodes[places[i]];
        group->parameters[1].arguments.push_back(node.Arg("weight"));
        if (node.Arg("bias") != nullptr) AddArg(*group, "bias" + std::to_string(i - begin), node.Arg("bias"));
        group->outputs.push_back(node.output());
      }
      for (GraphValue* output : group->outputs) output->producer = group.get();
      for (size_t i = begin + 1; i < end; ++i) graph.nodes[places[i]]->outputs.clear();  // pruned: nobody needs it
      graph.nodes[places[begin]] = std::move(group);
    }
  }
  Prune(graph);
}

constexpr FusionEntry kFusions[] = {
    {"fused_blend", MatchBlend, true},          {"fused_attention", MatchGroupedAttention, true},
    {"fused_attention", MatchAttention, false}, {"fused_rope", MatchRope, false},
    {"fused_gated", MatchGated, false},         {"fused_rms_norm", MatchRmsNorm, false},
};

}  // namespace

std::span<const FusionEntry> Fusions() { return kFusions; }

void Fuse(Graph& graph, Numerics numerics) {
  for (const FusionEntry& entry : kFusions) {
    if (!entry.exact && numerics == Numerics::kStrict) continue;
    // From the end, so that the longest pattern wins.
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      std::unique_ptr<Node> fused = entry.match(graph, *graph.nodes[i]);
      if (fused == nullptr) continue;
      for (GraphValue* output : fused->outputs) output->producer = fused.get();
      graph.nodes[i] = std::move(fused);
    }
    Prune(graph);
  }
  GroupProducts(graph);
}

}  // namespace milwright::engine
