#include "kernels/matmul.h"

#include <algorithm>

namespace milwright::kernels {
namespace {

size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Weights that are worth waking a thread for: some microseconds of work, which is what that costs.
constexpr int64_t kWorthAThread = 1 << 15;

/// Rows of a matrix of `cols` columns that are; less is run by fewer threads. A multiple of 16.
int64_t RowGrain(int64_t cols) {
  constexpr int64_t kLeastRows = 16;
  return std::max(kLeastRows, kWorthAThread / std::max<int64_t>(cols, 1) / kLeastRows * kLeastRows);
}

/// Rows that are taken at a time: some 10 microseconds of reading, and a multiple of the rows that kernels run
/// together.
int64_t RowPiece(const WeightView& view) {
  constexpr int64_t kPieceBytes = 1 << 17;
  constexpr int64_t kLeastRows = 16;
  const int64_t row_bytes = std::max<int64_t>(view.code_bytes / std::max<int64_t>(view.rows, 1), 1);
  return std::max(kLeastRows, kPieceBytes / row_bytes / kLeastRows * kLeastRows);
}

}  // namespace

size_t MatVecScratchBytes(const MatVecKernel& kernel, const WeightView& view) {
  return RoundUp(kernel.scratch_bytes(view.cols));
}

void MatVec(const MatVecKernel& kernel, ThreadPool& pool, const WeightView& view, const float* x, const float* bias,
            std::span<uint8_t> scratch, float* y) {
  kernel.prepare(x, view.cols, scratch.data());
  MatVecPrepared(kernel, pool, view, scratch.data(), bias, y);
}

void MatVecPrepared(const MatVecKernel& kernel, ThreadPool& pool, const WeightView& view, const void* scratch,
                    const float* bias, float* y) {
  pool.ParallelForBalanced(
      view.rows, [&](int64_t begin, int64_t end) { kernel.rows(view, scratch, bias, begin, end, y); },
      RowGrain(view.cols), RowPiece(view));
}

size_t MatMulScratchBytes(const MatMulKernel& kernel, const WeightView& view, int64_t m, int threads) {
  return RoundUp(kernel.packed_bytes(m, view.cols)) +
         static_cast<size_t>(threads) * RoundUp(kernel.scratch_bytes(m, view.cols));
}

void MatMul(const MatMulKernel& kernel, ThreadPool& pool, const WeightView& view, const float* x, int64_t ldx,
            int64_t m, const float* bias, std::span<uint8_t> scratch, float* y, int64_t ldy) {
  uint8_t* packed = scratch.data();
  uint8_t* thread_scratch = packed + RoundUp(kernel.packed_bytes(m, view.cols));
  const size_t thread_bytes = RoundUp(kernel.scratch_bytes(m, view.cols));
  pool.ParallelFor(
      m, [&](int64_t begin, int64_t end) { kernel.pack(x, ldx, m, view.cols, begin, end, packed); }, kernel.pack_rows);
  pool.Run([&](int thread) {
    const TaskRange part = PartOf(view.rows, thread, pool.threads(), kernel.row_tile);
    if (part.begin == part.end) return;
    kernel.rows(view, packed, m, bias, part.begin, part.end,
                thread_scratch + static_cast<size_t>(thread) * thread_bytes, y, ldy);
  });
}

void MatVecTogether(ThreadPool& pool, std::span<const ProductPart> parts, const float* x, std::span<uint8_t> scratch) {
  parts.front().matvec->prepare(x, parts.front().view->cols, scratch.data());
  int64_t rows = 0;
  for (const ProductPart& part : parts) rows += part.view->rows;
  // The rows of all parts, one after another.
  pool.ParallelForBalanced(
      rows,
      [&](int64_t begin, int64_t end) {
        int64_t first = 0;
        for (const ProductPart& part : parts) {
          const int64_t from = std::max(begin, first) - first;
          const int64_t to = std::min(end, first + part.view->rows) - first;
          if (from < to) part.matvec->rows(*part.view, scratch.data(), part.bias, from, to, part.y);
          first += part.view->rows;
        }
      },
      RowGrain(parts.front().view->cols), RowPiece(*parts.front().view));
}

void MatMulTogether(ThreadPool& pool, std::span<const ProductPart> parts, const float* x, int64_t ldx, int64_t m,
                    std::span<uint8_t> scratch) {
  const MatMulKernel& kernel = *parts.front().matmul;
  const int64_t cols = parts.front().view->cols;
  uint8_t* packed = scratch.data();
  uint8_t* thread_scratch = packed + RoundUp(kernel.packed_bytes(m, cols));
  size_t thread_bytes = 0;
  for (const ProductPart& part : parts)
    thread_bytes = std::max(thread_bytes, RoundUp(part.matmul->scratch_bytes(m, cols)));
  pool.ParallelFor(
      m, [&](int64_t begin, int64_t end) { kernel.pack(x, ldx, m, cols, begin, end, packed); },
      std::max(kernel.pack_rows, RowGrain(cols) / kernel.pack_rows * kernel.pack_rows));
  int64_t rows = 0;
  for (const ProductPart& part : parts) rows += part.view->rows;
  const auto run = [&](int thread) {
    for (const ProductPart& part : parts) {
      const TaskRange range = PartOf(part.view->rows, thread, pool.threads(), part.matmul->row_tile);
      if (range.begin == range.end) continue;
      part.matmul->rows(*part.view, packed, m, part.bias, range.begin, range.end,
                        thread_scratch + static_cast<size_t>(thread) * thread_bytes, part.y, part.view->rows);
    }
  };
  if (m * rows * cols < 4 * kWorthAThread) {  // a matrix product does more with each weight that it reads
    for (int thread = 0; thread < pool.threads(); ++thread) run(thread);
  } else {
    pool.Run(run);
  }
}

}  // namespace milwright::kernels
