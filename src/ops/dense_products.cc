#include "ops/dense_products.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace milwright {

namespace {

// Inner loops of this constant length are what compilers vectorise at -O2.
constexpr int64_t kLanes = 16;

// target[i] += factor * source[i]; the two do not overlap.
void AddScaled(float factor, const float* __restrict source, float* __restrict target, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) target[i + lane] += factor * source[i + lane];
  }
  for (; i < count; ++i) target[i] += factor * source[i];
}

}  // namespace

float DotProduct(const float* a, const float* b, int64_t count) {
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
  // A few rows at a time share each row of b while it is in the cache; the order of every sum stays that of K.
  constexpr int64_t kRows = 16;
  for (int64_t first = 0; first < m; first += kRows) {
    const int64_t last = std::min(first + kRows, m);
    for (int64_t inner = 0; inner < k; ++inner) {
      for (int64_t row = first; row < last; ++row) AddScaled(a[row * k + inner], b + inner * n, out + row * n, n);
    }
  }
}

void MultiplyTransposed(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t column = 0; column < n; ++column) out[row * n + column] = DotProduct(a + row * k, b + column * k, k);
  }
}

}  // namespace milwright
