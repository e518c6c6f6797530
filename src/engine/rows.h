// Values seen as rows: some axes joined to one row, the others to a count of rows.
#ifndef MILWRIGHT_ENGINE_ROWS_H_
#define MILWRIGHT_ENGINE_ROWS_H_

#include <vector>

#include "engine/plan_builder.h"

namespace milwright::engine {

/// `value` as fp32 [rows, length], where `axes` make the length; copied when strides cannot say it.
Result<View> RowView(PlanBuilder& builder, const Node& node, GraphValue* value, const std::vector<int64_t>& axes);

/// Strides of a result of `shape` whose `axes` lie contiguous, rows one after another.
Shape RowStrides(const Shape& shape, const std::vector<int64_t>& axes);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_ROWS_H_
