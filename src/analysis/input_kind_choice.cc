// The names of input kinds, and kinds that the caller states.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "analysis/input_kind.h"

namespace milwright {
namespace {

constexpr std::pair<InputKind, std::string_view> kKindNames[] = {
    {InputKind::kFree, "free"},
    {InputKind::kPosition, "position"},
    {InputKind::kRingPosition, "ring-position"},
    {InputKind::kPositionIds, "position-ids"},
    {InputKind::kUpdateMask, "update-mask"},
    {InputKind::kCausalMask, "causal-mask"},
    {InputKind::kSlidingMaskLeft, "sliding-mask-left"},
    {InputKind::kSlidingMaskRight, "sliding-mask-right"},
    {InputKind::kTokenId, "token-id"},
    {InputKind::kRotaryCos, "rotary-cos"},
    {InputKind::kRotarySin, "rotary-sin"},
    {InputKind::kHidden, "hidden"},
    {InputKind::kCache, "cache"},
};

}  // namespace

std::string_view InputKindName(InputKind kind) {
  const auto* it = std::ranges::find(kKindNames, kind, &std::pair<InputKind, std::string_view>::first);
  return it->second;
}

std::optional<InputKind> InputKindFromName(std::string_view name) {
  const auto* it = std::ranges::find(kKindNames, name, &std::pair<InputKind, std::string_view>::second);
  return it != std::end(kKindNames) ? std::optional(it->first) : std::nullopt;
}

Status AddInputKindChoice(std::string_view text, InputKindChoices& choices) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return {ErrorCode::kUsage, fmt::format("an input kind is written NAME=KIND, not '{}'", text)};
  }
  std::string_view name = text.substr(equals + 1);
  InputKindChoice choice;
  if (const size_t colon = name.find(':'); colon != std::string_view::npos) {
    const std::string_view detail = name.substr(colon + 1);
    name = name.substr(0, colon);
    int64_t window = 0;
    const auto [rest, error] = std::from_chars(detail.data(), detail.data() + detail.size(), window);
    if (name == InputKindName(InputKind::kCache)) {
      choice.cache_output = std::string(detail);
    } else if (error == std::errc() && rest == detail.data() + detail.size() && window > 0) {
      choice.window = window;
    } else {
      return {ErrorCode::kUsage, fmt::format("the window in '{}' is no positive number", text)};
    }
  }
  const auto kind = InputKindFromName(name);
  if (!kind.has_value()) {
    std::string known;
    for (const auto& [value, text_name] : kKindNames)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", text_name);
    return {ErrorCode::kUsage, fmt::format("there is no input kind '{}'; the kinds are: {}", name, known)};
  }
  choice.kind = *kind;
  choices.insert_or_assign(std::string(text.substr(0, equals)), choice);
  return Status::Ok();
}

}  // namespace milwright
