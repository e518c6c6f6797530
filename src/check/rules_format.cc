// MW1xx: what the format itself demands.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "check/rule.h"

namespace milwright {
namespace {

void CheckOutputsExist(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    if (function->body().outputs().empty()) {
      reporter.Report({function->name, {}, {}}, "the function has no output; Core ML needs at least one");
    }
  }
}

void CheckSharedStates(const ProgramFacts& facts, Reporter& reporter) {
  std::map<std::string, std::pair<const Function*, const Value*>> first;
  for (const auto& function : facts.model->program.functions()) {
    for (const Value* state : function->States()) {
      const auto [it, added] = first.emplace(state->name, std::pair(function.get(), state));
      const Value* other = it->second.second;
      if (added || other->type == state->type) continue;
      reporter.Report({function->name, {}, state->name},
                      fmt::format("state '{}' is {} here, but {} in function '{}'; functions that share a state must "
                                  "declare it alike",
                                  state->name, TypeToString(state->type.tensor), TypeToString(other->type.tensor),
                                  it->second.first->name));
    }
  }
}

void CheckFlexibility(const ProgramFacts& facts, Reporter& reporter) {
  for (const auto& function : facts.model->program.functions()) {
    const FunctionDescription* description = facts.model->description.Find(function->name);
    if (description == nullptr) continue;
    bool fixed = false;
    bool range = false;
    for (const FeatureDescription& feature : description->inputs) {
      const Value* input = function->FindInput(feature.name);
      if (input == nullptr || feature.type.kind != FeatureType::Kind::kMultiArray) continue;
      range = range || !feature.type.array.shape_range.empty();
      fixed = fixed || !feature.type.array.IsFlexible();
      if (IsStatic(input->type.shape()) || feature.type.array.IsFlexible()) continue;
      reporter.Report({function->name, {}, feature.name},
                      fmt::format("input '{}' is {} in the program, but the description says nothing of how it varies",
                                  feature.name, ShapeToString(input->type.shape())));
    }
    if (fixed && range && !function->States().empty()) {
      reporter.Report({function->name, {}, {}}, "inputs of fixed shape and inputs with a range, beside states");
    }
  }
}

}  // namespace

std::vector<Rule> FormatRules() {
  return {
      Rule{.id = "MW101",
           .slug = "no-outputs",
           .known_as = "K07",
           .summary = "A function has no output.",
           .explanation =
               "Core ML refuses a function without outputs, so a program whose only result is what it writes to its "
               "states does not load. Give it an output that is not the written value itself (see MW205), for instance "
               "a sum over it.",
           .severity = Severity::kError,
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 21"},
           .check = CheckOutputsExist},
      Rule{.id = "MW102",
           .slug = "shared-state-types-differ",
           .known_as = "K24",
           .summary = "Functions share a state's name but not its type.",
           .explanation =
               "The functions of a package share their states by name: what prefill writes, decode reads. That only "
               "works when every function declares the state with the same shape and data type.",
           .severity = Severity::kError,
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 20", "report 33"},
           .check = CheckSharedStates},
      Rule{.id = "MW103",
           .slug = "flexibility-mismatch",
           .known_as = "K08",
           .summary = "Sizes that vary without a description of it, or fixed and ranged inputs beside states.",
           .explanation =
               "An input whose size varies needs its range or list of shapes in the description; without it loading "
               "fails (\"missing FlexibleShapeInformation\", status -14). A function with states that mixes inputs of "
               "fixed shape with ranges aborts the process (EnumeratedWithRangeInputsException).",
           .severity = Severity::kError,
           .confidence = Confidence::kSeveralReports,
           .evidence_for = {"report 38", "report 39"},
           .check = CheckFlexibility},
  };
}

}  // namespace milwright
