#include "check/placement/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "check/placement/segmenter.h"
#include "check/targets.h"

namespace milwright {
namespace {

constexpr std::array<std::pair<ComputeUnit, std::string_view>, 4> kUnitNames = {{{ComputeUnit::kUnknown, "unknown"},
                                                                                 {ComputeUnit::kCpu, "cpu"},
                                                                                 {ComputeUnit::kGpu, "gpu"},
                                                                                 {ComputeUnit::kAne, "ane"}}};

// Above this part of the total, costs from other shapes decide, and no share by cost is given.
constexpr double kMostScaled = 1.0 / 3;

// Sorts the operations by role, and asks the tables about each dispatchable one.
void CollectOperations(const Function& function, PlacementPlan* plan) {
  ForEachOperation(function.body(), [plan](Operation& op) {
    switch (PlanRoleOf(op.type())) {
      case PlanRole::kConstant:
        ++plan->share.constants;
        break;
      case PlanRole::kState:
        plan->state_ops.push_back(&op);
        break;
      case PlanRole::kDispatchable:
        plan->operations.push_back({&op, ComputeUnit::kCpu, &FindAneSupport(op, plan->target), EstimateCost(op)});
        break;
    }
  });
}

// Places the operations by the segmenter's shortest path; the CPU takes every one.
void Place(PlacementPlan* plan, bool has_ane) {
  std::vector<BackendTimes> times;
  times.reserve(plan->operations.size());
  for (const PlacedOperation& placed : plan->operations) {
    const bool on_ane = has_ane && placed.rule->support == AneSupport::kYes;
    times.push_back({placed.cost.cpu_us, on_ane ? std::optional(placed.cost.ane_us) : std::nullopt});
  }
  const BackendCosts& costs = CpuAndAneCosts();
  const Segmentation segmentation = Segment(times, costs);
  for (size_t i = 0; i < plan->operations.size(); ++i) {
    plan->operations[i].unit = ComputeUnitFromName(costs.names[*segmentation.backends[i]]).value_or(ComputeUnit::kCpu);
  }
  plan->path_us = segmentation.total_us;
  plan->tied = segmentation.tied;
}

void FindSegments(PlacementPlan* plan) {
  for (size_t i = 0; i < plan->operations.size(); ++i) {
    const PlacedOperation& placed = plan->operations[i];
    if (plan->segments.empty() || plan->segments.back().unit != placed.unit) {
      plan->segments.push_back({placed.unit, i, 0, 0});
    }
    ++plan->segments.back().count;
    plan->segments.back().us += placed.us();
  }
}

void CountShare(PlacementPlan* plan) {
  PlanShare& share = plan->share;
  share.dispatchable = plan->operations.size();
  share.state_ops = plan->state_ops.size();
  for (const PlacedOperation& placed : plan->operations) {
    const bool on_ane = placed.unit == ComputeUnit::kAne;
    share.on_ane += on_ane ? 1 : 0;
    share.unknown += placed.rule->support == AneSupport::kUnknown ? 1 : 0;
    share.total_us += placed.us();
    share.ane_us += on_ane ? placed.us() : 0;
    share.scaled_us += placed.cost.scaled ? placed.us() : 0;
  }
}

void AddNotes(PlacementPlan* plan) {
  if (plan->target != kMeasuredTarget) {
    plan->notes.push_back(fmt::format(
        "support and costs were measured on an M4 under macOS 27.0.1; for {} they are assumed", plan->target));
  }
  if (plan->share.unknown > 0) {
    plan->notes.push_back(fmt::format(
        "no source says whether the ANE takes {} of the operations; they count as not on it", plan->share.unknown));
  }
  if (plan->tied) plan->notes.emplace_back("another placement costs the same: Core ML may choose either");
  const bool nested = std::ranges::any_of(plan->operations, [](const PlacedOperation& placed) {
    return placed.op->parent() != nullptr && placed.op->parent()->parent() != nullptr;
  });
  if (nested) {
    plan->notes.emplace_back(
        "operations of branches and loops are taken once each, in file order; nobody measured them");
  }
}

}  // namespace

std::string_view ComputeUnitName(ComputeUnit unit) {
  return std::ranges::find(kUnitNames, unit, &std::pair<ComputeUnit, std::string_view>::first)->second;
}

std::optional<ComputeUnit> ComputeUnitFromName(std::string_view name) {
  const auto* found = std::ranges::find(kUnitNames, name, &std::pair<ComputeUnit, std::string_view>::second);
  return found == kUnitNames.end() ? std::nullopt : std::optional(found->first);
}

PlanRole PlanRoleOf(std::string_view op_type) {
  if (op_type == "const" || op_type.starts_with("constexpr_")) return PlanRole::kConstant;
  const bool is_state = op_type == "read_state" || op_type == "write_state" || op_type == "coreml_update_state";
  return is_state ? PlanRole::kState : PlanRole::kDispatchable;
}

double PlanShare::ByCount() const {
  return dispatchable == 0 ? 1 : static_cast<double>(on_ane) / static_cast<double>(dispatchable);
}

double PlanShare::NonAne() const {
  return dispatchable == 0 ? 0 : static_cast<double>(dispatchable - on_ane) / static_cast<double>(dispatchable);
}

std::optional<double> PlanShare::ByCost() const {
  if (total_us <= 0 || scaled_us > total_us * kMostScaled) return std::nullopt;
  return ane_us / total_us;
}

Result<PlacementPlan> PredictPlacement(const Function& function, std::string_view target) {
  const Target* profile = FindTarget(target);
  if (profile == nullptr) {
    return Status(ErrorCode::kUsage, fmt::format("there is no target '{}'; see 'milwright targets'", target));
  }
  const bool has_ane = profile->IsAne();
  if (!has_ane && target != "cpu") {
    return Status(
        ErrorCode::kUsage,
        fmt::format("no placement can be predicted for target '{}': there are published figures for the Neural "
                    "Engine and the CPU only; use an ane-... target or cpu",
                    target));
  }
  PlacementPlan plan;
  plan.function = function.name;
  plan.target = std::string(target);
  CollectOperations(function, &plan);
  Place(&plan, has_ane);
  FindSegments(&plan);
  CountShare(&plan);
  if (has_ane) AddNotes(&plan);
  return plan;
}

}  // namespace milwright
