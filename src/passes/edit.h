// What the passes that change states and features share: choosing states, keeping the description in step, small edits.
#ifndef MILWRIGHT_PASSES_EDIT_H_
#define MILWRIGHT_PASSES_EDIT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "mil/model.h"
#include "ops/builder.h"
#include "passes/pass.h"

namespace milwright {

/// Whether option `key` is "true"; kUsage when it is neither "true" nor "false".
Result<bool> BoolOption(const PassArguments& arguments, std::string_view key, bool fallback);

/// The names of the states that `states:`, `roles:` and `indices:` choose, in the order of their declaration over all
/// functions (which share states by name); all states when none of the options is given. `indices:` counts in that
/// order. kUsage: an unknown role or index; kPrecondition: no such state, or none chosen.
Result<std::vector<std::string>> ChooseStates(const ModelSpec& model, const PassArguments& arguments);

/// The type of state `name`, which functions must agree on (else kPrecondition).
Result<Type> SharedStateType(const Program& program, const std::string& name);
Status CheckSharedState(const Program& program, const std::string& name);

/// Brings the description of every function in step with its features: entries of features that are still there are
/// kept with all they say, others go, new ones are appended. A feature that changed kind keeps its short description.
void RefreshDescription(ModelSpec& model);

/// Brings every function to `opset` if it is older (as set-opset does).
Status EnsureOpset(ModelSpec& model, Opset opset, PassReport& report);

/// A name that no input, output or state of any function carries: `base`, or base_0, base_1, ... Inner values may.
std::string UniqueFeatureName(const Program& program, std::string_view base);
/// Gives the inner value of `function` that is called `name`, if there is one, another name.
void ReleaseName(Function& function, const std::string& name);

/// Whether `value` is an output of its function.
bool IsFunctionOutput(const Value& value);

/// Adds a tensor input behind the other tensor inputs, or a state behind all inputs.
Value* AddTensorInput(Function& function, std::string name, Type type);

/// Removes the operation that makes `value` when nobody uses it and it has no effect, and so on up its operands.
void EraseUnused(Value* value);

/// The operation of `block` that is `op` or holds it; null when `op` is elsewhere.
Operation* AncestorIn(const Block& block, Operation* op);

/// The integer input that gives positions: an int32 input of one element called `name` in `function`, added with shape
/// [1] when there is no feature of that name. kPrecondition when `name` is something else.
Result<Value*> PositionInput(Function& function, const std::string& name, PassReport& report);

/// `x` as a vector of one int32 element.
Value* AsVector(Builder& builder, Value* x);

/// x[begin:end] with constant bounds; `x` itself when that is all of it.
Value* Slice(Builder& builder, Value* x, const Shape& begin, const Shape& end, std::string_view name);

/// One entry of an integer vector: known, or a value of one element.
struct VectorEntry {
  std::optional<int64_t> constant;
  Value* value = nullptr;
};
/// The entries of a begin or end vector of `rank` entries: a constant, or a concat of constants and single values.
std::optional<std::vector<VectorEntry>> VectorEntries(const Operation& op, std::string_view parameter, size_t rank);
/// The other way: a constant when all entries are known, else a concat.
Value* MakeVector(Builder& builder, const std::vector<VectorEntry>& entries, std::string_view name);

/// The constant flags or strides of parameter `parameter`, one for each axis; `fallback` where it is absent.
std::vector<int64_t> AxisConstants(const Operation& op, std::string_view parameter, size_t rank, int64_t fallback);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_EDIT_H_
