// UTF-8: checking text that comes from files, and encoding code points.
#ifndef MILWRIGHT_BASE_UTF8_H_
#define MILWRIGHT_BASE_UTF8_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace milwright {

/// Whether `text` is valid UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
bool IsUtf8(std::string_view text);

/// Reads the code point at `position` of valid UTF-8 text and moves `position` behind it.
uint32_t DecodeUtf8(std::string_view text, size_t* position);

/// Appends a code point; false when it is none (a surrogate, or above U+10FFFF).
bool AppendUtf8(uint32_t code_point, std::string* text);

/// `text` with control characters and bytes that are no UTF-8 written as \xNN, so that a message built from a hostile
/// name stays one readable line.
std::string EscapeForMessage(std::string_view text);

}  // namespace milwright

#endif  // MILWRIGHT_BASE_UTF8_H_
