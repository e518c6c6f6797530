// Normalisations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/float_math.h"
#include "ops/op.h"

namespace milwright {
namespace {

Status CheckRank(const OpContext& ctx, int64_t low, int64_t high) {
  const Shape& x = ctx.ShapeOf("x");
  const auto rank = static_cast<int64_t>(x.size());
  if (rank >= low && rank <= high) return Status::Ok();
  return ctx.Error(fmt::format("x has shape {}; it takes rank {} to {}", ShapeToString(x), low, high));
}

// A parameter of the given shape, when present and known.
Status CheckShape(const OpContext& ctx, std::string_view parameter, const Shape& expected) {
  if (!ctx.Has(parameter)) return Status::Ok();
  const Shape& shape = ctx.ShapeOf(parameter);
  const bool fits = std::ranges::equal(
      shape, expected, [](int64_t a, int64_t b) { return a == b || a == kUnknownDim || b == kUnknownDim; });
  if (fits) return Status::Ok();
  return ctx.Error(fmt::format("{} has shape {}, but x of shape {} needs {}", parameter, ShapeToString(shape),
                               ShapeToString(ctx.ShapeOf("x")), ShapeToString(expected)));
}

Result<std::vector<Type>> InferBatchNorm(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank(ctx, 3, 5));
  for (const std::string_view parameter : {"mean", "variance", "gamma", "beta"}) {
    MW_RETURN_IF_ERROR(CheckShape(ctx, parameter, {ctx.ShapeOf("x")[1]}));
  }
  return InferSameAsX(ctx);
}

Result<std::vector<Type>> InferInstanceNorm(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank(ctx, 3, 4));
  for (const std::string_view parameter : {"gamma", "beta"}) {
    MW_RETURN_IF_ERROR(CheckShape(ctx, parameter, {ctx.ShapeOf("x")[1]}));
  }
  return InferSameAsX(ctx);
}

// The axes of layer_norm, ascending; all when the parameter is absent (its default is the text "range(x.rank)").
Result<std::vector<int64_t>> NormalizedAxes(const OpContext& ctx) {
  const int64_t rank = ctx.TypeOf("x").rank();
  std::vector<int64_t> axes;
  if (ctx.Has("axes")) {
    for (const int64_t axis : ctx.Ints("axes")) {
      auto normal = NormalizeAxis(axis, rank);
      if (!normal.ok()) return ctx.Error(fmt::format("axes: {}", normal.status().message()));
      axes.push_back(*normal);
    }
  } else {
    for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) {
    return ctx.Error(fmt::format("axes name axis {} of x {} twice", *std::ranges::adjacent_find(axes),
                                 ShapeToString(ctx.ShapeOf("x"))));
  }
  return axes;
}

Result<std::vector<Type>> InferLayerNorm(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, NormalizedAxes(ctx));
  Shape normalized;
  for (const int64_t axis : axes) normalized.push_back(ctx.ShapeOf("x")[static_cast<size_t>(axis)]);
  for (const std::string_view parameter : {"gamma", "beta"}) {
    MW_RETURN_IF_ERROR(CheckShape(ctx, parameter, normalized));
  }
  return InferSameAsX(ctx);
}

Result<std::vector<Type>> InferL2Norm(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank(ctx, 3, 5));
  return InferSameAsX(ctx);
}

Result<std::vector<Type>> InferLocalResponseNorm(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank(ctx, 3, 5));
  if (ctx.Known("size") && ctx.Int("size") < 1) {
    return ctx.Error(fmt::format("size is {}; it must be at least 1", ctx.Int("size")));
  }
  return InferSameAsX(ctx);
}

float Epsilon(const OpContext& ctx) { return static_cast<float>(ctx.Double("epsilon")); }

// x as [outer, channels, inner] around axis 1.
struct ChannelView {
  size_t outer = 0;
  size_t channels = 0;
  size_t inner = 1;
};

ChannelView Channels(const Shape& x) {
  if (std::ranges::count(x, 0) > 0) return {};
  ChannelView view{static_cast<size_t>(x[0]), static_cast<size_t>(x[1])};
  for (size_t d = 2; d < x.size(); ++d) view.inner *= static_cast<size_t>(x[d]);
  return view;
}

