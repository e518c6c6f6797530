#include "milwright/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/errors.h"
#include "exec/interpreter.h"
#include "exec/prepared_call.h"
#include "format/package.h"
#include "mil/model.h"

namespace milwright {

// ---- State ----

namespace {

// `value` as `type`: floats are rounded between widths, integers must fit; the shape is the caller's business.
Result<Tensor> Convert(const Tensor& value, DataType dtype) {
  if (value.dtype() == dtype) return value;
  if (dtype == DataType::kString || value.dtype() == DataType::kString || (IsFloat(value.dtype()) && !IsFloat(dtype))) {
    return Usage(fmt::format("is {}, but {} is expected", DataTypeName(value.dtype()), DataTypeName(dtype)));
  }
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({dtype, value.shape()}));
  for (int64_t i = 0; i < value.size(); ++i) {
    if (IsFloat(dtype)) {
      result.SetDouble(i, value.GetDouble(i));
    } else {
      result.SetInt(i, value.GetInt(i));
      if (result.GetInt(i) != value.GetInt(i)) {
        return Usage(
            fmt::format("holds {} at element {}, which does not fit {}", value.GetInt(i), i, DataTypeName(dtype)));
      }
    }
  }
  return result;
}

}  // namespace

State::State() : impl_(std::make_shared<Impl>()) {}
State::State(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::~State() = default;
State::State(const State&) = default;
State& State::operator=(const State&) = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

std::vector<std::string> State::names() const {
  std::vector<std::string> names;
  for (const auto& [name, type] : impl_->types) names.push_back(name);
  return names;
}

Result<Tensor> State::Read(std::string_view name) const {
  const StateClaim claim(impl_->busy);
  MW_RETURN_IF_ERROR(claim.status());
  const auto it = impl_->values.find(name);
  if (it == impl_->values.end()) return Usage(fmt::format("there is no state '{}'", name));
  return it->second;
}

Status State::Write(std::string_view name, const Tensor& value) {
  const StateClaim claim(impl_->busy);
  MW_RETURN_IF_ERROR(claim.status());
  const auto it = impl_->values.find(name);
  if (it == impl_->values.end()) return Usage(fmt::format("there is no state '{}'", name));
  if (value.shape() != it->second.shape()) {
    return Usage(fmt::format("the state '{}' has shape {}, but the value has {}", name,
                             ShapeToString(it->second.shape()), ShapeToString(value.shape())));
  }
  auto converted = Convert(value, it->second.dtype());
  if (!converted.ok()) return converted.status().WithContext(fmt::format("the value for state '{}'", name));
  it->second = *std::move(converted);
  impl_->bounds.erase(it->first);
  return Status::Ok();
}

Status State::Reset() {
  const StateClaim claim(impl_->busy);
  MW_RETURN_IF_ERROR(claim.status());
  for (auto& [name, value] : impl_->values) {
    MW_ASSIGN_OR_RETURN(value, Tensor::Zeros(value.type()));
    impl_->bounds[name] = 0;
  }
  return Status::Ok();
}

Result<State> State::Clone() const {
  const StateClaim claim(impl_->busy);
  MW_RETURN_IF_ERROR(claim.status());
  auto copy = std::make_shared<Impl>();
  copy->values = impl_->values;
  copy->types = impl_->types;
  copy->bounds = impl_->bounds;
  copy->origin = impl_->origin;
  copy->origin_name = impl_->origin_name;
  return State(std::move(copy));
}

// ---- Model ----

struct Model::Impl {
  std::shared_ptr<const ModelSpec> spec;
  std::map<std::string, TensorType, std::less<>> states;  ///< of all functions
  mutable ConstantCache constants;
};

Model::Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Model> Model::Load(const std::filesystem::path& path) {
  MW_ASSIGN_OR_RETURN(ModelSpec spec, OpenModel(path));
  return FromSpec(std::make_shared<const ModelSpec>(std::move(spec)));
}

Result<Model> Model::FromSpec(std::shared_ptr<const ModelSpec> spec) {
  auto impl = std::make_shared<Impl>();
  for (const auto& function : spec->program.functions()) {
    for (const Value* state : function->States()) {
      const auto [it, added] = impl->states.emplace(state->name, state->type.tensor);
      if (!added && !(it->second == state->type.tensor)) {
        return Status(
            ErrorCode::kInvalidProgram,
            fmt::format("{}: the functions share the state '{}', but '{}' declares it as {} and another as {}",
                        spec->source, state->name, function->name, TypeToString(state->type.tensor),
                        TypeToString(it->second)));
      }
    }
  }
  impl->spec = std::move(spec);
  return Model(std::move(impl));
}

const ModelSpec& Model::spec() const { return *impl_->spec; }

std::vector<std::string> Model::function_names() const {
  std::vector<std::string> names;
  for (const auto& function : spec().program.functions()) names.push_back(function->name);
  return names;
}

std::string Model::default_function() const {
  const Function* function = spec().DefaultFunction();
  return function != nullptr ? function->name : std::string();
}

namespace {

Result<const Function*> FindFunction(const ModelSpec& spec, std::string_view name) {
  const Function* function = name.empty() ? spec.DefaultFunction() : spec.program.FindFunction(name);
  if (function != nullptr) return function;
  std::string known;
  for (const auto& candidate : spec.program.functions()) known += (known.empty() ? "" : ", ") + candidate->name;
  if (name.empty()) return Usage(fmt::format("the package has no default function; name one of: {}", known));
  return Usage(fmt::format("there is no function '{}'; the package has: {}", name, known));
}

const FeatureDescription* FindFeature(const std::vector<FeatureDescription>& features, std::string_view name) {
  const auto it = std::ranges::find(features, name, &FeatureDescription::name);
  return it != features.end() ? &*it : nullptr;
}

Feature MakeFeature(const Value& value, const std::vector<FeatureDescription>* described) {
  Feature feature{value.name, value.type.tensor, false, {}};
  if (described == nullptr) return feature;
  if (const FeatureDescription* found = FindFeature(*described, value.name); found != nullptr) {
    feature.optional = found->type.optional;
    feature.description = found->short_description;
  }
  return feature;
}

// Checks a shape against the function's type and, where that leaves a size open, against the description.
Status CheckShape(const Shape& given, const Value& input, const FeatureDescription* described) {
  const Shape& declared = input.type.shape();
  bool fits = given.size() == declared.size();
  for (size_t i = 0; fits && i < given.size(); ++i) fits = declared[i] == kUnknownDim || declared[i] == given[i];
  if (!fits) {
    return Usage(fmt::format("has shape {}, but {} is expected", ShapeToString(given), ShapeToString(declared)));
  }
  if (described == nullptr) return Status::Ok();
  const ArrayFeature& array = described->type.array;
  if (!array.enumerated_shapes.empty() &&
      std::ranges::find(array.enumerated_shapes, given) == array.enumerated_shapes.end()) {
    std::string allowed;
    for (const Shape& shape : array.enumerated_shapes) allowed += (allowed.empty() ? "" : ", ") + ShapeToString(shape);
    return Usage(fmt::format("has shape {}, but only {} are allowed", ShapeToString(given), allowed));
  }
  for (size_t i = 0; i < array.shape_range.size() && i < given.size(); ++i) {
    const ArrayFeature::Range& range = array.shape_range[i];
    if (given[i] < static_cast<int64_t>(range.lower) || (range.upper >= 0 && given[i] > range.upper)) {
      return Usage(fmt::format("has shape {}, but size {} must lie between {} and {}", ShapeToString(given), i,
                               range.lower, range.upper < 0 ? "any" : std::to_string(range.upper)));
    }
  }
  return Status::Ok();
}

Result<Literal> BindInput(const Value& input, const FeatureDescription* described, const TensorMap& given) {
  const auto it = given.find(input.name);
  if (it == given.end()) {
    if (described == nullptr || !described->type.optional)
      return Usage(fmt::format("the input '{}' is missing", input.name));
    Shape shape = described->type.array.shape.empty() ? input.type.shape() : described->type.array.shape;
    MW_ASSIGN_OR_RETURN(Tensor value, Tensor::Zeros({input.type.dtype(), std::move(shape)}));
    const double fill = described->type.array.default_value.value_or(0);
    for (int64_t i = 0; fill != 0 && i < value.size(); ++i) value.SetDouble(i, fill);
    return Literal(std::move(value));
  }
  const std::string place = fmt::format("the input '{}'", input.name);
  if (const Status status = CheckShape(it->second.shape(), input, described); !status.ok())
    return status.WithContext(place);
  auto converted = Convert(it->second, input.type.dtype());
  if (!converted.ok()) return converted.status().WithContext(place);
  return Literal(*std::move(converted));
}

std::string ListStates(const std::map<std::string, TensorType, std::less<>>& states) {
  std::string text;
  for (const auto& [name, type] : states)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, TypeToString(type));
  return text.empty() ? "none" : text;
}

}  // namespace

