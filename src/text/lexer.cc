#include "text/lexer.h"

#include <fmt/format.h>

#include <algorithm>

namespace milwright {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c) || c == '@'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The character that a one-letter escape stands for, or -1.
int SimpleEscape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '0':
      return '\0';
    case '"':
    case '\'':
    case '\\':
      return c;
    default:
      return -1;
  }
}

// Length of the well-formed UTF-8 sequence at the start of `text` (RFC 3629), or 0.
size_t Utf8Length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  if (!std::ranges::all_of(text.substr(1, length - 1), IsContinuation)) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong_or_beyond = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                                  (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return overlong_or_beyond ? 0 : length;
}

// `text` fit to show: one column a character, nothing that moves the cursor.
std::string Showable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0 || first < 0x20 || first == 0x7F) {
      shown += first == '\t' ? ' ' : '?';
      text.remove_prefix(1);
    } else {
      shown += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return shown;
}

// Characters of `text`, counted as Showable shows them.
size_t Width(std::string_view text) {
  size_t width = 0;
  for (; !text.empty(); ++width) text.remove_prefix(std::max<size_t>(Utf8Length(text), 1));
  return width;
}

// Bytes kept on either side of the place of an error in a long line.
constexpr size_t kWindow = 80;

}  // namespace

Lexer::Lexer(std::string_view text, std::string_view file_name)
    : text_(text), file_name_(file_name.empty() ? "<text>" : file_name) {}

Status Lexer::Start() {
  MW_RETURN_IF_ERROR(Scan(&current_));
  return Scan(&next_);
}

Status Lexer::Advance() {
  current_ = next_;
  return Scan(&next_);
}

Result<bool> Lexer::Accept(char c) {
  if (!current_.Is(c)) return false;
  MW_RETURN_IF_ERROR(Advance());
  return true;
}

Status Lexer::Expect(char c, std::string_view context) {
  if (!current_.Is(c)) return Unexpected(fmt::format("'{}' {}", c, context));
  return Advance();
}

Result<std::string> Lexer::ExpectName(std::string_view what) {
  std::string name;
  if (current_.kind == TokenKind::kIdentifier) {
    name = current_.text;
  } else if (current_.kind == TokenKind::kString) {
    name = Unescape(current_.text);
  } else {
    return Unexpected(what);
  }
  MW_RETURN_IF_ERROR(Advance());
  return name;
}

