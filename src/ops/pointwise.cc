#include "ops/pointwise.h"

#include <fmt/format.h>

#include "milwright/half.h"

namespace milwright {

Scalars ScalarParameters(const OpContext& ctx) {
  Scalars scalars{};
  const std::vector<ParameterSpec>& parameters = ctx.definition().parameters;
  for (size_t i = 1; i < parameters.size() && i <= scalars.size(); ++i) {
    const std::string& name = parameters[i].name;
    double& value = scalars[i - 1];
    value = ctx.Double(name);
    if (!ctx.Has(name) && ctx.DTypeOf("x") == DataType::kFp16) value = RoundToHalf(static_cast<float>(value));
  }
  return scalars;
}

Result<std::vector<Type>> InferPointwise(const OpContext& ctx) {
  for (const ParameterSpec& parameter : ctx.definition().parameters) {
    if (parameter.name == "x" || !ctx.Has(parameter.name)) continue;
    const Shape& shape = ctx.ShapeOf(parameter.name);
    const Result<int64_t> count = ElementCount(shape);
    if (!count.ok() || *count != 1) {
      return ctx.Error(
          fmt::format("parameter '{}' must be one number, but has shape {}", parameter.name, ShapeToString(shape)));
    }
  }
  return InferSameAsX(ctx);
}

}  // namespace milwright
