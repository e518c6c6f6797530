// Choosing the next token from the logits of a model.
#ifndef MILWRIGHT_TOKENIZER_SAMPLER_H_
#define MILWRIGHT_TOKENIZER_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/random.h"

namespace milwright {

struct SamplingOptions {
  double temperature = 0;         ///< logits are divided by it; 0: greedy, the filters below have no effect
  int32_t top_k = 0;              ///< keep the k most probable tokens; 0: all
  double top_p = 1;               ///< keep the fewest most probable tokens whose sum reaches it; 1: all
  double min_p = 0;               ///< keep tokens at least this times as probable as the most probable one; 0: all
  double repetition_penalty = 1;  ///< for every token so far: logits above 0 are divided by it, others multiplied
  uint64_t seed = 0;
};

/// Changes `logits` (one per token id) in place, given the ids so far. -infinity forbids a token.
using LogitsProcessor = std::function<Status(std::span<const int32_t> ids, std::span<float> logits)>;

/// Samples ids one by one. In this order: the added processors, repetition penalty, temperature, top_k, top_p, min_p
/// (each on what the ones before left), as in `transformers`. The same options and logits give the same ids everywhere.
class Sampler {
 public:
  /// Fails for options out of range.
  static Result<Sampler> Create(const SamplingOptions& options);

  void AddProcessor(LogitsProcessor processor) { processors_.push_back(std::move(processor)); }

  /// The next id. `ids` are those so far, prompt and answer. Of equally probable tokens greedy takes the lowest id.
  /// NaN, +infinity, or nothing but -infinity is an error.
  Result<int32_t> Sample(std::span<const float> logits, std::span<const int32_t> ids);

  /// The state of the random numbers: a sampler with this as seed goes on in the same way.
  [[nodiscard]] uint64_t random_state() const { return random_.state(); }

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  void Penalize(std::span<const int32_t> ids);
  int32_t SampleFiltered(float highest);

  SamplingOptions options_;
  SplitMix64 random_;
  std::vector<LogitsProcessor> processors_;
  std::vector<float> logits_;  ///< the working copy
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_SAMPLER_H_
