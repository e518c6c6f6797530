// quantize and dequantize of activations: clip(round(x / scale) + zero_point) and its inverse.
#include <fmt/format.h>

#include <cmath>

#include "ops/decompress.h"
#include "ops/float_access.h"
#include "ops/op.h"

namespace milwright {
namespace {

std::optional<int64_t> Axis(const OpContext& ctx) {
  return ctx.Has("axis") ? std::optional(ctx.Int("axis")) : std::nullopt;
}

const Tensor* ZeroPoint(const OpContext& ctx) { return ctx.Has("zero_point") ? ctx.TensorOf("zero_point") : nullptr; }

Status CheckParameters(const OpContext& ctx) {
  const Shape& input = ctx.ShapeOf("input");
  const Status scale = CheckChannels(input, ctx.ShapeOf("scale"), Axis(ctx));
  const Status zero_point =
      ctx.Has("zero_point") ? CheckChannels(input, ctx.ShapeOf("zero_point"), Axis(ctx)) : Status::Ok();
  return (scale.ok() ? zero_point : scale).WithContext(ctx.definition().name);
}

Result<std::vector<Type>> InferQuantize(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckParameters(ctx));
  MW_ASSIGN_OR_RETURN(const DataType dtype, DataTypeParameter(ctx, "output_dtype"));
  if (dtype != DataType::kInt8 && dtype != DataType::kUInt8) {
    return ctx.Error(fmt::format("output_dtype is {}, neither int8 nor uint8", DataTypeName(dtype)));
  }
  if (ctx.Has("zero_point") && ctx.DTypeOf("zero_point") != dtype) {
    return ctx.Error(fmt::format("zero_point is {}, but output_dtype {}", DataTypeName(ctx.DTypeOf("zero_point")),
                                 DataTypeName(dtype)));
  }
  return std::vector<Type>{Type::Tensor(dtype, ctx.ShapeOf("input"))};
}

Result<std::vector<Literal>> EvaluateQuantize(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& input = *ctx.TensorOf("input");
  MW_ASSIGN_OR_RETURN(const ChannelParameters parameters,
                      ReadChannels(input.shape(), *ctx.TensorOf("scale"), ZeroPoint(ctx), Axis(ctx)));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(types.front().tensor));
  std::vector<float> run(static_cast<size_t>(parameters.inner));
  for (int64_t first = 0, k = 0; first < input.size(); first += parameters.inner, ++k) {
    const int64_t channel = k % parameters.channels;
    ReadFloats(input, first, run);
    // nearbyint rounds halves to even; storing saturates.
    for (float& value : run) {
      value = std::nearbyint(value / parameters.ScaleOf(channel)) + parameters.ZeroPointOf(channel);
    }
    WriteFloats(run, result, first);
  }
  return One(std::move(result));
}

Result<std::vector<Type>> InferDequantize(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckParameters(ctx));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("scale"), ctx.ShapeOf("input"))};
}

Result<std::vector<Literal>> EvaluateDequantize(const OpContext& ctx, const std::vector<Type>&) {
  return One(DequantizeAffine(*ctx.TensorOf("input"), *ctx.TensorOf("scale"), ZeroPoint(ctx), Axis(ctx)));
}

}  // namespace

std::vector<OpDefinition> QuantizeOps() {
  return {
      Op(Opset::kIOS17,
         "quantize(SrcT input, const DstT zero_point?, const SrcT scale, const int32 axis?, const string output_dtype) "
         "where SrcT=fp16|fp32, DstT=uint8|int8",
         InferQuantize, EvaluateQuantize),
      Op(Opset::kIOS17,
         "dequantize(SrcT input, const SrcT zero_point?, const DstT scale, const int32 axis?) where SrcT=uint8|int8, "
         "DstT=fp16|fp32",
         InferDequantize, EvaluateDequantize),
  };
}

}  // namespace milwright
