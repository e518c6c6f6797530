#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "check/rule.h"
#include "check/targets.h"
#include "check/verdict.h"
#include "cli/check_output.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Style StyleOf(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return Style::kRed;
    case Severity::kWarning:
      return Style::kYellow;
    default:
      return Style::kCyan;
  }
}

void PrintNeighbours(std::string_view what, const std::vector<Neighbour>& neighbours) {
  for (const Neighbour& neighbour : neighbours) {
    const Observation& row = *neighbour.observation;
    std::cout << fmt::format("  {}: {} ({}{}{}, {}), distance {}{}\n", what, row.id, row.outcome.status,
                             row.outcome.code.empty() ? "" : " ", row.outcome.code, row.date, neighbour.distance,
                             neighbour.differences.empty()
                                 ? ": equal in all features compared"
                                 : fmt::format(": differs in {}", fmt::join(neighbour.differences, ", ")));
  }
}

Json NeighboursJson(const std::vector<Neighbour>& neighbours) {
  Json json = Json::array();
  for (const Neighbour& neighbour : neighbours) {
    const Observation& row = *neighbour.observation;
    json.push_back({{"id", row.id},
                    {"status", row.outcome.status},
                    {"stage", row.outcome.stage},
                    {"code", row.outcome.code},
                    {"date", row.date},
                    {"distance", neighbour.distance},
                    {"differences", neighbour.differences}});
  }
  return json;
}

// A package with what is said of it.
struct CheckedPackage {
  std::string path;
  std::vector<Finding> findings;  // without the accepted ones
  size_t accepted = 0;
  std::vector<BaselineEntry> stale;  // of the baseline
  std::vector<Verdict> verdicts;
};

Result<CheckedPackage> CheckPackage(const std::string& path, const CheckSettings& settings) {
  MW_ASSIGN_OR_RETURN(const ModelSpec model, OpenModel(path));
  CheckedPackage checked;
  checked.path = path;
  checked.findings = CheckModel(model, settings.options);
  // "any" is no compute unit, so there is nothing to expect of it.
  if (settings.target->name != "any") {
    checked.verdicts = JudgeModel(model, *settings.target, settings.observations, checked.findings);
  }
  if (settings.baseline.has_value()) {
    const std::string name = settings.NameInBaseline(path);
    checked.stale = settings.baseline->Stale(checked.findings, name);
    checked.accepted = std::erase_if(checked.findings,
                                     [&](const Finding& finding) { return settings.baseline->Accepts(finding, name); });
  }
  return checked;
}

std::string EntryText(const BaselineEntry& entry) {
  std::string text = entry.rule;
  if (!entry.function.empty()) text += " in " + entry.function;
  if (!entry.place.empty()) text += " at " + entry.place;
  return text;
}

void Print(const CheckedPackage& checked, const CheckSettings& settings) {
  for (const Finding& finding : checked.findings) PrintFinding(checked.path, finding);
  for (const Verdict& verdict : checked.verdicts) PrintVerdict(checked.path, verdict, *settings.target);
  PrintCounts(checked.path, checked.findings, settings.options.target);
  if (!settings.baseline.has_value()) return;
  std::cout << fmt::format("{}: {} findings accepted by {}\n", checked.path, checked.accepted, settings.baseline_path);
  for (const BaselineEntry& entry : checked.stale) {
    std::cout << fmt::format("{}: no longer found: {}\n", settings.baseline_path, EntryText(entry));
  }
}

Json PackageJson(const CheckedPackage& checked, const CheckSettings& settings) {
  Json json = {{"path", checked.path}, {"target", settings.options.target}, {"findings", Json::array()}};
  for (const Finding& finding : checked.findings) json["findings"].push_back(FindingJson(finding));
  for (const Verdict& verdict : checked.verdicts) json["verdicts"].push_back(VerdictJson(verdict, *settings.target));
  if (!settings.baseline.has_value()) return json;
  json["accepted"] = checked.accepted;
  json["no_longer_found"] = Json::array();
  for (const BaselineEntry& entry : checked.stale) {
    json["no_longer_found"].push_back({{"rule", entry.rule}, {"function", entry.function}, {"place", entry.place}});
  }
  return json;
}

}  // namespace

std::string Place(const Location& location) {
  std::string place = !location.op_path.empty() ? location.op_path : location.function;
  if (!location.value.empty() && location.op_path.empty()) place += (place.empty() ? "" : "/") + location.value;
  return place;
}

