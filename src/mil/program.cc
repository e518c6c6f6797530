#include "mil/program.h"

#include <algorithm>
#include <cassert>

namespace milwright {

// ---- Value ----

const Literal* Value::constant() const {
  if (producer_ == nullptr || producer_->type() != "const") return nullptr;
  return producer_->FindAttribute("val");
}

void Value::ReplaceAllUsesWith(Value* other) {
  if (other == this) return;
  const std::vector<Use> uses = uses_;  // editing changes the list
  for (const Use& use : uses) {
    if (use.op != nullptr) {
      use.op->SetArgument(use.input, use.argument, Operand(other));
    } else {
      use.block->SetOutput(use.argument, other);
    }
  }
}

// ---- Operation ----

Operation::~Operation() = default;

std::string Operation::name() const {
  if (const Literal* name = FindAttribute("name"); name != nullptr && name->IsString()) return name->AsString();
  return outputs_.empty() ? type_ : outputs_.front()->name;
}

const Input* Operation::FindInput(std::string_view name) const {
  const auto it = std::ranges::lower_bound(inputs_, name, {}, &Input::name);
  return it != inputs_.end() && it->name == name ? &*it : nullptr;
}

Value* Operation::InputValue(std::string_view name) const {
  const Input* input = FindInput(name);
  return input != nullptr && input->arguments.size() == 1 ? input->arguments.front().value : nullptr;
}

const Literal* Operation::InputConstant(std::string_view name) const {
  const Input* input = FindInput(name);
  return input != nullptr && input->arguments.size() == 1 ? input->arguments.front().constant() : nullptr;
}

void Operation::AddInputUses(const Input& input) {
  for (size_t i = 0; i < input.arguments.size(); ++i) {
    if (Value* value = input.arguments[i].value; value != nullptr)
      value->uses_.push_back({this, input.name, nullptr, i});
  }
}

void Operation::DropInputUses(const Input& input) {
  for (size_t i = 0; i < input.arguments.size(); ++i) {
    if (Value* value = input.arguments[i].value; value != nullptr) {
      const auto it = std::ranges::find(value->uses_, Use{this, input.name, nullptr, i});
      assert(it != value->uses_.end());
      value->uses_.erase(it);
    }
  }
}

void Operation::SetInput(std::string_view name, std::vector<Operand> arguments) {
  auto it = std::ranges::lower_bound(inputs_, name, {}, &Input::name);
  if (it != inputs_.end() && it->name == name) {
    DropInputUses(*it);
    it->arguments = std::move(arguments);
  } else {
    it = inputs_.insert(it, Input{std::string(name), std::move(arguments)});
  }
  AddInputUses(*it);
}

void Operation::RemoveInput(std::string_view name) {
  const auto it = std::ranges::lower_bound(inputs_, name, {}, &Input::name);
  if (it == inputs_.end() || it->name != name) return;
  DropInputUses(*it);
  inputs_.erase(it);
}

void Operation::SetArgument(std::string_view input, size_t argument, Operand operand) {
  const auto it = std::ranges::lower_bound(inputs_, input, {}, &Input::name);
  assert(it != inputs_.end() && it->name == input && argument < it->arguments.size());
  Operand& slot = it->arguments[argument];
  if (slot.value != nullptr) {
    slot.value->uses_.erase(std::ranges::find(slot.value->uses_, Use{this, it->name, nullptr, argument}));
  }
  slot = std::move(operand);
  if (slot.value != nullptr) slot.value->uses_.push_back({this, it->name, nullptr, argument});
}

Value* Operation::AddOutput(std::string name, Type type) {
  outputs_.push_back(std::make_unique<Value>(std::move(name), std::move(type)));
  outputs_.back()->producer_ = this;
  outputs_.back()->index_ = outputs_.size() - 1;
  return outputs_.back().get();
}

Block* Operation::AddBlock() {
  blocks_.push_back(std::make_unique<Block>(parent_ != nullptr ? parent_->function() : nullptr, this));
  return blocks_.back().get();
}

const Literal* Operation::FindAttribute(std::string_view name) const {
  const auto it = attributes.find(name);
  return it != attributes.end() ? &it->second : nullptr;
}

// ---- Block ----

Block::~Block() {
  // Readers die before what they read; nothing is left that could look at a use list, so the lists need no upkeep.
  outputs_.clear();
  while (!operations_.empty()) operations_.pop_back();
}

Value* Block::AddInput(std::string name, Type type) {
  inputs_.push_back(std::make_unique<Value>(std::move(name), std::move(type)));
  inputs_.back()->owner_block_ = this;
  inputs_.back()->index_ = inputs_.size() - 1;
  return inputs_.back().get();
}

Operation* Block::Insert(std::unique_ptr<Operation> op, Operation* before) {
  assert(before == nullptr || before->parent_ == this);
  const auto place = before != nullptr ? before->position_ : operations_.end();
  const auto it = operations_.insert(place, std::move(op));
  (*it)->position_ = it;
  (*it)->parent_ = this;
  for (const auto& block : (*it)->blocks_) block->function_ = function_;
  return it->get();
}

void Block::Move(Operation* op, Operation* before) {
  assert(op->parent_ == this && op != before);
  operations_.splice(before != nullptr ? before->position_ : operations_.end(), operations_, op->position_);
}

void Block::Erase(Operation* op) {
  assert(op->parent_ == this);
  // Nested operations read outer values: release those uses first, innermost last in program order.
  for (const auto& block : op->blocks_) {
    block->SetOutputs({});
    while (!block->operations_.empty()) block->Erase(block->operations_.back().get());
  }
  for (const Input& input : op->inputs_) op->DropInputUses(input);
  assert(std::ranges::all_of(op->outputs_, [](const auto& value) { return value->uses().empty(); }));
  operations_.erase(op->position_);
}

Operation* Block::Next(const Operation* op) const {
  const auto next = std::next(op->position_);
  return next == operations_.end() ? nullptr : next->get();
}

Operation* Block::Previous(const Operation* op) const {
  return op->position_ == operations_.begin() ? nullptr : std::prev(op->position_)->get();
}

void Block::SetOutputs(std::vector<Value*> outputs) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    auto& uses = outputs_[i]->uses_;
    uses.erase(std::ranges::find(uses, Use{nullptr, {}, this, i}));
  }
  outputs_ = std::move(outputs);
  for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i]->uses_.push_back({nullptr, {}, this, i});
}

