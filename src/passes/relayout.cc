#include "passes/relayout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/dataflow.h"
#include "analysis/effects.h"
#include "passes/edit.h"
#include "passes/slot_slice.h"

namespace milwright {
namespace {

// The state operations of `state` in program order.
std::vector<Operation*> AccessesOf(const Function& function, const Value* state) {
  const auto order = ProgramOrder(function);
  std::vector<Operation*> ops;
  for (const Use& use : state->uses()) {
    if (use.op != nullptr) ops.push_back(use.op);
  }
  std::ranges::sort(ops, {}, [&order](const Operation* op) { return order.at(op); });
  return ops;
}

// Whether `value` is what `state` holds at `write`, as far as its own block shows: read from it or written to it before
// with no write in between.
bool HoldsContentAt(const Value* value, const Operation& write, const Value* state) {
  std::vector<const Operation*> anchors;
  if (const Operation* made = value->producer(); made != nullptr && StateOf(*made) == state) anchors.push_back(made);
  for (const Use& use : value->uses()) {
    if (use.op != nullptr && use.op != &write && IsStateWrite(*use.op) && StateOf(*use.op) == state &&
        WrittenValue(*use.op) == value) {
      anchors.push_back(use.op);
    }
  }
  return std::ranges::any_of(anchors, [&](const Operation* anchor) {
    if (anchor->parent() != write.parent()) return false;
    for (const Operation* op = anchor->parent()->Next(anchor); op != nullptr; op = anchor->parent()->Next(op)) {
      if (op == &write) return true;
      if (AccessOf(*op, state).writes) return false;
    }
    return false;
  });
}

}  // namespace

std::optional<std::vector<SlotUpdate>> SlotUpdatesOf(const Operation& write) {
  const Value* state = StateOf(write);
  std::vector<SlotUpdate> updates;
  const Value* value = WrittenValue(write);
  while (!HoldsContentAt(value, write, state)) {
    Operation* op = value->producer();
    if (op == nullptr || op->type() != "slice_update" || op->parent() != write.parent()) return std::nullopt;
    auto slice = ReadSlotSlice(*op, state->type.shape());
    if (!slice.has_value() || op->InputValue("x") == nullptr || op->InputValue("update") == nullptr) {
      return std::nullopt;
    }
    updates.push_back({op, *std::move(slice)});
    value = op->InputValue("x");
  }
  std::ranges::reverse(updates);
  return updates;
}

bool SameSlot(const Value& before, const Value& after, int64_t slot) {
  if (&before == &after) return true;
  const Operation* first = before.producer();
  const Operation* last = after.producer();
  if (first == nullptr || last == nullptr || !IsStateRead(*first) || !IsStateRead(*last)) return false;
  const Value* state = StateOf(*first);
  if (StateOf(*last) != state || first->parent() != last->parent()) return false;
  for (const Operation* op = first->parent()->Next(first); op != nullptr; op = op->parent()->Next(op)) {
    if (op == last) return true;
    if (!AccessOf(*op, state).writes) continue;
    if (StateOf(*op) != state) return false;
    const auto updates = SlotUpdatesOf(*op);
    const bool elsewhere = updates.has_value() && std::ranges::none_of(*updates, [slot](const SlotUpdate& update) {
                             return update.slice.slot <= slot && slot < update.slice.slot + update.slice.count;
                           });
    if (!elsewhere) return false;
  }
  return false;
}

namespace {

class Mover {
 public:
  Mover(Function& function, const StateLayout& layout, PassReport& report)
      : function_(function),
        layout_(layout),
        state_(layout.state),
        shape_(state_->type.shape()),
        report_(report),
        builder_(function.body()) {}

  Status Run() {
    SplitUpdateOps();
    ReadBehindWrites();
    std::vector<Operation*> writes;
    std::vector<std::optional<std::vector<SlotUpdate>>> updates;
    for (Operation* op : AccessesOf(function_, state_)) {
      if (!IsStateWrite(*op)) continue;
      writes.push_back(op);
      updates.push_back(SlotUpdatesOf(*op));
    }
    for (size_t i = 0; i < writes.size(); ++i) {
      builder_.SetInsertionPoint(*writes[i]->parent(), writes[i]);
      if (updates[i].has_value() && Fit(*updates[i])) {
        MoveUpdates(*updates[i]);
      } else {
        MoveWhole(*writes[i]);
      }
      MW_RETURN_IF_ERROR(builder_.status());
    }
    for (Operation* write : writes) {
      Value* data = WrittenValue(*write);
      write->parent()->Erase(write);
      EraseUnused(data);
    }
    for (Operation* read : AccessesOf(function_, state_)) {
      MW_RETURN_IF_ERROR(MoveRead(*read));
      read->parent()->Erase(read);
    }
    function_.EraseInput(state_);
    for (const std::string& note : notes_) report_.notes.push_back(note);
    return Status::Ok();
  }

