// Engine: predicts with a package at the speed of the memory bus. Same results as Model::Predict within stated bounds.
#ifndef MILWRIGHT_ENGINE_H_
#define MILWRIGHT_ENGINE_H_

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/model.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// Where weights are read from.
enum class WeightPlacement : uint8_t {
  kAuto,  ///< the faster of the two on this machine, found by reading a piece of the weights both ways
  kMap,   ///< where they lie in the mapped file
  kCopy,  ///< copied once into anonymous memory on huge pages; the mapped pages are released as they are copied
};

/// How results are rounded.
enum class Numerics : uint8_t {
  kStrict,  ///< to the declared type after every operation, as the reference does; sums in another order
  kFast,    ///< fp32 inside fused operations; activations of integer weights in int8 blocks of 32
};

struct EngineOptions {
  int threads = 0;  ///< 0: one for each core
  WeightPlacement weights = WeightPlacement::kAuto;
  Numerics numerics = Numerics::kFast;
  std::string kernels;  ///< "scalar", "avx2", "avx512", "neon"; empty: MILWRIGHT_KERNELS, else the fastest
};

/// What became of the weights.
struct WeightCounts {
  int64_t matrices = 0;        ///< used as they are stored
  int64_t mapped_bytes = 0;    ///< read from the mapped file
  int64_t copied_bytes = 0;    ///< copied to anonymous memory as they are
  int64_t repacked_bytes = 0;  ///< held in another form: decoded, transposed, converted to fp32
};

/// What predictions moved, summed over the life of an engine.
struct EngineCounters {
  int64_t predictions = 0;
  int64_t reference_predictions = 0;  ///< ran on the reference interpreter, because the function cannot be planned
  int64_t state_bytes_written = 0;    ///< bytes stored into states
  int64_t bytes_copied = 0;           ///< bytes of values copied because they could not be viewed or updated in place
  int64_t attention_columns = 0;      ///< rows of K that attention looked at
  int64_t cache_bytes_read = 0;       ///< bytes of K and V that attention read
  int64_t multiply_adds = 0;          ///< of products with stored weights, as matrices: rows * columns * vectors
  int64_t locked_backings = 0;        ///< output backings that were inputs, and were replaced by fresh buffers
};

/// A step of a plan with the time it took, summed over predictions.
struct ProfileEntry {
  std::string kind;        ///< op type or name of the fusion
  std::string path;        ///< of the (last) operation
  int operations = 1;      ///< operations of the program in it
  bool reference = false;  ///< ran a reference kernel
  int64_t weight_bytes = 0;
  int64_t runs = 0;
  double seconds = 0;
};

/// Core ML's prediction options beside those of PredictOptions (whose on_value the engine does not call).
struct EngineCall {
  std::string function;  ///< empty: the default function
  StateBinding state_binding = StateBinding::kByType;
  /// Output name -> a tensor of the output's type that receives it and comes back as the result. One that shares its
  /// memory with an input of this or another running prediction is locked: a fresh tensor is used instead, and counted.
  TensorMap output_backings;
  /// Outputs [.., rows, columns] of which only the last row is wanted: it alone is computed where the program allows
  /// that, and the result has the shape [.., 1, columns]. (The head of a prefill is a quarter of its work.)
  std::vector<std::string> last_rows;
};

/// A package ready to predict. Cheap to copy; predictions on different states may run at the same time.
class Engine {
 public:
  /// Opens and verifies the package, as Model::Load. Weights are placed when a function is first used.
  static Result<Engine> Load(const std::filesystem::path& path, const EngineOptions& options = {});
  static Result<Engine> FromModel(Model model, const EngineOptions& options = {});

  [[nodiscard]] const Model& model() const;
  [[nodiscard]] const EngineOptions& options() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] std::string_view kernels() const;  ///< "avx512", ...
  [[nodiscard]] Result<State> MakeState() const { return model().MakeState(); }

  /// One prediction; errors as for Model::Predict, and for a backing of another type. States are written in place, and
  /// left as they were when the prediction fails.
  [[nodiscard]] Result<TensorMap> Predict(const TensorMap& inputs, State* state = nullptr, EngineCall call = {}) const;
  /// The same on a thread of its own. `inputs` and the handle of the state are copied; the backings are locked until it
  /// is done.
  [[nodiscard]] std::future<Result<TensorMap>> PredictAsync(TensorMap inputs, State state, EngineCall call = {}) const;

  /// Why `function` runs on the reference interpreter; empty when it is planned. Plans it for its default shapes.
  [[nodiscard]] Result<std::string> WhyNotPlanned(std::string_view function = {}) const;

  [[nodiscard]] EngineCounters counters() const;
  [[nodiscard]] WeightCounts weight_counts() const;
  /// Starts to time every step anew (which costs a little), or stops.
  void SetProfiling(bool on);
  /// The steps of every plan used since profiling began, in order.
  [[nodiscard]] std::vector<ProfileEntry> Profile() const;

 private:
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace milwright

#endif  // MILWRIGHT_ENGINE_H_
