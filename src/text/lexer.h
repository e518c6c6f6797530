// Lexer: MIL text as tokens, and errors that point into it. Used by the parser and by the analytics reader.
#ifndef MILWRIGHT_TEXT_LEXER_H_
#define MILWRIGHT_TEXT_LEXER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "milwright/status.h"

namespace milwright {

enum class TokenKind : uint8_t {
  kEnd,
  kIdentifier,
  kNumber,       ///< integers, floats, and "-inf", "-nan"; the text may still be malformed
  kString,       ///< the text is what stands between the quotes, escapes not yet resolved
  kPunctuation,  ///< one character of ()[]{}<>,;=?:
  kArrow,        ///< "->"
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t offset = 0;  ///< byte in the source where it starts

  [[nodiscard]] bool Is(char punctuation) const {
    return kind == TokenKind::kPunctuation && text.front() == punctuation;
  }
  [[nodiscard]] bool IsWord(std::string_view word) const { return kind == TokenKind::kIdentifier && text == word; }
};

/// The text being read, with one token in hand and one to look at. `text` must outlive the lexer.
class Lexer {
 public:
  /// `file_name` stands at the front of errors; empty: "<text>".
  Lexer(std::string_view text, std::string_view file_name);

  /// Reads the first two tokens; call once, before anything else.
  Status Start();
  [[nodiscard]] const Token& current() const { return current_; }
  [[nodiscard]] const Token& next() const { return next_; }
  /// Makes the next token the current one. Errors: a string or comment without end, a bad escape, a stray character.
  Status Advance();

  /// Moves past punctuation `c` if it is the current token; whether it was.
  Result<bool> Accept(char c);
  /// Moves past punctuation `c`, or fails with "expected 'c' <context>, found ...".
  Status Expect(char c, std::string_view context);
  /// Moves past an identifier, or a quoted name (our form for names that are no identifiers), and gives it.
  Result<std::string> ExpectName(std::string_view what);

  /// An error (kUnreadable) at a byte of the text: "file:line:column: error: message", the source line, and a caret
  /// under the place. Columns count characters from 1. Long lines are cut to a window around the place.
  [[nodiscard]] Status ErrorAt(size_t offset, std::string_view message) const;
  [[nodiscard]] Status ErrorHere(std::string_view message) const { return ErrorAt(current_.offset, message); }
  /// "expected <what>, found <current token>" at the current token.
  [[nodiscard]] Status Unexpected(std::string_view what) const;
  /// 1-based line of a byte of the text.
  [[nodiscard]] size_t LineOf(size_t offset) const;
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  Status Scan(Token* token);
  Status SkipBlanksAndComments();
  Status ScanString(Token* token);
  void ScanNumber(Token* token);

  std::string_view text_;
  std::string file_name_;
  size_t position_ = 0;
  Token current_;
  Token next_;
};

/// The content of a string token (escapes have been checked by the lexer): \" \' \\ \n \r \t \0 \xHH.
std::string Unescape(std::string_view raw);
/// `text` between quotes, so that Unescape gives it back; control characters and bytes that are no UTF-8 as \xHH.
std::string Quote(std::string_view text);

/// `text` fit to stand in a message: on one line, and cut when it is long.
std::string Excerpt(std::string_view text);

/// Whether `name` matches [A-Za-z_][A-Za-z0-9_@]* (package-format.md, section 2).
bool IsIdentifier(std::string_view name);

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_LEXER_H_