 private:
  // coreml_update_state is a write with a read behind it.
  void SplitUpdateOps() {
    for (Operation* op : AccessesOf(function_, state_)) {
      if (op->type() != "coreml_update_state") continue;
      builder_.SetInsertionPoint(*op->parent(), op);
      builder_.WriteState(state_, WrittenValue(*op));
      Value* read = builder_.ReadState(state_);
      if (read == nullptr) return;
      std::swap(read->name, op->output()->name);
      op->output()->ReplaceAllUsesWith(read);
      op->parent()->Erase(op);
    }
  }

  // What runs behind a write and goes on with the written value reads the state instead: so slices of it become slices
  // of the new state.
  void ReadBehindWrites() {
    for (Operation* write : AccessesOf(function_, state_)) {
      if (!IsStateWrite(*write)) continue;
      Value* data = WrittenValue(*write);
      if (data->producer() == nullptr || data->constant() != nullptr) continue;
      const Block& block = *write->parent();
      std::set<const Operation*> behind;
      for (Operation* op = block.Next(write); op != nullptr; op = block.Next(op)) behind.insert(op);
      std::vector<Use> later;
      for (const Use& use : data->uses()) {
        if (use.op != nullptr && behind.contains(AncestorIn(block, use.op))) later.push_back(use);
      }
      // A second write of the same value is told by the value itself.
      std::erase_if(later, [this](const Use& use) { return StateOf(*use.op) == state_; });
      if (later.empty()) continue;
      builder_.SetInsertionPoint(*write->parent(), block.Next(write));
      Value* read = builder_.ReadState(state_);
      if (read == nullptr) return;
      for (const Use& use : later) use.op->SetArgument(use.input, use.argument, Operand(read));
    }
  }

  const StatePiece* PieceOf(const SlotSlice& slice) const {
    for (const StatePiece& piece : layout_.pieces) {
      if (slice.slot >= piece.slot && slice.slot + slice.count <= piece.slot + piece.slots) return &piece;
    }
    return nullptr;
  }

  bool Fit(const std::vector<SlotUpdate>& updates) const {
    return std::ranges::all_of(updates, [this](const SlotUpdate& update) { return PieceOf(update.slice) != nullptr; });
  }

  std::vector<Value*> Targets() const {
    std::vector<Value*> targets;
    for (const StatePiece& piece : layout_.pieces) {
      const bool known = std::ranges::find(targets, piece.target) != targets.end();
      if (piece.target != nullptr && !known) targets.push_back(piece.target);
    }
    return targets;
  }

  SlotSlice Moved(const SlotSlice& slice, const StatePiece& piece) {
    const Shape& to = piece.target->type.shape();
    for (size_t i = 1; i < shape_.size(); ++i) {
      if (shape_[i] == to[i] || !slice.DynamicBegin(i)) continue;
      const Value* position = slice.begin[i].value;
      notes_.insert(
          fmt::format("{}: '{}' must stay below {} along axis {} of what was '{}': '{}' has {} there and does "
                      "not tell",
                      function_.name, position->name, shape_[i], i, state_->name, piece.target->name, to[i]));
    }
    return Retarget(slice, shape_, to, piece.target_slot - piece.slot);
  }

  void MoveUpdates(const std::vector<SlotUpdate>& updates) {
    for (Value* target : Targets()) {
      Value* content = nullptr;
      for (const SlotUpdate& update : updates) {
        const StatePiece& piece = *PieceOf(update.slice);
        if (piece.target != target) continue;
        Value* rows = update.op->InputValue("update");
        const SlotSlice slice = Moved(update.slice, piece);
        if (Fills(slice, *rows, target->type.shape())) {
          content = rows;
          continue;
        }
        if (content == nullptr) content = builder_.ReadState(target);
        content = UpdateSlice(builder_, content, rows, slice, update.op->output()->name);
      }
      if (content != nullptr) builder_.WriteState(target, content);
    }
  }

