// SentencePiece's precompiled character map: a darts double-array trie from byte strings to replacements.
#ifndef MILWRIGHT_TOKENIZER_PRECOMPILED_CHARSMAP_H_
#define MILWRIGHT_TOKENIZER_PRECOMPILED_CHARSMAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// Layout (sentencepiece normalizer.cc, DecodePrecompiledCharsMap): u32 size of the trie in bytes, the trie as
/// little-endian u32 units, then the replacements, each ended by a zero byte. A unit holds, as darts-clone defines it,
/// a label in bits 0-7, has_leaf in bit 8, and an offset in bits 10-31 that bit 9 scales by 256; a leaf unit holds a
/// value in bits 0-30, here the byte offset of the replacement.
class PrecompiledCharsmap {
 public:
  /// `base64` is the text of "precompiled_charsmap" in tokenizer.json. Every offset is checked when it is followed.
  static Result<PrecompiledCharsmap> Decode(std::string_view base64);

  /// `text` (well-formed UTF-8) with every grapheme cluster shorter than six bytes, or else every character, replaced
  /// by the entry for its shortest prefix in the trie, as SentencePiece's users agreed to do.
  [[nodiscard]] std::string Normalize(std::string_view text) const;

 private:
  [[nodiscard]] std::optional<std::string_view> Find(std::string_view chunk) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

/// Decodes standard base64 with padding; nullopt if `text` is none.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_PRECOMPILED_CHARSMAP_H_
