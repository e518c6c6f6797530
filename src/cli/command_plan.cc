#include <fmt/format.h>

#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "check/placement/compute_plan.h"
#include "check/placement/plan.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

// One function: its prediction, and the real plan when there is one. `comparison` points into both.
struct FunctionPlan {
  PlacementPlan predicted;
  const RealFunction* real = nullptr;
  PlanComparison comparison;

  // The share that the gate looks at.
  [[nodiscard]] PlanShare share() const { return real != nullptr ? ShareOf(*real) : predicted.share; }
};

// "5%" or "0.05".
Result<double> ParseShare(const std::string& text) {
  const bool percent = text.ends_with('%');
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (percent) value /= 100;
  if (error != std::errc() || stop != end || !(value >= 0 && value <= 1)) {
    return Status(ErrorCode::kUsage, fmt::format("--max-non-ane '{}' is neither a percentage (5%) nor a fraction of 1 "
                                                 "(0.05)",
                                                 text));
  }
  return value;
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string UnitText(ComputeUnit unit) {
  const Style style = unit == ComputeUnit::kAne ? Style::kGreen : Style::kYellow;
  return Styled(ComputeUnitName(unit), style);
}

std::string OpName(const Operation& op) { return op.outputs().empty() ? op.name() : op.output()->name; }

void PrintOperations(const PlacementPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"unit", "us", "operation", "output", "why"}};
  for (const PlacedOperation& placed : plan.operations) {
    std::string why;
    if (plan.target != "cpu" && placed.rule->support != AneSupport::kYes) {
      why =
          fmt::format("{} ({}: {})", placed.rule->statement, SupportBasisName(placed.rule->basis), placed.rule->source);
    } else if (plan.target != "cpu" && placed.unit != ComputeUnit::kAne) {
      why = "the ANE takes it, but is not worth the change";
    }
    if (plan.target != "cpu" && !placed.rule->conflict.empty()) {
      why += fmt::format("{}but: {}", why.empty() ? "" : "; ", placed.rule->conflict);
    }
    rows.push_back({UnitText(placed.unit), fmt::format("{}{:.2f}", placed.cost.scaled ? "~" : "", placed.us()),
                    placed.op->type(), OpName(*placed.op), why});
  }
  std::cout << Table(rows);
}

void PrintSegments(const PlacementPlan& plan) {
  std::cout << fmt::format("segments: {}, boundaries: {}\n", plan.segments.size(),
                           plan.segments.empty() ? 0 : plan.segments.size() - 1);
  std::vector<std::vector<std::string>> rows;
  for (const PlanSegment& segment : plan.segments) {
    const PlacedOperation& first = plan.operations[segment.first];
    const PlacedOperation& last = plan.operations[segment.first + segment.count - 1];
    rows.push_back({UnitText(segment.unit), fmt::format("{} operations", segment.count),
                    fmt::format("{} .. {}", OpName(*first.op), OpName(*last.op)),
                    fmt::format("{:.2f} us", segment.us)});
  }
  std::cout << Table(rows);
}

std::string CountText(const PlanShare& share, std::string_view what_is_unknown) {
  return fmt::format("{} of {} dispatchable operations on the ANE ({}); {} not on it, {} of them {}", share.on_ane,
                     share.dispatchable, Percent(share.ByCount()), share.dispatchable - share.on_ane, share.unknown,
                     what_is_unknown);
}

void PrintShare(const PlanShare& share) {
  std::cout << "predicted: " << CountText(share, "because no source speaks of them") << "\n";
  const double scaled = share.total_us > 0 ? share.scaled_us / share.total_us : 0;
  if (const std::optional<double> by_cost = share.ByCost(); by_cost.has_value()) {
    std::cout << fmt::format("by estimated cost: {} of {:.2f} us ({} of it scaled from other shapes)\n",
                             Percent(*by_cost), share.total_us, Percent(scaled));
  } else if (share.total_us > 0) {
    std::cout << fmt::format(
        "by estimated cost: not given, {} of {:.2f} us is scaled from other shapes (limit: a third)\n", Percent(scaled),
        share.total_us);
  }
  std::cout << fmt::format(
      "not counted: {} reads and writes of states, {} constants (const, constexpr_*); ~ marks scaled figures\n",
      share.state_ops, share.constants);
}

