// BuildCheckpoint: a Hugging Face checkpoint becomes a folder of Core ML packages.
#ifndef MILWRIGHT_LLM_BUILD_H_
#define MILWRIGHT_LLM_BUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "llm/build_options.h"
#include "llm/checkpoint.h"
#include "llm/function_context.h"
#include "llm/manifest.h"
#include "mil/model.h"

namespace milwright {

/// What a build did, for printing.
struct BuildReport {
  std::string family;
  std::string output;
  struct Package {
    std::string path;  ///< below the output folder
    uint64_t bytes = 0;
  };
  std::vector<Package> packages;
  std::vector<std::string> other_files;  ///< manifest, sidecars, tokenizer
  uint64_t checkpoint_bytes = 0;
  double seconds = 0;
  std::vector<IgnoredTensor> ignored;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// Builds. Errors: kUsage (options that do not go together, with the reason), kUnreadable (checkpoint files),
/// kPrecondition (config keys or tensors that the family does not support, named), kIo. Packages are replaced one by
/// one, each whole; the manifest comes last.
Result<BuildReport> BuildCheckpoint(const BuildOptions& options);

/// The plan of a build: what BuildCheckpoint does before it writes anything.
Result<BuildPlan> PlanBuild(const BuildOptions& options, const ModelPlan& model, const CheckpointTensors& tensors,
                            std::vector<std::string>& warnings, std::vector<std::string>& notes);

/// One package: the named functions of one stage, as a model in memory whose weights are borrowed from `weights`.
/// Appends the functions' manifest entries.
Result<ModelSpec> BuildPackage(const BuildPlan& build, const StageSpec& stage,
                               const std::vector<FunctionOption>& functions, WeightSource& weights,
                               std::vector<ManifestFunction>& entries);

/// Checks a package's description against the contract: every input, output and state is the contract's by name, data
/// type and shape, and nothing of it is left over. kInternal otherwise.
Status CheckContract(const ModelSpec& spec, const std::vector<ManifestFunction>& functions);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_BUILD_H_
