// MW2xx: states, as the format and Core ML's loader want them, and what programs do with them.
#include <fmt/format.h>

#include <algorithm>

#include "check/rule.h"

namespace milwright {
namespace {

const FeatureDescription* FindState(const FunctionDescription* description, std::string_view name) {
  if (description == nullptr) return nullptr;
  const auto it = std::ranges::find(description->states, name, &FeatureDescription::name);
  return it != description->states.end() ? &*it : nullptr;
}

void CheckDescription(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    const FunctionDescription* description = facts.model->description.Find(function->name);
    for (const Value* state : function->States()) {
      const Location place{function->name, {}, state->name};
      const FeatureDescription* feature = FindState(description, state->name);
      if (feature == nullptr) {
        reporter.Report(place,
                        fmt::format("the program's state '{}' is missing from the description's states", state->name));
      } else if (feature->type.kind != FeatureType::Kind::kState) {
        reporter.Report(place,
                        fmt::format("the description lists '{}' among its states, but not as a state", state->name));
      } else if (feature->type.array.shape != state->type.shape() || feature->type.array.dtype != state->type.dtype()) {
        reporter.Report(place, fmt::format("state '{}' is {} in the program, but {} {} in the description", state->name,
                                           TypeToString(state->type.tensor), DataTypeName(feature->type.array.dtype),
                                           ShapeToString(feature->type.array.shape)));
      }
    }
    if (description == nullptr) continue;
    for (const FeatureDescription& feature : description->states) {
      const Value* input = function->FindInput(feature.name);
      if (input == nullptr || !input->type.IsState()) {
        reporter.Report({function->name, {}, feature.name},
                        fmt::format("the description's state '{}' is not a state of the program", feature.name));
      }
    }
  }
}

void CheckStateTypes(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    for (const Value* state : function->States()) {
      const Location place{function->name, {}, state->name};
      const std::string type = TypeToString(state->type.tensor);
      if (state->type.dtype() != DataType::kFp16) {
        reporter.Report(place, fmt::format("state '{}' is {}; Core ML supports fp16 states only", state->name, type));
      }
      if (!IsStatic(state->type.shape())) {
        reporter.Report(place, fmt::format("state '{}' is {}; the shape of a state must be fixed", state->name, type));
      }
      if (state->type.rank() == 0 || std::ranges::find(state->type.shape(), 0) != state->type.shape().end()) {
        reporter.Report(place, fmt::format("state '{}' is {}; a state needs at least one dimension and no size 0",
                                           state->name, type));
      }
    }
  }
}

void CheckWrittenTypes(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      for (const StateWrite& write : state.writes) {
        if (write.data->type.tensor == state.state->type.tensor) continue;
        reporter.Report({name, OperationPath(*write.op), state.state->name},
                        fmt::format("{} is written to state '{}' of type {}", TypeToString(write.data->type.tensor),
                                    state.state->name, TypeToString(state.state->type.tensor)));
      }
    }
  }
}

void CheckAliases(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      for (const ExposedOutput& exposed : state.exposed) {
        if (exposed.is_slice) continue;
        Finding& finding = reporter.Report({name, OperationPath(*exposed.write), exposed.output->name},
                                           fmt::format("output '{}' is the very value written to state '{}'",
                                                       exposed.output->name, state.state->name));
        reporter.ProposeFix(finding, "drop-output-alias");
      }
    }
  }
}

void CheckUnusedStates(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      if (state.form == UpdateForm::kNone) {
        reporter.Report({name, {}, state.state->name}, fmt::format("state '{}' is never used", state.state->name));
      }
    }
  }
}

void CheckNeverRead(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      if (state.writes.empty()) continue;
      const bool other_reads = std::ranges::any_of(facts.functions, [&](const auto& other) {
        return std::ranges::any_of(other.second.states, [&](const StateFacts& candidate) {
          return candidate.state->name == state.state->name && !candidate.reads.empty();
        });
      });
      if (!other_reads) {
        reporter.Report({name, {}, state.state->name},
                        fmt::format("state '{}' is written, but no function reads it", state.state->name));
      }
    }
  }
}

void CheckNeverWritten(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      if (state.reads.empty() || !state.writes.empty()) continue;
      const bool other_writes = std::ranges::any_of(facts.functions, [&](const auto& other) {
        return std::ranges::any_of(other.second.states, [&](const StateFacts& candidate) {
          return candidate.state->name == state.state->name && !candidate.writes.empty();
        });
      });
      if (!other_writes) {
        reporter.Report(
            {name, {}, state.state->name},
            fmt::format("state '{}' is read, but no function writes it: it stays zero unless the host fills it",
                        state.state->name));
      }
    }
  }
}

void CheckWrittenBack(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      if (state.form != UpdateForm::kWrittenBack) continue;
      Finding& finding =
          reporter.Report({name, OperationPath(*state.writes.front().op), state.state->name},
                          fmt::format("state '{}' is only written back as it was read", state.state->name));
      reporter.ProposeFix(finding, "remove-noop-state-update");
    }
  }
}

