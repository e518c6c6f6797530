// String functions with the meaning that Python's str methods have.
#ifndef MILWRIGHT_TOKENIZER_PYTHON_TEXT_H_
#define MILWRIGHT_TOKENIZER_PYTHON_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace milwright::jinja {

/// str.isspace of one character: Unicode White_Space and the four separators U+001C..U+001F.
bool IsSpace(char32_t c);

/// lstrip, rstrip and strip; without `chars` of whitespace, else of any character in it.
std::string_view StripLeft(std::string_view text, std::optional<std::string_view> chars = std::nullopt);
std::string_view StripRight(std::string_view text, std::optional<std::string_view> chars = std::nullopt);
std::string_view Strip(std::string_view text, std::optional<std::string_view> chars = std::nullopt);

/// The number of code points.
size_t CountCharacters(std::string_view text);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);

/// str.split: without `separator` at runs of whitespace. At most `limit` cuts if it is not negative, from the right end
/// if `from_right`. `separator` must not be empty.
std::vector<std::string_view> Split(std::string_view text, std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right);

/// str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

/// How often str.replace would replace: the matches that do not overlap, or for an empty `old` one more than there are
/// characters.
size_t CountMatches(std::string_view text, std::string_view old);

/// str.replace: at most `limit` times if it is not negative.
std::string Replace(std::string_view text, std::string_view old, std::string_view replacement, int64_t limit);

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_PYTHON_TEXT_H_
