// Model and State: load a Core ML package and predict with it on the CPU, with Core ML's state semantics.
#ifndef MILWRIGHT_MODEL_H_
#define MILWRIGHT_MODEL_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

class Engine;
struct ModelSpec;
struct PreparedCall;

/// Named tensors: the inputs or outputs of one prediction.
using TensorMap = std::map<std::string, Tensor, std::less<>>;

/// The states of a model: what Core ML's `make_state()` returns. A handle: copies refer to the same states, as Core ML
/// passes them by reference; `Clone()` makes independent ones. Never saved into a package.
class State {
 public:
  State();  ///< no states: what a stateless model wants
  ~State();
  State(const State&);
  State& operator=(const State&);
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  /// Names of the states, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  /// A copy of state `name`, in its declared shape and type. Errors: no such state; a prediction is running on it.
  [[nodiscard]] Result<Tensor> Read(std::string_view name) const;
  /// Replaces the content of state `name`. `value` has the state's shape; floats of another width are rounded to its
  /// type. Errors: no such state, another shape, a prediction is running on it.
  Status Write(std::string_view name, const Tensor& value);
  /// Sets every state to zero, as when it was made.
  Status Reset();
  /// Independent states with the same content (a fork of the conversation).
  [[nodiscard]] Result<State> Clone() const;

 private:
  friend class Engine;
  friend class Model;
  friend struct PreparedCall;
  struct Impl;
  explicit State(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// A feature of a function as hosts see it.
struct Feature {
  std::string name;
  TensorType type;        ///< unknown sizes are kUnknownDim
  bool optional = false;  ///< inputs: may be left out
  std::string description;
};

/// Which states a model accepts.
enum class StateBinding : uint8_t {
  kByType,   ///< any whose names, shapes and types equal the model's (ANEMLL passes one state through all its chunks)
  kPackage,  ///< only those that this model made (CoreML-LLM reports that Core ML wants this)
};

struct PredictOptions {
  std::string function;  ///< empty: the default function
  StateBinding state_binding = StateBinding::kByType;
  /// Called after every operation with its path and each of its results (intermediate values, for debugging).
  std::function<void(std::string_view op_path, std::string_view value_name, const Tensor& value)> on_value;
};

/// A loaded package. Immutable and cheap to copy; predictions on different states may run at the same time.
class Model {
 public:
  /// Opens a `.mlpackage`, `.mlmodelc` or `.mlmodel` and verifies it: every value's type is inferred anew and compared
  /// with the file. Weights stay in the mapped file. Errors: kUnreadable, kInvalidProgram; each names file and place.
  static Result<Model> Load(const std::filesystem::path& path);
  /// Wraps a program built or rewritten in memory (verified by the caller).
  static Result<Model> FromSpec(std::shared_ptr<const ModelSpec> spec);

  /// In file order; the default function's name is empty when none is marked and none is called main.
  [[nodiscard]] std::vector<std::string> function_names() const;
  [[nodiscard]] std::string default_function() const;
  /// Features of a function (empty name: the default one). Unknown function: an error that lists the known ones.
  [[nodiscard]] Result<std::vector<Feature>> Inputs(std::string_view function = {}) const;
  [[nodiscard]] Result<std::vector<Feature>> Outputs(std::string_view function = {}) const;
  [[nodiscard]] Result<std::vector<Feature>> States(std::string_view function = {}) const;
  [[nodiscard]] const ModelSpec& spec() const;

  /// New states, all zero, one for each state name of any function of the package: functions share them. A stateless
  /// model gives an empty State.
  [[nodiscard]] Result<State> MakeState() const;

  /// Runs one prediction with the reference interpreter: obvious kernels, every result rounded to its declared type,
  /// sums in fp32; state operations take effect in program order, and all of them or (on error) none.
  ///
  /// Inputs are converted between float widths and between integer widths when they fit; shapes must match. Errors name
  /// the feature or the operation: unknown or missing input, wrong shape or type, `state` absent though the function
  /// has states ("The input feature for NAME must be an MLState, but it was not."), a state of other names, shapes or
  /// types, a second prediction on the same state at the same time, an index out of range.
  [[nodiscard]] Result<TensorMap> Predict(const TensorMap& inputs, State* state = nullptr,
                                          const PredictOptions& options = {}) const;

 private:
  friend class Engine;
  /// Everything that can be wrong with a call before it runs. Errors as for Predict.
  [[nodiscard]] Result<PreparedCall> Prepare(const TensorMap& inputs, State* state,
                                             const PredictOptions& options) const;
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace milwright

#endif  // MILWRIGHT_MODEL_H_
