#include "mil/model.h"

#include <algorithm>

namespace milwright {

const FunctionDescription* ModelDescription::Find(std::string_view function) const {
  const auto it = std::ranges::find(functions, function, &FunctionDescription::name);
  return it != functions.end() ? &*it : nullptr;
}

FunctionDescription* ModelDescription::Find(std::string_view function) {
  return const_cast<FunctionDescription*>(std::as_const(*this).Find(function));
}

ModelSpec ModelSpec::Clone() const {
  ModelSpec copy;
  copy.specification_version = specification_version;
  copy.is_updatable = is_updatable;
  copy.description = description;
  copy.program = program.Clone();
  copy.unknown_fields = unknown_fields;
  copy.source = source;
  return copy;
}

Function* ModelSpec::DefaultFunction() const {
  if (!description.default_function.empty()) return program.FindFunction(description.default_function);
  if (Function* main = program.FindFunction("main"); main != nullptr) return main;
  return program.functions().size() == 1 ? program.functions().front().get() : nullptr;
}

namespace {

FeatureDescription DescribeValue(const Value& value) {
  FeatureDescription feature;
  feature.name = value.name;
  feature.type.kind = value.type.IsState() ? FeatureType::Kind::kState : FeatureType::Kind::kMultiArray;
  feature.type.array.dtype = value.type.dtype();
  if (IsStatic(value.type.shape())) feature.type.array.shape = value.type.shape();
  return feature;
}

}  // namespace

FunctionDescription DescribeFunction(const Function& function) {
  FunctionDescription description;
  description.name = function.name;
  for (const auto& input : function.inputs()) {
    (input->type.IsState() ? description.states : description.inputs).push_back(DescribeValue(*input));
  }
  for (const Value* output : function.body().outputs()) description.outputs.push_back(DescribeValue(*output));
  return description;
}

}  // namespace milwright
