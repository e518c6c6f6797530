#include "llm/match_contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace milwright {
namespace {

// What the symbols of contract shapes are called in messages. Others (S, and sums and products) are not compared.
struct SizeName {
  std::string_view symbol;
  std::string_view name;
};
constexpr SizeName kSizes[] = {
    {"C", "context length"},
    {"h", "hidden size"},
    {"W", "columns of the sliding mask"},
    {"D", "head size"},
    {"Dmax", "head size"},
    {"K", "KV heads"},
    {"k", "top-k size"},
    {"channels", "conv channels"},
    {"taps", "conv taps"},
    {"nv", "value heads"},
    {"dk", "key size"},
    {"dv", "value size"},
    {"L*P", "per-layer input width"},
};

/// Whether `name` is `pattern` with a number, or nothing, for "{x}"; `index` is the number or -1.
bool MatchesPattern(std::string_view pattern, std::string_view name, int64_t& index) {
  index = -1;
  const auto same = [](std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return x == y || (x == '_' && y == '.'); });
  };
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return same(pattern, name);
  const std::string_view tail = pattern.substr(pattern.find('}') + 1);
  if (name.size() < open + tail.size() || !same(pattern.substr(0, open), name.substr(0, open)) ||
      !same(tail, name.substr(name.size() - tail.size()))) {
    return false;
  }
  const std::string_view digits = name.substr(open, name.size() - open - tail.size());
  if (digits.empty()) return true;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  return error == std::errc() && end == digits.data() + digits.size() && index >= 0;
}

std::vector<std::string_view> SplitShape(std::string_view shape) {
  std::vector<std::string_view> sizes;
  for (;;) {
    const size_t comma = shape.find(',');
    std::string_view one = shape.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    sizes.push_back(one);
    if (comma == std::string_view::npos) return sizes;
    shape.remove_prefix(comma + 1);
  }
}

struct NamedFeature {
  const ContractFeature* feature = nullptr;
  int64_t index = -1;
};

class FunctionMatcher {
 public:
  FunctionMatcher(const Contract& contract, const ContractForm& form, const PackageFile& package, AgreedSizes& sizes)
      : contract_(contract), form_(form), package_(package), sizes_(sizes) {}

  Result<ManifestFunction> Match(const FunctionDescription& description, PackageRole& role) {
    role = RoleOf(description);
    ManifestFunction function;
    function.name = description.name;
    function.package = package_.name;
    length_.reset();
    vocabulary_ = 0;
    has_sliding_ = HasInput(description, FeatureKind::kSlidingMask);
    has_full_ = HasInput(description, FeatureKind::kMask);
    for (const FeatureDescription& input : description.inputs) {
      if (AddCache(description, input, function)) continue;
      MW_ASSIGN_OR_RETURN(ManifestFeature feature, Feature(form_.inputs, input, role, "input"));
      function.inputs.push_back(std::move(feature));
    }
    for (const FeatureDescription& output : description.outputs) {
      const bool of_cache = std::ranges::any_of(
          function.caches, [&output](const ManifestCache& cache) { return cache.output == output.name; });
      if (of_cache) continue;
      MW_ASSIGN_OR_RETURN(ManifestFeature feature, Feature(form_.outputs, output, role, "output"));
      if (feature.kind == FeatureKind::kLogits) vocabulary_ += output.type.array.shape.back();
      function.outputs.push_back(std::move(feature));
    }
    for (const FeatureDescription& state : description.states) {
      MW_RETURN_IF_ERROR(AddState(state));
      function.states.push_back(state.name);
    }
    if (vocabulary_ > 0) sizes_.Bind("vocabulary", vocabulary_, Place("logits"));
    function.length = contract_.flexible_length ? kUnknownDim : length_.value_or(1);
    MW_RETURN_IF_ERROR(function_status_);
    return function;
  }

 private:
  [[nodiscard]] std::string Place(std::string_view what) const { return fmt::format("{} ({})", package_.name, what); }

