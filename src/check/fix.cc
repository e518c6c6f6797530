#include "check/fix.h"

#include <algorithm>
#include <set>

namespace milwright {
namespace {

// The worst finding with a safe fix that is not in `tried`; null when there is none. Findings are sorted, worst first.
const Finding* NextToFix(const std::vector<Finding>& findings, const FixOptions& options,
                         const std::set<std::string>& tried) {
  const auto it = std::ranges::find_if(findings, [&](const Finding& finding) {
    return finding.severity >= options.at_least && finding.fix.has_value() && finding.fix->safe &&
           !tried.contains(finding.fix->passes) && !(options.accepted && options.accepted(finding));
  });
  return it != findings.end() ? &*it : nullptr;
}

constexpr int64_t kFewestSteps = 16;
constexpr int64_t kMostSteps = 1024;
constexpr int64_t kBeyondTurn = 4;

}  // namespace

std::vector<PassUse> FixResult::uses() const {
  std::vector<PassUse> uses;
  for (const FixAttempt& attempt : attempts) {
    if (attempt.applied()) uses.insert(uses.end(), attempt.uses.begin(), attempt.uses.end());
  }
  return uses;
}

int StepsToProve(const ModelSpec& before, const FixResult& result) {
  int64_t steps = kFewestSteps;
  for (const FixAttempt& attempt : result.attempts) {
    const bool reordered = std::ranges::any_of(
        attempt.uses, [](const PassUse& use) { return use.pass->exactness == Exactness::kReordered; });
    if (!attempt.applied() || !reordered) continue;
    for (const auto& function : before.program.functions()) {
      const Value* state = function->FindInput(attempt.finding.location.value);
      if (state == nullptr || state->type.rank() < 2) continue;
      // The rows of a window lie along the last axis but one, by every public layout.
      steps = std::max(steps, state->type.shape().end()[-2] + kBeyondTurn);
    }
  }
  return static_cast<int>(std::min(steps, kMostSteps));
}

Result<FixResult> ApplyFixes(const ModelSpec& model, const FixOptions& options) {
  FixResult result{model.Clone(), {}, CheckModel(model, options.check)};
  // Every attempt adds to `tried`, and fixes name nothing but passes and states, so this ends.
  std::set<std::string> tried;
  while (const Finding* finding = NextToFix(result.findings, options, tried)) {
    FixAttempt attempt{*finding, {}, {}, {}};
    tried.insert(finding->fix->passes);
    MW_ASSIGN_OR_RETURN(attempt.uses, ParsePasses(finding->fix->passes));
    ModelSpec work = result.model.Clone();
    auto results = RunPasses(work, attempt.uses, {.verify_each = true, .on_changed = {}});
    if (results.ok()) {
      attempt.results = *std::move(results);
      result.model = std::move(work);
      result.findings = CheckModel(result.model, options.check);
    } else if (results.status().code() == ErrorCode::kPrecondition) {
      attempt.refusal = results.status().message();
    } else {
      return results.status();
    }
    result.attempts.push_back(std::move(attempt));
  }
  return result;
}

}  // namespace milwright