void Block::SetOutput(size_t i, Value* value) {
  auto& uses = outputs_[i]->uses_;
  uses.erase(std::ranges::find(uses, Use{nullptr, {}, this, i}));
  outputs_[i] = value;
  value->uses_.push_back({nullptr, {}, this, i});
}

// ---- Function ----

Function::~Function() { body_.reset(); }

Value* Function::FindInput(std::string_view name) const {
  for (const auto& input : inputs_) {
    if (input->name == name) return input.get();
  }
  return nullptr;
}

Value* Function::AddInput(std::string name, Type type) {
  return InsertInput(inputs_.size(), std::move(name), std::move(type));
}

Value* Function::InsertInput(size_t index, std::string name, Type type) {
  const auto it = inputs_.insert(inputs_.begin() + static_cast<std::ptrdiff_t>(index),
                                 std::make_unique<Value>(std::move(name), std::move(type)));
  Value* value = it->get();
  for (size_t i = index; i < inputs_.size(); ++i) inputs_[i]->index_ = i;
  return value;
}

void Function::EraseInput(Value* input) {
  assert(input->uses().empty());
  std::erase_if(inputs_, [input](const auto& candidate) { return candidate.get() == input; });
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i]->index_ = i;
}

std::vector<Value*> Function::TensorInputs() const {
  std::vector<Value*> values;
  for (const auto& input : inputs_) {
    if (!input->type.IsState()) values.push_back(input.get());
  }
  return values;
}

std::vector<Value*> Function::States() const {
  std::vector<Value*> values;
  for (const auto& input : inputs_) {
    if (input->type.IsState()) values.push_back(input.get());
  }
  return values;
}

std::unordered_set<std::string> Function::Names() const {
  std::unordered_set<std::string> names;
  for (const auto& input : inputs_) names.insert(input->name);
  ForEachOperation(*body_, [&names](const Operation& op) {
    for (const auto& output : op.outputs()) names.insert(output->name);
    for (const auto& nested : op.blocks()) {
      for (const auto& input : nested->inputs()) names.insert(input->name);
    }
  });
  return names;
}

