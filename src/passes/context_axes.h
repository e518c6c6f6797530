// Which sizes of a function follow the length of its caches: found by data flow from axes that are known to, through
// the rules of each operation, forwards and backwards.
#ifndef MILWRIGHT_PASSES_CONTEXT_AXES_H_
#define MILWRIGHT_PASSES_CONTEXT_AXES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

/// The sizes that change in one function when the axes given to `Mark` do, and the constants that state such sizes.
///
/// Sizes are tied by what operations demand (broadcasting, contraction, concatenation, slices that take the whole), not
/// by being equal numbers. A size that does not follow keeps its value.
class ContextAxes {
 public:
  /// Entry `index` of the integer parameter of an operation (a constant, or a concat of constants and values).
  using Entry = std::pair<std::string, size_t>;

  explicit ContextAxes(Function& function) : function_(function) {}

  /// Axis `axis` of `value` gets the size `size`. Call before `Run`.
  Status Mark(const Value* value, size_t axis, int64_t size);
  /// The same for a constant bound to `op`.
  Status MarkConstant(const Operation& op, const Operand& constant, size_t axis, int64_t size) {
    return Set(op, constant, axis, size);
  }
  /// Two values that must keep equal shapes (a cache and the output that goes back into it).
  void Tie(const Value* a, const Value* b) { ties_.emplace_back(a, b); }

  /// Follows the marks until nothing new is found. kPrecondition, naming the operation: sizes contradict each other, or
  /// an operation leaves open what should follow.
  Status Run();

  /// The shape of `value` (or of a constant bound to an operation) afterwards; nullopt when it stays.
  [[nodiscard]] std::optional<Shape> ShapeOf(const Value* value) const;
  [[nodiscard]] std::optional<Shape> ShapeOf(const Operand& constant) const;
  /// The new size of one axis, if it changes.
  [[nodiscard]] std::optional<int64_t> Size(const Value* value, size_t axis) const { return Find(value, axis); }

  /// States, as an error, a use of the old length that is not understood.
  static Status Open(const Operation& op, const std::string& why);

  /// Sets an entry of a parameter that states a size; kPrecondition when it is computed.
  Status SetEntry(Operation& op, std::string_view parameter, size_t index, int64_t value);

  /// Writes what was found into the function: types, constants (through `resize`, which gives the content of a constant
  /// in its new shape) and parameters.
  using Resize = Result<Literal> (*)(const Literal& content, const Shape& shape);
  Status Apply(Resize resize);

 private:
  /// A value, or a constant as one operation uses it (a constant may serve many).
  struct Term {
    const void* key = nullptr;
    const Type* type = nullptr;
    const Value* value = nullptr;  ///< null: a constant

    Term(const Value* value);      // NOLINT(google-explicit-constructor)
    Term(const Operand& operand);  // NOLINT(google-explicit-constructor)
    [[nodiscard]] size_t rank() const { return type->shape().size(); }
    [[nodiscard]] int64_t size(size_t axis) const { return type->shape()[axis]; }
  };
  using Rule = Status (ContextAxes::*)(Operation&);
  /// The rule of an operation; null when it has none.
  static Rule RuleOf(std::string_view type);

  [[nodiscard]] std::optional<int64_t> Find(const void* key, size_t axis) const;
  [[nodiscard]] std::optional<int64_t> Find(const Term& term, size_t axis) const { return Find(term.key, axis); }
  Status Set(const Operation& op, const Term& term, size_t axis, int64_t size);
  /// What is marked on one of two equal sizes is marked on the other; with `more`, b is that much longer than a.
  Status Link(const Operation& op, const Term& a, size_t axis_a, const Term& b, size_t axis_b, int64_t more = 0);
  Status LinkAll(const Operation& op, const Term& a, const Term& b);
  Status LinkBroadcast(const Operation& op, const Term& part, const Term& whole, size_t skip_last = 0);
  [[nodiscard]] bool Touched(const Operation& op) const;
  Status Visit(Operation& op);
  static std::vector<const Operand*> Operands(const Operation& op);
  /// The constants `axis` (from the front) and `axes` (all of them when absent), and whether a constant is not zero.
  static size_t AxisOf(const Operation& op, size_t rank, int64_t fallback = 0);
  static std::set<size_t> AxesOf(const Operation& op, size_t rank);
  static bool Flag(const Operation& op, std::string_view parameter);
  static const Operand* Only(const Operation& op, std::string_view parameter);

  Status Elementwise(Operation& op);
  Status SameShape(Operation& op);
  Status Nothing(Operation& op);
  Status State(Operation& op);
  Status Control(Operation& op);
  Status Matmul(Operation& op);
  Status Linear(Operation& op);
  Status Attention(Operation& op);
  Status Einsum(Operation& op);
  Status Conv(Operation& op);
  Status LayerNorm(Operation& op);
  Status Reduce(Operation& op);
  Status Transpose(Operation& op);
  Status ExpandDims(Operation& op);
  Status Squeeze(Operation& op);
  Status Reshape(Operation& op);
  Status Tile(Operation& op);
  Status Concat(Operation& op);
  Status Stack(Operation& op);
  Status Split(Operation& op);
  Status Pad(Operation& op);
  Status Slice(Operation& op);
  Status SliceAxis(Operation& op, const Term& x, size_t axis, const Term& part, size_t part_axis);
  Status SliceBySize(Operation& op);
  Status Gather(Operation& op);
  Status AlongAxis(Operation& op);
  Status Scatter(Operation& op);
  Status OneHot(Operation& op);
  Status Fill(Operation& op);
  Status Range(Operation& op);
  Status TopK(Operation& op);

  Function& function_;
  std::map<const void*, std::map<size_t, int64_t>> sizes_;
  std::map<Operation*, std::map<Entry, int64_t>> entries_;
  std::set<std::pair<const Operation*, size_t>> open_tails_;  ///< slices to the end whose length is not settled
  std::vector<std::pair<const Value*, const Value*>> ties_;
  bool changed_ = false;
};

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_CONTEXT_AXES_H_
