#include "llm/build_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "llm/named_values.h"

namespace milwright {
namespace {

constexpr std::array<Named<StateLayout>, 4> kLayouts = {{{"kv-pair", StateLayout::kKvPair},
                                                         {"unified", StateLayout::kUnified},
                                                         {"per-layer", StateLayout::kPerLayer},
                                                         {"by-role", StateLayout::kByRole}}};
constexpr std::array<Named<SlotOrder>, 2> kOrders = {
    {{"interleaved", SlotOrder::kInterleaved}, {"split", SlotOrder::kSplit}}};
constexpr std::array<Named<CacheStorage>, 2> kExplicit = {
    {{"whole", CacheStorage::kExplicitWhole}, {"new", CacheStorage::kExplicitNew}}};
constexpr std::array<Named<CacheUpdate>, 4> kUpdates = {{{"slice", CacheUpdate::kSlice},
                                                         {"mask", CacheUpdate::kMask},
                                                         {"ring", CacheUpdate::kRing},
                                                         {"shift", CacheUpdate::kShift}}};
constexpr std::array<Named<GraphStyle>, 2> kStyles = {{{"ane", GraphStyle::kAne}, {"plain", GraphStyle::kPlain}}};
constexpr std::array<Named<EmbeddingKind>, 2> kEmbeddings = {
    {{"in-graph", EmbeddingKind::kInGraph}, {"sidecar-fp16", EmbeddingKind::kSidecar}}};
constexpr std::array<Named<DataType>, 2> kComputes = {{{"fp16", DataType::kFp16}, {"fp32", DataType::kFp32}}};
constexpr std::array<Named<CacheStorage>, 2> kHybrid = {
    {{"state", CacheStorage::kState}, {"explicit", CacheStorage::kExplicitWhole}}};
constexpr std::array<Named<HybridPrecision>, 2> kPrecisions = {
    {{"halves", HybridPrecision::kHalves}, {"rounded", HybridPrecision::kRounded}}};
constexpr std::array<Named<Opset>, 2> kTargets = {{{"iOS18", Opset::kIOS18}, {"iOS26", Opset::kIOS26}}};

template <typename Table>
auto Parse(const Table& table, std::string_view what, std::string_view text) -> Result<decltype(table[0].value)> {
  if (const auto value = ValueOf(table, text)) return *value;
  std::string known;
  for (const auto& entry : table) known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  return Status(ErrorCode::kUsage, fmt::format("{} '{}' is not known (known: {})", what, text, known));
}

/// Cuts the text before the first `separator` off `text`.
std::string_view Next(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view first = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return first;
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<LayoutOption> ParseLayout(std::string_view text) {
  const std::string_view whole = text;
  LayoutOption option;
  std::string_view word = Next(text, ':');
  if (word == "explicit-io") {
    option.storage = CacheStorage::kExplicitWhole;
    word = Next(text, ':');
    if (const auto storage = ValueOf(kExplicit, word)) {
      option.storage = *storage;
      word = Next(text, ':');
    }
    if (word.empty()) return option;
  }
  MW_ASSIGN_OR_RETURN(option.layout, Parse(kLayouts, "state layout", word));
  if (!text.empty()) {
    option.order = ValueOf(kOrders, text);
    const bool ordered = option.layout == StateLayout::kUnified || option.layout == StateLayout::kByRole;
    if (!option.order.has_value() || !ordered) {
      return Status(ErrorCode::kUsage,
                    fmt::format("state layout '{}': only unified and by-role take ':interleaved' or ':split'", whole));
    }
  }
  return option;
}

Result<CacheUpdate> ParseUpdate(std::string_view text) { return Parse(kUpdates, "update form", text); }
Result<GraphStyle> ParseStyle(std::string_view text) { return Parse(kStyles, "style", text); }
Result<EmbeddingKind> ParseEmbedding(std::string_view text) { return Parse(kEmbeddings, "embedding", text); }
Result<DataType> ParseCompute(std::string_view text) { return Parse(kComputes, "compute type", text); }
Result<CacheStorage> ParseHybridCaches(std::string_view text) { return Parse(kHybrid, "kind of hybrid caches", text); }
Result<HybridPrecision> ParseHybridPrecision(std::string_view text) {
  return Parse(kPrecisions, "precision of hybrid caches", text);
}
Result<Opset> ParseMinTarget(std::string_view text) { return Parse(kTargets, "target", text); }

Result<std::vector<FunctionOption>> ParseFunctions(std::string_view text) {
  std::vector<FunctionOption> functions;
  while (!text.empty()) {
    std::string_view one = Next(text, ',');
    FunctionOption function;
    function.name = Next(one, ':');
    if (one == "any") {
      function.length = kUnknownDim;
    } else if (!one.empty()) {
      function.length = std::max<int64_t>(ParseInteger(one).value_or(0), 0);
    }
    if (function.name.empty() || function.length == 0 || function.length > 4096) {
      return Status(ErrorCode::kUsage, fmt::format("function '{}:{}': wants NAME or NAME:TOKENS with 1 to 4096 tokens",
                                                   function.name, one));
    }
    for (const FunctionOption& other : functions) {
      if (other.name == function.name || other.length == function.length) {
        return Status(ErrorCode::kUsage,
                      fmt::format("functions '{}' and '{}' have the same name or length", other.name, function.name));
      }
    }
    functions.push_back(std::move(function));
  }
  if (functions.empty()) return Status(ErrorCode::kUsage, "no function is named; for example decode:1,prefill:8");
  return functions;
}

Result<ChunkOption> ParseChunks(std::string_view text) {
  ChunkOption option;
  if (const auto count = ParseInteger(text)) {
    if (*count < 1 || *count > 4096) return Status(ErrorCode::kUsage, fmt::format("{} chunks are not possible", text));
    option.count = *count;
    return option;
  }
  static constexpr std::array<Named<double>, 4> kUnits = {{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}};
  for (const auto& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::string_view digits = text.substr(0, text.size() - unit.name.size());
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const double bytes = value * unit.value;
    if (error != std::errc() || end != digits.data() + digits.size() || !(bytes >= 1) || bytes > 1e15) break;
    option.max_bytes = static_cast<int64_t>(bytes);
    return option;
  }
  return Status(ErrorCode::kUsage, fmt::format("chunks '{}': wants a count, or a size such as 900MB", text));
}

Result<HeadOption> ParseHead(std::string_view text) {
  HeadOption option;
  if (text == "logits") return option;
  if (text == "argmax") {
    option.kind = HeadKind::kArgmax;
    return option;
  }
  if (text.starts_with("topk:")) {
    option.kind = HeadKind::kTopK;
    option.k = ParseInteger(text.substr(5)).value_or(0);
    if (option.k >= 1 && option.k <= 1 << 16) return option;
  }
  return Status(ErrorCode::kUsage, fmt::format("head '{}' is not known (known: logits, argmax, topk:K)", text));
}

std::string_view LayoutName(StateLayout layout) { return NameOf(kLayouts, layout); }
std::string_view UpdateName(CacheUpdate update) { return NameOf(kUpdates, update); }
std::string_view StyleName(GraphStyle style) { return NameOf(kStyles, style); }
std::string_view SlotOrderName(SlotOrder order) { return NameOf(kOrders, order); }
std::string_view HybridPrecisionName(HybridPrecision precision) { return NameOf(kPrecisions, precision); }
std::string_view StorageName(CacheStorage storage) {
  return storage == CacheStorage::kState ? "state" : storage == CacheStorage::kExplicitWhole ? "whole" : "new";
}

std::string LayoutText(const LayoutOption& layout) {
  std::string text;
  if (layout.storage != CacheStorage::kState) text = fmt::format("explicit-io:{}:", StorageName(layout.storage));
  text += LayoutName(layout.layout);
  if (layout.order.has_value()) text += fmt::format(":{}", SlotOrderName(*layout.order));
  return text;
}

}  // namespace milwright
