#include "tokenizer/stop_strings.h"

#include <utility>

namespace milwright {

Result<StopStrings> StopStrings::Create(const std::vector<std::string>& strings) {
  constexpr size_t kMaxTotal = size_t{8} << 10U;
  StopStrings stops;
  size_t total = 0;
  for (size_t index = 0; index < strings.size(); ++index) {
    const std::string& text = strings[index];
    if (text.empty()) return Status(ErrorCode::kUsage, "a stop string is empty");
    total += text.size();
    if (total > kMaxTotal) return Status(ErrorCode::kUsage, "the stop strings are longer than 8 KiB");
    size_t state = 0;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (stops.states_[state].next[byte] == 0) {
        stops.states_[state].next[byte] = static_cast<int32_t>(stops.states_.size());
        State& added = stops.states_.emplace_back();
        added.depth = stops.states_[state].depth + 1;
      }
      state = static_cast<size_t>(stops.states_[state].next[byte]);
    }
    if (stops.states_[state].match >= 0) continue;  // given twice
    stops.states_[state].match = static_cast<int32_t>(index);
    stops.states_[state].match_length = text.size();
  }
  // Breadth first: where a state has no transition, it has that of its longest proper suffix.
  std::vector<std::pair<int32_t, int32_t>> queue;  // state, its longest proper suffix
  for (const int32_t child : stops.states_[0].next) {
    if (child != 0) queue.emplace_back(child, 0);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [index, suffix] = queue[i];
    State& state = stops.states_[static_cast<size_t>(index)];
    const State& fallback = stops.states_[static_cast<size_t>(suffix)];
    if (state.match < 0) {
      state.match = fallback.match;
      state.match_length = fallback.match_length;
    }
    for (size_t byte = 0; byte < state.next.size(); ++byte) {
      if (state.next[byte] != 0) {
        queue.emplace_back(state.next[byte], fallback.next[byte]);
      } else {
        state.next[byte] = fallback.next[byte];
      }
    }
  }
  return stops;
}

std::string StopStrings::Push(std::string_view text) {
  if (stopped_) return {};
  for (const char c : text) {
    held_ += c;
    state_ = states_[static_cast<size_t>(state_)].next[static_cast<unsigned char>(c)];
    const State& state = states_[static_cast<size_t>(state_)];
    if (state.match < 0) continue;
    stopped_ = static_cast<size_t>(state.match);
    held_.resize(held_.size() - state.match_length);
    return std::exchange(held_, {});
  }
  const size_t certain = held_.size() - states_[static_cast<size_t>(state_)].depth;
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

std::string StopStrings::Finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace milwright
