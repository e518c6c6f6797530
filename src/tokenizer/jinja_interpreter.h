// Runs the syntax tree of a Jinja template.
#ifndef MILWRIGHT_TOKENIZER_JINJA_INTERPRETER_H_
#define MILWRIGHT_TOKENIZER_JINJA_INTERPRETER_H_

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_value.h"

namespace milwright::jinja {

/// Variables, and where to look for those that are not here.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> variables;
};

/// What a statement does to the loop around it.
enum class Flow { kNext, kBreak, kContinue };

/// One rendering of one template.
class Interpreter {
 public:
  /// `now` is the time for strftime_now. `budget` and the tree must outlive the interpreter.
  Interpreter(Budget& budget, const std::tm& now) : budget_(budget), now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Renders `block` with `variables`. Errors name the line.
  Result<std::string> Render(const Block& block, std::vector<std::pair<std::string, Value>>&& variables);

  // What filters, tests, functions and objects need.
  Budget& budget() { return budget_; }
  [[nodiscard]] const std::tm& now() const { return now_; }
  /// A string value, whose memory is charged.
  Result<Value> MakeString(std::string text);
  Result<Value> MakeList(std::vector<Value> items) { return List::Make(std::move(items), budget_); }
  Result<std::string> Str(const Value& value) { return ToString(value, budget_); }
  /// Keeps `object` for the time of the rendering, and takes it apart at the end.
  Value Keep(std::shared_ptr<Object> object);
  Result<Value> CallFilter(const std::string& name, const Value& input, const Arguments& arguments);
  Result<bool> CallTest(const std::string& name, const Value& input, const Arguments& arguments);
  /// object.name and object[key]: what is not there is undefined.
  Result<Value> GetAttribute(const Value& object, const std::string& name);
  Result<Value> GetItem(const Value& object, const Value& key);
  /// The text that `block` renders to in a scope of its own within `outer`.
  Result<Value> RenderBlock(const Block& block, std::shared_ptr<Scope> outer);
  /// The value of an expression as it would be in `scope`.
  Result<Value> EvaluateIn(const Expression& expression, const std::shared_ptr<Scope>& scope);
  /// Renders the for loop over `items` into the output (scopes come by value, for they may be the current one);
  /// `depth0` is how many times it is within itself.
  Result<Flow> RunLoop(const Statement& loop, const std::vector<Value>& items, std::shared_ptr<Scope> outer,
                       int depth0);
  /// The text of RunLoop.
  Result<Value> RenderLoop(const Statement& loop, const Value& iterable, const std::shared_ptr<Scope>& outer,
                           int depth0);

 private:
  class DepthGuard;

  Result<Flow> Execute(const Block& block);
  Result<Flow> Execute(const Statement& statement);
  Result<Flow> ExecuteIf(const Statement& statement);
  Result<Flow> ExecuteFor(const Statement& statement);
  Status ExecuteCallBlock(const Statement& statement);
  Result<Flow> ExecuteWith(const Statement& statement);
  Status Assign(const Target& target, const Value& value);
  Status Write(std::string_view text);
  Result<Value> RenderFiltered(const Statement& statement);

  Result<Value> Evaluate(const Expression& expression);
  Result<Value> EvaluateName(const Expression& expression);
  Result<Value> EvaluateSlice(const Expression& expression);
  Result<Value> EvaluateCall(const Expression& expression, const Value* caller);
  Result<Value> EvaluateFilter(const Expression& expression);
  Result<Value> EvaluateBinary(const Expression& expression);
  Result<Value> EvaluateCompare(const Expression& expression);
  Result<std::vector<Value>> EvaluateAll(const std::vector<ExpressionPtr>& expressions);
  Result<Arguments> EvaluateArguments(const Expression& expression);

  Budget& budget_;
  std::tm now_;
  std::shared_ptr<Scope> scope_;
  std::string output_;
  const Value* block_text_ = nullptr;  ///< the text that the filters of a block start from
  int depth_ = 0;
  int line_ = 1;  ///< of what is being evaluated
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_INTERPRETER_H_
