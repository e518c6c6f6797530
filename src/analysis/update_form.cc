#include "analysis/update_form.h"

#include <algorithm>
#include <array>

namespace milwright {
namespace {

struct FormRow {
  UpdateForm form;
  std::string_view name;
};
constexpr std::array kForms = {
    FormRow{UpdateForm::kNone, "none"},
    FormRow{UpdateForm::kReadOnly, "read_only"},
    FormRow{UpdateForm::kWrittenBack, "written_back"},
    FormRow{UpdateForm::kSliceUpdate, "slice_update_dynamic"},
    FormRow{UpdateForm::kStaticSlot, "slice_assign_static_slot"},
    FormRow{UpdateForm::kMaskBlend, "mask_blend"},
    FormRow{UpdateForm::kShiftConcat, "shift_concat"},
    FormRow{UpdateForm::kShiftMatmul, "shift_matmul"},
    FormRow{UpdateForm::kScatter, "scatter"},
    FormRow{UpdateForm::kReadModifyWrite, "read_modify_write"},
    FormRow{UpdateForm::kWholeOverwrite, "whole_overwrite"},
};

struct RoleRow {
  StateRole role;
  std::string_view name;
};
constexpr std::array kRoles = {
    RoleRow{StateRole::kUnknown, "unknown"},
    RoleRow{StateRole::kKv, "kv"},
    RoleRow{StateRole::kConv, "conv"},
    RoleRow{StateRole::kRecurrent, "recurrent"},
    RoleRow{StateRole::kAccumulator, "accumulator"},
};

bool IsFloatCast(const Operation& op) {
  const Value* x = op.InputValue("x");
  return op.type() == "cast" && x != nullptr && IsFloat(x->type.dtype()) && IsFloat(op.output()->type.dtype());
}

bool IsView(const Operation& op) {
  return op.type() == "identity" || op.type() == "reshape" || op.type() == "expand_dims" || op.type() == "squeeze" ||
         IsFloatCast(op);
}

// x of `value` = x * constant; null for other values.
const Value* ScaledValue(const Value* value) {
  const Operation* op = PeelViews(value)->producer();
  if (op == nullptr || op->type() != "mul") return nullptr;
  for (const auto& [factor, x] : {std::pair("y", "x"), std::pair("x", "y")}) {
    const Literal* constant = op->InputConstant(factor);
    if (constant != nullptr && constant->tensor.size() == 1) return op->InputValue(x);
  }
  return nullptr;
}

// What `value` is a part of: the source of a slice or a split; null for other values.
const Value* WholeOf(const Value* value) {
  const Operation* op = PeelViews(value)->producer();
  const bool part = op != nullptr && (op->type() == "split" || op->type().starts_with("slice_by_"));
  return part ? op->InputValue("x") : nullptr;
}

// The value of which `concat` has the halves side by side; null when it has something else.
const Value* SplitIntoHalves(const Operation& concat) {
  const auto& values = concat.FindInput("values")->arguments;
  if (values.size() != 2 || values[0].value == nullptr || values[1].value == nullptr) return nullptr;
  const Value* rest = ScaledValue(values[1].value);
  const Operation* difference = rest != nullptr ? PeelViews(rest)->producer() : nullptr;
  if (difference == nullptr || difference->type() != "sub") return nullptr;
  const Value* value = PeelViews(values[0].value);
  for (const char* side : {"x", "y"}) {
    const Value* term = difference->InputValue(side);
    if (term == nullptr || PeelViews(term) != value) return nullptr;
  }
  return value;
}

bool IsConstantOne(const Operand& operand) {
  const Literal* literal = operand.constant();
  if (literal == nullptr || !literal->type.IsTensor() || literal->tensor.size() == 0) return false;
  for (int64_t i = 0; i < literal->tensor.size(); ++i) {
    if (literal->tensor.GetDouble(i) != 1.0) return false;
  }
  return true;
}

const Operand* Argument(const Operation& op, std::string_view name) {
  const Input* input = op.FindInput(name);
  return input != nullptr && input->arguments.size() == 1 ? &input->arguments.front() : nullptr;
}

// Which entries of a begin or end vector are known only at run time: those of a concat that are not constant.
std::vector<bool> DynamicEntries(const Value* vector, size_t rank) {
  if (vector == nullptr) return std::vector<bool>(rank, false);
  const Operation* op = PeelViews(vector)->producer();
  std::vector<bool> dynamic;
  if (op != nullptr && op->type() == "concat") {
    for (const Operand& operand : op->FindInput("values")->arguments) {
      const int64_t count = operand.type().shape().empty() ? 1 : operand.type().shape().front();
      const Value* source = operand.value != nullptr ? PeelViews(operand.value) : nullptr;
      const bool constant = operand.constant() != nullptr || (source != nullptr && source->constant() != nullptr);
      for (int64_t i = 0; i < count && dynamic.size() <= rank; ++i) dynamic.push_back(!constant);
    }
  }
  return dynamic.size() == rank ? dynamic : std::vector<bool>(rank, true);
}

class Classifier {
 public:
  explicit Classifier(const OldContent& old) : old_(old) {}

