// Reductions along axes, and cumsum.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ReductionOps() {
  return {
      Op(Opset::kIOS15, "reduce_argmax(T x, const int32 axis=-1, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "reduce_argmax(T x, const int32 axis=-1, const bool keep_dims=false, const string output_dtype=\"int32\") "
         "where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_argmin(T x, const int32 axis=-1, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "reduce_argmin(T x, const int32 axis=-1, const bool keep_dims=false, const string output_dtype=\"int32\") "
         "where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_l1_norm(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_l2_norm(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_log_sum(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "reduce_log_sum_exp(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "reduce_max(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_mean(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_min(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_prod(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_sum(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "reduce_sum_square(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "cumsum(T x, const int32 axis=0, const bool exclusive=false, const bool reverse=false) where "
         "T=fp16|fp32|int32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
