#include "tokenizer/jinja_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_operators.h"

namespace milwright::jinja {
namespace {

/// Levels of statements, expressions and macros within each other; bounds the stack.
constexpr int kMaxDepth = 500;

/// A macro, or the body of a call block as the function "caller".
class Macro : public Object {
 public:
  Macro(const Statement& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}

  [[nodiscard]] std::string_view TypeName() const override { return "macro"; }
  [[nodiscard]] bool callable() const override { return true; }
  [[nodiscard]] std::optional<Value> GetAttribute(std::string_view name) const override {
    return name == "name" ? std::make_optional(Value(definition_.name)) : std::nullopt;
  }
  void Clear() override { scope_.reset(); }

  Result<Value> Call(Interpreter& interpreter, const Arguments& arguments) override {
    const std::vector<Parameter>& parameters = definition_.parameters;
    std::vector<std::string_view> names;
    names.reserve(parameters.size());
    for (const Parameter& parameter : parameters) names.push_back(parameter.name);
    if (arguments.positional.size() > names.size()) {
      return Error(fmt::format("the macro \"{}\" takes at most {} arguments", definition_.name, names.size()));
    }
    names.push_back("caller");
    MW_ASSIGN_OR_RETURN(const auto bound, arguments.Bind(names));
    // Defaults see the parameters before them.
    const auto scope = std::make_shared<Scope>(scope_);
    if (bound.back()) scope->variables["caller"] = *bound.back();
    for (size_t i = 0; i < parameters.size(); ++i) {
      Value value = Value::MakeUndefined(fmt::format("the parameter '{}' was not given", parameters[i].name));
      if (bound[i]) {
        value = *bound[i];
      } else if (parameters[i].fallback != nullptr) {
        MW_ASSIGN_OR_RETURN(value, interpreter.EvaluateIn(*parameters[i].fallback, scope));
      }
      scope->variables[parameters[i].name] = std::move(value);
    }
    return interpreter.RenderBlock(definition_.body, scope);
  }

 private:
  const Statement& definition_;
  std::shared_ptr<Scope> scope_;
};

/// The variable "loop". It stands for the current round, so each round has its own.
class Loop : public Object {
 public:
  Loop(const Statement& statement, const std::vector<Value>& items, size_t index, std::shared_ptr<Scope> scope,
       int depth0)
      : statement_(statement),
        index_(static_cast<int64_t>(index)),
        size_(static_cast<int64_t>(items.size())),
        previous_(index > 0 ? items[index - 1] : Value::MakeUndefined("there is no previous item")),
        next_(index + 1 < items.size() ? items[index + 1] : Value::MakeUndefined("there is no next item")),
        scope_(std::move(scope)),
        depth0_(depth0) {}

  [[nodiscard]] std::string_view TypeName() const override { return "loop"; }
  [[nodiscard]] bool callable() const override { return statement_.name == "recursive"; }
  [[nodiscard]] std::optional<Value> GetAttribute(std::string_view name) const override;
  Result<Value> Call(Interpreter& interpreter, const Arguments& arguments) override {
    if (!callable()) return Error("only a recursive loop can be called");
    MW_ASSIGN_OR_RETURN(const auto bound, arguments.Bind({"iterable"}));
    if (!bound[0]) return Error("a loop is called with what to iterate over");
    return interpreter.RenderLoop(statement_, *bound[0], scope_, depth0_ + 1);
  }

 private:
  const Statement& statement_;
  int64_t index_;
  int64_t size_;
  Value previous_;
  Value next_;
  std::shared_ptr<Scope> scope_;
  int depth0_;
};

/// loop.cycle(a, b, ...): one of the arguments in turn.
class CycleFunction : public Object {
 public:
  explicit CycleFunction(int64_t index) : index_(index) {}
  [[nodiscard]] std::string_view TypeName() const override { return "method"; }
  [[nodiscard]] bool callable() const override { return true; }
  Result<Value> Call(Interpreter&, const Arguments& arguments) override {
    if (arguments.positional.empty()) return Error("cycle needs arguments");
    return arguments.positional[static_cast<size_t>(index_) % arguments.positional.size()];
  }

