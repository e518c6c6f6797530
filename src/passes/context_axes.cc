#include "passes/context_axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/edit.h"

namespace milwright {

ContextAxes::Term::Term(const Value* value) : key(value), type(&value->type), value(value) {}

ContextAxes::Term::Term(const Operand& operand)
    : key(operand.constant() != nullptr ? static_cast<const void*>(&operand) : operand.value),
      type(&operand.type()),
      value(operand.constant() != nullptr ? nullptr : operand.value) {}

Status ContextAxes::Open(const Operation& op, const std::string& why) {
  return Refuse(fmt::format("{}: {}", OperationPath(op), why));
}

std::optional<int64_t> ContextAxes::Find(const void* key, size_t axis) const {
  const auto it = sizes_.find(key);
  if (it == sizes_.end()) return std::nullopt;
  const auto size = it->second.find(axis);
  return size != it->second.end() ? std::optional(size->second) : std::nullopt;
}

Status ContextAxes::Mark(const Value* value, size_t axis, int64_t size) {
  if (axis >= value->type.shape().size() || value->type.shape()[axis] == kUnknownDim) {
    return Refuse(fmt::format("'{}' is {}, and only static shapes are set to another length", value->name,
                              TypeToString(value->type)));
  }
  const auto [it, added] = sizes_[value].emplace(axis, size);
  if (!added && it->second != size) {
    return Refuse(fmt::format("axis {} of '{}' would be {} and {} long", axis, value->name, it->second, size));
  }
  changed_ = changed_ || added;
  return Status::Ok();
}

Status ContextAxes::Set(const Operation& op, const Term& term, size_t axis, int64_t size) {
  if (term.size(axis) == kUnknownDim) {
    return Open(op, fmt::format("a size of {} is open, and only static shapes are set to another length",
                                TypeToString(*term.type)));
  }
  if (size < 1) return Open(op, fmt::format("axis {} of {} would be empty", axis, TypeToString(*term.type)));
  auto& sizes = sizes_[term.key];
  const auto it = sizes.find(axis);
  if (it != sizes.end()) {
    if (it->second == size) return Status::Ok();
    return Open(op, fmt::format("axis {} of {} '{}' would be {} and {} long", axis, TypeToString(*term.type),
                                term.value != nullptr ? term.value->name : "constant", it->second, size));
  }
  if (size == term.size(axis)) return Status::Ok();
  sizes.emplace(axis, size);
  changed_ = true;
  return Status::Ok();
}

Status ContextAxes::Link(const Operation& op, const Term& a, size_t axis_a, const Term& b, size_t axis_b,
                         int64_t more) {
  if (const auto size = Find(a, axis_a)) MW_RETURN_IF_ERROR(Set(op, b, axis_b, *size + more));
  if (const auto size = Find(b, axis_b)) MW_RETURN_IF_ERROR(Set(op, a, axis_a, *size - more));
  return Status::Ok();
}

Status ContextAxes::LinkAll(const Operation& op, const Term& a, const Term& b) {
  for (size_t axis = 0; axis < std::min(a.rank(), b.rank()); ++axis) MW_RETURN_IF_ERROR(Link(op, a, axis, b, axis));
  return Status::Ok();
}

Status ContextAxes::LinkBroadcast(const Operation& op, const Term& part, const Term& whole, size_t skip_last) {
  for (size_t i = skip_last + 1; i <= std::min(part.rank(), whole.rank()); ++i) {
    if (part.size(part.rank() - i) == 1) continue;
    MW_RETURN_IF_ERROR(Link(op, part, part.rank() - i, whole, whole.rank() - i));
  }
  return Status::Ok();
}

std::vector<const Operand*> ContextAxes::Operands(const Operation& op) {
  std::vector<const Operand*> operands;
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) operands.push_back(&operand);
  }
  return operands;
}

const Operand* ContextAxes::Only(const Operation& op, std::string_view parameter) {
  const Input* input = op.FindInput(parameter);
  return input != nullptr && input->arguments.size() == 1 ? &input->arguments.front() : nullptr;
}

