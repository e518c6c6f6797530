#include "check/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <unordered_map>

#include "analysis/state_analysis.h"

namespace milwright {
namespace {

using Positions = std::unordered_map<const Operation*, size_t>;

std::string OutputName(const Operation& op) { return op.outputs().empty() ? op.name() : op.output()->name; }

// Adds `bytes` of `type` to `total`, which becomes nullopt when the size is not known.
void AddBytes(const TensorType& type, std::optional<int64_t>& total) {
  const auto bytes = ByteSize(type);
  int64_t sum = 0;
  if (!total.has_value()) return;
  if (!bytes.ok() || __builtin_add_overflow(*total, *bytes, &sum)) {
    total.reset();
  } else {
    total = sum;
  }
}

ReportState CollectState(const StateFacts& facts, const Positions& positions) {
  ReportState state;
  state.name = facts.state->name;
  state.type = TypeToString(facts.state->type.tensor);
  if (const auto bytes = ByteSize(facts.state->type.tensor); bytes.ok()) state.bytes = *bytes;
  state.role = StateRoleName(facts.role);
  state.form = UpdateFormName(facts.form);
  state.rows = facts.query_length;
  const bool grows = facts.form == UpdateForm::kSliceUpdate || facts.form == UpdateForm::kShiftConcat;
  for (const StateWrite& write : facts.writes) {
    state.accesses.push_back(
        {true, positions.at(write.op), OperationPath(*write.op), std::string(UpdateFormName(write.form)), write.width});
    const Shape& shape = facts.state->type.shape();
    if (grows && write.axis.has_value() && *write.axis >= 0 && static_cast<size_t>(*write.axis) < shape.size()) {
      state.capacity = shape[static_cast<size_t>(*write.axis)];
    }
  }
  if (facts.form == UpdateForm::kSliceUpdate && state.capacity.has_value() && state.rows.value_or(0) > 0) {
    state.steps = *state.capacity / *state.rows;
  }
  for (const StateRead& read : facts.reads) {
    state.accesses.push_back({false, positions.at(read.op), OperationPath(*read.op), {}, {}});
  }
  std::ranges::stable_sort(state.accesses, {}, &ReportAccess::position);
  return state;
}

// Why `placed` is not on the ANE; empty when it is.
ReportReason ReasonOf(const PlacedOperation& placed) {
  if (placed.unit == ComputeUnit::kAne) return {};
  if (placed.rule == nullptr || placed.rule->support == AneSupport::kYes) {
    return {"the ANE takes them, but that is not worth the launch and the change of unit", {}, "cost model", {}, 0};
  }
  return {std::string(placed.rule->statement), std::string(SupportBasisName(placed.rule->basis)),
          std::string(placed.rule->source), std::string(placed.rule->conflict), 0};
}

ReportPlacement CollectPlacement(const PlacementPlan& plan, const Positions& positions) {
  ReportPlacement placement;
  placement.share = plan.share;
  placement.tied = plan.tied;
  placement.notes = plan.notes;
  for (const PlanSegment& segment : plan.segments) {
    const std::span<const PlacedOperation> ops = std::span(plan.operations).subspan(segment.first, segment.count);
    ReportSegment entry{segment.unit,
                        positions.at(ops.front().op),
                        segment.count,
                        0,
                        segment.us,
                        0,
                        OutputName(*ops.front().op),
                        OutputName(*ops.back().op)};
    for (const PlacedOperation& op : ops) {
      entry.scaled += op.cost.scaled ? 1 : 0;
      entry.scaled_us += op.cost.scaled ? op.us() : 0;
    }
    placement.segments.push_back(std::move(entry));
  }
  for (const Operation* op : plan.state_ops) placement.state_ops.push_back(positions.at(op));
  if (plan.target == "cpu") return placement;
  std::map<std::string, ReportReason> reasons;
  for (const PlacedOperation& placed : plan.operations) {
    ReportReason reason = ReasonOf(placed);
    if (reason.statement.empty()) continue;
    ReportReason& entry = reasons.try_emplace(reason.statement, std::move(reason)).first->second;
    ++entry.count;
  }
  for (auto& [statement, reason] : reasons) placement.reasons.push_back(std::move(reason));
  std::ranges::stable_sort(placement.reasons, std::greater<>(), &ReportReason::count);
  return placement;
}

ReportFunction CollectFunction(const ModelSpec& model, const Function& function, std::string_view target) {
  ReportFunction report;
  report.name = function.name;
  report.opset = OpsetName(function.opset);
  report.is_default = model.DefaultFunction() == &function;
  Positions positions;
  ForEachOperation(function.body(), [&](const Operation& op) {
    ++report.operations;
    positions.emplace(&op, report.length);
    if (PlanRoleOf(op.type()) != PlanRole::kConstant) ++report.length;
  });

  ReportBudget& budget = report.budget;
  budget.input_bytes = budget.output_bytes = budget.state_read_bytes = 0;
  for (const Value* input : function.TensorInputs()) AddBytes(input->type.tensor, budget.input_bytes);
  for (const Value* output : function.body().outputs()) AddBytes(output->type.tensor, budget.output_bytes);
  for (const StateFacts& facts : AnalyzeStates(function).states) {
    for (const StateRead& read : facts.reads) AddBytes(read.value->type.tensor, budget.state_read_bytes);
    const ReportState& state = report.states.emplace_back(CollectState(facts, positions));
    budget.state_bytes += state.bytes;
    if (state.steps.has_value()) budget.steps = std::min(budget.steps.value_or(*state.steps), *state.steps);
  }

  const auto plan = PredictPlacement(function, target);
  if (plan.ok()) {
    report.placement = CollectPlacement(*plan, positions);
  } else {
    report.no_placement = plan.status().message();
  }
  return report;
}

ReportObservation CollectObservation(const Observation& row) {
  ReportObservation entry;
  entry.model = row.model;
  const Environment& where = row.environment;
  for (const std::string& part : {where.device, where.os, where.compute_units}) {
    if (!part.empty() && part != "unknown") entry.environment += (entry.environment.empty() ? "" : ", ") + part;
  }
  entry.outcome = row.outcome.status;
  if (!row.outcome.stage.empty() && row.outcome.stage != "unknown") entry.outcome += " at " + row.outcome.stage;
  if (!row.outcome.code.empty()) entry.outcome += " " + row.outcome.code;
  entry.strength = row.strength;
  entry.date = row.date;
  entry.source_title = row.source_title;
  entry.source_url = row.source_url;
  entry.caveats = row.caveats;
  return entry;
}

// Puts into a report what its findings and verdicts refer to.
class EvidenceCollector {
 public:
  EvidenceCollector(std::span<const Observation> observations, Report& report)
      : observations_(observations), report_(report) {}

