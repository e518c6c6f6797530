#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "check/fix.h"
#include "check/targets.h"
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

Json FixJson(const FixResult& result, const CompareReport& report) {
  Json attempts = Json::array();
  for (const FixAttempt& attempt : result.attempts) {
    Json json = {{"finding", FindingJson(attempt.finding)}, {"applied", attempt.applied()}};
    if (!attempt.applied()) json["refusal"] = attempt.refusal;
    Json notes = Json::array();
    Json assumptions = Json::array();
    for (const PassResult& pass : attempt.results) {
      for (const std::string& note : pass.report.notes) notes.push_back(note);
      for (const std::string& note : pass.report.assumptions) assumptions.push_back(note);
    }
    json["notes"] = std::move(notes);
    json["assumptions"] = std::move(assumptions);
    attempts.push_back(std::move(json));
  }
  Json findings = Json::array();
  for (const Finding& finding : result.findings) findings.push_back(FindingJson(finding));
  return {
      {"fixes", std::move(attempts)},
      {"equality", {{"equal", report.equal()}, {"steps", report.steps}, {"differences", Inequalities(report)}}},
      {"findings", std::move(findings)},
  };
}

}  // namespace

int CheckAndFix(const CheckArguments& arguments, const CheckSettings& settings) {
  if (const Status status = CheckFixArguments(arguments, settings); !status.ok()) return Fail(status);
  const std::string output = arguments.in_place ? arguments.path : arguments.output;
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  const auto accepted = [&settings](const Finding& finding) {
    return settings.baseline.has_value() && settings.baseline->Accepts(finding, {});
  };
  auto result = ApplyFixes(*model, {.check = settings.options, .accepted = accepted});
  if (!result.ok()) return Fail(result.status().WithContext(arguments.path));
  std::erase_if(result->findings, accepted);
  const int steps = arguments.steps > 0 ? arguments.steps : StepsToProve(*model, *result);
  const auto report = CompareRewritten(*model, result->model, result->uses(), steps);
  if (!report.ok()) return Fail(report.status().WithContext(arguments.path));
  const bool equal = report->equal();
  if (arguments.json) {
    Json json = {
        {"path", arguments.path}, {"target", settings.options.target}, {"written", equal ? Json(output) : Json()}};
    json.update(FixJson(*result, *report));
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    PrintAttempts(*result);
    for (const Finding& finding : result->findings) PrintFinding(output, finding);
    PrintCounts(output, result->findings, settings.options.target);
    std::cout << fmt::format("{} over {} steps\n", equal ? "equal" : "not equal", report->steps);
  }
  if (!equal) {
    for (const std::string& line : Inequalities(*report)) std::cerr << "milwright: not equal: " << line << "\n";
    std::cerr << fmt::format("milwright: {} is not written\n", output);
    return kFindings;
  }
  if (const Status status = WriteModel(result->model, output); !status.ok()) return Fail(status);
  return AnyAtLeast(result->findings, settings.fail_on) ? kFindings : kFine;
}

}  // namespace milwright::cli
