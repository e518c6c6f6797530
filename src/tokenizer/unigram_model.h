// The Unigram model of SentencePiece: the segmentation with the highest sum of token scores.
#ifndef MILWRIGHT_TOKENIZER_UNIGRAM_MODEL_H_
#define MILWRIGHT_TOKENIZER_UNIGRAM_MODEL_H_

#include <memory>
#include <optional>
#include <vector>

#include "tokenizer/byte_trie.h"
#include "tokenizer/model.h"

namespace milwright {

/// Viterbi over the characters of a word: time O(length x longest token). A character that is no token costs the lowest
/// score minus 10 (SentencePiece's kUnkPenalty); adjacent unknown characters become one unknown token, or byte tokens
/// with byte_fallback.
class UnigramModel : public Model {
 public:
  static Result<std::unique_ptr<Model>> FromJson(const JsonReader& reader);

  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  Status Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const override;

 private:
  UnigramModel() = default;

  Vocabulary vocabulary_;
  std::vector<double> scores_;  ///< by id
  ByteTrie trie_;
  double unknown_score_ = 0;
  std::optional<int32_t> unknown_id_;
  bool byte_fallback_ = false;
  ByteTokens byte_tokens_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_UNIGRAM_MODEL_H_
