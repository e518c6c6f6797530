#include "check/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file_io.h"

namespace milwright {
namespace {

using Json = nlohmann::json;

// Reads fields of one object; the first error is kept for the whole file.
class Fields {
 public:
  Fields(const Json& object, std::string place, Status& error)
      : object_(object), place_(std::move(place)), error_(error) {
    if (!object.is_object()) Fail("must be an object");
  }

  // Text; empty for null or when absent.
  std::string Text(std::string_view key) {
    const Json* value = Find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    Fail(fmt::format("'{}' must be text", key));
    return {};
  }
  template <typename T>
  std::optional<T> Number(std::string_view key) {
    const Json* value = Find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) return value->get<T>();
    Fail(fmt::format("'{}' must be a number", key));
    return std::nullopt;
  }
  std::vector<std::string> Texts(std::string_view key) {
    std::vector<std::string> texts;
    for (const Json& entry : List(key)) {
      if (entry.is_string()) {
        texts.push_back(entry.get<std::string>());
      } else {
        Fail(fmt::format("'{}' must hold texts", key));
      }
    }
    return texts;
  }
  // An empty list when absent or null.
  const Json& List(std::string_view key) {
    static const Json kEmpty = Json::array();
    const Json* value = Find(key);
    if (value == nullptr) return kEmpty;
    if (value->is_array()) return *value;
    Fail(fmt::format("'{}' must be a list", key));
    return kEmpty;
  }
  Fields Object(std::string_view key) {
    static const Json kEmpty = Json::object();
    const Json* value = Find(key);
    return {value != nullptr ? *value : kEmpty, fmt::format("{}.{}", place_, key), error_};
  }
  PartialShape Shape(std::string_view key) {
    if (Find(key) == nullptr) return std::nullopt;
    std::vector<std::optional<int64_t>> shape;
    for (const Json& size : List(key)) {
      if (!size.is_null() && !size.is_number_integer()) Fail(fmt::format("'{}' must hold integers", key));
      shape.push_back(size.is_number_integer() ? std::optional(size.get<int64_t>()) : std::nullopt);
    }
    return shape;
  }
  [[nodiscard]] const std::string& place() const { return place_; }

