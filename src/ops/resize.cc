// Resizing to a grid that covers all of x: resize, resize_bilinear, resize_nearest_neighbor and upsample_*.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/float_math.h"
#include "ops/op.h"
#include "ops/sampling.h"

namespace milwright {
namespace {

// x with its last dimensions replaced.
std::vector<Type> WithSpatial(const OpContext& ctx, const std::vector<int64_t>& sizes) {
  Shape shape = ctx.ShapeOf("x");
  std::ranges::copy(sizes, shape.end() - static_cast<ptrdiff_t>(sizes.size()));
  return {Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

Result<std::vector<Type>> InferTarget(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckImage(ctx, 3, false));
  MW_ASSIGN_OR_RETURN(const int64_t height, TargetSize(ctx, "target_size_height"));
  MW_ASSIGN_OR_RETURN(const int64_t width, TargetSize(ctx, "target_size_width"));
  return WithSpatial(ctx, {height, width});
}

Result<std::vector<Type>> InferResizeBilinear(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN([[maybe_unused]] const SamplingMode mode, SamplingModeParameter(ctx));
  return InferTarget(ctx);
}

// floor(size * scale), the product rounded to fp32 as the scale itself is: 10 * 0.7 gives 7.
Result<int64_t> Scaled(const OpContext& ctx, std::string_view parameter, int64_t size) {
  const auto scale = static_cast<float>(ctx.Double(parameter, 1));
  const float scaled = std::floor(scale * static_cast<float>(size == kUnknownDim ? 1 : size));
  if (!(scale > 0) || !(scaled <= static_cast<float>(std::numeric_limits<int32_t>::max())) ||
      (size != kUnknownDim && scaled < 1)) {
    return ctx.Error(
        fmt::format("{} {} gives no valid size for x of shape {}", parameter, scale, ShapeToString(ctx.ShapeOf("x"))));
  }
  return size == kUnknownDim ? kUnknownDim : static_cast<int64_t>(scaled);
}

Result<std::vector<Type>> InferUpsample(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckImage(ctx, 3, false));
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t height, Scaled(ctx, "scale_factor_height", x[x.size() - 2]));
  MW_ASSIGN_OR_RETURN(const int64_t width, Scaled(ctx, "scale_factor_width", x[x.size() - 1]));
  return WithSpatial(ctx, {height, width});
}

// The last resized_dims entries of `shape` are the new sizes of the last dimensions of x; 0 keeps a size.
Result<std::vector<Type>> InferResize(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const int64_t resized = ctx.Int("resized_dims");
  if (resized < 1 || resized > static_cast<int64_t>(x.size())) {
    return ctx.Error(fmt::format("resized_dims is {}, but x has shape {}", resized, ShapeToString(x)));
  }
  MW_RETURN_IF_ERROR(CheckImage(ctx, 1, false));
  const std::string interpolation = ctx.String("interpolation_mode");
  if (interpolation != "LINEAR" && interpolation != "NEAREST_NEIGHBOR") {
    return ctx.Error(fmt::format("interpolation_mode '{}' is not LINEAR or NEAREST_NEIGHBOR", interpolation));
  }
  MW_ASSIGN_OR_RETURN([[maybe_unused]] const SamplingMode mode, SamplingModeParameter(ctx));
  const Shape& target = ctx.ShapeOf("shape");
  const std::vector<int64_t> wanted = ctx.Ints("shape");
  const int64_t length = ctx.Known("shape") ? static_cast<int64_t>(wanted.size()) : target.empty() ? 0 : target[0];
  if (target.size() != 1 || (length != kUnknownDim && length < resized)) {
    return ctx.Error(fmt::format("shape must be a vector of at least resized_dims ({}) sizes, but is {}", resized,
                                 ShapeToString(target)));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(resized), kUnknownDim);
  if (ctx.Known("shape")) {
    std::copy(wanted.end() - resized, wanted.end(), sizes.begin());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = x[x.size() - sizes.size() + i];
      if (sizes[i] < 0 || sizes[i] > std::numeric_limits<int32_t>::max() || (sizes[i] > 0 && size == 0)) {
        return ctx.Error(
            fmt::format("x of shape {} cannot be resized to [{}]", ShapeToString(x), fmt::join(wanted, ", ")));
      }
      if (sizes[i] == 0) sizes[i] = size;
    }
  }
  return WithSpatial(ctx, sizes);
}

// A dimension in the middle of an array: `outer` blocks of `size` rows of `inner` elements.
struct AxisView {
  size_t outer = 1;
  size_t size = 0;
  size_t inner = 1;
};

AxisView ViewAxis(const Shape& shape, size_t axis) {
  AxisView view;
  for (size_t d = 0; d < axis; ++d) view.outer *= static_cast<size_t>(shape[d]);
  view.size = static_cast<size_t>(shape[axis]);
  for (size_t d = axis + 1; d < shape.size(); ++d) view.inner *= static_cast<size_t>(shape[d]);
  return view;
}

// Linear interpolation is separable: one pass per dimension, in fp32, rounded to the declared type at the end.
Result<std::vector<Literal>> ResizeLinear(const OpContext& ctx, const TensorType& type, size_t resized,
                                          SamplingMode mode) {
  Shape shape = ctx.ShapeOf("x");
  std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  for (size_t axis = shape.size() - resized; axis < shape.size(); ++axis) {
    const AxisView in = ViewAxis(shape, axis);
    const int64_t size = shape[axis];
    shape[axis] = type.shape[axis];
    MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(shape));
    float* out = result.data();
    for (size_t block = 0; block < in.outer; ++block) {
      const float* source = values.data() + block * in.size * in.inner;
      for (int64_t i = 0; i < shape[axis]; ++i, out += in.inner) {
        const LinearTap tap = TapAt(GridPoint(mode, i, static_cast<double>(size), shape[axis]), size);
        const float* low = source + static_cast<size_t>(tap.low) * in.inner;
        const float* high = source + static_cast<size_t>(tap.high) * in.inner;
        for (size_t j = 0; j < in.inner; ++j) out[j] = Mix(tap, low[j], high[j]);
      }
    }
    values = std::move(result);
  }
  return One(Tensor::FromFloats(type, values));
}

