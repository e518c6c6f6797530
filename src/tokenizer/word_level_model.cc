#include "tokenizer/word_level_model.h"

#include <fmt/format.h>

namespace milwright {

Result<std::unique_ptr<Model>> WordLevelModel::FromJson(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::FromJson(reader, "vocab"));
  MW_ASSIGN_OR_RETURN(std::string unknown, reader.String("unk_token"));
  return std::unique_ptr<Model>(new WordLevelModel(std::move(vocabulary), std::move(unknown)));
}

Status WordLevelModel::Encode(std::string_view word, WordCache&, std::vector<int32_t>& ids) const {
  std::optional<int32_t> id = vocabulary_.IdOf(word);
  if (!id) id = vocabulary_.IdOf(unknown_);
  if (!id) {
    return {ErrorCode::kRuntime, fmt::format("word \"{}\" has no token and the unknown token \"{}\" is not in the "
                                             "vocabulary",
                                             word, unknown_)};
  }
  ids.push_back(*id);
  return Status::Ok();
}

}  // namespace milwright
