// Byte pair encoding: a word starts as its characters, and the known pair of lowest rank is merged until none is left.
#ifndef MILWRIGHT_TOKENIZER_BPE_MODEL_H_
#define MILWRIGHT_TOKENIZER_BPE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/pair_map.h"

namespace milwright {

/// Time O(n log n) in the length of a word, whatever the word.
class BpeModel : public Model {
 public:
  static Result<std::unique_ptr<Model>> FromJson(const JsonReader& reader);

  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  Status Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const override;

 private:
  BpeModel() = default;

  Status ReadOptions(const JsonReader& reader);
  Status ReadMerges(const JsonReader& reader);
  Status AddMerge(const JsonReader& place, std::string_view left, std::string_view right, int32_t rank);
  void IndexCharacters();

  /// The id of a character of a word, -1 if it has none.
  [[nodiscard]] int32_t CharacterId(char32_t c) const;
  /// Appends the symbols that a word starts as.
  Status AppendSymbols(std::string_view word, std::vector<int32_t>& symbols) const;
  /// Encodes a word by itself, without looking into it for places where it falls apart.
  Status EncodeWhole(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;
  /// Encodes a word that may be a whole text, cut where no merge can reach across.
  Status EncodeInChunks(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  PairMap merges_;
  std::optional<std::string> unknown_;
  std::string prefix_;  ///< in front of all characters but the first
  std::string suffix_;  ///< behind the last character
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  ByteTokens byte_tokens_;
  std::vector<int32_t> low_character_ids_;
  std::unordered_map<char32_t, int32_t> character_ids_;
  /// Pairs of characters that stand side by side in the middle of some merge. A word cut between two other characters
  /// encodes as its two parts do. Filled only if cutting is exact: see IndexCharacters.
  PairMap junctions_;
  bool can_cut_ = false;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_BPE_MODEL_H_
