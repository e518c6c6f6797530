#include "ops/axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"

namespace milwright {

Result<int64_t> AxisParameter(const OpContext& ctx, std::string_view parameter, const Shape& shape) {
  const int64_t axis = ctx.Int(parameter);
  auto normalized = NormalizeAxis(axis, static_cast<int64_t>(shape.size()));
  if (normalized.ok()) return normalized;
  return ctx.Error(fmt::format("{} {} is outside the shape {}", parameter, axis, ShapeToString(shape)));
}

Result<std::vector<int64_t>> AxesParameter(const OpContext& ctx, std::string_view parameter, int64_t rank) {
  std::vector<int64_t> axes = ctx.Ints(parameter);
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t& axis : axes) {
    const auto normalized = NormalizeAxis(axis, rank);
    if (!normalized.ok()) {
      return ctx.Error(fmt::format("the axis {} in '{}' is outside a tensor of rank {}", axis, parameter, rank));
    }
    if (seen[static_cast<size_t>(*normalized)]) {
      return ctx.Error(fmt::format("the axis {} stands twice in '{}'", axis, parameter));
    }
    axis = *normalized;
    seen[static_cast<size_t>(axis)] = true;
  }
  return axes;
}

Result<int64_t> MultiplySizes(const OpContext& ctx, int64_t a, int64_t b) {
  if (a == kUnknownDim || b == kUnknownDim) return kUnknownDim;
  int64_t product = 0;
  if (!CheckedMultiply(a, b, &product)) return ctx.Error(fmt::format("the size {} * {} is beyond 64 bits", a, b));
  return product;
}

Result<int64_t> EqualSizes(const OpContext& ctx, int64_t a, int64_t b, std::string_view what) {
  if (a != b && a != kUnknownDim && b != kUnknownDim) {
    return ctx.Error(fmt::format("{} has the sizes {} and {}, which must be equal", what, a, b));
  }
  return std::max(a, b);
}

Result<Type> TypeOfRank(const OpContext& ctx, DataType dtype, int64_t rank) {
  if (rank < 0 || rank > kMaxRank) {
    return ctx.Error(fmt::format("a result of rank {} is beyond the limit of {}", rank, kMaxRank));
  }
  return Type::Tensor(dtype, Shape(static_cast<size_t>(rank), kUnknownDim));
}

Status RuntimeError(const OpContext& ctx, std::string_view message) {
  return {ErrorCode::kRuntime, fmt::format("{}: {}", ctx.definition().name, message)};
}

}  // namespace milwright
