// Verdicts: what a function is expected to do on a target, from rules, hypotheses and the nearest observations.
#ifndef MILWRIGHT_CHECK_VERDICT_H_
#define MILWRIGHT_CHECK_VERDICT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/hypotheses.h"
#include "check/rule.h"
#include "check/targets.h"

namespace milwright {

enum class VerdictKind : uint8_t { kRuns, kFailsAtLoad, kFailsAtPredict, kFallsBack, kDisputed, kUnknown };

/// On the ANE: "expected to run on ANE", "expected to fail at load (-14…)", "expected to fail at predict (0x1d)",
/// "expected to fall back"; off it the same without unit and codes; "disputed", "unknown".
std::string VerdictText(VerdictKind kind, const Target& target);
/// What happened in `outcome`, in the words of a verdict; kUnknown when it says nothing of loading and running.
/// Wrong numbers count as running: they are no matter of placement.
VerdictKind KindOf(const Outcome& outcome);

/// An observation near to a program.
struct Neighbour {
  const Observation* observation = nullptr;
  int distance = 0;                      ///< features that differ
  std::vector<std::string> differences;  ///< which: "state count (2 here, 1 there)", ...
};

struct Verdict {
  std::string function;
  VerdictKind kind = VerdictKind::kUnknown;
  std::vector<std::string> causes;     ///< hypotheses that hold for the program and that no observation contradicts
  std::vector<std::string> dismissed;  ///< hypotheses that hold for it and that observations contradict
  std::vector<std::string> codes;      ///< of the failures that it rests on, most frequent first
  std::vector<Neighbour> nearest;      ///< at most three, nearest first
  std::vector<Neighbour> contrary;     ///< at most two, the nearest that had another outcome
  std::string why;                     ///< one sentence

  /// Neither disputed nor unknown.
  [[nodiscard]] bool IsCertain() const { return kind != VerdictKind::kDisputed && kind != VerdictKind::kUnknown; }
};

/// The verdict on `program` (an observation without outcome) from `observations`. `findings` are those of the rules for
/// the same function and target.
Verdict Judge(const Observation& program, const Target& target, std::span<const Observation> observations,
              std::span<const Finding> findings);

/// The verdicts on every function of `model`.
std::vector<Verdict> JudgeModel(const ModelSpec& model, const Target& target, std::span<const Observation> observations,
                                std::span<const Finding> findings);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_VERDICT_H_
