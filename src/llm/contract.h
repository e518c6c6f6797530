// Contracts: the names and shapes that host runtimes expect of packages, as data (contracts.md;
// docs/contract-files.md).
#ifndef MILWRIGHT_LLM_CONTRACT_H_
#define MILWRIGHT_LLM_CONTRACT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/build_options.h"
#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

/// What a feature of a package carries. The pipeline knows how to produce or consume each of them.
enum class FeatureKind : uint8_t {
  kTokenIds,        ///< int32 token ids
  kHidden,          ///< residual stream: embedded tokens, or what the chunk before gave
  kPosition,        ///< int32 [1]: index of the first token, where its cache column is written
  kPositionIds,     ///< int32 [T]: index of each token
  kMropePositions,  ///< int32 [3, T]: temporal, height and width position of each token
  kMask,            ///< additive mask of full layers; of all layers when the contract has no sliding mask
  kSlidingMask,     ///< additive mask of sliding layers
  kUpdateMask,      ///< one-hot matrix, columns to tokens: where update form mask writes
  kRingPosition,    ///< int32 [1]: position modulo the window
  kCosine,          ///< rotary tables' rows of these tokens
  kSine,
  kPerLayerInputs,    ///< rows of the per-layer embedding table, scaled (Gemma 4)
  kPerLayerCombined,  ///< per-layer inputs as the layers use them, made by the first chunk
  kDeepstack,         ///< image features added after the first layers (Qwen3-VL), zero at text positions
  kVisualMask,        ///< 1 at image positions
  kVisualActive,      ///< 1 when there is any image
  kSharedKey,         ///< K and V of a layer that layers of other chunks attend to
  kSharedValue,
  kLogits,
  kNextToken,     ///< argmax of the logits
  kTokenLogit,    ///< the largest logit
  kNormedHidden,  ///< hidden state behind the final norm
  kTopValues,
  kTopIndices,
};

inline bool IsMask(FeatureKind kind) { return kind == FeatureKind::kMask || kind == FeatureKind::kSlidingMask; }
std::string_view FeatureKindName(FeatureKind kind);
std::optional<FeatureKind> FeatureKindFromName(std::string_view name);

/// What a package of a build holds.
enum class PackageRole : uint8_t { kEmbedding, kBody, kHead };
std::string_view PackageRoleName(PackageRole role);
std::optional<PackageRole> PackageRoleFromName(std::string_view name);

/// An input or output. Shapes are in the symbols T (tokens), C (context length), W (columns of sliding caches), S
/// (columns of a shared cache), R (rotary size), k (top-k) and those of PlanSymbols.
struct ContractFeature {
  FeatureKind kind;
  std::string name;  ///< "{n}": which deepstack layer or logits slice, "{j}": which layer's K and V
  std::string shape;
  std::string table = {};                ///< kCosine, kSine: RopeTable::name that it is for; "*": any
  std::optional<PackageRole> role = {};  ///< only in packages of this role; absent: in all
  std::optional<DataType> dtype = {};    ///< absent: by kind (int32, or fp16)
};

/// Which cache of a layout a name is for.
enum class CacheGroup : uint8_t {
  kKeys,  ///< kv-pair
  kValues,
  kKeysValues,  ///< unified
  kLayerKeys,   ///< per-layer
  kLayerValues,
  kFull,  ///< by-role
  kSliding,
  kConv,  ///< stacked over the layers that have one
  kRecurrent,
  kLayerConv,  ///< one for each layer
  kLayerRecurrent,
};
std::string_view CacheGroupName(CacheGroup group);
std::optional<CacheGroup> CacheGroupFromName(std::string_view name);
/// Whether caches of the group are of conv or recurrent layers. They may have twice the rows of the contract's shape
/// (HybridPrecision::kHalves).
constexpr bool IsHybrid(CacheGroup group) {
  return group == CacheGroup::kConv || group == CacheGroup::kRecurrent || group == CacheGroup::kLayerConv ||
         group == CacheGroup::kLayerRecurrent;
}

/// Shapes are in n (layers in the cache), K, D (the largest of these layers), Dmax (of all layers), C, W, channels,
/// taps, nv, dk, dv. "{i}": the layer.
struct CacheNames {
  std::string name;
  std::string shape;
  std::string whole_output;  ///< when explicit
  std::string new_output;
};

/// The contract as it applies to some families.
struct ContractForm {
  std::vector<std::string> families;    ///< empty: those that no other form names
  std::vector<ContractFeature> inputs;  ///< in the order in which a function declares them
  std::vector<ContractFeature> outputs;
  std::map<CacheGroup, CacheNames> caches;
  bool separate_head = false;  ///< the head is a package of its own
  bool separate_embedding = false;
  LayoutOption layout;  ///< the default
  CacheUpdate update = CacheUpdate::kSlice;
  EmbeddingKind embedding = EmbeddingKind::kInGraph;
  HeadKind head = HeadKind::kLogits;

  [[nodiscard]] const ContractFeature* FindInput(FeatureKind kind, PackageRole role, std::string_view table = {}) const;
  [[nodiscard]] const ContractFeature* FindOutput(FeatureKind kind, PackageRole role) const;
};

struct Contract {
  std::string name;
  std::string description;
  std::vector<ContractForm> forms;
  std::string decode_function;   ///< name of the function of one token; empty: as --functions says
  std::string prefill_function;  ///< "{T}": its length
  /// Names of packages without their suffix: "{k}" the chunk (from 0), "{k1}" (from 1), "{n}" the number of chunks,
  /// "{letter}" a, b, c, ..., "{prefix}" the output folder's name. `single_package` when there is one in all.
  std::string single_package = "model";
  std::string body_package = "chunk_{k}";
  std::string embedding_package = "embedding";
  std::string head_package = "head";
  std::string embedding_sidecar = "embed_weight.bin";
  bool state_over_all_layers = false;  ///< every chunk declares one state with the rows of all layers
  bool flexible_length = false;        ///< functions take any number of tokens
  bool meta_yaml = false;              ///< write ANEMLL's meta.yaml
  bool head_sidecars = false;          ///< write final_norm.bin and head_meta.json (Qwen3.5 of CoreML-LLM)
  double mask_fill = -1e4;             ///< what masks hold at positions that are not seen

  /// The form for `family`; null when the contract excludes it.
  [[nodiscard]] const ContractForm* FormFor(std::string_view family) const;
};

/// The contracts that come with milwright.
std::span<const Contract> KnownContracts();
/// A known contract by name, or one read from a JSON file when `name` ends in ".json". kUsage: not known;
/// kUnreadable: no such file; kPrecondition: malformed, with the place.
Result<Contract> FindContract(const std::string& name);
/// Reads a contract from JSON text; `source` is for messages. The format: docs/contract-files.md.
Result<Contract> ParseContract(const std::string& text, const std::string& source);
/// The JSON of a contract, which ParseContract reads back.
std::string FormatContract(const Contract& contract);

/// The data type of a feature in a build that computes in `compute`: fp16 features other than masks follow it.
DataType FeatureDataType(const ContractFeature& feature, DataType compute);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_CONTRACT_H_
