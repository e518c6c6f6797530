// Compressed weights: the constexpr_* ops (package-format.md, section 5). Up to iOS17 their parameters are attributes
// with packed bits and an explicit shape; from iOS18 they are inputs of sub-byte types, which may come from another
// constexpr op.
#include <fmt/format.h>

#include "ops/axes.h"
#include "ops/decompress.h"
#include "ops/op.h"

namespace milwright {
namespace {

// The error of a decoding function, as one of this op.
Status Named(const OpContext& ctx, const Status& status) {
  return status.ok() ? status : status.WithContext(ctx.definition().name);
}

Result<std::vector<Literal>> Decoded(const OpContext& ctx, Result<Tensor> tensor) {
  if (!tensor.ok()) return Named(ctx, tensor.status());
  return One(std::move(tensor));
}

Result<std::vector<Literal>> Pair(Tensor mask, Tensor data) {
  std::vector<Literal> results;
  results.emplace_back(std::move(mask));
  results.emplace_back(std::move(data));
  return results;
}

std::optional<int64_t> OptionalAxis(const OpContext& ctx, std::string_view parameter) {
  return ctx.Has(parameter) ? std::optional(ctx.Int(parameter)) : std::nullopt;
}

// The content of the attribute "shape" of the forms before iOS18.
Result<Shape> ShapeAttribute(const OpContext& ctx) {
  const Tensor* tensor = ctx.TensorOf("shape");
  if (tensor == nullptr || tensor->rank() != 1 || tensor->size() > kMaxRank) {
    return ctx.Error(fmt::format("the shape must be a vector, but is {}", TypeToString(ctx.TypeOf("shape"))));
  }
  Shape shape = tensor->ToInts();
  MW_RETURN_IF_ERROR(Named(ctx, ByteSize({DataType::kFp32, shape}).status()));
  return shape;
}

Result<std::vector<Type>> OneType(DataType dtype, Shape shape) {
  return std::vector<Type>{Type::Tensor(dtype, std::move(shape))};
}

// ---- affine ----

Result<std::vector<Type>> InferAffineDequantize(const OpContext& ctx) {
  const Shape& data = ctx.ShapeOf("quantized_data");
  const auto axis = OptionalAxis(ctx, "axis");
  MW_RETURN_IF_ERROR(Named(ctx, CheckChannels(data, ctx.ShapeOf("scale"), axis)));
  MW_RETURN_IF_ERROR(Named(ctx, CheckChannels(data, ctx.ShapeOf("zero_point"), axis)));
  return OneType(ctx.DTypeOf("scale"), data);
}

Result<std::vector<Literal>> EvaluateAffineDequantize(const OpContext& ctx, const std::vector<Type>&) {
  return Decoded(ctx, DequantizeAffine(*ctx.TensorOf("quantized_data"), *ctx.TensorOf("scale"),
                                       ctx.TensorOf("zero_point"), OptionalAxis(ctx, "axis")));
}

// ---- blockwise ----

Status CheckScaleAndOffset(const OpContext& ctx, const Shape& data) {
  MW_RETURN_IF_ERROR(Named(ctx, CheckBlocks(data, ctx.ShapeOf("scale"))));
  if (ctx.Has("offset") && ctx.ShapeOf("offset") != ctx.ShapeOf("scale")) {
    return ctx.Error(fmt::format("the offset {} has not the shape of the scale {}",
                                 ShapeToString(ctx.ShapeOf("offset")), ShapeToString(ctx.ShapeOf("scale"))));
  }
  return Status::Ok();
}

const Tensor* Offset(const OpContext& ctx) { return ctx.Has("offset") ? ctx.TensorOf("offset") : nullptr; }

Result<std::vector<Type>> InferBlockwise(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckScaleAndOffset(ctx, ctx.ShapeOf("data")));
  return OneType(ctx.DTypeOf("scale"), ctx.ShapeOf("data"));
}

Result<std::vector<Literal>> EvaluateBlockwise(const OpContext& ctx, const std::vector<Type>&) {
  return Decoded(ctx, DequantizeBlockwise(*ctx.TensorOf("data"), *ctx.TensorOf("scale"), Offset(ctx)));
}

// ---- cast ----

Result<std::vector<Type>> InferConstexprCast(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const DataType dtype, DataTypeParameter(ctx, "output_dtype"));
  if (!IsFloat(dtype)) return ctx.Error(fmt::format("output_dtype {} is no float type", DataTypeName(dtype)));
  return OneType(dtype, ctx.ShapeOf("source_val"));
}

Result<std::vector<Literal>> EvaluateConstexprCast(const OpContext& ctx, const std::vector<Type>& types) {
  return One(Tensor::FromFloats(types.front().tensor, ctx.TensorOf("source_val")->ToFloats()));
}

// ---- tables ----

