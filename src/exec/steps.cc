#include "exec/steps.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace milwright {
namespace {

Status Unreadable(std::string message) { return {ErrorCode::kUnreadable, std::move(message)}; }

// "step12/in/x" -> 12 and "in/x".
std::optional<size_t> TakeStep(std::string_view& key) {
  if (!key.starts_with("step")) return std::nullopt;
  size_t number = 0;
  const auto [end, error] = std::from_chars(key.data() + 4, key.data() + key.size(), number);
  if (error != std::errc() || end == key.data() + key.size() || *end != '/') return std::nullopt;
  key.remove_prefix(static_cast<size_t>(end - key.data()) + 1);
  return number;
}

bool TakePrefix(std::string_view& key, std::string_view prefix) {
  if (!key.starts_with(prefix)) return false;
  key.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<StepSequence> StepsFromArrays(const std::map<std::string, Tensor>& arrays) {
  constexpr size_t kMaxSteps = 1 << 24;
  StepSequence sequence;
  std::optional<size_t> declared;
  const auto step = [&sequence](size_t i) -> Step& {
    if (sequence.steps.size() <= i) sequence.steps.resize(i + 1);
    return sequence.steps[i];
  };
  for (const auto& [name, tensor] : arrays) {
    std::string_view key = name;
    if (key == "num_steps") {
      if (tensor.size() != 1 || tensor.GetInt(0) < 0) return Unreadable("num_steps is not a count");
      declared = static_cast<size_t>(tensor.GetInt(0));
    } else if (TakePrefix(key, "initial/state/")) {
      sequence.initial_states.emplace(key, tensor);
    } else if (const auto number = TakeStep(key); number.has_value()) {
      if (*number >= kMaxSteps) return Unreadable(fmt::format("'{}' names a step that is too far", name));
      Step& target = step(*number);
      if (key == "function") {
        if (!tensor.strings().empty()) target.function = tensor.strings().front();
      } else if (TakePrefix(key, "in/")) {
        target.inputs.emplace(key, tensor);
      } else if (TakePrefix(key, "out/")) {
        target.outputs.emplace(key, tensor);
      } else if (TakePrefix(key, "state/")) {
        target.states.emplace(key, tensor);
      } else {
        return Unreadable(fmt::format("'{}' is none of function, in/NAME, out/NAME, state/NAME", name));
      }
    } else if (TakePrefix(key, "out/")) {
      step(0).outputs.emplace(key, tensor);
    } else if (!key.starts_with("ct/")) {  // coremltools' own value where it differs from the golden (op-semantics.md)
      TakePrefix(key, "in/");
      step(0).inputs.emplace(key, tensor);
    }
  }
  if (declared.has_value() && *declared != sequence.steps.size()) {
    return Unreadable(fmt::format("num_steps says {}, but there are {} steps", *declared, sequence.steps.size()));
  }
  return sequence;
}

std::map<std::string, Tensor> ArraysFromSteps(const StepSequence& sequence) {
  std::map<std::string, Tensor> arrays;
  arrays.emplace("num_steps", Tensor::Scalar(DataType::kInt64, static_cast<double>(sequence.steps.size())));
  for (const auto& [name, tensor] : sequence.initial_states) arrays.emplace("initial/state/" + name, tensor);
  for (size_t i = 0; i < sequence.steps.size(); ++i) {
    const Step& step = sequence.steps[i];
    const std::string prefix = fmt::format("step{}/", i);
    if (!step.function.empty()) arrays.emplace(prefix + "function", Tensor::ScalarString(step.function));
    for (const auto& [name, tensor] : step.inputs) arrays.emplace(prefix + "in/" + name, tensor);
    for (const auto& [name, tensor] : step.outputs) arrays.emplace(prefix + "out/" + name, tensor);
    for (const auto& [name, tensor] : step.states) arrays.emplace(prefix + "state/" + name, tensor);
  }
  return arrays;
}

Result<StepSequence> RunSteps(const Model& model, const StepSequence& sequence, State& state,
                              const PredictOptions& options) {
  const StepRunner runner = [&](const std::string& function, const TensorMap& inputs, State& states) {
    PredictOptions step_options = options;
    step_options.function = function;
    return model.Predict(inputs, &states, step_options);
  };
  return RunSteps(runner, sequence, state, options.function);
}

Result<StepSequence> RunSteps(const StepRunner& runner, const StepSequence& sequence, State& state,
                              const std::string& default_function) {
  StepSequence result;
  result.initial_states = sequence.initial_states;
  for (const auto& [name, tensor] : sequence.initial_states) MW_RETURN_IF_ERROR(state.Write(name, tensor));
  for (size_t i = 0; i < sequence.steps.size(); ++i) {
    const Step& given = sequence.steps[i];
    const std::string& function = given.function.empty() ? default_function : given.function;
    auto outputs = runner(function, given.inputs, state);
    if (!outputs.ok()) return outputs.status().WithContext(fmt::format("step {}", i));
    Step step{function, given.inputs, *std::move(outputs), {}};
    for (const std::string& name : state.names()) {
      MW_ASSIGN_OR_RETURN(Tensor value, state.Read(name));
      step.states.emplace(name, std::move(value));
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

TensorDifference CompareTensors(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  TensorDifference result;
  const bool text = expected.dtype() == DataType::kString;
  if (actual.shape() != expected.shape() || text != (actual.dtype() == DataType::kString)) {
    result.failures = -1;
    result.note = fmt::format("{} instead of {}", TypeToString(actual.type()), TypeToString(expected.type()));
    return result;
  }
  if (text) {
    for (int64_t i = 0; i < expected.size(); ++i) {
      const auto k = static_cast<size_t>(i);
      if (actual.strings()[k] == expected.strings()[k]) continue;
      if (result.failures++ == 0) {
        result.worst_index = i;
        result.note = fmt::format("\"{}\" instead of \"{}\"", actual.strings()[k], expected.strings()[k]);
      }
    }
    return result;
  }
  const bool exact = !IsFloat(expected.dtype());
  double worst = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double a = actual.GetDouble(i);
    const double e = expected.GetDouble(i);
    double error = a == e || (std::isnan(a) && std::isnan(e)) ? 0 : std::abs(a - e);
    if (std::isnan(error)) error = INFINITY;
    const double bound = exact || !std::isfinite(e) ? 0 : tolerance.atol + tolerance.rtol * std::abs(e);
    if (!(error <= bound)) ++result.failures;
    result.max_error = std::max(result.max_error, error);
    const double excess = error - bound + (error > bound ? 1e300 : 0);  // a failure before any near miss
    if (i == 0 || excess > worst) {
      worst = excess;
      result.worst_index = i;
      result.actual = a;
      result.expected = e;
    }
  }
  return result;
}

std::string ElementPlace(int64_t index, const Shape& shape) {
  std::string text;
  for (size_t axis = shape.size(); axis-- > 0;) {
    text.insert(0, fmt::format("{}{}", axis > 0 ? ", " : "", index % shape[axis]));
    index /= shape[axis];
  }
  return "[" + text + "]";
}

std::vector<StepDifference> CompareSteps(const StepSequence& actual, const StepSequence& expected,
                                         const Tolerance& outputs, const Tolerance& states) {
  std::vector<StepDifference> differences;
  const auto compare = [&](size_t step, const char* kind, const TensorMap& got, const TensorMap& wanted,
                           const Tolerance& tolerance) {
    for (const auto& [name, tensor] : wanted) {
      StepDifference entry{step, kind, name, tensor.shape(), {}};
      if (const auto it = got.find(name); it != got.end()) {
        entry.difference = CompareTensors(it->second, tensor, tolerance);
      } else {
        entry.difference.failures = -1;
        entry.difference.note = "missing";
      }
      differences.push_back(std::move(entry));
    }
  };
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const Step& wanted = expected.steps[i];
    const Step got = i < actual.steps.size() ? actual.steps[i] : Step{};
    compare(i, "out", got.outputs, wanted.outputs, outputs);
    compare(i, "state", got.states, wanted.states, states);
  }
  return differences;
}

}  // namespace milwright
