#include "check/placement/compute_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/file_io.h"
#include "text/analytics.h"

namespace milwright {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr std::string_view kPlanFormat = "milwright-compute-plan";
constexpr int64_t kPlanVersion = 1;

// What the segmenter puts behind the names of values it adds or renames (docs/mil-text.md).
constexpr std::string_view kSegmenterSuffix = "_4D454D5F4F5054";

// "ios18.conv" is conv.
std::string WithoutOpset(std::string_view type) {
  const size_t point = type.find('.');
  return std::string(point != std::string_view::npos && OpsetFromName(type.substr(0, point)).has_value()
                         ? type.substr(point + 1)
                         : type);
}

std::string WithoutSuffix(std::string_view name) {
  if (name.ends_with(kSegmenterSuffix)) name.remove_suffix(kSegmenterSuffix.size());
  return std::string(name);
}

// ---- JSON ----

class JsonReader {
 public:
  explicit JsonReader(std::string_view file_name) : file_name_(file_name) {}

  Result<RealPlan> Read(const Json& root) const {
    if (!root.is_object() || root.value("format", Json()) != kPlanFormat) {
      return Error("", fmt::format("\"format\" is not \"{}\" (docs/compute-plan.md)", kPlanFormat));
    }
    if (root.value("version", Json()) != kPlanVersion) {
      return Error("", fmt::format("\"version\" is not {}, the only one there is", kPlanVersion));
    }
    RealPlan plan;
    if (const auto environment = root.find("environment"); environment != root.end()) {
      if (!environment->is_object()) return Error("environment", "is no object");
      for (const auto& [key, value] : environment->items()) {
        if (!value.is_string()) return Error("environment." + key, "is no string");
        plan.environment[key] = value.get<std::string>();
      }
    }
    const auto functions = root.find("functions");
    if (functions == root.end() || !functions->is_object()) return Error("functions", "is missing or no object");
    for (const auto& [name, operations] : functions->items()) {
      if (!operations.is_array()) return Error("functions." + name, "is no array");
      RealFunction& function = plan.functions.emplace_back();
      function.name = name;
      for (const Json& operation : operations) {
        const std::string place = fmt::format("functions.{}[{}]", name, function.operations.size());
        MW_ASSIGN_OR_RETURN(RealOperation read, ReadOperation(operation, place));
        function.operations.push_back(std::move(read));
      }
    }
    return plan;
  }

  [[nodiscard]] Status Error(std::string_view place, std::string_view message) const {
    return {ErrorCode::kUnreadable, fmt::format("{}: {}{}{}", file_name_, place, place.empty() ? "" : " ", message)};
  }

 private:
  Result<RealOperation> ReadOperation(const Json& json, const std::string& place) const {
    if (!json.is_object()) return Error(place, "is no object");
    RealOperation op;
    const Json type = json.value("op", Json());
    if (!type.is_string()) return Error(place, "has no string \"op\"");
    op.type = WithoutOpset(type.get<std::string>());
    const Json outputs = json.value("outputs", Json());
    if (!outputs.is_array()) return Error(place, "has no array \"outputs\"");
    for (const Json& output : outputs) {
      if (!output.is_string()) return Error(place, "has an output that is no string");
      op.outputs.push_back(output.get<std::string>());
    }
    if (const auto preferred = json.find("preferred"); preferred != json.end() && !preferred->is_null()) {
      MW_ASSIGN_OR_RETURN(op.preferred, ReadUnit(*preferred, place));
    }
    if (const auto supported = json.find("supported"); supported != json.end() && !supported->is_null()) {
      if (!supported->is_array()) return Error(place, "has a \"supported\" that is no array");
      op.supported.emplace();
      for (const Json& name : *supported) {
        MW_ASSIGN_OR_RETURN(const ComputeUnit unit, ReadUnit(name, place));
        op.supported->push_back(unit);
      }
    }
    if (const auto cost = json.find("cost"); cost != json.end() && !cost->is_null()) {
      if (!cost->is_number()) return Error(place, "has a \"cost\" that is no number");
      op.cost = cost->get<double>();
    }
    return op;
  }

  Result<ComputeUnit> ReadUnit(const Json& json, const std::string& place) const {
    const std::optional<ComputeUnit> unit =
        json.is_string() ? ComputeUnitFromName(json.get<std::string>()) : std::nullopt;
    if (!unit.has_value()) return Error(place, "names a unit other than \"cpu\", \"gpu\", \"ane\", \"unknown\"");
    return *unit;
  }

