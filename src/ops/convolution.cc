// Convolutions: cross-correlation of x with weight (conv, conv_quantized), and its adjoint (conv_transpose).
#include <fmt/format.h>

#include <algorithm>

#include "ops/float_math.h"
#include "ops/op.h"
#include "ops/spatial.h"

namespace milwright {
namespace {

// What conv and conv_transpose check alike: ranks, groups and the shape of the bias.
Status CheckConvolutionChannels(const OpContext& ctx, int64_t in_channels, int64_t expected_in, int64_t out_channels) {
  const Shape& x = ctx.ShapeOf("x");
  const int64_t groups = ctx.Int("groups", 1);
  const std::string shapes =
      fmt::format("x {} and weight {} with {} groups", ShapeToString(x), ShapeToString(ctx.ShapeOf("weight")), groups);
  if (in_channels != kUnknownDim && in_channels % groups != 0) {
    return ctx.Error(fmt::format("{}: the {} channels of x are not a multiple of the groups", shapes, in_channels));
  }
  if (out_channels != kUnknownDim && out_channels % groups != 0) {
    return ctx.Error(fmt::format("{}: the {} output channels are not a multiple of the groups", shapes, out_channels));
  }
  if (KnownToDiffer(in_channels, expected_in)) {
    return ctx.Error(fmt::format("{}: x has {} channels, but weight is for {}", shapes, in_channels, expected_in));
  }
  if (ctx.Has("bias")) {
    const Shape& bias = ctx.ShapeOf("bias");
    if (bias.size() != 1 || KnownToDiffer(bias[0], out_channels)) {
      return ctx.Error(
          fmt::format("bias of shape {} does not fit {} output channels", ShapeToString(bias), out_channels));
    }
  }
  return Status::Ok();
}

// weight [channels, channels, window...]; groups at least 1.
Status CheckWeight(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& weight = ctx.ShapeOf("weight");
  if (weight.size() != x.size() || x.size() < 3) {
    return ctx.Error(
        fmt::format("x {} and weight {} must have equal rank, 3 to 5", ShapeToString(x), ShapeToString(weight)));
  }
  constexpr int64_t kMaxChannels = int64_t{1} << 31;
  for (const int64_t channels : {weight[0], weight[1]}) {
    if (channels != kUnknownDim && (channels < 1 || channels > kMaxChannels)) {
      return ctx.Error(fmt::format("weight {} has {} channels", ShapeToString(weight), channels));
    }
  }
  const int64_t groups = ctx.Int("groups", 1);
  if (groups < 1) return ctx.Error(fmt::format("groups is {}; it must be at least 1", groups));
  return Status::Ok();
}

// The sizes of the window: weight's dimensions after its two channel dimensions.
Shape Window(const OpContext& ctx) {
  const Shape& weight = ctx.ShapeOf("weight");
  return {weight.begin() + 2, weight.end()};
}

Type Output(const OpContext& ctx, int64_t channels, const SpatialGeometry& geometry) {
  Shape shape = {ctx.ShapeOf("x")[0], channels};
  shape.insert(shape.end(), geometry.output.begin(), geometry.output.end());
  return Type::Tensor(ctx.DTypeOf("x"), std::move(shape));
}

Result<std::vector<Type>> InferConv(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckWeight(ctx));
  const Shape& weight = ctx.ShapeOf("weight");
  const int64_t expected = weight[1] == kUnknownDim ? kUnknownDim : weight[1] * ctx.Int("groups", 1);
  MW_RETURN_IF_ERROR(CheckConvolutionChannels(ctx, ctx.ShapeOf("x")[1], expected, weight[0]));
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, SlidingWindow(ctx, Window(ctx)));
  return std::vector<Type>{Output(ctx, weight[0], geometry)};
}

Result<std::vector<Type>> InferConvQuantized(const OpContext& ctx) {
  const std::string type = ctx.String("quantization_type");
  if (type != "linear") {
    return ctx.Error(fmt::format("quantization_type '{}' has no documented arithmetic; only linear has", type));
  }
  if (ctx.Int("nbits", 8) != 8) {
    return ctx.Error(fmt::format("nbits is {}, but a uint8 weight holds 8", ctx.Int("nbits", 8)));
  }
  return InferConv(ctx);
}

