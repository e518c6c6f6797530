// Convolutions.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ConvolutionOps() {
  return {
      Op(Opset::kIOS15,
         "conv(T x, T weight, const T bias?, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, "
         "const int32 dilations?, const int32 groups=1) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "conv(T x, U weight, U bias?, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, const "
         "int32 dilations?, const int32 groups=1) where T=fp16|fp32, U=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "conv_quantized(T x, U weight, const U bias?, const string quantization_type, const int32 nbits=8, const T "
         "quant_scale, const T quant_bias, const int32 strides?, const string pad_type=\"valid\", const int32 pad?, "
         "const int32 dilations?, const int32 groups=1) where T=fp32|fp16, U=uint8",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "conv_transpose(T x, const T weight, const T bias?, const int32 pad?, const int32 output_shape?, const string "
         "pad_type=\"valid\", const int32 strides?, const int32 dilations?, const int32 groups=1) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "conv_transpose(T x, U weight, U bias?, const int32 pad?, const int32 output_shape?, const string "
         "pad_type=\"valid\", const int32 strides?, const int32 dilations?, const int32 groups=1) where T=fp16|fp32, "
         "U=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
