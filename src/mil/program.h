// The IR: Program > Function > Block > Operation > Value. SSA, typed, cheap to edit; independent of protobuf and text.
//
// Ownership: a Program owns its functions, a function its inputs and its body, a block its operations and inputs, an
// operation its outputs and nested blocks. Everything else is a plain pointer that does not own. Uses are tracked: a
// value knows every operand and every block output that reads it, and the editing functions keep that exact.
//
// Order matters: the operations of a block run in list order, and for state operations that order is their meaning.
#ifndef MILWRIGHT_MIL_PROGRAM_H_
#define MILWRIGHT_MIL_PROGRAM_H_

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mil/literal.h"
#include "milwright/type.h"

namespace milwright {

class Block;
class Function;
class Operation;
class Program;
class Value;

/// One reader of a value: argument `argument` of input `input` of `op`, or output `argument` of `block` (op is null).
struct Use {
  Operation* op = nullptr;
  std::string input;
  Block* block = nullptr;
  size_t argument = 0;

  bool operator==(const Use&) const = default;
};

/// An SSA value: a function input, a block input, or an output of an operation.
class Value {
 public:
  Value(std::string name, Type type) : name(std::move(name)), type(std::move(type)) {}
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  std::string name;
  Type type;

  /// The operation whose output this is; null for function and block inputs.
  [[nodiscard]] Operation* producer() const { return producer_; }
  /// Which output of the producer, or which input of the block or function.
  [[nodiscard]] size_t index() const { return index_; }
  /// The block whose input this is; null otherwise.
  [[nodiscard]] Block* owner_block() const { return owner_block_; }
  [[nodiscard]] const std::vector<Use>& uses() const { return uses_; }
  /// The content when the producer is a `const` op (attribute "val"); null otherwise.
  [[nodiscard]] const Literal* constant() const;
  /// Makes every reader of this value read `other` instead.
  void ReplaceAllUsesWith(Value* other);

 private:
  friend class Block;
  friend class Function;
  friend class Operation;
  Operation* producer_ = nullptr;
  Block* owner_block_ = nullptr;
  size_t index_ = 0;
  std::vector<Use> uses_;
};

/// What is bound to a parameter: a value by name, or a literal written in place.
struct Operand {
  Value* value = nullptr;
  LiteralPtr literal;