// Which source index output index i of `count` copies.
using NearestRule = int64_t (*)(int64_t i, int64_t size, int64_t count);
int64_t HalfPixelIndex(int64_t i, int64_t size, int64_t count) { return (2 * i + 1) * size / (2 * count); }
int64_t FloorIndex(int64_t i, int64_t size, int64_t count) { return i * size / count; }

// Copies whole elements, so integers stay exact.
Result<std::vector<Literal>> ResizeNearest(const OpContext& ctx, const TensorType& type, size_t resized,
                                           NearestRule rule) {
  Tensor values = *ctx.TensorOf("x");
  const auto width = static_cast<size_t>(BitWidth(type.dtype)) / 8;
  for (size_t axis = type.shape.size() - resized; axis < type.shape.size(); ++axis) {
    Shape shape = values.shape();
    const AxisView in = ViewAxis(shape, axis);
    const int64_t size = shape[axis];
    shape[axis] = type.shape[axis];
    const size_t row = in.inner * width;
    MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({type.dtype, shape}));
    std::byte* out = result.mutable_bytes().data();
    for (size_t block = 0; block < in.outer && row > 0; ++block) {
      const std::byte* source = values.bytes().data() + block * in.size * row;
      for (int64_t i = 0; i < shape[axis]; ++i, out += row) {
        std::memcpy(out, source + static_cast<size_t>(rule(i, size, shape[axis])) * row, row);
      }
    }
    values = std::move(result);
  }
  return One(std::move(values));
}

Result<std::vector<Literal>> EvaluateResize(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const SamplingMode mode, SamplingModeParameter(ctx));
  const auto resized = static_cast<size_t>(ctx.Int("resized_dims"));
  if (ctx.String("interpolation_mode") == "LINEAR") return ResizeLinear(ctx, types.front().tensor, resized, mode);
  if (mode != SamplingMode::kDefault) {
    return ctx.Error(fmt::format("NEAREST_NEIGHBOR has no documented result with sampling_mode {}; use DEFAULT",
                                 ctx.String("sampling_mode")));
  }
  return ResizeNearest(ctx, types.front().tensor, resized, HalfPixelIndex);
}

Result<std::vector<Literal>> EvaluateResizeBilinear(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const SamplingMode mode, SamplingModeParameter(ctx));
  return ResizeLinear(ctx, types.front().tensor, 2, mode);
}

Result<std::vector<Literal>> EvaluateResizeNearest(const OpContext& ctx, const std::vector<Type>& types) {
  return ResizeNearest(ctx, types.front().tensor, 2, HalfPixelIndex);
}

// The ratio of source to target comes from the sizes, not from the scale (Apple's unit test with 2.6 fits 5/2).
Result<std::vector<Literal>> EvaluateUpsampleBilinear(const OpContext& ctx, const std::vector<Type>& types) {
  const bool align_corners = ctx.Bool("align_corners", true);
  SamplingMode mode = SamplingMode::kStrictAlignCorners;
  if (!align_corners) {
    mode = ctx.Bool("half_pixel_centers", true) ? SamplingMode::kUnalignCorners : SamplingMode::kDefault;
  }
  return ResizeLinear(ctx, types.front().tensor, 2, mode);
}

Result<std::vector<Literal>> EvaluateUpsampleNearest(const OpContext& ctx, const std::vector<Type>& types) {
  return ResizeNearest(ctx, types.front().tensor, 2, FloorIndex);
}

}  // namespace

std::vector<OpDefinition> ResizeOps() {
  return {
      Op(Opset::kIOS17,
         "resize(T x, U shape, const uint32 resized_dims, const string interpolation_mode=\"LINEAR\", const string "
         "sampling_mode=\"DEFAULT\") where T=fp16|fp32|int32, U=int32|int16|uint16|uint32",
         InferResize, EvaluateResize),
      Op(Opset::kIOS15,
         "resize_bilinear(T x, const int32 target_size_height=1, const int32 target_size_width=1, const string "
         "sampling_mode=\"DEFAULT\") where T=fp16|fp32",
         InferResizeBilinear, EvaluateResizeBilinear),
      Op(Opset::kIOS15,
         "resize_nearest_neighbor(T x, const int32 target_size_height, const int32 target_size_width) where "
         "T=fp16|fp32",
         InferTarget, EvaluateResizeNearest),
      Op(Opset::kIOS15,
         "upsample_bilinear(T x, const U scale_factor_height=1, const U scale_factor_width=1, const bool "
         "align_corners=true) where T=fp16|fp32, U=int32|fp32",
         InferUpsample, EvaluateUpsampleBilinear),
      Op(Opset::kIOS16,
         "upsample_bilinear(T x, const U scale_factor_height=1, const U scale_factor_width=1, const bool "
         "align_corners=true, const bool half_pixel_centers?) where T=fp16|fp32, U=int32|fp32",
         InferUpsample, EvaluateUpsampleBilinear),
      Op(Opset::kIOS15,
         "upsample_nearest_neighbor(T x, const U scale_factor_height=1, const U scale_factor_width=1) where "
         "T=fp16|fp32, U=fp32|int32",
         InferUpsample, EvaluateUpsampleNearest),
  };
}

}  // namespace milwright
