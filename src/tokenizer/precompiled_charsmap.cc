#include "tokenizer/precompiled_charsmap.h"

#include <utf8proc.h>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr size_t kMaxGraphemeBytes = 5;  // longer grapheme clusters are mapped character by character

uint32_t LoadLittleEndian(std::string_view bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  return value;
}

bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 1U << 9) >> 6); }

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const std::string_view group = text.substr(i, 4);
    const bool last = i + 4 == text.size();
    const size_t padding = last && group.ends_with("==") ? 2 : last && group.ends_with('=') ? 1 : 0;
    uint32_t bits = 0;
    for (size_t j = 0; j < 4; ++j) {
      const int digit = j < 4 - padding ? Base64Digit(group[j]) : 0;
      if (digit < 0) return std::nullopt;
      bits = bits << 6 | static_cast<uint32_t>(digit);
    }
    for (size_t j = 0; j < 3 - padding; ++j) bytes += static_cast<char>(bits >> (16 - 8 * j) & 0xFF);
  }
  return bytes;
}

Result<PrecompiledCharsmap> PrecompiledCharsmap::Decode(std::string_view base64) {
  const std::optional<std::string> bytes = DecodeBase64(base64);
  if (!bytes) return Status(ErrorCode::kUnreadable, "is not base64");
  if (bytes->size() < 4) return Status(ErrorCode::kUnreadable, "is too short for a character map");
  const uint32_t trie_bytes = LoadLittleEndian(*bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes->size() - 4) {
    return Status(ErrorCode::kUnreadable, "has a trie size that does not fit");
  }
  PrecompiledCharsmap map;
  map.units_.reserve(trie_bytes / 4);
  for (size_t i = 0; i < trie_bytes; i += 4) map.units_.push_back(LoadLittleEndian(*bytes, 4 + i));
  map.replacements_ = bytes->substr(4 + trie_bytes);
  if (FindInvalidUtf8(map.replacements_)) return Status(ErrorCode::kUnreadable, "has replacements that are not UTF-8");
  return map;
}

std::optional<std::string_view> PrecompiledCharsmap::Find(std::string_view chunk) const {
  size_t node = OffsetOf(units_[0]);
  for (const char c : chunk) {
    const auto label = static_cast<unsigned char>(c);
    if (label == 0) return std::nullopt;
    node ^= label;
    if (node >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[node];
    if (LabelOf(unit) != label) return std::nullopt;
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const uint32_t begin = ValueOf(units_[node]);
    if (begin > replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    if (!rest.empty() && (static_cast<unsigned char>(rest[0]) & 0xC0) == 0x80) return std::nullopt;
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string PrecompiledCharsmap::Normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  const auto map_character = [&](std::string_view character) { out += Find(character).value_or(character); };
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin;
    char32_t last = NextCodePoint(text, end);
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      size_t next_end = end;
      const char32_t next = NextCodePoint(text, next_end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last), static_cast<utf8proc_int32_t>(next),
                                           &state)) {
        break;
      }
      last = next;
      end = next_end;
    }
    const std::string_view grapheme = text.substr(begin, end - begin);
    begin = end;
    if (grapheme.size() <= kMaxGraphemeBytes) {
      if (const auto replacement = Find(grapheme)) {
        out += *replacement;
        continue;
      }
    }
    for (size_t position = 0; position < grapheme.size();) {
      const size_t start = position;
      NextCodePoint(grapheme, position);
      map_character(grapheme.substr(start, position - start));
    }
  }
  return out;
}

}  // namespace milwright