void PrintComparison(const FunctionPlan& plan) {
  std::cout << "real:      " << CountText(plan.share(), "without a device") << "\n";
  const PlanComparison& comparison = plan.comparison;
  std::vector<std::vector<std::string>> rows = {{"predicted", "real", "operation", "output", "verdict", "rule"}};
  for (const ComparedOperation& compared : comparison.operations) {
    if (compared.verdict == PlanVerdict::kAgrees) continue;
    const PlacedOperation& predicted = *compared.predicted;
    std::string rule(predicted.rule->id);
    if (!compared.real->reason.empty()) rule += fmt::format(" (device: {})", compared.real->reason);
    rows.push_back({UnitText(predicted.unit), UnitText(compared.real->preferred), predicted.op->type(),
                    OpName(*predicted.op), std::string(PlanVerdictName(compared.verdict)), rule});
  }
  std::cout << fmt::format("compared: {} operations, {} agree; {} only in the program, {} only in the real plan\n",
                           comparison.operations.size(), comparison.Count(PlanVerdict::kAgrees),
                           comparison.only_predicted.size(), comparison.only_real.size());
  if (rows.size() > 1) std::cout << Table(rows);
  for (const auto& [rule, count] : comparison.wrong_rules) {
    std::cout << fmt::format("wrong rule: {} ({} operations): {}\n", rule, count, FindAneSupportRule(rule)->statement);
  }
}

void Print(const std::string& path, const FunctionPlan& plan) {
  const PlacementPlan& predicted = plan.predicted;
  std::cout << Styled(fmt::format("{}: function {}, target {}: what Core ML is predicted to prefer, not what runs",
                                  path, predicted.function, predicted.target),
                      Style::kBold)
            << "\n";
  PrintOperations(predicted);
  PrintSegments(predicted);
  PrintShare(predicted.share);
  if (plan.real != nullptr) PrintComparison(plan);
  for (const std::string& note : predicted.notes) std::cout << "note: " << note << "\n";
}

Json ShareJson(const PlanShare& share) {
  return {{"dispatchable", share.dispatchable}, {"on_ane", share.on_ane},       {"unknown", share.unknown},
          {"state_ops", share.state_ops},       {"constants", share.constants}, {"on_ane_share", share.ByCount()}};
}

Json OperationJson(const PlacedOperation& placed) {
  Json json = {{"op", placed.op->type()},
               {"output", OpName(*placed.op)},
               {"path", OperationPath(*placed.op)},
               {"unit", ComputeUnitName(placed.unit)},
               {"ane_support", AneSupportName(placed.rule->support)},
               {"rule", placed.rule->id},
               {"basis", SupportBasisName(placed.rule->basis)},
               {"source", placed.rule->source},
               {"us", placed.us()},
               {"scaled", placed.cost.scaled},
               {"figure", placed.cost.figure}};
  if (!placed.rule->conflict.empty()) json["conflict"] = placed.rule->conflict;
  return json;
}

Json ComparisonJson(const FunctionPlan& plan) {
  Json json = {{"share", ShareJson(plan.share())}, {"operations", Json::array()}};
  for (const ComparedOperation& compared : plan.comparison.operations) {
    Json op = {{"output", OpName(*compared.predicted->op)},
               {"real", ComputeUnitName(compared.real->preferred)},
               {"verdict", PlanVerdictName(compared.verdict)}};
    if (!compared.real->reason.empty()) op["reason"] = compared.real->reason;
    json["operations"].push_back(std::move(op));
  }
  json["only_predicted"] = Json::array();
  for (const PlacedOperation* placed : plan.comparison.only_predicted)
    json["only_predicted"].push_back(OpName(*placed->op));
  json["only_real"] = Json::array();
  for (const RealOperation* op : plan.comparison.only_real) {
    json["only_real"].push_back({{"op", op->type}, {"outputs", op->outputs}});
  }
  json["wrong_rules"] = plan.comparison.wrong_rules;
  return json;
}

