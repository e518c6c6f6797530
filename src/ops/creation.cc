// Ops that make tensors: fills, ranges, random numbers, masks, shapes; and classify.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> CreationOps() {
  return {
      Op(Opset::kIOS15, "fill(int32 shape, const T value=0.0) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS16,
         "fill_like(T ref_tensor, const U value=0.0) where T=fp16|fp32|int32|bool, U=fp16|fp32|int32|bool", nullptr,
         nullptr),
      Op(Opset::kIOS15,
         "one_hot(int32 indices, int32 one_hot_vector_size, const int32 axis=-1, const T on_value=1, const T "
         "off_value=0) where T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "range_1d(T end, T start, T step) where T=fp16|fp32|int32", nullptr, nullptr),
      Op(Opset::kIOS15, "random_bernoulli(int32 shape, const T prob=0.5, const int32 seed=-1) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "random_categorical(T x, const string mode=\"logits\", const int32 size=1, const int32 seed=-1) where "
         "T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "random_normal(int32 shape, const T mean=0.0, const T stddev=1.0, const int32 seed=-1) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "random_uniform(int32 shape, const T low=0.0, const T high=1.0, const int32 seed=-1) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "non_zero(T x) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS15, "band_part(T x, const int32 lower=-1, const int32 upper=-1) where T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "shape(T x) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS15, "classify(fp32 probabilities, const list classes)", nullptr, nullptr),
  };
}

}  // namespace milwright
