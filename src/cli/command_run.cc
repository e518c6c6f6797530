#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"
#include "exec/steps.h"
#include "format/npy.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Result<StepSequence> ReadStepFile(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto arrays, ReadNpz(path));
  auto steps = StepsFromArrays(arrays);
  if (!steps.ok()) return steps.status().WithContext(path);
  return steps;
}

// Adds the arrays of one --input to the sequence; single-step files add to step 0.
Status AddInput(const Model& model, const std::string& function, const std::string& argument, StepSequence& sequence) {
  const size_t equals = argument.find('=');
  if (argument.ends_with(".npz") && equals == std::string::npos) {
    MW_ASSIGN_OR_RETURN(StepSequence given, ReadStepFile(argument));
    if (sequence.steps.size() < given.steps.size()) sequence.steps.resize(given.steps.size());
    for (size_t i = 0; i < given.steps.size(); ++i) {
      if (!given.steps[i].function.empty()) sequence.steps[i].function = given.steps[i].function;
      for (auto& [name, tensor] : given.steps[i].inputs)
        sequence.steps[i].inputs.insert_or_assign(name, std::move(tensor));
    }
    for (auto& [name, tensor] : given.initial_states) sequence.initial_states.insert_or_assign(name, std::move(tensor));
    return Status::Ok();
  }
  std::string name;
  std::string path = argument;
  if (equals != std::string::npos) {
    name = argument.substr(0, equals);
    path = argument.substr(equals + 1);
  } else {
    MW_ASSIGN_OR_RETURN(const auto inputs, model.Inputs(function));
    if (inputs.size() != 1) {
      return Usage(
          fmt::format("the function has {} inputs; say which one '{}' is: NAME={}", inputs.size(), path, path));
    }
    name = inputs.front().name;
  }
  MW_ASSIGN_OR_RETURN(Tensor tensor, ReadNpy(path));
  if (sequence.steps.empty()) sequence.steps.resize(1);
  sequence.steps.front().inputs.insert_or_assign(name, std::move(tensor));
  return Status::Ok();
}

struct Fill {
  bool random = false;
  uint64_t seed = 0;
};

Result<Fill> ParseFill(const std::string& text) {
  if (text == "zero") return Fill{};
  if (text == "random") return Fill{true, 0};
  Fill fill{true, 0};
  if (text.starts_with("random:")) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + 7, end, fill.seed);
    if (error == std::errc() && rest == end) return fill;
  }
  return Usage(fmt::format("--fill takes zero, random or random:SEED, not '{}'", text));
}

// Inputs that were not given: zeros, or floats in [0, 1) and integers 0 or 1, which are in the domain of nearly
// everything.
Status FillInputs(const Model& model, const std::string& function, const Fill& fill, StepSequence& sequence) {
  std::mt19937_64 random(fill.seed);
  std::uniform_real_distribution<float> uniform;
  for (Step& step : sequence.steps) {
    MW_ASSIGN_OR_RETURN(const auto features, model.Inputs(step.function.empty() ? function : step.function));
    for (const Feature& feature : features) {
      if (step.inputs.contains(feature.name)) continue;
      TensorType type = feature.type;
      for (int64_t& size : type.shape) size = size == kUnknownDim ? 1 : size;
      MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
      for (int64_t i = 0; fill.random && i < tensor.size(); ++i) {
        tensor.SetDouble(i, IsFloat(type.dtype) ? uniform(random) : static_cast<double>(random() % 2));
      }
      step.inputs.emplace(feature.name, std::move(tensor));
    }
  }
  return Status::Ok();
}

std::string Summary(const Tensor& tensor) {
  if (tensor.dtype() == DataType::kString) return tensor.size() > 0 ? "\"" + tensor.strings().front() + "\"" : "";
  double low = INFINITY;
  double high = -INFINITY;
  double sum = 0;
  int64_t odd = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double value = tensor.GetDouble(i);
    odd += std::isfinite(value) ? 0 : 1;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
  }
  if (tensor.size() == 0) return "empty";
  std::string text = tensor.size() == 1 ? fmt::format("{:.6g}", tensor.GetDouble(0))
                                        : fmt::format("min {:.6g}, max {:.6g}, mean {:.6g}", low, high,
                                                      sum / static_cast<double>(tensor.size()));
  if (odd > 0) text += fmt::format(", {} not finite", odd);
  return text;
}

Json DifferenceJson(const StepDifference& entry) {
  const TensorDifference& d = entry.difference;
  Json json = {{"step", entry.step},
               {"kind", entry.kind},
               {"name", entry.name},
               {"passed", d.passed()},
               {"max_error", d.max_error}};
  if (!d.note.empty()) json["note"] = d.note;
  if (d.failures > 0) {
    json["failures"] = d.failures;
    json["worst"] = {
        {"place", ElementPlace(d.worst_index, entry.shape)}, {"actual", d.actual}, {"expected", d.expected}};
  }
  return json;
}

