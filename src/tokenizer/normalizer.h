// Normalizers of tokenizer.json: what happens to the text before it is cut into words.
#ifndef MILWRIGHT_TOKENIZER_NORMALIZER_H_
#define MILWRIGHT_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"

namespace milwright {

/// A piece of text on its way through the normalizers.
struct NormalizedText {
  std::string text;
  /// Whether its first character comes from the very start of the input. The Metaspace scheme "first" asks for it, and
  /// a normalizer that removes leading characters makes it false.
  bool at_origin = true;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual Status Apply(NormalizedText& piece) const = 0;
};

/// The normalizer that the object in `reader` describes; an error for a type this library lacks.
Result<std::unique_ptr<Normalizer>> MakeNormalizer(const JsonReader& reader);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_NORMALIZER_H_
