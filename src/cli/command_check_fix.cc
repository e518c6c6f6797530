#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "check/fix.h"
#include "check/targets.h"
#include "check/verdict.h"
#include "cli/check_output.h"
#include "cli/terminal.h"
#include "format/package.h"
#include "passes/verify_rewrite.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Status CheckFixArguments(const CheckArguments& arguments, const CheckSettings& settings) {
  if (arguments.output.empty() != arguments.in_place) {
    return {ErrorCode::kUsage, "check --fix takes either -o OUT.mlpackage or --in-place, to say where the result goes"};
  }
  if (settings.is_folder) return {ErrorCode::kUsage, "check --fix takes one package, not a folder of them"};
  const std::string& output = arguments.in_place ? arguments.path : arguments.output;
  if (!output.ends_with(".mlpackage") && !output.ends_with(".mlpackage/")) {
    return {ErrorCode::kUsage, fmt::format("check --fix writes a .mlpackage, not '{}'; give one by -o", output)};
  }
  return Status::Ok();
}

void PrintAttempts(const FixResult& result) {
  for (const FixAttempt& attempt : result.attempts) {
    const Finding& finding = attempt.finding;
    std::cout << fmt::format("{} {} at {}: {}\n",
                             attempt.applied() ? Styled("fixed", Style::kGreen) : Styled("not fixed", Style::kYellow),
                             finding.id, Place(finding.location), finding.fix->passes);
    if (!attempt.applied()) std::cout << "  refused: " << attempt.refusal << "\n";
    for (const PassResult& pass : attempt.results) {
      for (const std::string& note : pass.report.notes) std::cout << "  " << note << "\n";
      for (const std::string& note : pass.report.assumptions) std::cout << "  assumes: " << note << "\n";
    }
  }
  if (result.attempts.empty()) std::cout << "no warning or error has a fix that is applied by itself\n";
}

// What makes the two unequal, a line each.
std::vector<std::string> Inequalities(const CompareReport& report) {
  std::vector<std::string> lines = report.faults;
  for (const ComparedValue& value : report.values) {
    if (!value.worst.passed()) lines.push_back(DescribeDifference(value));
  }
  return lines;
}

Json AttemptsJson(const FixResult& result) {
  Json attempts = Json::array();
  for (const FixAttempt& attempt : result.attempts) {
    Json json = {{"finding", FindingJson(attempt.finding)},
                 {"applied", attempt.applied()},
                 {"notes", Json::array()},
                 {"assumptions", Json::array()}};
    if (!attempt.applied()) json["refusal"] = attempt.refusal;
    for (const PassResult& pass : attempt.results) {
      for (const std::string& note : pass.report.notes) json["notes"].push_back(note);
      for (const std::string& note : pass.report.assumptions) json["assumptions"].push_back(note);
    }
    attempts.push_back(std::move(json));
  }
  return attempts;
}

// What comes of a fix. Without a pass that was applied there is nothing to compare.
struct FixOutcome {
  FixResult fixed;
  std::optional<CompareReport> comparison;
  std::vector<Verdict> verdicts;  // on the fixed package; none for target "any"

  [[nodiscard]] bool equal() const { return !comparison.has_value() || comparison->equal(); }
};

void Print(const FixOutcome& outcome, const std::string& output, const CheckSettings& settings) {
  PrintAttempts(outcome.fixed);
  for (const Finding& finding : outcome.fixed.findings) PrintFinding(output, finding);
  for (const Verdict& verdict : outcome.verdicts) PrintVerdict(output, verdict, *settings.target);
  PrintCounts(output, outcome.fixed.findings, settings.options.target);
  if (outcome.comparison.has_value()) {
    std::cout << fmt::format("{} over {} steps\n", outcome.equal() ? "equal" : "not equal", outcome.comparison->steps);
  }
}

Json OutcomeJson(const FixOutcome& outcome, const CheckSettings& settings) {
  Json json = {{"fixes", AttemptsJson(outcome.fixed)}, {"equality", Json()}, {"findings", Json::array()}};
  if (outcome.comparison.has_value()) {
    json["equality"] = {{"equal", outcome.equal()},
                        {"steps", outcome.comparison->steps},
                        {"differences", Inequalities(*outcome.comparison)}};
  }
  for (const Finding& finding : outcome.fixed.findings) json["findings"].push_back(FindingJson(finding));
  for (const Verdict& verdict : outcome.verdicts) json["verdicts"].push_back(VerdictJson(verdict, *settings.target));
  return json;
}

Result<FixOutcome> FixAndCompare(const ModelSpec& model, const CheckArguments& arguments,
                                 const CheckSettings& settings) {
  const auto accepted = [&settings](const Finding& finding) {
    return settings.baseline.has_value() && settings.baseline->Accepts(finding, {});
  };
  MW_ASSIGN_OR_RETURN(FixResult fixed, ApplyFixes(model, {.check = settings.options, .accepted = accepted}));
  FixOutcome outcome{std::move(fixed), std::nullopt, {}};
  const std::vector<PassUse> uses = outcome.fixed.uses();
  if (!uses.empty()) {
    const int steps = arguments.steps > 0 ? arguments.steps : StepsToProve(model, outcome.fixed);
    MW_ASSIGN_OR_RETURN(outcome.comparison, CompareRewritten(model, outcome.fixed.model, uses, steps));
  }
  if (settings.target->name != "any") {
    outcome.verdicts = JudgeModel(outcome.fixed.model, *settings.target, settings.observations, outcome.fixed.findings);
  }
  std::erase_if(outcome.fixed.findings, accepted);
  return outcome;
}

}  // namespace

int CheckAndFix(const CheckArguments& arguments, const CheckSettings& settings) {
  if (const Status status = CheckFixArguments(arguments, settings); !status.ok()) return Fail(status);
  const std::string output = arguments.in_place ? arguments.path : arguments.output;
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  const auto outcome = FixAndCompare(*model, arguments, settings);
  if (!outcome.ok()) return Fail(outcome.status().WithContext(arguments.path));
  if (arguments.json) {
    Json json = {{"path", arguments.path},
                 {"target", settings.options.target},
                 {"written", outcome->equal() ? Json(output) : Json()}};
    json.update(OutcomeJson(*outcome, settings));
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    Print(*outcome, output, settings);
  }
  if (!outcome->equal()) {
    for (const std::string& line : Inequalities(*outcome->comparison)) {
      std::cerr << "milwright: not equal: " << line << "\n";
    }
    std::cerr << fmt::format("milwright: {} is not written\n", output);
    return kFindings;
  }
  if (const Status status = WriteModel(outcome->fixed.model, output); !status.ok()) return Fail(status);
  return AnyAtLeast(outcome->fixed.findings, settings.fail_on) ? kFindings : kFine;
}

}  // namespace milwright::cli
