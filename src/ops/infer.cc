#include "ops/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/errors.h"

namespace milwright {
namespace {

// Pre-iOS18 constexpr ops keep their parameters in attributes; every op has the attribute "name".
const Literal* AttributeParameter(const Operation& op, const ParameterSpec& spec) {
  return spec.attribute ? op.FindAttribute(spec.name) : nullptr;
}

Status CheckTypes(const ParameterSpec& spec, const Operand& operand) {
  const Type& type = operand.type();
  switch (spec.kind) {
    case ParameterSpec::Kind::kState:
      return type.IsState()
                 ? Status::Ok()
                 : Invalid(fmt::format("parameter '{}' expects a state, but got {}", spec.name, TypeToString(type)));
    case ParameterSpec::Kind::kList:
      return type.IsList()
                 ? Status::Ok()
                 : Invalid(fmt::format("parameter '{}' expects a list, but got {}", spec.name, TypeToString(type)));
    case ParameterSpec::Kind::kAny:
      return Status::Ok();
    case ParameterSpec::Kind::kTensor:
    case ParameterSpec::Kind::kVariadic:
      break;
  }
  if (!type.IsTensor()) {
    return Invalid(fmt::format("parameter '{}' expects a tensor, but got {}", spec.name, TypeToString(type)));
  }
  if (!spec.types.Contains(type.dtype())) {
    // coremltools gives norm-type ops an fp32 default epsilon even where x is fp16 (op-semantics.md, section 2).
    const bool float_scalar = spec.constant && IsFloat(type.dtype()) &&
                              (spec.types.Contains(DataType::kFp16) || spec.types.Contains(DataType::kFp32));
    if (!float_scalar) {
      return Invalid(fmt::format("parameter '{}' does not take {}", spec.name, DataTypeName(type.dtype())));
    }
  }
  return Status::Ok();
}

}  // namespace

bool TypesAgree(const Type& inferred, const Type& declared) {
  if (inferred.kind != declared.kind || inferred.elements.size() != declared.elements.size()) return false;
  for (size_t i = 0; i < inferred.elements.size(); ++i) {
    if (!TypesAgree(inferred.elements[i], declared.elements[i])) return false;
  }
  if (inferred.kind == Type::Kind::kList) return true;  // the length of a dynamic list is not fixed by its ops
  if (inferred.tensor.dtype != declared.tensor.dtype || inferred.rank() != declared.rank()) return false;
  for (size_t i = 0; i < inferred.shape().size(); ++i) {
    const int64_t mine = inferred.shape()[i];
    if (mine != kUnknownDim && declared.shape()[i] != kUnknownDim && mine != declared.shape()[i]) return false;
  }
  return true;
}

Result<std::vector<Type>> InferOperation(const Operation& op, Opset opset) {
  const OpRegistry& registry = OpRegistry::Get();
  const OpDefinition* definition = registry.Find(op.type(), opset);
  if (definition == nullptr) {
    if (const auto first = registry.FirstOpset(op.type()); first.has_value()) {
      return Invalid(fmt::format("the op '{}' exists from opset {} on, but the function uses {}", op.type(),
                                 OpsetName(*first), OpsetName(opset)));
    }
    return Invalid(fmt::format("the op '{}' is not known in any opset", op.type()));
  }
  OpContext ctx(*definition, opset);
  std::map<std::string_view, DataType> domains;
  for (const Input& input : op.inputs()) {
    const ParameterSpec* spec = definition->Find(input.name);
    if (spec == nullptr)
      return Invalid(fmt::format("{} has no parameter '{}' in opset {}", op.type(), input.name, OpsetName(opset)));
    if (spec->kind != ParameterSpec::Kind::kVariadic && spec->kind != ParameterSpec::Kind::kAny &&
        input.arguments.size() != 1) {
      return Invalid(fmt::format("parameter '{}' takes one argument, but has {}", input.name, input.arguments.size()));
    }
    if (input.arguments.empty()) return Invalid(fmt::format("parameter '{}' has no argument", input.name));
    std::vector<OpContext::Argument> arguments;
    for (const Operand& operand : input.arguments) {
      MW_RETURN_IF_ERROR(CheckTypes(*spec, operand));
      if (!spec->domain.empty() && !spec->constant) {
        const auto [it, added] = domains.emplace(spec->domain, operand.type().dtype());
        if (!added && it->second != operand.type().dtype()) {
          return Invalid(fmt::format("parameter '{}' is {}, but the others of its kind are {}", input.name,
                                     DataTypeName(operand.type().dtype()), DataTypeName(it->second)));
        }
      }
      const Literal* constant = operand.constant();
      // constexpr values may come from another constexpr op: constant, though not known without decoding.
      const bool from_constexpr = operand.value != nullptr && operand.value->producer() != nullptr &&
                                  operand.value->producer()->type().starts_with("constexpr_");
      if (spec->constant && constant == nullptr && !from_constexpr) {
        return Invalid(fmt::format("parameter '{}' must be a constant", input.name));
      }
      arguments.push_back({&operand.type(), constant});
    }
    ctx.Bind(spec->name, std::move(arguments));
  }
  for (const ParameterSpec& spec : definition->parameters) {
    if (const Literal* attribute = AttributeParameter(op, spec); attribute != nullptr) {
      MW_RETURN_IF_ERROR(CheckTypes(spec, Operand(std::make_shared<const Literal>(*attribute))));
      ctx.Bind(spec.name, {{&attribute->type, attribute}});
    } else if (!spec.optional && !ctx.Has(spec.name)) {
      return Invalid(fmt::format("the {} '{}' of {} is missing", spec.attribute ? "attribute" : "parameter", spec.name,
                                 op.type()));
    }
  }
  if (op.blocks().size() != static_cast<size_t>(definition->blocks)) {
    return Invalid(
        fmt::format("{} takes {} nested blocks, but has {}", op.type(), definition->blocks, op.blocks().size()));
  }
  std::vector<const Type*> declared;
  for (const auto& output : op.outputs()) declared.push_back(&output->type);
  ctx.BindDeclared(std::move(declared));
  return definition->infer(ctx);
}

namespace {

class Verifier {
 public:
  Verifier(const VerifyOptions& options, std::vector<Status>& errors) : options_(options), errors_(errors) {}

