// shift-to-ring-buffer: a window that moves by a row each step becomes one that is written at position mod W.
//
// The order of the rows in the window changes, so everything that reads them must not care: the pass follows the row
// axis from the window to the attention and refuses at the first operation that does. Whatever else meets that axis
// (the mask, which stays right-aligned for the host) is rotated along with it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/slot_slice.h"

namespace milwright {
namespace {

// What is known of a value: along `axis` lie the rows of the window.
struct Window {
  enum class Kind : uint8_t {
    kStored,   // the content of the state, or slots of it: only moved about
    kShifted,  // ... without the oldest row
    kUpdated,  // with the new row
  };
  Kind kind = Kind::kStored;
  size_t axis = 0;
  int64_t size = 0;              // rows of the whole window
  const Value* state = nullptr;  // where it is kept; null behind operations that compute
  int64_t slot = kWhole;         // the place of the slot in it

  static constexpr int64_t kWhole = -1;
};

// An operand that has to turn with the window.
struct Rotation {
  Operation* op = nullptr;
  std::string input;
  size_t argument = 0;
  size_t axis = 0;
  int64_t size = 0;
};

const std::set<std::string_view>& PointwiseOps() {
  static const std::set<std::string_view> kOps = {
      "add",      "sub",     "mul",  "real_div", "maximum", "minimum", "select", "cast", "clip", "exp",     "tanh",
      "identity", "sigmoid", "relu", "pow",      "sqrt",    "rsqrt",   "square", "silu", "abs",  "inverse", "log"};
  return kOps;
}

class WindowFollower {
 public:
  /// The states of `function` that are moved, each with the axis along which it moves.
  WindowFollower(Function& function, std::map<const Value*, size_t> states)
      : function_(function), states_(std::move(states)) {}

  /// Follows the windows through the function; nothing is changed.
  Status Follow() {
    for (const auto& op : function_.body().operations()) {
      MW_RETURN_IF_ERROR(Visit(*op));
    }
    for (const Value* output : function_.body().outputs()) {
      if (windows_.contains(output)) {
        return Refuse(fmt::format("output '{}' of '{}' shows a window in its order", output->name, function_.name));
      }
    }
    if (sites_.empty()) {
      return Refuse(fmt::format("'{}' moves its windows in another way than by slice and concat", function_.name));
    }
    return Status::Ok();
  }

  /// Writes at `position` mod W and rotates what meets a window.
  Status Rewrite(Value* position) {
    Builder builder(function_.body(), sites_.front());
    for (Operation* site : sites_) {
      const int64_t size = windows_.at(site->output()).size;
      if (rings_.contains(size)) continue;
      rings_.emplace(size, MakeRing(builder, AsVector(builder, position), position->name, size));
    }
    MW_RETURN_IF_ERROR(builder.status());
    for (Operation* site : sites_) MW_RETURN_IF_ERROR(RewriteSite(*site, builder));
    std::map<std::pair<const Value*, size_t>, Value*> rotated;
    for (const Rotation& rotation : rotations_) {
      const Operand& operand = rotation.op->FindInput(rotation.input)->arguments[rotation.argument];
      Value*& turned_value = rotated[{operand.value, rotation.axis}];
      if (turned_value == nullptr || operand.value == nullptr) {
        builder.SetInsertionPoint(function_.body(), rotation.op);
        std::vector<Binding> bindings = {{"indices", rings_.at(rotation.size).order},
                                         {"axis", Literal::Int32(static_cast<int64_t>(rotation.axis))},
                                         {"batch_dims", Literal::Int32(0)},
                                         {"validate_indices", Literal::Bool(false)}};
        if (operand.value != nullptr) {
          bindings.emplace_back("x", operand.value);
        } else {
          bindings.emplace_back("x", *operand.literal);
        }
        turned_value = builder.Op("gather", std::move(bindings),
                                  (operand.value != nullptr ? operand.value->name : "constant") + "_ring");
      }
      MW_RETURN_IF_ERROR(builder.status());
      rotation.op->SetArgument(rotation.input, rotation.argument, Operand(turned_value));
    }
    return Status::Ok();
  }

