// Pre-tokenizers of tokenizer.json: they cut the normalized text into words, which the model then encodes one by one.
#ifndef MILWRIGHT_TOKENIZER_PRE_TOKENIZER_H_
#define MILWRIGHT_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/regex.h"

namespace milwright {

/// A word: a byte range of PreTokenizedText::text.
struct Word {
  size_t begin;
  size_t end;
  bool at_origin;  ///< whether its first character comes from the very start of the input
};

/// Text and the words in it, none of them empty.
struct PreTokenizedText {
  std::string text;
  std::vector<Word> words;

  [[nodiscard]] std::string_view Get(const Word& word) const {
    return std::string_view(text).substr(word.begin, word.end - word.begin);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status Apply(PreTokenizedText& text, RegexScratch& scratch) const = 0;
};

/// The pre-tokenizer that the object in `reader` describes; an error for a type this library lacks.
Result<std::unique_ptr<PreTokenizer>> MakePreTokenizer(const JsonReader& reader);

/// How Metaspace marks the start of a text.
enum class PrependScheme { kAlways, kFirst, kNever };

/// The options that the Metaspace pre-tokenizer and the Metaspace decoder share.
struct MetaspaceOptions {
  std::string replacement;  ///< one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;

  static Result<MetaspaceOptions> FromJson(const JsonReader& reader);
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_PRE_TOKENIZER_H_
