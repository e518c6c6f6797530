// slice_by_index and slice_update along the slots (axis 0) of a state: what they take, and how they read for a state of
// another shape.
#ifndef MILWRIGHT_PASSES_SLOT_SLICE_H_
#define MILWRIGHT_PASSES_SLOT_SLICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/builder.h"
#include "passes/edit.h"

namespace milwright {

/// The parameters of a slice with stride 1 whose slots are known.
struct SlotSlice {
  int64_t slot = 0;
  int64_t count = 0;
  std::vector<VectorEntry> begin;
  std::vector<VectorEntry> end;
  std::vector<int64_t> begin_mask;
  std::vector<int64_t> end_mask;
  std::vector<int64_t> squeeze_mask;

  /// Whether axis `axis` starts, or ends, at a place known only at run time.
  [[nodiscard]] bool DynamicBegin(size_t axis) const;
  [[nodiscard]] bool DynamicEnd(size_t axis) const;
  /// The constant bounds of an axis of size `size`, negative ones counted from its end; nullopt: known at run time.
  [[nodiscard]] std::optional<int64_t> Begin(size_t axis, int64_t size) const;
  [[nodiscard]] std::optional<int64_t> End(size_t axis, int64_t size) const;
};

/// Reads the parameters of `op` (slice_by_index or slice_update) on an `x` of shape `shape`; nullopt for any other op,
/// a stride, slots known only at run time, or vectors that are neither constant nor a concat of single values.
std::optional<SlotSlice> ReadSlotSlice(const Operation& op, const Shape& shape);

/// The same slice of a tensor of shape `to` in which the slots lie `shift` further on.
SlotSlice Retarget(SlotSlice slice, const Shape& from, const Shape& to, int64_t shift);

/// Binds begin, end and the masks of `slice` to `op`, with constants and concats made by `builder`.
void SetSlice(Operation& op, const SlotSlice& slice, Builder& builder, const std::string& name);

/// slice_update of `x` with these parameters.
Value* UpdateSlice(Builder& builder, Value* x, Value* update, const SlotSlice& slice, const std::string& name);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_SLOT_SLICE_H_
