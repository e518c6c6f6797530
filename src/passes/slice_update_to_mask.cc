// slice-update-to-mask: a slice update of one row at a position becomes cache * (1 - m) + new * m with a one-hot m.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "analysis/state_analysis.h"
#include "passes/edit.h"
#include "passes/entries.h"
#include "passes/slot_slice.h"

namespace milwright {
namespace {

// A slice update of one row at a position known at run time.
struct RowUpdate {
  Operation* op = nullptr;
  SlotSlice slice;
  size_t axis = 0;
  Shape begin;  // the constant part: where the updated region lies along the other axes
  Shape end;
};

Status Blocked(const Operation& op, const std::string& why) {
  return Refuse(fmt::format("{} {}", OperationPath(op), why));
}

Result<RowUpdate> ReadRowUpdate(Operation& op) {
  const Value* x = op.InputValue("x");
  const Value* rows = op.InputValue("update");
  if (x == nullptr || rows == nullptr || !IsStatic(x->type.shape()))
    return Blocked(op, "updates no value of fixed shape");
  const Shape& shape = x->type.shape();
  const auto slice = ReadSlotSlice(op, shape);
  if (!slice.has_value()) return Blocked(op, "is placed along its first axis, or skips rows");
  RowUpdate update{&op, *slice, 0, {}, {}};
  size_t row = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool squeezed = slice->squeeze_mask[i] != 0;
    const int64_t count = squeezed ? 1 : rows->type.shape()[row++];
    if (slice->DynamicBegin(i)) {
      if (update.axis != 0) return Blocked(op, "is placed at run time along two axes");
      if (count != 1) return Blocked(op, fmt::format("writes {} rows at once; a mask takes one", count));
      update.axis = i;
    }
    update.begin.push_back(slice->Begin(i, shape[i]).value_or(0));
    update.end.push_back(slice->DynamicBegin(i) ? shape[i] : slice->End(i, shape[i]).value_or(shape[i]));
  }
  if (update.axis == 0) return Blocked(op, "writes at no position known at run time");
  return update;
}

class MaskMaker {
 public:
  MaskMaker(Function& function, const PassArguments& arguments, PassReport& report)
      : function_(function), arguments_(arguments), report_(report), builder_(function.body()) {}

  /// Gives back the number of updates rewritten.
  Result<size_t> Run() {
    std::set<const Operation*> wanted;
    for (const StateFacts& facts : AnalyzeStates(function_).states) {
      for (const StateWrite& write : facts.writes) {
        if (write.form == UpdateForm::kSliceUpdate) wanted.insert(write.update_op);
      }
    }
    std::vector<RowUpdate> updates;
    std::vector<Operation*> ops;
    ForEachOperation(function_.body(), [&ops](Operation& op) {
      if (op.type() == "slice_update" && op.InputConstant("begin") == nullptr) ops.push_back(&op);
    });
    for (Operation* op : ops) {
      auto update = ReadRowUpdate(*op);
      if (update.ok()) {
        updates.push_back(*std::move(update));
      } else if (wanted.contains(op)) {
        return update.status();
      }
    }
    for (const RowUpdate& update : updates) MW_RETURN_IF_ERROR(Rewrite(update));
    return updates.size();
  }

 private:
  struct Masks {
    Value* put = nullptr;   // 1 at the position
    Value* keep = nullptr;  // 1 elsewhere
  };

  Result<Masks> MasksFor(const RowUpdate& update, DataType dtype) {
    const Shape& shape = update.op->output()->type.shape();
    Value* position = update.slice.begin[update.axis].value;
    const auto key = std::tuple(update.op->parent(), position, shape[update.axis], shape.size() - update.axis, dtype);
    if (const auto it = masks_.find(key); it != masks_.end()) return it->second;
    Shape form(shape.size(), 1);
    form[update.axis] = shape[update.axis];
    Masks masks;
    if (arguments_.Has("mask")) {
      MW_ASSIGN_OR_RETURN(masks.put, MaskInput(arguments_.String("mask"), Type::Tensor(dtype, form), *position));
    } else {
      std::vector<int64_t> range(static_cast<size_t>(shape[update.axis]));
      std::iota(range.begin(), range.end(), 0);
      MW_ASSIGN_OR_RETURN(Tensor positions, Tensor::VectorOf(DataType::kInt32, range).Reshaped(form));
      Value* here =
          builder_.Op("equal", {{"x", Literal(std::move(positions))}, {"y", position}}, position->name + "_here");
      masks.put = builder_.Op("cast", {{"x", here}, {"dtype", Literal::String(std::string(DataTypeName(dtype)))}},
                              position->name + "_mask");
    }
    masks.keep = builder_.Op("sub", {{"x", Literal::Float(dtype, 1)}, {"y", masks.put}}, position->name + "_keep");
    MW_RETURN_IF_ERROR(builder_.status());
    masks_.emplace(key, masks);
    return masks;
  }

