// state-to-io: a state becomes an input and an output, and the host carries it from step to step.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "passes/edit.h"
#include "passes/entries.h"

namespace milwright {
namespace {

// Turns the reads and writes of one state into SSA values in program order: a read gives the value that stands there,
// a write replaces it. Branches and loops carry it along.
class StateThreader {
 public:
  StateThreader(Function& function, const Value* state) : function_(function), state_(state) {}

  /// `current` is the content before `block`, and afterwards that behind it.
  Status Run(Block& block, Value*& current) {
    std::vector<Operation*> ops;
    for (const auto& op : block.operations()) ops.push_back(op.get());
    for (Operation* op : ops) {
      if (StateOf(*op) == state_) {
        if (IsStateWrite(*op)) current = WrittenValue(*op);
        if (!op->outputs().empty()) Replace(*op, current);
        block.Erase(op);
      } else if (!op->blocks().empty()) {
        MW_RETURN_IF_ERROR(RunNested(*op, current));
      }
    }
    return Status::Ok();
  }

 private:
  // Readers of `op` see `current`. A function output keeps a value of its own name.
  void Replace(Operation& op, Value* current) {
    Value* seen = current;
    if (IsFunctionOutput(*op.output())) {
      const std::string name = op.output()->name;
      op.output()->name = function_.UniqueName(name + "_read");
      Builder builder(*op.parent(), &op);
      seen = builder.Op("identity", {{"x", current}}, name);
    }
    op.output()->ReplaceAllUsesWith(seen);
  }

  Status RunNested(Operation& op, Value*& current) {
    const StateAccess access = AccessOf(op, state_);
    if (!access.writes) {
      for (const auto& block : op.blocks()) {
        Value* seen = current;
        MW_RETURN_IF_ERROR(Run(*block, seen));
      }
      return Status::Ok();
    }
    if (op.type() == "cond") {
      for (const auto& block : op.blocks()) {
        Value* inner = current;
        MW_RETURN_IF_ERROR(Run(*block, inner));
        AppendOutput(*block, inner);
      }
    } else if (op.type() == "while_loop") {
      std::vector<Operand> variables = op.FindInput("loop_vars")->arguments;
      variables.emplace_back(current);
      op.SetInput("loop_vars", std::move(variables));
      for (const auto& block : op.blocks()) {
        Value* inner = block->AddInput(function_.UniqueName(state_->name + "_inner"), current->type);
        const Value* start = inner;
        MW_RETURN_IF_ERROR(Run(*block, inner));
        const bool is_condition = block == op.blocks().front();
        if (is_condition && inner != start) {
          return Refuse(fmt::format("{} writes the state '{}' in its condition", OperationPath(op), state_->name));
        }
        if (!is_condition) AppendOutput(*block, inner);
      }
    } else {
      return Refuse(fmt::format("{} writes the state '{}' in a nested block", OperationPath(op), state_->name));
    }
    current = op.AddOutput(function_.UniqueName(state_->name + "_after"), current->type);
    return Status::Ok();
  }

  static void AppendOutput(Block& block, Value* value) {
    // What a block gives out is made in it.
    if (value->producer() == nullptr || value->producer()->parent() != &block) {
      Builder builder(block);
      value = builder.Op("identity", {{"x", value}}, value->name + "_unchanged");
    }
    std::vector<Value*> outputs = block.outputs();
    outputs.push_back(value);
    block.SetOutputs(std::move(outputs));
  }

  Function& function_;
  const Value* state_;
};

// Makes `value` an output called `name`: under its own operation where that is free for it.
Status AddOutput(Function& function, Value* value, const std::string& name) {
  Block& body = function.body();
  ReleaseName(function, name);
  const Operation* producer = value->producer();
  const bool may_rename =
      producer != nullptr && producer->parent() == &body && producer->type() != "const" && !IsFunctionOutput(*value);
  if (may_rename) {
    value->name = name;
  } else {
    Builder builder(body);
    value = builder.Op("identity", {{"x", value}}, name);
    MW_RETURN_IF_ERROR(builder.status());
  }
  std::vector<Value*> outputs = body.outputs();
  outputs.push_back(value);
  body.SetOutputs(std::move(outputs));
  return Status::Ok();
}

// ---- outputs of new rows ----

struct Rows {
  int64_t slot = 0;
  Value* value = nullptr;
};

// The rows that a step puts into a state, in the order of their slots.
struct NewRows {
  std::vector<Rows> rows;
  int64_t axis = 0;
  Value* position = nullptr;
};

class RowFinder {
 public:
  explicit RowFinder(const Value* state) : state_(state), shape_(state->type.shape()) {}

  Result<NewRows> Find(const StateFacts& facts) {
    for (const StateWrite& write : facts.writes) {
      const Value* value = write.data;
      if (write.form != UpdateForm::kSliceUpdate) return Blocked(*write.op, "is no slice update");
      std::vector<Rows> added;
      while (value->producer() != nullptr && value->producer()->type() == "slice_update" && !IsContent(facts, value)) {
        MW_ASSIGN_OR_RETURN(const Rows rows, RowsOf(*value->producer()));
        added.push_back(rows);
        value = value->producer()->InputValue("x");
      }
      if (!IsContent(facts, value)) return Blocked(*write.op, "is no plain slice update of what was read");
      update_.rows.insert(update_.rows.end(), added.begin(), added.end());
      written_.push_back(write.data);
    }
    std::ranges::sort(update_.rows, {}, &Rows::slot);
    int64_t next = 0;
    bool once = true;
    for (const Rows& rows : update_.rows) {
      once = once && rows.slot == next;
      next += rows.value->type.shape().front();
    }
    if (!once || next != shape_.front()) {
      return Refuse(
          fmt::format("the steps of '{}' do not write each of its {} slots once", state_->name, shape_.front()));
    }
    return update_;
  }

