// Activations and softmax.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ActivationOps() {
  return {
      Op(Opset::kIOS15, "clamped_relu(T x, const T alpha, const T beta) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "clamped_relu(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "elu(T x, const T alpha) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "elu(T x, const U alpha) where T=fp16|fp32, U=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "gelu(T x, const string mode=\"EXACT\") where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "leaky_relu(T x, const T alpha) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "leaky_relu(T x, const U alpha) where T=fp16|fp32, U=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "linear_activation(T x, const T alpha, const T beta) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "linear_activation(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "prelu(T x, const T alpha) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "prelu(T x, const U alpha) where T=fp16|fp32, U=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "relu(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "relu6(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "scaled_tanh(T x, const T alpha, const T beta) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "scaled_tanh(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "sigmoid(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "sigmoid_hard(T x, const T alpha, const T beta) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "sigmoid_hard(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "silu(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "softplus(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "softplus_parametric(T x, const T alpha, const T beta) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "softplus_parametric(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "softsign(T x) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "thresholded_relu(T x, const T alpha) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS17, "thresholded_relu(T x, const U alpha) where T=fp16|fp32, U=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "softmax(T x, const int32 axis=-1) where T=fp16|fp32", nullptr, nullptr),
  };
}

}  // namespace milwright