  Operand(Value* value) : value(value) {}                       // NOLINT(google-explicit-constructor)
  Operand(LiteralPtr literal) : literal(std::move(literal)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] const Type& type() const { return value != nullptr ? value->type : literal->type; }
  /// The content when it is known without running (an inline literal, or the output of a const op); else null.
  [[nodiscard]] const Literal* constant() const { return value != nullptr ? value->constant() : literal.get(); }
};

/// A named parameter of an operation with its arguments (several for variadic parameters such as concat's `values`).
struct Input {
  std::string name;
  std::vector<Operand> arguments;
};

class Operation {
 public:
  explicit Operation(std::string type) : type_(std::move(type)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation();

  [[nodiscard]] const std::string& type() const { return type_; }
  /// Attribute "name" when present, else the name of the first output, else the type.
  [[nodiscard]] std::string name() const;
  [[nodiscard]] Block* parent() const { return parent_; }

  /// Parameters sorted by name (the file keeps them in a map).
  [[nodiscard]] const std::vector<Input>& inputs() const { return inputs_; }
  [[nodiscard]] const Input* FindInput(std::string_view name) const;
  /// The only argument of parameter `name` when it is a value; null when absent, variadic or a literal.
  [[nodiscard]] Value* InputValue(std::string_view name) const;
  /// The compile-time content of parameter `name`; null when absent or not constant.
  [[nodiscard]] const Literal* InputConstant(std::string_view name) const;
  void SetInput(std::string_view name, std::vector<Operand> arguments);  ///< adds or replaces
  void SetInput(std::string_view name, Operand argument) { SetInput(name, std::vector<Operand>{std::move(argument)}); }
  void RemoveInput(std::string_view name);
  /// Replaces one argument.
  void SetArgument(std::string_view input, size_t argument, Operand operand);

  [[nodiscard]] const std::vector<std::unique_ptr<Value>>& outputs() const { return outputs_; }
  [[nodiscard]] Value* output(size_t i = 0) const { return outputs_[i].get(); }
  Value* AddOutput(std::string name, Type type);

  [[nodiscard]] const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
  Block* AddBlock();

  /// Attributes sorted by name. "name" holds the op's name, "val" the content of a const.
  std::map<std::string, Literal, std::less<>> attributes;
  [[nodiscard]] const Literal* FindAttribute(std::string_view name) const;

  /// Bytes of fields the reader did not know, kept for writing back.
  std::string unknown_fields;

 private:
  friend class Block;
  void DropInputUses(const Input& input);
  void AddInputUses(const Input& input);
  std::string type_;
  Block* parent_ = nullptr;
  std::list<std::unique_ptr<Operation>>::iterator position_;
  std::vector<Input> inputs_;
  std::vector<std::unique_ptr<Value>> outputs_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

/// A list of operations with inputs and outputs: the body of a function, or a branch or loop body of an operation.
class Block {
 public:
  using OperationList = std::list<std::unique_ptr<Operation>>;

  explicit Block(Function* function, Operation* parent) : function_(function), parent_(parent) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  [[nodiscard]] Function* function() const { return function_; }
  /// The operation this block is nested in; null for a function's body.
  [[nodiscard]] Operation* parent() const { return parent_; }

  [[nodiscard]] const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
  Value* AddInput(std::string name, Type type);

  [[nodiscard]] const OperationList& operations() const { return operations_; }
  /// Inserts before `before`, or at the end when `before` is null. Returns the operation, now owned by the block.
  Operation* Insert(std::unique_ptr<Operation> op, Operation* before = nullptr);
  /// Moves `op` of this block before `before` (null: to the end).
  void Move(Operation* op, Operation* before);
  /// Removes an operation none of whose outputs is used.
  void Erase(Operation* op);
  /// The operation after / before `op` in this block, or null.
  [[nodiscard]] Operation* Next(const Operation* op) const;
  [[nodiscard]] Operation* Previous(const Operation* op) const;

  [[nodiscard]] const std::vector<Value*>& outputs() const { return outputs_; }
  void SetOutputs(std::vector<Value*> outputs);
  void SetOutput(size_t i, Value* value);

  std::map<std::string, Literal, std::less<>> attributes;
  std::string unknown_fields;

 private:
  Function* function_;
  Operation* parent_;
  std::vector<std::unique_ptr<Value>> inputs_;
  OperationList operations_;
  std::vector<Value*> outputs_;
};

class Function {
 public:
  Function(std::string name, Opset opset)
      : name(std::move(name)), opset(opset), body_(std::make_unique<Block>(this, nullptr)) {}
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  ~Function();

  std::string name;
  Opset opset;

  /// Tensors first, then states, as coremltools writes them; states have state types.
  [[nodiscard]] const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
  [[nodiscard]] Value* FindInput(std::string_view name) const;
  Value* AddInput(std::string name, Type type);  ///< appended
  Value* InsertInput(size_t index, std::string name, Type type);
  void EraseInput(Value* input);  ///< must have no uses
  [[nodiscard]] std::vector<Value*> TensorInputs() const;
  [[nodiscard]] std::vector<Value*> States() const;

  [[nodiscard]] Block& body() { return *body_; }
  [[nodiscard]] const Block& body() const { return *body_; }

  /// Every name that a value of this function carries.
  [[nodiscard]] std::unordered_set<std::string> Names() const;
  /// A name that no value of this function carries: `base`, or base_0, base_1, ...
  [[nodiscard]] std::string UniqueName(std::string_view base) const;

  std::map<std::string, Literal, std::less<>> attributes;
  std::string unknown_fields;

 private:
  std::vector<std::unique_ptr<Value>> inputs_;
  std::unique_ptr<Block> body_;
};

class Program {
 public:
  Program() = default;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;

  int64_t version = 1;
  std::string doc_string;
  std::map<std::string, Literal, std::less<>> attributes;  ///< e.g. buildInfo
  std::string unknown_fields;

  /// In file order.
  [[nodiscard]] const std::vector<std::unique_ptr<Function>>& functions() const { return functions_; }
  [[nodiscard]] Function* FindFunction(std::string_view name) const;
  Function* AddFunction(std::string name, Opset opset);
  Function* AddFunction(std::unique_ptr<Function> function);
  void EraseFunction(std::string_view name);

  /// A deep copy; weight bytes are shared.
  [[nodiscard]] Program Clone() const;

 private:
  std::vector<std::unique_ptr<Function>> functions_;
};

/// A deep copy of `function` (weights shared).
std::unique_ptr<Function> CloneFunction(const Function& function);

/// Maps the values of one function to those of another while operations are copied across.
using ValueMap = std::unordered_map<const Value*, Value*>;
/// Copies `op` (with nested blocks) into `target` before `before`; operands go through `map` (unmapped values are kept
/// as they are), and the copied outputs are added to it. Names are kept.
Operation* CloneOperation(const Operation& op, Block& target, Operation* before, ValueMap& map);

/// Calls `visit` for every operation of `block`, nested blocks included, in program order (an op before its blocks).
void ForEachOperation(const Block& block, const std::function<void(Operation&)>& visit);

/// "main/block0/op 17 'x' (slice_update)": where an operation stands, for messages.
std::string OperationPath(const Operation& op);

/// Structural equality: same functions, inputs, operations in order, types, attributes and literal contents. On
/// difference `why`, when given, gets the first place that differs.
struct EqualOptions {
  bool ignore_program_attributes = false;      ///< buildInfo, which compilers add
  bool match_function_inputs_by_name = false;  ///< compilers sort inputs
};
bool ProgramsEqual(const Program& a, const Program& b, const EqualOptions& options = {}, std::string* why = nullptr);

/// A hash of the whole structure (weights by identity of their storage and type): equal before and after a pass that
/// changed nothing.
uint64_t Fingerprint(const Program& program);

}  // namespace milwright

#endif  // MILWRIGHT_MIL_PROGRAM_H_