 private:
  int64_t index_;
};

std::optional<Value> Loop::GetAttribute(std::string_view name) const {
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "revindex") return Value(size_ - index_);
  if (name == "revindex0") return Value(size_ - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == size_);
  if (name == "length") return Value(size_);
  if (name == "depth") return Value(int64_t{depth0_} + 1);
  if (name == "depth0") return Value(int64_t{depth0_});
  if (name == "previtem") return previous_;
  if (name == "nextitem") return next_;
  if (name == "cycle") return Value(std::shared_ptr<Object>(std::make_shared<CycleFunction>(index_)));
  return std::nullopt;
}

}  // namespace

/// Counts a level of recursion while it lives.
class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~DepthGuard() { --interpreter_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

  /// Charges the step, too.
  [[nodiscard]] Status Check() const {
    if (interpreter_.depth_ > kMaxDepth) return Error("the template recurses too deep");
    return interpreter_.budget_.Step();
  }

 private:
  Interpreter& interpreter_;
};

Interpreter::~Interpreter() {
  // Scopes hold macros and loops that hold scopes, and namespaces may hold themselves.
  for (const auto& object : kept_) object->Clear();
}

Result<std::string> Interpreter::Render(const Block& block, std::vector<std::pair<std::string, Value>>&& variables) {
  scope_ = std::make_shared<Scope>(nullptr);
  for (auto& [name, value] : variables) scope_->variables[name] = std::move(value);
  const Result<Flow> flow = Execute(block);
  scope_ = nullptr;
  if (!flow.ok()) return flow.status().WithContext(fmt::format("line {}", line_));
  return std::move(output_);
}

Result<Value> Interpreter::MakeString(std::string text) {
  MW_RETURN_IF_ERROR(budget_.Allocate(text.size()));
  return Value(std::move(text));
}

Value Interpreter::Keep(std::shared_ptr<Object> object) {
  kept_.push_back(object);
  return Value(std::move(object));
}

Result<Value> Interpreter::CallFilter(const std::string& name, const Value& input, const Arguments& arguments) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) return Error(fmt::format("the filter \"{}\" is not supported", name));
  Result<Value> result = filter(*this, input, arguments);
  if (!result.ok()) return result.status().WithContext(fmt::format("filter \"{}\"", name));
  return result;
}

Result<bool> Interpreter::CallTest(const std::string& name, const Value& input, const Arguments& arguments) {
  const Test test = FindTest(name);
  if (test == nullptr) return Error(fmt::format("the test \"{}\" is not supported", name));
  Result<bool> result = test(*this, input, arguments);
  if (!result.ok()) return result.status().WithContext(fmt::format("test \"{}\"", name));
  return result;
}

Result<Value> Interpreter::GetAttribute(const Value& object, const std::string& name) {
  MW_RETURN_IF_ERROR(object.CheckDefined());
  // Python looks for an attribute of the object first: `message.items` is the method even if there is such a key.
  if (const Method method = FindMethod(object, name)) return Value(MakeMethodObject(object, method));
  if (object.object() != nullptr) {
    if (std::optional<Value> attribute = object.object()->GetAttribute(name)) return *std::move(attribute);
  } else if (const Dict* dict = object.dict()) {
    if (const Value* item = dict->Find(std::string_view(name))) return *item;
  }
  return Value::MakeUndefined(fmt::format("a {} has no attribute '{}'", object.TypeName(), name));
}

Result<Value> Interpreter::GetItem(const Value& object, const Value& key) {
  MW_RETURN_IF_ERROR(object.CheckDefined());
  if (const Dict* dict = object.dict()) {
    if (const Value* item = dict->Find(key)) return *item;
  } else if (key.is_integral() && object.list() != nullptr) {
    const std::vector<Value>& items = object.list()->items();
    const auto size = static_cast<int64_t>(items.size());
    const int64_t index = key.AsInt() < 0 ? key.AsInt() + size : key.AsInt();
    if (index >= 0 && index < size) return items[static_cast<size_t>(index)];
  } else if (key.is_integral() && object.string() != nullptr) {
    const int64_t index = key.AsInt();
    const auto end = index == -1 ? std::nullopt : std::make_optional(index + 1);
    MW_ASSIGN_OR_RETURN(Value character, ApplySlice(object, index, end, std::nullopt, budget_));
    if (!character.string()->empty()) return character;
  }
  if (key.string() != nullptr) return GetAttribute(object, *key.string());
  MW_ASSIGN_OR_RETURN(const std::string text, Str(key));
  return Value::MakeUndefined(fmt::format("a {} has no element {}", object.TypeName(), text));
}

