// State effects of operations, for everything that moves or removes them.
#ifndef MILWRIGHT_ANALYSIS_EFFECTS_H_
#define MILWRIGHT_ANALYSIS_EFFECTS_H_

#include <cstdint>

#include "mil/program.h"

namespace milwright {

/// How `op`, nested blocks included, touches `state`.
struct StateAccess {
  bool reads = false;
  bool writes = false;
};
StateAccess AccessOf(const Operation& op, const Value* state);

/// The state a state op works on, and the value a write takes; null for other ops and (data) for reads.
Value* StateOf(const Operation& op);
Value* WrittenValue(const Operation& op);
bool IsStateRead(const Operation& op);   ///< read_state
bool IsStateWrite(const Operation& op);  ///< write_state, coreml_update_state (which also reads)

/// Whether `op` does something besides computing its outputs: writes a state, or draws random numbers, itself or in a
/// nested block.
bool HasEffect(const Operation& op);
/// Whether the value of `op` may differ from one run to the next on equal inputs: state reads and random draws.
bool IsImpure(const Operation& op);

/// Whether an operation strictly between `from` and `to` (same block, in that order) writes or accesses `state`.
bool WritesBetween(const Operation& from, const Operation& to, const Value* state);
bool AccessesBetween(const Operation& from, const Operation& to, const Value* state);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_EFFECTS_H_