 private:
  // The place of the new row in a ring of one size, and the places of the rows from oldest to newest.
  struct Ring {
    Value* slot = nullptr;
    Value* slot_end = nullptr;
    Value* order = nullptr;
  };

  static Ring MakeRing(Builder& builder, Value* position, const std::string& name, int64_t size) {
    Ring ring;
    ring.slot = builder.Op("mod", {{"x", position}, {"y", Literal::Int32s({size})}}, name + "_slot");
    ring.slot_end = builder.Op("add", {{"x", ring.slot}, {"y", Literal::Int32s({1})}}, name + "_slot_end");
    // ring[j] = mask[(j - position - 1) mod W]; with j + W - 1 - slot the sum is never negative.
    std::vector<int64_t> steps(static_cast<size_t>(size));
    std::iota(steps.begin(), steps.end(), size - 1);
    Value* turned = builder.Op("sub", {{"x", Literal::Int32s(steps)}, {"y", ring.slot}}, name + "_turned");
    ring.order = builder.Op("mod", {{"x", turned}, {"y", Literal::Int32s({size})}}, name + "_order");
    return ring;
  }

  static Status Blocked(const Operation& op, const std::string& why) {
    return Refuse(fmt::format("{} {}, so the window must stay in order", OperationPath(op), why));
  }

  const Window* Of(const Value* value) const {
    const auto it = windows_.find(value);
    return it != windows_.end() ? &it->second : nullptr;
  }
  const Window* Of(const Operation& op, std::string_view input) const {
    const Value* value = op.InputValue(input);
    return value != nullptr ? Of(value) : nullptr;
  }

  // The result of `op` is a window.
  Status Mark(const Operation& op, const Window& window) {
    const Shape& shape = op.output()->type.shape();
    const int64_t rows = window.kind == Window::Kind::kShifted ? window.size - 1 : window.size;
    if (window.axis >= shape.size() || shape[window.axis] != rows) return Blocked(op, "takes the window apart");
    windows_[op.output()] = window;
    return Status::Ok();
  }
  Status MarkAt(const Operation& op, const Window& source, size_t axis) {
    return Mark(op, {source.kind, axis, source.size, source.state, source.slot});
  }

  Status Visit(Operation& op) {
    if (!op.blocks().empty()) return VisitNested(op);
    if (states_.contains(StateOf(op))) return VisitAccess(op);
    const Window* window = nullptr;
    for (const Input& input : op.inputs()) {
      for (const Operand& operand : input.arguments) {
        if (operand.value != nullptr && window == nullptr) window = Of(operand.value);
      }
    }
    if (window == nullptr) return Status::Ok();
    const std::string& type = op.type();
    if (type == "transpose" || type == "expand_dims" || type == "squeeze" || type == "reshape") return VisitView(op);
    if (type == "slice_by_index") return VisitSlice(op);
    if (type == "slice_update") return VisitPut(op);
    if (type == "concat") return VisitConcat(op);
    if (window->kind != Window::Kind::kUpdated) return Blocked(op, "reads the window before its new row is in it");
    if (PointwiseOps().contains(type)) return VisitPointwise(op);
    if (type == "tile") return VisitTile(op);
    if (type == "softmax" || type.starts_with("reduce_")) return VisitReduction(op);
    if (type == "matmul") return VisitProduct(op);
    if (type == "scaled_dot_product_attention") return VisitAttention(op);
    return Blocked(op, "may depend on the order of the rows");
  }

  Status VisitNested(const Operation& op) {
    bool touched = std::ranges::any_of(states_, [&op](const auto& state) {
      const StateAccess access = AccessOf(op, state.first);
      return access.reads || access.writes;
    });
    for (const auto& block : op.blocks()) {
      ForEachOperation(*block, [&](const Operation& nested) {
        for (const Input& input : nested.inputs()) {
          for (const Operand& operand : input.arguments) touched = touched || Of(operand.value) != nullptr;
        }
      });
    }
    return touched ? Blocked(op, "works on the window in a nested block") : Status::Ok();
  }

