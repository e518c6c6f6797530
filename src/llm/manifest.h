// milwright.json: what lies in a built folder, and how to run it (docs/build-manifest.md).
#ifndef MILWRIGHT_LLM_MANIFEST_H_
#define MILWRIGHT_LLM_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/contract.h"
#include "llm/model_plan.h"
#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

inline constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "milwright.json";
/// The sidecar of per-layer embeddings (Gemma 4), whatever the contract.
inline constexpr std::string_view kPerLayerSidecar = "embed_per_layer.bin";

/// What the columns of a mask stand for.
enum class MaskColumns : uint8_t {
  kAbsolute,  ///< column c is position c
  kRing,      ///< column c holds the last position written that is c modulo the window
  kShift,     ///< the last column is the last position of the call, and so on backwards
};

/// An input or output of a function.
struct ManifestFeature {
  FeatureKind kind = FeatureKind::kTokenIds;
  std::string name;
  TensorType type;
  int64_t index = -1;                            ///< deepstack and logits slice number; layer of a shared K or V
  std::string table;                             ///< cosine, sine: name of the rotary table
  MaskColumns columns = MaskColumns::kAbsolute;  ///< masks
  int64_t window = 0;                            ///< masks: positions that a token sees; 0: all up to its own
};

/// A cache that goes through inputs and outputs.
struct ManifestCache {
  std::string input;
  std::string output;
  TensorType type;        ///< of the input
  bool new_only = false;  ///< the output holds the new columns only: to be written at the position, on axis 2
};

struct ManifestFunction {
  std::string name;     ///< function name within its package
  std::string package;  ///< path of the package below the folder
  int64_t length = 1;   ///< tokens; kUnknownDim: any
  std::vector<ManifestFeature> inputs;
  std::vector<ManifestFeature> outputs;
  std::vector<ManifestCache> caches;
  std::vector<std::string> states;
};

/// A step of the pipeline: an embedding, a chunk of layers, a head. Functions of one stage share its states.
struct ManifestStage {
  PackageRole role = PackageRole::kBody;
  int64_t first_layer = 0;
  int64_t last_layer = 0;  ///< exclusive
  std::vector<ManifestFunction> functions;
};

/// A table beside the packages: rows of fp16 numbers, little endian, without a header.
struct ManifestSidecar {
  std::string file;
  int64_t rows = 0;
  int64_t columns = 0;
  double scale = 1;  ///< the host multiplies rows by it
};

struct ManifestProvenance {
  std::string tool;                            ///< "milwright 0.1.0"
  std::string checkpoint;                      ///< name of the checkpoint's folder
  std::string checkpoint_hash;                 ///< SHA-256 of its tensors (CheckpointHash); empty when not computed
  std::map<std::string, std::string> options;  ///< as on the command line
  std::vector<std::string> ignored_tensors;    ///< "NAME: reason"
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

struct Manifest {
  std::string contract;
  std::string family;
  int64_t context_length = 0;
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t window = 0;  ///< of sliding layers; 0: none
  double mask_fill = -1e4;
  bool shared_state = false;  ///< one state object, made by the first stage, goes through all stages
  bool ring_limit = false;    ///< position modulo window + tokens must not exceed the window (update form ring)
  std::vector<int64_t> eos_ids;
  std::vector<RopeTable> ropes;       ///< of the cosine and sine inputs
  std::vector<ManifestStage> stages;  ///< in running order
  std::optional<ManifestSidecar> embedding;
  std::optional<ManifestSidecar> per_layer_embedding;
  std::vector<std::string> tokenizer_files;  ///< copied beside, by name
  ManifestProvenance provenance;
};

/// Reads `folder`/milwright.json. kUnreadable: missing, malformed, or of a newer version; paths in it that lead
/// outside the folder are refused.
Result<Manifest> ReadManifest(const std::string& folder);
Result<Manifest> ParseManifest(const std::string& text, const std::string& source);
/// The JSON text; ParseManifest reads it back.
std::string FormatManifest(const Manifest& manifest);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_MANIFEST_H_
