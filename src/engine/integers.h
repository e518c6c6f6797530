// Reading the small integer tensors that say where: positions, indices, begins and ends.
#ifndef MILWRIGHT_ENGINE_INTEGERS_H_
#define MILWRIGHT_ENGINE_INTEGERS_H_

#include <cstddef>
#include <cstdint>

#include "engine/plan.h"

namespace milwright::engine {

/// Element `at` of integers of this type.
inline int64_t LoadInt(const std::byte* data, DataType dtype, int64_t at) {
  switch (dtype) {
    case DataType::kInt32:
      return reinterpret_cast<const int32_t*>(data)[at];
    case DataType::kUInt32:
      return reinterpret_cast<const uint32_t*>(data)[at];
    case DataType::kInt16:
      return reinterpret_cast<const int16_t*>(data)[at];
    case DataType::kUInt16:
      return reinterpret_cast<const uint16_t*>(data)[at];
    case DataType::kInt8:
      return reinterpret_cast<const int8_t*>(data)[at];
    default:
      return reinterpret_cast<const uint8_t*>(data)[at];
  }
}

/// Element `i` of a view of one axis and integer type.
inline int64_t LoadInt(const Frame& frame, const View& view, int64_t i) {
  return LoadInt(frame.bases[static_cast<size_t>(view.root)], view.dtype,
                 view.offset + (view.strides.empty() ? 0 : i * view.strides.front()));
}

/// At most kMaxAxes numbers that stand in several places: constants, and elements of views.
class IntegerList {
 public:
  void Add(int64_t number) { entries_.push_back({-1, DataType::kInt32, number}); }
  void Add(const View& view, int64_t element) {
    const int64_t at = view.offset + (view.strides.empty() ? 0 : element * view.strides.front());
    entries_.push_back({view.root, view.dtype, at});
  }
  [[nodiscard]] int64_t Load(const Frame& frame, size_t i) const {
    const Entry& entry = entries_[i];
    return entry.root < 0 ? entry.number
                          : LoadInt(frame.bases[static_cast<size_t>(entry.root)], entry.dtype, entry.number);
  }

 private:
  struct Entry {
    int32_t root = -1;  // -1: `number` itself; else it counts the elements before the one to read
    DataType dtype = DataType::kInt32;
    int64_t number = 0;
  };
  InlineVector<Entry, kMaxAxes> entries_;
};

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_INTEGERS_H_
