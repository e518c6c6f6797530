#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr bool StandsForItself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr int kRenamedBytes = 68;  // the bytes that do not stand for themselves: 33 + 1 + 33 + 1
constexpr char32_t kFirstRenamed = 0x100;

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<unsigned char, kRenamedBytes> renamed{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  unsigned next = 0;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (StandsForItself(byte)) {
      alphabet.character[byte] = static_cast<uint16_t>(byte);
    } else {
      alphabet.renamed[next] = static_cast<unsigned char>(byte);
      alphabet.character[byte] = static_cast<uint16_t>(kFirstRenamed + next++);
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t ByteLevelCharacter(unsigned char byte) { return kAlphabet.character[byte]; }

std::optional<unsigned char> ByteLevelByte(char32_t character) {
  if (character < 0x100) {
    if (!StandsForItself(character)) return std::nullopt;
    return static_cast<unsigned char>(character);
  }
  if (character >= kFirstRenamed + kRenamedBytes) return std::nullopt;
  return kAlphabet.renamed[character - kFirstRenamed];
}

void AppendByteLevel(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) AppendUtf8(ByteLevelCharacter(static_cast<unsigned char>(byte)), out);
}

std::string ByteLevelTokenBytes(std::string_view token) {
  std::string bytes;
  for (size_t position = 0; position < token.size();) {
    const std::optional<unsigned char> byte = ByteLevelByte(NextCodePoint(token, position));
    if (!byte) return std::string(token);
    bytes += static_cast<char>(*byte);
  }
  return bytes;
}

}  // namespace milwright
