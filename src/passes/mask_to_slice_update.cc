// mask-to-slice-update: cache * (1 - m) + new * m with a one-hot m becomes a slice update at the position of the one.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/state_analysis.h"
#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/relayout.h"
#include "passes/slot_slice.h"

namespace milwright {
namespace {

// old * (1 - mask) + rows * mask along `axis` of old.
struct Blend {
  Operation* op = nullptr;
  Value* old = nullptr;
  Value* rows = nullptr;
  Value* mask = nullptr;
  size_t axis = 0;
};

bool IsOnes(const Value* value) {
  const Literal* literal = value != nullptr ? value->constant() : nullptr;
  if (literal == nullptr || !literal->type.IsTensor() || literal->tensor.size() == 0) return false;
  for (int64_t i = 0; i < literal->tensor.size(); ++i) {
    if (literal->tensor.GetDouble(i) != 1) return false;
  }
  return true;
}

// The axis of `shape` along which a mask of shape `mask` differs; nullopt when it is not exactly one, and whole.
std::optional<size_t> MaskAxis(const Shape& mask, const Shape& shape) {
  if (mask.size() > shape.size()) return std::nullopt;
  std::optional<size_t> axis;
  for (size_t i = 0; i < mask.size(); ++i) {
    const size_t at = shape.size() - mask.size() + i;
    if (mask[i] == 1) continue;
    if (axis.has_value() || mask[i] != shape[at]) return std::nullopt;
    axis = at;
  }
  return axis;
}

// Finds blends and says why an operation is none.
class BlendMatcher {
 public:
  std::optional<Blend> Match(Operation& op) {
    why_ = "has another form than cache * (1 - mask) + new * mask";
    std::optional<Blend> blend;
    if (op.type() == "select") {
      if (op.InputValue("cond") != nullptr && op.InputValue("a") != nullptr && op.InputValue("b") != nullptr) {
        blend = Complete({&op, op.InputValue("b"), op.InputValue("a"), op.InputValue("cond"), 0});
      }
    } else if (op.type() == "add") {
      for (const auto& [kept, fresh] : {std::pair("x", "y"), std::pair("y", "x")}) {
        blend = MatchSum(op, op.InputValue(kept), op.InputValue(fresh));
        if (blend.has_value()) break;
      }
    }
    return blend;
  }
  const std::string& why() const { return why_; }

 private:
  static const Operation* Product(const Value* value) {
    const Operation* op = value != nullptr ? value->producer() : nullptr;
    return op != nullptr && op->type() == "mul" ? op : nullptr;
  }

  std::optional<Blend> MatchSum(Operation& op, const Value* kept, const Value* fresh) {
    const Operation* keep = Product(kept);
    const Operation* put = Product(fresh);
    if (keep == nullptr || put == nullptr) return std::nullopt;
    for (const auto& [old, factor] : {std::pair("x", "y"), std::pair("y", "x")}) {
      const Value* complement = keep->InputValue(factor);
      const Operation* sub = complement != nullptr ? PeelViews(complement)->producer() : nullptr;
      if (sub == nullptr || sub->type() != "sub" || !IsOnes(sub->InputValue("x"))) continue;
      const Value* hidden = sub->InputValue("y");
      for (const auto& [rows, mask] : {std::pair("x", "y"), std::pair("y", "x")}) {
        Value* shown = put->InputValue(mask);
        if (hidden == nullptr || shown == nullptr || PeelViews(hidden) != PeelViews(shown)) continue;
        if (MaskAxis(complement->type.shape(), op.output()->type.shape()) !=
            MaskAxis(shown->type.shape(), op.output()->type.shape())) {
          continue;
        }
        return Complete({&op, keep->InputValue(old), put->InputValue(rows), shown, 0});
      }
    }
    return std::nullopt;
  }

  std::optional<Blend> Complete(Blend blend) {
    if (blend.old == nullptr || blend.rows == nullptr) return std::nullopt;
    const Shape& shape = blend.old->type.shape();
    if (!(blend.old->type == blend.op->output()->type)) return std::nullopt;
    const auto axis = MaskAxis(blend.mask->type.shape(), shape);
    if (!axis.has_value()) {
      why_ = "has a mask that is not over one axis of the cache";
      return std::nullopt;
    }
    blend.axis = *axis;
    // New rows that were repeated along the axis are taken as they were before.
    const Operation* made = blend.rows->producer();
    if (made != nullptr && made->type() == "tile" && made->InputValue("x") != nullptr &&
        made->InputValue("x")->type.rank() == blend.rows->type.rank()) {
      blend.rows = made->InputValue("x");
    }
    Shape one = shape;
    one[blend.axis] = 1;
    if (blend.rows->type.shape() != one) {
      why_ = fmt::format("puts {} into {}, which is not one row along axis {}", ShapeToString(blend.rows->type.shape()),
                         ShapeToString(shape), blend.axis);
      return std::nullopt;
    }
    return blend;
  }

