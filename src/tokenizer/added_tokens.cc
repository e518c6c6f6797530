#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

/// Searching costs the length of the longest token at every position; real ones have fewer than 100 bytes.
constexpr size_t kMaxTokenBytes = 4096;

Result<AddedToken> ReadToken(const JsonReader& reader) {
  AddedToken token;
  MW_ASSIGN_OR_RETURN(token.content, reader.String("content"));
  if (token.content.size() > kMaxTokenBytes) {
    return reader.Error(fmt::format("is longer than {} bytes", kMaxTokenBytes));
  }
  MW_ASSIGN_OR_RETURN(const int64_t id, reader.Int("id", 0, kMaxTokenId));
  token.id = static_cast<int32_t>(id);
  MW_ASSIGN_OR_RETURN(token.single_word, reader.BoolOr("single_word", false));
  MW_ASSIGN_OR_RETURN(token.lstrip, reader.BoolOr("lstrip", false));
  MW_ASSIGN_OR_RETURN(token.rstrip, reader.BoolOr("rstrip", false));
  MW_ASSIGN_OR_RETURN(token.special, reader.BoolOr("special", false));
  MW_ASSIGN_OR_RETURN(token.normalized, reader.BoolOr("normalized", !token.special));
  return token;
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  size_t position = 0;
  if (begin > 0 && IsWordCharacter(PreviousCodePoint(text, begin, position))) return true;
  position = end;
  return end < text.size() && IsWordCharacter(NextCodePoint(text, position));
}

/// Where the whitespace that ends at `end` starts, but not before `limit`.
size_t StripLeft(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    size_t begin = end;
    if (!IsWhitespace(PreviousCodePoint(text, end, begin))) break;
    end = begin;
  }
  return end;
}

size_t StripRight(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t end = begin;
    if (!IsWhitespace(NextCodePoint(text, end))) break;
    begin = end;
  }
  return begin;
}

}  // namespace

Result<AddedTokens> AddedTokens::FromJson(const JsonReader& reader, const Vocabulary& vocabulary,
                                          const Normalizer* normalizer) {
  AddedTokens added;
  if (!reader.Has("added_tokens")) return added;
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> entries, reader.Array("added_tokens"));
  std::vector<std::pair<std::string, int32_t>> raw;
  std::vector<std::pair<std::string, int32_t>> normalized;
  auto next_id = static_cast<int64_t>(vocabulary.size());
  for (const JsonReader& entry : entries) {
    MW_ASSIGN_OR_RETURN(const AddedToken token, ReadToken(entry));
    if (token.content.empty()) continue;
    std::optional<int32_t> id = added.vocabulary_.IdOf(token.content);
    if (!id) id = vocabulary.IdOf(token.content);
    if (!id && next_id <= kMaxTokenId) id = static_cast<int32_t>(next_id++);
    if (id != token.id) {
      return entry.Error(fmt::format("gives \"{}\" the id {}, but by the vocabulary it has {}", token.content, token.id,
                                     id.value_or(-1)));
    }
    NormalizedText searched{token.content};
    if (token.normalized && normalizer != nullptr) MW_RETURN_IF_ERROR(normalizer->Apply(searched));
    (token.normalized ? normalized : raw).emplace_back(std::move(searched.text), token.id);
    added.vocabulary_.Add(token.content, token.id);
    if (token.special) added.special_.insert(token.content);
    added.tokens_.insert_or_assign(token.id, token);
  }
  added.raw_trie_ = ByteTrie(std::move(raw));
  added.normalized_trie_ = ByteTrie(std::move(normalized));
  return added;
}

std::vector<AddedTokenSpan> AddedTokens::Split(std::string_view text, bool normalized) const {
  const ByteTrie& trie = normalized ? normalized_trie_ : raw_trie_;
  std::vector<AddedTokenSpan> spans;
  size_t covered = 0;  // text before here is in a span
  size_t position = 0;
  while (!trie.empty() && position < text.size()) {
    const auto [length, id] = trie.LongestPrefix(text.substr(position));
    if (length == 0) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position + length;
    position = end;
    const AddedToken& token = tokens_.at(id);
    if (token.single_word && TouchesWord(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(StripLeft(text, begin, 0), covered);
    if (token.rstrip) end = StripRight(text, end);
    if (covered < begin) spans.push_back({covered, begin, std::nullopt});
    spans.push_back({begin, end, id});
    covered = end;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), std::nullopt});
  return spans;
}

}  // namespace milwright