Result<std::vector<Literal>> EvaluateBatchNorm(const OpContext& ctx, const std::vector<Type>& types) {
  const std::vector<float> mean = FloatsOf(ctx, "mean");
  const std::vector<float> variance = FloatsOf(ctx, "variance");
  const std::vector<float> gamma = FloatsOf(ctx, "gamma");
  const std::vector<float> beta = FloatsOf(ctx, "beta");
  const float epsilon = Epsilon(ctx);
  const ChannelView view = Channels(ctx.ShapeOf("x"));
  std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  for (size_t row = 0; row < view.outer * view.channels; ++row) {
    const size_t c = row % view.channels;
    const float scale = (gamma.empty() ? 1.0F : gamma[c]) / std::sqrt(variance[c] + epsilon);
    const float shift = beta.empty() ? 0.0F : beta[c];
    for (size_t i = row * view.inner; i < (row + 1) * view.inner; ++i)
      values[i] = (values[i] - mean[c]) * scale + shift;
  }
  return One(Tensor::FromFloats(types.front().tensor, values));
}

// Flat offsets, row-major, of all index combinations of some axes of a shape, the other indices being 0; none
// when the shape has no elements.
std::vector<size_t> Offsets(const Shape& shape, const std::vector<int64_t>& axes) {
  if (std::ranges::count(shape, 0) > 0) return {};
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<size_t> offsets = {0};
  for (const int64_t axis : axes) {
    std::vector<size_t> widened;
    for (const size_t offset : offsets) {
      for (int64_t i = 0; i < shape[static_cast<size_t>(axis)]; ++i) {
        widened.push_back(offset + static_cast<size_t>(i * strides[static_cast<size_t>(axis)]));
      }
    }
    offsets = std::move(widened);
  }
  return offsets;
}

// Subtracts the mean and divides by sqrt(population variance + epsilon), over values[base + offset].
void Standardize(std::vector<float>& values, size_t base, const std::vector<size_t>& offsets, float epsilon) {
  const auto count = static_cast<float>(offsets.size());
  float sum = 0;
  for (const size_t offset : offsets) sum += values[base + offset];
  const float mean = sum / count;
  float squares = 0;
  for (const size_t offset : offsets) {
    const float difference = values[base + offset] - mean;
    squares += difference * difference;
  }
  const float scale = 1.0F / std::sqrt(squares / count + epsilon);
  for (const size_t offset : offsets) values[base + offset] = (values[base + offset] - mean) * scale;
}

Result<std::vector<Literal>> EvaluateLayerNorm(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, NormalizedAxes(ctx));
  const Shape& shape = ctx.ShapeOf("x");
  std::vector<int64_t> kept;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
    if (!std::ranges::binary_search(axes, axis)) kept.push_back(axis);
  }
  const std::vector<size_t> offsets = Offsets(shape, axes);
  const std::vector<float> gamma = FloatsOf(ctx, "gamma");
  const std::vector<float> beta = FloatsOf(ctx, "beta");
  std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  for (const size_t base : Offsets(shape, kept)) {
    Standardize(values, base, offsets, Epsilon(ctx));
    for (size_t i = 0; i < offsets.size(); ++i) {
      float& value = values[base + offsets[i]];
      if (!gamma.empty()) value *= gamma[i];
      if (!beta.empty()) value += beta[i];
    }
  }
  return One(Tensor::FromFloats(types.front().tensor, values));
}

Result<std::vector<Literal>> EvaluateInstanceNorm(const OpContext& ctx, const std::vector<Type>& types) {
  const std::vector<float> gamma = FloatsOf(ctx, "gamma");
  const std::vector<float> beta = FloatsOf(ctx, "beta");
  const ChannelView view = Channels(ctx.ShapeOf("x"));
  std::vector<int64_t> spatial;
  for (int64_t axis = 2; axis < ctx.TypeOf("x").rank(); ++axis) spatial.push_back(axis);
  const std::vector<size_t> offsets = Offsets(ctx.ShapeOf("x"), spatial);
  std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  for (size_t row = 0; row < view.outer * view.channels; ++row) {
    const size_t c = row % view.channels;
    Standardize(values, row * view.inner, offsets, Epsilon(ctx));
    for (size_t i = row * view.inner; i < (row + 1) * view.inner; ++i) {
      if (!gamma.empty()) values[i] *= gamma[c];
      if (!beta.empty()) values[i] += beta[c];
    }
  }
  return One(Tensor::FromFloats(types.front().tensor, values));
}

