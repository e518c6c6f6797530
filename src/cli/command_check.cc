#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "check/rule.h"
#include "check/targets.h"
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
    std::cout << fmt::format("  fix: milwright rewrite {} -o FIXED.mlpackage --pass {}\n", path, finding.fix->passes);
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

int UnknownTarget(const std::string& name) {
  std::vector<std::string> known;
  for (const Target& target : AllTargets()) known.emplace_back(target.name);
  const std::string nearest = NearestWord(name, known);
  return Fail(Status(ErrorCode::kUsage,
                     fmt::format("there is no target '{}'; {}", name,
                                 nearest.empty() ? "see 'milwright targets'" : "did you mean '" + nearest + "'?")));
}

}  // namespace

int Check(const CheckArguments& arguments) {
  if (FindTarget(arguments.target) == nullptr) return UnknownTarget(arguments.target);
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  const std::vector<Finding> findings = CheckModel(*model, {arguments.target, {}});
  const Severity fail_on = SeverityFromName(arguments.fail_on).value_or(Severity::kError);
  const bool fails = std::ranges::any_of(findings, [&](const Finding& finding) { return finding.severity >= fail_on; });
  if (arguments.json) {
    Json json = {{"path", arguments.path}, {"target", arguments.target}, {"findings", Json::array()}};
    for (const Finding& finding : findings) json["findings"].push_back(FindingJson(finding));
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    for (const Finding& finding : findings) PrintFinding(arguments.path, finding);
    const auto count = [&](Severity severity) { return std::ranges::count(findings, severity, &Finding::severity); };
    std::cout << fmt::format("{}: {} errors, {} warnings, {} notes (target {})\n", arguments.path,
                             count(Severity::kError), count(Severity::kWarning), count(Severity::kNote),
                             arguments.target);
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
