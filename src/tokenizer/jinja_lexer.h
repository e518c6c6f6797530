// Tokens of a Jinja template.
#ifndef MILWRIGHT_TOKENIZER_JINJA_LEXER_H_
#define MILWRIGHT_TOKENIZER_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright::jinja {

enum class TokenKind {
  kData,           ///< text outside of tags
  kBlockBegin,     ///< {%
  kBlockEnd,       ///< %}
  kVariableBegin,  ///< {{
  kVariableEnd,    ///< }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;  ///< of names, operators and data as written, of strings unescaped
  int64_t integer = 0;
  double number = 0;

  [[nodiscard]] bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  [[nodiscard]] bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

/// Cuts a template into tokens, the last of kind kEnd. Whitespace is handled as Jinja does with trim_blocks and
/// lstrip_blocks, which Hugging Face sets for chat templates: a newline behind a block or comment goes, and so does the
/// indentation in front of one; '-' and '+' beside a delimiter override that; one newline at the very end goes.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_LEXER_H_
