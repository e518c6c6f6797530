#include "tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "tokenizer/bpe_merge.h"
#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr char32_t kLowCharacters = 0x400;  // ids of these lie in an array, of the others in a map

constexpr size_t kMaxMergedWordBytes = std::numeric_limits<int32_t>::max() / 2;  // positions in a word are int32

/// The only character of `token`, or nullopt if it has another number of characters.
std::optional<char32_t> SingleCharacter(std::string_view token) {
  if (token.empty() || Utf8Length(token[0]) != token.size()) return std::nullopt;
  size_t position = 0;
  return NextCodePoint(token, position);
}

}  // namespace

Result<std::unique_ptr<Model>> BpeModel::FromJson(const JsonReader& reader) {
  std::unique_ptr<BpeModel> model(new BpeModel());
  MW_ASSIGN_OR_RETURN(model->vocabulary_, Vocabulary::FromJson(reader, "vocab"));
  MW_RETURN_IF_ERROR(model->ReadOptions(reader));
  if (model->byte_fallback_) model->byte_tokens_ = ByteTokens(model->vocabulary_);
  // Cutting is exact if every character gives a symbol of its own (a missing one falls back to bytes, so nothing
  // disappears or fuses across the cut) and the symbols of bytes never merge; AddMerge looks for the latter.
  model->can_cut_ = model->byte_tokens_.complete() && model->prefix_.empty() && model->suffix_.empty();
  MW_RETURN_IF_ERROR(model->ReadMerges(reader));
  model->IndexCharacters();
  return std::unique_ptr<Model>(std::move(model));
}

Status BpeModel::ReadOptions(const JsonReader& reader) {
  if (reader.Has("dropout")) {
    MW_ASSIGN_OR_RETURN(const JsonReader dropout, reader.Get("dropout"));
    if (!dropout.value().is_number() || dropout.value().get<double>() != 0) {
      return dropout.Error("must be null or 0: encoding at random is for training");
    }
  }
  if (reader.Has("unk_token")) {
    MW_ASSIGN_OR_RETURN(unknown_, reader.String("unk_token"));
  }
  MW_ASSIGN_OR_RETURN(prefix_, reader.StringOr("continuing_subword_prefix", ""));
  MW_ASSIGN_OR_RETURN(suffix_, reader.StringOr("end_of_word_suffix", ""));
  MW_ASSIGN_OR_RETURN(fuse_unknown_, reader.BoolOr("fuse_unk", false));
  MW_ASSIGN_OR_RETURN(byte_fallback_, reader.BoolOr("byte_fallback", false));
  MW_ASSIGN_OR_RETURN(ignore_merges_, reader.BoolOr("ignore_merges", false));
  return Status::Ok();
}

Status BpeModel::ReadMerges(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const JsonReader merges, reader.Get("merges"));
  if (!merges.value().is_array()) return merges.Error("must be an array");
  int32_t rank = 0;
  size_t index = 0;
  for (const nlohmann::json& merge : merges.value()) {
    const JsonReader place(merge, fmt::format("{}[{}]", merges.where(), index++));
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;  // the first line of a merges.txt
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return place.Error("must be two tokens with one space between");
      }
      const std::string_view view = text;
      MW_RETURN_IF_ERROR(AddMerge(place, view.substr(0, space), view.substr(space + 1), rank++));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      MW_RETURN_IF_ERROR(
          AddMerge(place, merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), rank++));
    } else {
      return place.Error("must be \"left right\" or [left, right]");
    }
  }
  return Status::Ok();
}

Status BpeModel::AddMerge(const JsonReader& place, std::string_view left, std::string_view right, int32_t rank) {
  const std::optional<int32_t> left_id = vocabulary_.IdOf(left);
  const std::optional<int32_t> right_id = vocabulary_.IdOf(right);
  if (!left_id || !right_id) {
    return place.Error(fmt::format("has \"{}\", which is not in the vocabulary", left_id ? right : left));
  }
  if (right.size() < prefix_.size()) return place.Error("has a right side shorter than continuing_subword_prefix");
  const std::string merged = fmt::format("{}{}", left, right.substr(prefix_.size()));
  const std::optional<int32_t> merged_id = vocabulary_.IdOf(merged);
  if (!merged_id) return place.Error(fmt::format("makes \"{}\", which is not in the vocabulary", merged));
  merges_.Set(static_cast<uint32_t>(*left_id), static_cast<uint32_t>(*right_id), {rank, *merged_id});
  if (can_cut_ && !left.empty() && !right.empty()) {
    if (byte_tokens_.Contains(*left_id) || byte_tokens_.Contains(*right_id)) can_cut_ = false;
    size_t last_begin = 0;
    size_t first_end = 0;
    const char32_t last = PreviousCodePoint(left, left.size(), last_begin);
    junctions_.Set(last, NextCodePoint(right, first_end), {0, 0});
  }
  return Status::Ok();
}

