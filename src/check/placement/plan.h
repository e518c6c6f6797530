// Placement plans: the compute unit that Core ML is predicted to prefer for each operation of a function, from the
// support table and the segmenter's cost model. Placement is not dispatch: a program placed wholly on the ANE may still
// fail or run elsewhere (ane-placement.md).
#ifndef MILWRIGHT_CHECK_PLACEMENT_PLAN_H_
#define MILWRIGHT_CHECK_PLACEMENT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/placement/cost_table.h"
#include "check/placement/support_table.h"
#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

enum class ComputeUnit : uint8_t { kUnknown, kCpu, kGpu, kAne };
/// "unknown", "cpu", "gpu", "ane"
std::string_view ComputeUnitName(ComputeUnit unit);
std::optional<ComputeUnit> ComputeUnitFromName(std::string_view name);

/// What an operation is to a plan. Only dispatchable operations count in shares.
enum class PlanRole : uint8_t {
  kDispatchable,
  kConstant,  ///< const, and constexpr_* with them: computed when the model loads
  kState,     ///< reads and writes of states: compute plans name no device for them
};
PlanRole PlanRoleOf(std::string_view op_type);

/// The target whose chip and system the tables were measured on.
inline constexpr std::string_view kMeasuredTarget = "ane-macos27-m4";

struct PlacedOperation {
  const Operation* op = nullptr;
  ComputeUnit unit = ComputeUnit::kUnknown;
  const AneSupportRule* rule = nullptr;  ///< what decided whether the ANE takes it
  CostEstimate cost;

  /// Estimated time on the unit it is placed on.
  [[nodiscard]] double us() const { return unit == ComputeUnit::kAne ? cost.ane_us : cost.cpu_us; }
};

/// Neighbouring operations on one unit.
struct PlanSegment {
  ComputeUnit unit = ComputeUnit::kUnknown;
  size_t first = 0;  ///< index into `operations`
  size_t count = 0;
  double us = 0;  ///< sum of the operations' times
};

/// The one definition of "% on ANE": dispatchable operations placed on the ANE, out of all dispatchable operations (not
/// const, not constexpr_*, no reads and writes of states), nested blocks included.
struct PlanShare {
  size_t dispatchable = 0;
  size_t on_ane = 0;
  size_t unknown = 0;  ///< of those not on the ANE: no source (a real plan: no device named) says whether it takes them
  size_t state_ops = 0;
  size_t constants = 0;
  double total_us = 0;   ///< estimated times on the chosen units, without launches and changes
  double ane_us = 0;     ///< of it on the ANE
  double scaled_us = 0;  ///< of it from figures of other shapes or operations

  /// 1 when there is nothing to dispatch.
  [[nodiscard]] double ByCount() const;
  /// What is not on the ANE, of the dispatchable operations: what gates limit.
  [[nodiscard]] double NonAne() const;
  /// Share of `total_us`; nullopt when more than a third of it rests on scaled figures, or there is none.
  [[nodiscard]] std::optional<double> ByCost() const;
};

struct PlacementPlan {
  std::string function;
  std::string target;
  std::vector<PlacedOperation> operations;  ///< dispatchable ones, in program order
  std::vector<const Operation*> state_ops;  ///< in program order
  std::vector<PlanSegment> segments;        ///< their edges are the boundaries
  PlanShare share;
  double path_us = 0;  ///< times, launches and changes together: what the segmenter minimizes
  bool tied = false;   ///< another placement costs the same: Core ML may choose either
  /// What limits the prediction, one sentence each.
  std::vector<std::string> notes;
};

/// Predicts for a target by name (check/targets.h): "cpu", or an ANE profile. kUsage for others: nothing is published
/// on which operations a GPU takes, and "any" has no unit.
Result<PlacementPlan> PredictPlacement(const Function& function, std::string_view target);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_PLACEMENT_PLAN_H_
