// Moving states into other states: every slot of an old state lies somewhere in a new one, and reads and writes follow.
#ifndef MILWRIGHT_PASSES_RELAYOUT_H_
#define MILWRIGHT_PASSES_RELAYOUT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"
#include "passes/pass.h"
#include "passes/slot_slice.h"

namespace milwright {

/// `slots` entries of axis 0 of an old state, from `slot` on, lie in `target` from `target_slot` on. Along the other
/// axes both start at 0; where the target is longer, the rest is padding that nothing reads; where it is shorter, the
/// caller vouches that nothing reads what lies beyond. Without a target the slots go: nothing may use them.
struct StatePiece {
  int64_t slot = 0;
  int64_t slots = 0;
  Value* target = nullptr;
  int64_t target_slot = 0;
};

/// Where an old state goes. The pieces cover its slots in order, without gaps.
struct StateLayout {
  Value* state = nullptr;
  std::vector<StatePiece> pieces;
};

/// Rewrites every read and write of the old states in `function` to the new ones and removes the old states. A slice
/// of a read becomes a slice of the new state; slice updates of what was read become slice updates of the new state
/// with the slot moved; anything else goes through a copy in the old shape. Program order of accesses is kept.
Status Relayout(Function& function, const std::vector<StateLayout>& layouts, PassReport& report);

/// A slice update of what a state holds.
struct SlotUpdate {
  Operation* op = nullptr;
  SlotSlice slice;
};
/// The slice updates that make the value of `write` out of what the state holds at that place, first to last; nullopt
/// when it is made in another way.
std::optional<std::vector<SlotUpdate>> SlotUpdatesOf(const Operation& write);

/// Whether slot `slot` of a state has the same content in `before` and `after`, two reads of it in that order in one
/// block: the writes between them go to other slots.
bool SameSlot(const Value& before, const Value& after, int64_t slot);

/// How far the reads and writes of `state` reach along each axis but the first for the slots [slot, slot + slots), at
/// most the size of the state. A write at a position known only at run time counts with the rows it writes.
Shape UsedExtent(const Value& state, int64_t slot, int64_t slots);

/// Whether a read or a write of `state` touches slot `slot`.
bool UsesSlot(const Value& state, int64_t slot);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_RELAYOUT_H_
