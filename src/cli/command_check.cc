#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "base/file_io.h"
#include "check/report.h"
#include "check/rule.h"
#include "check/verdict.h"
#include "cli/check_output.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

// Prints the reports, or writes them to --output and prints where they went.
Status ShowReports(const ReportSet& reports, ReportFormat format, const CheckArguments& arguments,
                   const CheckSettings& settings) {
  if (arguments.output.empty()) {
    std::cout << WriteReports(reports, format, UseColor());
    return {};
  }
  MW_RETURN_IF_ERROR(WriteFileAtomically(arguments.output, WriteReports(reports, format)));
  std::cout << fmt::format("{}: {} errors, {} warnings, {} notes (target {}); {}\n", reports.path,
                           reports.Count(Severity::kError), reports.Count(Severity::kWarning),
                           reports.Count(Severity::kNote), settings.options.target, arguments.output);
  return {};
}

std::string EntryText(const BaselineEntry& entry) {
  std::string text = entry.rule;
  if (!entry.function.empty()) text += " in " + entry.function;
  if (!entry.place.empty()) text += " at " + entry.place;
  return text;
}

Status WriteNewBaseline(const ReportSet& reports, const CheckSettings& settings, const std::string& path) {
  std::vector<BaselineEntry> entries;
  for (const Report& report : reports.packages) {
    for (const ReportFinding& entry : report.findings) {
      entries.push_back(EntryFor(entry.finding, settings.NameInBaseline(report.path)));
    }
  }
  const Baseline baseline(std::move(entries));
  MW_RETURN_IF_ERROR(WriteBaseline(baseline, path));
  std::cerr << fmt::format("{}: {} findings accepted from now on\n", path, baseline.entries().size());
  return Status::Ok();
}

}  // namespace

Report ReportOn(const ModelSpec& model, const std::string& path, const CheckSettings& settings, ReportFormat format) {
  std::vector<Finding> findings = CheckModel(model, settings.options);
  // "any" is no compute unit, so there is nothing to expect of it.
  std::vector<Verdict> verdicts;
  if (settings.target->name != "any") {
    verdicts = JudgeModel(model, *settings.target, settings.observations, findings);
  }
  std::vector<BaselineEntry> stale;
  size_t accepted = 0;
  if (settings.baseline.has_value()) {
    const std::string name = settings.NameInBaseline(path);
    stale = settings.baseline->Stale(findings, name);
    accepted =
        std::erase_if(findings, [&](const Finding& finding) { return settings.baseline->Accepts(finding, name); });
  }
  Report report =
      CollectReport(model, {path, MILWRIGHT_VERSION, settings.target, settings.observations, ShowsProgram(format)},
                    findings, verdicts);
  if (settings.baseline.has_value()) report.baseline = settings.baseline_path;
  report.accepted = accepted;
  for (const BaselineEntry& entry : stale) report.no_longer_found.push_back(EntryText(entry));
  return report;
}

bool AnyAtLeast(const Report& report, Severity severity) {
  return std::ranges::any_of(report.findings,
                             [severity](const ReportFinding& entry) { return entry.finding.severity >= severity; });
}

int Check(const CheckArguments& arguments) {
  const auto settings = GatherSettings(arguments);
  if (!settings.ok()) return Fail(settings.status());
  if (arguments.fix) return CheckAndFix(arguments, *settings);
  const ReportFormat format = *ReportFormatFromName(arguments.json ? "json" : arguments.format);
  ReportSet reports{arguments.path, settings->is_folder, {}};
  bool fails = false;
  for (const std::string& path : settings->packages) {
    const auto model = OpenModel(path);
    if (!model.ok()) return Fail(model.status());
    reports.packages.push_back(ReportOn(*model, path, *settings, format));
    fails = fails || AnyAtLeast(reports.packages.back(), settings->fail_on);
  }
  if (const Status shown = ShowReports(reports, format, arguments, *settings); !shown.ok()) return Fail(shown);
  if (arguments.write_baseline.empty()) return fails ? kFindings : kFine;
  const Status written = WriteNewBaseline(reports, *settings, arguments.write_baseline);
  return written.ok() ? static_cast<int>(kFine) : Fail(written);
}

int Explain(const ExplainArguments& arguments) {
  const Rule* rule = FindRule(arguments.rule);
  if (rule == nullptr) {
    std::error_code ignored;
    if (std::filesystem::exists(arguments.rule, ignored)) {
      return Fail(Status(ErrorCode::kUsage, "'" + arguments.rule + "' is a file, no rule: 'milwright check " +
                                                arguments.rule + "' names the rules that it breaks"));
    }
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
