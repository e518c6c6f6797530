// quantize and dequantize of activations.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> QuantizeOps() {
  return {
      Op(Opset::kIOS17,
         "quantize(SrcT input, const DstT zero_point?, const SrcT scale, const int32 axis?, const string output_dtype) "
         "where SrcT=fp16|fp32, DstT=uint8|int8",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "dequantize(SrcT input, const SrcT zero_point?, const DstT scale, const int32 axis?) where SrcT=uint8|int8, "
         "DstT=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
