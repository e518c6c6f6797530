#include "base/utf8.h"

#include <fmt/format.h>

namespace milwright {
namespace {

// Length of the valid sequence at the front of `text`, or 0.
size_t SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // The second byte rules out overlong forms, surrogates and what lies above U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90)) return 0;
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

uint32_t DecodeUtf8(std::string_view text, size_t* position) {
  const auto first = static_cast<uint8_t>(text[(*position)++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  uint32_t code_point = first & (0x3FU >> static_cast<unsigned>(more));
  for (int i = 0; i < more; ++i) code_point = code_point << 6U | (static_cast<uint8_t>(text[(*position)++]) & 0x3FU);
  return code_point;
}

bool AppendUtf8(uint32_t code_point, std::string* text) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) return false;
  if (code_point < 0x80) {
    *text += static_cast<char>(code_point);
    return true;
  }
  const unsigned more = code_point >= 0x10000 ? 3 : code_point >= 0x800 ? 2 : 1;
  constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  *text += static_cast<char>(kLead[more] | code_point >> (6 * more));
  for (unsigned i = more; i-- > 0;) *text += static_cast<char>(0x80U | (code_point >> (6 * i) & 0x3FU));
  return true;
}

std::string EscapeForMessage(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const auto first = static_cast<uint8_t>(text[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      result += fmt::format("\\x{:02x}", first);
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

}  // namespace milwright
