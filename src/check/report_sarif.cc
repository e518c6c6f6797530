// SARIF 2.1.0 (OASIS standard, 27 March 2020). A finding's artifact is the package; where in the program it stands is a
// logical location, as nothing in a package has lines. A SARIF fix can only replace bytes of a file, which no rewrite
// of a program comes down to, so the command that mends a finding stands in its message and properties.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/sha256.h"
#include "base/utf8.h"
#include "check/report.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSchema = "https://json.schemastore.org/sarif-2.1.0.json";

std::string_view LevelOf(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
    case Severity::kOff:
      break;
  }
  return "none";
}

// A path as a URI (RFC 3986): absolute ones become file URIs, relative ones stay relative.
std::string UriOf(std::string_view path) {
  constexpr std::string_view kUnreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string uri = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    if (kUnreserved.find(c) != std::string_view::npos) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

// "order-unsafe" as "OrderUnsafe": SARIF wants rule names in Pascal case.
std::string PascalCase(std::string_view slug) {
  std::string name;
  bool upper = true;
  for (const char c : slug) {
    if (c == '-') {
      upper = true;
    } else {
      name += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      upper = false;
    }
  }
  return name;
}

OrderedJson RuleJson(const Rule& rule) {
  const std::string page = RulePage(rule);
  return {{"id", rule.id},
          {"name", PascalCase(rule.slug)},
          {"shortDescription", {{"text", rule.summary}}},
          {"fullDescription", {{"text", rule.explanation}}},
          {"help", {{"text", page}, {"markdown", page}}},
          {"defaultConfiguration", {{"enabled", rule.severity != Severity::kOff}, {"level", LevelOf(rule.severity)}}},
          {"properties",
           {{"slug", rule.slug},
            {"confidence", ConfidenceName(rule.confidence)},
            {"evidenceFor", rule.evidence_for},
            {"evidenceAgainst", rule.evidence_against}}}};
}

// A report, and the place of its package among the artifacts of the run.
struct Artifact {
  const Report& report;
  size_t index;
};

OrderedJson ArtifactLocation(const Artifact& artifact) {
  return {{"uri", UriOf(artifact.report.path)}, {"index", artifact.index}};
}

// GitHub takes results only with a line, so one is named: the first.
OrderedJson PhysicalLocation(const Artifact& artifact) {
  return {{"artifactLocation", ArtifactLocation(artifact)}, {"region", {{"startLine", 1}}}};
}

OrderedJson LogicalLocations(const Location& location) {
  OrderedJson logical = OrderedJson::array();
  const std::string place = EscapeForMessage(PlaceOf(location));
  if (place.empty()) return logical;
  const bool is_function = location.op_path.empty() && location.value.empty();
  OrderedJson entry = {{"fullyQualifiedName", place}, {"kind", is_function ? "function" : "element"}};
  if (!location.value.empty()) entry["name"] = EscapeForMessage(location.value);
  if (is_function) entry["name"] = place;
  logical.push_back(std::move(entry));
  return logical;
}

// The same finding in the next build of a package has the same fingerprint: package, rule and place, without op
// numbers, which any edit shifts.
std::string Fingerprint(const Report& report, const Finding& finding) {
  std::string place;
  for (size_t i = 0; i < finding.location.op_path.size(); ++i) {
    const std::string_view rest = std::string_view(finding.location.op_path).substr(i);
    if (rest.starts_with("op ")) {
      const size_t end = rest.find_first_not_of("0123456789", 3);
      i += end == std::string_view::npos ? rest.size() - 1 : end - 1;
      place += "op";
    } else {
      place += rest.front();
    }
  }
  Sha256 hash;
  const std::string package = std::filesystem::path(report.path).filename().string();
  for (const std::string_view part :
       {std::string_view(package), std::string_view(finding.id), std::string_view(finding.location.function),
        std::string_view(place), std::string_view(finding.location.value)}) {
    hash.Update(part);
    hash.Update(std::string_view("\0", 1));
  }
  return ToHex(hash.Finish());
}

// The observations behind a rule: what its hypotheses rest on, and what it names itself.
std::set<std::string_view> ObservationsBehind(const Report& report, const std::vector<std::string_view>& evidence) {
  std::set<std::string_view> ids;
  for (const std::string_view id : evidence) {
    if (const auto hypothesis = report.hypotheses.find(id); hypothesis != report.hypotheses.end()) {
      ids.insert(hypothesis->second.supported_by.begin(), hypothesis->second.supported_by.end());
    }
    if (report.observations.contains(id)) ids.insert(id);
  }
  return ids;
}

OrderedJson RelatedLocations(const Report& report, const Rule& rule) {
  OrderedJson related = OrderedJson::array();
  const auto add = [&](std::string_view side, const std::vector<std::string_view>& evidence) {
    for (const std::string_view id : ObservationsBehind(report, evidence)) {
      const ReportObservation& row = report.observations.find(id)->second;
      if (row.source_url.empty()) continue;
      related.push_back({{"id", related.size() + 1},
                         {"message", {{"text", fmt::format("evidence {}: {}: {}", side, id, row.outcome)}}},
                         {"physicalLocation", {{"artifactLocation", {{"uri", row.source_url}}}}},
                         {"properties",
                          {{"observation", id},
                           {"side", side},
                           {"model", row.model},
                           {"environment", row.environment},
                           {"strength", row.strength}}}});
    }
  };
  add("for", rule.evidence_for);
  add("against", rule.evidence_against);
  return related;
}

// A SARIF fix must replace bytes of a file, and a rewrite of a program does not come down to that: the description says
// what to run, and the replacement that the schema asks for is empty.
OrderedJson FixJson(const Artifact& artifact, const ReportFinding& entry) {
  const OrderedJson replacement = {{"deletedRegion", {{"byteOffset", 0}, {"byteLength", 0}}}};
  return {{"description", {{"text", "Run: " + entry.command}, {"markdown", fmt::format("Run: `{}`", entry.command)}}},
          {"artifactChanges", OrderedJson::array({{{"artifactLocation", ArtifactLocation(artifact)},
                                                   {"replacements", OrderedJson::array({replacement})}}})},
          {"properties", {{"passes", entry.finding.fix->passes}, {"safe", entry.finding.fix->safe}}}};
}

OrderedJson ResultJson(const Artifact& artifact, const ReportFinding& entry, size_t rule_index) {
  const Finding& finding = entry.finding;
  std::string text = finding.message;
  if (text.empty() || text.back() != '.') text += '.';
  for (const std::string& note : finding.notes) text += fmt::format("\nNote: {}.", note);
  OrderedJson location = {{"physicalLocation", PhysicalLocation(artifact)}};
  if (OrderedJson logical = LogicalLocations(finding.location); !logical.empty()) {
    location["logicalLocations"] = std::move(logical);
  }
  OrderedJson json = {{"ruleId", finding.id},
                      {"ruleIndex", rule_index},
                      {"level", LevelOf(finding.severity)},
                      {"message", {{"text", text}}},
                      {"locations", OrderedJson::array({std::move(location)})}};
  const Rule* rule = FindRule(finding.id);
  if (rule != nullptr) {
    if (OrderedJson related = RelatedLocations(artifact.report, *rule); !related.empty()) {
      json["relatedLocations"] = std::move(related);
    }
    json["properties"]["confidence"] = ConfidenceName(rule->confidence);
  }
  json["partialFingerprints"] = {{"milwrightPlace/v1", Fingerprint(artifact.report, finding)}};
  json["properties"]["notes"] = finding.notes;
  if (finding.fix.has_value()) json["fixes"] = OrderedJson::array({FixJson(artifact, entry)});
  return json;
}

void AddVerdicts(const Report& report, OrderedJson& json) {
  for (const ReportVerdict& verdict : report.verdicts) {
    json.push_back({{"package", report.path},
                    {"function", verdict.function},
                    {"verdict", verdict.text},
                    {"why", verdict.why},
                    {"causes", verdict.causes}});
  }
}

}  // namespace

