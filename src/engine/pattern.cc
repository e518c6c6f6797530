#include "engine/pattern.h"

namespace milwright::engine {

const Node* MadeBy(const GraphValue* value, std::string_view kind) {
  return value != nullptr && value->producer != nullptr && value->producer->kind == kind ? value->producer : nullptr;
}

GraphValue* ThroughCasts(GraphValue* value) {
  while (const Node* cast = MadeBy(value, "cast")) {
    GraphValue* x = cast->Arg("x");
    if (!IsFloat(x->dtype()) || !IsFloat(value->dtype())) break;
    value = x;
  }
  return value;
}

GraphValue* ThroughViews(GraphValue* value) {
  while (true) {
    GraphValue* next = ThroughCasts(value);
    for (const char* kind : {"reshape", "expand_dims", "squeeze"}) {
      if (const Node* view = MadeBy(next, kind); view != nullptr) next = view->Arg("x");
    }
    if (next == value) return value;
    value = next;
  }
}

std::optional<float> NumberOf(const GraphValue* value) {
  if (value == nullptr || value->known == nullptr || !value->type.IsTensor() || !IsFloat(value->dtype()) ||
      value->known->tensor.size() != 1) {
    return std::nullopt;
  }
  return value->known->tensor.GetFloat(0);
}

std::optional<std::pair<GraphValue*, float>> Scaled(const GraphValue* value) {
  if (const Node* mul = MadeBy(value, "mul"); mul != nullptr) {
    const auto operands = Operands(*mul, [](const GraphValue* v) { return NumberOf(v).has_value(); });
    if (operands.has_value()) return std::pair(operands->second, *NumberOf(operands->first));
  }
  if (const Node* div = MadeBy(value, "real_div"); div != nullptr) {
    const auto number = NumberOf(div->Arg("y"));
    if (number.has_value() && *number != 0) return std::pair(div->Arg("x"), 1.0F / *number);
  }
  return std::nullopt;
}

std::optional<int64_t> OnlyAxis(const Node& node, const GraphValue* x) {
  if (node.Arg("axes") == nullptr || node.Arg("axes")->known == nullptr) return std::nullopt;
  const std::vector<int64_t> axes = node.Context().Ints("axes");
  if (axes.size() != 1) return std::nullopt;
  return axes[0] < 0 ? axes[0] + static_cast<int64_t>(x->shape().size()) : axes[0];
}

std::optional<int64_t> LastSize(const GraphValue* value) {
  return value->shape().empty() ? std::nullopt : std::optional(value->shape().back());
}

std::unique_ptr<Node> Fused(const Node& root, std::string_view kind, int operations) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->op = root.op;
  node->opset = root.opset;
  node->outputs = root.outputs;
  node->operations = operations;
  return node;
}

void AddArg(Node& node, std::string name, GraphValue* value) { node.parameters.push_back({std::move(name), {value}}); }

}  // namespace milwright::engine
