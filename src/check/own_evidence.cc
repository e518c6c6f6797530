#include "check/own_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file_io.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;

struct OutcomeWord {
  std::string_view word;
  std::string_view status;
  std::string_view stage;
};

constexpr std::array<OutcomeWord, 6> kOutcomes = {{{"ok", "ok", "predict"},
                                                   {"slow", "slow", "performance"},
                                                   {"wrong-numerics", "wrong_numerics", "numerics"},
                                                   {"fallback", "fallback", "placement"},
                                                   {"fail-at-load", "fail", "plan"},
                                                   {"fail-at-predict", "fail", "predict"}}};

// Text, or null where there is none.
OrderedJson Text(const std::string& text) { return text.empty() ? OrderedJson() : OrderedJson(text); }
template <typename T>
OrderedJson Number(const std::optional<T>& number) {
  return number.has_value() ? OrderedJson(*number) : OrderedJson();
}

OrderedJson CachesJson(const std::vector<StateFeatures>& caches) {
  OrderedJson json = OrderedJson::array();
  for (const StateFeatures& cache : caches) {
    OrderedJson shape;
    if (cache.shape.has_value()) {
      shape = OrderedJson::array();
      for (const auto& size : *cache.shape) shape.push_back(Number(size));
    }
    json.push_back({{"name", cache.name},
                    {"shape", std::move(shape)},
                    {"dtype", cache.dtype},
                    {"role", cache.role},
                    {"update", cache.update}});
  }
  return json;
}

OrderedJson ObservationJson(const Observation& row) {
  const ProgramFeatures& program = row.program;
  OrderedJson functions = OrderedJson::array();
  for (const FunctionFeatures& function : program.functions) {
    functions.push_back({{"name", function.name}, {"query_length", Number(function.query_length)}});
  }
  return {{"id", row.id},
          {"model", row.model},
          {"program",
           {{"opset", program.opset},
            {"functions", std::move(functions)},
            {"states", CachesJson(program.states)},
            {"explicit_state_io", CachesJson(program.explicit_caches)},
            {"flexible_inputs", program.flexible_inputs},
            {"weights", {{"format", program.weight_format}}},
            {"layers", Number(program.layers)},
            {"context_length", Number(program.context_length)},
            {"other", program.tags}}},
          {"environment",
           {{"device", row.environment.device},
            {"os", row.environment.os},
            {"toolchain", row.environment.toolchain},
            {"compute_units", row.environment.compute_units}}},
          {"outcome",
           {{"status", row.outcome.status},
            {"stage", row.outcome.stage},
            {"code", Text(row.outcome.code)},
            {"message", Text(row.outcome.message)},
            {"ane_share", Number(row.outcome.ane_share)},
            {"metrics",
             {{"package_mb", Number(program.package_mb)}, {"depalettized_mb", Number(program.depalettized_mb)}}}}},
          {"strength", row.strength},
          {"date", row.date},
          {"source", {{"title", row.source_title}, {"url", row.source_url}}},
          {"caveats", row.caveats}};
}

// The text of the file; an empty ledger when there is none.
Result<std::string> LedgerText(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return OrderedJson({{"schema_version", kSchemaVersion}, {"observations", OrderedJson::array()}}).dump();
  }
  return ReadFile(path, kMaxLedgerBytes);
}

bool HasId(const std::vector<Observation>& rows, std::string_view id) {
  return BuiltInLedger().Find(id) != nullptr || std::ranges::find(rows, id, &Observation::id) != rows.end();
}

}  // namespace

Result<Outcome> ReadOutcome(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const auto* known = std::ranges::find(kOutcomes, word, &OutcomeWord::word);
  if (known == kOutcomes.end() || (colon != std::string_view::npos && known->status != "fail")) {
    return Status(ErrorCode::kUsage,
                  fmt::format("'{}' is no outcome; take ok, slow, wrong-numerics, fallback, fail-at-load[:CODE] or "
                              "fail-at-predict[:CODE]",
                              text));
  }
  Outcome outcome;
  outcome.status = known->status;
  outcome.stage = known->stage;
  if (colon != std::string_view::npos) outcome.code = text.substr(colon + 1);
  return outcome;
}

Status AppendObservation(const std::string& path, const Observation& observation) {
  MW_ASSIGN_OR_RETURN(const std::string text, LedgerText(path));
  MW_ASSIGN_OR_RETURN(const std::vector<Observation> rows, ReadObservations(text, path));
  if (observation.id.empty()) return {ErrorCode::kUsage, "an observation needs an id"};
  if (HasId(rows, observation.id)) {
    return {ErrorCode::kUsage, fmt::format("there is already an observation '{}'; give it another id", observation.id)};
  }
  OrderedJson ledger = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!ledger.is_object()) return {ErrorCode::kUnreadable, path + ": not an object with observations"};
  if (!ledger.contains("schema_version")) ledger["schema_version"] = kSchemaVersion;
  ledger["observations"].push_back(ObservationJson(observation));
  return WriteFileAtomically(path, ledger.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

Result<std::string> FreeObservationId(const std::string& path, const std::string& wanted) {
  MW_ASSIGN_OR_RETURN(const std::string text, LedgerText(path));
  MW_ASSIGN_OR_RETURN(const std::vector<Observation> rows, ReadObservations(text, path));
  std::string id = wanted;
  for (int number = 2; HasId(rows, id); ++number) id = fmt::format("{}-{}", wanted, number);
  return id;
}

}  // namespace milwright
