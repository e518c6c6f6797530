#include "analysis/input_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "analysis/input_kind_parts.h"

namespace milwright {
namespace {

class KindFinder {
 public:
  KindFinder(const Function& function, const InputKindChoices& choices)
      : function_(function), choices_(choices), states_(AnalyzeStates(function)) {}

  Result<FunctionInputs> Find() {
    for (const Value* input : function_.TensorInputs()) {
      InputFacts facts;
      facts.input = input;
      const auto pair = std::ranges::find(states_.cache_pairs, input, &CachePair::input);
      if (pair != states_.cache_pairs.end() && Fits(*pair)) {
        facts.kind = InputKind::kCache;
        facts.pair = *pair;
        facts.shifts_rows = !pair->whole && Shifts(pair->form) && pair->role == StateRole::kConv;
      } else if (IsInteger(input->type.dtype())) {
        IndexUse use = FindIndexUse(*input);
        FindIndexKind(use, facts);
        index_uses_.emplace(input, std::move(use));
      } else {
        MaskUse use = FindMaskUse(*input);
        FindMaskKind(use, facts);
        mask_uses_.emplace(input, std::move(use));
      }
      result_.inputs.push_back(facts);
    }
    SeparateRings(index_uses_, result_);
    SeparateSlidingMasks(states_, mask_uses_, result_);
    for (InputFacts& facts : result_.inputs) MW_RETURN_IF_ERROR(Choose(facts));
    for (InputFacts& facts : result_.inputs) FindAxes(facts);
    FindLengths(result_);
    return std::move(result_);
  }

 private:
  // Whether a host can put what `pair` gives out back into its cache: whole, or rows along one axis.
  static bool Fits(const CachePair& pair) {
    const Type& cache = pair.input->type;
    const Type& given = pair.output->type;
    if (cache.rank() != given.rank() || cache.dtype() != given.dtype()) return false;
    int narrower = 0;
    for (size_t i = 0; i < cache.shape().size(); ++i) {
      if (given.shape()[i] > cache.shape()[i]) return false;
      narrower += given.shape()[i] != cache.shape()[i] ? 1 : 0;
    }
    return pair.whole ? narrower == 0 : narrower == 1;
  }

  // The pair of a cache and the output that the caller names; nothing when this function has no such output.
  Result<std::optional<CachePair>> StatedPair(const Value& input, const std::string& output) const {
    for (Value* value : function_.body().outputs()) {
      if (value->name != output) continue;
      const bool whole = value->type == input.type;
      CachePair pair{
          function_.FindInput(input.name), value, whole, UpdateForm::kReadModifyWrite, StateRole::kUnknown, {}};
      if (Fits(pair)) return std::optional(pair);
      return Status(
          ErrorCode::kUsage,
          fmt::format("output '{}' is {} and does not go back into the cache '{}' of '{}', which is {}", output,
                      TypeToString(value->type), input.name, function_.name, TypeToString(input.type)));
    }
    return std::optional<CachePair>();
  }

  Status Choose(InputFacts& facts) {
    const Value& input = *facts.input;
    const auto choice = choices_.find(input.name);
    if (choice != choices_.end()) {
      const InputKind kind = choice->second.kind;
      const bool integer = kind == InputKind::kPosition || kind == InputKind::kRingPosition ||
                           kind == InputKind::kPositionIds || kind == InputKind::kTokenId;
      const bool floating = IsRotary(kind) || kind == InputKind::kHidden;
      if (kind == InputKind::kCache && choice->second.cache_output.has_value()) {
        MW_ASSIGN_OR_RETURN(facts.pair, StatedPair(input, *choice->second.cache_output));
        facts.shifts_rows = false;
      } else if (kind == InputKind::kCache && !facts.pair.has_value()) {
        return {ErrorCode::kUsage,
                fmt::format("say which output the cache '{0}' of '{1}' comes back from: --input-kind {0}=cache:OUTPUT",
                            input.name, function_.name)};
      }
      if ((integer && !IsInteger(input.type.dtype())) || (floating && !IsFloat(input.type.dtype()))) {
        return {ErrorCode::kUsage, fmt::format("input '{}' of '{}' is {} and cannot be of kind {}", input.name,
                                               function_.name, TypeToString(input.type), InputKindName(kind))};
      }
      facts.kind = kind;
      facts.window = choice->second.window;
      if (kind != InputKind::kCausalMask) facts.own_rows_last = false;
    }
    if (facts.kind != InputKind::kRingPosition || facts.window.has_value()) return Status::Ok();
    const auto use = index_uses_.find(&input);
    facts.window = use != index_uses_.end() ? use->second.write_size : std::nullopt;
    for (const InputFacts& mask : result_.inputs) {  // a ring in a buffer that is longer than its window
      if (mask.kind == InputKind::kSlidingMaskLeft) Limit(facts.window, KnownSize(mask.input->type.shape(), -1));
    }
    if (facts.window.has_value()) return Status::Ok();
    if (choice != choices_.end()) {
      return {ErrorCode::kUsage,
              fmt::format("say how long the ring of '{0}' is: --input-kind {0}=ring-position:W", input.name)};
    }
    facts.kind = InputKind::kPosition;
    return Status::Ok();
  }

  const Function& function_;
  const InputKindChoices& choices_;
  FunctionStates states_;
  IndexUses index_uses_;
  MaskUses mask_uses_;
  FunctionInputs result_;
};

}  // namespace

bool NameHas(const Value& value, std::initializer_list<std::string_view> parts) {
  std::string name = value.name;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(parts, [&name](std::string_view part) { return name.find(part) != std::string::npos; });
}

std::optional<int64_t> KnownSize(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += static_cast<int64_t>(shape.size());
  if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return std::nullopt;
  const int64_t size = shape[static_cast<size_t>(axis)];
  return size == kUnknownDim ? std::nullopt : std::optional(size);
}

Result<FunctionInputs> FindInputKinds(const Function& function, const InputKindChoices& choices) {
  return KindFinder(function, choices).Find();
}

}  // namespace milwright
