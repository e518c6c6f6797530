#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr std::string_view kTokenizerFile = "tokenizer.json";
constexpr std::string_view kConfigFile = "tokenizer_config.json";

/// What one call of Encode works with; kept for the next call.
struct Scratch {
  RegexScratch regex;
  WordCache cache;
  PreTokenizedText text;
};

/// Scratch objects that no call is using. One thread alone always gets the same one, with its warm word cache.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> Take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  void Return(std::unique_ptr<Scratch> scratch) {
    // A long text must not keep its memory after the call.
    constexpr size_t kMaxKeptBytes = 1 << 20;
    if (scratch->text.text.capacity() > kMaxKeptBytes) scratch->text = PreTokenizedText();
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

/// The token that `key` of tokenizer_config.json names, as a string or as an object with "content".
Result<std::optional<std::string>> ReadTokenName(const JsonReader& config, std::string_view key) {
  if (!config.Has(key)) return std::optional<std::string>();
  MW_ASSIGN_OR_RETURN(const JsonReader value, config.Get(key));
  Result<std::string> name = value.value().is_object() ? value.String("content") : value.AsString();
  if (!name.ok()) return name.status();
  return std::make_optional(*std::move(name));
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<Normalizer> normalizer;       ///< null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  ///< null: none
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  SpecialTokenIds special_ids;
  mutable ScratchPool scratch_pool;

  Status Read(const JsonReader& root);
  Status ReadConfig(const std::filesystem::path& path);

  [[nodiscard]] const std::string* TokenOf(int32_t id) const {
    const std::string* token = added.vocabulary().TokenOf(id);
    return token != nullptr ? token : model->vocabulary().TokenOf(id);
  }

  /// Encodes text without raw added tokens; `at_origin` tells whether the input starts with it.
  Status EncodeSegment(std::string_view segment, bool at_origin, Scratch& scratch, std::vector<int32_t>& ids) const;
  /// Encodes normalized text without any added tokens.
  Status EncodeText(std::string_view text, bool at_origin, Scratch& scratch, std::vector<int32_t>& ids) const;
};

Status Tokenizer::Impl::Read(const JsonReader& root) {
  if (!root.value().is_object()) return root.Error("must be an object");
  if (root.Has("version")) {
    MW_ASSIGN_OR_RETURN(const std::string version, root.String("version"));
    if (version != "1.0") return root.Error(fmt::format("has version \"{}\"; only 1.0 is known", version));
  }
  if (root.Has("normalizer")) {
    MW_ASSIGN_OR_RETURN(const JsonReader reader, root.Get("normalizer"));
    MW_ASSIGN_OR_RETURN(normalizer, MakeNormalizer(reader));
  }
  if (root.Has("pre_tokenizer")) {
    MW_ASSIGN_OR_RETURN(const JsonReader reader, root.Get("pre_tokenizer"));
    MW_ASSIGN_OR_RETURN(pre_tokenizer, MakePreTokenizer(reader));
  }
  MW_ASSIGN_OR_RETURN(const JsonReader model_reader, root.Get("model"));
  MW_ASSIGN_OR_RETURN(model, MakeModel(model_reader));
  MW_ASSIGN_OR_RETURN(added, AddedTokens::FromJson(root, model->vocabulary(), normalizer.get()));
  if (root.Has("post_processor")) {
    MW_ASSIGN_OR_RETURN(const JsonReader reader, root.Get("post_processor"));
    MW_ASSIGN_OR_RETURN(post_processor, PostProcessor::FromJson(reader));
  }
  if (root.Has("decoder")) {
    MW_ASSIGN_OR_RETURN(const JsonReader reader, root.Get("decoder"));
    MW_ASSIGN_OR_RETURN(decoder, Decoder::FromJson(reader));
  }
  return Status::Ok();
}

Status Tokenizer::Impl::ReadConfig(const std::filesystem::path& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  MW_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, path.string()));
  const JsonReader config(json, path.string());
  const std::pair<std::string_view, std::optional<int32_t>*> wanted[] = {{"bos_token", &special_ids.bos},
                                                                         {"eos_token", &special_ids.eos},
                                                                         {"pad_token", &special_ids.pad},
                                                                         {"unk_token", &special_ids.unk}};
  for (const auto& [key, id] : wanted) {
    MW_ASSIGN_OR_RETURN(const std::optional<std::string> name, ReadTokenName(config, key));
    if (!name) continue;
    *id = added.vocabulary().IdOf(*name);
    if (!*id) *id = model->vocabulary().IdOf(*name);
    if (!*id)
      return config.Error(fmt::format("names \"{}\" as {}, which {} does not have", *name, key, kTokenizerFile));
  }
  return Status::Ok();
}

