// OpContext and the helpers that the family files share.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/op.h"

namespace milwright {

void OpContext::Bind(std::string_view parameter, std::vector<Argument> arguments) {
  bound_.push_back({parameter, std::move(arguments)});
}

const OpContext::Bound* OpContext::Find(std::string_view parameter) const {
  const auto it = std::ranges::find(bound_, parameter, &Bound::parameter);
  return it != bound_.end() ? &*it : nullptr;
}

std::span<const OpContext::Argument> OpContext::Arguments(std::string_view parameter) const {
  const Bound* bound = Find(parameter);
  return bound != nullptr ? std::span<const Argument>(bound->arguments) : std::span<const Argument>();
}

const Type& OpContext::TypeOf(std::string_view parameter) const {
  static const Type kAbsent;
  const Bound* bound = Find(parameter);
  return bound != nullptr && !bound->arguments.empty() ? *bound->arguments.front().type : kAbsent;
}

const Literal* OpContext::ValueOf(std::string_view parameter) const {
  if (const Bound* bound = Find(parameter); bound != nullptr) {
    return bound->arguments.empty() ? nullptr : bound->arguments.front().value;
  }
  const ParameterSpec* spec = definition_->Find(parameter);
  return spec != nullptr && spec->default_value.has_value() ? &*spec->default_value : nullptr;
}

const Tensor* OpContext::TensorOf(std::string_view parameter) const {
  const Literal* value = ValueOf(parameter);
  return value != nullptr && value->type.IsTensor() ? &value->tensor : nullptr;
}

int64_t OpContext::Int(std::string_view parameter, int64_t fallback) const {
  const Tensor* tensor = TensorOf(parameter);
  return tensor != nullptr && tensor->size() > 0 ? tensor->GetInt(0) : fallback;
}

double OpContext::Double(std::string_view parameter, double fallback) const {
  const Tensor* tensor = TensorOf(parameter);
  return tensor != nullptr && tensor->size() > 0 ? tensor->GetDouble(0) : fallback;
}

bool OpContext::Bool(std::string_view parameter, bool fallback) const { return Int(parameter, fallback ? 1 : 0) != 0; }

std::string OpContext::String(std::string_view parameter, std::string_view fallback) const {
  const Tensor* tensor = TensorOf(parameter);
  if (tensor == nullptr || tensor->strings().empty()) return std::string(fallback);
  return tensor->strings().front();
}

std::vector<int64_t> OpContext::Ints(std::string_view parameter, std::vector<int64_t> fallback) const {
  const Tensor* tensor = TensorOf(parameter);
  return tensor != nullptr ? tensor->ToInts() : std::move(fallback);
}

Status OpContext::Error(std::string message) const {
  return {ErrorCode::kInvalidProgram, fmt::format("{}: {}", definition_->name, message)};
}

Result<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    int64_t& size = result[result.size() - 1 - i];
    if (x == y || y == 1) {
      size = x;
    } else if (x == 1) {
      size = y;
    } else if (x == kUnknownDim || y == kUnknownDim) {
      size = std::max(x, y);
    } else {
      return Status(ErrorCode::kInvalidProgram,
                    fmt::format("the shapes {} and {} do not broadcast", ShapeToString(a), ShapeToString(b)));
    }
  }
  return result;
}

Result<int64_t> NormalizeAxis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) {
    return Status(ErrorCode::kInvalidProgram, fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  }
  return axis < 0 ? axis + rank : axis;
}

Result<DataType> DataTypeParameter(const OpContext& ctx, std::string_view parameter) {
  const std::string name = ctx.String(parameter);
  const auto type = DataTypeFromName(name);
  if (!type.has_value()) return ctx.Error(fmt::format("'{}' in parameter '{}' is no data type", name, parameter));
  return *type;
}

std::vector<float> FloatsOf(const OpContext& ctx, std::string_view parameter) {
  return ctx.Has(parameter) ? ctx.TensorOf(parameter)->ToFloats() : std::vector<float>();
}

Result<std::vector<Type>> InferSameAsX(const OpContext& ctx) { return std::vector<Type>{ctx.TypeOf("x")}; }

std::vector<int64_t> Strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Result<std::vector<Literal>> One(Result<Tensor> tensor) {
  if (!tensor.ok()) return tensor.status();
  std::vector<Literal> results;
  results.emplace_back(*std::move(tensor));
  return results;
}

}  // namespace milwright
