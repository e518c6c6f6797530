#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

namespace milwright {

Result<Vocabulary> Vocabulary::FromJson(const JsonReader& reader, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const JsonReader table, reader.Get(key));
  if (!table.value().is_object()) return table.Error("must be an object of token: id");
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(table.value().size());
  vocabulary.tokens_.reserve(table.value().size());
  for (const auto& [token, id] : table.value().items()) {
    MW_ASSIGN_OR_RETURN(const int64_t number,
                        JsonReader(id, fmt::format("{}[\"{}\"]", table.where(), token)).AsInt(0, kMaxTokenId));
    vocabulary.Add(token, static_cast<int32_t>(number));
  }
  return vocabulary;
}

void Vocabulary::Add(std::string token, int32_t id) {
  const auto position = ids_.insert_or_assign(std::move(token), id).first;
  tokens_.try_emplace(id, &position->first);
  max_id_ = std::max(max_id_, id);
}

std::optional<int32_t> Vocabulary::IdOf(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::TokenOf(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : found->second;
}

}  // namespace milwright
