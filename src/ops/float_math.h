// Small fp32 building blocks of the reference kernels.
#ifndef MILWRIGHT_OPS_FLOAT_MATH_H_
#define MILWRIGHT_OPS_FLOAT_MATH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// Sum of a[i] * b[i] in fp32. Eight running sums, added in a fixed order at the end: the compiler can use vector
/// registers, and the result does not depend on the machine.
inline float Dot(const float* a, const float* b, size_t size) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const float lane : sums) sum += lane;
  return sum;
}

/// Zeros to compute a result of this shape in; an error instead of an exception when memory does not suffice.
inline Result<std::vector<float>> FloatsFor(const Shape& shape) {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  constexpr int64_t kMaxFloats = int64_t{1} << 34;  // 64 GiB, the limit of a Tensor
  try {
    if (count <= kMaxFloats) return std::vector<float>(static_cast<size_t>(count));
  } catch (const std::bad_alloc&) {
    // reported below, with the shape
  }
  return Status(ErrorCode::kRuntime, "not enough memory for a result of shape " + ShapeToString(shape));
}

}  // namespace milwright

#endif  // MILWRIGHT_OPS_FLOAT_MATH_H_
