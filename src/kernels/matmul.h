// Matrix-vector and matrix-matrix products with stored weights, split over threads.
#ifndef MILWRIGHT_KERNELS_MATMUL_H_
#define MILWRIGHT_KERNELS_MATMUL_H_

#include <cstdint>
#include <span>

#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "kernels/weights.h"

namespace milwright::kernels {

/// Scratch bytes that MatVec needs for this matrix (64-byte aligned).
size_t MatVecScratchBytes(const MatVecKernel& kernel, const WeightView& view);

/// y[N] = W x + bias (bias may be null), all fp32; x may be prepared once and shared: see MatVecKernel. Results do not
/// depend on the number of threads. `scratch` has MatVecScratchBytes.
void MatVec(const MatVecKernel& kernel, ThreadPool& pool, const WeightView& view, const float* x, const float* bias,
            std::span<uint8_t> scratch, float* y);

/// The second half of MatVec, for an activation that `kernel.prepare` has put into `scratch`.
void MatVecPrepared(const MatVecKernel& kernel, ThreadPool& pool, const WeightView& view, const void* scratch,
                    const float* bias, float* y);

/// Scratch bytes that MatMul needs (64-byte aligned) for m rows of X and a pool of `threads`.
size_t MatMulScratchBytes(const MatMulKernel& kernel, const WeightView& view, int64_t m, int threads);

/// Y[m, N] = X[m, K] W^T + bias, fp32, with `ldx` and `ldy` elements between rows. Results do not depend on the number
/// of threads nor on m. `scratch` has MatMulScratchBytes.
void MatMul(const MatMulKernel& kernel, ThreadPool& pool, const WeightView& view, const float* x, int64_t ldx,
            int64_t m, const float* bias, std::span<uint8_t> scratch, float* y, int64_t ldy);

/// One of several products of the same activation.
struct ProductPart {
  const MatVecKernel* matvec = nullptr;
  const MatMulKernel* matmul = nullptr;
  const WeightView* view = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};

/// MatVec for all `parts` in one region. All have the same number of columns and kernels with the same `prepare`;
/// `scratch` serves the first of them.
void MatVecTogether(ThreadPool& pool, std::span<const ProductPart> parts, const float* x, std::span<uint8_t> scratch);

/// MatMul for all `parts` (each with ldy = its rows) with one packing of X. All have the same number of columns and
/// kernels with the same `pack`; `scratch` has the largest MatMulScratchBytes of them.
void MatMulTogether(ThreadPool& pool, std::span<const ProductPart> parts, const float* x, int64_t ldx, int64_t m,
                    std::span<uint8_t> scratch);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_MATMUL_H_
