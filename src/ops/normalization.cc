// Normalisations.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> NormalizationOps() {
  return {
      Op(Opset::kIOS15,
         "batch_norm(T x, const T mean, const T variance, const T gamma?, const T beta?, const T epsilon=1e-05) where "
         "T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "batch_norm(T x, const U mean, const U variance, const U gamma?, const U beta?, const U epsilon=1e-05) where "
         "T=fp16|fp32, U=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "instance_norm(T x, const T gamma?, const T beta?, const T epsilon=1e-05) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "instance_norm(T x, const U gamma?, const U beta?, const U epsilon=1e-05) where T=fp16|fp32, U=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "layer_norm(T x, const int32 axes=\"range(x.rank)\", const T gamma?, const T beta?, const T epsilon=1e-05) "
         "where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "layer_norm(T x, const int32 axes=\"range(x.rank)\", const U gamma?, const U beta?, const U epsilon=1e-05) "
         "where T=fp16|fp32, U=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "l2_norm(T x, const T epsilon=1e-06) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "l2_norm(T x, const U epsilon=1e-06) where T=fp16|fp32, U=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15,
         "local_response_norm(T x, const int32 size, const T alpha=0.0001, const T beta=0.75, const T k=1.0) where "
         "T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "local_response_norm(T x, const int32 size, const U alpha=0.0001, const U beta=0.75, const U k=1.0) where "
         "T=fp16|fp32, U=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
