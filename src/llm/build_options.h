// Options of a build, and the parsers of their small languages.
#ifndef MILWRIGHT_LLM_BUILD_OPTIONS_H_
#define MILWRIGHT_LLM_BUILD_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

/// How K and V of the layers are grouped into caches (contracts.md, "simple").
enum class StateLayout : uint8_t {
  kKvPair,    ///< one cache for all K, one for all V
  kUnified,   ///< one cache for both
  kPerLayer,  ///< a K and a V cache for each layer
  kByRole,    ///< one cache for full layers, one for sliding layers, and stacked caches of conv and recurrent layers
};

/// Where a cache lives.
enum class CacheStorage : uint8_t {
  kState,
  kExplicitWhole,  ///< an input, and an output with the whole cache
  kExplicitNew,    ///< an input, and an output with the new columns only
};

/// Rows of a unified cache.
enum class SlotOrder : uint8_t {
  kInterleaved,  ///< K of layer i at 2i, V at 2i+1
  kSplit,        ///< K of layer i at i, V at layers + i
};

enum class CacheUpdate : uint8_t {
  kSlice,  ///< slice_update at the position
  kMask,   ///< blend with a one-hot matrix
  kRing,   ///< sliding layers: slice_update at the position modulo the window
  kShift,  ///< sliding layers: drop the oldest columns, append the new ones
};

/// What fp16 conv and recurrent caches keep of fp32 values: recurrent states are computed in fp32 in every build, conv
/// windows in fp32 builds.
enum class HybridPrecision : uint8_t {
  kRounded,  ///< the values rounded to fp16 at every call, in the contract's shape
  kHalves,   ///< a sum of two fp16 numbers for each, in twice the rows (docs/build.md)
};

enum class GraphStyle : uint8_t { kAne, kPlain };
enum class HeadKind : uint8_t { kLogits, kArgmax, kTopK };
enum class EmbeddingKind : uint8_t { kInGraph, kSidecar };

/// A layout together with its storage, as `--state-layout` says it.
struct LayoutOption {
  StateLayout layout = StateLayout::kKvPair;
  CacheStorage storage = CacheStorage::kState;
  std::optional<SlotOrder> order;  ///< unified and by-role; absent: the contract's
};

struct HeadOption {
  HeadKind kind = HeadKind::kLogits;
  int64_t k = 1;  ///< topk
};

/// A function of the package and the number of tokens it takes; `length` kUnknownDim: any (contract hf).
struct FunctionOption {
  std::string name;
  int64_t length = 1;
  bool operator==(const FunctionOption&) const = default;
};

/// Into how many packages the layers are split: a count, or a limit on the weight bytes of each.
struct ChunkOption {
  int64_t count = 1;
  int64_t max_bytes = 0;  ///< > 0: as many chunks as this needs; `count` is ignored
};

struct BuildOptions {
  std::string checkpoint;  ///< folder with config.json and *.safetensors
  std::string output;      ///< folder to make or to fill; its packages of the same names are replaced

  std::string contract = "simple";  ///< name of a known contract, or path of a contract file (docs/contract-files.md)
  std::optional<LayoutOption> layout;         ///< absent: the contract's
  std::optional<CacheUpdate> update;          ///< absent: the contract's
  std::optional<CacheStorage> hybrid_caches;  ///< conv and recurrent caches; absent: states in by-role, else explicit
  GraphStyle style = GraphStyle::kPlain;
  std::vector<FunctionOption> functions = {{"decode", 1}};
  bool separate_functions = false;  ///< a package for each function instead of several functions in one
  int64_t context_length = 512;
  ChunkOption chunks;
  std::optional<EmbeddingKind> embedding;  ///< absent: the contract's
  std::optional<HeadOption> head;          ///< absent: the contract's
  int64_t head_splits = 1;                 ///< contract anemll: logits1..N
  DataType compute = DataType::kFp16;      ///< kFp16 or kFp32
  std::optional<DataType> cache_dtype;     ///< of explicit K and V; absent: `compute`. States are fp16 in any case
  std::optional<DataType> hybrid_dtype;    ///< of explicit conv and recurrent caches; absent: `compute`
  std::optional<HybridPrecision> hybrid_precision;  ///< of those in fp16; absent: halves when `compute` is fp32
  Opset min_target = Opset::kIOS18;
  bool hash_checkpoint = true;     ///< provenance: SHA-256 of the checkpoint's tensors
  bool durable = true;             ///< wait until the disk has everything
  std::string tool = "milwright";  ///< provenance: name and version of the program
};

/// "kv-pair", "unified[:interleaved|:split]", "per-layer", "by-role[:...]", "explicit-io[:whole|:new][:LAYOUT]".
Result<LayoutOption> ParseLayout(std::string_view text);
/// "slice", "mask", "ring", "shift"
Result<CacheUpdate> ParseUpdate(std::string_view text);
/// "ane", "plain"
Result<GraphStyle> ParseStyle(std::string_view text);
/// "decode[:1],prefill:8": names with lengths; "any" as a length for contract hf. A name alone means 1.
Result<std::vector<FunctionOption>> ParseFunctions(std::string_view text);
/// "4", or a size such as "900MB", "1.2GB", "500000B"
Result<ChunkOption> ParseChunks(std::string_view text);
/// "in-graph", "sidecar-fp16"
Result<EmbeddingKind> ParseEmbedding(std::string_view text);
/// "logits", "argmax", "topk:40"
Result<HeadOption> ParseHead(std::string_view text);
/// "fp16", "fp32"
Result<DataType> ParseCompute(std::string_view text);
/// "state", "explicit"
Result<CacheStorage> ParseHybridCaches(std::string_view text);
/// "halves", "rounded"
Result<HybridPrecision> ParseHybridPrecision(std::string_view text);
/// "iOS18", "iOS26"
Result<Opset> ParseMinTarget(std::string_view text);

std::string_view LayoutName(StateLayout layout);
std::string_view UpdateName(CacheUpdate update);
std::string_view StyleName(GraphStyle style);
std::string_view StorageName(CacheStorage storage);
std::string_view SlotOrderName(SlotOrder order);
std::string_view HybridPrecisionName(HybridPrecision precision);
/// The text that ParseLayout reads back.
std::string LayoutText(const LayoutOption& layout);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_BUILD_OPTIONS_H_
