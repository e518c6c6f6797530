// PlanBuilder: walks a graph in order and turns nodes into steps: which memory each value gets, what is a view of what,
// and which updates can be made in place.
#ifndef MILWRIGHT_ENGINE_PLAN_BUILDER_H_
#define MILWRIGHT_ENGINE_PLAN_BUILDER_H_

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/graph.h"
#include "engine/plan.h"
#include "engine/weight_store.h"

namespace milwright::engine {

/// What a value of this declared type is held as: floats as fp32 (rounded to fp16 after each step where that is
/// declared), everything else as declared.
DataType HeldType(DataType declared);

class PlanBuilder {
 public:
  PlanBuilder(std::unique_ptr<const Graph> graph, WeightStore& weights, int threads);

  Result<std::unique_ptr<Plan>> Build();

  // ---- for lowerings ----

  [[nodiscard]] WeightStore& weights() { return weights_; }
  [[nodiscard]] const kernels::Kernels& kernels() const { return weights_.kernels(); }
  [[nodiscard]] int threads() const { return threads_; }

  /// Where `value` lies. Constants are placed on first use: floats as fp32 when they are small, else as they are;
  /// compressed weights are decoded. Errors: a weight that cannot be decoded.
  Result<View> ViewOf(GraphValue* value);
  /// ... with fp32 elements: a value held as fp16 (input, state, large constant) is converted by a step of its own.
  Result<View> FloatsOf(GraphValue* value);

  /// New arena memory for `value` in its held type, dense or with the given strides (a permutation of dense ones).
  View Allocate(GraphValue* value, const Shape* strides = nullptr);
  /// ... of this type.
  View AllocateAs(GraphValue* value, DataType dtype);
  /// New arena memory that belongs to no value.
  View AllocateTemporary(DataType dtype, const Shape& shape);
  /// Says that `value` is to be seen as `view` of memory that exists.
  void Bind(GraphValue* value, View view);
  /// Memory that lives as long as the plan.
  Result<View> Constant(DataType dtype, const Shape& shape, std::span<const std::byte> content);

  /// Appends a step that reads or writes `used`.
  void Emit(NewStep step, const Node& node, std::span<const View> used, StepInfo info = {});
  void Emit(NewStep step, const Node& node, std::initializer_list<View> used, StepInfo info = {}) {
    Emit(std::move(step), node, std::span(used.begin(), used.size()), std::move(info));
  }

  /// The memory that holds `old` and that `node`, an update of all or part of it, writes to; the result of `node` is
  /// bound to it. It is the memory of `old` itself where nobody needs what is overwritten (values that are needed later
  /// are copied away first), else a copy.
  Result<View> UpdateTarget(const Node& node, GraphValue* old);
  /// The state number whose memory `view` is, or -1.
  [[nodiscard]] int32_t StateOf(const View& view) const;
  /// The view of a whole state.
  [[nodiscard]] View StateView(int32_t state) const;
  /// Copies every value that looks at `root` and is needed after `node` to memory of its own.
  void SaveViews(const Node& node, int32_t root);
  /// The number of the scan of this mask, which is made once per prediction.
  int32_t ScanOf(const View& mask);

 private:
  int32_t NewRoot(Root root);
  void Touch(const View& view);
  Status Lower(const Node& node);
  Status LowerReference(const Node& node);
  Status FinishOutputs();
  // Whether the memory of `old` may be overwritten by `node`; copies away what is needed later.
  Result<bool> UpdateInPlace(const Node& node, GraphValue* old);
  [[nodiscard]] size_t LastUse(const GraphValue* value) const;
  [[nodiscard]] bool WrittenBackNext(const Node& node, const GraphValue* result, int32_t state) const;

  std::unique_ptr<Plan> plan_;
  const Graph& graph_;  // the plan's
  WeightStore& weights_;
  int threads_;
  std::unordered_map<const GraphValue*, View> views_;
  std::unordered_map<const GraphValue*, View> floats_;  ///< inputs and constants converted to fp32
  std::unordered_map<const GraphValue*, std::vector<size_t>> use_positions_;
  std::map<int32_t, std::vector<GraphValue*>> viewers_;  ///< by root, values bound to it
  std::vector<int32_t> state_roots_;
  std::map<std::tuple<int32_t, int64_t, Shape, Shape>, int32_t> scans_;  ///< by where the mask lies
};

/// Turns one kind of node into steps. False: this node is none that it can do, and the reference kernel runs it.
using Lowering = Result<bool> (*)(PlanBuilder& builder, const Node& node);
struct LoweringEntry {
  std::string_view kind;
  Lowering lower;
};

/// The entries of each file; the builder looks kinds up in all of them.
std::span<const LoweringEntry> ElementwiseLowerings();  // steps_elementwise.cc
std::span<const LoweringEntry> MovementLowerings();     // steps_movement.cc: views, copies, slices, states
std::span<const LoweringEntry> ProductLowerings();      // steps_product.cc: linear, conv, matmul, gather of weights
std::span<const LoweringEntry> ReductionLowerings();    // steps_reduction.cc: reductions, norms, softmax
std::span<const LoweringEntry> AttentionLowerings();    // steps_attention.cc
std::span<const LoweringEntry> FusedLowerings();        // steps_fused.cc

/// The step that copies `from` to `to` element by element, converting between fp16, fp32 and equal types.
NewStep MakeCopy(const View& from, const View& to);
/// The step that gathers slices of `x` along `axis` (batch_dims 0).
NewStep MakeGather(const View& x, int64_t axis, const View& indices, const View& result);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_PLAN_BUILDER_H_