Status Tokenizer::Impl::EncodeSegment(std::string_view segment, bool at_origin, Scratch& scratch,
                                      std::vector<int32_t>& ids) const {
  NormalizedText normalized{{}, at_origin};
  if (normalizer != nullptr) {
    normalized.text = segment;
    MW_RETURN_IF_ERROR(normalizer->Apply(normalized));
    segment = normalized.text;
  }
  for (const AddedTokenSpan& span : added.Split(segment, /*normalized=*/true)) {
    if (span.id) {
      ids.push_back(*span.id);
      continue;
    }
    const bool first = normalized.at_origin && span.begin == 0;
    MW_RETURN_IF_ERROR(EncodeText(segment.substr(span.begin, span.end - span.begin), first, scratch, ids));
  }
  return Status::Ok();
}

Status Tokenizer::Impl::EncodeText(std::string_view text, bool at_origin, Scratch& scratch,
                                   std::vector<int32_t>& ids) const {
  if (pre_tokenizer == nullptr) return model->Encode(text, scratch.cache, ids);
  scratch.text.text = text;
  scratch.text.words.assign(1, {0, text.size(), at_origin});
  MW_RETURN_IF_ERROR(pre_tokenizer->Apply(scratch.text, scratch.regex));
  for (const Word& word : scratch.text.words) {
    MW_RETURN_IF_ERROR(model->Encode(scratch.text.Get(word), scratch.cache, ids));
  }
  return Status::Ok();
}

Result<std::shared_ptr<Tokenizer::Impl>> Tokenizer::ReadDocument(std::string_view json, std::string_view name) {
  MW_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json, name));
  auto impl = std::make_shared<Impl>();
  MW_RETURN_IF_ERROR(impl->Read(JsonReader(document, std::string(name))));
  return impl;
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json, std::string_view name) {
  MW_ASSIGN_OR_RETURN(std::shared_ptr<const Impl> impl, ReadDocument(json, name));
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::Load(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = is_folder ? path / kTokenizerFile : path;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file));
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<Impl> impl, ReadDocument(text, file.string()));
  const std::filesystem::path config = path / kConfigFile;
  if (is_folder && std::filesystem::exists(config, error)) MW_RETURN_IF_ERROR(impl->ReadConfig(config));
  return Tokenizer(impl);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  if (const std::optional<size_t> bad = FindInvalidUtf8(text)) {
    return Status(ErrorCode::kUsage, fmt::format("the text is not UTF-8 at byte {}", *bad));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  std::unique_ptr<Scratch> scratch = impl_->scratch_pool.Take();
  Status status;
  for (const AddedTokenSpan& span : impl_->added.Split(text, /*normalized=*/false)) {
    if (span.id) {
      ids.push_back(*span.id);
      continue;
    }
    status = impl_->EncodeSegment(text.substr(span.begin, span.end - span.begin), span.begin == 0, *scratch, ids);
    if (!status.ok()) break;
  }
  impl_->scratch_pool.Return(std::move(scratch));
  if (!status.ok()) return status;
  if (add_special_tokens) impl_->post_processor.AddSpecialTokens(ids);
  return ids;
}

Result<std::string> Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  StreamDecoder decoder(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) {
    MW_ASSIGN_OR_RETURN(const std::string part, decoder.Push(id));
    text += part;
  }
  MW_ASSIGN_OR_RETURN(const std::string rest, decoder.Finish());
  return text + rest;
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  const std::optional<int32_t> id = impl_->added.vocabulary().IdOf(token);
  return id ? id : impl_->model->vocabulary().IdOf(token);
}

std::optional<std::string> Tokenizer::IdToToken(int32_t id) const {
  const std::string* token = impl_->TokenOf(id);
  return token != nullptr ? std::make_optional(*token) : std::nullopt;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const std::string* token = impl_->TokenOf(id);
  return token != nullptr && impl_->added.IsSpecial(*token);
}

size_t Tokenizer::vocab_size() const {
  const Vocabulary& model = impl_->model->vocabulary();
  const Vocabulary& added = impl_->added.vocabulary();
  const auto only_added =
      std::count_if(added.begin(), added.end(), [&](const auto& entry) { return !model.IdOf(entry.first); });
  return model.size() + static_cast<size_t>(only_added);
}

int64_t Tokenizer::id_limit() const {
  return int64_t{std::max(impl_->model->vocabulary().max_id(), impl_->added.vocabulary().max_id())} + 1;
}

const SpecialTokenIds& Tokenizer::special_ids() const { return impl_->special_ids; }

struct StreamDecoder::State {
  explicit State(const Decoder& decoder) : run(decoder) {}
  DecodeRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      state_(std::make_unique<State>(tokenizer.impl_->decoder)) {}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

Result<std::string> StreamDecoder::Push(int32_t id) {
  if (id < 0) return Status(ErrorCode::kUsage, fmt::format("{} is no token id", id));
  std::string text;
  const std::string* token = tokenizer_.impl_->TokenOf(id);
  if (token == nullptr || (skip_special_tokens_ && tokenizer_.impl_->added.IsSpecial(*token))) return text;
  MW_RETURN_IF_ERROR(state_->run.Push(*token, text));
  return text;
}

Result<std::string> StreamDecoder::Finish() {
  std::string text;
  MW_RETURN_IF_ERROR(state_->run.Finish(text));
  state_ = std::make_unique<State>(tokenizer_.impl_->decoder);
  return text;
}

}  // namespace milwright