// Before iOS18: a flat table of 2^n entries, and n-bit indices packed into bytes.
Result<std::vector<Type>> InferPackedLut(const OpContext& ctx) {
  const Shape& lut = ctx.ShapeOf("lut");
  if (lut.size() != 1) return ctx.Error(fmt::format("the table must be flat, but is {}", ShapeToString(lut)));
  const auto index_type = IndexType(lut[0]);
  if (!index_type.ok()) return Named(ctx, index_type.status());
  MW_ASSIGN_OR_RETURN(Shape shape, ShapeAttribute(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize({*index_type, shape}));
  const Shape& indices = ctx.ShapeOf("indices");
  if (indices != Shape{bytes}) {
    return ctx.Error(fmt::format("{} indices of {} bits are {} bytes, but the indices are {}", ShapeToString(shape),
                                 BitWidth(*index_type), bytes, ShapeToString(indices)));
  }
  return OneType(ctx.DTypeOf("lut"), std::move(shape));
}

Result<std::vector<Literal>> EvaluatePackedLut(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& lut = *ctx.TensorOf("lut");
  const Shape& shape = types.front().shape();
  MW_ASSIGN_OR_RETURN(const DataType index_type, IndexType(lut.size()));
  MW_ASSIGN_OR_RETURN(const Tensor indices, UnpackBits(*ctx.TensorOf("indices"), index_type, shape));
  Shape table_shape(shape.size(), 1);
  table_shape.insert(table_shape.end(), {lut.size(), 1});
  MW_ASSIGN_OR_RETURN(const Tensor table, lut.Reshaped(std::move(table_shape)));
  return Decoded(ctx, LookUp(indices, table, std::nullopt));
}

Result<std::vector<Type>> InferLutToDense(const OpContext& ctx) {
  auto shape = LookUpShape(ctx.TypeOf("indices").tensor, ctx.ShapeOf("lut"), OptionalAxis(ctx, "vector_axis"));
  if (!shape.ok()) return Named(ctx, shape.status());
  return OneType(ctx.DTypeOf("lut"), *std::move(shape));
}

Result<std::vector<Literal>> EvaluateLutToDense(const OpContext& ctx, const std::vector<Type>&) {
  return Decoded(ctx, LookUp(*ctx.TensorOf("indices"), *ctx.TensorOf("lut"), OptionalAxis(ctx, "vector_axis")));
}

// ---- sparse ----

Status CheckNonzero(const OpContext& ctx, std::string_view parameter) {
  const Shape& shape = ctx.ShapeOf(parameter);
  return shape.size() == 1
             ? Status::Ok()
             : ctx.Error(fmt::format("'{}' must be a vector, but is {}", parameter, ShapeToString(shape)));
}

// Before iOS18: the mask is packed into bytes.
Result<std::vector<Type>> InferPackedSparse(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckNonzero(ctx, "nonzero_data"));
  MW_ASSIGN_OR_RETURN(Shape shape, ShapeAttribute(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize({DataType::kUInt1, shape}));
  if (ctx.ShapeOf("mask") != Shape{bytes}) {
    return ctx.Error(fmt::format("the mask of {} takes {} bytes, but is {}", ShapeToString(shape), bytes,
                                 ShapeToString(ctx.ShapeOf("mask"))));
  }
  return OneType(ctx.DTypeOf("nonzero_data"), std::move(shape));
}

Result<std::vector<Literal>> EvaluatePackedSparse(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const Tensor mask, UnpackBits(*ctx.TensorOf("mask"), DataType::kUInt1, types.front().shape()));
  return Decoded(ctx, SparseToDense(*ctx.TensorOf("nonzero_data"), mask));
}

Result<std::vector<Type>> InferSparseToDense(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckNonzero(ctx, "nonzero_data"));
  return OneType(ctx.DTypeOf("nonzero_data"), ctx.ShapeOf("mask"));
}

Result<std::vector<Literal>> EvaluateSparseToDense(const OpContext& ctx, const std::vector<Type>&) {
  return Decoded(ctx, SparseToDense(*ctx.TensorOf("nonzero_data"), *ctx.TensorOf("mask")));
}

// Outputs: the mask grown by the vectors, and the table entries where it is set.
Result<std::vector<Type>> InferLutToSparse(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckNonzero(ctx, "indices_nonzero_data"));
  const TensorType indices{ctx.DTypeOf("indices_nonzero_data"), ctx.ShapeOf("indices_mask")};
  const Shape& lut = ctx.ShapeOf("lut");
  auto shape = LookUpShape(indices, lut, OptionalAxis(ctx, "vector_axis"));
  if (!shape.ok()) return Named(ctx, shape.status());
  MW_ASSIGN_OR_RETURN(const int64_t count, MultiplySizes(ctx, ctx.ShapeOf("indices_nonzero_data")[0], lut.back()));
  return std::vector<Type>{Type::Tensor(DataType::kUInt1, *std::move(shape)),
                           Type::Tensor(ctx.DTypeOf("lut"), {count})};
}

