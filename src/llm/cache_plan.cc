#include "llm/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/errors.h"

namespace milwright {
namespace {

bool OwnsKeys(const ModelPlan& plan, int64_t layer) {
  const LayerPlan& l = plan.layers[static_cast<size_t>(layer)];
  return l.mixer == Mixer::kAttention && l.kv_source == layer;
}

bool HasFullAttention(const ModelPlan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [](const LayerPlan& l) { return l.mixer == Mixer::kAttention && !l.sliding; });
}

/// What may be combined: rows are update forms, columns say where caches may live.
struct Validity {
  CacheUpdate update;
  bool state;
  bool explicit_whole;
  bool explicit_new;
  bool needs_sliding;
  std::string_view why;  ///< why the others are not possible
};
constexpr std::array<Validity, 4> kValidity = {{
    {CacheUpdate::kSlice, true, true, true, false, ""},
    {CacheUpdate::kMask, true, true, false, false,
     "a masked blend rewrites the whole cache, so there is no new slice to give out"},
    {CacheUpdate::kRing, true, true, false, true,
     "the host could not tell which columns of a ring the new slice replaces"},
    {CacheUpdate::kShift, true, true, false, true, "a shift moves every column, so there is no new slice to give out"},
}};

Status CheckUpdate(const ModelPlan& plan, const CacheChoice& choice) {
  const auto row =
      std::find_if(kValidity.begin(), kValidity.end(), [&](const Validity& v) { return v.update == choice.update; });
  if (row->needs_sliding && !plan.HasSliding()) {
    return Usage(fmt::format("update form {} is for sliding-window layers, and {} has none: use slice or mask",
                             UpdateName(choice.update), plan.family));
  }
  const CacheStorage storage = choice.layout.storage;
  const bool possible = storage == CacheStorage::kState           ? row->state
                        : storage == CacheStorage::kExplicitWhole ? row->explicit_whole
                                                                  : row->explicit_new;
  if (possible) return Status::Ok();
  return Usage(fmt::format("state layout {} with update form {}: {}", LayoutText(choice.layout),
                           UpdateName(choice.update), row->why));
}

/// The data type in which the graph has what a conv or recurrent cache keeps.
DataType ComputedType(CacheGroup group, DataType compute) {
  return group == CacheGroup::kRecurrent || group == CacheGroup::kLayerRecurrent ? DataType::kFp32 : compute;
}

/// Halves where accuracy was asked for; elsewhere the contract's plain shape, which hosts expect.
Status ChoosePrecision(const ModelPlan& plan, const BuildOptions& options, CacheChoice& choice) {
  const HybridPrecision usual =
      options.compute == DataType::kFp32 ? HybridPrecision::kHalves : HybridPrecision::kRounded;
  choice.precision = options.hybrid_precision.value_or(usual);
  if (!options.hybrid_precision.has_value() || HasRoundedCaches(plan, choice)) return Status::Ok();
  return Usage(
      fmt::format("precision {} of hybrid caches: with these options {} has no conv or recurrent cache in fp16 "
                  "whose values the graph computes in fp32",
                  HybridPrecisionName(choice.precision), plan.family));
}

/// Warnings cite the checker's rules (docs/rules.md).
void Warn(const ModelPlan& plan, const CacheChoice& choice, std::vector<std::string>& warnings,
          std::vector<std::string>& notes) {
  const bool state = choice.layout.storage == CacheStorage::kState;
  if (choice.update == CacheUpdate::kShift && state) {
    warnings.emplace_back(
        "update form shift: states updated by concatenation are reported to fail on the Neural "
        "Engine (field report rule K12)");
  }
  const bool mixed_roles = choice.layout.layout == StateLayout::kByRole && state &&
                           ((plan.HasSliding() && HasFullAttention(plan)) || plan.HasMixer(Mixer::kDeltaNet) ||
                            plan.HasMixer(Mixer::kShortConv));
  if (mixed_roles || (state && choice.hybrid == CacheStorage::kState && plan.HasMixer(Mixer::kDeltaNet))) {
    warnings.emplace_back(
        "states of different roles and shapes in one function are reported to fail on the Neural "
        "Engine, with contradicting evidence (field report rule K16)");
  }
  if (choice.layout.layout == StateLayout::kPerLayer && state) {
    warnings.emplace_back(
        "per-layer states: many states in one function are reported to fail on the Neural Engine; "
        "kv-pair and unified are the layouts seen to work (field report rule K16)");
  }
  if (state && choice.hybrid == CacheStorage::kState && plan.HasMixer(Mixer::kShortConv)) {
    warnings.emplace_back(
        "conv caches as states are updated by concatenation, reported to fail on the Neural Engine "
        "(field report rule K12)");
  }
  if (choice.hybrid == CacheStorage::kState && choice.precision == HybridPrecision::kRounded &&
      HasRoundedCaches(plan, choice)) {
    warnings.push_back(
        fmt::format("{} states are rounded to fp16 at every call; --hybrid-precision halves keeps them near fp32",
                    !plan.HasMixer(Mixer::kDeltaNet)    ? "conv"
                    : choice.compute == DataType::kFp32 ? "conv and recurrent"
                                                        : "recurrent"));
  }
  const bool windowed = choice.update == CacheUpdate::kRing || choice.update == CacheUpdate::kShift;
  if (windowed && HasFullAttention(plan)) {
    notes.push_back(
        fmt::format("update form {} applies to sliding layers; full layers use slice", UpdateName(choice.update)));
  }
}

const CacheNames* Names(const ContractForm& form, CacheGroup group) {
  const auto it = form.caches.find(group);
  return it == form.caches.end() ? nullptr : &it->second;
}

/// The cache groups that a layout needs for these layers.
std::vector<CacheGroup> GroupsOf(const ModelPlan& plan, const CacheChoice& choice) {
  std::vector<CacheGroup> groups;
  switch (choice.layout.layout) {
    case StateLayout::kKvPair:
      groups = {CacheGroup::kKeys, CacheGroup::kValues};
      break;
    case StateLayout::kUnified:
      groups = {CacheGroup::kKeysValues};
      break;
    case StateLayout::kPerLayer:
      groups = {CacheGroup::kLayerKeys, CacheGroup::kLayerValues};
      break;
    case StateLayout::kByRole:
      if (HasFullAttention(plan)) groups.push_back(CacheGroup::kFull);
      if (plan.HasSliding()) groups.push_back(CacheGroup::kSliding);
      break;
  }
  return groups;
}

class Planner {
 public:
  Planner(const ModelPlan& plan, const ContractForm& form, const CacheChoice& choice, int64_t first, int64_t last)
      : plan_(plan), form_(form), choice_(choice), first_(first), last_(last) {}

