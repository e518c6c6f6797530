// The inputs that a host makes for one call: masks, rotary rows, positions, embeddings, image features.
#ifndef MILWRIGHT_LLM_PIPELINE_INPUTS_H_
#define MILWRIGHT_LLM_PIPELINE_INPUTS_H_

#include "llm/pipeline.h"

namespace milwright {

/// One call of a pipeline: which tokens, and where they stand.
struct PipelineCall {
  std::span<const int64_t> tokens;
  int64_t position = 0;                           ///< index of the first token
  std::vector<std::array<int64_t, 3>> positions;  ///< of each token, for rotary tables
  std::vector<int64_t> image_rows;                ///< row of the image's features for each token; -1: text
  const ImageFeatures* image = nullptr;

  [[nodiscard]] int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  [[nodiscard]] int64_t end() const { return position + length(); }
};

/// Under which key the pipeline passes an output of one stage to the inputs of later ones: kind and index.
std::string PassedName(const ManifestFeature& feature);

/// Type of a feature in this call: its second axis from behind, where unknown, has the call's tokens, its last one the
/// tokens so far.
TensorType CallType(const ManifestFeature& feature, const PipelineCall& call);

/// An additive mask as `feature` describes it: 0 where a token sees, `fill` elsewhere.
Result<Tensor> MakeMask(const ManifestFeature& feature, const PipelineCall& call, double fill);
/// Cosine or sine rows of `table`.
Result<Tensor> MakeRotary(const ManifestFeature& feature, const PipelineCall& call, const RopeTable& table);
/// The position modulo `ring`.
Result<Tensor> MakeRingPosition(const PipelineCall& call, int64_t ring);
/// Rows of a sidecar, scaled; for `hidden`, image tokens take the image's embeddings as they are.
Result<Tensor> MakeRows(const ManifestFeature& feature, const PipelineCall& call, const ManifestSidecar& sidecar,
                        const MappedFile& file);
/// Token ids, positions, update masks, image features: what follows from the call alone. kUsage for other kinds.
Result<Tensor> MakePlainInput(const ManifestFeature& feature, const PipelineCall& call);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_PIPELINE_INPUTS_H_