  [[nodiscard]] Status Unknown(std::string_view what, const FeatureDescription& feature) const {
    return {ErrorCode::kUnreadable,
            fmt::format("{}: contract {} has no {} '{}' of shape {}", package_.name, contract_.name, what, feature.name,
                        ShapeToString(feature.type.array.shape))};
  }

  static NamedFeature Find(const std::vector<ContractFeature>& features, std::string_view name,
                           std::optional<PackageRole> role) {
    for (const ContractFeature& feature : features) {
      const bool right_role = !role.has_value() || feature.role.value_or(*role) == *role;
      int64_t index = -1;
      if (right_role && MatchesPattern(feature.name, name, index)) return {&feature, index};
    }
    return {};
  }

  /// Embeddings and heads are packages of their own where the form says so: told by what they have not.
  [[nodiscard]] PackageRole RoleOf(const FunctionDescription& description) const {
    const auto all = [](const std::vector<FeatureDescription>& described, const std::vector<ContractFeature>& features,
                        auto wanted) {
      return std::ranges::all_of(described, [&](const FeatureDescription& one) {
        const NamedFeature found = Find(features, one.name, std::nullopt);
        return found.feature != nullptr && wanted(found.feature->kind);
      });
    };
    if (!description.states.empty()) return PackageRole::kBody;
    const auto is_tokens = [](FeatureKind kind) { return kind == FeatureKind::kTokenIds; };
    const auto is_hidden = [](FeatureKind kind) { return kind == FeatureKind::kHidden; };
    const auto is_result = [](FeatureKind kind) { return kind != FeatureKind::kHidden; };
    if (form_.separate_embedding && all(description.inputs, form_.inputs, is_tokens) &&
        all(description.outputs, form_.outputs, is_hidden)) {
      return PackageRole::kEmbedding;
    }
    if (form_.separate_head && all(description.inputs, form_.inputs, is_hidden) &&
        all(description.outputs, form_.outputs, is_result)) {
      return PackageRole::kHead;
    }
    return PackageRole::kBody;
  }

  [[nodiscard]] bool HasInput(const FunctionDescription& description, FeatureKind kind) const {
    return std::ranges::any_of(description.inputs, [&](const FeatureDescription& input) {
      const NamedFeature found = Find(form_.inputs, input.name, std::nullopt);
      return found.feature != nullptr && found.feature->kind == kind;
    });
  }