  Result<CachePlan> Plan() {
    for (int64_t i = first_; i < last_; ++i) {
      if (!OwnsKeys(plan_, i)) continue;
      LayerCache& cache = result_.layers[i];
      cache.update = LayerUpdate(plan_, choice_, i);
      cache.columns = LayerColumns(plan_, choice_, i);
    }
    const auto any = [](const LayerPlan&) { return true; };
    const auto full = [](const LayerPlan& l) { return !l.sliding; };
    const auto sliding = [](const LayerPlan& l) { return l.sliding; };
    switch (choice_.layout.layout) {
      case StateLayout::kKvPair:
        MW_RETURN_IF_ERROR(AddShared(CacheGroup::kKeys, any, &LayerCache::key, nullptr));
        MW_RETURN_IF_ERROR(AddShared(CacheGroup::kValues, any, nullptr, &LayerCache::value));
        break;
      case StateLayout::kUnified:
        MW_RETURN_IF_ERROR(AddShared(CacheGroup::kKeysValues, any, &LayerCache::key, &LayerCache::value));
        break;
      case StateLayout::kByRole:
        MW_RETURN_IF_ERROR(AddShared(CacheGroup::kFull, full, &LayerCache::key, &LayerCache::value));
        MW_RETURN_IF_ERROR(AddShared(CacheGroup::kSliding, sliding, &LayerCache::key, &LayerCache::value));
        break;
      case StateLayout::kPerLayer:
        for (auto& [layer, cache] : result_.layers) {
          MW_RETURN_IF_ERROR(AddKeyValue(CacheGroup::kLayerKeys, {layer}, &LayerCache::key, nullptr));
          MW_RETURN_IF_ERROR(AddKeyValue(CacheGroup::kLayerValues, {layer}, nullptr, &LayerCache::value));
        }
        break;
    }
    MW_RETURN_IF_ERROR(AddHybrid(Mixer::kShortConv, CacheGroup::kConv, CacheGroup::kLayerConv, &LayerCache::conv));
    MW_RETURN_IF_ERROR(AddHybrid(Mixer::kDeltaNet, CacheGroup::kConv, CacheGroup::kLayerConv, &LayerCache::conv));
    MW_RETURN_IF_ERROR(
        AddHybrid(Mixer::kDeltaNet, CacheGroup::kRecurrent, CacheGroup::kLayerRecurrent, &LayerCache::recurrent));
    return std::move(result_);
  }

