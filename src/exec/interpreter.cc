#include "exec/interpreter.h"

#include <fmt/format.h>

#include "ops/infer.h"
#include "ops/op.h"

namespace milwright {

Result<std::vector<Literal>> ConstantCache::Get(const Operation& op,
                                                const std::function<Result<std::vector<Literal>>()>& decode) {
  const std::lock_guard lock(mutex_);
  if (const auto it = values_.find(&op); it != values_.end()) return it->second;
  MW_ASSIGN_OR_RETURN(std::vector<Literal> decoded, decode());
  return values_.emplace(&op, std::move(decoded)).first->second;
}

namespace {

class Run {
 public:
  Run(const Function& function, StateValues& states, ConstantCache& constants, const ValueObserver& observer)
      : function_(function), states_(states), constants_(constants), observer_(observer) {}

  Result<std::vector<Literal>> Execute(const std::vector<Literal>& inputs) {
    const std::vector<Value*> parameters = function_.TensorInputs();
    if (parameters.size() != inputs.size()) {
      return Status(ErrorCode::kInternal, fmt::format("'{}' takes {} inputs, but {} are given", function_.name,
                                                      parameters.size(), inputs.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) values_[parameters[i]] = inputs[i];
    MW_RETURN_IF_ERROR(RunBlock(function_.body()));
    return Outputs(function_.body());
  }

 private:
  // A loop that never ends must not hang the tool.
  static constexpr int64_t kMaxIterations = int64_t{1} << 24;

  Status RunBlock(const Block& block) {
    for (const auto& op : block.operations()) {
      auto results = RunOperation(*op);
      if (!results.ok()) return results.status().WithContext(OperationPath(*op));
      if (observer_) observer_(*op, *results);
      if (results->size() != op->outputs().size()) {
        return Status(ErrorCode::kInternal, "the kernel gave another number of outputs")
            .WithContext(OperationPath(*op));
      }
      for (size_t i = 0; i < results->size(); ++i) {
        if (!TypesAgree((*results)[i].type, op->output(i)->type)) {
          return Status(ErrorCode::kRuntime,
                        fmt::format("the value '{}' came out as {}, but is declared as {}", op->output(i)->name,
                                    TypeToString((*results)[i].type), TypeToString(op->output(i)->type)))
              .WithContext(OperationPath(*op));
        }
        values_[op->output(i)] = std::move((*results)[i]);
      }
      ReleaseInputs(*op);
    }
    return Status::Ok();
  }

  [[nodiscard]] std::vector<Literal> Outputs(const Block& block) const {
    std::vector<Literal> outputs;
    for (const Value* output : block.outputs()) outputs.push_back(values_.at(output));
    return outputs;
  }

  // Drops what nobody reads any more, so that memory follows what is alive. Values read inside a nested block stay
  // until the function ends: a loop reads them again.
  void ReleaseInputs(const Operation& op) {
    if (op.parent()->parent() != nullptr) return;
    for (const Input& input : op.inputs()) {
      for (const Operand& operand : input.arguments) {
        const Value* value = operand.value;
        if (value == nullptr || value->type.IsState()) continue;
        const auto [it, first] = remaining_.emplace(value, value->uses().size());
        if (--it->second == 0) values_.erase(value);
      }
    }
  }

  Result<std::vector<Literal>> RunOperation(const Operation& op) {
    const std::string& type = op.type();
    if (type == "const") return std::vector<Literal>{*op.FindAttribute("val")};
    if (type == "read_state") return ReadState(*op.InputValue("input"));
    if (type == "write_state") return WriteState(*op.InputValue("input"), *op.InputValue("data"));
    if (type == "coreml_update_state") {
      MW_RETURN_IF_ERROR(WriteState(*op.InputValue("state"), *op.InputValue("value")));
      return ReadState(*op.InputValue("state"));
    }
    if (type == "cond") return RunCond(op);
    if (type == "while_loop") return RunLoop(op);
    if (type.starts_with("constexpr_")) {
      return constants_.Get(op, [&] { return Evaluate(op); });
    }
    return Evaluate(op);
  }

  Result<std::vector<Literal>> ReadState(const Value& state) {
    return std::vector<Literal>{Literal(states_.at(state.name))};
  }

  Result<std::vector<Literal>> WriteState(const Value& state, const Value& data) {
    states_.at(state.name) = values_.at(&data).tensor;
    return std::vector<Literal>{};
  }

  Result<std::vector<Literal>> RunCond(const Operation& op) {
    const bool predicate = values_.at(op.InputValue("pred")).tensor.GetInt(0) != 0;
    const Block& branch = *op.blocks()[predicate ? 0 : 1];
    MW_RETURN_IF_ERROR(RunBlock(branch));
    return Outputs(branch);
  }

  Result<std::vector<Literal>> RunLoop(const Operation& op) {
    const Block& condition = *op.blocks()[0];
    const Block& body = *op.blocks()[1];
    std::vector<Literal> variables;
    for (const Operand& operand : op.FindInput("loop_vars")->arguments) variables.push_back(ValueOf(operand));
    for (int64_t iteration = 0; iteration < kMaxIterations; ++iteration) {
      BindInputs(condition, variables);
      MW_RETURN_IF_ERROR(RunBlock(condition));
      if (Outputs(condition).front().tensor.GetInt(0) == 0) return variables;
      BindInputs(body, variables);
      MW_RETURN_IF_ERROR(RunBlock(body));
      variables = Outputs(body);
    }
    return Status(ErrorCode::kRuntime, fmt::format("the loop did not end within {} iterations", kMaxIterations));
  }

  void BindInputs(const Block& block, const std::vector<Literal>& variables) {
    for (size_t i = 0; i < block.inputs().size() && i < variables.size(); ++i) {
      values_[block.inputs()[i].get()] = variables[i];
    }
  }

  [[nodiscard]] const Literal& ValueOf(const Operand& operand) const {
    return operand.value != nullptr ? values_.at(operand.value) : *operand.literal;
  }

  Result<std::vector<Literal>> Evaluate(const Operation& op) {
    const OpDefinition* definition = OpRegistry::Get().Find(op.type(), function_.opset);
    if (definition == nullptr || definition->evaluate == nullptr) {
      return Status(ErrorCode::kInvalidProgram, "no kernel runs this op");
    }
    OpContext ctx(*definition, function_.opset);
    for (const Input& input : op.inputs()) {
      std::vector<OpContext::Argument> arguments;
      for (const Operand& operand : input.arguments) {
        const Literal& value = ValueOf(operand);
        arguments.push_back({&value.type, &value});
      }
      ctx.Bind(input.name, std::move(arguments));
    }
    for (const ParameterSpec& spec : definition->parameters) {
      const Literal* attribute = spec.attribute ? op.FindAttribute(spec.name) : nullptr;
      if (attribute != nullptr) ctx.Bind(spec.name, {{&attribute->type, attribute}});
    }
    std::vector<const Type*> declared;
    for (const auto& output : op.outputs()) declared.push_back(&output->type);
    ctx.BindDeclared(std::move(declared));
    MW_ASSIGN_OR_RETURN(const std::vector<Type> types, definition->infer(ctx));
    return definition->evaluate(ctx, types);
  }

  const Function& function_;
  StateValues& states_;
  ConstantCache& constants_;
  const ValueObserver& observer_;
  std::unordered_map<const Value*, Literal> values_;
  std::unordered_map<const Value*, size_t> remaining_;
};

}  // namespace

Result<std::vector<Literal>> RunFunction(const Function& function, const std::vector<Literal>& inputs,
                                         StateValues& states, ConstantCache& constants, const ValueObserver& observer) {
  return Run(function, states, constants, observer).Execute(inputs);
}

}  // namespace milwright
