#include "ops/dense_products.h"

#include <array>
#include <cstddef>

namespace milwright {

float DotProduct(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) sums[static_cast<size_t>(lane)] += a[i] * b[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

void MultiplyAdd(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    float* target = out + row * n;
    for (int64_t inner = 0; inner < k; ++inner) {
      const float factor = a[row * k + inner];
      const float* source = b + inner * n;
      for (int64_t column = 0; column < n; ++column) target[column] += factor * source[column];
    }
  }
}

void MultiplyTransposed(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) out[row * n + column] = DotProduct(a + row * k, b + column * k, k);
  }
}

}  // namespace milwright
