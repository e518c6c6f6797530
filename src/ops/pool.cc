// Pooling.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/float_math.h"
#include "ops/op.h"
#include "ops/spatial.h"

namespace milwright {
namespace {

Result<SpatialGeometry> PoolWindow(const OpContext& ctx) {
  const std::vector<int64_t> kernel = ctx.Ints("kernel_sizes");
  if (std::ranges::any_of(kernel, [](int64_t size) { return size < 1; })) {
    return ctx.Error(fmt::format("kernel_sizes [{}] must be positive", fmt::join(kernel, ", ")));
  }
  return SlidingWindow(ctx, kernel);
}

Result<std::vector<Type>> InferPool(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, PoolWindow(ctx));
  const Shape& x = ctx.ShapeOf("x");
  Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), geometry.output.begin(), geometry.output.end());
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

// Every output element is reduce(plane, taps, count): a channel plane of x, the indices of the window in it, and the
// taps of the window on x or its padding.
template <typename Reduce>
Result<std::vector<Literal>> Pool(const OpContext& ctx, const TensorType& type, Reduce reduce) {
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, PoolWindow(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t in_plane, ElementCount(geometry.input));
  MW_ASSIGN_OR_RETURN(const int64_t out_plane, ElementCount(geometry.output));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  const std::vector<float> x = ctx.TensorOf("x")->ToFloats();
  const int64_t planes = type.shape[0] * type.shape[1];
  WindowTaps window(geometry);
  for (int64_t position = 0; position < out_plane && planes > 0; ++position) {
    const double count = window.PaddedCount(position);
    const std::span<const int64_t> taps = window.Inside(position);
    for (int64_t plane = 0; plane < planes; ++plane) {
      result[static_cast<size_t>(plane * out_plane + position)] = reduce(x.data() + plane * in_plane, taps, count);
    }
  }
  return One(Tensor::FromFloats(type, result));
}

// Padding counts as a zero unless it is excluded; what lies behind the padding (ceil_mode) never counts.
Result<std::vector<Literal>> EvaluateAvgPool(const OpContext& ctx, const std::vector<Type>& types) {
  const bool exclude = ctx.Bool("exclude_padding_from_average");
  return Pool(ctx, types.front().tensor, [exclude](const float* x, std::span<const int64_t> taps, double count) {
    float sum = 0;
    for (const int64_t tap : taps) sum += x[tap];
    return sum / static_cast<float>(exclude ? static_cast<double>(taps.size()) : count);
  });
}

// Padding is never the maximum; a NaN in the window is.
Result<std::vector<Literal>> EvaluateMaxPool(const OpContext& ctx, const std::vector<Type>& types) {
  return Pool(ctx, types.front().tensor, [](const float* x, std::span<const int64_t> taps, double) {
    float maximum = -std::numeric_limits<float>::infinity();
    for (const int64_t tap : taps) {
      if (x[tap] > maximum || std::isnan(x[tap])) maximum = x[tap];
    }
    return maximum;
  });
}

Result<std::vector<Literal>> EvaluateL2Pool(const OpContext& ctx, const std::vector<Type>& types) {
  return Pool(ctx, types.front().tensor, [](const float* x, std::span<const int64_t> taps, double) {
    float sum = 0;
    for (const int64_t tap : taps) sum += x[tap] * x[tap];
    return std::sqrt(sum);
  });
}

}  // namespace

std::vector<OpDefinition> PoolOps() {
  return {
      Op(Opset::kIOS15,
         "avg_pool(const bool exclude_padding_from_average=false, T x, const int32 kernel_sizes, const int32 strides?, "
         "const string pad_type, const int32 pad?, const bool ceil_mode=false) where T=fp16|fp32",
         InferPool, EvaluateAvgPool),
      Op(Opset::kIOS15,
         "max_pool(T x, const int32 kernel_sizes, const int32 strides?, const string pad_type, const int32 pad?, const "
         "bool ceil_mode=false) where T=fp16|fp32",
         InferPool, EvaluateMaxPool),
      Op(Opset::kIOS15,
         "l2_pool(T x, const int32 kernel_sizes, const int32 strides?, const string pad_type, const int32 pad?, const "
         "bool ceil_mode=false) where T=fp16|fp32",
         InferPool, EvaluateL2Pool),
  };
}

}  // namespace milwright
