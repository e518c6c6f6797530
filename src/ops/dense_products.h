// The two inner loops of every matrix product of the reference kernels: sums in fp32, in an order that depends on the
// sizes alone, written so that compilers vectorise them without relaxed floating point.
#ifndef MILWRIGHT_OPS_DENSE_PRODUCTS_H_
#define MILWRIGHT_OPS_DENSE_PRODUCTS_H_

#include <cstdint>

namespace milwright {

/// Sum of a[i] * b[i] over `count` elements, in 16 interleaved partial sums that are then added pairwise.
float DotProduct(const float* a, const float* b, int64_t count);

/// out[M, N] += a[M, K] * b[K, N], all dense row-major; every element sums over K in order.
void MultiplyAdd(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n);

/// out[M, N] = a[M, K] * b[N, K] transposed.
void MultiplyTransposed(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_DENSE_PRODUCTS_H_