 private:
  using SlotMember = CacheSlot LayerCache::*;

  template <typename Wanted>
  Status AddShared(CacheGroup group, Wanted wanted, SlotMember key, SlotMember value) {
    std::vector<int64_t> layers;
    for (const auto& [layer, cache] : result_.layers) {
      if (wanted(plan_.layers[static_cast<size_t>(layer)])) layers.push_back(layer);
    }
    return layers.empty() ? Status::Ok() : AddKeyValue(group, layers, key, value);
  }

  /// Adds a buffer for K and V (or one of them) of `layers`.
  Status AddKeyValue(CacheGroup group, const std::vector<int64_t>& layers, SlotMember key, SlotMember value) {
    Symbols symbols = PlanSymbols(plan_, kWhole);
    const auto n = static_cast<int64_t>(layers.size());
    symbols["n"] = n;
    symbols["i"] = layers.front();
    symbols["C"] = choice_.context_length;
    int64_t heads = 1, size = 1, columns = 1, largest = 1;
    for (const int64_t layer : layers) {
      const LayerPlan& l = plan_.layers[static_cast<size_t>(layer)];
      heads = std::max(heads, l.kv_heads);
      size = std::max(size, l.head_size);
      columns = std::max(columns, result_.layers[layer].columns);
    }
    for (const LayerPlan& l : plan_.layers) largest = std::max(largest, l.head_size);
    symbols["K"] = heads;
    symbols["D"] = size;
    symbols["W"] = columns;
    symbols["Dmax"] = largest;
    MW_ASSIGN_OR_RETURN(const int buffer, AddBuffer(group, symbols, choice_.layout.storage, choice_.explicit_dtype));
    const bool both = key != nullptr && value != nullptr;
    for (int64_t k = 0; k < n; ++k) {
      LayerCache& cache = result_.layers[layers[static_cast<size_t>(k)]];
      const bool split = choice_.order == SlotOrder::kSplit;
      if (key != nullptr) cache.*key = {buffer, both && !split ? 2 * k : k};
      if (value != nullptr) cache.*value = {buffer, !both ? k : split ? n + k : 2 * k + 1};
    }
    return Status::Ok();
  }

  /// Adds the conv or recurrent caches: stacked, or one for each layer, as the contract names them and the layout asks.
  Status AddHybrid(Mixer mixer, CacheGroup stacked, CacheGroup single, SlotMember slot) {
    std::vector<int64_t> layers;
    for (int64_t i = first_; i < last_; ++i) {
      if (plan_.layers[static_cast<size_t>(i)].mixer == mixer) layers.push_back(i);
    }
    if (layers.empty()) return Status::Ok();
    Symbols symbols = PlanSymbols(plan_, kWhole);
    const bool delta = mixer == Mixer::kDeltaNet;
    symbols["channels"] = delta ? plan_.delta.conv_channels() : plan_.hidden;
    symbols["taps"] = delta ? plan_.delta.kernel : plan_.conv_kernel;
    symbols["n"] = static_cast<int64_t>(layers.size());
    const bool prefer_stack = choice_.hybrid == CacheStorage::kState && choice_.layout.layout != StateLayout::kPerLayer;
    const bool stack = Names(form_, single) == nullptr || (prefer_stack && Names(form_, stacked) != nullptr);
    int buffer = -1;
    for (size_t k = 0; k < layers.size(); ++k) {
      symbols["i"] = layers[k];
      if (!stack || k == 0) {
        MW_ASSIGN_OR_RETURN(buffer, AddBuffer(stack ? stacked : single, symbols, choice_.hybrid, choice_.hybrid_dtype));
      }
      const int64_t rows = result_.buffers[static_cast<size_t>(buffer)].rows_per_layer();
      result_.layers[layers[k]].*slot = {buffer, stack ? rows * static_cast<int64_t>(k) : 0};
    }
    return Status::Ok();
  }

