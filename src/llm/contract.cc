#include "llm/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace milwright {
namespace {

template <typename T>
struct Named {
  T value;
  std::string_view name;
};

constexpr std::array<Named<FeatureKind>, 24> kFeatureKinds = {{
    {FeatureKind::kTokenIds, "token_ids"},
    {FeatureKind::kHidden, "hidden"},
    {FeatureKind::kPosition, "position"},
    {FeatureKind::kPositionIds, "position_ids"},
    {FeatureKind::kMropePositions, "mrope_positions"},
    {FeatureKind::kMask, "mask"},
    {FeatureKind::kSlidingMask, "sliding_mask"},
    {FeatureKind::kUpdateMask, "update_mask"},
    {FeatureKind::kRingPosition, "ring_position"},
    {FeatureKind::kCosine, "cosine"},
    {FeatureKind::kSine, "sine"},
    {FeatureKind::kPerLayerInputs, "per_layer_inputs"},
    {FeatureKind::kPerLayerCombined, "per_layer_combined"},
    {FeatureKind::kDeepstack, "deepstack"},
    {FeatureKind::kVisualMask, "visual_mask"},
    {FeatureKind::kVisualActive, "visual_active"},
    {FeatureKind::kSharedKey, "shared_key"},
    {FeatureKind::kSharedValue, "shared_value"},
    {FeatureKind::kLogits, "logits"},
    {FeatureKind::kNextToken, "next_token"},
    {FeatureKind::kTokenLogit, "token_logit"},
    {FeatureKind::kNormedHidden, "normed_hidden"},
    {FeatureKind::kTopValues, "top_values"},
    {FeatureKind::kTopIndices, "top_indices"},
}};

constexpr std::array<Named<PackageRole>, 3> kPackageRoles = {
    {{PackageRole::kEmbedding, "embedding"}, {PackageRole::kBody, "body"}, {PackageRole::kHead, "head"}}};

constexpr std::array<Named<CacheGroup>, 11> kCacheGroups = {{
    {CacheGroup::kKeys, "keys"},
    {CacheGroup::kValues, "values"},
    {CacheGroup::kKeysValues, "keys_values"},
    {CacheGroup::kLayerKeys, "layer_keys"},
    {CacheGroup::kLayerValues, "layer_values"},
    {CacheGroup::kFull, "full"},
    {CacheGroup::kSliding, "sliding"},
    {CacheGroup::kConv, "conv"},
    {CacheGroup::kRecurrent, "recurrent"},
    {CacheGroup::kLayerConv, "layer_conv"},
    {CacheGroup::kLayerRecurrent, "layer_recurrent"},
}};

template <typename Table, typename T>
std::string_view NameOf(const Table& table, T value) {
  for (const auto& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "?";
}

template <typename T, size_t N>
std::optional<T> ValueOf(const std::array<Named<T>, N>& table, std::string_view name) {
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view FeatureKindName(FeatureKind kind) { return NameOf(kFeatureKinds, kind); }
std::optional<FeatureKind> FeatureKindFromName(std::string_view name) { return ValueOf(kFeatureKinds, name); }
std::string_view PackageRoleName(PackageRole role) { return NameOf(kPackageRoles, role); }
std::optional<PackageRole> PackageRoleFromName(std::string_view name) { return ValueOf(kPackageRoles, name); }
std::string_view CacheGroupName(CacheGroup group) { return NameOf(kCacheGroups, group); }
std::optional<CacheGroup> CacheGroupFromName(std::string_view name) { return ValueOf(kCacheGroups, name); }

const ContractFeature* ContractForm::FindInput(FeatureKind kind, PackageRole role, std::string_view table) const {
  for (const ContractFeature& feature : inputs) {
    const bool right_table = feature.table == "*" || feature.table == table;
    if (feature.kind == kind && feature.role.value_or(role) == role && right_table) return &feature;
  }
  return nullptr;
}

const ContractFeature* ContractForm::FindOutput(FeatureKind kind, PackageRole role) const {
  for (const ContractFeature& feature : outputs) {
    if (feature.kind == kind && feature.role.value_or(role) == role) return &feature;
  }
  return nullptr;
}

const ContractForm* Contract::FormFor(std::string_view family) const {
  const ContractForm* rest = nullptr;
  for (const ContractForm& form : forms) {
    if (form.families.empty()) {
      rest = &form;
    } else if (std::find(form.families.begin(), form.families.end(), family) != form.families.end()) {
      return &form;
    }
  }
  return rest;
}

DataType FeatureDataType(const ContractFeature& feature, DataType compute) {
  if (feature.dtype.has_value()) return *feature.dtype;
  switch (feature.kind) {
    case FeatureKind::kTokenIds:
    case FeatureKind::kPosition:
    case FeatureKind::kPositionIds:
    case FeatureKind::kMropePositions:
    case FeatureKind::kRingPosition:
    case FeatureKind::kNextToken:
    case FeatureKind::kTopIndices:
      return DataType::kInt32;
    case FeatureKind::kMask:
    case FeatureKind::kSlidingMask:
    case FeatureKind::kUpdateMask:
    case FeatureKind::kVisualMask:
      return DataType::kFp16;
    case FeatureKind::kVisualActive:
      return DataType::kFp32;
    default:
      return compute;
  }
}

}  // namespace milwright