int ReportDifferences(const RunArguments& arguments, const StepSequence& actual, const StepSequence& expected) {
  const Tolerance outputs{arguments.atol, arguments.rtol};
  const Tolerance states{arguments.state_atol >= 0 ? arguments.state_atol : arguments.atol,
                         arguments.state_rtol >= 0 ? arguments.state_rtol : arguments.rtol};
  const auto differences = CompareSteps(actual, expected, outputs, states);
  const StepDifference* worst = nullptr;
  int64_t failed = 0;
  for (const StepDifference& entry : differences) {
    failed += entry.difference.passed() ? 0 : 1;
    if (worst == nullptr || entry.difference.max_error > worst->difference.max_error) worst = &entry;
    if (arguments.json || entry.difference.passed()) continue;
    const TensorDifference& d = entry.difference;
    std::cout << fmt::format("step {} {} {}: ", entry.step, entry.kind, entry.name)
              << (d.failures < 0 || !d.note.empty()
                      ? d.note
                      : fmt::format("{} of {} elements differ; worst at {}: {:.8g} instead of {:.8g} (error {:.3g})",
                                    d.failures, *ElementCount(entry.shape), ElementPlace(d.worst_index, entry.shape),
                                    d.actual, d.expected, std::abs(d.actual - d.expected)))
              << "\n";
  }
  if (arguments.json) {
    Json json = {{"steps", actual.steps.size()},
                 {"compared", differences.size()},
                 {"failed", failed},
                 {"differences", Json::array()}};
    for (const StepDifference& entry : differences) json["differences"].push_back(DifferenceJson(entry));
    std::cout << json.dump(2) << "\n";
  } else if (worst == nullptr) {
    std::cout << "nothing to compare: the expected file holds no outputs and no states\n";
    return kFindings;
  } else {
    const TensorDifference& d = worst->difference;
    std::cout << fmt::format(
        "{} steps, {} tensors compared, {} differ; largest error {:.3g} (step {} {} {} at {}: {:.8g}, expected "
        "{:.8g})\n",
        actual.steps.size(), differences.size(), failed, d.max_error, worst->step, worst->kind, worst->name,
        ElementPlace(d.worst_index, worst->shape), d.actual, d.expected);
  }
  return failed == 0 ? kFine : kFindings;
}

void PrintSteps(const StepSequence& result, bool json) {
  Json all = Json::array();
  for (size_t i = 0; i < result.steps.size(); ++i) {
    Json entry = {{"step", i}, {"function", result.steps[i].function}};
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, tensor] : result.steps[i].outputs) {
      rows.push_back({"out", name, TypeToString(tensor.type()), Summary(tensor)});
      entry["outputs"][name] = Summary(tensor);
    }
    for (const auto& [name, tensor] : result.steps[i].states) {
      rows.push_back({"state", name, TypeToString(tensor.type()), Summary(tensor)});
      entry["states"][name] = Summary(tensor);
    }
    all.push_back(std::move(entry));
    if (!json) std::cout << fmt::format("step {}\n", i) << Table(rows);
  }
  if (json) std::cout << all.dump(2) << "\n";
}

Result<int> RunModel(const RunArguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Model model, Model::Load(arguments.path));
  StepSequence sequence;
  StepSequence expected;
  if (!arguments.expect.empty()) {
    MW_ASSIGN_OR_RETURN(expected, ReadStepFile(arguments.expect));
    sequence.initial_states = expected.initial_states;
    if (arguments.inputs.empty()) sequence = expected;
  }
  for (const std::string& input : arguments.inputs)
    MW_RETURN_IF_ERROR(AddInput(model, arguments.function, input, sequence));
  if (sequence.steps.empty()) sequence.steps.resize(1);
  if (arguments.steps > 0) {
    const auto wanted = static_cast<size_t>(arguments.steps);
    if (sequence.steps.size() == 1) sequence.steps.resize(wanted, sequence.steps.front());
    if (wanted > sequence.steps.size()) {
      return Usage(fmt::format("--steps says {}, but the inputs have {}", wanted, sequence.steps.size()));
    }
    sequence.steps.resize(wanted);
    if (expected.steps.size() > wanted) expected.steps.resize(wanted);
  }
  if (!arguments.fill.empty()) {
    MW_ASSIGN_OR_RETURN(const Fill fill, ParseFill(arguments.fill));
    MW_RETURN_IF_ERROR(FillInputs(model, arguments.function, fill, sequence));
  }
  MW_ASSIGN_OR_RETURN(State state, model.MakeState());
  if (!arguments.state_in.empty()) {
    MW_ASSIGN_OR_RETURN(const auto arrays, ReadNpz(arguments.state_in));
    for (const auto& [name, tensor] : arrays) MW_RETURN_IF_ERROR(state.Write(name, tensor));
  }
  PredictOptions options;
  options.function = arguments.function;
  if (arguments.trace) {
    options.on_value = [](std::string_view path, std::string_view, const Tensor& value) {
      std::cout << fmt::format("{}  {}  {}\n", path, TypeToString(value.type()), Summary(value));
    };
  }
  StepSequence result;
  if (arguments.engine.engine == "reference" || arguments.trace) {
    MW_ASSIGN_OR_RETURN(result, RunSteps(model, sequence, state, options));
  } else {
    MW_ASSIGN_OR_RETURN(const Engine engine, Engine::FromModel(model, ReadEngineOptions(arguments.engine)));
    const StepRunner runner = [&engine](const std::string& function, const TensorMap& inputs, State& states) {
      EngineCall call;
      call.function = function;
      return engine.Predict(inputs, &states, std::move(call));
    };
    MW_ASSIGN_OR_RETURN(result, RunSteps(runner, sequence, state, arguments.function));
  }
  if (!arguments.output.empty()) MW_RETURN_IF_ERROR(WriteNpz(arguments.output, ArraysFromSteps(result)));
  if (!arguments.state_out.empty()) {
    std::map<std::string, Tensor> arrays;
    for (const std::string& name : state.names()) {
      MW_ASSIGN_OR_RETURN(Tensor tensor, state.Read(name));
      arrays.emplace(name, std::move(tensor));
    }
    MW_RETURN_IF_ERROR(WriteNpz(arguments.state_out, arrays));
  }
  if (!arguments.expect.empty()) return ReportDifferences(arguments, result, expected);
  PrintSteps(result, arguments.json);
  return kFine;
}

}  // namespace

int Run(const RunArguments& arguments) {
  const auto code = RunModel(arguments);
  return code.ok() ? *code : Fail(code.status());
}

}  // namespace milwright::cli
