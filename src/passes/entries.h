// The run functions of all passes, for the table in registry.cc. What each does, its options and its precondition stand
// in that table and in docs/passes.md.
#ifndef MILWRIGHT_PASSES_ENTRIES_H_
#define MILWRIGHT_PASSES_ENTRIES_H_

#include "passes/pass.h"

namespace milwright {

// cleanup.cc
Status DeadCodeElimination(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status CommonSubexpressionElimination(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status ConstantFolding(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// state_order.cc
Status CanonicalizeInplacePattern(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status PreferStateInDownstream(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status RemoveNoopStateUpdate(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status DropOutputAlias(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// interface.cc
Status Rename(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status SetOpset(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status ExtractFunction(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status MergeFunctions(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// state_to_io.cc, io_to_state.cc
Status StateToIo(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status IoToState(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// unify_states.cc, pad_state_dim.cc
Status UnifyStates(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status SplitState(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status PadStateDim(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// mask_to_slice_update.cc, slice_update_to_mask.cc
Status MaskToSliceUpdate(ModelSpec& model, const PassArguments& arguments, PassReport& report);
Status SliceUpdateToMask(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// ring_buffer.cc
Status ShiftToRingBuffer(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// set_context_length.cc
Status SetContextLength(ModelSpec& model, const PassArguments& arguments, PassReport& report);

// split_chunks.cc
Status KeepChunk(ModelSpec& model, const PassArguments& arguments, PassReport& report);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_ENTRIES_H_
