// From a Jinja template to its syntax tree.
#ifndef MILWRIGHT_TOKENIZER_JINJA_PARSER_H_
#define MILWRIGHT_TOKENIZER_JINJA_PARSER_H_

#include <string_view>

#include "milwright/status.h"
#include "tokenizer/jinja_ast.h"

namespace milwright::jinja {

/// Parses `source`. Errors name the line. Trees deeper than the interpreter could walk are errors.
Result<Block> ParseTemplate(std::string_view source);

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_PARSER_H_