 private:
  Status Blocked(const Operation& op, const std::string& why) const {
    return Refuse(fmt::format("state '{}' has no new rows to give out: {} {}", state_->name, OperationPath(op), why));
  }

  // What the state held before a write: a read, or what was written before.
  bool IsContent(const StateFacts& facts, const Value* value) const {
    return std::ranges::any_of(facts.reads, [value](const StateRead& read) { return read.value == value; }) ||
           std::ranges::find(written_, value) != written_.end();
  }

  Result<Rows> RowsOf(const Operation& op) {
    const size_t rank = shape_.size();
    Value* update = op.InputValue("update");
    const auto begin = VectorEntries(op, "begin", rank);
    if (update == nullptr || update->type.shape().size() != rank || !begin.has_value() ||
        op.parent()->parent() != nullptr) {
      return Blocked(op, "has another form than rows at one position");
    }
    const std::vector<int64_t> from_edge = AxisConstants(op, "begin_mask", rank, 0);
    const std::vector<int64_t> strides = AxisConstants(op, "stride", rank, 1);
    const std::vector<int64_t> squeezed = AxisConstants(op, "squeeze_mask", rank, 0);
    Rows rows{0, update};
    std::optional<size_t> axis;
    for (size_t i = 0; i < rank; ++i) {
      if (strides[i] != 1 || squeezed[i] != 0) return Blocked(op, "skips rows");
      const bool known = from_edge[i] != 0 || (*begin)[i].constant.has_value();
      const int64_t at = from_edge[i] != 0 ? 0 : (*begin)[i].constant.value_or(0);
      if (!known && (i == 0 || axis.has_value())) return Blocked(op, "is placed at run time along several axes");
      if (!known) axis = i;
      if (i == 0) rows.slot = at < 0 ? at + shape_[0] : at;
      if (i > 0 && known && (at != 0 || update->type.shape()[i] != shape_[i])) return Blocked(op, "writes a part only");
    }
    if (!axis.has_value()) return Blocked(op, "writes at no position");
    Value* position = (*begin)[*axis].value;
    if (update_.position != nullptr && (update_.position != position || update_.axis != static_cast<int64_t>(*axis))) {
      return Blocked(op, "writes at another position than the updates before it");
    }
    update_.position = position;
    update_.axis = static_cast<int64_t>(*axis);
    return rows;
  }

  const Value* state_;
  const Shape& shape_;
  std::vector<const Value*> written_;
  NewRows update_;
};

Status AddRowsOutput(Function& function, const NewRows& update, const std::string& state, const std::string& name,
                     PassReport& report) {
  std::vector<Value*> values;
  for (const Rows& rows : update.rows) values.push_back(rows.value);
  Value* joined = values.front();
  if (values.size() > 1) {
    Builder builder(function.body());
    joined = builder.Op("concat",
                        {{"values", values}, {"axis", Literal::Int32(0)}, {"interleave", Literal::Bool(false)}}, name);
    MW_RETURN_IF_ERROR(builder.status());
  }
  report.notes.push_back(fmt::format("{}: the host writes '{}' into '{}' at '{}' along axis {}", function.name, name,
                                     state, update.position->name, update.axis));
  return AddOutput(function, joined, name);
}

// The names of the outputs that stand for `state`.
struct OutputNames {
  std::string whole;
  std::string rows;
};

Status Convert(Function& function, Value* state, bool slice, const OutputNames& names, PassReport& report) {
  const Type content = state->type.tensor;
  NewRows update;
  bool written = false;
  {
    const FunctionStates states = AnalyzeStates(function);
    const StateFacts& facts = *states.Find(state);
    written = !facts.writes.empty();
    if (slice && written) {
      MW_ASSIGN_OR_RETURN(update, RowFinder(state).Find(facts));
    }
  }
  const std::string name = state->name;
  state->name = function.UniqueName(name + "_state");
  Value* input = AddTensorInput(function, name, content);
  Value* current = input;
  MW_RETURN_IF_ERROR(StateThreader(function, state).Run(function.body(), current));
  function.EraseInput(state);
  if (!written) {
    report.notes.push_back(fmt::format("{}: '{}' is only read: an input without an output", function.name, name));
    return Status::Ok();
  }
  return slice ? AddRowsOutput(function, update, name, names.rows, report) : AddOutput(function, current, names.whole);
}

}  // namespace

Status StateToIo(ModelSpec& model, const PassArguments& arguments, PassReport& report) {
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> states, ChooseStates(model, arguments));
  const std::string outputs = arguments.String("outputs", "whole");
  if (outputs != "whole" && outputs != "slice") {
    return Usage(fmt::format("option 'outputs' is slice or whole, not '{}'", outputs));
  }
  for (const std::string& name : states) {
    MW_RETURN_IF_ERROR(CheckSharedState(model.program, name));
    const OutputNames names{UniqueFeatureName(model.program, name + "_out"),
                            UniqueFeatureName(model.program, name + "_new")};
    for (const auto& function : model.program.functions()) {
      Value* state = function->FindInput(name);
      if (state == nullptr || !state->type.IsState()) continue;
      MW_RETURN_IF_ERROR(Convert(*function, state, outputs == "slice", names, report));
    }
  }
  RefreshDescription(model);
  return Status::Ok();
}

}  // namespace milwright
