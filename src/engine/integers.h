// Reading the small integer tensors that say where: positions, indices, begins and ends.
#ifndef MILWRIGHT_ENGINE_INTEGERS_H_
#define MILWRIGHT_ENGINE_INTEGERS_H_

#include <cstdint>
#include <vector>

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

/// Numbers that stand in several places: constants, and elements of views.
class IntegerList {
 public:
  void Add(int64_t number) { entries_.push_back({View(), 0, number}); }
  void Add(const View& view, int64_t element) { entries_.push_back({view, element, 0}); }
  [[nodiscard]] int64_t Load(const Frame& frame, size_t i) const {
    const Entry& entry = entries_[i];
    return entry.view.root < 0 ? entry.number : LoadInt(frame, entry.view, entry.element);
  }
  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    View view;  // none: `number`
    int64_t element = 0;
    int64_t number = 0;
  };
  std::vector<Entry> entries_;
};

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_INTEGERS_H_
