// Numbers in MIL text: element bits to text and back, exactly. Shared by printer and parser.
#ifndef MILWRIGHT_TEXT_NUMBER_H_
#define MILWRIGHT_TEXT_NUMBER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "milwright/type.h"

namespace milwright {

/// The text of one element of a numeric or bool type, given its bits (in the low bits; a sub-byte or narrow signed
/// integer may be sign-extended or not). Integers are decimal; bools `true` and `false`; floats hexadecimal as in
/// `model.mil` ("0x1.8p+1", "-0x0p+0", "-inf"); the usual quiet NaN is "nan" or "-nan", any other "nan(0x7e01)" with
/// the whole bit pattern, a form of ours.
std::string FormatNumber(DataType dtype, uint64_t bits);

/// Bits of an element, or why the text is none. `error` is empty on success.
struct ParsedNumber {
  uint64_t bits = 0;
  std::string_view error;
};

/// Reads what FormatNumber writes (but for "nan(...)"), and decimal floats, rounded to nearest even. Values that the
/// type does not hold are errors: integers out of range, floats that would round to infinity.
ParsedNumber ParseNumber(DataType dtype, std::string_view text);

/// Reads the bit pattern in "nan(0x7e01)"; it must be a NaN of the type.
ParsedNumber ParseNanPattern(DataType dtype, std::string_view text);

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_NUMBER_H_
