#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "check/hypotheses.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string OutcomeText(const Outcome& outcome) {
  return outcome.code.empty() ? outcome.status : fmt::format("{} {}", outcome.status, outcome.code);
}

std::string ShapeText(const PartialShape& shape) {
  if (!shape.has_value()) return "[?]";
  std::vector<std::string> sizes;
  for (const auto& size : *shape) sizes.push_back(size.has_value() ? std::to_string(*size) : "?");
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

Json ObservationJson(const Observation& row) {
  return {{"id", row.id},
          {"model", row.model},
          {"device", row.environment.device},
          {"compute_units", row.environment.compute_units},
          {"status", row.outcome.status},
          {"stage", row.outcome.stage},
          {"code", row.outcome.code},
          {"strength", row.strength},
          {"date", row.date},
          {"source", row.source_url}};
}

Json HypothesisJson(const HypothesisRecord& record) {
  return {{"id", record.id},
          {"statement", record.statement},
          {"status", record.status},
          {"supported_by", record.supported_by},
          {"contradicted_by", record.contradicted_by},
          {"weak_counterexamples", record.weak_counterexamples},
          {"same_outcome_without_property", record.same_outcome_without_property},
          {"untested_by", record.untested_by},
          {"note", record.note}};
}

void PrintCaches(std::string_view title, const std::vector<StateFeatures>& caches) {
  for (const StateFeatures& cache : caches) {
    std::cout << fmt::format("  {} {} {}, {}, {}\n", title, cache.name, ShapeText(cache.shape), cache.role,
                             cache.update);
  }
}

void PrintObservation(const Observation& row) {
  std::cout << fmt::format("{}\n  {}\n  {} at {} on {}, {}, {}\n", row.id, row.model, OutcomeText(row.outcome),
                           row.outcome.stage, row.environment.device, row.environment.os,
                           row.environment.compute_units);
  if (!row.outcome.message.empty()) std::cout << fmt::format("  message: {}\n", row.outcome.message);
  PrintCaches("state", row.program.states);
  PrintCaches("cache", row.program.explicit_caches);
  std::cout << fmt::format("  weights {}\n", row.program.weight_format);
  if (!row.program.tags.empty()) std::cout << fmt::format("  tags: {}\n", fmt::join(row.program.tags, ", "));
  std::cout << fmt::format("  {}, {}: {} {}\n", row.strength, row.date, row.source_title, row.source_url);
  if (!row.caveats.empty()) std::cout << fmt::format("  caveats: {}\n", row.caveats);
  for (const Hypothesis& hypothesis : AllHypotheses()) {
    const Bearing bearing = BearingOf(hypothesis, row);
    if (bearing == Bearing::kSupports) std::cout << fmt::format("  supports {}\n", hypothesis.id);
    if (bearing == Bearing::kContradicts) std::cout << fmt::format("  contradicts {}\n", hypothesis.id);
  }
}

void PrintHypothesis(const HypothesisRecord& record) {
  std::cout << fmt::format("{} ({})\n  {}\n", record.id, record.status, record.statement);
  const auto list = [](std::string_view title, const std::vector<std::string>& ids) {
    if (!ids.empty()) std::cout << fmt::format("  {}: {}\n", title, fmt::join(ids, ", "));
  };
  list("supported by", record.supported_by);
  list("contradicted by", record.contradicted_by);
  list("weak counterexamples", record.weak_counterexamples);
  list("same outcome without the property", record.same_outcome_without_property);
  if (!record.untested_by.empty()) std::cout << fmt::format("  would decide it: {}\n", record.untested_by);
  if (!record.note.empty()) std::cout << fmt::format("  note: {}\n", record.note);
}

int Show(const EvidenceArguments& arguments, const Ledger& ledger) {
  if (const Observation* row = ledger.Find(arguments.id); row != nullptr) {
    if (arguments.json) {
      std::cout << ObservationJson(*row).dump(2) << "\n";
    } else {
      PrintObservation(*row);
    }
    return kFine;
  }
  if (const HypothesisRecord* record = ledger.FindHypothesis(arguments.id); record != nullptr) {
    if (arguments.json) {
      std::cout << HypothesisJson(*record).dump(2) << "\n";
    } else {
      PrintHypothesis(*record);
    }
    return kFine;
  }
  std::vector<std::string> known;
  for (const Observation& row : ledger.observations) known.push_back(row.id);
  for (const HypothesisRecord& record : ledger.hypotheses) known.push_back(record.id);
  const std::string nearest = NearestWord(arguments.id, known);
  return Fail(Status(ErrorCode::kUsage, fmt::format("the ledger has no '{}'{}", arguments.id,
                                                    nearest.empty() ? "; see 'milwright evidence list'"
                                                                    : fmt::format("; did you mean '{}'?", nearest))));
}

}  // namespace

int Evidence(const EvidenceArguments& arguments) {
  const Ledger& ledger = BuiltInLedger();
  if (arguments.what == "show") return Show(arguments, ledger);
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows;
  if (arguments.what == "list") {
    for (const Observation& row : ledger.observations) {
      rows.push_back({row.id, row.environment.device, row.environment.compute_units, OutcomeText(row.outcome),
                      row.outcome.stage, row.strength});
      json.push_back(ObservationJson(row));
    }
  } else {
    for (const HypothesisRecord& record : ledger.hypotheses) {
      rows.push_back({record.id, record.status, fmt::format("{} for", record.supported_by.size()),
                      fmt::format("{} against", record.contradicted_by.size()), record.statement});
      json.push_back(HypothesisJson(record));
    }
  }
  std::cout << (arguments.json ? json.dump(2) + "\n" : Table(rows, 0));
  return kFine;
}

}  // namespace milwright::cli
