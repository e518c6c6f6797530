// Parser: MIL text, as Apple's compiler writes it into `model.mil`, to the IR (grammar and sources: docs/mil-text.md).
#ifndef MILWRIGHT_TEXT_PARSER_H_
#define MILWRIGHT_TEXT_PARSER_H_

#include <functional>
#include <string>
#include <string_view>

#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

struct ParseOptions {
  /// Stands at the front of every error; empty: "<text>".
  std::string file_name;
  /// Gives the content of a BLOBFILE reference as a tensor of exactly the type asked for. Empty: a reference in the
  /// text is an error.
  std::function<Result<Tensor>(const BlobReference&, const TensorType&)> load_blob;
  /// Also accept what text written by hand or by other tools often has: a comma before a closing bracket, a missing
  /// `;`, and an opset on an operation (`cast<ios17>(...)`), which is dropped.
  bool lenient = false;
};

/// The program that `text` stands for. `//` and `/* */` comments are skipped.
///
/// Errors have code kUnreadable and a message of three lines: `file:line:column: error: what`, the source line (cut to
/// a window when it is long) and a caret under the place. Nothing is checked against the op registry: that is Verify's
/// work. Text in coremltools' own print form is refused with a message that names it.
Result<Program> ParseProgram(std::string_view text, const ParseOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_PARSER_H_
