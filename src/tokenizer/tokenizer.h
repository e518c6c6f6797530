// Text to token ids and back, as a Hugging Face tokenizer.json describes it.
#ifndef MILWRIGHT_TOKENIZER_TOKENIZER_H_
#define MILWRIGHT_TOKENIZER_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// The ids of the tokens that tokenizer_config.json names; empty where it names none.
struct SpecialTokenIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> pad;
  std::optional<int32_t> unk;
};

class StreamDecoder;

/// Immutable after loading; threads may share it. Copies share their data.
///
/// Gives the ids of the Rust library `tokenizers` 0.22, but for characters that one of the Unicode tables is too old to
/// know (here PCRE2's and utf8proc's, of Unicode 14 and 15). Models: BPE (byte-level, byte fallback, unknown token),
/// Unigram, WordLevel; the components are those of normalizer.cc, pre_tokenizer.cc, post_processor.cc and decoder.cc. A
/// file that needs anything else is refused. "truncation" and "padding" are settings of whoever made batches for
/// training and, as in `transformers`, do not apply.
class Tokenizer {
 public:
  /// Loads `path`: a tokenizer.json, or a folder with one and, if there, its tokenizer_config.json.
  static Result<Tokenizer> Load(const std::filesystem::path& path);

  /// From the text of a tokenizer.json; `name` stands for it in errors.
  static Result<Tokenizer> FromJson(std::string_view json, std::string_view name);

  /// The ids of `text`, with the special tokens that the file puts around a sequence if `add_special_tokens`. Text that
  /// is not UTF-8 is an error. Time O(n log n).
  [[nodiscard]] Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  /// The text of `ids`. Ids without a token give no text; negative ids are an error. What is not UTF-8 becomes U+FFFD.
  [[nodiscard]] Result<std::string> Decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const;

  [[nodiscard]] std::optional<int32_t> TokenToId(std::string_view token) const;
  /// The token as it stands in the vocabulary (not decoded).
  [[nodiscard]] std::optional<std::string> IdToToken(int32_t id) const;
  /// Whether the id is an added token marked special, which skip_special_tokens leaves out.
  [[nodiscard]] bool IsSpecial(int32_t id) const;

  /// The number of different tokens, with added ones.
  [[nodiscard]] size_t vocab_size() const;
  /// One more than the largest id: how many logits a model for this tokenizer has at least.
  [[nodiscard]] int64_t id_limit() const;
  [[nodiscard]] const SpecialTokenIds& special_ids() const;

 private:
  friend class StreamDecoder;
  struct Impl;

  static Result<std::shared_ptr<Impl>> ReadDocument(std::string_view json, std::string_view name);
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids one by one as they are generated. All that Push and Finish return, put together, is what Decode gives
/// for all ids: text is held back as long as ids to come may change it (half a character, a run of byte tokens, a space
/// that may be stripped), and never taken back.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Takes an id and returns the text that is certain now, often empty.
  Result<std::string> Push(int32_t id);
  /// Returns the rest; the decoder then starts a new sequence.
  Result<std::string> Finish();

 private:
  struct State;

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<State> state_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_TOKENIZER_H_