  // Adds what `id` names: a hypothesis with its observations, or an observation; anything else speaks for itself.
  void Add(std::string_view id) {
    if (const Hypothesis* hypothesis = FindHypothesis(id); hypothesis != nullptr) {
      AddHypothesis(*hypothesis);
    } else if (const auto row = std::ranges::find(observations_, id, &Observation::id); row != observations_.end()) {
      report_.observations.try_emplace(row->id, CollectObservation(*row));
    }
  }

 private:
  void AddHypothesis(const Hypothesis& hypothesis) {
    const auto [it, added] = report_.hypotheses.try_emplace(std::string(hypothesis.id));
    if (!added) return;
    ReportHypothesis& entry = it->second;
    if (const HypothesisRecord* record = BuiltInLedger().FindHypothesis(hypothesis.id); record != nullptr) {
      entry.statement = record->statement;
      entry.status = record->status;
      if (!record->refuted_as.empty()) entry.status += " as " + record->refuted_as;
    }
    entry.supported_by = ObservationsThat(Bearing::kSupports, hypothesis, observations_);
    entry.contradicted_by = ObservationsThat(Bearing::kContradicts, hypothesis, observations_);
    for (const std::string& id : entry.supported_by) Add(id);
    for (const std::string& id : entry.contradicted_by) Add(id);
  }

