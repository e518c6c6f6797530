#include "exec/input_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/errors.h"

namespace milwright {
namespace {

// What a masked column gets: fp16's largest would overflow where two masks meet (state-semantics.md, T20-T22).
constexpr double kHidden = -1e4;
constexpr double kRotaryBase = 10000;

// splitmix64: small, and the same on every platform, which the distributions of <random> are not.
class Random {
 public:
  Random(uint64_t seed, std::string_view key, int64_t step) : state_(seed) {
    for (const char c : key) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    state_ ^= static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15ULL;
  }
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t state_;
};

// Where element `i` of a row-major tensor lies along one axis.
class AxisIndex {
 public:
  AxisIndex(const Shape& shape, std::optional<size_t> axis) {
    if (!axis.has_value() || shape.empty()) return;
    size_ = shape[*axis];
    for (size_t k = *axis + 1; k < shape.size(); ++k) inner_ *= shape[k];
  }
  [[nodiscard]] int64_t operator()(int64_t i) const { return size_ == 0 ? 0 : i / inner_ % size_; }
  [[nodiscard]] int64_t size() const { return size_; }

 private:
  int64_t size_ = 1;
  int64_t inner_ = 1;
};

// Whether row `row` of a step of `rows` rows at `position` may see column `column` of `columns`.
bool Visible(const InputFacts& facts, int64_t position, int64_t rows, int64_t row, int64_t column, int64_t columns) {
  const int64_t query = position + row;
  int64_t shown = column;  // the position whose row lies in the column
  if (facts.kind == InputKind::kSlidingMaskRight) {
    shown = position + rows - columns + column;
  } else if (facts.kind == InputKind::kSlidingMaskLeft) {
    const int64_t newest = position + rows - 1;
    shown = newest - ((newest - column) % columns + columns) % columns;
  } else if (facts.own_rows_last) {
    const int64_t cache = columns - rows;
    return column < cache ? column < position : column - cache <= row;
  }
  return shown >= 0 && shown <= query;
}

void FillMask(const InputFacts& facts, int64_t position, Tensor& tensor) {
  const AxisIndex column(tensor.shape(), facts.context_axis);
  const AxisIndex row(tensor.shape(), facts.query_axis);
  const bool is_bool = tensor.dtype() == DataType::kBool;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const bool visible = Visible(facts, position, row.size(), row(i), column(i), column.size());
    tensor.SetDouble(i, is_bool ? (visible ? 1 : 0) : (visible ? 0 : kHidden));
  }
}

void FillRotary(const InputFacts& facts, int64_t position, Tensor& tensor) {
  const AxisIndex row(tensor.shape(), facts.query_axis);
  // Channels last, or (ANE layout, rows last) the channels before them.
  const size_t last = tensor.shape().size() - 1;
  const AxisIndex channel(tensor.shape(), facts.query_axis == last ? 1 : last);
  const int64_t half = std::max<int64_t>(channel.size() / 2, 1);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const auto pair = static_cast<double>(channel(i) % half);
    const double angle =
        static_cast<double>(position + row(i)) * std::pow(kRotaryBase, -2 * pair / static_cast<double>(channel.size()));
    tensor.SetDouble(i, facts.kind == InputKind::kRotaryCos ? std::cos(angle) : std::sin(angle));
  }
}

