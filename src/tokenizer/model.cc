#include "tokenizer/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/bpe_model.h"
#include "tokenizer/unigram_model.h"
#include "tokenizer/word_level_model.h"

namespace milwright {

Result<std::unique_ptr<Model>> MakeModel(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string type, reader.StringOr("type", reader.Has("merges") ? "BPE" : ""));
  if (type == "BPE") return BpeModel::FromJson(reader);
  if (type == "Unigram") return UnigramModel::FromJson(reader);
  if (type == "WordLevel") return WordLevelModel::FromJson(reader);
  return reader.Error(fmt::format("is a model of type \"{}\", which is not supported", type));
}

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  ids_.reserve(256);
  for (int byte = 0; byte < 256; ++byte) ids_.push_back(vocabulary.IdOf(fmt::format("<0x{:02X}>", byte)).value_or(-1));
}

bool ByteTokens::Cover(std::string_view text) const {
  return std::all_of(text.begin(), text.end(), [&](char c) { return ids_[static_cast<unsigned char>(c)] >= 0; });
}

void ByteTokens::Append(std::string_view text, std::vector<int32_t>& ids) const {
  for (const char c : text) ids.push_back(ids_[static_cast<unsigned char>(c)]);
}

bool ByteTokens::complete() const {
  return std::all_of(ids_.begin(), ids_.end(), [](int32_t id) { return id >= 0; });
}

bool ByteTokens::Contains(int32_t id) const { return std::find(ids_.begin(), ids_.end(), id) != ids_.end(); }

}  // namespace milwright
