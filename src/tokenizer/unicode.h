// UTF-8 and the few Unicode character classes that tokenizers are defined with.
#ifndef MILWRIGHT_TOKENIZER_UNICODE_H_
#define MILWRIGHT_TOKENIZER_UNICODE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace milwright {

/// U+FFFD in UTF-8: stands for bytes that are no UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// The byte offset of the first byte that is not part of well-formed UTF-8, or nullopt if all of `text` is.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

/// The number of bytes of the UTF-8 sequence that starts with `lead`; `lead` must start one.
constexpr size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Decodes the code point at `position` of the well-formed `text` and moves `position` behind it.
char32_t NextCodePoint(std::string_view text, size_t& position);

/// Decodes the code point that ends at `end` (> 0) of the well-formed `text`, and its start through `begin`.
char32_t PreviousCodePoint(std::string_view text, size_t end, size_t& begin);

/// Appends `code_point` as UTF-8.
void AppendUtf8(char32_t code_point, std::string& out);

/// All code points of the well-formed `text`.
std::u32string ToUtf32(std::string_view text);

/// `text` as UTF-8.
std::string ToUtf8(std::u32string_view text);

/// Unicode White_Space (what Rust's char::is_whitespace and regex \s mean).
bool IsWhitespace(char32_t c);
/// General category N (Rust's char::is_numeric).
bool IsNumeric(char32_t c);
/// ASCII punctuation or general category P.
bool IsPunctuation(char32_t c);
/// General category M.
bool IsMark(char32_t c);
/// What regex \w means to Rust: Alphabetic, M, Nd, Pc or Join_Control.
bool IsWordCharacter(char32_t c);

/// Appends the full lower-case mapping of `c` (Rust's char::to_lowercase).
void AppendLowercase(char32_t c, std::string& out);

/// Turns a stream of bytes into well-formed UTF-8: complete characters come out as soon as they are complete, and every
/// maximal run of bytes that starts no character becomes one U+FFFD (the rule of the Unicode standard, section 3.9, and
/// of Rust's String::from_utf8_lossy).
class LossyUtf8Decoder {
 public:
  /// Appends to `out` what `bytes` completes.
  void Push(std::string_view bytes, std::string& out);
  /// Appends U+FFFD if a character is still incomplete, and starts anew.
  void Finish(std::string& out);

 private:
  std::string pending_;  ///< the first bytes of one incomplete character
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_UNICODE_H_
