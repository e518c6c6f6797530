// What the reference kernels of several families share: visiting the elements of tensors by strides and along an axis,
// and reading and storing numbers.
#ifndef MILWRIGHT_OPS_KERNEL_HELPERS_H_
#define MILWRIGHT_OPS_KERNEL_HELPERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "milwright/half.h"
#include "milwright/tensor.h"
#include "ops/op.h"

namespace milwright {

/// A static shape seen from one axis: row-major [outer, size, inner].
struct AxisSplit {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
};
AxisSplit SplitAt(const Shape& shape, int64_t axis);

/// Calls line(first) for every line along the axis, where the line's elements are first + i * split.inner for i in
/// [0, split.size).
template <typename Line>
void ForEachLine(const AxisSplit& split, Line&& line) {
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) line(outer * split.size * split.inner + inner);
  }
}

/// Row-major strides for reading a tensor of shape `operand` as one of shape `result`, to which it broadcasts: 0 along
/// the axes that are stretched.
std::vector<int64_t> BroadcastStrides(const Shape& operand, const Shape& result);

/// Calls body(i, offsets) for every position of the static `shape` in row-major order: i counts the positions, and
/// offsets[n] is the sum of position times strides[n].
template <size_t N, typename Body>
void ForEachPosition(const Shape& shape, const std::array<std::vector<int64_t>, N>& strides, Body&& body) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  const int64_t inner = shape.empty() ? 1 : shape.back();
  std::array<int64_t, N> steps{};
  for (size_t n = 0; n < N && !shape.empty(); ++n) steps[n] = strides[n].back();
  std::array<int64_t, N> line{};
  Shape position(shape.size(), 0);
  for (int64_t i = 0; i < count;) {
    std::array<int64_t, N> offsets = line;
    for (int64_t j = 0; j < inner; ++j, ++i) {
      body(i, offsets);
      for (size_t n = 0; n < N; ++n) offsets[n] += steps[n];
    }
    // The next line: an odometer over all axes but the last.
    for (size_t axis = shape.size(); axis-- > 1;) {
      const size_t turned = axis - 1;
      for (size_t n = 0; n < N; ++n) line[n] += strides[n][turned];
      if (++position[turned] < shape[turned]) break;
      for (size_t n = 0; n < N; ++n) line[n] -= strides[n][turned] * shape[turned];
      position[turned] = 0;
    }
  }
}

/// Calls f with the elements of `tensor`: floats for float types, int64 for integers and bools. Returns what f returns,
/// which must not depend on the element type.
template <typename F>
auto WithNumbers(const Tensor& tensor, F&& f) {
  return IsFloat(tensor.dtype()) ? f(tensor.ToFloats()) : f(tensor.ToInts());
}

/// A tensor of `type` whose elements `produce` stores: produce(store) calls store(i, number) for each element i. Floats
/// are rounded (to integers: truncated and saturated), integers wrap. No memory is taken beside the result.
template <typename Produce>
Result<Tensor> BuildTensor(const TensorType& type, Produce&& produce) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  if (type.dtype == DataType::kFp32) {
    const std::span<float> out = tensor.MutableAs<float>();
    produce([out](int64_t i, auto value) { out[static_cast<size_t>(i)] = static_cast<float>(value); });
  } else if (type.dtype == DataType::kFp16) {
    const std::span<uint16_t> out = tensor.MutableAs<uint16_t>();
    produce([out](int64_t i, auto value) { out[static_cast<size_t>(i)] = FloatToHalf(static_cast<float>(value)); });
  } else {
    produce([&tensor](int64_t i, auto value) {
      if constexpr (std::is_floating_point_v<decltype(value)>) {
        tensor.SetDouble(i, value);
      } else {
        tensor.SetInt(i, value);
      }
    });
  }
  return tensor;
}

/// A tensor of `type` from as many numbers, stored as BuildTensor does.
template <typename T>
Result<Tensor> MakeTensor(const TensorType& type, const std::vector<T>& values) {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(type.shape));
  if (count != static_cast<int64_t>(values.size())) {
    return Status(ErrorCode::kInternal,
                  TypeToString(type) + " cannot be made from " + std::to_string(values.size()) + " numbers");
  }
  return BuildTensor(type, [&values](auto&& store) {
    for (size_t i = 0; i < values.size(); ++i) store(static_cast<int64_t>(i), values[i]);
  });
}

/// Two's complement arithmetic without undefined overflow; the low bits are those of any narrower integer type.
inline int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t WrappingMultiply(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

}  // namespace milwright

#endif  // MILWRIGHT_OPS_KERNEL_HELPERS_H_
