#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "check/hypotheses.h"
#include "check/own_evidence.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

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

Status CheckAddArguments(const EvidenceArguments& arguments) {
  const std::pair<std::string_view, const std::string*> needed[] = {
      {"a package", &arguments.id},    {"--ledger", &arguments.ledger}, {"--outcome", &arguments.outcome},
      {"--device", &arguments.device}, {"--os", &arguments.os},         {"--compute-unit", &arguments.compute_unit},
      {"--source", &arguments.source}};
  for (const auto& [name, value] : needed) {
    if (value->empty()) return {ErrorCode::kUsage, fmt::format("evidence add needs {}", name)};
  }
  return Status::Ok();
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// Features from the package itself, the rest from the arguments.
Result<Observation> MakeObservation(const EvidenceArguments& arguments) {
  MW_RETURN_IF_ERROR(CheckAddArguments(arguments));
  Observation row;
  MW_ASSIGN_OR_RETURN(row.outcome, ReadOutcome(arguments.outcome));
  row.outcome.message = arguments.message;
  MW_ASSIGN_OR_RETURN(const ModelSpec model, OpenModel(arguments.id));
  const Function* function =
      arguments.function.empty() ? model.DefaultFunction() : model.program.FindFunction(arguments.function);
  if (function == nullptr) {
    return Status(ErrorCode::kUsage, fmt::format("{}: say which function was run, by --function", arguments.id));
  }
  row.program = FeaturesOf(model, *function, AnalyzeStates(*function));
  row.model = std::filesystem::path(model.source).stem().string();
  MW_ASSIGN_OR_RETURN(row.id,
                      FreeObservationId(arguments.ledger, fmt::format("{}-{}", row.model, arguments.compute_unit)));
  if (!arguments.row_id.empty()) row.id = arguments.row_id;
  row.environment = {arguments.device, arguments.os, arguments.toolchain.empty() ? "unknown" : arguments.toolchain,
                     arguments.compute_unit};
  row.strength = "measured";
  row.date = arguments.date.empty() ? Today() : arguments.date;
  row.source_title = arguments.source;
  row.source_url = arguments.source;
  row.caveats = arguments.note;
  return row;
}

int AddObservation(const EvidenceArguments& arguments) {
  const auto row = MakeObservation(arguments);
  if (!row.ok()) return Fail(row.status());
  if (const Status status = AppendObservation(arguments.ledger, *row); !status.ok()) return Fail(status);
  if (arguments.json) {
    std::cout << ObservationJson(*row).dump(2) << "\n";
  } else {
    PrintObservation(*row);
    std::cout << fmt::format("added to {}\n", arguments.ledger);
  }
  return kFine;
}

}  // namespace

int Evidence(const EvidenceArguments& arguments) {
  if (arguments.what == "add") return AddObservation(arguments);
  Ledger ledger = BuiltInLedger();
  if (!arguments.ledger.empty()) {
    auto observations = GatherObservations({arguments.ledger});
    if (!observations.ok()) return Fail(observations.status());
    ledger.observations = *std::move(observations);
  }
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
