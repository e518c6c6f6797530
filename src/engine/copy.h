// Copies between views, with conversion between fp16 and fp32.
#ifndef MILWRIGHT_ENGINE_COPY_H_
#define MILWRIGHT_ENGINE_COPY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/view.h"
#include "kernels/dispatch.h"

namespace milwright::engine {

/// A copy of one shape's elements between two layouts, planned once.
class Copier {
 public:
  Copier() = default;
  /// Types are equal, or one is fp16 and the other fp32.
  Copier(DataType from_type, const Dims& from_strides, DataType to_type, const Dims& to_strides, const Dims& shape);

  void Run(const kernels::Kernels& kernels, const std::byte* from, std::byte* to) const;
  /// Calls `visit(to address, bytes)` for every run of bytes that Run would write.
  template <typename Visit>
  void ForEachRun(std::byte* to, Visit&& visit) const {
    const LoopAxis& inner = axes_.back();
    const bool joined = inner.strides[0] == 1;
    WalkOuter([&](int64_t, int64_t offset) {
      if (joined) {
        visit(to + offset * to_bytes_, static_cast<size_t>(inner.size * to_bytes_));
      } else {
        for (int64_t i = 0; i < inner.size; ++i) {
          visit(to + (offset + i * inner.strides[0]) * to_bytes_, static_cast<size_t>(to_bytes_));
        }
      }
    });
  }
  [[nodiscard]] int64_t bytes_written() const { return count_ * to_bytes_; }

 private:
  // Calls line(offset in from, offset in to) for every line along the innermost axis.
  template <typename Line>
  void WalkOuter(Line&& line) const {
    if (count_ == 0) return;
    std::array<int64_t, kMaxAxes> position{};
    int64_t from = 0;
    int64_t to = 0;
    while (true) {
      line(from, to);
      size_t axis = axes_.size() - 1;
      while (axis-- > 0) {
        to += axes_[axis].strides[0];
        from += axes_[axis].strides[1];
        if (++position[axis] < axes_[axis].size) break;
        to -= axes_[axis].strides[0] * axes_[axis].size;
        from -= axes_[axis].strides[1] * axes_[axis].size;
        position[axis] = 0;
      }
      if (axis == static_cast<size_t>(-1)) return;
    }
  }

  DataType from_type_ = DataType::kInvalid;
  DataType to_type_ = DataType::kInvalid;
  int64_t from_bytes_ = 0;
  int64_t to_bytes_ = 0;
  int64_t count_ = 0;
  LoopAxes axes_;  ///< strides of `to`, then of `from`
};

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_COPY_H_