Tensor OutputTensor(Literal result) {
  if (result.type.kind != Type::Kind::kDictionary) return std::move(result.tensor);
  Tensor values = *Tensor::Zeros({DataType::kFp64, {static_cast<int64_t>(result.entries.size())}});
  for (size_t i = 0; i < result.entries.size(); ++i) {
    values.SetDouble(static_cast<int64_t>(i), result.entries[i].second.tensor.GetDouble(0));
  }
  return values;
}

Result<std::vector<Feature>> Model::Inputs(std::string_view function) const {
  MW_ASSIGN_OR_RETURN(const Function* found, FindFunction(spec(), function));
  const FunctionDescription* described = spec().description.Find(found->name);
  std::vector<Feature> features;
  for (const Value* input : found->TensorInputs()) {
    features.push_back(MakeFeature(*input, described != nullptr ? &described->inputs : nullptr));
  }
  return features;
}

Result<std::vector<Feature>> Model::Outputs(std::string_view function) const {
  MW_ASSIGN_OR_RETURN(const Function* found, FindFunction(spec(), function));
  const FunctionDescription* described = spec().description.Find(found->name);
  std::vector<Feature> features;
  for (const Value* output : found->body().outputs()) {
    features.push_back(MakeFeature(*output, described != nullptr ? &described->outputs : nullptr));
  }
  return features;
}

