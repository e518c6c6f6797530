// Attention as one node: written out, and the fused op with the repetition of its heads.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "engine/fusion_patterns.h"
#include "engine/pattern.h"

namespace milwright::engine {
namespace {

int64_t Product(const Shape& shape, size_t begin, size_t end) {
  return std::accumulate(shape.begin() + static_cast<int64_t>(begin), shape.begin() + static_cast<int64_t>(end),
                         int64_t{1}, std::multiplies<>());
}

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
  if (const auto scaled = Scaled(q); scaled.has_value() && LastSize(scaled->first) == LastSize(parts.q)) {
    parts.numbers.scale *= scaled->second;
    q = scaled->first;
    ++parts.operations;
  }
  if (LastSize(q) == LastSize(parts.q)) parts.q = q;
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

}  // namespace

std::unique_ptr<Node> MatchAttention(Graph&, const Node& root) { return AttentionAt(root, MatchWrittenAttention); }

std::unique_ptr<Node> MatchGroupedAttention(Graph&, const Node& root) { return AttentionAt(root, MatchAttentionOp); }

}  // namespace milwright::engine
