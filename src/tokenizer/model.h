// The models of tokenizer.json: they turn one word into token ids.
#ifndef MILWRIGHT_TOKENIZER_MODEL_H_
#define MILWRIGHT_TOKENIZER_MODEL_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace milwright {

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const Vocabulary& vocabulary() const = 0;
  /// Appends the ids of `word` (well-formed UTF-8, not empty). `cache` must serve this model only.
  virtual Status Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const = 0;
};

/// The model that the object in `reader` describes: BPE, Unigram or WordLevel; an error for anything else. Files of old
/// versions have no "type": they are BPE if they have "merges".
Result<std::unique_ptr<Model>> MakeModel(const JsonReader& reader);

/// The ids of the tokens "<0x00>" ... "<0xFF>" that stand for single bytes; -1 where the vocabulary lacks one.
class ByteTokens {
 public:
  explicit ByteTokens(const Vocabulary& vocabulary);
  ByteTokens() : ids_(256, -1) {}

  /// Whether every byte of `text` has a token.
  [[nodiscard]] bool Cover(std::string_view text) const;
  void Append(std::string_view text, std::vector<int32_t>& ids) const;
  [[nodiscard]] bool complete() const;
  [[nodiscard]] bool Contains(int32_t id) const;

 private:
  std::vector<int32_t> ids_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_MODEL_H_
