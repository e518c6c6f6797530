// Pooling.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> PoolOps() {
  return {
      Op(Opset::kIOS15,
         "avg_pool(const bool exclude_padding_from_average=false, T x, const int32 kernel_sizes, const int32 strides?, "
         "const string pad_type, const int32 pad?, const bool ceil_mode=false) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "max_pool(T x, const int32 kernel_sizes, const int32 strides?, const string pad_type, const int32 pad?, const "
         "bool ceil_mode=false) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "l2_pool(T x, const int32 kernel_sizes, const int32 strides?, const string pad_type, const int32 pad?, const "
         "bool ceil_mode=false) where T=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
