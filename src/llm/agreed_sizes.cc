#include "llm/agreed_sizes.h"

#include <fmt/format.h>

namespace milwright {

void AgreedSizes::Bind(std::string_view name, int64_t value, const std::string& place) {
  const auto [it, fresh] = entries_.try_emplace(std::string(name), Entry{value, place});
  if (fresh || it->second.value == value || !status_.ok()) return;
  status_ = Status(ErrorCode::kUnreadable, fmt::format("the parts are not of one build: {} is {} in {}, but {} in {}",
                                                       name, it->second.value, it->second.place, value, place));
}

std::optional<int64_t> AgreedSizes::Find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? std::nullopt : std::optional(it->second.value);
}

}  // namespace milwright
