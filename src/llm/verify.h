// Verification: how near the logits of built packages are to a reference, and how well they predict a text.
#ifndef MILWRIGHT_LLM_VERIFY_H_
#define MILWRIGHT_LLM_VERIFY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/pipeline.h"
#include "milwright/status.h"

namespace milwright {

/// Tokens with the logits that follow each of them.
struct GoldenLogits {
  std::vector<int64_t> tokens;
  std::vector<float> logits;  ///< [tokens, vocabulary], row by row
  int64_t vocabulary = 0;
};

/// Reads a golden file (.safetensors or .npz): `input_ids`, then `gen_ids` when present, with `full_logits`, else
/// `logits`. kUnreadable when the arrays are missing or their sizes do not fit together.
Result<GoldenLogits> ReadGoldenLogits(const std::string& path);

/// The logits of `pipeline` for `tokens`, from a fresh start: `max_length` limits the tokens of a call (1: step by
/// step; 0: as the functions allow). kPrecondition when the build gives no logits for every token.
Result<GoldenLogits> RunLogits(Pipeline& pipeline, std::span<const int64_t> tokens, int64_t max_length = 0);

/// One row (one position) of a comparison.
struct LogitRow {
  double max_error = 0;
  double mean_error = 0;
  double cosine = 0;
  double kl = 0;      ///< KL(reference || actual) of the softmax distributions, in nats
  double margin = 0;  ///< reference: best minus second best
  int64_t reference_top = 0;
  int64_t actual_top = 0;
  int64_t top_k_shared = 0;  ///< of the reference's best k, how many are among the actual best k
};

struct LogitComparison {
  int64_t k = 5;
  std::vector<LogitRow> rows;
  double max_error = 0;
  double mean_error = 0;
  double min_cosine = 1;
  double mean_kl = 0;
  double max_kl = 0;
  int64_t top_1_equal = 0;
  int64_t top_1_wrong =
      0;  ///< top tokens that differ although the reference's margin exceeds twice the largest error allowed
  double top_k_agreement = 0;  ///< mean share
};

/// Compares row by row. `allowed_error` decides which differing top tokens count as wrong (two logits may each move by
/// it). kUsage when the sizes differ. A NaN in `actual` makes the errors of its row infinite.
Result<LogitComparison> CompareLogits(const GoldenLogits& actual, const GoldenLogits& reference, double allowed_error,
                                      int64_t k = 5);

/// How well a model predicts token sequences: each sequence from a fresh start, every token but the first predicted.
struct Perplexity {
  int64_t predictions = 0;
  double loss = 0;  ///< mean negative log likelihood, in nats
  [[nodiscard]] double value() const;
};
Result<Perplexity> MeasurePerplexity(Pipeline& pipeline, const std::vector<std::vector<int64_t>>& sequences);

/// Reads token sequences from a JSON file: an array of ids, or an array of such arrays.
Result<std::vector<std::vector<int64_t>>> ReadTokenSequences(const std::string& path);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_VERIFY_H_
