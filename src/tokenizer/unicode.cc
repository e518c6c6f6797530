#include "tokenizer/unicode.h"

#include <utf8proc.h>

namespace milwright {
namespace {

/// The well-formed continuations of a lead byte (Unicode standard, table 3-7).
struct Utf8Shape {
  size_t length = 0;  ///< 0: the byte cannot start a character
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Utf8Shape ShapeOf(unsigned char lead) {
  if (lead < 0x80) return {1};
  if (lead < 0xC2) return {0};
  if (lead < 0xE0) return {2};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

/// How many bytes at the start of `text` (not empty) form the start of one character, and whether it is complete.
struct Utf8Prefix {
  size_t length;  ///< at least 1 unless the first byte starts nothing
  bool complete;
  bool broken;  ///< the byte behind the prefix cannot continue it
};

Utf8Prefix PrefixOf(std::string_view text) {
  const Utf8Shape shape = ShapeOf(static_cast<unsigned char>(text[0]));
  if (shape.length == 0) return {0, false, true};
  for (size_t i = 1; i < shape.length; ++i) {
    if (i == text.size()) return {i, false, false};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? shape.second_min : 0x80;
    const unsigned char high = i == 1 ? shape.second_max : 0xBF;
    if (byte < low || byte > high) return {i, false, true};
  }
  return {shape.length, true, false};
}

utf8proc_category_t CategoryOf(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<unsigned char>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const Utf8Prefix prefix = PrefixOf(text.substr(position));
    if (!prefix.complete) return position;
    position += prefix.length;
  }
  return std::nullopt;
}

char32_t NextCodePoint(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  const char32_t lead = byte(0);
  char32_t code_point = lead;
  const size_t length = Utf8Length(text[position]);
  if (length == 2) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  } else if (length == 3) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  } else if (length == 4) {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
  position += length;
  return code_point;
}

char32_t PreviousCodePoint(std::string_view text, size_t end, size_t& begin) {
  begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  size_t position = begin;
  return NextCodePoint(text, position);
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::u32string ToUtf32(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) out += NextCodePoint(text, position);
  return out;
}

std::string ToUtf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, out);
  return out;
}

bool IsWhitespace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  }
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsWordCharacter(char32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  if (letter || IsMark(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
      category == UTF8PROC_CATEGORY_PC) {
    return true;
  }
  // Other_Alphabetic outside the categories above, and Join_Control (PropList.txt).
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

void AppendLowercase(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  constexpr char32_t kCapitalIWithDot = 0x130;  // the only character whose lower case is two (SpecialCasing.txt)
  if (c == kCapitalIWithDot) {
    out += "i\xCC\x87";
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

void LossyUtf8Decoder::Push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    pending_.clear();
    joined += bytes;
    bytes = joined;
  }
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Prefix prefix = PrefixOf(bytes.substr(position));
    if (prefix.complete) {
      out += bytes.substr(position, prefix.length);
      position += prefix.length;
    } else if (prefix.broken) {
      out += kReplacementCharacter;
      position += prefix.length == 0 ? 1 : prefix.length;
    } else {
      pending_ = bytes.substr(position);
      return;
    }
  }
}

void LossyUtf8Decoder::Finish(std::string& out) {
  if (!pending_.empty()) out += kReplacementCharacter;
  pending_.clear();
}

}  // namespace milwright