// Puts `rows` into `cache`: behind the others (shifting the oldest out) or at `position` mod length.
Status PutRows(const Tensor& rows, int64_t position, bool shift, Tensor& cache) {
  const Shape& to = cache.shape();
  const Shape& from = rows.shape();
  size_t axis = to.size();
  for (size_t i = 0; i < to.size() && i < from.size(); ++i) {
    if (to[i] == from[i]) continue;
    if (axis != to.size()) axis = to.size() + 1;  // more than one differs
    if (axis == to.size()) axis = i;
  }
  if (to.size() != from.size() || axis >= to.size() || from[axis] > to[axis] || rows.dtype() != cache.dtype()) {
    return {ErrorCode::kRuntime, fmt::format("new rows of type {} do not fit a cache of type {}",
                                             TypeToString(rows.type()), TypeToString(cache.type()))};
  }
  const auto width = static_cast<size_t>(BitWidth(cache.dtype())) / 8;
  size_t inner = width;
  size_t outer = 1;
  for (size_t i = 0; i < to.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : static_cast<size_t>(to[i]);
  const auto length = static_cast<size_t>(to[axis]);
  const auto count = static_cast<size_t>(from[axis]);
  const auto source = rows.bytes();
  const auto target = cache.mutable_bytes();
  for (size_t o = 0; o < outer; ++o) {
    std::byte* base = target.data() + o * length * inner;
    if (shift) std::memmove(base, base + count * inner, (length - count) * inner);
    for (size_t r = 0; r < count; ++r) {
      const size_t at = shift ? length - count + r : (static_cast<size_t>(position) + r) % length;
      std::memcpy(base + at * inner, source.data() + (o * count + r) * inner, inner);
    }
  }
  return Status::Ok();
}

const FeatureDescription* Described(const FunctionDescription* description, std::string_view name) {
  if (description == nullptr) return nullptr;
  const auto it = std::ranges::find(description->inputs, name, &FeatureDescription::name);
  return it != description->inputs.end() ? &*it : nullptr;
}

// Whether the package allows `length` rows in a step; true when it says nothing.
bool Allows(const ArrayFeature& array, size_t axis, int64_t length) {
  if (!array.enumerated_shapes.empty()) {
    return std::ranges::any_of(array.enumerated_shapes,
                               [&](const Shape& shape) { return axis < shape.size() && shape[axis] == length; });
  }
  if (axis >= array.shape_range.size()) return true;
  const ArrayFeature::Range& range = array.shape_range[axis];
  return length >= static_cast<int64_t>(range.lower) && (range.upper < 0 || length <= range.upper);
}

// T of a function whose shapes leave it open.
Result<int64_t> OpenQueryLength(const Function& function, const FunctionDescription* description,
                                const FunctionInputs& inputs, int64_t wanted) {
  constexpr int64_t kLongest = 4096;
  for (int64_t length = wanted > 0 ? wanted : 1; length <= kLongest; ++length) {
    const bool allowed = std::ranges::all_of(inputs.inputs, [&](const InputFacts& facts) {
      const FeatureDescription* feature = Described(description, facts.input->name);
      if (feature == nullptr || !facts.query_axis.has_value()) return true;
      if (facts.input->type.shape()[*facts.query_axis] != kUnknownDim) return true;
      return Allows(feature->type.array, *facts.query_axis, length);
    });
    if (allowed) return length;
    if (wanted > 0) break;
  }
  return Usage(fmt::format("function '{}' takes no step of {} rows", function.name, wanted > 0 ? wanted : kLongest));
}

}  // namespace

Result<InputSource> InputSource::Make(const ModelSpec& spec, const InputSourceOptions& options) {
  InputSource source;
  source.seed_ = options.seed;
  for (const auto& [name, choice] : options.kinds) {
    const bool known = std::ranges::any_of(spec.program.functions(), [&name = name](const auto& function) {
      const Value* input = function->FindInput(name);
      return input != nullptr && input->type.IsTensor();
    });
    if (!known) return Usage(fmt::format("--input-kind names '{}', but no function has an input of that name", name));
    const std::string output = choice.cache_output.value_or("");
    const bool given = output.empty() || std::ranges::any_of(spec.program.functions(), [&output](const auto& function) {
                         const auto& outputs = function->body().outputs();
                         return std::ranges::find(outputs, output, &Value::name) != outputs.end();
                       });
    if (!given) return Usage(fmt::format("no function has the output '{}' for the cache '{}'", output, name));
  }
  for (const auto& function : spec.program.functions()) {
    FunctionPlan plan;
    plan.description = spec.description.Find(function->name);
    MW_ASSIGN_OR_RETURN(plan.inputs, FindInputKinds(*function, options.kinds));
    plan.query_length = plan.inputs.query_length;
    if (plan.query_length == kUnknownDim) {
      MW_ASSIGN_OR_RETURN(plan.query_length,
                          OpenQueryLength(*function, plan.description, plan.inputs, options.query_length));
    }
    source.plans_.emplace(function->name, std::move(plan));
  }
  MW_RETURN_IF_ERROR(source.Restart(options.seed));
  return source;
}

Status InputSource::Restart(uint64_t seed) {
  seed_ = seed;
  position_ = 0;
  step_ = 0;
  caches_.clear();
  for (const auto& [name, plan] : plans_) {
    for (const InputFacts& facts : plan.inputs.inputs) {
      if (facts.kind != InputKind::kCache || caches_.contains(facts.input->name)) continue;
      MW_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Zeros({facts.input->type.dtype(), ShapeOf(plan, facts)}));
      caches_.emplace(facts.input->name, std::move(zeros));
    }
  }
  return Status::Ok();
}

const InputSource::FunctionPlan* InputSource::Find(std::string_view function) const {
  const auto it = plans_.find(function);
  return it != plans_.end() ? &it->second : nullptr;
}

const FunctionInputs* InputSource::Inputs(std::string_view function) const {
  const FunctionPlan* plan = Find(function);
  return plan != nullptr ? &plan->inputs : nullptr;
}

int64_t InputSource::QueryLength(std::string_view function) const {
  const FunctionPlan* plan = Find(function);
  return plan != nullptr ? plan->query_length : 0;
}

