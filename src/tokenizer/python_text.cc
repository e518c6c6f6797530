#include "tokenizer/python_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

bool IsStripped(std::string_view character, char32_t c, std::optional<std::string_view> chars) {
  return chars ? chars->find(character) != std::string_view::npos : IsSpace(c);
}

void AppendUppercase(char32_t c, std::string& out) {
  constexpr char32_t kSharpS = 0xDF;  // the one common letter with two capitals
  if (c == kSharpS) {
    out += "SS";
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

/// Line boundaries of str.splitlines.
bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::vector<std::string_view> SplitAtWhitespace(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  text = from_right ? StripRight(text) : StripLeft(text);
  while (!text.empty()) {
    if (limit == 0) {
      parts.push_back(text);
      break;
    }
    if (limit > 0) --limit;
    size_t cut = from_right ? text.size() : 0;
    if (from_right) {
      while (cut > 0) {
        size_t begin = cut;
        if (IsSpace(PreviousCodePoint(text, cut, begin))) break;
        cut = begin;
      }
      parts.push_back(text.substr(cut));
      text = StripRight(text.substr(0, cut));
    } else {
      while (cut < text.size()) {
        size_t end = cut;
        if (IsSpace(NextCodePoint(text, end))) break;
        cut = end;
      }
      parts.push_back(text.substr(0, cut));
      text = StripLeft(text.substr(cut));
    }
  }
  return parts;
}

}  // namespace

bool IsSpace(char32_t c) { return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view StripLeft(std::string_view text, std::optional<std::string_view> chars) {
  size_t position = 0;
  while (position < text.size()) {
    const size_t begin = position;
    const char32_t c = NextCodePoint(text, position);
    if (!IsStripped(text.substr(begin, position - begin), c, chars)) return text.substr(begin);
  }
  return text.substr(text.size());
}

std::string_view StripRight(std::string_view text, std::optional<std::string_view> chars) {
  while (!text.empty()) {
    size_t begin = 0;
    const char32_t c = PreviousCodePoint(text, text.size(), begin);
    if (!IsStripped(text.substr(begin), c, chars)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view Strip(std::string_view text, std::optional<std::string_view> chars) {
  return StripLeft(StripRight(text, chars), chars);
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Upper(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) AppendUppercase(NextCodePoint(text, position), out);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) AppendLowercase(NextCodePoint(text, position), out);
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = Utf8Length(text[0]);
  return Upper(text.substr(0, first)) + Lower(text.substr(first));
}

std::vector<std::string_view> Split(std::string_view text, std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right) {
  std::vector<std::string_view> parts;
  if (!separator) {
    parts = SplitAtWhitespace(text, limit, from_right);
  } else if (from_right) {
    size_t found = 0;
    while (limit != 0 && (found = text.rfind(*separator)) != std::string_view::npos) {
      parts.push_back(text.substr(found + separator->size()));
      text = text.substr(0, found);
      --limit;
    }
    parts.push_back(text);
  } else {
    size_t found = 0;
    while (limit != 0 && (found = text.find(*separator)) != std::string_view::npos) {
      parts.push_back(text.substr(0, found));
      text = text.substr(found + separator->size());
      --limit;
    }
    parts.push_back(text);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t end = position;
    const char32_t c = NextCodePoint(text, position);
    if (!IsLineEnd(c)) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(begin, (keep_ends ? position : end) - begin));
    begin = position;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t CountMatches(std::string_view text, std::string_view old) {
  if (old.empty()) return CountCharacters(text) + 1;
  size_t count = 0;
  for (size_t found = text.find(old); found != std::string_view::npos; found = text.find(old, found + old.size())) {
    ++count;
  }
  return count;
}

std::string Replace(std::string_view text, std::string_view old, std::string_view replacement, int64_t limit) {
  std::string out;
  size_t position = 0;
  if (old.empty()) {
    while (limit != 0) {
      out += replacement;
      --limit;
      if (position >= text.size()) break;
      const size_t length = Utf8Length(text[position]);
      out += text.substr(position, length);
      position += length;
    }
    if (position < text.size()) out += text.substr(position);
    return out;
  }
  size_t found = 0;
  while (limit != 0 && (found = text.find(old, position)) != std::string_view::npos) {
    out += text.substr(position, found - position);
    out += replacement;
    position = found + old.size();
    --limit;
  }
  out += text.substr(position);
  return out;
}

}  // namespace milwright::jinja