// Decoded densely, masked-out places with entry 0, and made sparse again.
Result<std::vector<Literal>> EvaluateLutToSparse(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& lut = *ctx.TensorOf("lut");
  const auto axis = OptionalAxis(ctx, "vector_axis");
  Tensor mask = *ctx.TensorOf("indices_mask");
  const auto indices = SparseToDense(*ctx.TensorOf("indices_nonzero_data"), mask);
  if (!indices.ok()) return Named(ctx, indices.status());
  MW_ASSIGN_OR_RETURN(const Tensor dense, LookUp(*indices, lut, axis));
  if (lut.shape().back() > 1) {
    MW_ASSIGN_OR_RETURN(mask, RepeatMask(mask, *axis, lut.shape().back()));
  }
  MW_ASSIGN_OR_RETURN(Tensor nonzero, DenseToSparse(dense, mask));
  return Pair(std::move(mask), std::move(nonzero));
}

Result<std::vector<Type>> InferSparseBlockwise(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckNonzero(ctx, "nonzero_data"));
  MW_RETURN_IF_ERROR(CheckScaleAndOffset(ctx, ctx.ShapeOf("data_mask")));
  return std::vector<Type>{ctx.TypeOf("data_mask"), Type::Tensor(ctx.DTypeOf("scale"), ctx.ShapeOf("nonzero_data"))};
}

Result<std::vector<Literal>> EvaluateSparseBlockwise(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& mask = *ctx.TensorOf("data_mask");
  const auto data = SparseToDense(*ctx.TensorOf("nonzero_data"), mask);
  if (!data.ok()) return Named(ctx, data.status());
  MW_ASSIGN_OR_RETURN(const Tensor dense, DequantizeBlockwise(*data, *ctx.TensorOf("scale"), Offset(ctx)));
  MW_ASSIGN_OR_RETURN(Tensor nonzero, DenseToSparse(dense, mask));
  return Pair(mask, std::move(nonzero));
}

}  // namespace

std::vector<OpDefinition> ConstexprOps() {
  return {
      Op(Opset::kIOS16,
         "constexpr_affine_dequantize(attr SrcT quantized_data, attr ZeroPointT zero_point, attr DstT scale, attr "
         "int32 axis) where SrcT=uint8|int8, ZeroPointT=uint8|int8|fp32, DstT=fp16|fp32",
         InferAffineDequantize, EvaluateAffineDequantize),
      Op(Opset::kIOS18,
         "constexpr_blockwise_shift_scale(const SrcT data, const DstT scale, const OffsetT offset?) where "
         "SrcT=int4|uint4|int8|uint8|fp16|fp32, DstT=fp16|fp32, OffsetT=int4|uint4|int8|uint8|fp16|fp32",
         InferBlockwise, EvaluateBlockwise),
      Op(Opset::kIOS16, "constexpr_cast(attr fp16 source_val, attr string output_dtype)", InferConstexprCast,
         EvaluateConstexprCast),
      Op(Opset::kIOS18, "constexpr_cast(const fp16 source_val, const string output_dtype)", InferConstexprCast,
         EvaluateConstexprCast),
      Op(Opset::kIOS16,
         "constexpr_lut_to_dense(attr uint8 indices, attr T lut, attr uint32 shape) where T=int8|uint8|fp16|fp32",
         InferPackedLut, EvaluatePackedLut),
      Op(Opset::kIOS18,
         "constexpr_lut_to_dense(const IndicesT indices, const T lut, const int32 vector_axis?) where "
         "IndicesT=uint1|uint2|uint3|uint4|uint6|uint8, T=int8|uint8|fp16|fp32",
         InferLutToDense, EvaluateLutToDense),
      Op(Opset::kIOS18,
         "constexpr_lut_to_sparse(const uint1 indices_mask, const IndicesT indices_nonzero_data, const T lut, const "
         "int32 vector_axis?) where IndicesT=uint1|uint2|uint3|uint4|uint6|uint8, T=int8|uint8|fp16|fp32",
         InferLutToSparse, EvaluateLutToSparse),
      Op(Opset::kIOS18,
         "constexpr_sparse_blockwise_shift_scale(const uint1 data_mask, const SrcT nonzero_data, const DstT scale, "
         "const OffsetT offset?) where SrcT=int4|uint4|int8|uint8|fp16|fp32, DstT=fp16|fp32, "
         "OffsetT=int4|uint4|int8|uint8|fp16|fp32",
         InferSparseBlockwise, EvaluateSparseBlockwise),
      Op(Opset::kIOS16,
         "constexpr_sparse_to_dense(attr T nonzero_data, attr uint8 mask, attr uint32 shape) where "
         "T=int8|uint8|fp16|fp32",
         InferPackedSparse, EvaluatePackedSparse),
      Op(Opset::kIOS18,
         "constexpr_sparse_to_dense(const T nonzero_data, const uint1 mask) where T=int4|uint4|int8|uint8|fp16|fp32",
         InferSparseToDense, EvaluateSparseToDense),
  };
}

}  // namespace milwright