  StateWrite Classify(const Value* value, int depth = 0) {
    StateWrite result;
    // Deeper than any real program nests its slots; a chain longer than this says nothing more.
    constexpr int kMaxDepth = 64;
    value = PeelViews(value);
    if (old_.values.contains(value)) {
      result.form = UpdateForm::kWrittenBack;
      return result;
    }
    Operation* op = value->producer();
    if (op == nullptr || !Depends(value)) return result;  // kWholeOverwrite
    result.update_op = op;
    result.form = UpdateForm::kReadModifyWrite;
    if (depth > kMaxDepth) return result;
    const std::string& type = op->type();
    if (type == "slice_update") return SliceUpdate(*op, depth);
    if (type.starts_with("scatter")) {
      const Value* data = op->InputValue("data");
      if (data != nullptr && Depends(data)) result.form = UpdateForm::kScatter;
      return result;
    }
    if (type == "concat" || type == "stack") return Concat(*op, depth);
    if (type == "slice_by_index" || type == "slice_by_size" || type == "split") return SliceOfConcat(*op, depth);
    if (type == "transpose") {
      StateWrite inner = Classify(op->InputValue("x"), depth + 1);
      inner.axis.reset();
      return inner;
    }
    if (type == "select") {
      if (IsOldView(Argument(*op, "a")) != IsOldView(Argument(*op, "b"))) result.form = UpdateForm::kMaskBlend;
      return result;
    }
    if (type == "matmul" && IsShiftProduct(*op)) result.form = UpdateForm::kShiftMatmul;
    if (type == "add" || type == "sub") {
      if (IsBlend(*op)) {
        result.form = UpdateForm::kMaskBlend;
      } else if (HasShiftProduct(*op)) {
        result.form = UpdateForm::kShiftMatmul;
      }
    }
    return result;
  }

 private:
  [[nodiscard]] bool Depends(const Value* value) const { return old_.dependent.contains(value); }
  [[nodiscard]] bool Depends(const Operand* operand) const {
    return operand != nullptr && operand->value != nullptr && Depends(operand->value);
  }

  // Old content, or a piece of it: slices, splits and transposes change nothing about where it comes from.
  [[nodiscard]] bool IsOldView(const Value* value) const {
    for (int steps = 0; value != nullptr && steps < 64; ++steps) {
      value = PeelViews(value);
      if (old_.values.contains(value)) return true;
      const Operation* op = value->producer();
      if (op == nullptr) return false;
      const std::string& type = op->type();
      if (type == "add") {
        value = JoinedHalves(*op);
        continue;
      }
      if (type != "slice_by_index" && type != "slice_by_size" && type != "split" && type != "transpose") return false;
      value = op->InputValue("x");
    }
    return false;
  }
  [[nodiscard]] bool IsOldView(const Operand* operand) const {
    return operand != nullptr && operand->value != nullptr && IsOldView(operand->value);
  }