std::string Function::UniqueName(std::string_view base) const {
  const std::unordered_set<std::string> names = Names();
  std::string candidate(base);
  for (size_t i = 0; names.contains(candidate); ++i) candidate = std::string(base) + "_" + std::to_string(i);
  return candidate;
}

// ---- Program ----

Function* Program::FindFunction(std::string_view name) const {
  for (const auto& function : functions_) {
    if (function->name == name) return function.get();
  }
  return nullptr;
}

Function* Program::AddFunction(std::string name, Opset opset) {
  return AddFunction(std::make_unique<Function>(std::move(name), opset));
}

Function* Program::AddFunction(std::unique_ptr<Function> function) {
  functions_.push_back(std::move(function));
  return functions_.back().get();
}

void Program::EraseFunction(std::string_view name) {
  std::erase_if(functions_, [name](const auto& function) { return function->name == name; });
}

Program Program::Clone() const {
  Program copy;
  copy.version = version;
  copy.doc_string = doc_string;
  copy.attributes = attributes;
  copy.unknown_fields = unknown_fields;
  for (const auto& function : functions_) copy.AddFunction(CloneFunction(*function));
  return copy;
}

namespace {

Value* Mapped(const ValueMap& map, Value* value) {
  const auto it = map.find(value);
  return it != map.end() ? it->second : value;
}

void CloneBlockInto(const Block& source, Block& target, ValueMap& map) {
  for (const auto& input : source.inputs()) map[input.get()] = target.AddInput(input->name, input->type);
  for (const auto& op : source.operations()) CloneOperation(*op, target, nullptr, map);
  std::vector<Value*> outputs;
  for (Value* output : source.outputs()) outputs.push_back(Mapped(map, output));
  target.SetOutputs(std::move(outputs));
  target.attributes = source.attributes;
  target.unknown_fields = source.unknown_fields;
}

}  // namespace

Operation* CloneOperation(const Operation& op, Block& target, Operation* before, ValueMap& map) {
  auto copy = std::make_unique<Operation>(op.type());
  copy->attributes = op.attributes;
  copy->unknown_fields = op.unknown_fields;
  Operation* placed = target.Insert(std::move(copy), before);
  for (const Input& input : op.inputs()) {
    std::vector<Operand> arguments;
    arguments.reserve(input.arguments.size());
    for (const Operand& operand : input.arguments) {
      if (operand.value != nullptr) {
        arguments.emplace_back(Mapped(map, operand.value));
      } else {
        arguments.push_back(operand);
      }
    }
    placed->SetInput(input.name, std::move(arguments));
  }
  for (const auto& nested : op.blocks()) CloneBlockInto(*nested, *placed->AddBlock(), map);
  for (const auto& output : op.outputs()) map[output.get()] = placed->AddOutput(output->name, output->type);
  return placed;
}

std::unique_ptr<Function> CloneFunction(const Function& function) {
  auto copy = std::make_unique<Function>(function.name, function.opset);
  copy->attributes = function.attributes;
  copy->unknown_fields = function.unknown_fields;
  ValueMap map;
  for (const auto& input : function.inputs()) map[input.get()] = copy->AddInput(input->name, input->type);
  CloneBlockInto(function.body(), copy->body(), map);
  return copy;
}

void ForEachOperation(const Block& block, const std::function<void(Operation&)>& visit) {
  for (const auto& op : block.operations()) {
    visit(*op);
    for (const auto& nested : op->blocks()) ForEachOperation(*nested, visit);
  }
}

std::string OperationPath(const Operation& op) {
  std::string path = "op";
  const Block* block = op.parent();
  size_t index = 0;
  if (block != nullptr) {
    for (const auto& candidate : block->operations()) {
      if (candidate.get() == &op) break;
      ++index;
    }
  }
  path += " " + std::to_string(index) + " '" + op.name() + "' (" + op.type() + ")";
  while (block != nullptr) {
    const Operation* parent = block->parent();
    if (parent == nullptr) {
      if (block->function() != nullptr) path.insert(0, block->function()->name + "/");
      break;
    }
    size_t number = 0;
    while (parent->blocks()[number].get() != block) ++number;
    path.insert(0, "'" + parent->name() + "'/block" + std::to_string(number) + "/");
    block = parent->parent();
  }
  return path;
}

}  // namespace milwright