  // Whether `rows` put at `slice` are the whole new content.
  static bool Fills(const SlotSlice& slice, const Value& rows, const Shape& shape) {
    if (rows.type.shape() != shape) return false;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (slice.Begin(i, shape[i]) != 0 || slice.End(i, shape[i]) != shape[i]) return false;
    }
    return true;
  }

  // The part of an old-shaped `value` that belongs to `piece`.
  Value* PartOf(Value* value, const StatePiece& piece) {
    const Shape& to = piece.target->type.shape();
    // Slots put together by a concat are taken from it.
    const Operation* op = value->producer();
    const Literal* axis = op != nullptr && op->type() == "concat" ? op->InputConstant("axis") : nullptr;
    if (axis != nullptr && (axis->tensor.GetInt(0) == 0 || axis->tensor.GetInt(0) == -value->type.rank())) {
      int64_t slot = 0;
      for (const Operand& operand : op->FindInput("values")->arguments) {
        const int64_t count = operand.type().shape().front();
        if (slot == piece.slot && count == piece.slots && operand.value != nullptr) {
          return Slice(builder_, operand.value, Shape(shape_.size(), 0), Bounds(0, count, to), state_->name + "_part");
        }
        slot += count;
      }
    }
    Shape begin(shape_.size(), 0);
    begin[0] = piece.slot;
    return Slice(builder_, value, begin, Bounds(piece.slot, piece.slots, to), state_->name + "_part");
  }

  // The ends of `slots` slots from `slot` on, along the other axes as far as both shapes go.
  Shape Bounds(int64_t slot, int64_t slots, const Shape& to) const {
    Shape end = {slot + slots};
    for (size_t i = 1; i < shape_.size(); ++i) end.push_back(std::min(shape_[i], to[i]));
    return end;
  }

  void MoveWhole(const Operation& write) {
    for (Value* target : Targets()) {
      Value* content = nullptr;
      for (const StatePiece& piece : layout_.pieces) {
        if (piece.target != target) continue;
        Value* part = PartOf(WrittenValue(write), piece);
        if (part == nullptr) return;
        if (part->type.shape() == target->type.shape()) {
          content = part;
          continue;
        }
        if (content == nullptr) content = builder_.ReadState(target);
        Shape begin(shape_.size(), 0);
        begin[0] = piece.target_slot;
        content = builder_.Op("slice_update",
                              {{"x", content},
                               {"update", part},
                               {"begin", Literal::Int32s(begin)},
                               {"end", Literal::Int32s(Bounds(piece.target_slot, piece.slots, target->type.shape()))}},
                              target->name + "_put");
      }
      builder_.WriteState(target, content);
    }
  }

  Status MoveRead(Operation& read) {
    builder_.SetInsertionPoint(*read.parent(), &read);
    std::map<const Value*, Value*> contents;  // the new states, read where the old one was
    const auto content_of = [&](Value* target) {
      Value*& content = contents[target];
      if (content == nullptr) content = builder_.ReadState(target);
      return content;
    };
    Value* old = read.output();
    const std::vector<Use> uses = old->uses();
    for (const Use& use : uses) {
      if (use.op == nullptr || use.op->type() != "slice_by_index" || use.input != "x") continue;
      const auto slice = ReadSlotSlice(*use.op, shape_);
      const StatePiece* piece = slice.has_value() ? PieceOf(*slice) : nullptr;
      if (piece == nullptr || piece->target == nullptr) continue;
      builder_.SetInsertionPoint(*read.parent(), &read);
      Value* content = content_of(piece->target);
      MW_RETURN_IF_ERROR(builder_.status());
      builder_.SetInsertionPoint(*use.op->parent(), use.op);
      use.op->SetInput("x", content);
      SetSlice(*use.op, Moved(*slice, *piece), builder_, use.op->output()->name);
    }
    if (old->uses().empty()) return Status::Ok();
    builder_.SetInsertionPoint(*read.parent(), &read);
    std::vector<Value*> parts;
    for (const StatePiece& piece : layout_.pieces) {
      if (piece.target == nullptr) {
        return Refuse(fmt::format("{} uses slots of '{}' that are to go", OperationPath(read), state_->name));
      }
      Shape begin(shape_.size(), 0);
      begin[0] = piece.target_slot;
      const Shape end = Bounds(piece.target_slot, piece.slots, piece.target->type.shape());
      parts.push_back(Slice(builder_, content_of(piece.target), begin, end, state_->name + "_slots"));
    }
    Value* whole = parts.front();
    if (parts.size() > 1) {
      whole =
          builder_.Op("concat", {{"values", parts}, {"axis", Literal::Int32(0)}, {"interleave", Literal::Bool(false)}},
                      state_->name + "_whole");
    }
    MW_RETURN_IF_ERROR(builder_.status());
    if (!(whole->type == old->type)) {
      return Refuse(fmt::format("{} reads all of '{}', {}, of which only {} would be kept", OperationPath(read),
                                state_->name, ShapeToString(shape_), ShapeToString(whole->type.shape())));
    }
    std::swap(whole->name, old->name);
    old->ReplaceAllUsesWith(whole);
    return Status::Ok();
  }