  std::string_view file_name_;
};

// ---- analytics.mil ----

// The unit of a backend of the segmenter: all but ane and the GPU's run on the CPU.
ComputeUnit UnitOfBackend(std::string_view backend) {
  if (backend == "ane") return ComputeUnit::kAne;
  const bool on_cpu =
      backend == "bnns" || backend == "classic_cpu" || backend == "e5_minimal_cpu" || backend == "jit_call";
  if (on_cpu) return ComputeUnit::kCpu;
  return backend.starts_with("mps") || backend.find("gpu") != std::string_view::npos ? ComputeUnit::kGpu
                                                                                     : ComputeUnit::kUnknown;
}

RealOperation FromAnalytics(const AnalyticsOperation& op) {
  RealOperation real;
  real.type = op.type;
  for (const AnalyticsResult& result : op.results) real.outputs.push_back(WithoutSuffix(result.name));
  real.preferred = UnitOfBackend(op.selected_backend);
  if (!op.backend_support.empty()) {
    real.supported.emplace();
    for (const std::string& backend : op.supported_backends) {
      const ComputeUnit unit = UnitOfBackend(backend);
      if (std::ranges::find(*real.supported, unit) == real.supported->end()) real.supported->push_back(unit);
    }
  }
  if (const auto message = op.validation_message.find("ane"); message != op.validation_message.end()) {
    real.reason = message->second;
  }
  const auto runtime = op.estimated_runtime_ms.find(op.selected_backend);
  if (runtime != op.estimated_runtime_ms.end()) real.cost = runtime->second;
  return real;
}

RealPlan FromAnalytics(const Analytics& analytics) {
  RealPlan plan;
  for (const auto& [key, value] : analytics.build_info) plan.environment[key] = value;
  for (const AnalyticsFunction& function : analytics.functions) {
    RealFunction& real = plan.functions.emplace_back();
    real.name = function.name;
    for (const AnalyticsOperation& op : function.operations) {
      // Copies between the host's buffers and tensors: the segmenter's own, in no program.
      if (op.type == "tensor_buffer_to_tensor" || op.type == "tensor_to_tensor_buffer") continue;
      real.operations.push_back(FromAnalytics(op));
    }
  }
  return plan;
}

bool SaysSupported(const RealOperation& real, ComputeUnit unit) {
  return std::ranges::find(*real.supported, unit) != real.supported->end();
}

PlanVerdict Judge(const PlacedOperation& predicted, const RealOperation& real) {
  if (real.preferred == ComputeUnit::kUnknown) return PlanVerdict::kNoDevice;
  const AneSupport said = predicted.rule->support;
  const bool prefers_ane = real.preferred == ComputeUnit::kAne;
  if (said != AneSupport::kUnknown) {
    const bool rule_takes_it = said == AneSupport::kYes;
    if (prefers_ane && !rule_takes_it) return PlanVerdict::kSupportRuleWrong;
    if (real.supported.has_value() && SaysSupported(real, ComputeUnit::kAne) != rule_takes_it) {
      return PlanVerdict::kSupportRuleWrong;
    }
  }
  if (real.preferred == predicted.unit) return PlanVerdict::kAgrees;
  const bool support_settled = said == AneSupport::kYes && (real.supported.has_value() || prefers_ane);
  return support_settled ? PlanVerdict::kCostModelWrong : PlanVerdict::kUndetermined;
}

}  // namespace

const RealFunction* RealPlan::Find(std::string_view function) const {
  const auto found = std::ranges::find(functions, function, &RealFunction::name);
  return found == functions.end() ? nullptr : &*found;
}

Result<RealPlan> ParseRealPlan(std::string_view text, std::string_view file_name) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && text[start] == '{') {
    // nlohmann's parser keeps its nesting on the heap; without exceptions, "discarded" is the error.
    const Json root = Json::parse(text, nullptr, false);
    const JsonReader reader(file_name);
    if (root.is_discarded()) return reader.Error("", "is no JSON");
    return reader.Read(root);
  }
  MW_ASSIGN_OR_RETURN(const Analytics analytics, ParseAnalytics(text, file_name));
  return FromAnalytics(analytics);
}

Result<RealPlan> ReadRealPlan(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  return ParseRealPlan(text, path);
}

PlanShare ShareOf(const RealFunction& function) {
  PlanShare share;
  for (const RealOperation& op : function.operations) {
    const PlanRole role = PlanRoleOf(op.type);
    share.constants += role == PlanRole::kConstant ? 1 : 0;
    share.state_ops += role == PlanRole::kState ? 1 : 0;
    if (role != PlanRole::kDispatchable) continue;
    ++share.dispatchable;
    share.on_ane += op.preferred == ComputeUnit::kAne ? 1 : 0;
    share.unknown += op.preferred == ComputeUnit::kUnknown ? 1 : 0;
  }
  return share;
}

std::string_view PlanVerdictName(PlanVerdict verdict) {
  switch (verdict) {
    case PlanVerdict::kAgrees:
      return "agrees";
    case PlanVerdict::kSupportRuleWrong:
      return "support rule wrong";
    case PlanVerdict::kCostModelWrong:
      return "cost model wrong";
    case PlanVerdict::kUndetermined:
      return "undetermined";
    case PlanVerdict::kNoDevice:
      return "no device named";
  }
  return "";
}

size_t PlanComparison::Count(PlanVerdict verdict) const {
  return static_cast<size_t>(std::ranges::count(operations, verdict, &ComparedOperation::verdict));
}

PlanComparison ComparePlans(const PlacementPlan& predicted, const RealFunction& real) {
  std::unordered_map<std::string_view, const RealOperation*> by_output;
  for (const RealOperation& op : real.operations) {
    for (const std::string& output : op.outputs) by_output.emplace(output, &op);
  }
  PlanComparison comparison;
  std::unordered_set<const RealOperation*> matched;
  for (const PlacedOperation& placed : predicted.operations) {
    const RealOperation* found = nullptr;
    for (const auto& output : placed.op->outputs()) {
      const auto it = by_output.find(output->name);
      if (it != by_output.end() && it->second->type == placed.op->type()) found = it->second;
    }
    if (found == nullptr || !matched.insert(found).second) {
      comparison.only_predicted.push_back(&placed);
      continue;
    }
    const PlanVerdict verdict = Judge(placed, *found);
    comparison.operations.push_back({&placed, found, verdict});
    if (verdict == PlanVerdict::kSupportRuleWrong) ++comparison.wrong_rules[std::string(placed.rule->id)];
  }
  // Constants and state operations are in real plans too, and in no prediction.
  for (const RealOperation& op : real.operations) {
    if (!matched.contains(&op) && PlanRoleOf(op.type) == PlanRole::kDispatchable) comparison.only_real.push_back(&op);
  }
  return comparison;
}

}  // namespace milwright
