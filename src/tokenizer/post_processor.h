// Post-processors of tokenizer.json: the special tokens around a sequence.
#ifndef MILWRIGHT_TOKENIZER_POST_PROCESSOR_H_
#define MILWRIGHT_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"

namespace milwright {

/// What a single sequence is wrapped in. TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel (which moves
/// offsets only) and sequences of them all come down to this.
class PostProcessor {
 public:
  /// Adds nothing.
  PostProcessor() = default;
  static Result<PostProcessor> FromJson(const JsonReader& reader);

  /// Puts the special tokens around `ids`.
  void AddSpecialTokens(std::vector<int32_t>& ids) const;

 private:
  std::vector<int32_t> before_;
  std::vector<int32_t> after_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_POST_PROCESSOR_H_
