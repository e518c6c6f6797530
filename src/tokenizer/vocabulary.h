// Token strings and their ids.
#ifndef MILWRIGHT_TOKENIZER_VOCABULARY_H_
#define MILWRIGHT_TOKENIZER_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"

namespace milwright {

/// The largest token id that files may use: ids are int32 everywhere.
inline constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max() - 1;

/// A hash that lets maps with std::string keys be searched by std::string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// Both directions of the mapping. Memory follows the number of tokens, not the largest id.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  // The reverse map points into the forward map.
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// From {"token": id, ...} under `key`.
  static Result<Vocabulary> FromJson(const JsonReader& reader, std::string_view key);

  /// Adds a token; a known token gets the new id. Of several tokens with one id the first is what the id decodes to.
  void Add(std::string token, int32_t id);

  [[nodiscard]] std::optional<int32_t> IdOf(std::string_view token) const;
  /// nullptr if no token has the id.
  [[nodiscard]] const std::string* TokenOf(int32_t id) const;
  [[nodiscard]] size_t size() const { return ids_.size(); }
  [[nodiscard]] int32_t max_id() const { return max_id_; }  ///< -1 when empty

  [[nodiscard]] auto begin() const { return ids_.begin(); }
  [[nodiscard]] auto end() const { return ids_.end(); }

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::unordered_map<int32_t, const std::string*> tokens_;
  int32_t max_id_ = -1;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_VOCABULARY_H_
