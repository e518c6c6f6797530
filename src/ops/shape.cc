// Ops that move elements without computing: reshape, transpose, concat, pad, and their kin.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ShapeOps() {
  return {
      Op(Opset::kIOS15, "reshape(T x, int32 shape) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17,
         "reshape(T x, U shape) where T=fp16|fp32|int8|uint8|int16|uint16|int32|bool, U=int8|int16|int32", nullptr,
         nullptr),
      Op(Opset::kIOS16,
         "reshape_like(T x, any... ref_tensors, any... begins, any... ends, any... end_masks) where "
         "T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "reshape_like(T x, any... ref_tensors, any... begins, any... ends, any... end_masks) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "transpose(T x, const int32 perm) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17, "transpose(T x, const int32 perm) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "expand_dims(T x, const int32 axes) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17, "expand_dims(T x, const int32 axes) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "squeeze(T x, const int32 axes?) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17, "squeeze(T x, const int32 axes?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool", nullptr,
         nullptr),
      Op(Opset::kIOS15, "flatten2d(T x, const int32 axis=1) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS15, "concat(any... values, const int32 axis, const bool interleave=false)", nullptr, nullptr),
      Op(Opset::kIOS15,
         "split(T x, const int32 num_splits?, const int32 split_sizes?, const int32 axis) where T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS15, "stack(any... values, const int32 axis)", nullptr, nullptr),
      Op(Opset::kIOS15,
         "pad(T x, int32 pad, const string mode=\"constant\", const T constant_val=0.0) where T=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "tile(T x, int32 reps) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS15, "reverse(T x, const int32 axes?) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17, "reverse(T x, const int32 axes?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool", nullptr,
         nullptr),
      Op(Opset::kIOS15,
         "reverse_sequence(T x, int32 lengths, const int32 seq_axis=0, const int32 batch_axis=0) where "
         "T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "reverse_sequence(T x, U lengths, const int32 seq_axis=0, const int32 batch_axis=0) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "depth_to_space(T x, const int32 block_size) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "space_to_depth(T x, const int32 block_size) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "pixel_shuffle(T x, const int32 upscale_factor) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS16, "pixel_unshuffle(T x, const uint32 downscale_factor) where T=fp16|fp32", nullptr, nullptr),
      Op(Opset::kIOS15, "space_to_batch(T x, const int32 block_shape, const int32 paddings) where T=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15, "batch_to_space(T x, const int32 block_shape, const int32 crops) where T=fp16|fp32", nullptr,
         nullptr),
  };
}

}  // namespace milwright