bool ContextAxes::Touched(const Operation& op) const {
  const auto marked = [this](const void* key) { return sizes_.contains(key) && !sizes_.at(key).empty(); };
  return std::ranges::any_of(Operands(op), [&](const Operand* operand) { return marked(Term(*operand).key); }) ||
         std::ranges::any_of(op.outputs(), [&](const auto& output) { return marked(output.get()); }) ||
         std::ranges::any_of(op.blocks(), [&](const auto& block) {
           return std::ranges::any_of(block->inputs(), [&](const auto& input) { return marked(input.get()); }) ||
                  std::ranges::any_of(block->outputs(), [&](const Value* output) { return marked(output); });
         });
}

Status ContextAxes::Visit(Operation& op) {
  if (!Touched(op) || op.type() == "const") return Status::Ok();
  if (const Rule rule = RuleOf(op.type()); rule != nullptr) return (this->*rule)(op);
  return Open(op, "the length of the context reaches this operation, and what it demands of its shapes is not known");
}

Status ContextAxes::Run() {
  std::vector<Operation*> operations;
  ForEachOperation(function_.body(), [&operations](Operation& op) { operations.push_back(&op); });
  do {
    changed_ = false;
    for (Operation* op : operations) MW_RETURN_IF_ERROR(Visit(*op));
    for (auto it = operations.rbegin(); it != operations.rend(); ++it) MW_RETURN_IF_ERROR(Visit(**it));
    for (const auto& [a, b] : ties_) {
      for (size_t axis = 0; axis < a->type.shape().size(); ++axis) {
        if (const auto size = Size(a, axis)) MW_RETURN_IF_ERROR(Mark(b, axis, *size));
        if (const auto size = Size(b, axis)) MW_RETURN_IF_ERROR(Mark(a, axis, *size));
      }
    }
  } while (changed_);
  if (!open_tails_.empty()) {
    return Open(*open_tails_.begin()->first,
                "it takes the context from a fixed row to the end, and nothing says whether that part keeps its length "
                "or grows with the context");
  }
  return Status::Ok();
}

std::optional<Shape> ContextAxes::ShapeOf(const Value* value) const {
  const auto it = sizes_.find(value);
  if (it == sizes_.end() || it->second.empty()) return std::nullopt;
  Shape shape = value->type.shape();
  for (const auto& [axis, size] : it->second) shape[axis] = size;
  return shape;
}

std::optional<Shape> ContextAxes::ShapeOf(const Operand& constant) const {
  const auto it = sizes_.find(&constant);
  if (it == sizes_.end() || it->second.empty()) return std::nullopt;
  Shape shape = constant.type().shape();
  for (const auto& [axis, size] : it->second) shape[axis] = size;
  return shape;
}

Status ContextAxes::SetEntry(Operation& op, std::string_view parameter, size_t index, int64_t value) {
  const Operand* operand = Only(op, parameter);
  if (operand == nullptr) return Open(op, fmt::format("it has no parameter '{}'", parameter));
  if (const Literal* literal = operand->constant(); literal == nullptr) {
    const auto entries = VectorEntries(op, parameter, static_cast<size_t>(operand->type().shape().front()));
    if (!entries.has_value() || !(*entries)[index].constant.has_value()) {
      return Open(op, fmt::format("its '{}' is computed, so that a length in it cannot be set", parameter));
    }
  } else if (static_cast<int64_t>(index) >= literal->tensor.size()) {
    return Open(op, fmt::format("its '{}' has no entry {}", parameter, index));
  }
  entries_[&op][{std::string(parameter), index}] = value;
  return Status::Ok();
}