  std::string why_;
};

bool IsRange(const Literal& literal) {
  if (!literal.type.IsTensor()) return false;
  for (int64_t i = 0; i < literal.tensor.size(); ++i) {
    if (literal.tensor.GetDouble(i) != static_cast<double>(i)) return false;
  }
  return true;
}

// `mask` without casts and views.
Value* MaskSource(Value* mask) {
  while (mask->producer() != nullptr) {
    const std::string& type = mask->producer()->type();
    Value* x = mask->producer()->InputValue("x");
    if (x == nullptr ||
        (type != "cast" && type != "reshape" && type != "expand_dims" && type != "squeeze" && type != "identity")) {
      break;
    }
    mask = x;
  }
  return mask;
}

// The int32 position whose one-hot mask `source` is by its own computation; null when that is not proved.
Value* ProvedPosition(const Value* source, int64_t size) {
  const Operation* op = source->producer();
  if (op == nullptr) return nullptr;
  Value* position = nullptr;
  if (op->type() == "one_hot") {
    const Literal* count = op->InputConstant("one_hot_vector_size");
    const Literal* on = op->InputConstant("on_value");
    const Literal* off = op->InputConstant("off_value");
    const bool plain = count != nullptr && count->tensor.GetInt(0) == size &&
                       (on == nullptr || on->tensor.GetDouble(0) == 1) &&
                       (off == nullptr || off->tensor.GetDouble(0) == 0);
    position = plain ? op->InputValue("indices") : nullptr;
  } else if (op->type() == "equal") {
    for (const auto& [range, other] : {std::pair("x", "y"), std::pair("y", "x")}) {
      const Literal* literal = op->InputConstant(range);
      if (literal == nullptr || literal->tensor.size() != size || !IsRange(*literal)) continue;
      // fp16 counts exactly up to 2048 only.
      constexpr int64_t kExactHalf = 2048;
      if (literal->type.dtype() == DataType::kFp16 && size > kExactHalf) continue;
      position = op->InputValue(other);
    }
  }
  while (position != nullptr && position->type.dtype() != DataType::kInt32) {
    const Operation* cast = position->producer();
    position = cast != nullptr && cast->type() == "cast" ? cast->InputValue("x") : nullptr;
  }
  if (position == nullptr) return nullptr;
  const auto count = ElementCount(position->type.shape());
  return count.ok() && *count == 1 ? position : nullptr;
}

class MaskRewriter {
 public:
  MaskRewriter(Function& function, const PassArguments& arguments, PassReport& report)
      : function_(function), arguments_(arguments), report_(report), builder_(function.body()) {}

  /// Gives back the number of updates rewritten.
  Result<size_t> Run() {
    const FunctionStates states = AnalyzeStates(function_);
    std::vector<Operation*> ops;
    ForEachOperation(function_.body(), [&ops](Operation& op) {
      if (op.type() == "add" || op.type() == "select") ops.push_back(&op);
    });
    std::vector<std::pair<Blend, Value*>> found;
    std::set<const Operation*> matched;
    BlendMatcher matcher;
    for (Operation* op : ops) {
      const StateWrite* write = WriteOf(states, op);
      const auto blend = matcher.Match(*op);
      if (!blend.has_value()) {
        if (write != nullptr) return Refuse(fmt::format("{} {}", OperationPath(*op), matcher.why()));
        continue;
      }
      MW_ASSIGN_OR_RETURN(Value * position, PositionOf(*blend));
      if (position == nullptr) {
        if (write == nullptr) continue;
        return Refuse(
            fmt::format("{} has a mask that is neither an input nor computed as position == range: "
                        "nothing shows that it is one-hot",
                        OperationPath(*op)));
      }
      found.emplace_back(*blend, position);
      matched.insert(op);
    }
    for (const StateFacts& facts : states.states) {
      for (const StateWrite& write : facts.writes) {
        if (write.form != UpdateForm::kMaskBlend || matched.contains(write.update_op)) continue;
        return Refuse(fmt::format("{} has another form than cache * (1 - mask) + new * mask",
                                  OperationPath(*(write.update_op != nullptr ? write.update_op : write.op))));
      }
    }
    for (auto& [blend, position] : found) {
      // The values that it is made of may have been replaced with the blends before it.
      const auto now = matcher.Match(*blend.op);
      if (!now.has_value()) return Refuse(fmt::format("{} {}", OperationPath(*blend.op), matcher.why()));
      MW_RETURN_IF_ERROR(Rewrite(*now, position));
    }
    DropMasks();
    return found.size();
  }

