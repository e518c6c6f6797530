// The WordLevel model: a word is a token or unknown.
#ifndef MILWRIGHT_TOKENIZER_WORD_LEVEL_MODEL_H_
#define MILWRIGHT_TOKENIZER_WORD_LEVEL_MODEL_H_

#include <memory>
#include <string>
#include <utility>

#include "tokenizer/model.h"

namespace milwright {

class WordLevelModel : public Model {
 public:
  static Result<std::unique_ptr<Model>> FromJson(const JsonReader& reader);

  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }
  Status Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const override;

 private:
  WordLevelModel(Vocabulary vocabulary, std::string unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(std::move(unknown)) {}

  Vocabulary vocabulary_;
  std::string unknown_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_WORD_LEVEL_MODEL_H_
