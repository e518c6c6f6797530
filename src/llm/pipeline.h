// Pipeline: runs a built folder from its manifest, over any engine that can predict.
#ifndef MILWRIGHT_LLM_PIPELINE_H_
#define MILWRIGHT_LLM_PIPELINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "llm/manifest.h"
#include "milwright/engine.h"
#include "milwright/model.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// A loaded package that predicts. Implementations: the reference interpreter (below), faster engines elsewhere.
class PackageEngine {
 public:
  virtual ~PackageEngine() = default;
  /// New states, all zero.
  virtual Result<State> MakeState() = 0;
  /// The program, for analysis.
  [[nodiscard]] virtual const ModelSpec& spec() const = 0;
  /// One prediction of `function`; `state` is null when the package has no states.
  virtual Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) = 0;
  /// The same where of outputs `last_rows` ([.., rows, columns]) only the last row is wanted; they may come whole.
  virtual Result<TensorMap> PredictLast(const std::string& function, const TensorMap& inputs, State* state,
                                        const std::vector<std::string>& last_rows) {
    static_cast<void>(last_rows);
    return Predict(function, inputs, state);
  }
};

/// Opens the package at a path.
using EngineLoader = std::function<Result<std::unique_ptr<PackageEngine>>(const std::string& path)>;
/// Packages run by the reference interpreter (Model::Predict).
EngineLoader ReferenceEngine();
/// `engine` as what a pipeline runs on.
std::unique_ptr<PackageEngine> MakePackageEngine(Engine engine);
/// Packages run by Engine.
EngineLoader FastEngine(const EngineOptions& options = {});

/// What a call gives. Which members are filled depends on the head that the build has.
struct StepResult {
  /// [rows, vocabulary] row by row, one for each token of the call, or one for the last token when the contract gives
  /// no more; empty when the head gives no logits.
  std::vector<float> logits;
  int64_t logit_rows = 0;
  std::optional<int64_t> next_token;  ///< heads argmax and topk
  std::vector<int64_t> top_tokens;    ///< head topk, of the last token
  std::vector<float> top_logits;
};

/// Embedded image tokens and their features, for families that take them (Qwen3-VL).
struct ImageFeatures {
  std::vector<float> embeddings;              ///< [rows, hidden]: replace the embeddings of the image tokens, in order
  std::vector<std::vector<float>> deepstack;  ///< per deepstack layer [rows, hidden]
  std::vector<bool> is_image;                 ///< for every token of the prompt
};

struct PipelineCall;  // pipeline_inputs.h

/// Which logits of a prefill are wanted.
enum class LogitRows : uint8_t {
  kAll,   ///< of every token, as far as the build gives them
  kLast,  ///< of the last token only
};

/// Whether a cache can go back to an earlier position, from the analysis of the program that updates it.
struct CacheRewind {
  enum class Kind : uint8_t {
    kAnywhere,  ///< slots by position: later ones are masked, and overwritten when their turn comes
    kRing,      ///< slots by position modulo `slots`: only as long as nothing that is still seen was overwritten
    kNever,     ///< shifted, recurrent, convolutional: what was dropped does not come back
  };
  std::string name;
  Kind kind = Kind::kNever;
  int64_t slots = 0;   ///< ring
  int64_t window = 0;  ///< ring: positions that a token sees, its own included
};

/// One conversation over a built folder: caches and position. Not thread-safe; several pipelines may share the engines'
/// packages.
class Pipeline {
 public:
  /// Reads the manifest of `folder`, or finds it from the packages (detect.h), and opens them. kUnreadable: a package
  /// that is not the one the manifest speaks of.
  static Result<std::unique_ptr<Pipeline>> Open(const std::string& folder, const EngineLoader& loader);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  /// Tokens processed so far: the position of the next one.
  [[nodiscard]] int64_t position() const { return position_; }

  /// Forgets everything: caches are zero, the position is 0.
  Status Reset();

  /// Runs `tokens` behind what was run before, in calls as long as the functions allow (`max_length` > 0 limits them),
  /// and gives the results of all calls together. `positions`, when given, are the three positions of each token
  /// (M-RoPE); else all three are the token's index. kUsage: beyond the context length, a token outside the vocabulary,
  /// no function short enough.
  Result<StepResult> Prefill(std::span<const int64_t> tokens, int64_t max_length = 0,
                             std::span<const std::array<int64_t, 3>> positions = {},
                             const ImageFeatures* image = nullptr);
  /// Which logits StepResult holds from now on; all at first.
  void SetLogitRows(LogitRows rows) { logit_rows_ = rows; }
  /// Runs one token.
  Result<StepResult> Step(int64_t token) { return Prefill(std::span(&token, 1)); }

  /// Every state and explicit cache with how it can be rewound, decided from the programs (not from the model's name).
  [[nodiscard]] const std::vector<CacheRewind>& cache_rewinds() const { return rewinds_; }
  /// Whether all caches can go back to `position` (at most the current one).
  [[nodiscard]] bool CanRewind(int64_t position) const;
  /// Goes back to `position`. kPrecondition names the cache that cannot.
  Status Rewind(int64_t position);
  /// Goes on to `position` as if tokens had been run until there; the caches hold what they held. For measurements of
  /// what a step costs at a fill level. kUsage: beyond the context length.
  Status SkipTo(int64_t position);

  /// The explicit caches and states as they are, to come back to (prefix reuse).
  struct Snapshot {
    int64_t position = 0;
    std::vector<State> states;
    std::vector<TensorMap> caches;
  };
  Result<Snapshot> Save() const;
  Status Restore(const Snapshot& snapshot);

 private:
  struct Stage {
    const ManifestStage* manifest = nullptr;
    std::map<std::string, std::shared_ptr<PackageEngine>> engines;  ///< by package path
    bool has_state = false;
    State state;
    TensorMap caches;  ///< explicit caches by input name
  };
  Pipeline(Manifest manifest, std::string folder) : manifest_(std::move(manifest)), folder_(std::move(folder)) {}

  Status OpenSidecars();
  void FindRewinds();
  /// The longest call possible now for `remaining` tokens.
  Result<int64_t> NextLength(int64_t remaining, int64_t max_length) const;
  Status RunCall(const PipelineCall& call, StepResult& result);
  /// `passed`: outputs of earlier stages by PassedName.
  Result<TensorMap> RunStage(Stage& stage, const ManifestFunction& function, const PipelineCall& call,
                             const TensorMap& passed);
  Status RunHead(Stage& stage, const ManifestFunction& function, const PipelineCall& call, const TensorMap& passed,
                 StepResult& result);
  Result<Tensor> MakeInput(const ManifestFeature& feature, const PipelineCall& call, const TensorMap& passed) const;
  Status KeepCaches(Stage& stage, const ManifestFunction& function, const TensorMap& outputs) const;
  Status Collect(const ManifestFunction& function, const TensorMap& outputs, int64_t length, StepResult& result) const;

  Manifest manifest_;
  std::string folder_;
  std::vector<Stage> stages_;
  std::shared_ptr<const MappedFile> embedding_;
  std::shared_ptr<const MappedFile> per_layer_embedding_;
  std::vector<CacheRewind> rewinds_;
  int64_t position_ = 0;
  LogitRows logit_rows_ = LogitRows::kAll;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_PIPELINE_H_