  Status VisitAccess(const Operation& op) {
    if (IsStateWrite(op)) {
      const Window* data = Of(WrittenValue(op));
      if (data == nullptr || data->axis != states_.at(StateOf(op)) || data->kind == Window::Kind::kShifted) {
        return Blocked(op, "writes something else than the moved window");
      }
      if (data->kind == Window::Kind::kUpdated && data->state == StateOf(op)) {
        updated_.insert(StateOf(op));
      } else {
        updated_.erase(StateOf(op));
      }
    }
    if (op.outputs().empty()) return Status::Ok();
    const size_t axis = states_.at(StateOf(op));
    const auto kind = updated_.contains(StateOf(op)) ? Window::Kind::kUpdated : Window::Kind::kStored;
    return Mark(op, {kind, axis, op.output()->type.shape()[axis], StateOf(op), Window::kWhole});
  }

  Status VisitView(const Operation& op) {
    const Window window = *Of(op, "x");
    const Shape& from = op.InputValue("x")->type.shape();
    const Shape& to = op.output()->type.shape();
    if (op.type() == "transpose") {
      const Literal* perm = op.InputConstant("perm");
      for (int64_t i = 0; perm != nullptr && i < perm->tensor.size(); ++i) {
        const int64_t axis = perm->tensor.GetInt(i);
        const auto source = static_cast<size_t>(axis < 0 ? axis + perm->tensor.size() : axis);
        if (source == window.axis) return MarkAt(op, window, static_cast<size_t>(i));
      }
      return Blocked(op, "may depend on the order of the rows");
    }
    // The axis is found again by what lies before it.
    const auto before = [](const Shape& shape, size_t axis) {
      int64_t count = 1;
      for (size_t i = 0; i < axis; ++i) count *= shape[i];
      return count;
    };
    const int64_t wanted = before(from, window.axis);
    for (size_t axis = 0; axis < to.size(); ++axis) {
      if (to[axis] == from[window.axis] && before(to, axis) == wanted) return MarkAt(op, window, axis);
    }
    return Blocked(op, "joins the rows with another axis");
  }

  Status VisitSlice(const Operation& op) {
    if (Of(op, "x") == nullptr) return Blocked(op, "may depend on the order of the rows");
    const Window window = *Of(op, "x");
    const Shape& shape = op.InputValue("x")->type.shape();
    const auto slice = ReadSlotSlice(op, shape);
    if (!slice.has_value() || slice->squeeze_mask[window.axis] != 0) return Blocked(op, "takes rows of the window");
    size_t axis = window.axis;
    for (size_t i = 0; i < window.axis; ++i) axis -= slice->squeeze_mask[i] != 0 ? 1 : 0;
    const auto begin = slice->Begin(window.axis, shape[window.axis]);
    const auto end = slice->End(window.axis, shape[window.axis]);
    bool others_whole = true;
    int64_t place = window.slot == Window::kWhole ? 0 : Window::kWhole;  // a slot of a slot may lie anywhere
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i == window.axis) continue;
      others_whole = others_whole && slice->Begin(i, shape[i]) == 0 && slice->End(i, shape[i]) == shape[i];
      const auto at = slice->Begin(i, shape[i]);
      place = place == Window::kWhole || !at.has_value() ? Window::kWhole : place * shape[i] + *at;
    }
    if (begin == 0 && end == shape[window.axis]) {
      const int64_t slot = others_whole ? window.slot : place;
      return Mark(op, {window.kind, axis, window.size, window.state, slot});
    }
    if (window.kind != Window::Kind::kShifted && begin == 1 && end == window.size && others_whole) {
      return Mark(op, {Window::Kind::kShifted, axis, window.size, window.state, window.slot});
    }
    return Blocked(op, "takes rows of the window");
  }