  Function& function_;
  const StateLayout& layout_;
  Value* state_;
  const Shape shape_;
  PassReport& report_;
  Builder builder_;
  std::set<std::string> notes_;
};

}  // namespace

Status Relayout(Function& function, const std::vector<StateLayout>& layouts, PassReport& report) {
  for (const StateLayout& layout : layouts) MW_RETURN_IF_ERROR(Mover(function, layout, report).Run());
  return Status::Ok();
}

namespace {

class ExtentFinder {
 public:
  ExtentFinder(const Value& state, int64_t slot, int64_t slots)
      : state_(state), shape_(state.type.shape()), slot_(slot), slots_(slots), extent_(shape_.size(), 0) {}

  /// 0 along every axis when the slots are never used.
  const Shape& Find() {
    for (const Use& use : state_.uses()) {
      if (use.op == nullptr) continue;
      if (use.op->type() != "read_state") {
        Write(*use.op);
        if (use.op->outputs().empty()) continue;
      }
      Reads(*use.op->output());
    }
    return extent_;
  }

 private:
  bool Concerns(const SlotSlice& slice) const {
    return slice.slot < slot_ + slots_ && slot_ < slice.slot + slice.count;
  }
  void Reach(size_t axis, int64_t end) { extent_[axis] = std::max(extent_[axis], end); }
  void ReachAll() { extent_ = shape_; }

  void Write(const Operation& write) {
    const auto updates = SlotUpdatesOf(write);
    if (!updates.has_value()) return ReachAll();
    for (const SlotUpdate& update : *updates) {
      if (!Concerns(update.slice)) continue;
      const Shape& rows = update.op->InputValue("update")->type.shape();
      size_t row = 0;
      for (size_t i = 0; i < shape_.size(); ++i) {
        const int64_t count = update.slice.squeeze_mask[i] != 0 || row >= rows.size() ? 1 : rows[row++];
        Reach(i, update.slice.End(i, shape_[i]).value_or(count));
      }
    }
  }

  void Reads(const Value& content) {
    for (const Use& use : content.uses()) {
      if (use.op == nullptr) {
        ReachAll();
      } else if (use.op->type() == "slice_update" && use.input == "x") {
        MaybeUpdate(*use.op);
      } else if (StateOf(*use.op) == &state_ && IsStateWrite(*use.op)) {
        continue;  // written back
      } else if (const auto slice = ReadSlotSlice(*use.op, shape_); slice.has_value() && use.input == "x") {
        if (!Concerns(*slice)) continue;
        for (size_t i = 0; i < shape_.size(); ++i) Reach(i, slice->End(i, shape_[i]).value_or(shape_[i]));
      } else {
        ReachAll();
      }
    }
  }

  // A slice update of the content counts by its rows when its result is only written, and by its readers else.
  void MaybeUpdate(const Operation& op) {
    if (visited_.insert(&op).second) Reads(*op.output());
  }

  const Value& state_;
  const Shape& shape_;
  int64_t slot_;
  int64_t slots_;
  Shape extent_;
  std::set<const Operation*> visited_;
};

}  // namespace

Shape UsedExtent(const Value& state, int64_t slot, int64_t slots) {
  Shape extent = ExtentFinder(state, slot, slots).Find();
  // What is never used keeps its size.
  for (size_t i = 0; i < extent.size(); ++i) {
    if (extent[i] == 0) extent[i] = state.type.shape()[i];
  }
  return extent;
}

bool UsesSlot(const Value& state, int64_t slot) {
  ExtentFinder finder(state, slot, 1);
  return std::ranges::any_of(finder.Find(), [](int64_t size) { return size != 0; });
}

}  // namespace milwright
