// Passes on the order and the number of state operations. Nothing moves across an access to the same state.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "analysis/effects.h"
#include "analysis/state_analysis.h"
#include "ops/builder.h"
#include "passes/entries.h"

namespace milwright {
namespace {

void ForEachBlock(Block& block, const std::function<void(Block&)>& visit) {
  visit(block);
  for (const auto& op : block.operations()) {
    for (const auto& nested : op->blocks()) ForEachBlock(*nested, visit);
  }
}

std::vector<Operation*> StateOps(const Block& block, bool (*is)(const Operation&)) {
  std::vector<Operation*> ops;
  for (const auto& op : block.operations()) {
    if (is(*op)) ops.push_back(op.get());
  }
  return ops;
}

// A write goes right behind the op that makes its value, unless something in between touches the state.
void MoveWriteUp(Block& block, Operation* write) {
  Operation* producer = WrittenValue(*write)->producer();
  if (producer == nullptr || producer->parent() != &block || block.Next(producer) == write) return;
  if (AccessesBetween(*producer, *write, StateOf(*write))) return;
  block.Move(write, block.Next(producer));
}

// A read goes right before its first reader, unless a write to the state lies in between.
void MoveReadDown(Block& block, Operation* read) {
  std::unordered_set<const Operation*> readers;
  for (const Use& use : read->output()->uses()) {
    if (use.op == nullptr) return;
    const Operation* op = use.op;  // the op of this block that holds the reader
    while (op->parent() != &block) op = op->parent()->parent();
    readers.insert(op);
  }
  if (readers.empty()) return;
  Operation* first = block.Next(read);
  while (first != nullptr && !readers.contains(first)) first = block.Next(first);
  if (first == nullptr || first == block.Next(read) || WritesBetween(*read, *first, StateOf(*read))) return;
  block.Move(read, first);
}

// Whether `value` holds exactly the bits of `source`: seen through views and through casts that lose nothing.
bool HoldsBitsOf(const Value* value, const Value* source) {
  while (value != source) {
    const Operation* op = value->producer();
    const Value* x = op != nullptr ? op->InputValue("x") : nullptr;
    if (x == nullptr) return false;
    if (op->type() == "cast") {
      // fp16 -> fp32 -> fp16 is exact; any narrowing on the way is not, nor is fp16 -> bf16.
      const bool widens =
          value->type.dtype() == source->type.dtype() || BitWidth(value->type.dtype()) > BitWidth(source->type.dtype());
      if (!IsFloat(x->type.dtype()) || !IsFloat(value->type.dtype()) || !widens) return false;
    } else if (op->type() != "identity" && op->type() != "reshape" && op->type() != "expand_dims" &&
               op->type() != "squeeze") {
      return false;
    }
    value = x;
  }
  return true;
}

bool IsNoopWrite(const Block& block, const Operation& write) {
  if (!write.outputs().empty()) return false;
  const Value* state = StateOf(write);
  for (const Use& use : state->uses()) {
    const Operation* read = use.op;
    if (read == nullptr || !IsStateRead(*read) || read->parent() != &block) continue;
    if (!HoldsBitsOf(WrittenValue(write), read->output())) continue;
    return !WritesBetween(*read, write, state);
  }
  return false;
}

// Whether `op` (maybe nested) runs behind `place` of `block`.
bool RunsBehind(const Operation* op, const Block& block, const Operation& place) {
  while (op != nullptr && op->parent() != &block) op = op->parent()->parent();
  for (const Operation* next = block.Next(&place); next != nullptr; next = block.Next(next)) {
    if (next == op) return true;
  }
  return false;
}

}  // namespace

Status CanonicalizeInplacePattern(ModelSpec& model, const PassArguments&, PassReport&) {
  for (const auto& function : model.program.functions()) {
    ForEachBlock(function->body(), [](Block& block) {
      for (Operation* write : StateOps(block, IsStateWrite)) MoveWriteUp(block, write);
      for (Operation* read : StateOps(block, IsStateRead)) MoveReadDown(block, read);
    });
  }
  return Status::Ok();
}

Status PreferStateInDownstream(ModelSpec& model, const PassArguments&, PassReport&) {
  for (const auto& function : model.program.functions()) {
    Status status;
    ForEachBlock(function->body(), [&status](Block& block) {
      for (Operation* write : StateOps(block, IsStateWrite)) {
        if (write->type() != "write_state") continue;
        Value* data = WrittenValue(*write);
        if (data->producer() != nullptr && data->producer()->type() == "const") continue;
        std::vector<Use> later;
        for (const Use& use : data->uses()) {
          // Outputs keep their value: its name is the interface.
          if (use.op != nullptr && use.op != write && RunsBehind(use.op, block, *write)) later.push_back(use);
        }
        if (later.empty()) continue;
        Operation* next = block.Next(write);
        Value* updated = nullptr;
        if (next != nullptr && IsStateRead(*next) && StateOf(*next) == StateOf(*write)) {
          updated = next->output();
        } else {
          Builder builder(block, next);
          updated = builder.ReadState(StateOf(*write), data->name + "_state");
          if (!builder.status().ok()) status = builder.status();
          if (updated == nullptr) return;
        }
        for (const Use& use : later) use.op->SetArgument(use.input, use.argument, Operand(updated));
      }
    });
    MW_RETURN_IF_ERROR(status);
  }
  return Status::Ok();
}

Status RemoveNoopStateUpdate(ModelSpec& model, const PassArguments&, PassReport& report) {
  for (const auto& function : model.program.functions()) {
    ForEachBlock(function->body(), [&](Block& block) {
      for (Operation* write : StateOps(block, IsStateWrite)) {
        if (!IsNoopWrite(block, *write)) continue;
        report.notes.push_back(fmt::format("removed {}", OperationPath(*write)));
        block.Erase(write);
      }
    });
  }
  return Status::Ok();
}

Status DropOutputAlias(ModelSpec& model, const PassArguments&, PassReport& report) {
  for (const auto& function : model.program.functions()) {
    const FunctionStates states = AnalyzeStates(*function);
    for (const StateFacts& facts : states.states) {
      for (const ExposedOutput& exposed : facts.exposed) {
        Value* output = exposed.output;
        // A value that goes to two states is seen twice.
        const bool is_output =
            std::ranges::find(function->body().outputs(), output) != function->body().outputs().end();
        if (exposed.is_slice || !is_output) continue;
        if (output->producer() == nullptr) {
          return Status(
              ErrorCode::kPrecondition,
              fmt::format("output '{}' of '{}' is an input that {} stores; give the output another name first",
                          output->name, function->name, OperationPath(*exposed.write)));
        }
        const std::string name = output->name;
        output->name = function->UniqueName(name + "_written");
        Builder builder(function->body());
        // Times one: a fresh value with the same bits, which no compiler may take for the written one by mistake.
        Value* fresh = builder.Op("mul", {{"x", output}, {"y", Literal::Float(output->type.dtype(), 1)}}, name);
        MW_RETURN_IF_ERROR(builder.status());
        const std::vector<Value*>& outputs = function->body().outputs();
        for (size_t i = 0; i < outputs.size(); ++i) {
          if (outputs[i] == output) function->body().SetOutput(i, fresh);
        }
        report.notes.push_back(fmt::format("{}: output '{}' is a value of its own now", function->name, name));
      }
    }
  }
  return Status::Ok();
}

}  // namespace milwright