  StateWrite SliceUpdate(Operation& op, int depth) {
    StateWrite result;
    result.update_op = &op;
    const Value* x = op.InputValue("x");
    const Value* update = op.InputValue("update");
    if (x == nullptr || update == nullptr || !Depends(x)) {
      result.form = UpdateForm::kReadModifyWrite;
      return result;
    }
    const StateWrite base = Classify(x, depth + 1);
    const auto rank = static_cast<size_t>(x->type.rank());
    Value* begin = op.InputValue("begin");
    if (op.InputConstant("begin") == nullptr) {
      result.form = UpdateForm::kSliceUpdate;
      result.begin = begin;
      const std::vector<bool> dynamic = DynamicEntries(begin, rank);
      for (size_t axis = 0; axis < rank && update->type.rank() == x->type.rank(); ++axis) {
        const bool narrower = update->type.shape()[axis] != x->type.shape()[axis];
        if (dynamic[axis] && (narrower || std::ranges::count(dynamic, true) == 1)) {
          result.axis = static_cast<int64_t>(axis);
          if (update->type.shape()[axis] != kUnknownDim) result.width = update->type.shape()[axis];
        }
      }
    } else if (Depends(update)) {
      result = Classify(update, depth + 1);
      if (IsShiftedCopy(op, *x, *update)) {
        result.form = UpdateForm::kShiftConcat;
        result.update_op = &op;
      } else if (result.form == UpdateForm::kWrittenBack) {
        result.form = UpdateForm::kStaticSlot;
        result.update_op = &op;
      }
      result.slot_op = &op;
    } else {
      result.form = UpdateForm::kStaticSlot;
      result.slot_op = &op;
      // Rows at a fixed place of the sequence axis (the last but one): a prefill that always starts at 0.
      const bool ranks_agree = rank >= 2 && update->type.rank() == x->type.rank();
      if (ranks_agree && update->type.shape()[rank - 2] != x->type.shape()[rank - 2]) {
        result.axis = static_cast<int64_t>(rank) - 2;
        if (update->type.shape()[rank - 2] != kUnknownDim) result.width = update->type.shape()[rank - 2];
      }
    }
    // A chain of updates on one value: the form that says most stands for all.
    if (base.form != UpdateForm::kWrittenBack && Rank(base.form) > Rank(result.form)) return base;
    return result;
  }

  // slice_update(old, begin 0, update = old[1:]): the cache moved along itself.
  [[nodiscard]] bool IsShiftedCopy(const Operation& op, const Value& x, const Value& update) const {
    const Operation* slice = PeelViews(&update)->producer();
    if (slice == nullptr || slice->type() != "slice_by_index" || update.type.rank() != x.type.rank()) return false;
    if (!IsOldView(slice->InputValue("x"))) return false;
    const Literal* from = slice->InputConstant("begin");
    const Literal* to = op.InputConstant("begin");
    if (from == nullptr || to == nullptr) return false;
    for (int64_t axis = 0; axis < x.type.rank() && axis < from->tensor.size() && axis < to->tensor.size(); ++axis) {
      const auto i = static_cast<size_t>(axis);
      if (update.type.shape()[i] != x.type.shape()[i] && from->tensor.GetInt(axis) != to->tensor.GetInt(axis))
        return true;
    }
    return false;
  }

  // How much a form says about the program, for values that mix several.
  static int Rank(UpdateForm form) {
    switch (form) {
      case UpdateForm::kShiftConcat:
      case UpdateForm::kShiftMatmul:
        return 6;
      case UpdateForm::kScatter:
        return 5;
      case UpdateForm::kMaskBlend:
        return 4;
      case UpdateForm::kSliceUpdate:
        return 3;
      case UpdateForm::kReadModifyWrite:
        return 2;
      case UpdateForm::kStaticSlot:
        return 1;
      default:
        return 0;
    }
  }

  StateWrite Concat(Operation& op, int depth) {
    if (const Value* value = SplitIntoHalves(op)) return Classify(value, depth + 1);
    StateWrite joined;
    joined.update_op = &op;
    joined.form = UpdateForm::kStaticSlot;
    const Literal* axis_literal = op.InputConstant("axis");
    int64_t axis = axis_literal != nullptr ? axis_literal->tensor.GetInt(0) : 0;
    if (axis < 0) axis += op.output()->type.rank();
    int64_t fresh = 0;
    bool shifted = false;
    for (const Operand& operand : op.FindInput("values")->arguments) {
      if (Depends(&operand)) {
        shifted = shifted || DropsFront(*operand.value, axis);
        continue;
      }
      const Shape& shape = operand.type().shape();
      if (axis < static_cast<int64_t>(shape.size()) && shape[static_cast<size_t>(axis)] > 0) {
        fresh += shape[static_cast<size_t>(axis)];
      }
    }
    if (shifted) {
      joined.form = UpdateForm::kShiftConcat;
      joined.axis = axis;
      if (fresh > 0) joined.width = fresh;
      return joined;
    }
    // Slots put together again: what happened to each.
    for (const Operand& operand : op.FindInput("values")->arguments) {
      if (!Depends(&operand)) continue;
      const StateWrite piece = Classify(operand.value, depth + 1);
      if (Rank(piece.form) > Rank(joined.form)) joined = piece;
    }
    return joined;
  }

