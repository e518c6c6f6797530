// What patterns are made of: looking back from a value through its producers.
#ifndef MILWRIGHT_ENGINE_PATTERN_H_
#define MILWRIGHT_ENGINE_PATTERN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/graph.h"

namespace milwright::engine {

/// The node of this kind that makes `value`, or null.
const Node* MadeBy(const GraphValue* value, std::string_view kind);
/// `value` seen through casts between float types.
GraphValue* ThroughCasts(GraphValue* value);
/// ... and reshapes, expand_dims and squeeze.
GraphValue* ThroughViews(GraphValue* value);
/// The number that a constant of one element holds.
std::optional<float> NumberOf(const GraphValue* value);
/// The operands of a commutative op, (x, y) when `first` says yes to x, (y, x) when it says so to y.
template <typename First>
std::optional<std::pair<GraphValue*, GraphValue*>> Operands(const Node& node, First&& first) {
  GraphValue* x = node.Arg("x");
  GraphValue* y = node.Arg("y");
  if (x == nullptr || y == nullptr) return std::nullopt;
  if (first(x)) return std::pair(x, y);
  if (first(y)) return std::pair(y, x);
  return std::nullopt;
}
/// v and c of v * c or v / (1 / c), c a number.
std::optional<std::pair<GraphValue*, float>> Scaled(const GraphValue* value);
/// The only axis of a parameter `axes` of an op on `x`, counted from the front.
std::optional<int64_t> OnlyAxis(const Node& node, const GraphValue* x);
/// The size of the last axis, if there is one.
std::optional<int64_t> LastSize(const GraphValue* value);
/// A new fused node with the outputs of `root`.
std::unique_ptr<Node> Fused(const Node& root, std::string_view kind, int operations);
void AddArg(Node& node, std::string name, GraphValue* value);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_PATTERN_H_