std::string WriteSarifReport(const ReportSet& set) {
  OrderedJson rules = OrderedJson::array();
  std::map<std::string_view, size_t> indices;
  for (const Rule& rule : AllRules()) {
    indices.emplace(rule.id, rules.size());
    rules.push_back(RuleJson(rule));
  }
  OrderedJson artifacts = OrderedJson::array();
  OrderedJson results = OrderedJson::array();
  OrderedJson verdicts = OrderedJson::array();
  std::string target;
  std::string version;
  for (const Report& report : set.packages) {
    const Artifact artifact{report, artifacts.size()};
    artifacts.push_back({{"location", {{"uri", UriOf(report.path)}}},
                         {"description", {{"text", "The package that was checked"}}},
                         {"roles", OrderedJson::array({"analysisTarget"})}});
    for (const ReportFinding& finding : report.findings) {
      const auto rule = indices.find(finding.finding.id);
      if (rule != indices.end()) results.push_back(ResultJson(artifact, finding, rule->second));
    }
    AddVerdicts(report, verdicts);
    target = report.target;
    version = report.version;
  }
  OrderedJson run = {
      {"tool",
       {{"driver",
         {{"name", "Milwright"}, {"version", version}, {"semanticVersion", version}, {"rules", std::move(rules)}}}}},
      {"automationDetails", {{"id", fmt::format("milwright/check/{}/", target)}}},
      {"invocations", OrderedJson::array({{{"executionSuccessful", true}}})},
      {"artifacts", std::move(artifacts)},
      {"columnKind", "utf16CodeUnits"},
      {"results", std::move(results)},
      {"properties", {{"target", target}, {"verdicts", std::move(verdicts)}}},
  };
  OrderedJson log = {{"$schema", kSchema}, {"version", "2.1.0"}, {"runs", OrderedJson::array()}};
  log["runs"].push_back(std::move(run));
  return log.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace milwright
