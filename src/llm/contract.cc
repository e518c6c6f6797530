#include "llm/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "llm/named_values.h"

namespace milwright {
namespace {

constexpr std::array<Named<FeatureKind>, 24> kFeatureKinds = {{
    {"token_ids", FeatureKind::kTokenIds},
    {"hidden", FeatureKind::kHidden},
    {"position", FeatureKind::kPosition},
    {"position_ids", FeatureKind::kPositionIds},
    {"mrope_positions", FeatureKind::kMropePositions},
    {"mask", FeatureKind::kMask},
    {"sliding_mask", FeatureKind::kSlidingMask},
    {"update_mask", FeatureKind::kUpdateMask},
    {"ring_position", FeatureKind::kRingPosition},
    {"cosine", FeatureKind::kCosine},
    {"sine", FeatureKind::kSine},
    {"per_layer_inputs", FeatureKind::kPerLayerInputs},
    {"per_layer_combined", FeatureKind::kPerLayerCombined},
    {"deepstack", FeatureKind::kDeepstack},
    {"visual_mask", FeatureKind::kVisualMask},
    {"visual_active", FeatureKind::kVisualActive},
    {"shared_key", FeatureKind::kSharedKey},
    {"shared_value", FeatureKind::kSharedValue},
    {"logits", FeatureKind::kLogits},
    {"next_token", FeatureKind::kNextToken},
    {"token_logit", FeatureKind::kTokenLogit},
    {"normed_hidden", FeatureKind::kNormedHidden},
    {"top_values", FeatureKind::kTopValues},
    {"top_indices", FeatureKind::kTopIndices},
}};

constexpr std::array<Named<PackageRole>, 3> kPackageRoles = {
    {{"embedding", PackageRole::kEmbedding}, {"body", PackageRole::kBody}, {"head", PackageRole::kHead}}};

constexpr std::array<Named<CacheGroup>, 11> kCacheGroups = {{
    {"keys", CacheGroup::kKeys},
    {"values", CacheGroup::kValues},
    {"keys_values", CacheGroup::kKeysValues},
    {"layer_keys", CacheGroup::kLayerKeys},
    {"layer_values", CacheGroup::kLayerValues},
    {"full", CacheGroup::kFull},
    {"sliding", CacheGroup::kSliding},
    {"conv", CacheGroup::kConv},
    {"recurrent", CacheGroup::kRecurrent},
    {"layer_conv", CacheGroup::kLayerConv},
    {"layer_recurrent", CacheGroup::kLayerRecurrent},
}};

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