Status Lexer::SkipBlanksAndComments() {
  while (position_ < text_.size()) {
    const std::string_view rest = text_.substr(position_);
    if (IsBlank(rest.front())) {
      ++position_;
    } else if (rest.starts_with("//")) {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else if (rest.starts_with("/*")) {
      const size_t end = text_.find("*/", position_ + 2);
      if (end == std::string_view::npos) return ErrorAt(position_, "this comment has no end");
      position_ = end + 2;
    } else {
      break;
    }
  }
  return Status::Ok();
}

Status Lexer::Scan(Token* token) {
  MW_RETURN_IF_ERROR(SkipBlanksAndComments());
  *token = {TokenKind::kEnd, {}, position_};
  if (position_ == text_.size()) return Status::Ok();
  const char first = text_[position_];
  const char second = position_ + 1 < text_.size() ? text_[position_ + 1] : '\0';
  if (first == '"') return ScanString(token);
  if (IsNameStart(first)) {
    size_t end = position_ + 1;
    while (end < text_.size() && IsNamePart(text_[end])) ++end;
    *token = {TokenKind::kIdentifier, text_.substr(position_, end - position_), position_};
    position_ = end;
    return Status::Ok();
  }
  if (first == '-' && second == '>') {
    *token = {TokenKind::kArrow, text_.substr(position_, 2), position_};
    position_ += 2;
    return Status::Ok();
  }
  const bool is_sign = first == '-' || first == '+';
  if (IsDigit(first) || (is_sign && (IsDigit(second) || IsNameStart(second) || second == '.')) ||
      (first == '.' && IsDigit(second))) {
    ScanNumber(token);
    return Status::Ok();
  }
  if (std::string_view("()[]{}<>,;=?:").find(first) != std::string_view::npos) {
    *token = {TokenKind::kPunctuation, text_.substr(position_, 1), position_};
    ++position_;
    return Status::Ok();
  }
  return ErrorAt(position_, fmt::format("'{}' has no place in MIL text", Showable(text_.substr(position_, 1))));
}

void Lexer::ScanNumber(Token* token) {
  const size_t start = position_;
  const std::string_view digits = text_.substr(start + (IsDigit(text_[start]) || text_[start] == '.' ? 0 : 1));
  const bool is_hex = digits.starts_with("0x") || digits.starts_with("0X");
  const std::string_view exponent_letters = is_hex ? "pP" : "eE";
  size_t end = start + 1;
  for (; end < text_.size(); ++end) {
    const char c = text_[end];
    const bool is_exponent_sign =
        (c == '-' || c == '+') && exponent_letters.find(text_[end - 1]) != std::string_view::npos;
    if (!IsNamePart(c) && c != '.' && !is_exponent_sign) break;
  }
  *token = {TokenKind::kNumber, text_.substr(start, end - start), start};
  position_ = end;
}

Status Lexer::ScanString(Token* token) {
  const size_t start = position_ + 1;
  size_t end = start;
  while (end < text_.size() && text_[end] != '"') {
    if (text_[end] != '\\') {
      ++end;
      continue;
    }
    const char letter = end + 1 < text_.size() ? text_[end + 1] : '\0';
    if (letter == 'x') {
      const bool two_digits = end + 3 < text_.size() && HexDigit(text_[end + 2]) >= 0 && HexDigit(text_[end + 3]) >= 0;
      if (!two_digits) return ErrorAt(end, "\\x takes two hexadecimal digits");
      end += 4;
    } else if (SimpleEscape(letter) >= 0) {
      end += 2;
    } else if (end + 1 == text_.size()) {
      end = text_.size();
    } else {
      return ErrorAt(end, fmt::format("there is no escape '\\{}'", Showable(text_.substr(end + 1, 1))));
    }
  }
  if (end >= text_.size()) return ErrorAt(position_, "this string has no closing quote");
  *token = {TokenKind::kString, text_.substr(start, end - start), position_};
  position_ = end + 1;
  return Status::Ok();
}

size_t Lexer::LineOf(size_t offset) const {
  return 1 + static_cast<size_t>(std::ranges::count(text_.substr(0, offset), '\n'));
}

Status Lexer::ErrorAt(size_t offset, std::string_view message) const {
  const size_t before = offset == 0 ? std::string_view::npos : text_.rfind('\n', offset - 1);
  const size_t start = before == std::string_view::npos ? 0 : before + 1;
  size_t end = std::min(text_.find('\n', offset), text_.size());
  if (end > start && text_[end - 1] == '\r' && end > offset) --end;

  size_t window_start = start;
  if (offset - start > kWindow) {
    window_start = offset - kWindow;
    while (window_start < offset && IsContinuation(text_[window_start])) ++window_start;
  }
  size_t window_end = end;
  if (end - offset > kWindow) {
    window_end = offset + kWindow;
    while (window_end > offset && IsContinuation(text_[window_end])) --window_end;
  }
  const std::string_view lead = window_start > start ? "..." : "";
  const std::string_view tail = window_end < end ? "..." : "";
  const std::string_view head = text_.substr(window_start, offset - window_start);
  return {ErrorCode::kUnreadable, fmt::format("{}:{}:{}: error: {}\n{}{}{}\n{:>{}}", file_name_, LineOf(offset),
                                              Width(text_.substr(start, offset - start)) + 1, message, lead,
                                              Showable(text_.substr(window_start, window_end - window_start)), tail,
                                              '^', lead.size() + Width(head) + 1)};
}

Status Lexer::Unexpected(std::string_view what) const {
  switch (current_.kind) {
    case TokenKind::kEnd:
      return ErrorHere(fmt::format("expected {}, found the end of the text", what));
    case TokenKind::kString:
      return ErrorHere(fmt::format("expected {}, found a string", what));
    default:
      break;
  }
  return ErrorHere(fmt::format("expected {}, found '{}'", what, Excerpt(current_.text)));
}

std::string Unescape(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      text += raw[i];
    } else if (raw[i + 1] == 'x') {
      text += static_cast<char>(HexDigit(raw[i + 2]) * 16 + HexDigit(raw[i + 3]));
      i += 3;
    } else {
      text += static_cast<char>(SimpleEscape(raw[i + 1]));
      i += 1;
    }
  }
  return text;
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const size_t length = Utf8Length(text);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (length == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return quoted + '"';
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kShown = 40;
  if (text.size() <= kShown) return Showable(text);
  size_t end = kShown;
  while (end > 0 && IsContinuation(text[end])) --end;
  return Showable(text.substr(0, end)) + "...";
}

bool IsIdentifier(std::string_view name) {
  return !name.empty() && IsNameStart(name.front()) && std::ranges::all_of(name, IsNamePart);
}

}  // namespace milwright
