// What the layers of one function ask for: inputs by kind, positions, rotary tables, masks, caches.
#ifndef MILWRIGHT_LLM_FUNCTION_CONTEXT_H_
#define MILWRIGHT_LLM_FUNCTION_CONTEXT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llm/blocks.h"
#include "llm/cache_plan.h"
#include "llm/contract.h"
#include "llm/manifest.h"

namespace milwright {

/// The part of the model that a package holds.
struct StageSpec {
  PackageRole role = PackageRole::kBody;
  int64_t first_layer = 0;
  int64_t last_layer = 0;   ///< exclusive
  bool embeds = false;      ///< starts from token ids or, with a sidecar, from embedded tokens
  bool first_body = false;  ///< holds layer 0: makes per-layer inputs, adds learned positions
  bool heads = false;       ///< ends with the final norm and the head
};

/// Everything that the functions of a build have in common.
struct BuildPlan {
  ModelPlan model;
  Contract contract;
  ContractForm form;
  CacheChoice caches;
  GraphStyle style = GraphStyle::kPlain;
  DataType compute = DataType::kFp16;
  EmbeddingKind embedding = EmbeddingKind::kInGraph;
  HeadOption head;
  int64_t head_splits = 1;
  Opset opset = Opset::kIOS18;
  std::vector<StageSpec> stages;
};

/// Inputs are declared when they are first asked for, in the order of the contract, so that a function has exactly
/// those that it uses. Errors are kept in Blocks.
class FunctionContext {
 public:
  FunctionContext(Blocks& blocks, const BuildPlan& build, const StageSpec& stage, const CachePlan& caches,
                  ManifestFunction& manifest);

  [[nodiscard]] Blocks& blocks() { return blocks_; }
  [[nodiscard]] const BuildPlan& build() const { return build_; }
  [[nodiscard]] const StageSpec& stage() const { return stage_; }
  [[nodiscard]] const LayerPlan& layer(int64_t i) const { return build_.model.layers[static_cast<size_t>(i)]; }

  /// Whether the contract has this input in this package.
  [[nodiscard]] bool Offers(FeatureKind kind, std::string_view table = {}) const;
  /// The input, declared now or before. An error that names the contract when it has none of the kind. `index` fills
  /// "{n}" and "{j}"; `extra` adds shape symbols.
  Value* Input(FeatureKind kind, int64_t index = -1, std::string_view table = {}, const Symbols& extra = {});

  /// int32 [1]: position of the first token.
  Value* Start();
  /// int32 [T]: position of each token.
  Value* Positions();
  /// Cosine and sine rows [1, 1, T, r] of rotary table `rope`, in the compute type.
  std::pair<Value*, Value*> Rotary(int rope);

  /// K and V that a layer attends to, with the mask that goes with them; columns of K and V are those of the mask.
  struct View {
    Value* key = nullptr;
    Value* value = nullptr;
    Value* mask = nullptr;
  };
  /// Writes the new columns [1, K, T, d] of layer `layer` into its caches and gives what its queries see.
  View Update(int64_t layer, Value* key, Value* value);
  /// The view of a layer that owns K and V, for those that share it: of this chunk, or through inputs.
  View Shared(int64_t source);

  /// A conv or recurrent cache row in `shape`, and its replacement. Of a buffer of halves, the fp32 sum of the two.
  Value* ReadRow(const CacheSlot& slot, const Shape& shape);
  void WriteRow(const CacheSlot& slot, Value* value);
  /// fp32 `value` as it would come back from a buffer of halves; `value` itself when `slot` is in another one. So the
  /// tokens of one call see of each other what they would see over several calls.
  Value* ThroughHalves(const CacheSlot& slot, Value* value);
  [[nodiscard]] const LayerCache& cache(int64_t layer) const { return caches_.layers.at(layer); }

  /// The explicit caches' outputs, in buffer order; called once, behind all layers.
  struct CacheOutput {
    std::string name;
    Value* value;
  };
  std::vector<CacheOutput> Finish();

 private:
  struct Buffer {
    const CacheBuffer* plan = nullptr;
    Value* input = nullptr;           ///< the state or the input
    Value* current = nullptr;         ///< its content as of now; null: to be read (states)
    std::map<int64_t, Value*> fresh;  ///< new columns by row (kExplicitNew)
  };
  /// Part of a buffer row: leading heads, columns and entries.
  struct Region {
    int64_t row = 0;
    int64_t heads = 0;
    int64_t columns = 0;
    int64_t size = 0;
  };

  /// fp16 numbers that make an fp32 one: the rounded value, and what the rounding left, scaled up.
  struct Halves {
    Value* high = nullptr;
    Value* low = nullptr;
  };

  Value* Declare(std::string name, Type type, int64_t order);
  Value* Current(Buffer& buffer);
  void Replace(Buffer& buffer, Value* value);
  void Commit(Buffer& buffer);
  Value* JoinHalves(const Halves& halves, const std::string& name);
  Halves SplitHalves(Value* value, const std::string& name);
  Value* ReadRegion(Buffer& buffer, const Region& region);
  Value* PutRegion(Value* whole, const Region& region, Value* value);
  Value* PutColumns(Buffer& buffer, const Region& region, Value* value, Value* begin, Value* end);
  void StoreColumns(const LayerCache& cache, const CacheSlot& slot, int64_t layer, Value* value);
  Value* End(Value* begin);
  Value* RingPosition();
  Value* Total();

  Value* MaskOf(int64_t layer);
  Value* HostMask(int64_t layer);
  Value* RingMaskWithOld(Value* mask, int64_t window);
  Value* ShiftMaskWithOld(Value* mask, int64_t window);
  Value* FlexibleMask(Value* mask, int64_t window);
  Value* FromVisible(Value* visible, std::string_view name);
  std::pair<Value*, Value*> RotaryInGraph(const RopeTable& table, std::string_view name);
  std::pair<Value*, Value*> RotaryInputs(const RopeTable& table, std::string_view name);

  Blocks& blocks_;
  Builder& b_;
  const BuildPlan& build_;
  const StageSpec& stage_;
  const CachePlan& caches_;
  ManifestFunction& manifest_;
  std::vector<int64_t> input_order_;  ///< order key of each function input
  std::map<std::string, Value*> inputs_;
  std::vector<Buffer> buffers_;
  std::map<int, std::pair<Value*, Value*>> rotary_;
  std::map<std::pair<bool, bool>, Value*> masks_;  ///< by (sliding, with old columns)
  std::map<Value*, Value*> ends_;
  std::map<int64_t, View> views_;
  Value* start_ = nullptr;
  Value* positions_ = nullptr;
  Value* total_ = nullptr;
  Value* keep_ = nullptr;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_FUNCTION_CONTEXT_H_