Result<Value> Interpreter::RenderBlock(const Block& block, std::shared_ptr<Scope> outer) {
  const std::shared_ptr<Scope> saved_scope = std::exchange(scope_, std::make_shared<Scope>(std::move(outer)));
  std::string saved_output = std::exchange(output_, {});
  const Result<Flow> flow = Execute(block);
  std::string text = std::exchange(output_, std::move(saved_output));
  scope_ = saved_scope;
  if (!flow.ok()) return flow.status();
  return Value(std::move(text));
}

Result<Value> Interpreter::EvaluateIn(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  const std::shared_ptr<Scope> saved = std::exchange(scope_, scope);
  Result<Value> value = Evaluate(expression);
  scope_ = saved;
  return value;
}

// `outer` is a copy: callers pass scope_, which changes here.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Result<Flow> Interpreter::RunLoop(const Statement& loop, const std::vector<Value>& items, std::shared_ptr<Scope> outer,
                                  int depth0) {
  const std::shared_ptr<Scope> saved = scope_;
  Result<Flow> flow = Flow::kNext;
  std::vector<Value> chosen;
  for (const Value& item : items) {
    if (loop.condition == nullptr) {
      chosen = items;
      break;
    }
    scope_ = std::make_shared<Scope>(outer);
    const Status assigned = Assign(loop.target, item);
    const Result<Value> wanted = assigned.ok() ? Evaluate(*loop.condition) : Result<Value>(assigned);
    if (!wanted.ok()) {
      scope_ = saved;
      return wanted.status();
    }
    if (wanted->IsTrue()) chosen.push_back(item);
  }
  if (chosen.empty()) {
    scope_ = std::make_shared<Scope>(outer);
    flow = Execute(loop.other);
    scope_ = saved;
    return flow;
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    scope_ = std::make_shared<Scope>(outer);
    Status status = budget_.Step();
    if (status.ok()) status = Assign(loop.target, chosen[i]);
    if (status.ok()) {
      scope_->variables["loop"] = std::shared_ptr<Object>(std::make_shared<Loop>(loop, chosen, i, outer, depth0));
      flow = Execute(loop.body);
      if (!flow.ok()) status = flow.status();
    }
    if (!status.ok()) {
      scope_ = saved;
      return status;
    }
    if (*flow == Flow::kBreak) break;
  }
  scope_ = saved;
  return Flow::kNext;
}

Result<Value> Interpreter::RenderLoop(const Statement& loop, const Value& iterable, const std::shared_ptr<Scope>& outer,
                                      int depth0) {
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(iterable, budget_));
  std::string saved = std::exchange(output_, {});
  const Result<Flow> flow = RunLoop(loop, items, outer, depth0);
  std::string text = std::exchange(output_, std::move(saved));
  if (!flow.ok()) return flow.status();
  return Value(std::move(text));
}

Status Interpreter::Write(std::string_view text) {
  MW_RETURN_IF_ERROR(budget_.Allocate(text.size()));
  output_ += text;
  return Status::Ok();
}

