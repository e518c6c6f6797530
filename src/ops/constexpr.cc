// Compressed weights: the constexpr_* ops (package-format.md, section 5).
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ConstexprOps() {
  return {
      Op(Opset::kIOS16,
         "constexpr_affine_dequantize(attr SrcT quantized_data, attr ZeroPointT zero_point, attr DstT scale, attr "
         "int32 axis) where SrcT=uint8|int8, ZeroPointT=uint8|int8|fp32, DstT=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "constexpr_blockwise_shift_scale(const SrcT data, const DstT scale, const OffsetT offset?) where "
         "SrcT=int4|uint4|int8|uint8|fp16|fp32, DstT=fp16|fp32, OffsetT=int4|uint4|int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS16, "constexpr_cast(attr fp16 source_val, attr string output_dtype)", nullptr, nullptr),
      Op(Opset::kIOS18, "constexpr_cast(const fp16 source_val, const string output_dtype)", nullptr, nullptr),
      Op(Opset::kIOS16,
         "constexpr_lut_to_dense(attr uint8 indices, attr T lut, attr uint32 shape) where T=int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "constexpr_lut_to_dense(const IndicesT indices, const T lut, const int32 vector_axis?) where "
         "IndicesT=uint1|uint2|uint3|uint4|uint6|uint8, T=int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "constexpr_lut_to_sparse(const uint1 indices_mask, const IndicesT indices_nonzero_data, const T lut, const "
         "int32 vector_axis?) where IndicesT=uint1|uint2|uint3|uint4|uint6|uint8, T=int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "constexpr_sparse_blockwise_shift_scale(const uint1 data_mask, const SrcT nonzero_data, const DstT scale, "
         "const OffsetT offset?) where SrcT=int4|uint4|int8|uint8|fp16|fp32, DstT=fp16|fp32, "
         "OffsetT=int4|uint4|int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS16,
         "constexpr_sparse_to_dense(attr T nonzero_data, attr uint8 mask, attr uint32 shape) where "
         "T=int8|uint8|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "constexpr_sparse_to_dense(const T nonzero_data, const uint1 mask) where T=int4|uint4|int8|uint8|fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