  // Whether `value` is old content without its first part along `axis`.
  [[nodiscard]] bool DropsFront(const Value& value, int64_t axis) const {
    const Value* peeled = PeelViews(&value);
    const Operation* op = peeled->producer();
    if (op == nullptr || !IsOldView(op->InputValue("x"))) return false;
    if (op->type() == "split") return peeled->index() > 0;
    const Literal* begin = op->InputConstant("begin");
    if (op->type() != "slice_by_index" && op->type() != "slice_by_size") return false;
    if (begin == nullptr) return true;
    if (axis >= begin->tensor.size()) return false;
    // Slots of a stack are sliced along another axis than the one that shifts.
    const Value* x = op->InputValue("x");
    const bool partial = x->type.rank() == peeled->type.rank() &&
                         x->type.shape()[static_cast<size_t>(axis)] - peeled->type.shape()[static_cast<size_t>(axis)] ==
                             begin->tensor.GetInt(axis);
    return begin->tensor.GetInt(axis) != 0 && partial;
  }

  // concat(old, new)[T:]
  StateWrite SliceOfConcat(Operation& op, int depth) {
    StateWrite result;
    result.update_op = &op;
    result.form = UpdateForm::kReadModifyWrite;
    const Value* x = op.InputValue("x");
    if (x == nullptr) return result;
    Operation* concat = PeelViews(x)->producer();
    if (concat == nullptr || concat->type() != "concat") {
      return Depends(x) ? Classify(x, depth + 1) : result;
    }
    const Input* values = concat->FindInput("values");
    const Operand& first = values->arguments.front();
    if (!IsOldView(&first)) return result;
    result.form = UpdateForm::kShiftConcat;
    result.update_op = concat;
    const Literal* axis = concat->InputConstant("axis");
    if (axis != nullptr) {
      const int64_t at = axis->tensor.GetInt(0) < 0 ? axis->tensor.GetInt(0) + x->type.rank() : axis->tensor.GetInt(0);
      result.axis = at;
      const int64_t total = x->type.shape()[static_cast<size_t>(at)];
      const int64_t before = first.type().shape()[static_cast<size_t>(at)];
      if (total > before && before > 0) result.width = total - before;
    }
    return result;
  }

  // The factor that old content is multiplied with, when `value` is such a product.
  [[nodiscard]] const Operand* FactorOfOld(const Operand* operand) const {
    if (operand == nullptr || operand->value == nullptr) return nullptr;
    const Operation* op = PeelViews(operand->value)->producer();
    if (op == nullptr || op->type() != "mul") return nullptr;
    const Operand* x = Argument(*op, "x");
    const Operand* y = Argument(*op, "y");
    if (IsOldView(x) && !Depends(y)) return y;
    if (IsOldView(y) && !Depends(x)) return x;
    return nullptr;
  }

  // What a factor 1 - m keeps out; null when it has not that form.
  [[nodiscard]] static const Value* Complement(const Operand& factor) {
    if (factor.value == nullptr) return nullptr;
    const Operation* op = PeelViews(factor.value)->producer();
    if (op == nullptr || op->type() != "sub" || !IsConstantOne(*Argument(*op, "x"))) return nullptr;
    return op->InputValue("y");
  }

  [[nodiscard]] bool IsBlend(const Operation& op) const {
    const Operand* x = Argument(op, "x");
    const Operand* y = Argument(op, "y");
    if (x == nullptr || y == nullptr) return false;
    if (op.type() == "add") return IsBlendOf(*x, *y) || IsBlendOf(*y, *x);
    return false;
  }