  // A slot put back into the state.
  Status VisitPut(const Operation& op) {
    const Window* base = Of(op, "x");
    const Window* update = Of(op, "update");
    if (base == nullptr || update == nullptr || base->kind != Window::Kind::kStored ||
        update->kind == Window::Kind::kShifted) {
      return Blocked(op, "may depend on the order of the rows");
    }
    const Shape& shape = op.InputValue("x")->type.shape();
    const auto slice = ReadSlotSlice(op, shape);
    if (!slice.has_value() || slice->Begin(base->axis, base->size) != 0 ||
        slice->End(base->axis, base->size) != base->size) {
      return Blocked(op, "writes rows of the window");
    }
    size_t axis = base->axis;
    for (size_t i = 0; i < base->axis; ++i) axis -= slice->squeeze_mask[i] != 0 ? 1 : 0;
    if (axis != update->axis) return Blocked(op, "turns the window");
    return Mark(op, *base);
  }

  Status VisitConcat(Operation& op) {
    const std::vector<Operand>& values = op.FindInput("values")->arguments;
    const Literal* literal = op.InputConstant("axis");
    if (literal == nullptr) return Blocked(op, "may depend on the order of the rows");
    const int64_t given = literal->tensor.GetInt(0);
    const auto axis = static_cast<size_t>(given < 0 ? given + op.output()->type.rank() : given);
    const Window* first = Of(values.front().value);
    if (first != nullptr && first->kind == Window::Kind::kShifted) {
      if (values.size() != 2 || axis != first->axis || Of(values[1].value) != nullptr) {
        return Blocked(op, "moves the window in another way");
      }
      if (values[1].type().shape()[axis] != 1) {
        return Blocked(op, fmt::format("appends {} rows at once; a ring takes one", values[1].type().shape()[axis]));
      }
      for (const auto& [state, slot] : moved_) {
        const bool same = slot == first->slot || slot == Window::kWhole || first->slot == Window::kWhole;
        if (state == first->state && same) return Blocked(op, "moves the window a second time in one step");
      }
      moved_.emplace_back(first->state, first->slot);
      sites_.push_back(&op);
      return Mark(op, {Window::Kind::kUpdated, axis, first->size, first->state, first->slot});
    }
    // Slots, or heads, side by side: all must be windows alike.
    if (first == nullptr) return Blocked(op, "joins the window with something else");
    for (const Operand& operand : values) {
      const Window* window = operand.value != nullptr ? Of(operand.value) : nullptr;
      if (window == nullptr || window->axis != first->axis || window->kind != first->kind ||
          window->size != first->size || window->axis == axis || window->kind == Window::Kind::kShifted) {
        return Blocked(op, "joins the window with something else");
      }
    }
    return Mark(op, {first->kind, first->axis, first->size, first->state, Window::kWhole});
  }

  Status VisitPointwise(Operation& op) {
    const size_t rank = op.output()->type.shape().size();
    std::optional<size_t> from_end;  // broadcasting lines shapes up at their ends
    int64_t size = 0;
    for (const Input& input : op.inputs()) {
      for (const Operand& operand : input.arguments) {
        const Window* window = operand.value != nullptr ? Of(operand.value) : nullptr;
        if (window == nullptr) continue;
        const size_t at = operand.type().shape().size() - window->axis;
        if (window->kind != Window::Kind::kUpdated || (from_end.has_value() && *from_end != at)) {
          return Blocked(op, "mixes rows of two orders");
        }
        from_end = at;
        size = window->size;
      }
    }
    for (const Input& input : op.inputs()) {
      for (size_t i = 0; i < input.arguments.size(); ++i) {
        const Operand& operand = input.arguments[i];
        const Shape& shape = operand.type().shape();
        if ((operand.value != nullptr && Of(operand.value) != nullptr) || shape.size() < *from_end) continue;
        const size_t axis = shape.size() - *from_end;
        if (shape[axis] == size && size > 1) rotations_.push_back({&op, input.name, i, axis, size});
      }
    }
    return Mark(op, {Window::Kind::kUpdated, rank - *from_end, size});
  }

  Status VisitTile(const Operation& op) {
    const Literal* reps = op.InputConstant("reps");
    const Window window = *Of(op, "x");
    if (reps == nullptr || reps->tensor.size() != op.InputValue("x")->type.rank() ||
        reps->tensor.GetInt(static_cast<int64_t>(window.axis)) != 1) {
      return Blocked(op, "repeats the rows");
    }
    return Mark(op, window);
  }

