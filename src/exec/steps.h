// Multi-step runs: the inputs of each step, what came out, and the comparison with expected steps. The file form is
// that of the golden .npz files: num_steps, step{i}/function, step{i}/in/NAME, step{i}/out/NAME, step{i}/state/NAME
// (the value after the step), initial/state/NAME (before step 0).
#ifndef MILWRIGHT_EXEC_STEPS_H_
#define MILWRIGHT_EXEC_STEPS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "milwright/model.h"

namespace milwright {

struct Step {
  std::string function;  ///< empty: the default function
  TensorMap inputs;
  TensorMap outputs;
  TensorMap states;  ///< after the step
};

struct StepSequence {
  TensorMap initial_states;
  std::vector<Step> steps;
};

/// Sorts the arrays of an .npz into steps. Plain names, or in/NAME and out/NAME, make a single step. kUnreadable when a
/// name fits no form or `num_steps` does not match.
Result<StepSequence> StepsFromArrays(const std::map<std::string, Tensor>& arrays);
std::map<std::string, Tensor> ArraysFromSteps(const StepSequence& sequence);

/// Runs the inputs of `sequence` on `model` from `state` (initial states written first) and gives back outputs and
/// states of each step. The error of a step names it.
/// Runs one step: function, inputs, states.
using StepRunner = std::function<Result<TensorMap>(const std::string&, const TensorMap&, State&)>;
Result<StepSequence> RunSteps(const StepRunner& runner, const StepSequence& sequence, State& state,
                              const std::string& default_function = {});
Result<StepSequence> RunSteps(const Model& model, const StepSequence& sequence, State& state,
                              const PredictOptions& options = {});

struct Tolerance {
  double atol = 0;
  double rtol = 0;
};

/// How far one tensor is from what was expected: an element passes when |a - e| <= atol + rtol * |e|; NaN equals NaN;
/// infinities equal themselves. Integers, bools and strings must be equal.
struct TensorDifference {
  int64_t failures = 0;     ///< elements that do not pass; -1: shape or kind differs
  double max_error = 0;     ///< largest |a - e|
  int64_t worst_index = 0;  ///< element that is furthest outside its bound (or has the largest error)
  double actual = 0;
  double expected = 0;
  std::string note;  ///< when shapes or kinds differ

  [[nodiscard]] bool passed() const { return failures == 0; }
};
TensorDifference CompareTensors(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance);
/// "[0, 3, 1]" for a row-major element index.
std::string ElementPlace(int64_t index, const Shape& shape);

struct StepDifference {
  size_t step = 0;
  std::string kind;  ///< "out" or "state"
  std::string name;
  Shape shape;
  TensorDifference difference;
};

/// Compares every output and state that `expected` holds with `actual`. Missing ones count as failures.
std::vector<StepDifference> CompareSteps(const StepSequence& actual, const StepSequence& expected,
                                         const Tolerance& outputs, const Tolerance& states);

}  // namespace milwright

#endif  // MILWRIGHT_EXEC_STEPS_H_
