#include "analysis/dataflow.h"

namespace milwright {
namespace {

// The results that change when operation `op` sees another operand: its own outputs, and those of the ops around it.
void ForEachAffected(const Operation& op, const std::function<void(const Value*)>& visit) {
  for (const Operation* current = &op; current != nullptr;) {
    for (const auto& output : current->outputs()) visit(output.get());
    const Block* block = current->parent();
    current = block != nullptr ? block->parent() : nullptr;
  }
}

}  // namespace

ValueSet ForwardClosure(const std::vector<const Value*>& sources) {
  ValueSet seen(sources.begin(), sources.end());
  std::vector<const Value*> pending(sources);
  const auto add = [&](const Value* value) {
    if (seen.insert(value).second) pending.push_back(value);
  };
  while (!pending.empty()) {
    const Value* value = pending.back();
    pending.pop_back();
    for (const Use& use : value->uses()) {
      if (use.op == nullptr) {  // output of a nested block: shows up as a result of the op around it
        if (const Operation* parent = use.block->parent(); parent != nullptr) ForEachAffected(*parent, add);
        continue;
      }
      ForEachAffected(*use.op, add);
      for (const auto& block : use.op->blocks()) {  // loop variables
        for (const auto& input : block->inputs()) add(input.get());
      }
    }
  }
  return seen;
}

void WalkForward(const Value* source, const std::function<bool(const Operation&)>& passes,
                 const std::function<void(const Operation&, const Value* operand)>& visit) {
  ValueSet seen{source};
  std::vector<const Value*> pending{source};
  while (!pending.empty()) {
    const Value* value = pending.back();
    pending.pop_back();
    for (const Use& use : value->uses()) {
      if (use.op == nullptr) continue;
      if (!passes(*use.op)) {
        visit(*use.op, value);
        continue;
      }
      for (const auto& output : use.op->outputs()) {
        if (seen.insert(output.get()).second) pending.push_back(output.get());
      }
    }
  }
}

bool ComesFrom(const Value* value, const std::unordered_set<std::string_view>& targets,
               const std::unordered_set<std::string_view>& through) {
  ValueSet seen{value};
  std::vector<const Value*> pending{value};
  while (!pending.empty()) {
    const Operation* op = pending.back()->producer();
    pending.pop_back();
    if (op == nullptr) continue;
    if (targets.contains(op->type())) return true;
    if (!through.contains(op->type())) continue;
    for (const Input& input : op->inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && seen.insert(operand.value).second) pending.push_back(operand.value);
      }
    }
  }
  return false;
}

bool LeadsTo(const Value* value, const std::unordered_set<std::string_view>& targets,
             const std::unordered_set<std::string_view>& through) {
  bool found = false;
  WalkForward(
      value, [&](const Operation& op) { return !targets.contains(op.type()) && through.contains(op.type()); },
      [&](const Operation& op, const Value*) { found = found || targets.contains(op.type()); });
  return found;
}

std::unordered_map<const Operation*, size_t> ProgramOrder(const Function& function) {
  std::unordered_map<const Operation*, size_t> order;
  ForEachOperation(function.body(), [&order](const Operation& op) { order.emplace(&op, order.size()); });
  return order;
}

}  // namespace milwright