  Result<Value*> MaskInput(const std::string& name, const Type& type, const Value& position) {
    Value* mask = function_.FindInput(name);
    if (mask == nullptr) {
      ReleaseName(function_, name);
      mask = AddTensorInput(function_, name, type);
      report_.notes.push_back(
          fmt::format("added the input '{}' ({}) to '{}'", name, TypeToString(type.tensor), function_.name));
    }
    if (!(mask->type == type)) {
      return Refuse(fmt::format("'{}' of '{}' is {}, but the update at '{}' needs {}; without mask: each is computed",
                                name, function_.name, TypeToString(mask->type), position.name, TypeToString(type)));
    }
    const std::string assumption =
        fmt::format("{}: '{}' is 1 at '{}' and 0 elsewhere", function_.name, name, position.name);
    if (std::ranges::find(report_.assumptions, assumption) == report_.assumptions.end()) {
      report_.assumptions.push_back(assumption);
    }
    return mask;
  }

  Status Rewrite(const RowUpdate& update) {
    Operation& op = *update.op;
    builder_.SetInsertionPoint(*op.parent(), &op);
    Value* x = op.InputValue("x");
    Value* rows = op.InputValue("update");
    const DataType dtype = x->type.dtype();
    if (!IsFloat(dtype)) return Blocked(op, "updates a cache that is not of floats");
    MW_ASSIGN_OR_RETURN(const Masks masks, MasksFor(update, dtype));
    Shape form = update.end;
    for (size_t i = 0; i < form.size(); ++i) form[i] -= update.begin[i];
    form[update.axis] = 1;
    if (rows->type.shape() != form) {
      rows = builder_.Op("reshape", {{"x", rows}, {"shape", Literal::Int32s(form)}}, rows->name + "_row");
    }
    Value* old = op.output();
    Value* region = Slice(builder_, x, update.begin, update.end, old->name + "_before");
    Value* kept = builder_.Op("mul", {{"x", region}, {"y", masks.keep}}, old->name + "_kept");
    Value* put = builder_.Op("mul", {{"x", rows}, {"y", masks.put}}, old->name + "_put");
    Value* result = builder_.Op("add", {{"x", kept}, {"y", put}}, old->name + "_blend");
    if (region != x) {
      result = builder_.Op("slice_update",
                           {{"x", x},
                            {"update", result},
                            {"begin", Literal::Int32s(update.begin)},
                            {"end", Literal::Int32s(update.end)}},
                           old->name);
    }
    MW_RETURN_IF_ERROR(builder_.status());
    std::swap(result->name, old->name);
    old->ReplaceAllUsesWith(result);
    EraseUnused(old);
    return Status::Ok();
  }

  Function& function_;
  const PassArguments& arguments_;
  PassReport& report_;
  Builder builder_;
  std::map<std::tuple<const Block*, const Value*, int64_t, size_t, DataType>, Masks> masks_;
};

}  // namespace

Status SliceUpdateToMask(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  size_t rewritten = 0;
  for (const auto& function : model.program.functions()) {
    MW_ASSIGN_OR_RETURN(const size_t count, MaskMaker(*function, arguments, report).Run());
    rewritten += count;
  }
  if (rewritten == 0) return Refuse("no cache is updated by a slice update at a position");
  report.notes.push_back(fmt::format(
      "{} updates rewritten; a position outside the cache writes nothing now, where it was an error", rewritten));
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
