// What writes caches: masked updates as one node, and slice updates that read their bounds where they are.
#include <algorithm>
#include <string>

#include "engine/fusion_patterns.h"
#include "engine/pattern.h"
#include "ops/slice_bounds.h"

namespace milwright::engine {
namespace {

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
    if (operands.has_value() && LastSize(mask) == 1) return Placed{operands->first, operands->second, false};
  }
  if (const Node* product = MadeBy(value, "matmul");
      product != nullptr && product->Arg("x") == mask && mask->shape().size() >= 2 &&
      product->Arg("y")->shape().size() >= 2 && !product->Context().Bool("transpose_x") &&
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
    if (old->shape() != kept->shape() || LastSize(keep) != 1) continue;
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

}  // namespace

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

namespace {

// The numbers that a concat along its only axis puts together: single values and constants; nothing for other vectors.
std::vector<GraphValue*> NumbersOf(GraphValue* vector) {
  const Node* concat = MadeBy(vector, "concat");
  if (concat == nullptr || vector->shape().size() != 1 || concat->Context().Bool("interleave")) return {};
  const std::vector<GraphValue*>& parts = concat->Args("values");
  const bool single = std::ranges::all_of(
      parts, [](const GraphValue* part) { return part->known != nullptr || part->shape() == Shape{1}; });
  return single ? parts : std::vector<GraphValue*>();
}

}  // namespace

std::unique_ptr<Node> MatchSliceAt(Graph&, const Node& root) {
  if (root.kind != "slice_update") return nullptr;
  auto bound = std::make_unique<Node>(root);
  bool changed = false;
  for (Node::Parameter& parameter : bound->parameters) {
    if (parameter.name != "begin" && parameter.name != "end") continue;
    std::vector<GraphValue*> numbers = NumbersOf(parameter.arguments.front());
    if (numbers.empty()) continue;
    if (parameter.arguments.front()->uses == 1) ++bound->operations;
    parameter.arguments = std::move(numbers);
    changed = true;
  }
  return changed ? std::move(bound) : nullptr;
}

}  // namespace milwright::engine
