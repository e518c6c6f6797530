// State analysis: what a function does with its states. Checks, passes and the engine share these facts.
#ifndef MILWRIGHT_ANALYSIS_STATE_ANALYSIS_H_
#define MILWRIGHT_ANALYSIS_STATE_ANALYSIS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mil/program.h"

namespace milwright {

/// How a program computes the value that it writes to a state. The names are those of the evidence ledger.
enum class UpdateForm : uint8_t {
  kNone,             ///< never read, never written
  kReadOnly,         ///< read, never written
  kWrittenBack,      ///< written back unchanged
  kSliceUpdate,      ///< slice_update at a position known at run time
  kStaticSlot,       ///< slice_update with constant begin: a whole slot is replaced
  kMaskBlend,        ///< cache * (1 - m) + new * m, or a select
  kShiftConcat,      ///< the oldest part sliced off, the new part appended by concat
  kShiftMatmul,      ///< shifted by a product with a constant matrix
  kScatter,          ///< scatter, scatter_nd, scatter_along_axis
  kReadModifyWrite,  ///< any other function of the old value
  kWholeOverwrite,   ///< the old value plays no part
};

/// "slice_update_dynamic", "slice_assign_static_slot", "mask_blend", ... as in the evidence ledger.
std::string_view UpdateFormName(UpdateForm form);
std::optional<UpdateForm> UpdateFormFromName(std::string_view name);

/// What a state is for, from data flow.
enum class StateRole : uint8_t {
  kUnknown,
  kKv,           ///< keys or values of an attention
  kConv,         ///< the window of a short convolution
  kRecurrent,    ///< carried through products or gates from step to step
  kAccumulator,  ///< a running sum
};
std::string_view StateRoleName(StateRole role);
std::optional<StateRole> StateRoleFromName(std::string_view name);

/// A read of a state. `position` counts operations of the function in program order, nested ones included.
struct StateRead {
  Operation* op = nullptr;
  Value* value = nullptr;
  size_t position = 0;
};

/// A write to a state, with how its value came about.
struct StateWrite {
  Operation* op = nullptr;
  Value* data = nullptr;
  size_t position = 0;
  UpdateForm form = UpdateForm::kWholeOverwrite;
  Operation* update_op = nullptr;  ///< the op that carries the form: slice_update, scatter, concat, add, select, matmul
  Operation* slot_op = nullptr;  ///< the slice_update with constant begin around it when one slot is updated; else null
  std::optional<int64_t> axis;   ///< slice, shift: the axis along which new content goes
  std::optional<int64_t> width;  ///< number of new rows along `axis`
  Value* begin = nullptr;        ///< slice update: the begin vector
};

/// An output that is the written value itself, or a slice of the state after a write.
struct ExposedOutput {
  Value* output = nullptr;
  Operation* write = nullptr;
  bool is_slice = false;       ///< a slice of the updated state, rather than the written value itself
  bool also_consumed = false;  ///< something besides the output reads it
};

/// Why re-running coremltools' default pipeline would change what the program means (state-semantics.md, T01-T05).
struct OrderHazard {
  enum class Kind : uint8_t {
    kReadAcrossWrite,   ///< a value read before a write is used after it: merging reads changes it (T01, T05)
    kMovedAcrossRead,   ///< moving the write up to its producer crosses a read (T02)
    kMovedAcrossWrite,  ///< ... crosses another write (T03)
    kRepeatedWrite,     ///< the same value is written again after another write: the repeat is dropped (T04)
  };
  Kind kind;
  Operation* first = nullptr;
  Operation* second = nullptr;
};

struct StateFacts {
  Value* state = nullptr;
  std::vector<StateRead> reads;         ///< in program order
  std::vector<StateWrite> writes;       ///< in program order
  UpdateForm form = UpdateForm::kNone;  ///< that of the writes; the most particular one when they differ
  StateRole role = StateRole::kUnknown;
  std::optional<int64_t> query_length;  ///< new rows in one step along the sequence axis, where the form shows it
  std::vector<ExposedOutput> exposed;
  std::vector<OrderHazard> hazards;

  /// Something that was read reaches an output of the function or a write of any state with another value.
  bool read_matters = false;
};

/// An input and an output that a host copies back between steps: a cache kept outside states.
struct CachePair {
  Value* input = nullptr;
  Value* output = nullptr;
  bool whole = true;  ///< the output is the whole cache; false: only its new rows
  UpdateForm form = UpdateForm::kReadModifyWrite;
  StateRole role = StateRole::kUnknown;
  std::optional<int64_t> axis;  ///< new rows: where they go
};

struct FunctionStates {
  std::vector<StateFacts> states;  ///< in declaration order
  std::vector<CachePair> cache_pairs;

  [[nodiscard]] const StateFacts* Find(const Value* state) const;
};

/// Looks at every state and every cache pair of `function`. Linear in the program, but for hazards, which are quadratic
/// in the accesses of one state.
FunctionStates AnalyzeStates(const Function& function);

/// Whether `value` is computed, however indirectly, from `source` (within one function).
bool DependsOn(const Value* value, const Value* source);

/// `value` seen through ops that only rename or re-view it (identity, cast between float types, reshape, expand_dims,
/// squeeze): what they show.
const Value* PeelViews(const Value* value);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_STATE_ANALYSIS_H_
