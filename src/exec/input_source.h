// Inputs of a decode run: consistent from step to step, drawn by kind, with the caches that a host copies back.
#ifndef MILWRIGHT_EXEC_INPUT_SOURCE_H_
#define MILWRIGHT_EXEC_INPUT_SOURCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "analysis/input_kind.h"
#include "mil/model.h"
#include "milwright/model.h"

namespace milwright {

struct InputSourceOptions {
  uint64_t seed = 0;
  InputKindChoices kinds;    ///< --input-kind
  int64_t query_length = 0;  ///< T of functions whose shapes leave it open; 0: the smallest that the package allows
};

/// A host that feeds the functions of one package: step after step, T tokens each, at positions 0, 1, 2, ...
///
/// Values depend on the seed, the step and the input's name alone, so two packages with the same interface get the same
/// inputs. Masks hide with -1e4 (bool masks with false), rotary inputs are cosines and sines of real angles (base
/// 10000, the two halves of the last dimension alike), tokens are uniform below the vocabulary, hidden values are
/// normal, free floats uniform in [-1, 1), free integers and bools 0 or 1. Caches start at zero and are taken back from
/// the outputs: whole, or their new rows written at position mod length (shifted in where the mask says so).
class InputSource {
 public:
  /// `spec` must outlive the source. kUsage: a choice that names no input of any function or does not fit.
  static Result<InputSource> Make(const ModelSpec& spec, const InputSourceOptions& options);

  /// The inputs of one step of `function` at the present position. Errors: no such function; kUsage when the context
  /// has no room for another step.
  [[nodiscard]] Result<TensorMap> Draw(std::string_view function) const;
  /// Takes what the step gave back: copies caches and moves on by T positions. kRuntime: a cache's output is missing.
  Status Accept(std::string_view function, const TensorMap& outputs);
  /// Back to position 0 and zero caches; values are drawn anew from `seed`.
  Status Restart(uint64_t seed);

  /// Whether another step of `function` fits into the context.
  [[nodiscard]] bool HasRoom(std::string_view function) const;
  [[nodiscard]] int64_t position() const { return position_; }
  /// T of `function`, as drawn.
  [[nodiscard]] int64_t QueryLength(std::string_view function) const;
  /// What is known of the inputs of `function`; null when there is none of that name.
  [[nodiscard]] const FunctionInputs* Inputs(std::string_view function) const;
  /// The caches that the host holds now, by input name.
  [[nodiscard]] const TensorMap& caches() const { return caches_; }

  /// Draws input `input` as if it were named `key`, so that a renamed input gets the values of the other's.
  void SetKey(const std::string& input, std::string key) { keys_[input] = std::move(key); }

 private:
  struct FunctionPlan {
    const FunctionDescription* description = nullptr;
    FunctionInputs inputs;
    int64_t query_length = 1;
  };
  InputSource() = default;
  [[nodiscard]] const FunctionPlan* Find(std::string_view function) const;
  [[nodiscard]] Shape ShapeOf(const FunctionPlan& plan, const InputFacts& facts) const;
  [[nodiscard]] Result<Tensor> DrawInput(const FunctionPlan& plan, const InputFacts& facts) const;

  std::map<std::string, FunctionPlan, std::less<>> plans_;
  std::map<std::string, std::string, std::less<>> keys_;
  TensorMap caches_;
  uint64_t seed_ = 0;
  int64_t position_ = 0;
  int64_t step_ = 0;
};

}  // namespace milwright

#endif  // MILWRIGHT_EXEC_INPUT_SOURCE_H_
