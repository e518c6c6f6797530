// Constants that are tables over the context, for another length.
#ifndef MILWRIGHT_PASSES_CONTEXT_TABLES_H_
#define MILWRIGHT_PASSES_CONTEXT_TABLES_H_

#include "mil/literal.h"
#include "milwright/status.h"

namespace milwright {

/// `table` with the axes that differ from `shape` cut or grown at their ends. A cut keeps the first rows. What grows
/// must follow from what is there: rows that are all equal, counting numbers, a causal mask (one step at the diagonal),
/// or cosines and sines of position * theta^(-2j/d), scaled or not, which are computed anew once they reproduce every
/// element that is there. kPrecondition for anything else: a learned table has no further rows.
Result<Literal> ResizeTable(const Literal& table, const Shape& shape);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_CONTEXT_TABLES_H_
