// MW21x: how states are updated and combined, as far as compute units care.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/input_kind.h"
#include "check/rule.h"

namespace milwright {
namespace {

constexpr int64_t kLongestProvenWrite = 32;

void CheckSliceOutputs(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      for (const ExposedOutput& exposed : state.exposed) {
        if (!exposed.is_slice || !exposed.also_consumed) continue;
        reporter.Report({name, OperationPath(*exposed.write), exposed.output->name},
                        fmt::format("output '{}' is a slice of the updated state '{}' that other ops read too",
                                    exposed.output->name, state.state->name));
      }
    }
  }
}

// The first write of `state` that has this form; null when there is none.
const StateWrite* FindWrite(const StateFacts& state, UpdateForm form) {
  const auto write = std::ranges::find(state.writes, form, &StateWrite::form);
  return write != state.writes.end() ? &*write : nullptr;
}

Finding& ReportForm(Reporter& reporter, const std::string& function, const StateFacts& state, const StateWrite& write,
                    std::string_view what) {
  return reporter.Report(
      {function, OperationPath(*(write.update_op != nullptr ? write.update_op : write.op)), state.state->name},
      fmt::format("state '{}' ({}) is updated by {}", state.state->name, StateRoleName(state.role), what));
}

// The input of `function` that counts the steps already, else a new one.
std::string PositionName(const Function& function) {
  constexpr const char* kNewPosition = "current_pos";
  const auto inputs = FindInputKinds(function);
  if (!inputs.ok()) return kNewPosition;
  const auto position = std::ranges::find_if(inputs->inputs, [](const InputFacts& input) {
    return input.kind == InputKind::kPosition && input.input->type.dtype() == DataType::kInt32;
  });
  return position != inputs->inputs.end() ? position->input->name : kNewPosition;
}

void CheckShift(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      const StateWrite* write = FindWrite(state, UpdateForm::kShiftConcat);
      if (write == nullptr || state.role != StateRole::kKv) continue;
      Finding& finding =
          ReportForm(reporter, name, state, *write, "shifting it and appending the new part (slice, concat)");
      finding.notes.emplace_back("every public program that does so fails to load on the Neural Engine with -14");
      if (write->width.value_or(0) == 1) {  // a ring takes one new row a step
        reporter.ProposeFix(finding, "shift-to-ring-buffer",
                            {fmt::format("position:{};states:{}",
                                         PositionName(*facts.model->program.FindFunction(name)), state.state->name)});
      } else {
        ProposeInputOutput(reporter, finding, state);
      }
    }
  }
}

void CheckScatter(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      const StateWrite* write = FindWrite(state, UpdateForm::kScatter);
      if (write != nullptr) ReportForm(reporter, name, state, *write, "scatter");
    }
  }
}

void CheckWideWrites(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      for (const StateWrite& write : state.writes) {
        if (write.form != UpdateForm::kSliceUpdate || write.width.value_or(0) <= kLongestProvenWrite) continue;
        reporter.Report({name, OperationPath(*write.op), state.state->name},
                        fmt::format("{} rows are written to state '{}' at once", *write.width, state.state->name));
      }
    }
  }
}

// The constant begin and end of a slice_update against the size of what it updates.
void CheckSliceRange(const Operation& op, const std::string& function, Reporter& reporter) {
  const Value* x = op.InputValue("x");
  const Literal* begin = op.InputConstant("begin");
  const Literal* end = op.InputConstant("end");
  if (x == nullptr) return;
  const Shape& shape = x->type.shape();
  for (const auto& [name, bound] : {std::pair("begin", begin), std::pair("end", end)}) {
    if (bound == nullptr) continue;
    const std::vector<int64_t> values = bound->tensor.ToInts();
    if (values.size() != shape.size()) {
      reporter.Report({function, OperationPath(op), {}},
                      fmt::format("{} has {} entries for a value of rank {}", name, values.size(), shape.size()));
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (shape[i] < 0 || (values[i] >= -shape[i] && values[i] <= shape[i])) continue;
      reporter.Report({function, OperationPath(op), {}},
                      fmt::format("{}[{}] is {}, outside a dimension of {}", name, i, values[i], shape[i]));
    }
  }
}

void CheckSliceRanges(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    ForEachOperation(function->body(), [&](const Operation& op) {
      if (op.type() == "slice_update") CheckSliceRange(op, function->name, reporter);
    });
  }
}

void CheckDynamicPosition(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      const auto write = std::ranges::find(state.writes, UpdateForm::kSliceUpdate, &StateWrite::form);
      if (write == state.writes.end() || !write->axis.has_value() || !write->width.has_value()) continue;
      const int64_t rows = state.state->type.shape()[static_cast<size_t>(*write->axis)];
      reporter.Report({name, OperationPath(*write->op), state.state->name},
                      fmt::format("the host must keep the write position of state '{}' at most {}", state.state->name,
                                  rows - *write->width));
    }
  }
}

void CheckRoles(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    std::set<std::string_view> roles;
    const StateFacts* other = nullptr;  // the first that is neither keys nor values
    for (const StateFacts& state : states.states) {
      if (state.role == StateRole::kUnknown) continue;
      roles.insert(StateRoleName(state.role));
      if (state.role != StateRole::kKv && other == nullptr) other = &state;
    }
    if (roles.size() < 2 || other == nullptr) continue;  // of two roles one is not keys and values
    Finding& finding = reporter.Report(
        {name, {}, {}}, fmt::format("states of different roles in one function: {}", fmt::join(roles, ", ")));
    finding.notes.emplace_back("competes with MW301 (innermost dimension): every public 0x1d failure has both");
    ProposeInputOutput(reporter, finding, *other);
  }
}

