// Text for people: colour where the terminal takes it, aligned columns, sizes in readable units.
#ifndef MILWRIGHT_CLI_TERMINAL_H_
#define MILWRIGHT_CLI_TERMINAL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace milwright::cli {

enum class Style : uint8_t { kPlain, kBold, kDim, kRed, kYellow, kGreen, kCyan };

/// Whether stdout is a terminal and NO_COLOR is not set.
bool UseColor();

/// `text` in `style` when stdout is a terminal and NO_COLOR is not set; else as it is.
std::string Styled(std::string_view text, Style style);

/// Bytes as "512 B", "1.4 kB", "2.05 GB" (powers of 1000).
std::string Bytes(int64_t bytes);

/// Rows in columns, each as wide as its widest cell, two spaces apart, `indent` spaces before each row.
std::string Table(const std::vector<std::vector<std::string>>& rows, size_t indent = 2);

/// The entry of `known` nearest to `word` by edit distance, when it is near enough to be a slip; else "".
std::string NearestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_TERMINAL_H_