Result<Flow> Interpreter::Execute(const Block& block) {
  for (const auto& statement : block) {
    MW_ASSIGN_OR_RETURN(const Flow flow, Execute(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Flow> Interpreter::Execute(const Statement& statement) {
  const DepthGuard guard(*this);
  MW_RETURN_IF_ERROR(guard.Check());
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      MW_RETURN_IF_ERROR(Write(statement.text));
      return Flow::kNext;
    case StatementKind::kOutput: {
      MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      MW_ASSIGN_OR_RETURN(const std::string text, Str(value));
      MW_RETURN_IF_ERROR(Write(text));
      return Flow::kNext;
    }
    case StatementKind::kIf:
      return ExecuteIf(statement);
    case StatementKind::kFor:
      return ExecuteFor(statement);
    case StatementKind::kSet: {
      MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      MW_RETURN_IF_ERROR(Assign(statement.target, value));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock: {
      MW_ASSIGN_OR_RETURN(const Value value, RenderFiltered(statement));
      MW_RETURN_IF_ERROR(Assign(statement.target, value));
      return Flow::kNext;
    }
    case StatementKind::kFilterBlock: {
      MW_ASSIGN_OR_RETURN(const Value value, RenderFiltered(statement));
      MW_ASSIGN_OR_RETURN(const std::string text, Str(value));
      MW_RETURN_IF_ERROR(Write(text));
      return Flow::kNext;
    }
    case StatementKind::kMacro:
      scope_->variables[statement.name] = Keep(std::make_shared<Macro>(statement, scope_));
      return Flow::kNext;
    case StatementKind::kCallBlock:
      MW_RETURN_IF_ERROR(ExecuteCallBlock(statement));
      return Flow::kNext;
    case StatementKind::kWith:
      return ExecuteWith(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

/// The text of the body, through the filters if there are any.
Result<Value> Interpreter::RenderFiltered(const Statement& statement) {
  MW_ASSIGN_OR_RETURN(Value text, RenderBlock(statement.body, scope_));
  if (statement.value == nullptr) return text;
  const Value* outer = std::exchange(block_text_, &text);
  Result<Value> filtered = Evaluate(*statement.value);
  block_text_ = outer;
  return filtered;
}

Result<Flow> Interpreter::ExecuteIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      MW_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
      if (!condition.IsTrue()) continue;
    }
    return Execute(branch.body);
  }
  return Flow::kNext;
}

Result<Flow> Interpreter::ExecuteFor(const Statement& statement) {
  MW_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.value));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(iterable, budget_));
  return RunLoop(statement, items, scope_, 0);
}

Status Interpreter::ExecuteCallBlock(const Statement& statement) {
  const Value caller = Keep(std::make_shared<Macro>(statement, scope_));
  MW_ASSIGN_OR_RETURN(const Value result, EvaluateCall(*statement.value, &caller));
  MW_ASSIGN_OR_RETURN(const std::string text, Str(result));
  return Write(text);
}

Result<Flow> Interpreter::ExecuteWith(const Statement& statement) {
  const auto scope = std::make_shared<Scope>(scope_);
  for (const auto& [name, expression] : statement.assignments) {
    MW_ASSIGN_OR_RETURN(scope->variables[name], Evaluate(*expression));
  }
  const std::shared_ptr<Scope> saved = std::exchange(scope_, scope);
  Result<Flow> flow = Execute(statement.body);
  scope_ = saved;
  return flow;
}

Status Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.members.empty()) {
    MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget_));
    if (items.size() != target.members.size()) {
      return Error(fmt::format("{} values cannot be unpacked into {} names", items.size(), target.members.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) MW_RETURN_IF_ERROR(Assign(target.members[i], items[i]));
    return Status::Ok();
  }
  if (target.attribute.empty()) {
    scope_->variables[target.name] = value;
    return Status::Ok();
  }
  Expression name;
  name.kind = ExpressionKind::kName;
  name.name = target.name;
  MW_ASSIGN_OR_RETURN(const Value object, EvaluateName(name));
  auto* space = dynamic_cast<Namespace*>(object.object());
  if (space == nullptr)
    return Error(fmt::format("'{}' is not a namespace, so its attributes cannot be set", target.name));
  space->Set(target.attribute, value);
  return Status::Ok();
}

