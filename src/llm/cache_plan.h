// Where the caches of a build live: state layout × update form.
#ifndef MILWRIGHT_LLM_CACHE_PLAN_H_
#define MILWRIGHT_LLM_CACHE_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "llm/build_options.h"
#include "llm/contract.h"
#include "llm/model_plan.h"
#include "milwright/type.h"

namespace milwright {

/// The caches as a build wants them: options with the contract's defaults filled in.
struct CacheChoice {
  LayoutOption layout;
  SlotOrder order = SlotOrder::kInterleaved;
  CacheUpdate update = CacheUpdate::kSlice;
  CacheStorage hybrid = CacheStorage::kExplicitWhole;  ///< of conv and recurrent caches
  int64_t context_length = 0;
  DataType explicit_dtype = DataType::kFp16;              ///< of explicit K and V
  DataType hybrid_dtype = DataType::kFp16;                ///< of explicit conv and recurrent caches
  DataType compute = DataType::kFp16;                     ///< of the graph
  HybridPrecision precision = HybridPrecision::kRounded;  ///< of conv and recurrent caches in fp16
};

/// Checks the combination against the validity table and fills in defaults. kUsage with the reason when it is not
/// possible. `warnings` gets one line for each choice that is known to fail on some device, citing the rule of the
/// checker, `notes` what happens otherwise than asked (ring: full layers use slice).
Result<CacheChoice> ChooseCaches(const ModelPlan& plan, const Contract& contract, const ContractForm& form,
                                 const BuildOptions& options, std::vector<std::string>& warnings,
                                 std::vector<std::string>& notes);

/// One cache: a state, or an input with an output.
struct CacheBuffer {
  std::string name;
  TensorType type;
  CacheStorage storage = CacheStorage::kState;
  std::string output_name;  ///< explicit only
  bool halves = false;      ///< two rows for each layer, which make its values together (HybridPrecision)

  [[nodiscard]] int64_t rows_per_layer() const { return halves ? 2 : 1; }
};

/// A row of a buffer (axis 0), the first of two in a buffer of halves.
struct CacheSlot {
  int buffer = -1;
  int64_t row = 0;
  [[nodiscard]] bool exists() const { return buffer >= 0; }
};

struct LayerCache {
  CacheSlot key, value;       ///< attention
  CacheSlot conv, recurrent;  ///< hybrids
  CacheUpdate update = CacheUpdate::kSlice;
  int64_t columns = 0;  ///< how many positions the K and V rows hold
};

struct CachePlan {
  std::vector<CacheBuffer> buffers;
  std::map<int64_t, LayerCache> layers;  ///< of the layers that own a cache
};

/// Whether the model has conv or recurrent caches that keep less than the graph computes when they round it to fp16.
bool HasRoundedCaches(const ModelPlan& plan, const CacheChoice& choice);

/// Update form of one layer: ring and shift apply to sliding layers only.
CacheUpdate LayerUpdate(const ModelPlan& plan, const CacheChoice& choice, int64_t layer);
/// Positions that a layer's cache holds: the window for ring and shift, else the context length.
int64_t LayerColumns(const ModelPlan& plan, const CacheChoice& choice, int64_t layer);

/// Lays out the caches of the layers `first` .. `last` (exclusive).
Result<CachePlan> PlanCaches(const ModelPlan& plan, const ContractForm& form, const CacheChoice& choice, int64_t first,
                             int64_t last);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_CACHE_PLAN_H_