  /// Holds the shape against the contract's, and binds its sizes but for the symbols in `apart`. `table` keeps apart
  /// the sizes of rotary tables.
  bool MatchShape(std::string_view expressions, const Shape& shape, const std::string& place, const std::string& table,
                  std::string_view apart = {}) {
    const std::vector<std::string_view> wanted = SplitShape(expressions);
    if (wanted.size() != shape.size()) return false;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (wanted[i] == "1" && shape[i] != 1) return false;
    }
    for (size_t i = 0; i < shape.size(); ++i) {
      if (wanted[i] == "T") BindLength(shape[i], place);
      if (wanted[i] == "R") sizes_.Bind(table.empty() ? "rotary size" : table + " rotary size", shape[i], place);
      if ((wanted[i] == "n" || wanted[i] == "2*n") && contract_.state_over_all_layers) {
        sizes_.Bind("cache rows", shape[i], place);
      }
      const auto* known = std::ranges::find(kSizes, wanted[i], &SizeName::symbol);
      if (known == std::end(kSizes) || apart.find(wanted[i]) != std::string_view::npos) continue;
      sizes_.Bind(known->name, shape[i], place);
    }
    return true;
  }

  void BindLength(int64_t length, const std::string& place) {
    if (length_.has_value() && *length_ != length && function_status_.ok()) {
      function_status_ = {ErrorCode::kUnreadable,
                          fmt::format("{} is for {} tokens, but {} for {}", length_place_, *length_, place, length)};
    }
    if (!length_.has_value()) length_place_ = place;
    length_ = length;
  }

  Result<ManifestFeature> Feature(const std::vector<ContractFeature>& features, const FeatureDescription& described,
                                  PackageRole role, std::string_view what) {
    const NamedFeature found = Find(features, described.name, role);
    if (found.feature == nullptr) return Unknown(what, described);
    const ContractFeature& known = *found.feature;
    const ArrayFeature& array = described.type.array;
    const bool shared = known.kind == FeatureKind::kSharedKey || known.kind == FeatureKind::kSharedValue;
    if (!MatchShape(known.shape, array.shape, Place(fmt::format("{} '{}'", what, described.name)), known.table,
                    shared ? "K D" : "")) {
      return Unknown(what, described);
    }
    ManifestFeature feature;
    feature.kind = known.kind;
    feature.name = described.name;
    feature.type = {array.dtype, array.shape};
    const std::vector<std::string_view> sizes = SplitShape(known.shape);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == "?") feature.type.shape[i] = kUnknownDim;
    }
    feature.index = found.index;
    feature.table = known.table;
    return feature;
  }

  /// Whether `input` is an explicit cache; adds it with its output.
  bool AddCache(const FunctionDescription& description, const FeatureDescription& input, ManifestFunction& function) {
    for (const auto& [group, names] : form_.caches) {
      int64_t layer = -1;
      if (!MatchesPattern(names.name, input.name, layer)) continue;
      for (const FeatureDescription& output : description.outputs) {
        int64_t other = -1;
        const bool whole = !names.whole_output.empty() && MatchesPattern(names.whole_output, output.name, other);
        const bool fresh = !whole && !names.new_output.empty() && MatchesPattern(names.new_output, output.name, other);
        if ((!whole && !fresh) || other != layer) continue;
        const ArrayFeature& array = input.type.array;
        if (!MatchCache(group, names, {array.dtype, array.shape}, Place(fmt::format("input '{}'", input.name))))
          return false;
        function.caches.push_back({input.name, output.name, {array.dtype, array.shape}, fresh});
        return true;
      }
    }
    return false;
  }

  Status AddState(const FeatureDescription& state) {
    for (const auto& [group, names] : form_.caches) {
      int64_t layer = -1;
      if (!MatchesPattern(names.name, state.name, layer)) continue;
      const ArrayFeature& array = state.type.array;
      if (MatchCache(group, names, {array.dtype, array.shape}, Place(fmt::format("state '{}'", state.name)))) {
        return Status::Ok();
      }
    }
    return Unknown("state", state);
  }

  bool MatchCache(CacheGroup group, const CacheNames& names, TensorType type, const std::string& place) {
    // Full and sliding layers may differ in heads and their size (Gemma): chunks then hold different kinds. Caches of
    // single layers have that layer's columns, and C is the window where all layers are sliding.
    const bool by_layer = group == CacheGroup::kLayerKeys || group == CacheGroup::kLayerValues;
    std::string apart = has_sliding_ ? "K D" : "";
    if (by_layer) apart += " W";
    if (has_sliding_ && !has_full_) apart += " C";
    // Halves of a conv or recurrent cache lie in twice the rows (HybridPrecision); rows of a stack are not compared.
    const bool one_row = IsHybrid(group) && SplitShape(names.shape).front() == "1";
    if (one_row && type.dtype == DataType::kFp16 && !type.shape.empty() && type.shape.front() == 2) {
      type.shape.front() = 1;
    }
    return MatchShape(names.shape, type.shape, place, {}, apart);
  }

  const Contract& contract_;
  const ContractForm& form_;
  const PackageFile& package_;
  AgreedSizes& sizes_;
  std::optional<int64_t> length_;
  std::string length_place_;
  int64_t vocabulary_ = 0;
  bool has_sliding_ = false;
  bool has_full_ = false;
  Status function_status_;
};

}  // namespace

Result<MatchedPackage> MatchPackage(const Contract& contract, const ContractForm& form, const PackageFile& package,
                                    AgreedSizes& sizes) {
  MatchedPackage matched;
  FunctionMatcher matcher(contract, form, package, sizes);
  for (const FunctionDescription& description : package.description.functions) {
    MW_ASSIGN_OR_RETURN(ManifestFunction function, matcher.Match(description, matched.role));
    matched.functions.push_back(std::move(function));
  }
  return matched;
}

}  // namespace milwright
