#include "passes/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "passes/entries.h"

namespace milwright {

Result<bool> BoolOption(const PassArguments& arguments, std::string_view key, bool fallback) {
  if (!arguments.Has(key)) return fallback;
  const std::string text = arguments.String(key);
  if (text != "true" && text != "false") return Usage(fmt::format("option '{}' is true or false, not '{}'", key, text));
  return text == "true";
}

namespace {

std::vector<std::string> StateNames(const Program& program) {
  std::vector<std::string> names;
  for (const auto& function : program.functions()) {
    for (const Value* state : function->States()) {
      if (std::ranges::find(names, state->name) == names.end()) names.push_back(state->name);
    }
  }
  return names;
}

Result<std::unordered_set<std::string>> NamesOfRoles(const Program& program, const std::vector<std::string>& roles) {
  std::vector<StateRole> wanted;
  for (const std::string& role : roles) {
    const auto known = StateRoleFromName(role);
    if (!known.has_value()) {
      return Usage(
          fmt::format("'{}' is no role of a state; the roles are kv, conv, recurrent, accumulator, unknown", role));
    }
    wanted.push_back(*known);
  }
  std::unordered_set<std::string> names;
  if (wanted.empty()) return names;
  for (const auto& function : program.functions()) {
    const FunctionStates states = AnalyzeStates(*function);
    for (const StateFacts& facts : states.states) {
      if (std::ranges::find(wanted, facts.role) != wanted.end()) names.insert(facts.state->name);
    }
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> ChooseStates(const ModelSpec& model, const PassArguments& arguments) {
  const std::vector<std::string> all = StateNames(model.program);
  if (all.empty()) return Refuse("the package has no states");
  if (!arguments.Has("states") && !arguments.Has("roles") && !arguments.Has("indices")) return all;
  MW_ASSIGN_OR_RETURN(std::unordered_set<std::string> chosen, NamesOfRoles(model.program, arguments.List("roles")));
  for (const std::string& name : arguments.List("states")) {
    if (std::ranges::find(all, name) == all.end()) {
      return Refuse(fmt::format("there is no state '{}'; the states are: {}", name, fmt::join(all, ", ")));
    }
    chosen.insert(name);
  }
  for (const std::string& text : arguments.List("indices")) {
    size_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size() || index >= all.size()) {
      return Usage(fmt::format("'{}' is no index of a state; the package has {} states", text, all.size()));
    }
    chosen.insert(all[index]);
  }
  std::vector<std::string> names;
  std::ranges::copy_if(all, std::back_inserter(names), [&](const std::string& name) { return chosen.contains(name); });
  if (names.empty()) return Refuse(fmt::format("no state has the role {}", fmt::join(arguments.List("roles"), " or ")));
  return names;
}

Result<Type> SharedStateType(const Program& program, const std::string& name) {
  const Value* first = nullptr;
  for (const auto& function : program.functions()) {
    for (const Value* state : function->States()) {
      if (state->name != name) continue;
      if (first != nullptr && !(first->type == state->type)) {
        return Refuse(fmt::format("state '{}' is {} and {} in different functions", name, TypeToString(first->type),
                                  TypeToString(state->type)));
      }
      first = state;
    }
  }
  if (first == nullptr) return Refuse(fmt::format("there is no state '{}'", name));
  return first->type;
}

Status CheckSharedState(const Program& program, const std::string& name) {
  const Result<Type> type = SharedStateType(program, name);
  return type.status();
}

namespace {

// What `fresh` says about a feature, with what an older entry knew besides.
bool StillDescribes(const FeatureDescription& old, const FeatureDescription& fresh) {
  if (old.name != fresh.name) return false;
  const bool array = old.type.kind == FeatureType::Kind::kMultiArray || old.type.kind == FeatureType::Kind::kState;
  return !array || fresh.type.array.shape.empty() || old.type.array.shape.empty() ||
         old.type.array.shape == fresh.type.array.shape;
}

const FeatureDescription* FindFeature(const FunctionDescription& description, const std::string& name) {
  for (const auto* features : {&description.inputs, &description.outputs, &description.states}) {
    const auto it = std::ranges::find(*features, name, &FeatureDescription::name);
    if (it != features->end()) return &*it;
  }
  return nullptr;
}

void Refresh(std::vector<FeatureDescription>& features, const std::vector<FeatureDescription>& fresh,
             const FunctionDescription& before) {
  std::vector<FeatureDescription> kept;
  for (const FeatureDescription& old : features) {
    const auto it = std::ranges::find(fresh, old.name, &FeatureDescription::name);
    if (it == fresh.end()) continue;
    kept.push_back(StillDescribes(old, *it) ? old : *it);
    if (!StillDescribes(old, *it)) kept.back().short_description = old.short_description;
  }
  for (const FeatureDescription& feature : fresh) {
    if (std::ranges::find(kept, feature.name, &FeatureDescription::name) != kept.end()) continue;
    kept.push_back(feature);
    if (const FeatureDescription* old = FindFeature(before, feature.name); old != nullptr) {
      kept.back().short_description = old->short_description;
    }
  }
  features = std::move(kept);
}

}  // namespace

void RefreshDescription(ModelSpec& model) {
  for (const auto& function : model.program.functions()) {
    FunctionDescription* description = model.description.Find(function->name);
    if (description == nullptr) continue;
    const FunctionDescription before = *description;
    const FunctionDescription fresh = DescribeFunction(*function);
    Refresh(description->inputs, fresh.inputs, before);
    Refresh(description->outputs, fresh.outputs, before);
    Refresh(description->states, fresh.states, before);
  }
}

Status EnsureOpset(ModelSpec& model, Opset opset, PassReport& report) {
  const bool older =
      std::ranges::any_of(model.program.functions(), [opset](const auto& function) { return function->opset < opset; });
  if (!older) return Status::Ok();
  report.notes.push_back(fmt::format("opset {} now", OpsetName(opset)));
  return SetOpset(model, PassArguments({{"opset", std::string(OpsetName(opset))}}), report);
}

std::string UniqueFeatureName(const Program& program, std::string_view base) {
  std::unordered_set<std::string> names;
  for (const auto& function : program.functions()) {
    for (const auto& input : function->inputs()) names.insert(input->name);
    for (const Value* output : function->body().outputs()) names.insert(output->name);
  }
  std::string candidate(base);
  for (size_t i = 0; names.contains(candidate); ++i) candidate = fmt::format("{}_{}", base, i);
  return candidate;
}

void ReleaseName(Function& function, const std::string& name) {
  const auto rename = [&](Value& value) {
    if (value.name == name && !IsFunctionOutput(value)) value.name = function.UniqueName(name + "_value");
  };
  ForEachOperation(function.body(), [&rename](const Operation& op) {
    for (const auto& output : op.outputs()) rename(*output);
    for (const auto& block : op.blocks()) {
      for (const auto& input : block->inputs()) rename(*input);
    }
  });
}

bool IsFunctionOutput(const Value& value) {
  return std::ranges::any_of(value.uses(),
                             [](const Use& use) { return use.op == nullptr && use.block->parent() == nullptr; });
}

Value* AddTensorInput(Function& function, std::string name, Type type) {
  return function.InsertInput(function.TensorInputs().size(), std::move(name), std::move(type));
}

void EraseUnused(Value* value) {
  std::vector<Value*> pending{value};
  while (!pending.empty()) {
    Operation* op = pending.back()->producer();
    pending.pop_back();
    if (op == nullptr || HasEffect(*op) || !op->blocks().empty()) continue;
    if (std::ranges::any_of(op->outputs(), [](const auto& output) { return !output->uses().empty(); })) continue;
    std::vector<Value*> operands;
    for (const Input& input : op->inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && std::ranges::find(operands, operand.value) == operands.end()) {
          operands.push_back(operand.value);
        }
      }
    }
    // What is about to go may wait in the list as well.
    std::erase_if(pending, [op](const Value* waiting) { return waiting->producer() == op; });
    op->parent()->Erase(op);
    pending.insert(pending.end(), operands.begin(), operands.end());
  }
}

Operation* AncestorIn(const Block& block, Operation* op) {
  while (op != nullptr && op->parent() != &block) op = op->parent()->parent();
  return op;
}

Result<Value*> PositionInput(Function& function, const std::string& name, PassReport& report) {
  if (Value* input = function.FindInput(name); input != nullptr) {
    const auto count = ElementCount(input->type.shape());
    if (!input->type.IsTensor() || input->type.dtype() != DataType::kInt32 || !count.ok() || *count != 1) {
      return Refuse(
          fmt::format("'{}' of '{}' is {}; a position is one int32", name, function.name, TypeToString(input->type)));
    }
    return input;
  }
  const auto& outputs = function.body().outputs();
  if (std::ranges::find(outputs, name, &Value::name) != outputs.end()) {
    return Refuse(fmt::format("'{}' is an output of '{}', so it cannot be the position", name, function.name));
  }
  ReleaseName(function, name);
  report.notes.push_back(fmt::format("added the input '{}' (int32, [1]) to '{}'", name, function.name));
  return AddTensorInput(function, name, Type::Tensor(DataType::kInt32, {1}));
}

Value* AsVector(Builder& builder, Value* x) {
  if (x == nullptr || x->type.shape() == Shape{1}) return x;
  return builder.Op("reshape", {{"x", x}, {"shape", Literal::Int32s({1})}}, x->name + "_vector");
}

Value* Slice(Builder& builder, Value* x, const Shape& begin, const Shape& end, std::string_view name) {
  if (x == nullptr) return nullptr;
  const bool whole = end == x->type.shape() && std::ranges::all_of(begin, [](int64_t b) { return b == 0; });
  if (whole) return x;
  return builder.Op("slice_by_index", {{"x", x}, {"begin", Literal::Int32s(begin)}, {"end", Literal::Int32s(end)}},
                    name);
}

std::optional<std::vector<VectorEntry>> VectorEntries(const Operation& op, std::string_view parameter, size_t rank) {
  std::vector<VectorEntry> entries;
  const auto add = [&entries](const Literal& literal) {
    for (int64_t i = 0; i < literal.tensor.size(); ++i) entries.push_back({literal.tensor.GetInt(i), nullptr});
  };
  const Input* input = op.FindInput(parameter);
  if (input == nullptr || input->arguments.size() != 1 || input->arguments.front().type().dtype() != DataType::kInt32)
    return std::nullopt;
  if (const Literal* literal = input->arguments.front().constant(); literal != nullptr) {
    add(*literal);
  } else {
    const Operation* concat = input->arguments.front().value->producer();
    if (concat == nullptr || concat->type() != "concat") {
      if (rank != 1) return std::nullopt;
      entries.push_back({std::nullopt, input->arguments.front().value});
      return entries;
    }
    for (const Operand& operand : concat->FindInput("values")->arguments) {
      if (const Literal* literal = operand.constant(); literal != nullptr) {
        add(*literal);
      } else if (operand.type().shape() == Shape{1}) {
        entries.push_back({std::nullopt, operand.value});
      } else {
        return std::nullopt;
      }
    }
  }
  if (entries.size() != rank) return std::nullopt;
  return entries;
}

Value* MakeVector(Builder& builder, const std::vector<VectorEntry>& entries, std::string_view name) {
  std::vector<int64_t> constants;
  for (const VectorEntry& entry : entries) {
    if (entry.constant.has_value()) constants.push_back(*entry.constant);
  }
  if (constants.size() == entries.size()) return builder.Const(Literal::Int32s(constants), name);
  std::vector<Value*> values;
  values.reserve(entries.size());
  for (const VectorEntry& entry : entries) {
    values.push_back(entry.constant.has_value()
                         ? builder.Const(Literal::Int32s({*entry.constant}), std::string(name) + "_entry")
                         : AsVector(builder, entry.value));
  }
  return builder.Op("concat", {{"values", values}, {"axis", Literal::Int32(0)}, {"interleave", Literal::Bool(false)}},
                    name);
}

std::vector<int64_t> AxisConstants(const Operation& op, std::string_view parameter, size_t rank, int64_t fallback) {
  const Literal* literal = op.InputConstant(parameter);
  if (literal == nullptr || literal->tensor.size() != static_cast<int64_t>(rank)) {
    return std::vector<int64_t>(rank, fallback);
  }
  return literal->tensor.ToInts();
}

}  // namespace milwright