void CheckShapes(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    std::set<Shape> shapes;
    for (const StateFacts& state : states.states) shapes.insert(state.state->type.shape());
    if (shapes.size() < 2) continue;
    reporter.Report({name, {}, {}}, fmt::format("the states have {} different shapes", shapes.size()))
        .notes.emplace_back(
            "not a cause by itself: two shapes failed with -14 in a build that also shifted its cache (2026-04-13), "
            "and ship with slice updates since 2026-04-25");
  }
}

void CheckCount(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    if (states.states.size() < 2) continue;
    reporter.Report({name, {}, {}}, fmt::format("{} states in one function", states.states.size()))
        .notes.emplace_back("not a cause by itself: functions with 2 to 8 states are known to run");
  }
}

}  // namespace

std::vector<Rule> UpdateRules() {
  return {
      Rule{.id = "MW211",
           .slug = "state-slice-is-output",
           .known_as = "K04",
           .summary = "A slice of the updated state is an output and is used by other ops too.",
           .explanation =
               "One build for the iPhone fails with `std::bad_cast` when such a slice is both returned and used; "
               "another with the same construction ships. A copy in between mended one report and not the other.",
           .severity = Severity::kNote,
           .target_severities = {{"ane-ios", Severity::kWarning}},
           .confidence = Confidence::kOneReport,
           .evidence_for = {"state-slice-as-output", "report 4"},
           .evidence_against = {"gemma4-e2b-4chunk-dual-iphone-t1"},
           .check = CheckSliceOutputs},
      Rule{.id = "MW212",
           .slug = "kv-shift-concat",
           .known_as = "K12",
           .summary = "A KV state is updated by slicing off the oldest part and appending the new one.",
           .explanation =
               "Every known program that shifts a KV state along its sequence axis by slice and concat fails with -14 "
               "on the Neural Engine; the same models run with a mask blend or slice update at a ring position. A "
               "convolution's window that is shifted so gets through planning (see MW217, MW301 for what follows). "
               "Rebuild with `--update ring` or `--update mask`, let `shift-to-ring-buffer` rewrite the window of a "
               "package that takes one row a step, or keep the cache as input and output.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kError}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"update-shift-concat-kv", "report 29"},
           .evidence_against = {"update-shift-concat"},
           .fixes = {{"shift-to-ring-buffer", true}, kStateToIo, kSplitStateToIo},
           .check = CheckShift},
      Rule{.id = "MW213",
           .slug = "scatter-on-state",
           .known_as = "K13",
           .summary = "A state is updated by scatter.",
           .explanation =
               "Scatter on a cache is refused by the Neural Engine's compiler at rank 4 and 5, and single-op probes "
               "place scatter on the CPU. Use slice_update or a mask blend.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kError}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"scatter-on-cache", "report 33", "report 34"},
           .check = CheckScatter},
      Rule{.id = "MW214",
           .slug = "wide-slice-update",
           .known_as = "K14",
           .summary = "More than 32 rows are written to a state at once.",
           .explanation =
               "One program failed with 128 rows and ran with 32 after a rewrite that also changed rank and "
               "projections; another compiles with 288 rows. Only worth a look when nothing else explains a failure.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kOneReport,
           .evidence_for = {"report 23"},
           .evidence_against = {"query-length-gt32", "report 43"},
           .check = CheckWideWrites},
      Rule{.id = "MW215",
           .slug = "slice-update-range",
           .known_as = "K15",
           .summary = "The constant begin or end of a slice_update does not fit the value.",
           .explanation = "Begin and end need one entry for each dimension, within it. Core ML refuses the rest.",
           .severity = Severity::kError,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 18"},
           .check = CheckSliceRanges},
      Rule{.id = "MW216",
           .slug = "write-position",
           .known_as = "K15",
           .summary = "The host chooses where a state is written.",
           .explanation =
               "A position beyond the last one that fits is an error at run time, and clamping it overwrites the last "
               "row again and again. Use a ring position, or stop there.",
           .severity = Severity::kNote,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 19"},
           .check = CheckDynamicPosition},
      Rule{.id = "MW217",
           .slug = "differing-roles",
           .known_as = "K16",
           .summary = "States of different roles in one function.",
           .explanation =
               "All eleven public 0x1d failures mix KV states with convolution or recurrent ones, and no program that "
               "does so is known to run on the Neural Engine for certain. The same programs have a small innermost "
               "dimension (MW301); public data cannot tell the two causes apart. Keep the KV cache as a state and "
               "carry the others as inputs and outputs: that is what ships.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kWarning}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"differing-roles", "report 24", "report 25"},
           .evidence_against = {"anemll-pr50-qwen35-48-states"},
           .fixes = {kStateToIo, kSplitStateToIo},
           .check = CheckRoles},
      Rule{
          .id = "MW218",
          .slug = "differing-shapes",
          .known_as = "K16",
          .summary = "States of different shapes in one function.",
          .explanation = "Once thought to give -14; refuted as a cause by two-state builds that run on Mac and iPhone.",
          .severity = Severity::kOff,
          .target_severities = {{"ane", Severity::kNote}},
          .confidence = Confidence::kSeveralReports,
          .evidence_for = {"report 27"},
          .evidence_against = {"differing-shapes"},
          .check = CheckShapes},
      Rule{.id = "MW219",
           .slug = "state-count",
           .known_as = "K16",
           .summary = "Two or more states in one function.",
           .explanation = "Once thought to fail on the Neural Engine; refuted as a cause by programs that run.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 24"},
           .evidence_against = {"state-count-gt1"},
           .check = CheckCount},
  };
}

}  // namespace milwright
