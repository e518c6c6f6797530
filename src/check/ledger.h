// The evidence ledger: known outcomes of stateful programs on Apple's compute units, and hypotheses that explain them.
#ifndef MILWRIGHT_CHECK_LEDGER_H_
#define MILWRIGHT_CHECK_LEDGER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/features.h"
#include "milwright/status.h"

namespace milwright {

/// The longest ledger that is read.
constexpr uint64_t kMaxLedgerBytes = uint64_t{64} << 20;

struct Environment {
  std::string device;
  std::string os;
  std::string toolchain;
  std::string compute_units;  ///< cpuAndNeuralEngine, all, cpuAndGPU, cpuOnly, unknown
};

struct Outcome {
  std::string status;  ///< ok, slow, fail, fallback, wrong_numerics
  std::string stage;   ///< convert, save, plan, load, predict, placement, numerics, performance, unknown
  std::string code;    ///< "-14", "0x1d", ...; empty: none
  std::string message;
  std::optional<double> ane_share;  ///< the planner's, 0..1
};

/// One observed run or build. A program whose outcome is asked for is one with an empty outcome.
struct Observation {
  std::string id;
  std::string model;
  ProgramFeatures program;
  Environment environment;
  Outcome outcome;
  std::string strength;  ///< measured, reported, claimed, inferred
  std::string date;
  std::string source_title;
  std::string source_url;
  std::string caveats;
};

/// What the ledger says of a hypothesis; its predicate is code (hypotheses.h).
struct HypothesisRecord {
  std::string id;
  std::string statement;
  std::string status;  ///< open, well-supported, refuted
  std::string refuted_as;
  std::string untested_by;
  std::string note;
  std::vector<std::string> supported_by;
  std::vector<std::string> contradicted_by;
  std::vector<std::string> weak_counterexamples;
  std::vector<std::string> same_outcome_without_property;
  size_t consistent_negatives = 0;
  size_t undecidable = 0;
};

struct Ledger {
  std::vector<Observation> observations;
  std::vector<HypothesisRecord> hypotheses;

  [[nodiscard]] const Observation* Find(std::string_view id) const;
  [[nodiscard]] const HypothesisRecord* FindHypothesis(std::string_view id) const;
};

/// The JSON texts of data/evidence, compiled in.
std::string_view ObservationsJson();
std::string_view HypothesesJson();

/// Reads a file of observations in the form of data/evidence/observations.json. `place` names it in messages.
/// kUnreadable with the row and field that is wrong.
Result<std::vector<Observation>> ReadObservations(std::string_view json, std::string_view place);

/// The compiled-in ledger, read once.
const Ledger& BuiltInLedger();

/// The compiled-in observations and those of `files`. kUnreadable when a file does not read, or repeats an id.
Result<std::vector<Observation>> GatherObservations(const std::vector<std::string>& files);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_LEDGER_H_
