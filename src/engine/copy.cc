#include "engine/copy.h"

#include <cstring>

#include "milwright/half.h"

namespace milwright::engine {
namespace {

template <typename T>
void CopyStrided(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t n) {
  const auto* source = reinterpret_cast<const T*>(from);
  auto* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) target[i * to_stride] = source[i * from_stride];
}

}  // namespace

Copier::Copier(DataType from_type, const Dims& from_strides, DataType to_type, const Dims& to_strides,
               const Dims& shape)
    : from_type_(from_type),
      to_type_(to_type),
      from_bytes_(BitWidth(from_type) / 8),
      to_bytes_(BitWidth(to_type) / 8),
      count_(1),
      axes_(JoinedAxes(shape, {to_strides, from_strides})) {
  for (const int64_t size : shape) count_ *= size;
}

void Copier::Run(const kernels::Kernels& kernels, const std::byte* from, std::byte* to) const {
  const LoopAxis& inner = axes_.back();
  const int64_t n = inner.size;
  const int64_t to_stride = n == 1 ? 1 : inner.strides[0];
  const int64_t from_stride = n == 1 ? 1 : inner.strides[1];
  WalkOuter([&](int64_t from_offset, int64_t to_offset) {
    const std::byte* source = from + from_offset * from_bytes_;
    std::byte* target = to + to_offset * to_bytes_;
    if (from_type_ == to_type_) {
      if (from_stride == 1 && to_stride == 1) {
        std::memcpy(target, source, static_cast<size_t>(n * to_bytes_));
      } else if (to_bytes_ == 4) {
        CopyStrided<uint32_t>(source, from_stride, target, to_stride, n);
      } else if (to_bytes_ == 2) {
        CopyStrided<uint16_t>(source, from_stride, target, to_stride, n);
      } else if (to_bytes_ == 8) {
        CopyStrided<uint64_t>(source, from_stride, target, to_stride, n);
      } else {
        CopyStrided<uint8_t>(source, from_stride, target, to_stride, n);
      }
    } else if (to_type_ == DataType::kFp32) {
      const auto* halves = reinterpret_cast<const uint16_t*>(source);
      auto* floats = reinterpret_cast<float*>(target);
      if (from_stride == 1 && to_stride == 1) {
        kernels.half_to_float(halves, n, floats);
      } else {
        for (int64_t i = 0; i < n; ++i) floats[i * to_stride] = HalfToFloat(halves[i * from_stride]);
      }
    } else {
      const auto* floats = reinterpret_cast<const float*>(source);
      auto* halves = reinterpret_cast<uint16_t*>(target);
      if (from_stride == 1 && to_stride == 1) {
        kernels.float_to_half(floats, n, halves);
      } else {
        for (int64_t i = 0; i < n; ++i) halves[i * to_stride] = FloatToHalf(floats[i * from_stride]);
      }
    }
  });
}

}  // namespace milwright::engine