Result<std::vector<Type>> InferConvTranspose(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckWeight(ctx));
  const Shape& x = ctx.ShapeOf("x");
  const Shape& weight = ctx.ShapeOf("weight");
  const int64_t channels = weight[1] == kUnknownDim ? kUnknownDim : weight[1] * ctx.Int("groups", 1);
  MW_RETURN_IF_ERROR(CheckConvolutionChannels(ctx, x[1], weight[0], channels));
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, TransposedWindow(ctx, Window(ctx)));
  const std::vector<int64_t> wanted = ctx.Ints("output_shape");
  if (wanted.size() == x.size() && wanted[0] != 0 &&
      (KnownToDiffer(wanted[0], x[0]) || KnownToDiffer(wanted[1], channels))) {
    return ctx.Error(fmt::format("output_shape {} must keep the batch {} and have {} channels", ShapeToString(wanted),
                                 x[0], channels));
  }
  return std::vector<Type>{Output(ctx, channels, geometry)};
}

// The operands of one evaluation as floats, and the sizes that both kernels loop over.
struct Operands {
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;  // empty: none
  size_t batches = 0;
  size_t groups = 0;
  size_t in_channels = 0;   // per group
  size_t out_channels = 0;  // per group
  size_t in_plane = 0;      // spatial elements of x
  size_t out_plane = 0;     // and of the result
  size_t taps = 0;          // of the window
};

Operands Load(const OpContext& ctx, const SpatialGeometry& geometry, int64_t out_channels) {
  const auto product = [](const Shape& sizes) {
    size_t count = 1;
    for (const int64_t size : sizes) count *= static_cast<size_t>(size);
    return count;
  };
  Operands operands;
  const Shape& x = ctx.ShapeOf("x");
  operands.x = ctx.TensorOf("x")->ToFloats();
  operands.weight = ctx.TensorOf("weight")->ToFloats();
  if (ctx.Has("bias")) operands.bias = ctx.TensorOf("bias")->ToFloats();
  operands.batches = static_cast<size_t>(x[0]);
  operands.groups = static_cast<size_t>(ctx.Int("groups", 1));
  operands.in_channels = static_cast<size_t>(x[1]) / operands.groups;
  operands.out_channels = static_cast<size_t>(out_channels) / operands.groups;
  operands.in_plane = product(geometry.input);
  operands.out_plane = product(geometry.output);
  operands.taps = product(geometry.kernel);
  return operands;
}

// Positions that share one pass over the weights, so that a weight row is read from memory once per tile.
constexpr size_t kTile = 16;

// Gathers the patch of every position of a tile, then takes the dot product of each patch with each weight row: both
// are contiguous. A 1x1 convolution is the case of one tap.
void Convolve(const Operands& o, const SpatialGeometry& geometry, std::vector<float>& result) {
  const size_t patch_size = o.in_channels * o.taps;
  std::vector<float> patches(kTile * patch_size);
  std::vector<int64_t> sources(kTile * o.taps);
  WindowTaps window(geometry);
  for (size_t start = 0; start < o.out_plane; start += kTile) {
    const size_t positions = std::min(kTile, o.out_plane - start);
    for (size_t p = 0; p < positions; ++p) {
      std::ranges::copy(window.All(static_cast<int64_t>(start + p)),
                        sources.begin() + static_cast<ptrdiff_t>(p * o.taps));
    }
    for (size_t image = 0; image < o.batches * o.groups; ++image) {  // one group of one batch element
      const size_t group = image % o.groups;
      const float* x = o.x.data() + image * o.in_channels * o.in_plane;
      for (size_t channel = 0; channel < o.in_channels; ++channel, x += o.in_plane) {
        for (size_t p = 0; p < positions; ++p) {
          float* patch = patches.data() + p * patch_size + channel * o.taps;
          for (size_t t = 0; t < o.taps; ++t) {
            const int64_t source = sources[p * o.taps + t];
            patch[t] = source == WindowTaps::kOutside ? 0.0F : x[source];
          }
        }
      }
      for (size_t channel = 0; channel < o.out_channels; ++channel) {
        const size_t row = group * o.out_channels + channel;
        const float bias = o.bias.empty() ? 0.0F : o.bias[row];
        float* out = result.data() + (image * o.out_channels + channel) * o.out_plane + start;
        for (size_t p = 0; p < positions; ++p) {
          out[p] = Dot(patches.data() + p * patch_size, o.weight.data() + row * patch_size, patch_size) + bias;
        }
      }
    }
  }
}

