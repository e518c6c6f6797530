// Sizes and conditions written as text in tables: "2*n, K, C, D", "attention !k_eq_v".
#ifndef MILWRIGHT_LLM_EXPRESSION_H_
#define MILWRIGHT_LLM_EXPRESSION_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

/// Names with their values; flags are 0 or 1.
using Symbols = std::map<std::string, int64_t, std::less<>>;

/// Value of `expression`: integers, symbols, + - * and parentheses. kUsage when it is malformed, names an unknown
/// symbol, overflows, or nests deeper than 16.
Result<int64_t> EvaluateExpression(std::string_view expression, const Symbols& symbols);

/// A comma-separated list of expressions as a shape; "?" stands for an unknown size. Sizes below 1 are errors.
Result<Shape> EvaluateShape(std::string_view expressions, const Symbols& symbols);

/// Whether every word of `condition` holds: "name" when the symbol is there and not 0, "!name" when it is absent or 0.
/// The empty condition holds.
bool ConditionHolds(std::string_view condition, const Symbols& symbols);

/// `pattern` with every "{name}" replaced by the value of the symbol; an unknown name stays as it is.
std::string ExpandPattern(std::string_view pattern, const Symbols& symbols);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_EXPRESSION_H_