  Status VisitReduction(const Operation& op) {
    const Window window = *Of(op, "x");
    if (op.type() == "softmax") return Mark(op, window);
    static const std::set<std::string_view> kKnown = {"reduce_sum", "reduce_max", "reduce_min", "reduce_mean"};
    const Literal* axes = op.InputConstant("axes");
    const Literal* keep = op.InputConstant("keep_dims");
    if (!kKnown.contains(op.type()) || axes == nullptr) return Blocked(op, "may depend on the order of the rows");
    const int64_t rank = op.InputValue("x")->type.rank();
    size_t before = 0;
    for (int64_t i = 0; i < axes->tensor.size(); ++i) {
      const int64_t axis = axes->tensor.GetInt(i) < 0 ? axes->tensor.GetInt(i) + rank : axes->tensor.GetInt(i);
      if (axis == static_cast<int64_t>(window.axis)) return Status::Ok();  // summed up: the order is gone
      before += axis < static_cast<int64_t>(window.axis) ? 1 : 0;
    }
    const bool keeps = keep != nullptr && keep->tensor.GetInt(0) != 0;
    return MarkAt(op, window, keeps ? window.axis : window.axis - before);
  }

  Status VisitProduct(const Operation& op) {
    const Window* x = Of(op, "x");
    const Window* y = Of(op, "y");
    const auto rank_of = [&op](const char* input) {
      const Value* value = op.InputValue(input);
      return value != nullptr ? static_cast<size_t>(value->type.rank()) : 0;
    };
    const auto transposed = [&op](const char* input) {
      const Literal* flag = op.InputConstant(input);
      return flag != nullptr && flag->tensor.GetInt(0) != 0;
    };
    const size_t x_rank = rank_of("x");
    const size_t y_rank = rank_of("y");
    if (x_rank < 2 || y_rank < 2) return Blocked(op, "may depend on the order of the rows");
    const size_t x_sum = transposed("transpose_x") ? x_rank - 2 : x_rank - 1;
    const size_t y_sum = transposed("transpose_y") ? y_rank - 1 : y_rank - 2;
    const size_t x_free = 2 * x_rank - 3 - x_sum;
    const size_t y_free = 2 * y_rank - 3 - y_sum;
    const size_t rank = op.output()->type.shape().size();
    if (x != nullptr && y != nullptr) {
      return x->axis == x_sum && y->axis == y_sum && x->kind == y->kind ? Status::Ok()
                                                                        : Blocked(op, "mixes rows of two orders");
    }
    if (x != nullptr && x->axis == x_free) return MarkAt(op, *x, rank - 2);
    if (y != nullptr && y->axis == y_free) return MarkAt(op, *y, rank - 1);
    return Blocked(op, "weighs the rows by something in another order");
  }

  Status VisitAttention(Operation& op) {
    const Window* key = Of(op, "key");
    const Window* value = Of(op, "value");
    const auto is_rows = [&op](const Window* window, const char* input) {
      return window != nullptr && window->kind == Window::Kind::kUpdated &&
             window->axis + 2 == static_cast<size_t>(op.InputValue(input)->type.rank());
    };
    if (!is_rows(key, "key") || !is_rows(value, "value") || Of(op, "query") != nullptr ||
        Of(op, "attn_mask") != nullptr) {
      return Blocked(op, "mixes rows of two orders");
    }
    const Input* mask = op.FindInput("attn_mask");
    if (mask != nullptr && !mask->arguments.front().type().shape().empty() &&
        mask->arguments.front().type().shape().back() == key->size) {
      rotations_.push_back({&op, "attn_mask", 0, mask->arguments.front().type().shape().size() - 1, key->size});
    }
    return Status::Ok();
  }

