// gather and scatter in their three forms.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> GatherOps() {
  return {
      Op(Opset::kIOS15, "gather(T x, int32 indices, const int32 axis=0) where T=fp16|fp32|int32", nullptr, nullptr),
      Op(Opset::kIOS16,
         "gather(T x, I indices, const int32 axis=0, const int32 batch_dims=0) where T=fp16|fp32|int32, "
         "I=int32|uint16|int16",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "gather(T x, I indices, const int32 axis=0, const int32 batch_dims=0, const bool validate_indices=false) "
         "where T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         nullptr, nullptr),
      Op(Opset::kIOS15, "gather_along_axis(T x, int32 indices, const int32 axis=0) where T=fp16|fp32|int32", nullptr,
         nullptr),
      Op(Opset::kIOS16,
         "gather_along_axis(T x, I indices, const int32 axis=0) where T=fp16|fp32|int32, I=int32|uint16|int16", nullptr,
         nullptr),
      Op(Opset::kIOS17,
         "gather_along_axis(T x, I indices, const int32 axis=0, const bool validate_indices=false) where "
         "T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         nullptr, nullptr),
      Op(Opset::kIOS15, "gather_nd(T x, int32 indices) where T=fp16|fp32|int32", nullptr, nullptr),
      Op(Opset::kIOS16,
         "gather_nd(T x, I indices, const int32 batch_dims=0) where T=fp16|fp32|int32, I=int32|uint16|int16", nullptr,
         nullptr),
      Op(Opset::kIOS17,
         "gather_nd(T x, I indices, const int32 batch_dims=0, const bool validate_indices=false) where "
         "T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "scatter(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\") where "
         "T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "scatter(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\", const bool "
         "validate_indices=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "scatter_along_axis(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\") where "
         "T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "scatter_along_axis(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\", const "
         "bool validate_indices=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "scatter_nd(T data, int32 indices, T updates, const string mode=\"add\") where T=fp16|fp32|int32", nullptr,
         nullptr),
      Op(Opset::kIOS17,
         "scatter_nd(T data, int32 indices, T updates, const string mode=\"add\", const bool validate_indices=false) "
         "where T=fp16|fp32|int32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