  Result<int> AddBuffer(CacheGroup group, const Symbols& symbols, CacheStorage storage, DataType explicit_dtype) {
    const CacheNames* names = Names(form_, group);
    if (names == nullptr) {
      return Usage(fmt::format("the contract has no name for the {} cache that {} needs in this layout",
                               CacheGroupName(group), plan_.family));
    }
    CacheBuffer buffer;
    buffer.name = ExpandPattern(names->name, symbols);
    buffer.storage = storage;
    MW_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(names->shape, symbols));
    buffer.type = {storage == CacheStorage::kState ? DataType::kFp16 : explicit_dtype, std::move(shape)};
    MW_RETURN_IF_ERROR(ByteSize(buffer.type));
    buffer.halves = choice_.precision == HybridPrecision::kHalves && IsHybrid(group) &&
                    buffer.type.dtype == DataType::kFp16 && !buffer.type.shape.empty() &&
                    ComputedType(group, choice_.compute) == DataType::kFp32;
    if (buffer.halves) {
      buffer.type.shape.front() *= buffer.rows_per_layer();  // bytes fit, so elements do twice
      MW_RETURN_IF_ERROR(ByteSize(buffer.type));
    }
    const std::string& output = storage == CacheStorage::kExplicitNew ? names->new_output : names->whole_output;
    buffer.output_name = ExpandPattern(output, symbols);
    if (storage != CacheStorage::kState && output.empty()) {
      return Usage(
          fmt::format("the contract has no output name for cache {} as explicit input and output", buffer.name));
    }
    result_.buffers.push_back(std::move(buffer));
    return static_cast<int>(result_.buffers.size()) - 1;
  }

  static constexpr int64_t kWhole = -1;
  const ModelPlan& plan_;
  const ContractForm& form_;
  const CacheChoice& choice_;
  int64_t first_;
  int64_t last_;
  CachePlan result_;
};

}  // namespace

Result<CacheChoice> ChooseCaches(const ModelPlan& plan, const Contract& contract, const ContractForm& form,
                                 const BuildOptions& options, std::vector<std::string>& warnings,
                                 std::vector<std::string>& notes) {
  CacheChoice choice;
  choice.layout = options.layout.value_or(form.layout);
  choice.order = choice.layout.order.value_or(form.layout.order.value_or(SlotOrder::kInterleaved));
  choice.update = options.update.value_or(form.update);
  // A contract's own window update is its default for models that have a window.
  if (!options.update.has_value() && !plan.HasSliding() && choice.update != CacheUpdate::kMask) {
    choice.update = CacheUpdate::kSlice;
  }
  choice.context_length = options.context_length;
  choice.explicit_dtype = options.cache_dtype.value_or(options.compute);
  choice.hybrid_dtype = options.hybrid_dtype.value_or(options.compute);
  choice.compute = options.compute;
  const bool by_role = choice.layout.layout == StateLayout::kByRole && choice.layout.storage == CacheStorage::kState;
  choice.hybrid = options.hybrid_caches.value_or(by_role ? CacheStorage::kState : CacheStorage::kExplicitWhole);
  const bool conv_by_io =
      Names(form, CacheGroup::kConv) == nullptr || !Names(form, CacheGroup::kConv)->whole_output.empty();
  if (!options.hybrid_caches.has_value() && !conv_by_io) choice.hybrid = CacheStorage::kState;

  for (const CacheGroup group : GroupsOf(plan, choice)) {
    if (Names(form, group) == nullptr) {
      return Usage(
          fmt::format("contract {} has no names for state layout {}", contract.name, LayoutName(choice.layout.layout)));
    }
  }
  MW_RETURN_IF_ERROR(CheckUpdate(plan, choice));
  MW_RETURN_IF_ERROR(ChoosePrecision(plan, options, choice));
  Warn(plan, choice, warnings, notes);
  return choice;
}

bool HasRoundedCaches(const ModelPlan& plan, const CacheChoice& choice) {
  const bool half = choice.hybrid == CacheStorage::kState || choice.hybrid_dtype == DataType::kFp16;
  const bool conv = plan.HasMixer(Mixer::kShortConv) && choice.compute == DataType::kFp32;
  return half && (conv || plan.HasMixer(Mixer::kDeltaNet));
}

CacheUpdate LayerUpdate(const ModelPlan& plan, const CacheChoice& choice, int64_t layer) {
  const bool windowed = choice.update == CacheUpdate::kRing || choice.update == CacheUpdate::kShift;
  return windowed && !plan.layers[static_cast<size_t>(layer)].sliding ? CacheUpdate::kSlice : choice.update;
}

int64_t LayerColumns(const ModelPlan& plan, const CacheChoice& choice, int64_t layer) {
  const CacheUpdate update = LayerUpdate(plan, choice, layer);
  const bool windowed = update == CacheUpdate::kRing || update == CacheUpdate::kShift;
  return windowed ? std::min(plan.window, choice.context_length) : choice.context_length;
}

Result<CachePlan> PlanCaches(const ModelPlan& plan, const ContractForm& form, const CacheChoice& choice, int64_t first,
                             int64_t last) {
  return Planner(plan, form, choice, first, last).Plan();
}

}  // namespace milwright
