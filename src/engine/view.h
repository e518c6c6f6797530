// View: how a step of a plan sees a value: element type, shape and strides over one block of memory.
#ifndef MILWRIGHT_ENGINE_VIEW_H_
#define MILWRIGHT_ENGINE_VIEW_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/inline_vector.h"
#include "milwright/type.h"
#include "ops/slice_bounds.h"

namespace milwright::engine {

/// A value as strides over a block of memory (Root). Shapes and strides are known when a plan is made; only the address
/// of the block is looked up at run time. Strides count elements and may be 0 (a repeated element) or negative.
struct View {
  int32_t root = -1;   ///< index into Plan::roots; -1: none
  int64_t offset = 0;  ///< elements from the start of the root
  DataType dtype = DataType::kInvalid;
  Dims shape;
  Dims strides;

  [[nodiscard]] int64_t count() const;
  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(shape.size()); }
};

/// Row-major strides of a static shape.
Shape DenseStrides(const Shape& shape);
/// Whether the elements lie one after another in row-major order.
bool IsDense(const View& view);
/// Whether the elements fill one block without gaps or repetition, in whatever order of axes.
bool IsPermutedDense(const View& view);

/// The same memory under another shape of equal element count; nullopt when strides cannot say it.
std::optional<View> Reshaped(const View& view, const Shape& shape);
View Transposed(const View& view, const std::vector<int64_t>& perm);
/// `slices`: one for each axis.
View Sliced(const View& view, const std::vector<AxisSlice>& slices);
/// numpy broadcasting to `shape`, to which the view's shape must broadcast.
View BroadcastTo(const View& view, const Shape& shape);

/// One axis of a walk over N operands at once.
struct LoopAxis {
  static constexpr size_t kMaxOperands = 4;
  int64_t size = 1;
  InlineVector<int64_t, kMaxOperands> strides;  ///< one for each operand
};
using LoopAxes = InlineVector<LoopAxis, kMaxAxes>;

/// The axes of operands of one shape, outermost first, with neighbours joined wherever all operands allow. Ordered so
/// that the first operand's strides fall. Never empty.
LoopAxes JoinedAxes(const Dims& shape, const std::vector<Dims>& strides);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_VIEW_H_
