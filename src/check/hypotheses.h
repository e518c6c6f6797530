// Hypotheses: competing explanations of what happens on a compute unit, each a predicate over a program's features.
#ifndef MILWRIGHT_CHECK_HYPOTHESES_H_
#define MILWRIGHT_CHECK_HYPOTHESES_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/ledger.h"

namespace milwright {

/// True, false, or nullopt where the fields do not suffice.
using Truth = std::optional<bool>;

struct Hypothesis {
  std::string_view id;
  std::vector<std::string_view> codes;          ///< codes it predicts, "" for none; empty: any
  bool (*scope)(const Observation&) = nullptr;  ///< which observations it speaks of
  Truth (*property)(const Observation&) = nullptr;
  std::vector<std::string_view> predicts = {"fail"};                     ///< statuses
  std::vector<std::string_view> ran = {"ok", "slow", "wrong_numerics"};  ///< statuses that count as "it ran"
  bool passed_plan = false;  ///< a failure at predict with 0x1d also counts: the plan was built
};

/// All of them, in the order of data/evidence/hypotheses.json.
std::span<const Hypothesis> AllHypotheses();
const Hypothesis* FindHypothesis(std::string_view id);

/// How one observation bears on a hypothesis.
enum class Bearing {
  kOutOfScope,
  kNeither,             ///< in scope, but neither the predicted outcome nor a run
  kSupports,            ///< has the property, and the predicted outcome
  kContradicts,         ///< has the property, and ran
  kWeakCounterexample,  ///< the same, but it is not sure that it ran on the ANE
  kSameOutcomeWithout,  ///< the predicted outcome without the property
  kConsistentNegative,  ///< neither property nor outcome
  kUndecidable,         ///< the property is not known
};
Bearing BearingOf(const Hypothesis& hypothesis, const Observation& observation);

/// The ids of `observations` by how they bear on `hypothesis`.
std::vector<std::string> ObservationsThat(Bearing bearing, const Hypothesis& hypothesis,
                                          std::span<const Observation> observations);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_HYPOTHESES_H_
