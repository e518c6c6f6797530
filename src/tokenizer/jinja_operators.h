// Operators of Jinja expressions, with Python's semantics on 64-bit integers.
#ifndef MILWRIGHT_TOKENIZER_JINJA_OPERATORS_H_
#define MILWRIGHT_TOKENIZER_JINJA_OPERATORS_H_

#include <optional>
#include <string_view>

#include "milwright/status.h"
#include "tokenizer/jinja_value.h"

namespace milwright::jinja {

/// `left op right` for + - * / // % ** and ~. Integers that leave 64 bits are an error.
Result<Value> ApplyBinary(std::string_view op, const Value& left, const Value& right, Budget& budget);

/// -value or +value.
Result<Value> ApplySign(std::string_view op, const Value& value);

/// `left op right` for == != < <= > >= in and "not in".
Result<bool> ApplyComparison(std::string_view op, const Value& left, const Value& right, Budget& budget);

/// value[start:stop:step] of a string, list or tuple.
Result<Value> ApplySlice(const Value& value, std::optional<int64_t> start, std::optional<int64_t> stop,
                         std::optional<int64_t> step, Budget& budget);

/// Python's `format % arguments` for %s, %d, %i, %f, %x and %%, with width, precision and the flags "-", "+" and "0".
Result<Value> FormatPercent(std::string_view format, const std::vector<Value>& arguments, Budget& budget);

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_OPERATORS_H_
