// Building a checkpoint and holding the result to its golden logits.
#ifndef MILWRIGHT_TESTS_LLM_GOLDEN_H_
#define MILWRIGHT_TESTS_LLM_GOLDEN_H_

#include <string>
#include <vector>

#include "llm/build.h"
#include "llm/pipeline.h"

namespace milwright::testing {

/// A folder that goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Tokens with the logits behind each of them.
struct Golden {
  std::vector<int64_t> tokens;
  std::vector<float> logits;  ///< [tokens, vocabulary]
  int64_t vocabulary = 0;
};

/// Folder of a checkpoint: ../shared/checkpoints/NAME, or examples/NAME; empty when it is in neither.
std::string FindCheckpoint(const std::string& name);
/// Whether every combination is asked for (MILWRIGHT_FULL_TESTS=1), not only a sample.
bool FullTests();

/// golden.safetensors: input_ids and gen_ids with full_logits; without gen_ids, input_ids with logits.
Result<Golden> ReadGolden(const std::string& checkpoint);

/// How logits compare.
struct Difference {
  double max = 0;
  double mean = 0;
  int64_t rows = 0;
  int64_t wrong_top = 0;  ///< rows whose argmax differs though the reference's margin exceeds the one asked for
};
Difference Compare(const std::vector<float>& logits, const std::vector<float>& reference, int64_t vocabulary,
                   double margin);

/// Options of a build that is looked at once: not flushed to the disk, and its checkpoint not hashed.
BuildOptions QuickBuild(const std::string& checkpoint, const std::string& output);

/// Logits of all `tokens` by a built folder, in calls of at most `max_length` tokens (0: as long as functions allow).
Result<std::vector<float>> RunFolder(const std::string& folder, const std::vector<int64_t>& tokens,
                                     const EngineLoader& loader, int64_t max_length = 0);
/// Those of the golden's tokens, by the reference.
Result<std::vector<float>> RunFolder(const std::string& folder, const Golden& golden, int64_t max_length = 0);

/// Builds into `folder`, and runs all tokens in calls of at most `max_length` tokens (0: as long as functions allow).
Result<std::vector<float>> BuildAndRun(const BuildOptions& options, const Golden& golden, int64_t max_length = 0);

/// Largest difference as a share of 1 + the largest of `expected`; infinite when sizes differ or a number is no number.
double Deviation(const std::vector<float>& logits, const std::vector<float>& expected);

/// Bound on the Deviation of Numerics::kStrict from the reference. Strict rounds as the reference does and sums in
/// another order: a value may round to the neighbouring fp16 number, 2^-11 of it, in each of a few dozen operations of
/// a layer, and these errors add up like a random walk over the layers of tiny networks: 2^-11 * sqrt(6 layers * 30
/// operations) = 6.5e-3.
inline constexpr double kStrictBound = 6.5e-3;
/// What it grows by for Qwen3.5, whose gated recurrence feeds errors back from token to token: checkpoints/README.md
/// allows it ten times the error of the others.
inline constexpr double kRecurrenceFactor = 10;

/// Names of all checkpoints with golden logits.
const std::vector<std::string>& CheckpointNames();
/// The bound on fp32 logits with fp32 explicit caches (checkpoints/README.md).
double Fp32Bound(const std::string& checkpoint);

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_LLM_GOLDEN_H_
