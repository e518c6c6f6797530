// Slices: reading, and the slice update of iOS18.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> SliceOps() {
  return {
      Op(Opset::kIOS15,
         "slice_by_index(T x, int32 begin, int32 end, const int32 stride?, const bool begin_mask?, const bool "
         "end_mask?, const bool squeeze_mask?) where T=fp16|fp32|int32|bool",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "slice_by_index(T x, U begin, U end, const U stride?, const bool begin_mask?, const bool end_mask?, const "
         "bool squeeze_mask?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "slice_by_size(T x, int32 begin, int32 size) where T=fp16|fp32|int32|bool", nullptr, nullptr),
      Op(Opset::kIOS17,
         "slice_by_size(T x, U begin, U size) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS18,
         "slice_update(T x, T update, U begin, U end, const U stride?, const bool begin_mask?, const bool end_mask?, "
         "const bool squeeze_mask?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15, "crop(T x, const int32 crop_height, const int32 crop_width) where T=fp16|fp32", nullptr,
         nullptr),
      Op(Opset::kIOS15,
         "sliding_windows(T x, const int32 axis, const int32 size, const int32 stride=1) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "sliding_windows(T x, const int32 axis, const int32 size, const int32 stride=1) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         nullptr, nullptr),
  };
}

}  // namespace milwright
