#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "check/fix.h"
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
  if (arguments.format != "text" && arguments.format != "json") {
    return {ErrorCode::kUsage, "check --fix prints text or json; check what it wrote for other formats"};
  }
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
                             finding.id, PlaceOf(finding.location), finding.fix->passes);
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
    Json json = {{"rule", attempt.finding.id},
                 {"place", PlaceOf(attempt.finding.location)},
                 {"passes", attempt.finding.fix->passes},
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

  [[nodiscard]] bool equal() const { return !comparison.has_value() || comparison->equal(); }
};

void Print(const FixOutcome& outcome, const ReportSet& reports) {
  PrintAttempts(outcome.fixed);
  std::cout << WriteReports(reports, ReportFormat::kText, UseColor());
  if (outcome.comparison.has_value()) {
    std::cout << fmt::format("{} over {} steps\n", outcome.equal() ? "equal" : "not equal", outcome.comparison->steps);
  }
}

// The report on the fixed package, and what was done.
void PrintJson(const FixOutcome& outcome, const ReportSet& reports) {
  Json json = Json::parse(WriteReports(reports, ReportFormat::kJson), nullptr, /*allow_exceptions=*/false);
  json["written"] = outcome.equal();
  json["fixes"] = AttemptsJson(outcome.fixed);
  json["equality"] = Json();
  if (outcome.comparison.has_value()) {
    json["equality"] = {{"equal", outcome.equal()},
                        {"steps", outcome.comparison->steps},
                        {"differences", Inequalities(*outcome.comparison)}};
  }
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

Result<FixOutcome> FixAndCompare(const ModelSpec& model, const CheckArguments& arguments,
                                 const CheckSettings& settings) {
  const auto accepted = [&settings](const Finding& finding) {
    return settings.baseline.has_value() && settings.baseline->Accepts(finding, {});
  };
  MW_ASSIGN_OR_RETURN(FixResult fixed, ApplyFixes(model, {.check = settings.options, .accepted = accepted}));
  FixOutcome outcome{std::move(fixed), std::nullopt};
  const std::vector<PassUse> uses = outcome.fixed.uses();
  if (!uses.empty()) {
    const int steps = arguments.steps > 0 ? arguments.steps : StepsToProve(model, outcome.fixed);
    MW_ASSIGN_OR_RETURN(outcome.comparison, CompareRewritten(model, outcome.fixed.model, uses, steps));
  }
  return outcome;
}

}  // namespace

int CheckAndFix(const CheckArguments& arguments, const CheckSettings& settings) {
  if (const Status status = CheckFixArguments(arguments, settings); !status.ok()) return Fail(status);
  const std::string output = arguments.in_place ? arguments.path : arguments.output;
  const bool json = arguments.json || arguments.format == "json";
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  const auto outcome = FixAndCompare(*model, arguments, settings);
  if (!outcome.ok()) return Fail(outcome.status().WithContext(arguments.path));
  ReportSet reports{output, false, {}};
  reports.packages.push_back(
      ReportOn(outcome->fixed.model, output, settings, json ? ReportFormat::kJson : ReportFormat::kText));
  if (json) {
    PrintJson(*outcome, reports);
  } else {
    Print(*outcome, reports);
  }
  if (!outcome->equal()) {
    for (const std::string& line : Inequalities(*outcome->comparison)) {
      std::cerr << "milwright: not equal: " << line << "\n";
    }
    std::cerr << fmt::format("milwright: {} is not written\n", output);
    return kFindings;
  }
  if (const Status status = WriteModel(outcome->fixed.model, output); !status.ok()) return Fail(status);
  return AnyAtLeast(reports.packages.front(), settings.fail_on) ? kFindings : kFine;
}

}  // namespace milwright::cli
