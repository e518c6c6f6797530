#include "ops/builder.h"

#include "ops/infer.h"

namespace milwright {

namespace {

bool TakesLiteralsInPlace(std::string_view type) { return type.starts_with("constexpr_"); }

}  // namespace

Value* Builder::Const(Literal literal, std::string_view name) {
  if (!status_.ok()) return nullptr;
  auto op = std::make_unique<Operation>("const");
  Value* value = op->AddOutput(UniqueName(name), literal.type);
  op->attributes.emplace("name", Literal::String(value->name));
  op->attributes.emplace("val", std::move(literal));
  block_->Insert(std::move(op), before_);
  return value;
}

Value* Builder::Op(std::string_view type, std::vector<Binding> bindings, std::string_view name) {
  const std::vector<Value*> outputs = Ops(type, std::move(bindings), name);
  return outputs.size() == 1 ? outputs.front() : nullptr;
}

std::vector<Value*> Builder::Ops(std::string_view type, std::vector<Binding> bindings, std::string_view name) {
  if (!status_.ok()) return {};
  const Opset opset = function().opset;
  const OpDefinition* definition = OpRegistry::Get().Find(type, opset);
  if (definition == nullptr) {
    status_ = Status(ErrorCode::kInvalidProgram,
                     std::string(type) + " does not exist in opset " + std::string(OpsetName(opset)));
    return {};
  }
  const std::string base = UniqueName(name.empty() ? type : name);
  auto op = std::make_unique<Operation>(std::string(type));
  for (Binding& binding : bindings) {
    const ParameterSpec* spec = definition->Find(binding.name);
    std::vector<Operand> arguments;
    bool as_attribute = false;
    for (Operand& argument : binding.arguments) {
      if (argument.value == nullptr && argument.literal == nullptr) {
        status_ =
            Status(ErrorCode::kInternal, base + ": parameter '" + std::string(binding.name) + "' is bound to nothing");
        return {};
      }
      if (argument.literal == nullptr || TakesLiteralsInPlace(type)) {
        if (argument.literal != nullptr && spec != nullptr && spec->attribute) {
          op->attributes.emplace(std::string(binding.name), *argument.literal);
          as_attribute = true;
        } else {
          arguments.push_back(std::move(argument));
        }
      } else {
        arguments.emplace_back(Const(*argument.literal, base + "_" + std::string(binding.name)));
      }
    }
    if (!as_attribute) op->SetInput(binding.name, std::move(arguments));
  }
  op->attributes.emplace("name", Literal::String(base));
  Operation* placed = block_->Insert(std::move(op), before_);
  auto types = InferOperation(*placed, opset);
  if (!types.ok()) {
    status_ = types.status().WithContext(base);
    block_->Erase(placed);
    return {};
  }
  std::vector<Value*> outputs;
  for (size_t i = 0; i < types->size(); ++i) {
    const std::string output_name = types->size() == 1 ? base : UniqueName(base + "_" + std::to_string(i));
    outputs.push_back(placed->AddOutput(output_name, std::move((*types)[i])));
  }
  return outputs;
}

Value* Builder::ReadState(Value* state, std::string_view name) {
  return Op("read_state", {{"input", state}},
            name.empty() && state != nullptr ? state->name + "_read" : std::string(name));
}

void Builder::WriteState(Value* state, Value* data, std::string_view name) {
  Ops("write_state", {{"input", state}, {"data", data}},
      name.empty() && state != nullptr ? state->name + "_write" : std::string(name));
}

std::string Builder::UniqueName(std::string_view base) {
  if (names_.empty()) names_ = function().Names();
  std::string name(base);
  for (size_t i = 0; !names_.insert(name).second; ++i) name = std::string(base) + "_" + std::to_string(i);
  return name;
}

}  // namespace milwright