// Over the last three dimensions: x / sqrt(sum of squares + epsilon).
Result<std::vector<Literal>> EvaluateL2Norm(const OpContext& ctx, const std::vector<Type>& types) {
  const Shape& shape = ctx.ShapeOf("x");
  std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  const Shape normalized(shape.end() - 3, shape.end());
  MW_ASSIGN_OR_RETURN(const int64_t elements, ElementCount(normalized));
  const auto count = static_cast<size_t>(elements);
  for (size_t base = 0; base < values.size(); base += count) {
    const float* block = values.data() + base;
    const float norm = std::sqrt(Dot(block, block, count) + Epsilon(ctx));
    for (size_t i = base; i < base + count; ++i) values[i] /= norm;
  }
  return One(Tensor::FromFloats(types.front().tensor, values));
}

// x / (k + alpha/size * sum of squares)^beta over the channels [c - size/2, c + (size-1)/2] of axis 1, as PyTorch.
Result<std::vector<Literal>> EvaluateLocalResponseNorm(const OpContext& ctx, const std::vector<Type>& types) {
  const ChannelView view = Channels(ctx.ShapeOf("x"));
  const auto size = static_cast<size_t>(ctx.Int("size", 1));
  const float alpha = static_cast<float>(ctx.Double("alpha")) / static_cast<float>(size);
  const auto beta = static_cast<float>(ctx.Double("beta"));
  const auto k = static_cast<float>(ctx.Double("k"));
  const std::vector<float> x = ctx.TensorOf("x")->ToFloats();
  std::vector<float> values(x.size());
  for (size_t row = 0; row < view.outer * view.channels; ++row) {
    const size_t c = row % view.channels;
    const size_t first = row - std::min(c, size / 2);
    const size_t last = row + std::min(view.channels - 1 - c, (size - 1) / 2);
    for (size_t i = 0; i < view.inner; ++i) {
      float squares = 0;
      for (size_t r = first; r <= last; ++r) squares += x[r * view.inner + i] * x[r * view.inner + i];
      values[row * view.inner + i] = x[row * view.inner + i] / std::pow(k + alpha * squares, beta);
    }
  }
  return One(Tensor::FromFloats(types.front().tensor, values));
}

}  // namespace

std::vector<OpDefinition> NormalizationOps() {
  return {
      Op(Opset::kIOS15,
         "batch_norm(T x, const T mean, const T variance, const T gamma?, const T beta?, const T epsilon=1e-05) where "
         "T=fp16|fp32",
         InferBatchNorm, EvaluateBatchNorm),
      Op(Opset::kIOS17,
         "batch_norm(T x, const U mean, const U variance, const U gamma?, const U beta?, const U epsilon=1e-05) where "
         "T=fp16|fp32, U=fp16|fp32",
         InferBatchNorm, EvaluateBatchNorm),
      Op(Opset::kIOS15, "instance_norm(T x, const T gamma?, const T beta?, const T epsilon=1e-05) where T=fp16|fp32",
         InferInstanceNorm, EvaluateInstanceNorm),
      Op(Opset::kIOS17,
         "instance_norm(T x, const U gamma?, const U beta?, const U epsilon=1e-05) where T=fp16|fp32, U=fp16|fp32",
         InferInstanceNorm, EvaluateInstanceNorm),
      Op(Opset::kIOS15,
         "layer_norm(T x, const int32 axes=\"range(x.rank)\", const T gamma?, const T beta?, const T epsilon=1e-05) "
         "where T=fp16|fp32",
         InferLayerNorm, EvaluateLayerNorm),
      Op(Opset::kIOS17,
         "layer_norm(T x, const int32 axes=\"range(x.rank)\", const U gamma?, const U beta?, const U epsilon=1e-05) "
         "where T=fp16|fp32, U=fp16|fp32",
         InferLayerNorm, EvaluateLayerNorm),
      Op(Opset::kIOS15, "l2_norm(T x, const T epsilon=1e-06) where T=fp16|fp32", InferL2Norm, EvaluateL2Norm),
      Op(Opset::kIOS17, "l2_norm(T x, const U epsilon=1e-06) where T=fp16|fp32, U=fp16|fp32", InferL2Norm,
         EvaluateL2Norm),
      Op(Opset::kIOS15,
         "local_response_norm(T x, const int32 size, const T alpha=0.0001, const T beta=0.75, const T k=1.0) where "
         "T=fp16|fp32",
         InferLocalResponseNorm, EvaluateLocalResponseNorm),
      Op(Opset::kIOS17,
         "local_response_norm(T x, const int32 size, const U alpha=0.0001, const U beta=0.75, const U k=1.0) where "
         "T=fp16|fp32, U=fp16|fp32",
         InferLocalResponseNorm, EvaluateLocalResponseNorm),
  };
}

}  // namespace milwright
