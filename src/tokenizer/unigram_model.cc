#include "tokenizer/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tokenizer/unicode.h"

namespace milwright {
namespace {

constexpr double kUnknownPenalty = 10.0;

/// The best path that ends at a byte of the word.
struct PathEnd {
  double score = 0;
  int32_t id = 0;
  bool reached = false;
  size_t begin = 0;  ///< where the last token of the path starts
};

/// A piece of the best path.
struct Piece {
  size_t begin;
  size_t end;
};

}  // namespace

Result<std::unique_ptr<Model>> UnigramModel::FromJson(const JsonReader& reader) {
  MW_ASSIGN_OR_RETURN(const std::vector<JsonReader> entries, reader.Array("vocab"));
  std::unique_ptr<UnigramModel> model(new UnigramModel());
  std::vector<std::pair<std::string, int32_t>> keys;
  double lowest = std::numeric_limits<double>::infinity();
  for (const JsonReader& entry : entries) {
    const nlohmann::json& pair = entry.value();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
      return entry.Error("must be [token, score]");
    }
    const auto id = static_cast<int32_t>(model->scores_.size());
    auto token = pair[0].get<std::string>();
    model->scores_.push_back(pair[1].get<double>());
    lowest = std::min(lowest, model->scores_.back());
    keys.emplace_back(token, id);
    model->vocabulary_.Add(std::move(token), id);
  }
  model->trie_ = ByteTrie(std::move(keys));
  model->unknown_score_ = lowest - kUnknownPenalty;
  if (reader.Has("unk_id")) {
    if (entries.empty()) return reader.Error("has an unk_id but no vocabulary");
    MW_ASSIGN_OR_RETURN(const int64_t id, reader.Int("unk_id", 0, static_cast<int64_t>(entries.size()) - 1));
    model->unknown_id_ = static_cast<int32_t>(id);
  }
  MW_ASSIGN_OR_RETURN(model->byte_fallback_, reader.BoolOr("byte_fallback", false));
  if (model->byte_fallback_) model->byte_tokens_ = ByteTokens(model->vocabulary_);
  return std::unique_ptr<Model>(std::move(model));
}

Status UnigramModel::Encode(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const {
  if (const auto known = cache.Find(word)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return Status::Ok();
  }
  std::vector<PathEnd> ends(word.size() + 1);
  const auto extend = [&](size_t begin, size_t end, double score, int32_t id) {
    const double total = ends[begin].score + score;
    if (!ends[end].reached || total > ends[end].score) ends[end] = {total, id, true, begin};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t character = Utf8Length(word[begin]);
    bool has_single = false;
    trie_.ForEachPrefix(word.substr(begin), [&](size_t length, int32_t id) {
      extend(begin, begin + length, scores_[static_cast<size_t>(id)], id);
      has_single = has_single || length == character;
    });
    if (!has_single) {
      if (!unknown_id_) {
        return {ErrorCode::kRuntime,
                fmt::format("\"{}\" has no token and the model has no unk_id", word.substr(begin, character))};
      }
      extend(begin, begin + character, unknown_score_, *unknown_id_);
    }
    begin += character;
  }
  // Back along the path, with adjacent unknown tokens fused.
  std::vector<Piece> pieces;
  bool last_unknown = false;
  for (size_t end = word.size(); end > 0;) {
    const PathEnd& node = ends[end];
    const bool unknown = unknown_id_ && node.id == *unknown_id_;
    if (unknown && last_unknown) {
      pieces.back().begin = node.begin;
    } else {
      pieces.push_back({node.begin, end});
    }
    last_unknown = unknown;
    end = node.begin;
  }
  const size_t first_id = ids.size();
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    const std::string_view text = word.substr(piece->begin, piece->end - piece->begin);
    if (const std::optional<int32_t> id = vocabulary_.IdOf(text)) {
      ids.push_back(*id);
    } else if (byte_fallback_ && byte_tokens_.Cover(text)) {
      byte_tokens_.Append(text, ids);
    } else {
      ids.push_back(*unknown_id_);  // a piece that is no token came from the unknown branch
    }
  }
  cache.Add(word, std::span<const int32_t>(ids).subspan(first_id));
  return Status::Ok();
}

}  // namespace milwright