bool InputSource::HasRoom(std::string_view function) const {
  const FunctionPlan* plan = Find(function);
  return plan != nullptr &&
         (!plan->inputs.context_length.has_value() || position_ + plan->query_length <= *plan->inputs.context_length);
}

Shape InputSource::ShapeOf(const FunctionPlan& plan, const InputFacts& facts) const {
  Shape shape = facts.input->type.shape();
  const FeatureDescription* feature = Described(plan.description, facts.input->name);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != kUnknownDim) continue;
    if (facts.query_axis == i) {
      shape[i] = plan.query_length;
    } else if (facts.context_axis == i) {
      shape[i] = position_ + plan.query_length;  // what has been seen so far, as swift-transformers passes it
    } else {
      const bool stated = feature != nullptr && i < feature->type.array.shape.size();
      shape[i] = stated ? std::max<int64_t>(feature->type.array.shape[i], 1) : 1;
    }
  }
  return shape;
}

Result<Tensor> InputSource::DrawInput(const FunctionPlan& plan, const InputFacts& facts) const {
  const std::string& name = facts.input->name;
  if (facts.kind == InputKind::kCache) return caches_.at(name);
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros({facts.input->type.dtype(), ShapeOf(plan, facts)}));
  if (tensor.dtype() == DataType::kString) return tensor;
  const auto key = keys_.find(name);
  Random random(seed_, key != keys_.end() ? key->second : name, step_);
  const AxisIndex row(tensor.shape(), facts.query_axis);
  const AxisIndex column(tensor.shape(), facts.context_axis);
  switch (facts.kind) {
    case InputKind::kCausalMask:
    case InputKind::kSlidingMaskLeft:
    case InputKind::kSlidingMaskRight:
      FillMask(facts, position_, tensor);
      return tensor;
    case InputKind::kRotaryCos:
    case InputKind::kRotarySin:
      FillRotary(facts, position_, tensor);
      return tensor;
    default:
      break;
  }
  for (int64_t i = 0; i < tensor.size(); ++i) {
    switch (facts.kind) {
      case InputKind::kPosition:
        tensor.SetInt(i, position_);
        break;
      case InputKind::kRingPosition:
        tensor.SetInt(i, position_ % *facts.window);
        break;
      case InputKind::kPositionIds:
        tensor.SetInt(i, position_ + row(i));
        break;
      case InputKind::kUpdateMask:
        tensor.SetDouble(i, column(i) == position_ + row(i) ? 1 : 0);
        break;
      case InputKind::kTokenId:
        tensor.SetInt(i, static_cast<int64_t>(random.Next() %
                                              static_cast<uint64_t>(std::max<int64_t>(facts.bound.value_or(2), 1))));
        break;
      case InputKind::kHidden:
        tensor.SetDouble(i, random.Normal());
        break;
      default:
        tensor.SetDouble(i,
                         IsFloat(tensor.dtype()) ? random.Uniform() * 2 - 1 : static_cast<double>(random.Next() % 2));
    }
  }
  return tensor;
}

Result<TensorMap> InputSource::Draw(std::string_view function) const {
  const FunctionPlan* plan = Find(function);
  if (plan == nullptr) return Usage(fmt::format("there is no function '{}'", function));
  if (!HasRoom(function)) {
    return Usage(fmt::format("'{}' has no room for {} more rows: position {} of {}", function, plan->query_length,
                             position_, *plan->inputs.context_length));
  }
  TensorMap inputs;
  for (const InputFacts& facts : plan->inputs.inputs) {
    auto tensor = DrawInput(*plan, facts);
    if (!tensor.ok()) return tensor.status().WithContext(fmt::format("input '{}'", facts.input->name));
    inputs.emplace(facts.input->name, *std::move(tensor));
  }
  return inputs;
}

Status InputSource::Accept(std::string_view function, const TensorMap& outputs) {
  const FunctionPlan* plan = Find(function);
  if (plan == nullptr) return Usage(fmt::format("there is no function '{}'", function));
  for (const InputFacts& facts : plan->inputs.inputs) {
    if (facts.kind != InputKind::kCache || !facts.pair.has_value()) continue;
    const auto it = outputs.find(facts.pair->output->name);
    if (it == outputs.end()) {
      return {ErrorCode::kRuntime,
              fmt::format("the step gave no '{}' for the cache '{}'", facts.pair->output->name, facts.input->name)};
    }
    Tensor& cache = caches_.at(facts.input->name);
    if (facts.pair->whole) {
      cache = it->second;
      continue;
    }
    if (const Status status = PutRows(it->second, position_, facts.shifts_rows, cache); !status.ok()) {
      return status.WithContext(fmt::format("cache '{}'", facts.input->name));
    }
  }
  position_ += plan->query_length;
  ++step_;
  return Status::Ok();
}

}  // namespace milwright