Json FunctionJson(const FunctionPlan& plan) {
  const PlacementPlan& predicted = plan.predicted;
  Json json = {{"function", predicted.function},
               {"share", ShareJson(predicted.share)},
               {"operations", Json::array()},
               {"state_ops", Json::array()},
               {"segments", Json::array()}};
  const std::optional<double> by_cost = predicted.share.ByCost();
  json["share"]["total_us"] = predicted.share.total_us;
  json["share"]["scaled_us"] = predicted.share.scaled_us;
  json["share"]["on_ane_share_by_cost"] = by_cost.has_value() ? Json(*by_cost) : Json();
  json["tied"] = predicted.tied;
  for (const PlacedOperation& placed : predicted.operations) json["operations"].push_back(OperationJson(placed));
  for (const Operation* op : predicted.state_ops) json["state_ops"].push_back(OperationPath(*op));
  for (const PlanSegment& segment : predicted.segments) {
    json["segments"].push_back({{"unit", ComputeUnitName(segment.unit)},
                                {"first", segment.first},
                                {"count", segment.count},
                                {"us", segment.us}});
  }
  json["notes"] = predicted.notes;
  if (plan.real != nullptr) json["real"] = ComparisonJson(plan);
  return json;
}

// The functions asked for, predicted, and compared with those of `real` of the same name (null: nothing to compare).
Result<std::vector<FunctionPlan>> PlanFunctions(const ModelSpec& model, const PlanArguments& arguments,
                                                const RealPlan* real) {
  std::vector<FunctionPlan> plans;
  for (const auto& function : model.program.functions()) {
    if (!arguments.function.empty() && function->name != arguments.function) continue;
    const RealFunction* real_function = real != nullptr ? real->Find(function->name) : nullptr;
    if (real != nullptr && real_function == nullptr) continue;
    MW_ASSIGN_OR_RETURN(PlacementPlan predicted, PredictPlacement(*function, arguments.target));
    plans.push_back({std::move(predicted), real_function, {}});
  }
  if (plans.empty()) {
    const std::string which = arguments.function.empty() ? "no function" : "no function '" + arguments.function + "'";
    return Status(ErrorCode::kUsage, fmt::format("{}: {}{}", arguments.path, which,
                                                 real != nullptr ? " that is also in " + arguments.import : ""));
  }
  // Comparisons point into the plans, which stay where they are from here on.
  for (FunctionPlan& plan : plans) {
    if (plan.real != nullptr) plan.comparison = ComparePlans(plan.predicted, *plan.real);
  }
  return plans;
}

}  // namespace

int Plan(const PlanArguments& arguments) {
  std::optional<double> limit;
  if (!arguments.max_non_ane.empty()) {
    const auto parsed = ParseShare(arguments.max_non_ane);
    if (!parsed.ok()) return Fail(parsed.status());
    limit = *parsed;
  }
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  std::optional<RealPlan> real;
  if (!arguments.import.empty()) {
    auto read = ReadRealPlan(arguments.import);
    if (!read.ok()) return Fail(read.status());
    real = *std::move(read);
  }
  const auto plans = PlanFunctions(*model, arguments, real.has_value() ? &*real : nullptr);
  if (!plans.ok()) return Fail(plans.status());

  bool exceeds = false;
  Json json = {{"path", arguments.path}, {"target", arguments.target}, {"functions", Json::array()}};
  if (real.has_value()) json["environment"] = real->environment;
  for (const FunctionPlan& plan : *plans) {
    const double non_ane = plan.share().NonAne();
    const bool too_many = limit.has_value() && non_ane > *limit;
    exceeds = exceeds || too_many;
    if (arguments.json) {
      json["functions"].push_back(FunctionJson(plan));
      continue;
    }
    Print(arguments.path, plan);
    if (limit.has_value()) {
      std::cout << fmt::format("gate: {} not on the ANE, at most {} allowed: {}\n", Percent(non_ane), Percent(*limit),
                               too_many ? Styled("fails", Style::kRed) : Styled("passes", Style::kGreen));
    }
  }
  if (arguments.json) {
    if (limit.has_value()) json["gate"] = {{"max_non_ane", *limit}, {"passes", !exceeds}};
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  return exceeds ? kFindings : kFine;
}

}  // namespace milwright::cli