  void FunctionBody(const Function& function) {
    function_ = &function;
    defined_.clear();
    names_.clear();
    for (const auto& input : function.inputs()) Define(*input, nullptr, function.name);
    BlockBody(function.body(), function.name);
  }

 private:
  [[nodiscard]] bool Full() const { return errors_.size() >= options_.max_errors; }
  void Report(std::string place, std::string_view what) {
    if (!Full()) errors_.push_back(Invalid(fmt::format("{}: {}", place, what)));
  }

  // `op` defines the value; null: an input of `place`. Paths are made on error only: they cost a walk of the block.
  void Define(const Value& value, const Operation* op, const std::string& place) {
    defined_.insert(&value);
    const bool named = !value.name.empty();
    if (named && names_.insert(value.name).second) return;
    Report(op != nullptr ? OperationPath(*op) : place,
           named ? fmt::format("the name '{}' is defined twice", value.name) : "a value has no name");
  }

  void BlockBody(const Block& block, const std::string& place) {
    // What a nested block defines is not visible outside it, and its names may be used again in its sibling blocks.
    std::vector<const Value*> local;
    const auto define = [&](const Value& value, const Operation* op) {
      Define(value, op, place);
      local.push_back(&value);
    };
    for (const auto& input : block.inputs()) define(*input, nullptr);
    for (const auto& op : block.operations()) {
      if (Full()) return;
      CheckOperation(*op);
      for (const auto& nested : op->blocks()) BlockBody(*nested, OperationPath(*op));
      for (const auto& output : op->outputs()) define(*output, op.get());
    }
    for (const Value* output : block.outputs()) {
      if (!defined_.contains(output))
        Report(place, fmt::format("the output '{}' is not defined in this block", output->name));
      if (output->type.IsState())
        Report(place, fmt::format("the output '{}' is a state; a block never outputs a state", output->name));
    }
    if (block.parent() == nullptr) return;
    for (const Value* value : local) {
      defined_.erase(value);
      names_.erase(value->name);
    }
  }

