#include "llm/checkpoint.h"

#include <fmt/format.h>

#include <set>

#include "base/sha256.h"

namespace milwright {
namespace {

struct RolePart {
  std::string_view role;
  std::string_view rows;  ///< empty: the whole tensor
};

std::vector<RolePart> SplitRoles(std::string_view roles) {
  std::vector<RolePart> parts;
  while (!roles.empty()) {
    const size_t space = roles.find(' ');
    const std::string_view one = roles.substr(0, space);
    roles = space == std::string_view::npos ? std::string_view() : roles.substr(space + 1);
    const size_t colon = one.find(':');
    parts.push_back({one.substr(0, colon), colon == std::string_view::npos ? "" : one.substr(colon + 1)});
  }
  return parts;
}

std::string WithPrefix(std::string_view pattern, std::string_view prefix) {
  std::string text(pattern);
  const size_t at = text.find("{p}");
  if (at != std::string::npos) text.replace(at, 3, prefix);
  return text;
}

bool NamesLayer(std::string_view pattern) { return pattern.find("{i}") != std::string_view::npos; }

bool Matches(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == name;
}

class Binder {
 public:
  Binder(const Family& family, const ModelPlan& plan, const Safetensors& file)
      : family_(family), plan_(plan), file_(file) {
    for (int64_t i = kNoLayer; i < plan.layer_count(); ++i) symbols_.push_back(PlanSymbols(plan, i));
  }

  Result<CheckpointTensors> Bind() {
    FindPrefix();
    for (const TensorRule& rule : family_.tensors) {
      if (!NamesLayer(rule.pattern)) {
        MW_RETURN_IF_ERROR(BindOne(rule, kNoLayer));
        continue;
      }
      for (int64_t i = 0; i < plan_.layer_count(); ++i) MW_RETURN_IF_ERROR(BindOne(rule, i));
    }
    MW_RETURN_IF_ERROR(SortOutTheRest());
    return std::move(result_);
  }

 private:
  const Symbols& SymbolsOf(int64_t layer) const { return symbols_[static_cast<size_t>(layer + 1)]; }

  static Status Error(std::string_view name, std::string_view what) {
    return {ErrorCode::kPrecondition, fmt::format("tensor '{}': {}", name, what)};
  }

  void FindPrefix() {
    prefix_ = family_.prefixes.front();
    const std::string_view embedding = family_.tensors.front().pattern;
    for (const std::string_view prefix : family_.prefixes) {
      if (file_.Contains(WithPrefix(embedding, prefix))) prefix_ = prefix;
    }
  }

  Status BindOne(const TensorRule& rule, int64_t layer) {
    const Symbols& symbols = SymbolsOf(layer);
    if (!ConditionHolds(rule.when, symbols)) return Status::Ok();
    const std::string name = ExpandPattern(WithPrefix(rule.pattern, prefix_), symbols);
    const TensorType* type = file_.TypeOf(name);
    if (type == nullptr) {
      return Error(name, fmt::format("is missing; family {} needs it by the config", family_.name));
    }
    MW_ASSIGN_OR_RETURN(Shape shape, EvaluateShape(rule.shape, symbols));
    if (type->shape != shape) {
      return Error(name, fmt::format("has shape {}, but the config says {} ({})", ShapeToString(type->shape),
                                     ShapeToString(shape), rule.shape));
    }
    static constexpr std::string_view kTypes = "F32, F16, BF16, F8_E4M3 and F8_E5M2";
    if (!IsFloat(type->dtype) || type->dtype == DataType::kFp64) {
      return Error(name, fmt::format("is stored as {}; only {} can be built from", DataTypeName(type->dtype), kTypes));
    }
    bound_.insert(name);
    if (rule.transposed) std::swap(shape[0], shape[1]);

    const bool alternating = rule.roles.starts_with('~');
    const std::vector<RolePart> parts = SplitRoles(alternating ? rule.roles.substr(1) : rule.roles);
    std::vector<int64_t> counts;
    int64_t period = 0;
    for (const RolePart& part : parts) {
      int64_t count = shape.front();
      if (!part.rows.empty()) {
        MW_ASSIGN_OR_RETURN(count, EvaluateExpression(part.rows, symbols));
      }
      counts.push_back(count);
      period += count;
    }
    if (period < 1 || shape.front() % period != 0 || (!alternating && period != shape.front())) {
      return {ErrorCode::kInternal,
              fmt::format("family {}: roles '{}' do not fill the rows", family_.name, rule.roles)};
    }
    int64_t offset = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      RoleTensor role{name, shape, offset, counts[i], period, rule.transposed};
      role.shape.front() = shape.front() / period * counts[i];
      result_.roles.emplace(std::make_pair(layer, std::string(parts[i].role)), std::move(role));
      offset += counts[i];
    }
    return Status::Ok();
  }

  std::string_view ReasonToIgnore(const std::string& name) const {
    for (const IgnoredRule& rule : family_.ignored) {
      const std::string pattern = WithPrefix(rule.pattern, prefix_);
      if (!NamesLayer(pattern)) {
        if (ConditionHolds(rule.when, SymbolsOf(kNoLayer)) && Matches(pattern, name)) return rule.reason;
        continue;
      }
      for (int64_t i = 0; i < plan_.layer_count(); ++i) {
        if (ConditionHolds(rule.when, SymbolsOf(i)) && ExpandPattern(pattern, SymbolsOf(i)) == name) return rule.reason;
      }
    }
    return {};
  }

  Status SortOutTheRest() {
    for (const std::string& name : file_.Names()) {
      if (bound_.count(name) != 0) continue;
      const std::string_view reason = ReasonToIgnore(name);
      if (reason.empty()) {
        return Error(name, fmt::format("is unexpected: family {} with this config has no place for it", family_.name));
      }
      result_.ignored.push_back({name, std::string(reason)});
    }
    return Status::Ok();
  }

  const Family& family_;
  const ModelPlan& plan_;
  const Safetensors& file_;
  std::vector<Symbols> symbols_;
  std::string_view prefix_;
  std::set<std::string, std::less<>> bound_;
  CheckpointTensors result_;
};

}  // namespace

Result<CheckpointTensors> BindTensors(const Family& family, const ModelPlan& plan, const Safetensors& file) {
  return Binder(family, plan, file).Bind();
}

Result<std::string> CheckpointHash(const Safetensors& file) {
  Sha256 hash;
  for (const std::string& name : file.Names()) {
    MW_ASSIGN_OR_RETURN(const Tensor tensor, file.Load(name));
    hash.Update(fmt::format("{}\n{}\n", name, TypeToString(tensor.type())));
    hash.Update(tensor.bytes());
  }
  return ToHex(hash.Finish());
}

}  // namespace milwright
