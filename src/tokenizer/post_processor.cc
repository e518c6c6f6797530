#include "tokenizer/post_processor.h"

#include <fmt/format.h>

#include <string>

#include "tokenizer/vocabulary.h"

namespace milwright {
namespace {

/// The ids of the special token `name` of a template.
Result<std::vector<int32_t>> ReadSpecialToken(const JsonReader& reader, const std::string& name) {
  MW_ASSIGN_OR_RETURN(const JsonReader tokens, reader.Get("special_tokens"));
  MW_ASSIGN_OR_RETURN(const JsonReader token, tokens.Get(name));
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> elements, token.Array("ids"));
  std::vector<int32_t> ids;
  for (const JsonReader& element : elements) {
    MW_ASSIGN_OR_RETURN(const int64_t id, element.AsInt(0, kMaxTokenId));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

/// The id in ["token", id].
Result<int32_t> ReadTokenPair(const JsonReader& reader, std::string_view key) {
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> pair, reader.Array(key));
  if (pair.size() != 2) return reader.Error(fmt::format("needs [token, id] as \"{}\"", key));
  MW_ASSIGN_OR_RETURN(const int64_t id, pair[1].AsInt(0, kMaxTokenId));
  return static_cast<int32_t>(id);
}

}  // namespace

Result<PostProcessor> PostProcessor::FromJson(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
  PostProcessor processor;
  if (type == "ByteLevel") return processor;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    MW_ASSIGN_OR_RETURN(const int32_t begin, ReadTokenPair(reader, "cls"));
    MW_ASSIGN_OR_RETURN(const int32_t end, ReadTokenPair(reader, "sep"));
    processor.before_ = {begin};
    processor.after_ = {end};
    return processor;
  }
  if (type == "Sequence") {
    MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> members, reader.Array("processors"));
    for (const JsonReader& member : members) {
      MW_ASSIGN_OR_RETURN(const PostProcessor inner, FromJson(member));
      processor.before_.insert(processor.before_.begin(), inner.before_.begin(), inner.before_.end());
      processor.after_.insert(processor.after_.end(), inner.after_.begin(), inner.after_.end());
    }
    return processor;
  }
  if (type != "TemplateProcessing") {
    return reader.Error(fmt::format("is a post-processor of type \"{}\", which is not supported", type));
  }
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> pieces, reader.Array("single"));
  bool seen_sequence = false;
  for (const JsonReader& piece : pieces) {
    if (piece.Has("Sequence")) {
      MW_ASSIGN_OR_RETURN(const JsonReader sequence, piece.Get("Sequence"));
      MW_ASSIGN_OR_RETURN(const std::string id, sequence.String("id"));
      if (id != "A" || seen_sequence) return piece.Error("must be sequence A, once, in the template for one sequence");
      seen_sequence = true;
      continue;
    }
    MW_ASSIGN_OR_RETURN(const JsonReader special, piece.Get("SpecialToken"));
    MW_ASSIGN_OR_RETURN(const std::string name, special.String("id"));
    MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadSpecialToken(reader, name));
    std::vector<int32_t>& side = seen_sequence ? processor.after_ : processor.before_;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!seen_sequence) return reader.Error("has a template for one sequence without sequence A");
  return processor;
}

void PostProcessor::AddSpecialTokens(std::vector<int32_t>& ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
}

}  // namespace milwright
