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

/// Builds into `folder`, and runs all tokens in calls of at most `max_length` tokens (0: as long as functions allow).
Result<std::vector<float>> BuildAndRun(const BuildOptions& options, const Golden& golden, int64_t max_length = 0);
/// Runs a built folder.
Result<std::vector<float>> RunFolder(const std::string& folder, const Golden& golden, int64_t max_length = 0);

/// Names of all checkpoints with golden logits.
const std::vector<std::string>& CheckpointNames();
/// The bound on fp32 logits with fp32 explicit caches (checkpoints/README.md).
double Fp32Bound(const std::string& checkpoint);

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_LLM_GOLDEN_H_
