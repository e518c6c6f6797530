#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "base/file_io.h"
#include "check/report.h"
#include "check/rule.h"
#include "check/targets.h"
#include "check/verdict.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

int UnknownTarget(const std::string& name) {
  std::vector<std::string> known;
  for (const Target& target : AllTargets()) known.emplace_back(target.name);
  const std::string nearest = NearestWord(name, known);
  return Fail(Status(ErrorCode::kUsage,
                     fmt::format("there is no target '{}'; {}", name,
                                 nearest.empty() ? "see 'milwright targets'" : "did you mean '" + nearest + "'?")));
}

// Prints the reports, or writes them to --output and prints where they went.
Status ShowReports(const ReportSet& reports, ReportFormat format, const CheckArguments& arguments) {
  if (arguments.output.empty()) {
    std::cout << WriteReports(reports, format, UseColor());
    return {};
  }
  MW_RETURN_IF_ERROR(WriteFileAtomically(arguments.output, WriteReports(reports, format)));
  std::cout << fmt::format("{}: {} errors, {} warnings, {} notes (target {}); {}\n", reports.path,
                           reports.Count(Severity::kError), reports.Count(Severity::kWarning),
                           reports.Count(Severity::kNote), arguments.target, arguments.output);
  return {};
}

}  // namespace

int Check(const CheckArguments& arguments) {
  const Target* target = FindTarget(arguments.target);
  if (target == nullptr) return UnknownTarget(arguments.target);
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  const auto observations = GatherObservations(arguments.evidence);
  if (!observations.ok()) return Fail(observations.status());
  const std::vector<Finding> findings = CheckModel(*model, {arguments.target, {}});
  // "any" is no compute unit, so there is nothing to expect of it.
  const std::vector<Verdict> verdicts =
      target->name == "any" ? std::vector<Verdict>() : JudgeModel(*model, *target, *observations, findings);
  const Severity fail_on = SeverityFromName(arguments.fail_on).value_or(Severity::kError);
  const bool fails = std::ranges::any_of(findings, [&](const Finding& finding) { return finding.severity >= fail_on; });
  const ReportFormat format = *ReportFormatFromName(arguments.json ? "json" : arguments.format);
  ReportSet reports{arguments.path, false, {}};
  reports.packages.push_back(CollectReport(
      *model, {arguments.path, MILWRIGHT_VERSION, target, *observations, ShowsProgram(format)}, findings, verdicts));
  const Status shown = ShowReports(reports, format, arguments);
  if (!shown.ok()) return Fail(shown);
  return fails ? kFindings : kFine;
}

int Explain(const ExplainArguments& arguments) {
  const Rule* rule = FindRule(arguments.rule);
  if (rule == nullptr) {
    std::vector<std::string> known;
    for (const Rule& candidate : AllRules()) {
      known.emplace_back(candidate.id);
      known.emplace_back(candidate.slug);
    }
    const std::string nearest = NearestWord(arguments.rule, known);
    return Fail(Status(ErrorCode::kUsage, "there is no rule '" + arguments.rule + "'" +
                                              (nearest.empty() ? "" : "; did you mean '" + nearest + "'?")));
  }
  std::cout << RulePage(*rule);
  return kFine;
}

}  // namespace milwright::cli
