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

void PrintCounts(const std::string& path, const std::vector<Finding>& findings, const std::string& target) {
  const auto count = [&](Severity severity) { return std::ranges::count(findings, severity, &Finding::severity); };
  std::cout << fmt::format("{}: {} errors, {} warnings, {} notes (target {})\n", path, count(Severity::kError),
                           count(Severity::kWarning), count(Severity::kNote), target);
}

bool AnyAtLeast(const std::vector<Finding>& findings, Severity severity) {
  return std::ranges::any_of(findings, [severity](const Finding& finding) { return finding.severity >= severity; });
}

int UnknownTarget(const std::string& name) {
  std::vector<std::string> known;
  for (const Target& target : AllTargets()) known.emplace_back(target.name);
  const std::string nearest = NearestWord(name, known);
  return Fail(Status(ErrorCode::kUsage,
                     fmt::format("there is no target '{}'; {}", name,
                                 nearest.empty() ? "see 'milwright targets'" : "did you mean '" + nearest + "'?")));
}

int Check(const CheckArguments& arguments) {
  if (arguments.fix) return CheckAndFix(arguments);
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
  const bool fails = AnyAtLeast(findings, fail_on);
  if (arguments.json) {
    Json json = {{"path", arguments.path}, {"target", arguments.target}, {"findings", Json::array()}};
    for (const Finding& finding : findings) json["findings"].push_back(FindingJson(finding));
    for (const Verdict& verdict : verdicts) json["verdicts"].push_back(VerdictJson(verdict, *target));
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    for (const Finding& finding : findings) PrintFinding(arguments.path, finding);
    for (const Verdict& verdict : verdicts) PrintVerdict(arguments.path, verdict, *target);
    PrintCounts(arguments.path, findings, arguments.target);
  }
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
