// A cursor over the tokens of a template, with the errors that parsers give at it.
#ifndef MILWRIGHT_TOKENIZER_JINJA_TOKEN_STREAM_H_
#define MILWRIGHT_TOKENIZER_JINJA_TOKEN_STREAM_H_

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/jinja_lexer.h"

namespace milwright::jinja {

/// "Take..." functions move on if the token fits, "Expect..." functions fail if it does not.
class TokenStream {
 public:
  /// `tokens` ends with one of kind kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  [[nodiscard]] const Token& Current() const { return tokens_[position_]; }
  [[nodiscard]] const Token& Next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void Skip() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool TakeOperator(std::string_view op) {
    if (!Current().IsOperator(op)) return false;
    Skip();
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!Current().IsName(name)) return false;
    Skip();
    return true;
  }
  [[nodiscard]] Status Error(std::string_view message) const {
    return {ErrorCode::kUnreadable, fmt::format("line {}: {}", Current().line, message)};
  }
  [[nodiscard]] Status Unexpected(std::string_view wanted) const {
    std::string_view what = Current().text;
    if (Current().kind == TokenKind::kEnd) what = "the end";
    if (Current().kind == TokenKind::kBlockEnd || Current().kind == TokenKind::kVariableEnd)
      what = "the end of the tag";
    return Error(fmt::format("expected {}, found {}", wanted, what));
  }
  Status ExpectOperator(std::string_view op) {
    return TakeOperator(op) ? Status::Ok() : Unexpected(fmt::format("'{}'", op));
  }
  Status ExpectName(std::string_view name) {
    return TakeName(name) ? Status::Ok() : Unexpected(fmt::format("'{}'", name));
  }
  Result<std::string> TakeAnyName() {
    if (Current().kind != TokenKind::kName) return Unexpected("a name");
    std::string name = Current().text;
    Skip();
    return name;
  }
  Status Expect(TokenKind kind, std::string_view wanted) {
    if (Current().kind != kind) return Unexpected(wanted);
    Skip();
    return Status::Ok();
  }
  Status ExpectBlockEnd() { return Expect(TokenKind::kBlockEnd, "'%}'"); }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_TOKEN_STREAM_H_