  void CheckOperation(const Operation& op) {
    for (const Input& input : op.inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && !defined_.contains(operand.value)) {
          return Report(OperationPath(op), fmt::format("parameter '{}' reads '{}', which is not defined before it",
                                                       input.name, operand.value->name));
        }
      }
    }
    auto inferred = InferOperation(op, function_->opset);
    if (!inferred.ok()) return Report(OperationPath(op), inferred.status().message());
    if (inferred->size() != op.outputs().size()) {
      return Report(OperationPath(op), fmt::format("{} gives {} outputs, but {} are recorded", op.type(),
                                                   inferred->size(), op.outputs().size()));
    }
    for (size_t i = 0; options_.check_types && i < inferred->size(); ++i) {
      const Value& output = *op.outputs()[i];
      if (!TypesAgree((*inferred)[i], output.type)) {
        Report(OperationPath(op), fmt::format("the value '{}' is recorded as {}, but {} gives {}", output.name,
                                              TypeToString(output.type), op.type(), TypeToString((*inferred)[i])));
      }
    }
  }

  const VerifyOptions& options_;
  std::vector<Status>& errors_;
  const Function* function_ = nullptr;
  std::unordered_set<const Value*> defined_;
  std::set<std::string_view> names_;
};

}  // namespace

std::vector<Status> VerifyProgram(const Program& program, const VerifyOptions& options) {
  std::vector<Status> errors;
  if (program.functions().empty()) errors.push_back(Invalid("the program has no function"));
  std::set<std::string_view> names;
  Verifier verifier(options, errors);
  for (const auto& function : program.functions()) {
    if (!names.insert(function->name).second)
      errors.push_back(Invalid(fmt::format("the function '{}' is defined twice", function->name)));
    verifier.FunctionBody(*function);
  }
  return errors;
}

Status Verify(const Program& program) {
  const std::vector<Status> errors = VerifyProgram(program, {.max_errors = 1});
  return errors.empty() ? Status::Ok() : errors.front();
}

namespace {

// A loop variable keeps its type through the body, so block inputs follow the op's operands.
void SeedBlockInputs(Operation& op) {
  if (op.type() != "while_loop") return;
  const Input* loop_vars = op.FindInput("loop_vars");
  for (const auto& nested : op.blocks()) {
    for (size_t i = 0; loop_vars != nullptr && i < nested->inputs().size() && i < loop_vars->arguments.size(); ++i) {
      nested->inputs()[i]->type = loop_vars->arguments[i].type();
    }
  }
}

Status ReinferBlock(Block& block, Opset opset) {
  for (const auto& op : block.operations()) {
    SeedBlockInputs(*op);
    for (const auto& nested : op->blocks()) MW_RETURN_IF_ERROR(ReinferBlock(*nested, opset));
    if (op->type() == "cond" || op->type() == "while_loop") {
      const std::vector<Value*>& results =
          op->type() == "cond" ? op->blocks()[0]->outputs() : op->blocks()[1]->outputs();
      for (size_t i = 0; i < op->outputs().size() && i < results.size(); ++i) op->output(i)->type = results[i]->type;
      continue;
    }
    auto types = InferOperation(*op, opset);
    if (!types.ok()) return types.status().WithContext(OperationPath(*op));
    for (size_t i = 0; i < op->outputs().size() && i < types->size(); ++i) op->output(i)->type = std::move((*types)[i]);
  }
  return Status::Ok();
}

}  // namespace

Status ReinferTypes(Function& function) { return ReinferBlock(function.body(), function.opset); }

}  // namespace milwright