namespace {

// The parameter with entries replaced.
Operand WithEntries(Operation& op, const std::string& parameter, const std::map<size_t, int64_t>& changes,
                    Builder& builder) {
  const Operand& operand = op.FindInput(parameter)->arguments.front();
  if (const Literal* literal = operand.constant(); literal != nullptr) {
    Tensor tensor = literal->tensor;
    for (const auto& [index, value] : changes)
      tensor.SetDouble(static_cast<int64_t>(index), static_cast<double>(value));
    if (operand.value == nullptr) return Literal::Share(Literal(std::move(tensor)));
    return builder.Const(Literal(std::move(tensor)), operand.value->name);
  }
  auto entries = *VectorEntries(op, parameter, static_cast<size_t>(operand.type().shape().front()));
  for (const auto& [index, value] : changes) entries[index].constant = value;
  return MakeVector(builder, entries, operand.value->name);
}

}  // namespace

Status ContextAxes::Apply(Resize resize) {
  struct Constant {
    Operation* op;
    std::string input;
    size_t argument;
    Shape shape;
  };
  std::vector<Constant> constants;
  ForEachOperation(function_.body(), [&](Operation& op) {
    for (const Input& input : op.inputs()) {
      for (size_t i = 0; i < input.arguments.size(); ++i) {
        if (auto shape = ShapeOf(input.arguments[i])) constants.push_back({&op, input.name, i, *std::move(shape)});
      }
    }
  });
  std::vector<Value*> replaced;
  const auto forget = [&replaced](Value* value) {
    if (value != nullptr && std::ranges::find(replaced, value) == replaced.end()) replaced.push_back(value);
  };
  std::map<std::pair<const Value*, Shape>, Value*> made;
  for (const Constant& constant : constants) {
    const Operand& operand = constant.op->FindInput(constant.input)->arguments[constant.argument];
    const auto key = std::pair<const Value*, Shape>(operand.value, constant.shape);
    if (operand.value == nullptr || !made.contains(key)) {
      auto content = resize(*operand.constant(), constant.shape);
      if (!content.ok()) {
        return content.status().WithContext(fmt::format("{}: '{}' ({})", OperationPath(*constant.op),
                                                        operand.value != nullptr ? operand.value->name : constant.input,
                                                        TypeToString(operand.type())));
      }
      if (operand.value == nullptr) {
        constant.op->SetArgument(constant.input, constant.argument, Literal::Share(*std::move(content)));
        continue;
      }
      Operation* old = operand.value->producer();
      Builder builder(*old->parent(), old);
      made[key] = builder.Const(*std::move(content), operand.value->name);
      MW_RETURN_IF_ERROR(builder.status());
    }
    forget(operand.value);
    constant.op->SetArgument(constant.input, constant.argument, made[key]);
  }
  for (const auto& [op, entries] : entries_) {
    std::map<std::string, std::map<size_t, int64_t>> by_parameter;
    for (const auto& [entry, value] : entries) by_parameter[entry.first][entry.second] = value;
    for (const auto& [parameter, changes] : by_parameter) {
      Builder builder(*op->parent(), op);
      forget(op->FindInput(parameter)->arguments.front().value);
      op->SetInput(parameter, WithEntries(*op, parameter, changes, builder));
      MW_RETURN_IF_ERROR(builder.status());
    }
  }
  const auto retype = [this](Value& value) {
    if (const auto shape = ShapeOf(&value)) value.type.tensor.shape = *shape;
  };
  for (const auto& input : function_.inputs()) retype(*input);
  ForEachOperation(function_.body(), [&](Operation& op) {
    for (const auto& output : op.outputs()) retype(*output);
    for (const auto& block : op.blocks()) {
      for (const auto& input : block->inputs()) retype(*input);
    }
  });
  for (Value* value : replaced) {
    const std::string name = value->name;
    if (!value->uses().empty()) continue;
    EraseUnused(value);
    // What took its place takes its name.
    for (const auto& [key, fresh] : made) {
      if (key.first != value) continue;
      fresh->name = name;
      fresh->producer()->attributes["name"] = Literal::String(name);
    }
  }
  return Status::Ok();
}

}  // namespace milwright
