// Tables of values and the names that files and command lines give them.
#ifndef MILWRIGHT_LLM_NAMED_VALUES_H_
#define MILWRIGHT_LLM_NAMED_VALUES_H_

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace milwright {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

/// The value called `name`.
template <typename T, size_t N>
std::optional<T> ValueOf(const std::array<Named<T>, N>& table, std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

/// The name of `value`; "?" when the table has none.
template <typename T, size_t N>
std::string_view NameOf(const std::array<Named<T>, N>& table, T value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

}  // namespace milwright

#endif  // MILWRIGHT_LLM_NAMED_VALUES_H_
