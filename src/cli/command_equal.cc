#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "passes/equal.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Result<CompareOptions> ReadOptions(const EqualArguments& arguments) {
  CompareOptions options;
  options.steps = arguments.steps;
  options.tolerance = {arguments.atol, arguments.rtol};
  options.seed = arguments.seed;
  options.query_length = arguments.query_length;
  for (const std::string& text : arguments.input_kinds) MW_RETURN_IF_ERROR(AddInputKindChoice(text, options.kinds));
  const auto add_pairs = [](const std::vector<std::string>& texts, std::map<std::string, std::string>& pairs) {
    for (const std::string& text : texts) {
      const size_t equals = text.find('=');
      pairs.insert_or_assign(text.substr(0, equals), equals == std::string::npos ? text : text.substr(equals + 1));
    }
  };
  add_pairs(arguments.functions, options.functions);
  add_pairs(arguments.names, options.names);
  return options;
}

Json ValueJson(const ComparedValue& value) {
  const TensorDifference& d = value.worst;
  Json json = {{"function", value.function}, {"kind", value.is_memory ? "state" : "output"},
               {"name", value.name_a},       {"name_b", value.name_b},
               {"compared", value.compared}, {"passed", d.passed()},
               {"max_error", d.max_error},   {"step", value.worst_step}};
  if (!d.note.empty()) json["note"] = d.note;
  if (d.failures > 0) {
    json["failures"] = d.failures;
    json["worst"] = {
        {"place", ElementPlace(d.worst_index, value.worst_shape)}, {"actual", d.actual}, {"expected", d.expected}};
  }
  return json;
}

void PrintReport(const CompareReport& report) {
  std::vector<std::vector<std::string>> rows;
  for (const ComparedValue& value : report.values) {
    const bool passed = value.worst.passed();
    const std::string name = value.name_a == value.name_b ? value.name_a : value.name_a + " = " + value.name_b;
    rows.push_back({passed ? Styled("equal", Style::kGreen) : Styled("differs", Style::kRed), value.function,
                    value.is_memory ? "state" : "output", name, fmt::format("{} compared", value.compared),
                    fmt::format("largest error {:.3g}", value.worst.max_error)});
  }
  std::cout << Table(rows);
  for (const std::string& note : report.notes) std::cout << "note: " << note << "\n";
  for (const std::string& fault : report.faults) std::cout << "fault: " << fault << "\n";
  const ComparedValue* worst = report.worst();
  if (worst != nullptr && !worst->worst.passed()) std::cout << "worst: " << DescribeDifference(*worst) << "\n";
  std::cout << fmt::format("{} over {} steps\n", report.equal() ? "equal" : "not equal", report.steps);
}

}  // namespace

int Equal(const EqualArguments& arguments) {
  const auto options = ReadOptions(arguments);
  if (!options.ok()) return Fail(options.status());
  const auto a = Model::Load(arguments.a);
  if (!a.ok()) return Fail(a.status());
  const auto b = Model::Load(arguments.b);
  if (!b.ok()) return Fail(b.status());
  const auto report = CompareModels(*a, *b, *options);
  if (!report.ok()) return Fail(report.status());
  if (arguments.json) {
    Json json = {{"a", arguments.a},       {"b", arguments.b},        {"equal", report->equal()},
                 {"steps", report->steps}, {"values", Json::array()}, {"faults", report->faults},
                 {"notes", report->notes}};
    for (const ComparedValue& value : report->values) json["values"].push_back(ValueJson(value));
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    PrintReport(*report);
  }
  return report->equal() ? kFine : kFindings;
}

}  // namespace milwright::cli