void PrintFinding(const std::string& path, const Finding& finding) {
  const Rule* rule = FindRule(finding.id);
  std::cout << fmt::format("{}: {}: {}: {} [{} {}]\n", path, Place(finding.location),
                           Styled(SeverityName(finding.severity), StyleOf(finding.severity)), finding.message,
                           finding.id, rule->slug);
  for (const std::string& note : finding.notes) std::cout << "  note: " << note << "\n";
  if (finding.fix.has_value()) {
    std::cout << fmt::format("  fix: milwright rewrite {} -o FIXED.mlpackage --pass '{}'\n", path, finding.fix->passes);
  }
}

Json FindingJson(const Finding& finding) {
  Json json = {{"id", finding.id},
               {"slug", FindRule(finding.id)->slug},
               {"severity", SeverityName(finding.severity)},
               {"function", finding.location.function},
               {"op", finding.location.op_path},
               {"value", finding.location.value},
               {"message", finding.message}};
  if (!finding.notes.empty()) json["notes"] = finding.notes;
  if (finding.fix.has_value()) json["fix"] = {{"passes", finding.fix->passes}, {"safe", finding.fix->safe}};
  return json;
}

void PrintVerdict(const std::string& path, const Verdict& verdict, const Target& target) {
  std::cout << fmt::format("{}: {}: {} ({}): {}\n", path, verdict.function,
                           Styled(VerdictText(verdict.kind, target), Style::kBold), target.name, verdict.why);
  if (!verdict.codes.empty()) std::cout << fmt::format("  codes seen: {}\n", fmt::join(verdict.codes, ", "));
  PrintNeighbours("near", verdict.nearest);
  PrintNeighbours("otherwise", verdict.contrary);
  if (!verdict.dismissed.empty()) {
    std::cout << fmt::format("  holds but is contradicted: {}\n", fmt::join(verdict.dismissed, ", "));
  }
}

Json VerdictJson(const Verdict& verdict, const Target& target) {
  return {{"function", verdict.function},
          {"verdict", VerdictText(verdict.kind, target)},
          {"why", verdict.why},
          {"causes", verdict.causes},
          {"dismissed", verdict.dismissed},
          {"codes", verdict.codes},
          {"nearest", NeighboursJson(verdict.nearest)},
          {"contrary", NeighboursJson(verdict.contrary)}};
}

void PrintCounts(const std::string& path, const std::vector<Finding>& findings, const std::string& target) {
  const auto count = [&](Severity severity) { return std::ranges::count(findings, severity, &Finding::severity); };
  std::cout << fmt::format("{}: {} errors, {} warnings, {} notes (target {})\n", path, count(Severity::kError),
                           count(Severity::kWarning), count(Severity::kNote), target);
}

bool AnyAtLeast(const std::vector<Finding>& findings, Severity severity) {
  return std::ranges::any_of(findings, [severity](const Finding& finding) { return finding.severity >= severity; });
}

int Check(const CheckArguments& arguments) {
  const auto settings = GatherSettings(arguments);
  if (!settings.ok()) return Fail(settings.status());
  if (arguments.fix) return CheckAndFix(arguments, *settings);
  std::vector<BaselineEntry> entries;  // for --write-baseline
  Json reports = Json::array();
  bool fails = false;
  for (const std::string& path : settings->packages) {
    const auto checked = CheckPackage(path, *settings);
    if (!checked.ok()) return Fail(checked.status());
    fails = fails || AnyAtLeast(checked->findings, settings->fail_on);
    for (const Finding& finding : checked->findings) {
      entries.push_back(EntryFor(finding, settings->NameInBaseline(path)));
    }
    if (arguments.json) {
      reports.push_back(PackageJson(*checked, *settings));
    } else {
      Print(*checked, *settings);
    }
  }
  if (arguments.json) {
    const Json json = settings->is_folder ? Json({{"path", arguments.path}, {"packages", reports}}) : reports[0];
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  if (arguments.write_baseline.empty()) return fails ? kFindings : kFine;
  const Baseline baseline(std::move(entries));
  if (const Status status = WriteBaseline(baseline, arguments.write_baseline); !status.ok()) return Fail(status);
  if (!arguments.json) {
    std::cout << fmt::format("{}: {} findings accepted from now on\n", arguments.write_baseline,
                             baseline.entries().size());
  }
  return kFine;
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