std::string DescribeHazard(const OrderHazard& hazard) {
  switch (hazard.kind) {
    case OrderHazard::Kind::kReadAcrossWrite:
      return "a value read before a write is used after it, and the state is read again in between: merging the reads "
             "changes the result";
    case OrderHazard::Kind::kMovedAcrossRead:
      return "a read lies between the write and the op that makes its value: moving the write up changes what is read";
    case OrderHazard::Kind::kMovedAcrossWrite:
      return "another access lies between the write and the op that makes its value: moving the write up swaps them";
    case OrderHazard::Kind::kRepeatedWrite:
      return "the same value is written again after another write: dropping the repeat leaves the other value";
  }
  return {};
}

void CheckOrder(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& [name, states] : facts.functions) {
    for (const StateFacts& state : states.states) {
      for (const OrderHazard& hazard : state.hazards) {
        Finding& finding = reporter.Report({name, OperationPath(*hazard.second), state.state->name},
                                           fmt::format("state '{}': {}", state.state->name, DescribeHazard(hazard)));
        finding.notes.push_back("the other access is " + OperationPath(*hazard.first));
        finding.notes.emplace_back("unsafe under re-optimisation by coremltools' default pipeline");
      }
    }
  }
}

}  // namespace

std::vector<Rule> StateRules() {
  return {
      Rule{.id = "MW201",
           .slug = "state-not-in-description",
           .known_as = "K01",
           .summary = "The states of a function and of its description differ.",
           .explanation =
               "A state stands twice in a package: as an input of the function, and in the description that hosts "
               "read. Name, shape and data type must agree both ways. A state that is missing from one side gives "
               "errors such as \"MIL program input, 'k_cache', not found in Core ML model inputs\".",
           .severity = Severity::kError,
           .confidence = Confidence::kSpecification,
           .evidence_for = {"report 5", "report 7", "report 11"},
           .check = CheckDescription},
      Rule{
          .id = "MW202",
          .slug = "state-type",
          .known_as = "K02",
          .summary = "A state is not fp16, not of fixed shape, or has a size of zero.",
          .explanation =
              "Core ML keeps states in fp16 only and wants their shapes fixed: flexible shapes are refused (\"Flexible "
              "shape model states are not supported!\") and zero sizes choke the converter. Store an fp32 accumulator "
              "as an explicit input and output instead, or accept the rounding.",
          .severity = Severity::kError,
          .confidence = Confidence::kReproduced,
          .evidence_for = {"report 11", "report 40", "report 87"},
          .check = CheckStateTypes},
      Rule{.id = "MW203",
           .slug = "written-type-differs",
           .known_as = "K03",
           .summary = "The value written to a state has another type than the state.",
           .explanation = "A write replaces the whole state, so the value must have exactly its shape and data type.",
           .severity = Severity::kError,
           .confidence = Confidence::kReproduced,
           .check = CheckWrittenTypes},
      Rule{.id = "MW205",
           .slug = "output-aliases-write",
           .known_as = "K04",
           .summary = "An output is the very value that is written to a state.",
           .explanation =
               "When an output of the function is the value (or a mere re-view of the value) that a state write takes, "
               "Core ML's loader crashes without a message. Return a value computed from it instead; the pass "
               "`drop-output-alias` does so without changing a bit.",
           .severity = Severity::kError,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 3"},
           .fixes = {{"drop-output-alias", true}},
           .check = CheckAliases},
      Rule{.id = "MW206",
           .slug = "dead-state",
           .known_as = "K05",
           .summary = "A state is never used.",
           .explanation =
               "A state without readers and writers usually means that the cache went through a copied buffer during "
               "tracing: the program ran, but kept nothing. coremltools before March 2026 also failed on such states "
               "(`identity` on a state).",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 7", "report 8"},
           .check = CheckUnusedStates},
      Rule{.id = "MW207",
           .slug = "state-never-read",
           .known_as = "K05",
           .summary = "A state is written but never read by any function.",
           .explanation =
               "What is written is of use only to a host that reads the state itself; otherwise it is lost work.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 8"},
           .check = CheckNeverRead},
      Rule{.id = "MW208",
           .slug = "state-never-written",
           .known_as = "K05",
           .summary = "A state is read but never written by any function.",
           .explanation =
               "The state keeps its zeros unless the host fills it. In traced models this is the mark of an in-place "
               "update that tracing dropped.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 8", "report 9"},
           .check = CheckNeverWritten},
      Rule{.id = "MW209",
           .slug = "state-written-back",
           .known_as = "K05",
           .summary = "A state is only written back unchanged.",
           .explanation =
               "Exporters that give every function all states write the untouched ones back. It costs a copy of the "
               "whole state each step. The pass `remove-noop-state-update` removes it.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 20"},
           .fixes = {{"remove-noop-state-update", true}},
           .check = CheckWrittenBack},
      Rule{.id = "MW210",
           .slug = "order-unsafe",
           .known_as = "K06",
           .summary = "The order of reads and writes would not survive coremltools' optimiser.",
           .explanation =
               "The program is legal and runs as written. But coremltools' default pipeline (as of 2026-08-18) merges "
               "reads of a state across a write, moves a write up to the op that makes its value across other reads "
               "and writes, and drops a repeated write. If this package goes through it again, it computes something "
               "else. Milwright's own passes keep the order.",
           .severity = Severity::kWarning,
           .confidence = Confidence::kReproduced,
           .evidence_for = {"report 1", "report 2"},
           .check = CheckOrder},
  };
}

}  // namespace milwright
