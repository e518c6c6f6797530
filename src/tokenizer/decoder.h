// Decoders of tokenizer.json: from token strings back to text, token by token.
#ifndef MILWRIGHT_TOKENIZER_DECODER_H_
#define MILWRIGHT_TOKENIZER_DECODER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"

namespace milwright {

/// One step of a decoder at work. Tokens flow through the steps in parts, so that text comes out as early as it is
/// certain: a step holds back only what tokens to come may still change. Parts are whole characters of UTF-8.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Where the output goes; set before anything else is called.
  void set_next(DecodeStep* next) { next_ = next; }

  /// More text of the current token.
  virtual Status Part(std::string_view text) = 0;
  /// The end of the current token.
  virtual Status EndToken() = 0;
  /// The end of the sequence. Passed on after what was held back.
  virtual Status Finish() { return next_->Finish(); }

 protected:
  [[nodiscard]] DecodeStep& next() const { return *next_; }

 private:
  DecodeStep* next_ = nullptr;
};

/// The description of a decoder, from which a new state is made for every sequence. Immutable.
class Decoder {
 public:
  using StepMaker = std::function<std::unique_ptr<DecodeStep>()>;

  /// Without a decoder the tokens are joined with spaces.
  Decoder();
  /// The decoder that the object in `reader` describes; an error for a type this library lacks.
  static Result<Decoder> FromJson(const JsonReader& reader);

 private:
  friend class DecodeRun;
  std::vector<StepMaker> makers_;
};

/// Decodes one sequence of tokens.
class DecodeRun {
 public:
  explicit DecodeRun(const Decoder& decoder);

  /// Appends to `out` the text that `token` makes certain.
  Status Push(std::string_view token, std::string& out);
  /// Appends the rest. The run is over.
  Status Finish(std::string& out);

 private:
  class Sink;

  std::vector<std::unique_ptr<DecodeStep>> steps_;
  std::shared_ptr<Sink> sink_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_DECODER_H_