 private:
  const Json* Find(std::string_view key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  void Fail(std::string_view what) {
    if (error_.ok()) error_ = Status(ErrorCode::kUnreadable, fmt::format("{}: {}", place_, what));
  }

  const Json& object_;
  std::string place_;
  Status& error_;
};

std::vector<StateFeatures> ReadStates(Fields& program, std::string_view key, Status& error) {
  std::vector<StateFeatures> states;
  for (const Json& entry : program.List(key)) {
    Fields fields(entry, fmt::format("{}.{}", program.place(), key), error);
    states.push_back(
        {fields.Text("name"), fields.Shape("shape"), fields.Text("dtype"), fields.Text("role"), fields.Text("update")});
  }
  return states;
}

ProgramFeatures ReadProgram(Fields program, Fields metrics, Status& error) {
  ProgramFeatures features;
  features.opset = program.Text("opset");
  for (const Json& entry : program.List("functions")) {
    Fields fields(entry, program.place() + ".functions", error);
    features.functions.push_back({fields.Text("name"), fields.Number<int64_t>("query_length")});
  }
  features.states = ReadStates(program, "states", error);
  features.explicit_caches = ReadStates(program, "explicit_state_io", error);
  features.flexible_inputs = program.Text("flexible_inputs");
  features.weight_format = program.Object("weights").Text("format");
  features.layers = program.Number<int64_t>("layers");
  features.context_length = program.Number<int64_t>("context_length");
  features.tags = program.Texts("other");
  features.package_mb = metrics.Number<double>("package_mb");
  features.depalettized_mb = metrics.Number<double>("depalettized_mb");
  if (!features.depalettized_mb.has_value()) {
    features.depalettized_mb = metrics.Number<double>("depalettized_mb_estimate");
  }
  return features;
}

Observation ReadObservation(Fields row, Status& error) {
  Observation observation;
  observation.id = row.Text("id");
  observation.model = row.Text("model");
  Fields outcome = row.Object("outcome");
  observation.program = ReadProgram(row.Object("program"), outcome.Object("metrics"), error);
  Fields environment = row.Object("environment");
  observation.environment = {environment.Text("device"), environment.Text("os"), environment.Text("toolchain"),
                             environment.Text("compute_units")};
  observation.outcome = {outcome.Text("status"), outcome.Text("stage"), outcome.Text("code"), outcome.Text("message"),
                         outcome.Number<double>("ane_share")};
  observation.strength = row.Text("strength");
  observation.date = row.Text("date");
  Fields source = row.Object("source");
  observation.source_title = source.Text("title");
  observation.source_url = source.Text("url");
  observation.caveats = row.Text("caveats");
  return observation;
}

std::vector<HypothesisRecord> ReadHypotheses(std::string_view text, Status& error) {
  std::vector<HypothesisRecord> records;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Fields file(json, "hypotheses.json", error);
  for (const Json& entry : file.List("hypotheses")) {
    Fields row(entry, "hypotheses.json", error);
    Fields counts = row.Object("counts");
    records.push_back(
        {row.Text("id"), row.Text("statement"), row.Text("status"), row.Text("refuted_as"), row.Text("untested_by"),
         row.Text("note"), row.Texts("supported_by"), row.Texts("contradicted_by"), row.Texts("weak_counterexamples"),
         row.Texts("same_outcome_without_property"), counts.Number<size_t>("consistent_negatives").value_or(0),
         counts.Number<size_t>("undecidable").value_or(0)});
  }
  return records;
}

template <typename T>
const T* FindById(const std::vector<T>& rows, std::string_view id) {
  const auto it = std::ranges::find(rows, id, &T::id);
  return it != rows.end() ? &*it : nullptr;
}

}  // namespace

const Observation* Ledger::Find(std::string_view id) const { return FindById(observations, id); }
const HypothesisRecord* Ledger::FindHypothesis(std::string_view id) const { return FindById(hypotheses, id); }

Result<std::vector<Observation>> ReadObservations(std::string_view json, std::string_view place) {
  const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return Status(ErrorCode::kUnreadable, fmt::format("{}: not JSON", place));
  Status error;
  std::vector<Observation> observations;
  Fields file(document, std::string(place), error);
  const Json& rows = file.List("observations");
  for (size_t i = 0; i < rows.size(); ++i) {
    observations.push_back(ReadObservation(Fields(rows[i], fmt::format("{}: observation {}", place, i), error), error));
    if (error.ok() && observations.back().id.empty()) {
      error = Status(ErrorCode::kUnreadable, fmt::format("{}: observation {} has no id", place, i));
    }
  }
  MW_RETURN_IF_ERROR(error);
  return observations;
}

const Ledger& BuiltInLedger() {
  static const Ledger ledger = [] {
    Ledger read;
    // The files are part of the program; a test reads them through ReadObservations and expects no error.
    if (auto observations = ReadObservations(ObservationsJson(), "observations.json"); observations.ok()) {
      read.observations = *std::move(observations);
    }
    Status error;
    read.hypotheses = ReadHypotheses(HypothesesJson(), error);
    return read;
  }();
  return ledger;
}

Result<std::vector<Observation>> GatherObservations(const std::vector<std::string>& files) {
  std::vector<Observation> observations = BuiltInLedger().observations;
  for (const std::string& path : files) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxLedgerBytes));
    MW_ASSIGN_OR_RETURN(std::vector<Observation> added, ReadObservations(text, path));
    for (Observation& observation : added) {
      if (FindById(observations, observation.id) != nullptr) {
        return Status(
            ErrorCode::kUnreadable,
            fmt::format("{}: there is already an observation '{}'; give it another id", path, observation.id));
      }
      observations.push_back(std::move(observation));
    }
  }
  return observations;
}

}  // namespace milwright