  Status RewriteSite(Operation& site, Builder& builder) {
    builder.SetInsertionPoint(function_.body(), &site);
    const std::vector<Operand>& values = site.FindInput("values")->arguments;
    Value* before = values[0].value->producer()->InputValue("x");
    const size_t axis = windows_.at(site.output()).axis;
    const Ring& ring = rings_.at(windows_.at(site.output()).size);
    const Shape& shape = before->type.shape();
    std::vector<VectorEntry> begin(shape.size(), VectorEntry{0, nullptr});
    std::vector<VectorEntry> end;
    for (const int64_t size : shape) end.push_back({size, nullptr});
    begin[axis] = {std::nullopt, ring.slot};
    end[axis] = {std::nullopt, ring.slot_end};
    Value* old = site.output();
    std::vector<Binding> bindings = {{"x", before},
                                     {"begin", MakeVector(builder, begin, old->name + "_begin")},
                                     {"end", MakeVector(builder, end, old->name + "_end")}};
    if (values[1].value != nullptr) {
      bindings.emplace_back("update", values[1].value);
    } else {
      bindings.emplace_back("update", *values[1].literal);
    }
    Value* updated = builder.Op("slice_update", std::move(bindings), old->name);
    MW_RETURN_IF_ERROR(builder.status());
    std::swap(updated->name, old->name);
    old->ReplaceAllUsesWith(updated);
    EraseUnused(old);
    return Status::Ok();
  }

  Function& function_;
  std::map<const Value*, size_t> states_;
  std::unordered_map<const Value*, Window> windows_;
  std::set<const Value*> updated_;                       // states that hold the new row by now
  std::map<int64_t, Ring> rings_;                        // by their size
  std::vector<std::pair<const Value*, int64_t>> moved_;  // the slots of states that sites_ move
  std::vector<Operation*> sites_;
  std::vector<Rotation> rotations_;
};

// The axis of the state along which it moves; nullopt when its updates are of another form.
std::optional<size_t> ShiftAxis(const StateFacts& facts) {
  for (const StateWrite& write : facts.writes) {
    if (write.form != UpdateForm::kShiftConcat || !write.axis.has_value() || write.update_op == nullptr) continue;
    const int64_t rank = write.update_op->output()->type.rank();
    const int64_t axis = *write.axis < 0 ? *write.axis + rank : *write.axis;
    const int64_t in_state = axis + facts.state->type.rank() - rank;
    if (in_state > 0 && in_state < facts.state->type.rank()) return static_cast<size_t>(in_state);
  }
  return std::nullopt;
}

}  // namespace

Status ShiftToRingBuffer(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ChooseStates(model, arguments));
  const bool chosen = arguments.Has("states") || arguments.Has("roles") || arguments.Has("indices");
  std::map<std::string, size_t> axes;
  for (const auto& function : model.program.functions()) {
    const FunctionStates states = AnalyzeStates(*function);
    for (const StateFacts& facts : states.states) {
      const std::string& name = facts.state->name;
      const auto axis = ShiftAxis(facts);
      // Without a choice it is about windows of keys and values; those of convolutions need their order.
      const bool meant = std::ranges::find(names, name) != names.end() && (chosen || facts.role == StateRole::kKv);
      if (meant && axis.has_value()) axes.emplace(name, *axis);
    }
  }
  for (const std::string& name : names) {
    if (chosen && !axes.contains(name)) return Refuse(fmt::format("'{}' is not moved by slice and concat", name));
  }
  if (axes.empty()) return Refuse("no window of keys or values is moved by slice and concat");
  const std::string position_name = arguments.String("position");
  for (const auto& function : model.program.functions()) {
    std::map<const Value*, size_t> states;
    for (const auto& [name, axis] : axes) {
      const Value* state = function->FindInput(name);
      if (state == nullptr || !state->type.IsState()) continue;
      states.emplace(state, axis);
      report.assumptions.push_back(
          fmt::format("{}: '{}' grows by 1 with each prediction, and '{}' is zero before the "
                      "first",
                      function->name, position_name, name));
    }
    if (states.empty()) continue;
    WindowFollower follower(*function, std::move(states));
    MW_RETURN_IF_ERROR(follower.Follow());
    MW_ASSIGN_OR_RETURN(Value * position, PositionInput(*function, position_name, report));
    MW_RETURN_IF_ERROR(follower.Rewrite(position));
  }
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