void BpeModel::IndexCharacters() {
  low_character_ids_.assign(kLowCharacters, -1);
  for (const auto& [token, id] : vocabulary_) {
    const std::optional<char32_t> c = SingleCharacter(token);
    if (!c) continue;
    if (*c < kLowCharacters) {
      low_character_ids_[*c] = id;
    } else {
      character_ids_[*c] = id;
    }
  }
}

int32_t BpeModel::CharacterId(char32_t c) const {
  if (c < kLowCharacters) return low_character_ids_[c];
  const auto found = character_ids_.find(c);
  return found == character_ids_.end() ? -1 : found->second;
}

Status BpeModel::AppendSymbols(std::string_view word, std::vector<int32_t>& symbols) const {
  // An unknown token waits until the next known one (or the end), so that neighbours can fuse with it. As in the
  // original, byte tokens do not make it come out.
  std::optional<int32_t> waiting;
  std::string decorated;
  for (size_t position = 0; position < word.size();) {
    const size_t begin = position;
    const char32_t c = NextCodePoint(word, position);
    std::string_view symbol = word.substr(begin, position - begin);
    int32_t id = -1;
    const bool has_prefix = begin > 0 && !prefix_.empty();
    const bool has_suffix = position == word.size() && !suffix_.empty();
    if (has_prefix || has_suffix) {
      decorated = fmt::format("{}{}{}", has_prefix ? prefix_ : "", symbol, has_suffix ? suffix_ : "");
      symbol = decorated;
      id = vocabulary_.IdOf(symbol).value_or(-1);
    } else {
      id = CharacterId(c);
    }
    if (id >= 0) {
      if (waiting) symbols.push_back(*std::exchange(waiting, std::nullopt));
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && byte_tokens_.Cover(symbol)) {
      byte_tokens_.Append(symbol, symbols);
      continue;
    }
    if (!unknown_) continue;  // without an unknown token the character disappears
    if (waiting && fuse_unknown_) continue;
    const std::optional<int32_t> unknown_id = vocabulary_.IdOf(*unknown_);
    if (!unknown_id) {
      return {ErrorCode::kRuntime,
              fmt::format("\"{}\" has no token and unk_token \"{}\" is not in the vocabulary", symbol, *unknown_)};
    }
    if (waiting) symbols.push_back(*waiting);
    waiting = *unknown_id;
  }
  if (waiting) symbols.push_back(*waiting);
  return Status::Ok();
}

Status BpeModel::EncodeWhole(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  if (const auto known = cache.Find(word)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return Status::Ok();
  }
  if (word.size() > kMaxMergedWordBytes) {
    return {ErrorCode::kUsage,
            fmt::format("a word of {} bytes is too long to encode: pass the text in parts", word.size())};
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  MW_RETURN_IF_ERROR(AppendSymbols(word, symbols));
  MergeSymbols(merges_, symbols);
  cache.Add(word, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  return Status::Ok();
}

Status BpeModel::EncodeInChunks(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  size_t chunk_begin = 0;
  char32_t previous = 0;
  for (size_t position = 0; position < word.size();) {
    const size_t begin = position;
    const char32_t c = NextCodePoint(word, position);
    if (begin > chunk_begin && junctions_.Find(previous, c).rank == Merge::kNone) {
      MW_RETURN_IF_ERROR(EncodeWhole(word.substr(chunk_begin, begin - chunk_begin), cache, ids));
      chunk_begin = begin;
    }
    previous = c;
  }
  return EncodeWhole(word.substr(chunk_begin), cache, ids);
}

Status BpeModel::Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = vocabulary_.IdOf(word)) {
      ids.push_back(*id);
      return Status::Ok();
    }
  }
  return can_cut_ ? EncodeInChunks(word, cache, ids) : EncodeWhole(word, cache, ids);
}

}  // namespace milwright
