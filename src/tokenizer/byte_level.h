// The byte-level alphabet of GPT-2: every byte has a printable character, so that any text is made of vocabulary
// letters. Source: GPT-2's bytes_to_unicode; '!'..'~', U+00A1..U+00AC and U+00AE..U+00FF stand for themselves, the
// other bytes in ascending order for U+0100 onwards.
#ifndef MILWRIGHT_TOKENIZER_BYTE_LEVEL_H_
#define MILWRIGHT_TOKENIZER_BYTE_LEVEL_H_

#include <optional>
#include <string>
#include <string_view>

namespace milwright {

/// The character that stands for `byte`.
char32_t ByteLevelCharacter(unsigned char byte);

/// The byte that `character` stands for, if it is in the alphabet.
std::optional<unsigned char> ByteLevelByte(char32_t character);

/// Appends the byte-level form of `bytes` to `out`.
void AppendByteLevel(std::string_view bytes, std::string& out);

/// The bytes that the token stands for; a token with a character outside the alphabet stands for its own UTF-8.
std::string ByteLevelTokenBytes(std::string_view token);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_BYTE_LEVEL_H_
