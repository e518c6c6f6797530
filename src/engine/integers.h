// Reading the small integer tensors that say where: positions, indices, begins and ends.
#ifndef MILWRIGHT_ENGINE_INTEGERS_H_
#define MILWRIGHT_ENGINE_INTEGERS_H_

#include <cstdint>

#include "engine/plan.h"

namespace milwright::engine {

/// Element `i` of a view of one axis and integer type.
inline int64_t LoadInt(const Frame& frame, const View& view, int64_t i) {
  const int64_t at = view.strides.empty() ? 0 : i * view.strides.front();
  switch (view.dtype) {
    case DataType::kInt32:
      return frame.At<int32_t>(view)[at];
    case DataType::kUInt32:
      return frame.At<uint32_t>(view)[at];
    case DataType::kInt16:
      return frame.At<int16_t>(view)[at];
    case DataType::kUInt16:
      return frame.At<uint16_t>(view)[at];
    case DataType::kInt8:
      return frame.At<int8_t>(view)[at];
    default:
      return frame.At<uint8_t>(view)[at];
  }
}

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_INTEGERS_H_
