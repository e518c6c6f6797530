// The update form of a written value: how new content gets into old.
#ifndef MILWRIGHT_ANALYSIS_UPDATE_FORM_H_
#define MILWRIGHT_ANALYSIS_UPDATE_FORM_H_

#include "analysis/dataflow.h"
#include "analysis/state_analysis.h"

namespace milwright {

/// Where old content comes from: the reads of one state (and what was written to it before), or a cache input.
struct OldContent {
  ValueSet values;     ///< the old content itself
  ValueSet dependent;  ///< everything computed from it

  explicit OldContent(const std::vector<const Value*>& sources)
      : values(sources.begin(), sources.end()), dependent(ForwardClosure(sources)) {}
};

/// fp32 content kept in fp16 is two rows of halves: the rounded values, and what the rounding left times a constant
/// (build option --hybrid-precision). Where `op` adds two such parts of one fp16 value up, that value; else null.
const Value* JoinedHalves(const Operation& op);

/// Classifies how `data` is made of old and new content. Fills form, update_op, slot_op, axis, width and begin.
StateWrite ClassifyUpdate(Value* data, const OldContent& old);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_UPDATE_FORM_H_
