// Printer: a program as MIL text, the syntax that Apple's compiler writes into `model.mil` (docs/mil-text.md).
//
// The text of a program is canonical: arguments and attributes in alphabetical order, floats in hexadecimal, one
// operation a line; ParseProgram reads it back to an equal program.
#ifndef MILWRIGHT_TEXT_PRINTER_H_
#define MILWRIGHT_TEXT_PRINTER_H_

#include <cstddef>
#include <optional>
#include <string>

#include "mil/program.h"

namespace milwright {

/// How a program, or a part of it, is written.
struct PrintOptions {
  /// Only the function of this name (a name that no function has gives a program without functions); empty: all.
  std::string function;
  /// For reading by people: an immediate tensor of more than `elide_above` elements is written as `<N elements>`, which
  /// does not parse back. Tensors in a weight file are always written as a BLOBFILE reference.
  bool elide_weights = false;
  size_t elide_above = 64;
  /// The number in `program(...)`; absent: "1.0" when every function is older than iOS18, else "1.3", the versions in
  /// the compiled files that are public.
  std::optional<std::string> program_version;
  /// Whether scalars are written `int32(1)` (programs from 1.3 on) or `tensor<int32, []>(1)`; absent: by the newest
  /// opset of the program's functions, iOS18 on being short.
  std::optional<bool> short_scalars;
};

/// The whole program; like Apple's, it ends with the bracket, without a newline.
std::string PrintProgram(const Program& program, const PrintOptions& options = {});

/// One function, from `func` to `} -> (...);`, indented as in a program.
std::string PrintFunction(const Function& function, const PrintOptions& options = {});

/// One operation as one statement, nested blocks included, without indent or newline at the end.
std::string PrintOperation(const Operation& operation, const PrintOptions& options = {});

/// `tensor<int32, [2]>([1, 2])`, `string("x")`, `fp16(0x1p+0)`, `dict<string, string>({{"k", "v"}})`; scalars are short
/// unless `options.short_scalars` is false.
std::string PrintLiteral(const Literal& literal, const PrintOptions& options = {});

/// `tensor<fp16, [1, ?]>`, `state<tensor<fp16, [2]>>`, `int32` (or `tensor<int32, []>` when scalars are not short).
std::string PrintType(const Type& type, const PrintOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_PRINTER_H_
