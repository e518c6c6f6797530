// Builder: writes operations into a block, inferring their types, for passes, model families and tests.
#ifndef MILWRIGHT_OPS_BUILDER_H_
#define MILWRIGHT_OPS_BUILDER_H_

#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

/// A parameter binding for Builder::Op: one operand, or several for a variadic parameter.
struct Binding {
  Binding(std::string_view name, Value* value) : name(name), arguments{Operand(value)} {}
  Binding(std::string_view name, Literal literal)
      : name(name), arguments{Operand(Literal::Share(std::move(literal)))} {}
  Binding(std::string_view name, const std::vector<Value*>& values) : name(name) {
    for (Value* value : values) arguments.emplace_back(value);
  }
  std::string_view name;
  std::vector<Operand> arguments;
};

/// Inserts operations before a fixed place. Literal bindings become `const` ops, as coremltools writes them (constexpr
/// ops of iOS18 keep them in place; those before iOS18 take them as attributes). Output names are made unique.
///
/// The first error is kept in `status()`; after it every call does nothing and returns null, so a chain of calls needs
/// one check at its end.
class Builder {
 public:
  /// Appends at the end of `block`, or inserts before `before`.
  explicit Builder(Block& block, Operation* before = nullptr) : block_(&block), before_(before) {}

  /// A `const` op.
  Value* Const(Literal literal, std::string_view name = "const");
  /// An op with one output of the inferred type, named after `name` (or the op).
  Value* Op(std::string_view type, std::vector<Binding> bindings, std::string_view name = {});
  /// An op with any number of outputs.
  std::vector<Value*> Ops(std::string_view type, std::vector<Binding> bindings, std::string_view name = {});

  /// read_state / write_state (iOS18).
  Value* ReadState(Value* state, std::string_view name = {});
  void WriteState(Value* state, Value* data, std::string_view name = {});

  [[nodiscard]] Block& block() const { return *block_; }
  [[nodiscard]] Function& function() const { return *block_->function(); }
  [[nodiscard]] const Status& status() const { return status_; }
  void SetInsertionPoint(Block& block, Operation* before) {
    block_ = &block;
    before_ = before;
  }

 private:
  std::string UniqueName(std::string_view base);
  Block* block_;
  Operation* before_;
  Status status_;
  std::unordered_set<std::string> names_;  // all names of the function, collected at the first use
};

}  // namespace milwright

#endif  // MILWRIGHT_OPS_BUILDER_H_