// Per input position, sums x times weight over the input channels into [output channel, tap], then adds each entry to
// the place in the result that its tap reaches.
void ConvolveTransposed(const Operands& o, const SpatialGeometry& geometry, std::vector<float>& result) {
  for (size_t plane = 0; plane < o.batches * o.groups * o.out_channels; ++plane) {
    const float bias = o.bias.empty() ? 0.0F : o.bias[plane % (o.groups * o.out_channels)];
    std::fill_n(result.begin() + static_cast<ptrdiff_t>(plane * o.out_plane), o.out_plane, bias);
  }
  const SpatialGeometry forward = Adjoint(geometry);
  const size_t row_size = o.out_channels * o.taps;
  std::vector<float> columns(kTile * row_size);
  WindowTaps window(forward);
  for (size_t start = 0; start < o.in_plane; start += kTile) {
    const size_t positions = std::min(kTile, o.in_plane - start);
    for (size_t image = 0; image < o.batches * o.groups; ++image) {  // one group of one batch element
      const size_t group = image % o.groups;
      std::ranges::fill(columns, 0.0F);
      for (size_t channel = 0; channel < o.in_channels; ++channel) {
        const float* x = o.x.data() + (image * o.in_channels + channel) * o.in_plane + start;
        const float* row = o.weight.data() + (group * o.in_channels + channel) * row_size;
        for (size_t p = 0; p < positions; ++p) {
          float* column = columns.data() + p * row_size;
          for (size_t j = 0; j < row_size; ++j) column[j] += x[p] * row[j];
        }
      }
      for (size_t p = 0; p < positions; ++p) {
        const auto targets = window.All(static_cast<int64_t>(start + p));
        for (size_t channel = 0; channel < o.out_channels; ++channel) {
          float* out = result.data() + (image * o.out_channels + channel) * o.out_plane;
          for (size_t t = 0; t < o.taps; ++t) {
            if (targets[t] != WindowTaps::kOutside) out[targets[t]] += columns[p * row_size + channel * o.taps + t];
          }
        }
      }
    }
  }
}

Result<std::vector<Literal>> EvaluateConv(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, SlidingWindow(ctx, Window(ctx)));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  Convolve(Load(ctx, geometry, type.shape[1]), geometry, result);
  return One(Tensor::FromFloats(type, result));
}

// conv_quantized: weight = quant_scale * q + quant_bias (op-semantics.md, section 3, calls the op experimental).
Result<std::vector<Literal>> EvaluateConvQuantized(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, SlidingWindow(ctx, Window(ctx)));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  Operands operands = Load(ctx, geometry, type.shape[1]);
  const auto scale = static_cast<float>(ctx.Double("quant_scale"));
  const auto bias = static_cast<float>(ctx.Double("quant_bias"));
  for (float& weight : operands.weight) weight = scale * weight + bias;
  Convolve(operands, geometry, result);
  return One(Tensor::FromFloats(type, result));
}

Result<std::vector<Literal>> EvaluateConvTranspose(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const SpatialGeometry geometry, TransposedWindow(ctx, Window(ctx)));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  ConvolveTransposed(Load(ctx, geometry, type.shape[1]), geometry, result);
  return One(Tensor::FromFloats(type, result));
}

}  // namespace

std::vector<OpDefinition> ConvolutionOps() {
  return {
      Op(Opset::kIOS15,
         "conv(T x, T weight, const T bias?, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, "
         "const int32 dilations?, const int32 groups=1) where T=fp16|fp32",
         InferConv, EvaluateConv),
      Op(Opset::kIOS17,
         "conv(T x, U weight, U bias?, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, const "
         "int32 dilations?, const int32 groups=1) where T=fp16|fp32, U=fp16|fp32",
         InferConv, EvaluateConv),
      Op(Opset::kIOS15,
         "conv_quantized(T x, U weight, const U bias?, const string quantization_type, const int32 nbits=8, const T "
         "quant_scale, const T quant_bias, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, "
         "const int32 dilations?, const int32 groups=1) where T=fp32|fp16, U=uint8",
         InferConvQuantized, EvaluateConvQuantized),
      Op(Opset::kIOS15,
         "conv_transpose(T x, const T weight, const T bias?, const int32 pad?, const int32 output_shape?, const string "
         "pad_type=\"valid\", const int32 strides?, const int32 dilations?, const int32 groups=1) where T=fp16|fp32",
         InferConvTranspose, EvaluateConvTranspose),
      Op(Opset::kIOS17,
         "conv_transpose(T x, U weight, U bias?, const int32 pad?, const int32 output_shape?, const string "
         "pad_type=\"valid\", const int32 strides?, const int32 dilations?, const int32 groups=1) where T=fp16|fp32, "
         "U=fp16|fp32",
         InferConvTranspose, EvaluateConvTranspose),
  };
}

}  // namespace milwright
