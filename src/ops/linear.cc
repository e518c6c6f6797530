// Matrix products and attention.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> LinearOps() {
  return {
      Op(Opset::kIOS15, "linear(T x, const T weight, const T bias=\"zeros(weight.shape[0])\") where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "linear(T x, const U weight, const U bias=\"zeros(weight.shape[0])\") where T=fp16|fp32|int32, "
         "U=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "matmul(T x, T y, const bool transpose_x=false, const bool transpose_y=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "matmul(T x, U y, const bool transpose_x=false, const bool transpose_y=false) where T=fp16|fp32|int32, "
         "U=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "einsum(any... values, const string equation)", nullptr, nullptr),
      Op(Opset::kIOS18,
         "scaled_dot_product_attention(T query, T key, T value, M attn_mask?) where T=fp16|fp32, M=bool|fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