  std::span<const Observation> observations_;
  Report& report_;
};

ReportVerdict CollectVerdict(const Verdict& verdict, const Target& target) {
  ReportVerdict entry{verdict.function,
                      verdict.kind,
                      VerdictText(verdict.kind, target),
                      verdict.why,
                      verdict.causes,
                      verdict.dismissed,
                      verdict.codes,
                      {},
                      {}};
  const auto collect = [](const std::vector<Neighbour>& from, std::vector<ReportNeighbour>& to) {
    for (const Neighbour& neighbour : from) {
      to.push_back({neighbour.observation->id, neighbour.distance, neighbour.differences});
    }
  };
  collect(verdict.nearest, entry.nearest);
  collect(verdict.contrary, entry.contrary);
  return entry;
}

}  // namespace

size_t Report::Count(Severity severity) const {
  return static_cast<size_t>(
      std::ranges::count_if(findings, [severity](const auto& entry) { return entry.finding.severity == severity; }));
}

int64_t Report::StoredWeightBytes() const {
  return std::accumulate(weights.begin(), weights.end(), int64_t{0},
                         [](int64_t sum, const WeightTotal& total) { return sum + total.stored_bytes; });
}

int64_t Report::DenseWeightBytes() const {
  return std::accumulate(weights.begin(), weights.end(), int64_t{0},
                         [](int64_t sum, const WeightTotal& total) { return sum + total.dense_bytes; });
}

size_t ReportSet::Count(Severity severity) const {
  return std::accumulate(packages.begin(), packages.end(), size_t{0},
                         [severity](size_t sum, const Report& report) { return sum + report.Count(severity); });
}

Report CombineReports(const ReportSet& set) {
  Report all;
  all.path = set.path;
  for (const Report& report : set.packages) {
    all.version = report.version;
    all.target = report.target;
    all.target_summary = report.target_summary;
    const std::string package = std::filesystem::path(report.path).filename().string();
    for (ReportFinding entry : report.findings) {
      entry.finding.location = {package, PlaceOf(entry.finding.location), {}};
      entry.finding.location.op_path = fmt::format("{}: {}", package, entry.finding.location.op_path);
      all.findings.push_back(std::move(entry));
    }
    for (ReportVerdict verdict : report.verdicts) {
      verdict.function = fmt::format("{}: {}", package, verdict.function);
      all.verdicts.push_back(std::move(verdict));
    }
    for (ReportFunction function : report.functions) {
      function.package = package;
      function.name = fmt::format("{}: {}", package, function.name);
      all.functions.push_back(std::move(function));
    }
    for (const WeightTotal& total : report.weights) {
      const auto same = std::ranges::find(all.weights, total.format, &WeightTotal::format);
      if (same == all.weights.end()) {
        all.weights.push_back(total);
        continue;
      }
      same->count += total.count;
      same->elements += total.elements;
      same->stored_bytes += total.stored_bytes;
      same->dense_bytes += total.dense_bytes;
    }
    all.hypotheses.insert(report.hypotheses.begin(), report.hypotheses.end());
    all.observations.insert(report.observations.begin(), report.observations.end());
  }
  std::ranges::stable_sort(all.findings, std::greater<>(),
                           [](const ReportFinding& entry) { return entry.finding.severity; });
  return all;
}

Report CollectReport(const ModelSpec& model, const ReportSource& source, std::span<const Finding> findings,
                     std::span<const Verdict> verdicts) {
  Report report;
  report.path = source.path;
  report.version = source.version;
  report.target = source.target->name;
  report.target_summary = source.target->summary;
  EvidenceCollector evidence(source.observations, report);
  for (const Finding& finding : findings) {
    ReportFinding& entry = report.findings.emplace_back(ReportFinding{finding, {}});
    if (finding.fix.has_value()) {
      entry.command = fmt::format("milwright rewrite {} -o FIXED.mlpackage --pass {}", ShellWord(source.path),
                                  ShellWord(finding.fix->passes));
    }
    const Rule* rule = FindRule(finding.id);
    if (rule == nullptr) continue;
    for (const std::string_view id : rule->evidence_for) evidence.Add(id);
    for (const std::string_view id : rule->evidence_against) evidence.Add(id);
  }
  for (const Verdict& verdict : verdicts) {
    const ReportVerdict& entry = report.verdicts.emplace_back(CollectVerdict(verdict, *source.target));
    for (const std::string& id : entry.causes) evidence.Add(id);
    for (const std::string& id : entry.dismissed) evidence.Add(id);
    for (const ReportNeighbour& neighbour : entry.nearest) evidence.Add(neighbour.id);
    for (const ReportNeighbour& neighbour : entry.contrary) evidence.Add(neighbour.id);
  }
  if (!source.whole) return report;
  report.weights = ReportWeights(model.program);
  for (const auto& function : model.program.functions()) {
    report.functions.push_back(CollectFunction(model, *function, report.target));
  }
  return report;
}

std::optional<ReportFormat> ReportFormatFromName(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNames = {"text", "json", "sarif", "github", "html"};
  const auto* it = std::ranges::find(kNames, name);
  return it != kNames.end() ? std::optional(static_cast<ReportFormat>(it - kNames.begin())) : std::nullopt;
}

std::string WriteReports(const ReportSet& set, ReportFormat format, bool color) {
  std::string text;
  switch (format) {
    case ReportFormat::kText:
      for (const Report& report : set.packages) text += WriteTextReport(report, color);
      break;
    case ReportFormat::kJson:
      return WriteJsonReport(set);
    case ReportFormat::kSarif:
      return WriteSarifReport(set);
    case ReportFormat::kGithub:
      for (const Report& report : set.packages) text += WriteGithubReport(report);
      break;
    case ReportFormat::kHtml:
      return WriteHtmlReport(set.is_folder || set.packages.size() != 1 ? CombineReports(set) : set.packages.front());
  }
  return text;
}

std::string PlaceOf(const Location& location) {
  if (!location.op_path.empty()) return location.op_path;
  if (location.value.empty()) return location.function;
  return location.function + (location.function.empty() ? "" : "/") + location.value;
}

std::string BytesText(int64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::string ShellWord(std::string_view word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,+@%-";
  std::string text = (word.starts_with('-') ? "./" : "") + std::string(word);
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace milwright