Result<std::vector<Value>> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  for (const ExpressionPtr& expression : expressions) {
    MW_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::Evaluate(const Expression& expression) {
  const DepthGuard guard(*this);
  MW_RETURN_IF_ERROR(guard.Check());
  line_ = expression.line;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return EvaluateName(expression);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      MW_ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(expression.operands));
      return List::Make(std::move(items), budget_, expression.kind == ExpressionKind::kTuple);
    }
    case ExpressionKind::kDict: {
      MW_ASSIGN_OR_RETURN(std::vector<Value> parts, EvaluateAll(expression.operands));
      std::vector<Dict::Item> items;
      for (size_t i = 0; i < parts.size(); i += 2) items.emplace_back(std::move(parts[i]), std::move(parts[i + 1]));
      return Dict::Make(std::move(items), budget_);
    }
    case ExpressionKind::kAttribute: {
      MW_ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.operands[0]));
      return GetAttribute(object, expression.name);
    }
    case ExpressionKind::kItem: {
      MW_ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.operands[0]));
      MW_ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1]));
      return GetItem(object, key);
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall:
      return EvaluateCall(expression, nullptr);
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression);
    case ExpressionKind::kTest: {
      MW_ASSIGN_OR_RETURN(const Value input, Evaluate(*expression.operands[0]));
      MW_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
      MW_ASSIGN_OR_RETURN(const bool result, CallTest(expression.name, input, arguments));
      return Value(result);
    }
    case ExpressionKind::kUnary: {
      MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
      if (expression.name == "not") return Value(!value.IsTrue());
      return ApplySign(expression.name, value);
    }
    case ExpressionKind::kBinary:
      return EvaluateBinary(expression);
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression);
    case ExpressionKind::kConditional: {
      MW_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[0]));
      if (condition.IsTrue()) return Evaluate(*expression.operands[1]);
      if (expression.operands[2] != nullptr) return Evaluate(*expression.operands[2]);
      return Value::MakeUndefined("the condition of an if without else is false");
    }
  }
  return Value();
}

Result<Value> Interpreter::EvaluateName(const Expression& expression) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto found = scope->variables.find(expression.name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Function function = FindFunction(expression.name)) return Value(MakeFunctionObject(function));
  return Value::MakeUndefined(fmt::format("'{}' is undefined", expression.name));
}

Result<Value> Interpreter::EvaluateSlice(const Expression& expression) {
  MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    MW_ASSIGN_OR_RETURN(const Value bound, Evaluate(*expression.operands[i + 1]));
    if (bound.is_none()) continue;
    if (!bound.is_integral()) return Error(fmt::format("a slice needs integers, not a {}", bound.TypeName()));
    bounds[i] = bound.AsInt();
  }
  return ApplySlice(value, bounds[0], bounds[1], bounds[2], budget_);
}

Result<Value> Interpreter::EvaluateCall(const Expression& expression, const Value* caller) {
  MW_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands[0]));
  MW_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression));
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  line_ = expression.line;
  MW_RETURN_IF_ERROR(callee.CheckDefined());
  if (callee.object() == nullptr) return Error(fmt::format("a {} cannot be called", callee.TypeName()));
  return callee.object()->Call(*this, arguments);
}

Result<Value> Interpreter::EvaluateFilter(const Expression& expression) {
  Value input;
  if (expression.operands[0] != nullptr) {
    MW_ASSIGN_OR_RETURN(input, Evaluate(*expression.operands[0]));
  } else {
    input = *block_text_;
  }
  MW_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  line_ = expression.line;
  return CallFilter(expression.name, input, arguments);
}

Result<Value> Interpreter::EvaluateBinary(const Expression& expression) {
  MW_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  if (expression.name == "and" && !left.IsTrue()) return left;
  if (expression.name == "or" && left.IsTrue()) return left;
  MW_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[1]));
  if (expression.name == "and" || expression.name == "or") return right;
  line_ = expression.line;
  return ApplyBinary(expression.name, left, right, budget_);
}

Result<Value> Interpreter::EvaluateCompare(const Expression& expression) {
  MW_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.names.size(); ++i) {
    MW_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1]));
    line_ = expression.line;
    MW_ASSIGN_OR_RETURN(const bool holds, ApplyComparison(expression.names[i], left, right, budget_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Arguments> Interpreter::EvaluateArguments(const Expression& expression) {
  Arguments arguments;
  for (const ArgumentNode& node : expression.arguments) {
    MW_ASSIGN_OR_RETURN(Value value, Evaluate(*node.value));
    if (node.name.empty()) {
      arguments.positional.push_back(std::move(value));
    } else if (node.name == "*") {
      MW_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, budget_));
      arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
    } else if (node.name == "**") {
      if (value.dict() == nullptr) return Error("** needs a dict");
      for (const auto& [key, item] : value.dict()->items()) {
        if (key.string() == nullptr) return Error("** needs strings as keys");
        arguments.keyword.emplace_back(*key.string(), item);
      }
    } else {
      arguments.keyword.emplace_back(node.name, std::move(value));
    }
  }
  return arguments;
}

}  // namespace milwright::jinja
