#include <nlohmann/json.hpp>

#include "check/report.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

template <typename T>
OrderedJson Optional(const std::optional<T>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson();
}

OrderedJson FindingJson(const ReportFinding& entry) {
  const Finding& finding = entry.finding;
  const Rule* rule = FindRule(finding.id);
  OrderedJson json = {{"id", finding.id},
                      {"slug", rule != nullptr ? rule->slug : ""},
                      {"severity", SeverityName(finding.severity)},
                      {"function", finding.location.function},
                      {"op", finding.location.op_path},
                      {"value", finding.location.value},
                      {"message", finding.message}};
  if (rule != nullptr) {
    json["confidence"] = ConfidenceName(rule->confidence);
    json["evidence_for"] = rule->evidence_for;
    json["evidence_against"] = rule->evidence_against;
  }
  if (!finding.notes.empty()) json["notes"] = finding.notes;
  if (finding.fix.has_value()) {
    json["fix"] = {{"passes", finding.fix->passes}, {"safe", finding.fix->safe}, {"command", entry.command}};
  }
  return json;
}

OrderedJson NeighboursJson(const std::vector<ReportNeighbour>& neighbours) {
  OrderedJson json = OrderedJson::array();
  for (const ReportNeighbour& neighbour : neighbours) {
    json.push_back({{"id", neighbour.id}, {"distance", neighbour.distance}, {"differences", neighbour.differences}});
  }
  return json;
}

OrderedJson VerdictJson(const ReportVerdict& verdict) {
  return {{"function", verdict.function},
          {"verdict", verdict.text},
          {"why", verdict.why},
          {"causes", verdict.causes},
          {"dismissed", verdict.dismissed},
          {"codes", verdict.codes},
          {"nearest", NeighboursJson(verdict.nearest)},
          {"contrary", NeighboursJson(verdict.contrary)}};
}

OrderedJson StateJson(const ReportState& state) {
  OrderedJson json = {{"name", state.name},
                      {"type", state.type},
                      {"bytes", state.bytes},
                      {"role", state.role},
                      {"update", state.form},
                      {"rows_per_step", Optional(state.rows)},
                      {"capacity", Optional(state.capacity)},
                      {"steps", Optional(state.steps)},
                      {"accesses", OrderedJson::array()}};
  for (const ReportAccess& access : state.accesses) {
    OrderedJson entry = {
        {"kind", access.is_write ? "write" : "read"}, {"position", access.position}, {"op", access.op}};
    if (access.is_write) entry["update"] = access.form;
    if (access.is_write) entry["rows"] = Optional(access.rows);
    json["accesses"].push_back(std::move(entry));
  }
  return json;
}

OrderedJson PlacementJson(const ReportPlacement& placement) {
  const PlanShare& share = placement.share;
  OrderedJson json = {{"dispatchable", share.dispatchable},
                      {"on_ane", share.on_ane},
                      {"unknown", share.unknown},
                      {"state_ops", share.state_ops},
                      {"constants", share.constants},
                      {"on_ane_share", share.ByCount()},
                      {"total_us", share.total_us},
                      {"scaled_us", share.scaled_us},
                      {"on_ane_share_by_cost", Optional(share.ByCost())},
                      {"tied", placement.tied},
                      {"segments", OrderedJson::array()},
                      {"not_on_ane_because", OrderedJson::array()},
                      {"notes", placement.notes}};
  for (const ReportSegment& segment : placement.segments) {
    json["segments"].push_back({{"unit", ComputeUnitName(segment.unit)},
                                {"position", segment.position},
                                {"count", segment.count},
                                {"first", segment.first},
                                {"last", segment.last},
                                {"us", segment.us},
                                {"scaled_us", segment.scaled_us}});
  }
  for (const ReportReason& reason : placement.reasons) {
    OrderedJson entry = {{"statement", reason.statement}, {"source", reason.source}, {"count", reason.count}};
    if (!reason.basis.empty()) entry["basis"] = reason.basis;
    if (!reason.conflict.empty()) entry["conflict"] = reason.conflict;
    json["not_on_ane_because"].push_back(std::move(entry));
  }
  return json;
}

OrderedJson FunctionJson(const ReportFunction& function) {
  const ReportBudget& budget = function.budget;
  OrderedJson json = {{"name", function.name},
                      {"opset", function.opset},
                      {"operations", function.operations},
                      {"timeline_length", function.length},
                      {"budget",
                       {{"input_bytes", Optional(budget.input_bytes)},
                        {"output_bytes", Optional(budget.output_bytes)},
                        {"state_bytes", budget.state_bytes},
                        {"state_read_bytes", Optional(budget.state_read_bytes)},
                        {"steps", Optional(budget.steps)}}},
                      {"states", OrderedJson::array()}};
  for (const ReportState& state : function.states) json["states"].push_back(StateJson(state));
  if (function.placement.has_value()) json["placement"] = PlacementJson(*function.placement);
  return json;
}

OrderedJson ReportJson(const Report& report) {
  OrderedJson json = {{"path", report.path}, {"target", report.target}, {"findings", OrderedJson::array()}};
  for (const ReportFinding& finding : report.findings) json["findings"].push_back(FindingJson(finding));
  if (!report.baseline.empty()) {
    json["baseline"] = {
        {"path", report.baseline}, {"accepted", report.accepted}, {"no_longer_found", report.no_longer_found}};
  }
  for (const ReportVerdict& verdict : report.verdicts) json["verdicts"].push_back(VerdictJson(verdict));
  for (const ReportFunction& function : report.functions) json["functions"].push_back(FunctionJson(function));
  json["weights"] = OrderedJson::array();
  for (const WeightTotal& total : report.weights) {
    json["weights"].push_back({{"format", total.format.name},
                               {"block_size", total.format.block_size},
                               {"count", total.count},
                               {"stored_bytes", total.stored_bytes},
                               {"dense_bytes", total.dense_bytes}});
  }
  json["observations"] = OrderedJson::object();
  for (const auto& [id, row] : report.observations) {
    json["observations"][id] = {
        {"model", row.model}, {"environment", row.environment}, {"outcome", row.outcome}, {"strength", row.strength},
        {"date", row.date},   {"source", row.source_title},     {"url", row.source_url},  {"caveats", row.caveats}};
  }
  json["hypotheses"] = OrderedJson::object();
  for (const auto& [id, hypothesis] : report.hypotheses) {
    json["hypotheses"][id] = {{"statement", hypothesis.statement},
                              {"status", hypothesis.status},
                              {"supported_by", hypothesis.supported_by},
                              {"contradicted_by", hypothesis.contradicted_by}};
  }
  return json;
}

}  // namespace

std::string WriteJsonReport(const ReportSet& set) {
  OrderedJson json;
  if (set.is_folder || set.packages.size() != 1) {
    json = {{"path", set.path}, {"packages", OrderedJson::array()}};
    for (const Report& report : set.packages) json["packages"].push_back(ReportJson(report));
  } else {
    json = ReportJson(set.packages.front());
  }
  // Names in a package need not be UTF-8; JSON must be.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace milwright
