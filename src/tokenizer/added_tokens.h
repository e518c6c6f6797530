// Tokens that are found in the text before the model sees it: special tokens and others a model was extended with.
#ifndef MILWRIGHT_TOKENIZER_ADDED_TOKENS_H_
#define MILWRIGHT_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocabulary.h"

namespace milwright {

/// One entry of "added_tokens" in tokenizer.json.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the whitespace to its left with it
  bool rstrip = false;       ///< takes the whitespace to its right with it
  bool normalized = false;   ///< searched, in its normalized form, in the normalized text
  bool special = false;      ///< left out when decoding with skip_special_tokens
};

/// A part of a text: an added token, or text between them.
struct AddedTokenSpan {
  size_t begin;
  size_t end;
  std::optional<int32_t> id;
};

class AddedTokens {
 public:
  /// Reads "added_tokens" of the file that `reader` holds. The ids follow from the vocabulary and the order, as the
  /// reference library assigns them; a file that states others is refused, for it would be read in two ways.
  static Result<AddedTokens> FromJson(const JsonReader& reader, const Vocabulary& vocabulary,
                                      const Normalizer* normalizer);

  /// Cuts `text` at the leftmost longest tokens: those that are searched in the raw text, or the normalized ones. The
  /// spans are in order and leave nothing out but whitespace that lstrip and rstrip take.
  [[nodiscard]] std::vector<AddedTokenSpan> Split(std::string_view text, bool normalized) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  [[nodiscard]] bool IsSpecial(std::string_view token) const { return special_.contains(std::string(token)); }

 private:
  Vocabulary vocabulary_;
  std::unordered_map<int32_t, AddedToken> tokens_;
  std::unordered_set<std::string> special_;
  ByteTrie raw_trie_;
  ByteTrie normalized_trie_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_ADDED_TOKENS_H_
