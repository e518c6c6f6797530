// The "pattern" of Split and Replace: a literal string or a regular expression, or a class of characters.
#ifndef MILWRIGHT_TOKENIZER_TEXT_PATTERN_H_
#define MILWRIGHT_TOKENIZER_TEXT_PATTERN_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/regex.h"

namespace milwright {

class TextPattern {
 public:
  using CharacterClass = bool (*)(char32_t);

  explicit TextPattern(std::string literal) : pattern_(std::move(literal)) {}
  explicit TextPattern(Regex regex) : pattern_(std::move(regex)) {}
  /// Matches every single character of the class.
  explicit TextPattern(CharacterClass character_class) : pattern_(character_class) {}

  /// From {"String": ...} or {"Regex": ...} under `key`. An empty string is an error.
  static Result<TextPattern> FromJson(const JsonReader& reader, std::string_view key);

  /// Appends spans that cover `text` in order, matches and what lies between them.
  Status FindAll(std::string_view text, RegexScratch& scratch, std::vector<MatchSpan>& spans) const;

  /// The literal string, or nullptr if the pattern is something else.
  [[nodiscard]] const std::string* literal() const { return std::get_if<std::string>(&pattern_); }

 private:
  std::variant<std::string, Regex, CharacterClass> pattern_;
};

/// `text` with every match of `pattern` replaced by `replacement` (taken literally).
Result<std::string> ReplaceAll(const TextPattern& pattern, std::string_view text, std::string_view replacement);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_TEXT_PATTERN_H_