Result<std::vector<Feature>> Model::States(std::string_view function) const {
  MW_ASSIGN_OR_RETURN(const Function* found, FindFunction(spec(), function));
  std::vector<Feature> features;
  for (const Value* state : found->States()) features.push_back(MakeFeature(*state, nullptr));
  return features;
}

Result<State> Model::MakeState() const {
  auto state = std::make_shared<State::Impl>();
  state->types = impl_->states;
  state->origin = impl_.get();
  state->origin_name = spec().source;
  for (const auto& [name, type] : impl_->states) {
    auto zeros = Tensor::Zeros(type);
    if (!zeros.ok()) return zeros.status().WithContext(fmt::format("the state '{}'", name));
    state->values.emplace(name, *std::move(zeros));
    state->bounds.emplace(name, 0.0F);
  }
  return State(std::move(state));
}

Result<PreparedCall> Model::Prepare(const TensorMap& inputs, State* state, const PredictOptions& options) const {
  PreparedCall call;
  MW_ASSIGN_OR_RETURN(call.function, FindFunction(spec(), options.function));
  const Function* function = call.function;
  const FunctionDescription* described = spec().description.Find(function->name);
  for (const Value* input : function->TensorInputs()) {
    const FeatureDescription* feature = described != nullptr ? FindFeature(described->inputs, input->name) : nullptr;
    MW_ASSIGN_OR_RETURN(Literal argument, BindInput(*input, feature, inputs));
    call.arguments.push_back(std::move(argument));
  }
  for (const auto& [name, tensor] : inputs) {
    const Value* input = function->FindInput(name);
    if (input == nullptr || input->type.IsState()) {
      std::string known;
      for (const Value* candidate : function->TensorInputs()) known += (known.empty() ? "" : ", ") + candidate->name;
      return Usage(fmt::format("the function '{}' has no input '{}'; its inputs are: {}", function->name, name, known));
    }
  }
  const std::vector<Value*> wanted = function->States();
  if (!wanted.empty() && state == nullptr) {
    // Core ML's own words (coremltools issue 2519).
    return Usage(fmt::format("The input feature for {} must be an MLState, but it was not.", wanted.front()->name));
  }
  call.state = state != nullptr ? state->impl_ : State().impl_;
  const State::Impl& held = *call.state;
  if (!wanted.empty() && held.origin != impl_.get()) {
    if (options.state_binding == StateBinding::kPackage) {
      return Usage(
          fmt::format("the state was made by '{}', but this is '{}'; a state is bound to the package that made it",
                      held.origin_name, spec().source));
    }
    if (held.types != impl_->states) {
      return Usage(fmt::format("the state made by '{}' holds {}, but '{}' wants {}", held.origin_name,
                               ListStates(held.types), spec().source, ListStates(impl_->states)));
    }
  }
  return call;
}

Result<TensorMap> Model::Predict(const TensorMap& inputs, State* state, const PredictOptions& options) const {
  MW_ASSIGN_OR_RETURN(PreparedCall call, Prepare(inputs, state, options));
  const Function* function = call.function;
  State::Impl& held = *call.state;
  const StateClaim claim(held.busy);
  MW_RETURN_IF_ERROR(claim.status());
  StateValues values = held.values;  // taken back only on success
  ValueObserver observer;
  if (options.on_value) {
    observer = [&options](const Operation& op, const std::vector<Literal>& results) {
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].type.IsTensor()) options.on_value(OperationPath(op), op.output(i)->name, results[i].tensor);
      }
    };
  }
  auto results = RunFunction(*function, call.arguments, values, impl_->constants, observer);
  if (!results.ok()) return results.status().WithContext(spec().source);
  TensorMap outputs;
  for (size_t i = 0; i < results->size(); ++i) {
    outputs.insert_or_assign(function->body().outputs()[i]->name, OutputTensor(std::move((*results)[i])));
  }
  for (const auto& [name, value] : values) {
    // What the interpreter wrote is not looked at: its magnitude is found when somebody needs it.
    if (held.values.at(name).bytes().data() != value.bytes().data()) held.bounds.erase(name);
  }
  held.values = std::move(values);
  return outputs;
}

}  // namespace milwright
