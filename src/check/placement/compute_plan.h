// Real compute plans: what Core ML said for each operation on a device, read from a file, and compared with the
// prediction. Formats: docs/compute-plan.md.
#ifndef MILWRIGHT_CHECK_PLACEMENT_COMPUTE_PLAN_H_
#define MILWRIGHT_CHECK_PLACEMENT_COMPUTE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/placement/plan.h"
#include "milwright/status.h"

namespace milwright {

/// One operation of a real plan.
struct RealOperation {
  std::string type;                                   ///< without an opset prefix: "conv", not "ios18.conv"
  std::vector<std::string> outputs;                   ///< names of the values it makes
  ComputeUnit preferred = ComputeUnit::kUnknown;      ///< kUnknown: the plan names no device
  std::optional<std::vector<ComputeUnit>> supported;  ///< nullopt: the plan does not say
  std::string reason;                                 ///< why the ANE cannot run it, where the plan says so
  std::optional<double> cost;                         ///< share of the total (JSON), or milliseconds (analytics.mil)
};

struct RealFunction {
  std::string name;
  std::vector<RealOperation> operations;
};

struct RealPlan {
  std::map<std::string, std::string> environment;  ///< device, os, compute_units, ... as stated
  std::vector<RealFunction> functions;

  [[nodiscard]] const RealFunction* Find(std::string_view function) const;
};

/// Reads a real plan: Milwright's JSON format, or the segmenter's analytics.mil (told apart by content). kUnreadable
/// with the place when it is neither or breaks the format.
Result<RealPlan> ParseRealPlan(std::string_view text, std::string_view file_name = {});
/// The same from a file.
Result<RealPlan> ReadRealPlan(const std::string& path);

/// The share on the ANE by the same definition; the counts only, as real plans give no times.
PlanShare ShareOf(const RealFunction& function);

/// Which part of the prediction a difference refutes.
enum class PlanVerdict : uint8_t {
  kAgrees,
  kSupportRuleWrong,  ///< the rule said the ANE takes it, or not, and the device says otherwise
  kCostModelWrong,    ///< support was right; the segmenter chose otherwise than the costs predict
  kUndetermined,      ///< the plan does not say what the device supports: either may be wrong
  kNoDevice,          ///< the plan names no unit
};
std::string_view PlanVerdictName(PlanVerdict verdict);

struct ComparedOperation {
  const PlacedOperation* predicted = nullptr;
  const RealOperation* real = nullptr;
  PlanVerdict verdict = PlanVerdict::kAgrees;
};

struct PlanComparison {
  std::vector<ComparedOperation> operations;           ///< those found in both, in program order
  std::vector<const PlacedOperation*> only_predicted;  ///< dispatchable, and not in the real plan
  std::vector<const RealOperation*> only_real;         ///< added by the compiler, or of another program
  std::map<std::string, size_t> wrong_rules;           ///< by rule id: operations that refute it

  [[nodiscard]] size_t Count(PlanVerdict verdict) const;
};

/// Matches operations by the name of an output and by type. `predicted` and `real` must outlive the result. A rule that
/// says "unknown" is refuted by nothing: a device that takes such an operation is counted as kUndetermined.
PlanComparison ComparePlans(const PlacementPlan& predicted, const RealFunction& real);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_PLACEMENT_COMPUTE_PLAN_H_
