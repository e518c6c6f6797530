// Reading hostile JSON: parse with limits, then take typed values out of it with errors that name the place.
#ifndef MILWRIGHT_TOKENIZER_JSON_READER_H_
#define MILWRIGHT_TOKENIZER_JSON_READER_H_

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// Deepest nesting of arrays and objects that ParseJson accepts. Everything that walks the parsed value may recurse.
inline constexpr int kMaxJsonDepth = 64;

/// The whole content of the file at `path`.
Result<std::string> ReadTextFile(const std::filesystem::path& path);

/// Checks that no array or object of the JSON `text` nests deeper than kMaxJsonDepth.
Status CheckJsonDepth(std::string_view text, std::string_view name);

/// Parses `text`; `name` is the file name for errors.
Result<nlohmann::json> ParseJson(std::string_view text, std::string_view name);

/// One JSON value with the place where it stands ("tokenizer.json: model.vocab"). Keeps a pointer: the parsed document
/// must outlive the reader.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  [[nodiscard]] const nlohmann::json& value() const { return *value_; }
  [[nodiscard]] const std::string& where() const { return where_; }

  /// Whether this is an object with a `key` that is not null.
  [[nodiscard]] bool Has(std::string_view key) const;

  /// The value under `key`, with its place.
  [[nodiscard]] Result<JsonReader> Get(std::string_view key) const;
  /// The elements of the array under `key`.
  [[nodiscard]] Result<std::vector<JsonReader>> Array(std::string_view key) const;

  [[nodiscard]] Result<std::string> String(std::string_view key) const;
  [[nodiscard]] Result<std::string> StringOr(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] Result<bool> Bool(std::string_view key) const;
  [[nodiscard]] Result<bool> BoolOr(std::string_view key, bool fallback) const;
  /// An integer in [low, high].
  [[nodiscard]] Result<int64_t> Int(std::string_view key, int64_t low, int64_t high) const;

  /// This very value as an integer in [low, high] or as a string.
  [[nodiscard]] Result<int64_t> AsInt(int64_t low, int64_t high) const;
  [[nodiscard]] Result<std::string> AsString() const;

  /// An error at this place.
  [[nodiscard]] Status Error(std::string_view message) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_JSON_READER_H_