  // kept = old * (1 - m) and fresh made with m, or kept = old and fresh = m * (new - old), or kept = old - old * m.
  [[nodiscard]] bool IsBlendOf(const Operand& kept, const Operand& fresh) const {
    if (const Operand* factor = FactorOfOld(&kept); factor != nullptr && !Depends(&fresh) && fresh.value != nullptr) {
      if (const Value* mask = Complement(*factor); mask != nullptr) {
        const ValueSet from_mask = ForwardClosure({MaskRoot(mask)});
        return from_mask.contains(fresh.value);
      }
      // m and 1 - m as two inputs of the host.
      const Operation* product = PeelViews(fresh.value)->producer();
      if (product == nullptr || product->type() != "mul" || factor->value == nullptr) return false;
      const bool is_input = PeelViews(factor->value)->producer() == nullptr;
      for (const char* side : {"x", "y"}) {
        const Value* other = product->InputValue(side);
        if (other != nullptr) other = PeelViews(other);
        if (other == nullptr) continue;
        if (is_input && other->producer() == nullptr && other != PeelViews(factor->value)) return true;
        // new * (1 - k) beside old * k
        if (const Value* keep = Complement(Operand(const_cast<Value*>(other))); keep != nullptr) {
          return MaskRoot(keep) == MaskRoot(factor->value);
        }
      }
      return false;
    }
    if (kept.value == nullptr || fresh.value == nullptr) return false;
    const Operation* kept_op = PeelViews(kept.value)->producer();
    if (kept_op != nullptr && kept_op->type() == "sub" && IsOldView(Argument(*kept_op, "x")) &&
        FactorOfOld(Argument(*kept_op, "y")) != nullptr && !Depends(&fresh)) {
      return true;
    }
    if (!IsOldView(&kept)) return false;
    const Operation* product = PeelViews(fresh.value)->producer();
    if (product == nullptr || product->type() != "mul") return false;
    for (const char* side : {"x", "y"}) {
      const Value* difference = product->InputValue(side);
      const Operation* sub = difference != nullptr ? PeelViews(difference)->producer() : nullptr;
      if (sub != nullptr && sub->type() == "sub" && IsOldView(Argument(*sub, "y"))) return true;
    }
    return false;
  }

  // Where a mask starts: through casts, views and products with constants.
  [[nodiscard]] static const Value* MaskRoot(const Value* mask) {
    for (int steps = 0; steps < 16; ++steps) {
      mask = PeelViews(mask);
      const Operation* op = mask->producer();
      if (op == nullptr || (op->type() != "cast" && op->type() != "reduce_sum" && op->type() != "transpose")) break;
      mask = op->InputValue("x");
    }
    return mask;
  }

  [[nodiscard]] bool IsShiftProduct(const Operation& op) const {
    const Operand* x = Argument(op, "x");
    const Operand* y = Argument(op, "y");
    return (IsOldView(x) && y != nullptr && y->constant() != nullptr) ||
           (IsOldView(y) && x != nullptr && x->constant() != nullptr);
  }

  [[nodiscard]] bool HasShiftProduct(const Operation& op) const {
    for (const char* side : {"x", "y"}) {
      const Value* term = op.InputValue(side);
      const Operation* producer = term != nullptr ? PeelViews(term)->producer() : nullptr;
      if (producer != nullptr && producer->type() == "matmul" && IsShiftProduct(*producer)) return true;
    }
    return false;
  }

  const OldContent& old_;
};

}  // namespace

std::string_view UpdateFormName(UpdateForm form) { return std::ranges::find(kForms, form, &FormRow::form)->name; }

std::optional<UpdateForm> UpdateFormFromName(std::string_view name) {
  const auto* row = std::ranges::find(kForms, name, &FormRow::name);
  return row != kForms.end() ? std::optional(row->form) : std::nullopt;
}

std::string_view StateRoleName(StateRole role) { return std::ranges::find(kRoles, role, &RoleRow::role)->name; }

std::optional<StateRole> StateRoleFromName(std::string_view name) {
  const auto* row = std::ranges::find(kRoles, name, &RoleRow::name);
  return row != kRoles.end() ? std::optional(row->role) : std::nullopt;
}

const Value* PeelViews(const Value* value) {
  while (value->producer() != nullptr && IsView(*value->producer())) {
    const Value* x = value->producer()->InputValue("x");
    if (x == nullptr) break;
    value = x;
  }
  return value;
}

const Value* JoinedHalves(const Operation& op) {
  if (op.type() != "add" || op.output()->type.dtype() != DataType::kFp32) return nullptr;
  for (const auto& [first, second] : {std::pair("x", "y"), std::pair("y", "x")}) {
    const Value* high = op.InputValue(first);
    const Value* low = op.InputValue(second);
    const Value* unscaled = low != nullptr ? ScaledValue(low) : nullptr;
    if (high == nullptr || unscaled == nullptr) continue;
    const Value* whole = WholeOf(high);
    if (whole != nullptr && whole == WholeOf(unscaled) && whole->type.dtype() == DataType::kFp16) return whole;
  }
  return nullptr;
}

StateWrite ClassifyUpdate(Value* data, const OldContent& old) {
  StateWrite result = Classifier(old).Classify(data);
  result.data = data;
  return result;
}

}  // namespace milwright