 private:
  static const StateWrite* WriteOf(const FunctionStates& states, const Operation* op) {
    for (const StateFacts& facts : states.states) {
      for (const StateWrite& write : facts.writes) {
        if (write.update_op == op && write.form == UpdateForm::kMaskBlend) return &write;
      }
    }
    return nullptr;
  }

  // Where the mask of `blend` has its one: proved, or as the option says; null when neither is so.
  Result<Value*> PositionOf(const Blend& blend) {
    Value* source = MaskSource(blend.mask);
    const int64_t size = blend.old->type.shape()[blend.axis];
    if (Value* position = ProvedPosition(source, size); position != nullptr) return position;
    const bool is_input = source->producer() == nullptr && source->owner_block() == nullptr;
    if (!is_input) return static_cast<Value*>(nullptr);
    if (arguments_.Has("mask") && source->name != arguments_.String("mask")) return static_cast<Value*>(nullptr);
    const std::string name = arguments_.String("position");
    if (name.empty()) {
      return Refuse(
          fmt::format("{} takes its mask from the input '{}'; position:INPUT names (or adds) the int32 input "
                      "that says where the mask is one",
                      OperationPath(*blend.op), source->name));
    }
    if (!masks_.empty() && !masks_.contains(source->name)) {
      return Refuse(fmt::format("'{}' and '{}' are both masks of updates; mask:NAME says which one '{}' belongs to",
                                *masks_.begin(), source->name, name));
    }
    if (masks_.insert(source->name).second) {
      MW_ASSIGN_OR_RETURN(position_, PositionInput(function_, name, report_));
      report_.assumptions.push_back(
          fmt::format("{}: '{}' is 1 at '{}' and 0 elsewhere", function_.name, source->name, name));
    }
    return position_;
  }

  // begin and end of one row at `position`, in slot `slot` of `shape` when it has slots.
  struct Bounds {
    Value* begin = nullptr;
    Value* end = nullptr;
  };
  Bounds RowBounds(const Shape& shape, size_t axis, Value* position, std::optional<int64_t> slot) {
    std::vector<VectorEntry> begin(shape.size(), VectorEntry{0, nullptr});
    std::vector<VectorEntry> end;
    for (const int64_t size : shape) end.push_back({size, nullptr});
    if (slot.has_value()) {
      begin[0] = {*slot, nullptr};
      end[0] = {*slot + 1, nullptr};
    }
    Value* at = AsVector(builder_, position);
    begin[axis] = {std::nullopt, at};
    end[axis] = {std::nullopt, builder_.Op("add", {{"x", at}, {"y", Literal::Int32s({1})}}, position->name + "_end")};
    return {MakeVector(builder_, begin, "begin"), MakeVector(builder_, end, "end")};
  }

  Value* UpdateRow(Value* x, Value* rows, size_t axis, Value* position, std::optional<int64_t> slot,
                   const std::string& name) {
    const Bounds bounds = RowBounds(x->type.shape(), axis, position, slot);
    return builder_.Op("slice_update", {{"x", x}, {"update", rows}, {"begin", bounds.begin}, {"end", bounds.end}},
                       name);
  }

  // The slice update that puts the blended slot back.
  static Operation* PutOf(const Blend& blend) {
    Operation* put = nullptr;
    WalkForward(
        blend.op->output(),
        [](const Operation& op) {
          return op.type() == "squeeze" || op.type() == "expand_dims" || op.type() == "reshape";
        },
        [&put](const Operation& op, const Value* operand) {
          if (op.type() == "slice_update" && op.InputValue("update") == operand) put = op.output()->producer();
        });
    return put;
  }

  Status Rewrite(const Blend& blend, Value* position) {
    builder_.SetInsertionPoint(*blend.op->parent(), blend.op);
    Value* old_result = blend.op->output();
    Operation* put = PutOf(blend);
    Value* result = put != nullptr ? RewriteSlot(blend, position, *put) : nullptr;
    if (result == nullptr) put = nullptr;
    if (result == nullptr) {
      result = UpdateRow(blend.old, blend.rows, blend.axis, position, std::nullopt, old_result->name);
    }
    MW_RETURN_IF_ERROR(builder_.status());
    std::swap(result->name, old_result->name);
    old_result->ReplaceAllUsesWith(result);
    if (put != nullptr) EraseUnused(put->output());
    EraseUnused(old_result);
    return Status::Ok();
  }

