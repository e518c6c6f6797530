// MW3xx: shapes of states and inputs that compute units refuse or pad.
#include <fmt/format.h>

#include <algorithm>

#include "check/rule.h"

namespace milwright {
namespace {

constexpr int64_t kAlignment = 32;     // elements: 64 bytes of fp16
constexpr int64_t kInt16Rows = 32768;  // the first length that int16 does not hold
constexpr int64_t kVerifiedStateRank = 4;

void CheckInnermost(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    const bool has_kv =
        std::ranges::any_of(states.states, [](const StateFacts& state) { return state.role == StateRole::kKv; });
    for (const StateFacts& state : states.states) {
      const Shape& shape = state.state->type.shape();
      if (shape.empty() || shape.back() <= 0 || shape.back() % kAlignment == 0) continue;
      Finding& finding =
          reporter.Report({name, {}, state.state->name},
                          fmt::format("state '{}' is {}: its innermost dimension {} is not a multiple of {}",
                                      state.state->name, ShapeToString(shape), shape.back(), kAlignment));
      if (states.states.size() > 1) {
        finding.notes.emplace_back("competes with MW217 (differing roles): every public 0x1d failure has both");
      }
      // Beside keys and values a state that is neither is suspect for its role too: an input and output mends both.
      if (has_kv && state.role != StateRole::kKv) {
        ProposeInputOutput(reporter, finding, state);
      } else {
        reporter.ProposeFix(finding, "pad-state-dim",
                            {fmt::format("states:{};multiple:{}", state.state->name, kAlignment)});
      }
    }
  }
}

void CheckRank(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      if (state.state->type.rank() == kVerifiedStateRank) continue;
      reporter.Report({name, {}, state.state->name},
                      fmt::format("state '{}' has rank {}; what is known to run has rank 4", state.state->name,
                                  state.state->type.rank()));
    }
  }
}

void CheckFlexible(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    if (function->States().empty()) continue;
    for (const Value* input : function->TensorInputs()) {
      if (IsStatic(input->type.shape())) continue;
      reporter.Report({function->name, {}, input->name},
                      fmt::format("input '{}' is {}: a size that varies, in a function with states", input->name,
                                  ShapeToString(input->type.shape())));
    }
  }
}

void CheckContext(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      const Shape& shape = state.state->type.shape();
      if (state.role != StateRole::kKv || std::ranges::none_of(shape, [](int64_t d) { return d >= kInt16Rows; })) {
        continue;
      }
      reporter.Report({name, {}, state.state->name}, fmt::format("state '{}' is {}: a cache of {} rows or more",
                                                                 state.state->name, ShapeToString(shape), kInt16Rows));
    }
  }
}

void CheckOutputRows(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    for (const Value* output : function->body().outputs()) {
      const Shape& shape = output->type.shape();
      if (output->type.rank() < 2 || shape.back() <= 0 || shape.back() % kAlignment == 0) continue;
      reporter.Report(
          {function->name, {}, output->name},
          fmt::format("rows of output '{}' ({}) will be padded to {} elements; read it by its strides", output->name,
                      ShapeToString(shape), (shape.back() + kAlignment - 1) / kAlignment * kAlignment));
    }
  }
}

}  // namespace

std::vector<Rule> ShapeRules() {
  return {
      Rule{.id = "MW301",
           .slug = "innermost-not-multiple-of-32",
           .known_as = "K10",
           .summary = "The innermost dimension of a state is not a multiple of 32.",
           .explanation =
               "Every 0x1d failure that could be inspected has a state whose innermost dimension is 3, 4 or 16, and a "
               "state of width 270 fails where 256 runs. The same programs also mix roles (MW217), so that public "
               "data cannot tell the two apart. Pad the dimension with `pad-state-dim`, or keep the small state as "
               "input and output (`state-to-io`).",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kWarning}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"innermost-not-mult32", "report 22", "report 24", "report 25", "report 71", "report 88"},
           .fixes = {{"pad-state-dim", true}, kStateToIo, kSplitStateToIo},
           .check = CheckInnermost},
      Rule{.id = "MW302",
           .slug = "state-rank",
           .known_as = "K11",
           .summary = "A state has another rank than 4.",
           .explanation =
               "States of rank 5 fail to compile in several reports and those of rank 3 in some; all of these programs "
               "have another suspect too (scatter, variable sizes, per-block weights). Rank 4 with the batch or the "
               "slots in front is what shipping programs use.",
           .severity = Severity::kNote,
           .target_severities = {{"ane", Severity::kWarning}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"rank-ne-4-state", "report 23", "report 33", "report 34"},
           .evidence_against = {"rank-ne-4-any-cache"},
           .check = CheckRank},
      Rule{
          .id = "MW303",
          .slug = "flexible-shapes-with-states",
          .known_as = "K09",
          .summary = "An input of variable size in a function with states.",
          .explanation =
              "No public stateful program with variable input sizes is known to run on the Neural Engine; the failures "
              "name shape propagation (`std::bad_cast`, status -14). Fix the sizes, and use a function for each "
              "query length.",
          .severity = Severity::kNote,
          .target_severities = {{"ane", Severity::kError}},
          .confidence = Confidence::kSeveralReports,
          .evidence_for = {"flexible-inputs", "report 38", "report 39"},
          .check = CheckFlexible},
      Rule{.id = "MW304",
           .slug = "output-rows-padded",
           .known_as = "K22",
           .summary = "Rows of an output are padded to a multiple of 32 elements.",
           .explanation =
               "The Neural Engine pads rows to 64 bytes, so an output whose last dimension is not a multiple of 32 "
               "fp16 elements is not dense. Hosts that read it as dense get shifted data. Read it by its strides.",
           .severity = Severity::kOff,
           .target_severities = {{"ane", Severity::kNote}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 71"},
           .check = CheckOutputRows},
      Rule{.id = "MW305",
           .slug = "context-32768",
           .known_as = "K20",
           .summary = "A cache of 32768 rows or more.",
           .explanation =
               "A stateful Mistral fails to load with a context of 32768 and loads with 16384; the limit is the first "
               "number that int16 does not hold, which suggests narrowed indices. One model, one pair of lengths.",
           .severity = Severity::kWarning,
           .target_severities = {{"ane", Severity::kError}},
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"context-ge-32768", "report 37"},
           .check = CheckContext},
  };
}

}  // namespace milwright
