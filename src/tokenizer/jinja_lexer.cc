#include "tokenizer/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "tokenizer/python_text.h"
#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// All line ends as \n, without one at the very end.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : normalized_(NormalizeNewlines(source)), source_(normalized_) {}

  Result<std::vector<Token>> Run() {
    while (position_ < source_.size()) MW_RETURN_IF_ERROR(DataAndTag());
    Add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] std::string_view Rest() const { return source_.substr(position_); }
  [[nodiscard]] bool At(std::string_view text) const { return Rest().starts_with(text); }

  [[nodiscard]] Status Error(std::string_view message) const {
    return {ErrorCode::kUnreadable, fmt::format("line {}: {}", line_, message)};
  }

  Token& Add(TokenKind kind, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  void Advance(size_t count) {
    const std::string_view passed = source_.substr(position_, count);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    position_ += passed.size();
  }

  void SkipWhitespace() { Advance(Rest().size() - StripLeft(Rest()).size()); }

  /// The sign behind an opening delimiter.
  char TakeSign() {
    if (!At("-") && !At("+")) return ' ';
    const char sign = source_[position_];
    Advance(1);
    return sign;
  }

  /// Adds the text in front of a tag, without what the tag strips of it.
  void AddData(std::string_view text, char sign, bool is_variable) {
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_variable) {
      const size_t line_begin = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
      if ((line_begin > 0 || at_line_start_) && StripLeft(text.substr(line_begin)).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  /// Takes the end of a block or comment whose delimiter is `end`, and the whitespace that it strips.
  bool TakeBlockEnd(std::string_view end) {
    const std::string_view rest = Rest();
    if (rest.starts_with('+') && rest.substr(1).starts_with(end)) {
      Advance(1 + end.size());
    } else if (rest.starts_with('-') && rest.substr(1).starts_with(end)) {
      Advance(1 + end.size());
      SkipWhitespace();
    } else if (rest.starts_with(end)) {
      Advance(end.size());
      if (At("\n")) Advance(1);
    } else {
      return false;
    }
    at_line_start_ = source_[position_ - 1] == '\n';
    return true;
  }

  Status DataAndTag() {
    size_t open = position_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 == source_.size()) {
        Add(TokenKind::kData, std::string(Rest()));
        Advance(Rest().size());
        return Status::Ok();
      }
      const char kind = source_[open + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    const std::string_view text = Rest().substr(0, open - position_);
    const int data_line = line_;
    Advance(text.size());
    const char kind = source_[position_ + 1];
    Advance(2);
    const char sign = TakeSign();
    const int tag_line = std::exchange(line_, data_line);
    AddData(text, sign, kind == '{');
    line_ = tag_line;
    if (kind == '#') return Comment();
    if (kind == '{') {
      Add(TokenKind::kVariableBegin);
      return Tag(/*is_variable=*/true);
    }
    if (TakeRawBegin()) return Raw();
    Add(TokenKind::kBlockBegin);
    return Tag(/*is_variable=*/false);
  }

  Status Comment() {
    size_t end = source_.find("#}", position_);
    if (end == std::string_view::npos) return Error("a comment has no end");
    if (end > position_ && (source_[end - 1] == '-' || source_[end - 1] == '+')) --end;
    Advance(end - position_);
    TakeBlockEnd("#}");
    return Status::Ok();
  }

  /// Whether "raw %}" follows; takes it if so. A newline behind it stays, unlike behind other blocks.
  bool TakeRawBegin() {
    std::string_view rest = StripLeft(Rest());
    if (!rest.starts_with("raw")) return false;
    rest = StripLeft(rest.substr(3));
    const bool strips = rest.starts_with("-%}");
    if (!strips && !rest.starts_with("%}")) return false;
    Advance(Rest().size() - rest.size() + (strips ? 3 : 2));
    if (strips) SkipWhitespace();
    at_line_start_ = source_[position_ - 1] == '\n';
    return true;
  }

  Status Raw() {
    for (size_t open = source_.find("{%", position_); open != std::string_view::npos;
         open = source_.find("{%", open + 1)) {
      std::string_view tag = source_.substr(open + 2);
      const char sign = tag.starts_with('-') || tag.starts_with('+') ? tag[0] : ' ';
      if (sign != ' ') tag.remove_prefix(1);
      tag = StripLeft(tag);
      if (!tag.starts_with("endraw")) continue;
      tag = StripLeft(tag.substr(6));
      AddData(source_.substr(position_, open - position_), sign, /*is_variable=*/false);
      Advance(source_.size() - tag.size() - position_);
      if (!TakeBlockEnd("%}")) return Error("endraw needs %}");
      return Status::Ok();
    }
    return Error("a raw block has no end");
  }

  Status Tag(bool is_variable) {
    std::vector<char> open_brackets;
    while (true) {
      SkipWhitespace();
      if (position_ >= source_.size()) return Error("a tag has no end");
      if (open_brackets.empty()) {
        const int line = line_;
        if (is_variable && (At("}}") || At("-}}"))) {
          Add(TokenKind::kVariableEnd);
          const bool strips = At("-");
          Advance(strips ? 3 : 2);
          if (strips) SkipWhitespace();
          at_line_start_ = source_[position_ - 1] == '\n';
          return Status::Ok();
        }
        if (!is_variable && TakeBlockEnd("%}")) {
          Add(TokenKind::kBlockEnd).line = line;
          return Status::Ok();
        }
      }
      MW_RETURN_IF_ERROR(InnerToken(open_brackets));
    }
  }

  Status InnerToken(std::vector<char>& open_brackets) {
    const char c = source_[position_];
    if (IsDigit(c)) return Number();
    if (IsNameStart(c)) {
      size_t end = position_ + 1;
      while (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end]))) ++end;
      Add(TokenKind::kName, std::string(source_.substr(position_, end - position_)));
      Advance(end - position_);
      return Status::Ok();
    }
    if (c == '\'' || c == '"') return String(c);
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators), [&](auto text) { return At(text); });
    if (op == std::end(kOperators)) return Error(fmt::format("unexpected character '{}'", c));
    if (c == '(') open_brackets.push_back(')');
    if (c == '[') open_brackets.push_back(']');
    if (c == '{') open_brackets.push_back('}');
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) return Error(fmt::format("unexpected '{}'", c));
      open_brackets.pop_back();
    }
    Add(TokenKind::kOperator, std::string(*op));
    Advance(op->size());
    return Status::Ok();
  }

  /// Takes digits with single underscores between them.
  std::string TakeDigits() {
    std::string digits;
    while (position_ < source_.size()) {
      const char c = source_[position_];
      const bool separator = c == '_' && !digits.empty() && position_ + 1 < source_.size() &&
                             IsDigit(source_[position_ + 1]) && source_[position_ - 1] != '_';
      if (!IsDigit(c) && !separator) break;
      if (IsDigit(c)) digits += c;
      Advance(1);
    }
    return digits;
  }

  Status Number() {
    if (At("0x") || At("0X") || At("0b") || At("0B") || At("0o") || At("0O")) {
      return Error("numbers are decimal in chat templates");
    }
    // "x.0.1" are two subscripts, not the number 0.1.
    const bool after_dot = !tokens_.empty() && tokens_.back().IsOperator(".");
    std::string text = TakeDigits();
    bool is_float = false;
    if (!after_dot) {
      if (At(".") && position_ + 1 < source_.size() && IsDigit(source_[position_ + 1])) {
        Advance(1);
        text += '.';
        text += TakeDigits();
        is_float = true;
      }
      const std::string_view rest = Rest();
      const size_t sign = rest.size() > 1 && (rest[1] == '+' || rest[1] == '-') ? 1 : 0;
      if ((At("e") || At("E")) && rest.size() > 1 + sign && IsDigit(rest[1 + sign])) {
        text += rest.substr(0, 1 + sign);
        Advance(1 + sign);
        text += TakeDigits();
        is_float = true;
      }
    }
    Token& token = Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    const char* end = text.data() + text.size();
    const std::errc error = is_float ? std::from_chars(text.data(), end, token.number).ec
                                     : std::from_chars(text.data(), end, token.integer).ec;
    if (error != std::errc()) return Error(fmt::format("the number {} is too large", text));
    return Status::Ok();
  }

  Status String(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Error("a string has no end");
    MW_ASSIGN_OR_RETURN(std::string text, Unescape(source_.substr(position_ + 1, end - position_ - 1)));
    Add(TokenKind::kString, std::move(text));
    Advance(end + 1 - position_);
    return Status::Ok();
  }

  /// The escapes of Python string literals; an unknown one stands for itself.
  [[nodiscard]] Result<std::string> Unescape(std::string_view text) const {
    static constexpr std::pair<char, char> kSimple[] = {{'n', '\n'},  {'t', '\t'}, {'r', '\r'}, {'\\', '\\'},
                                                        {'a', '\a'},  {'b', '\b'}, {'f', '\f'}, {'v', '\v'},
                                                        {'\'', '\''}, {'"', '"'}};
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      if (c == '\n') continue;
      const auto* simple = std::find_if(std::begin(kSimple), std::end(kSimple), [&](auto p) { return p.first == c; });
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (simple != std::end(kSimple)) {
        out += simple->second;
      } else if (digits > 0) {
        uint32_t code = 0;
        const std::string_view hex = text.substr(i + 1, digits);
        const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (parsed.ptr != hex.data() + digits || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
          return Error(fmt::format("bad escape \\{}{}", c, hex));
        }
        AppendUtf8(code, out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t end = i;
        while (end < std::min(i + 3, text.size()) && text[end] >= '0' && text[end] <= '7') {
          code = code * 8 + static_cast<uint32_t>(text[end++] - '0');
        }
        AppendUtf8(code, out);
        i = end - 1;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  std::string normalized_;
  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  ///< whether the last tag took the newline behind it
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  if (const auto bad = FindInvalidUtf8(source)) {
    return Status(ErrorCode::kUnreadable, fmt::format("not UTF-8 at byte {}", *bad));
  }
  return Lexer(source).Run();
}

}  // namespace milwright::jinja