  // Whether everything that uses `slot`, but for what puts it back, runs behind `put`.
  bool UsedBehind(const Value& slot, const Operation& put) const {
    const auto order = ProgramOrder(function_);
    return std::ranges::all_of(slot.uses(), [&](const Use& use) {
      if (use.op == nullptr || use.op == &put || order.at(use.op) > order.at(&put)) return true;
      const bool only_puts =
          use.op->outputs().size() == 1 &&
          std::ranges::all_of(use.op->output()->uses(), [&put](const Use& next) { return next.op == &put; });
      return only_puts;
    });
  }

  // When the blended slot is put back into the state it was taken from, the row goes straight into the state. Gives
  // the slot after the update; null when the program has another form.
  Value* RewriteSlot(const Blend& blend, Value* position, const Operation& put) {
    if (put.parent() != blend.op->parent()) return nullptr;
    Value* base = put.InputValue("x");
    const Operation* take = PeelViews(blend.old)->producer();
    const Value* source = take != nullptr ? take->InputValue("x") : nullptr;
    if (base == nullptr || source == nullptr || source->type != base->type ||
        PeelViews(put.InputValue("update")) != blend.op->output()) {
      return nullptr;
    }
    const Shape& shape = base->type.shape();
    const auto to = ReadSlotSlice(put, shape);
    const auto from = ReadSlotSlice(*take, shape);
    if (!to.has_value() || !from.has_value() || to->slot != from->slot || to->count != 1 || from->count != 1 ||
        !SameSlot(*source, *base, to->slot)) {
      return nullptr;
    }
    if (source != base) {
      // The state was written in other slots meanwhile: the row goes in where the slot is put back.
      if (!UsedBehind(*blend.op->output(), put)) return nullptr;
      builder_.SetInsertionPoint(*put.parent(), put.output()->producer());
    }
    for (size_t i = 1; i < shape.size(); ++i) {
      for (const SlotSlice* slice : {&*to, &*from}) {
        if (slice->Begin(i, shape[i]) != 0 || slice->End(i, shape[i]) != shape[i]) return nullptr;
      }
    }
    // The slot as it is blended: with its axis of one, or without.
    const Shape& view = blend.old->type.shape();
    Shape slot = shape;
    slot[0] = 1;
    const bool squeezed = view == Shape(shape.begin() + 1, shape.end());
    if (view != slot && !squeezed) return nullptr;
    Value* rows = blend.rows;
    size_t axis = blend.axis;
    if (squeezed) {
      rows = builder_.Op("expand_dims", {{"x", rows}, {"axes", Literal::Int32s({0})}}, rows->name + "_slot");
      ++axis;
    }
    Value* updated = UpdateRow(base, rows, axis, position, to->slot, put.output()->name);
    if (updated == nullptr) return nullptr;
    Shape begin(shape.size(), 0);
    Shape end = shape;
    begin[0] = to->slot;
    end[0] = to->slot + 1;
    std::vector<Binding> bindings = {{"x", updated}, {"begin", Literal::Int32s(begin)}, {"end", Literal::Int32s(end)}};
    std::vector<int64_t> squeeze(shape.size(), 0);
    squeeze[0] = squeezed ? 1 : 0;
    if (squeezed) bindings.emplace_back("squeeze_mask", Literal::Bools(squeeze));
    Value* result = builder_.Op("slice_by_index", std::move(bindings), blend.op->output()->name);
    if (result == nullptr) return nullptr;
    std::swap(updated->name, put.output()->name);
    put.output()->ReplaceAllUsesWith(updated);
    return result;
  }

  void DropMasks() {
    for (const std::string& name : masks_) {
      Value* mask = function_.FindInput(name);
      if (mask == nullptr || !mask->uses().empty()) continue;
      function_.EraseInput(mask);
      report_.notes.push_back(
          fmt::format("{}: the input '{}' is gone: nothing uses it any more", function_.name, name));
    }
  }

  Function& function_;
  const PassArguments& arguments_;
  PassReport& report_;
  Builder builder_;
  std::set<std::string> masks_;  // inputs whose one stands at position_
  Value* position_ = nullptr;
};

}  // namespace

Status MaskToSliceUpdate(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_RETURN_IF_ERROR(EnsureOpset(model, Opset::kIOS18, report));
  size_t rewritten = 0;
  for (const auto& function : model.program.functions()) {
    MW_ASSIGN_OR_RETURN(const size_t count, MaskRewriter(*function, arguments, report).Run());
    rewritten += count;
  }
  if (rewritten == 0) return Refuse("no cache is updated by a mask");
  report.notes.push_back(
      fmt::format("{} updates rewritten; a position outside the cache is an error now, where the mask "
                  "wrote nothing",
                  rewritten));
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
