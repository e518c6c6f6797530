#include "passes/verify_rewrite.h"

#include <memory>

namespace milwright {
namespace {

// Sums that run in another order agree within this (issue 3).
constexpr double kReorderedTolerance = 1e-3;

CompareOptions OptionsFor(const ModelSpec& before, std::span<const PassUse> uses) {
  CompareOptions options;
  for (const PassUse& use : uses) {
    if (use.pass->exactness == Exactness::kReordered) options.tolerance.atol = kReorderedTolerance;
    if (use.pass->name == "rename") {
      for (const auto& [from, to] : use.arguments.values()) options.names.insert_or_assign(from, to);
    } else if (use.pass->name == "extract-function") {
      options.functions = {{use.arguments.String("function"), "main"}};
    } else if (use.pass->name == "merge-functions" && use.arguments.Has("this")) {
      options.functions = {{before.program.functions().front()->name, use.arguments.String("this")}};
    }
  }
  return options;
}

}  // namespace

Result<CompareReport> CompareRewritten(const ModelSpec& before, const ModelSpec& after, std::span<const PassUse> uses,
                                       int steps) {
  CompareOptions options = OptionsFor(before, uses);
  options.steps = steps;
  MW_ASSIGN_OR_RETURN(const Model a, Model::FromSpec(std::make_shared<const ModelSpec>(before.Clone())));
  MW_ASSIGN_OR_RETURN(const Model b, Model::FromSpec(std::make_shared<const ModelSpec>(after.Clone())));
  auto report = CompareModels(a, b, options);
  if (!report.ok()) return report.status().WithContext("comparing before and after");
  return report;
}

}  // namespace milwright
