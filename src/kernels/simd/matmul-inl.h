// Exact blocked matrix-matrix product for any weight format, written once for all vector instruction sets.
//
// Y[M, N] = X W^T. Lanes hold different rows of X, which is packed once per product as [group of kWidth
// rows][K][kWidth]. Weights of a panel of rows and kDecodeChunk columns are decoded once, into a buffer that stays in
// the second-level cache, and then broadcast: so no transposition of weights is needed whatever their format. A tile of
// kTileRows weights by kTileVectors groups is accumulated in registers.
#ifndef MILWRIGHT_KERNELS_SIMD_MATMUL_INL_H_
#define MILWRIGHT_KERNELS_SIMD_MATMUL_INL_H_

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/simd/decode-inl.h"

namespace milwright::kernels {
namespace {

/// Rows of W that are decoded together: a whole number of tiles for all instruction sets.
constexpr int64_t kPanelRows = 48;

/// Asks for the stored codes of the rows behind a panel while the panel is multiplied: they are read piece by piece, a
/// few columns of many rows at a time, which the processor does not foresee.
class NextRows {
 public:
  /// The `count` rows from `first` on, in `shares` calls of Fetch.
  NextRows(const WeightView& view, int64_t first, int64_t count, int64_t shares) {
    if (view.mask != nullptr) return;  // where a sparse row begins depends on its mask
    const int64_t row_bits = view.cols * CodeBits(view.codec);
    next_ = view.codes + Min(first * row_bits / 8, view.code_bytes);
    end_ = view.codes + Min((first + count) * row_bits / 8, view.code_bytes);
    share_ = (end_ - next_) / shares + 1;
  }

  void Fetch() {
    const uint8_t* until = end_ - next_ > share_ ? next_ + share_ : end_;
    for (; next_ < until; next_ += kLine) __builtin_prefetch(next_, 0, 2);
  }

 private:
  static constexpr int64_t kLine = 64;
  const uint8_t* next_ = nullptr;
  const uint8_t* end_ = nullptr;
  int64_t share_ = 0;
};

/// Adds transposed partial results to the output: sums[n][m] with `stride` floats per n, n in [0, count).
inline void StoreTransposed(const float* sums, int64_t stride, int64_t count, int64_t m, const float* bias, float* y,
                            int64_t ldy) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t n = 0; n < count; ++n) y[i * ldy + n] = sums[n * stride + i] + (bias != nullptr ? bias[n] : 0.0F);
  }
}

template <typename V>
struct FloatMatMul {
  static constexpr int64_t kWidth = V::kWidth;
  static constexpr int64_t kPackRows = kWidth;

  static size_t PackedBytes(int64_t m, int64_t cols) { return static_cast<size_t>(RoundUp(m, kWidth) * cols) * 4; }

  static void Pack(const float* x, int64_t ldx, int64_t, int64_t cols, int64_t begin, int64_t end, void* packed) {
    for (int64_t group = begin; group < end; group += kWidth) {
      float* out = static_cast<float*>(packed) + group * cols;
      const int64_t rows = Min(kWidth, end - group);
      const float* in = x + group * ldx;
      for (int64_t k = 0; k < cols; ++k) {
        for (int64_t r = 0; r < rows; ++r) out[k * kWidth + r] = in[r * ldx + k];
        for (int64_t r = rows; r < kWidth; ++r) out[k * kWidth + r] = 0.0F;
      }
    }
  }

  static size_t ScratchBytes(int64_t m, int64_t) {
    return static_cast<size_t>(kPanelRows * (kDecodeChunk + RoundUp(m, kWidth))) * 4;
  }

  /// sums[r][0..kVectors * kWidth) += x^T w for kRows rows of the panel and kVectors groups of X.
  template <int kRows, int kVectors>
  static void Tile(const float* panel, const float* x, int64_t group_stride, int64_t depth, float* sums,
                   int64_t stride) {
    typename V::F acc[kRows][kVectors];
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      MW_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = V::Load(sums + r * stride + v * kWidth);
    }
    for (int64_t k = 0; k < depth; ++k) {
      typename V::F lanes[kVectors];
      MW_UNROLL for (int v = 0; v < kVectors; ++v) lanes[v] = V::Load(x + v * group_stride + k * kWidth);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        const auto weight = V::Set1(panel[r * kDecodeChunk + k]);
        MW_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = V::Fma(weight, lanes[v], acc[r][v]);
      }
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      MW_UNROLL for (int v = 0; v < kVectors; ++v) V::Store(sums + r * stride + v * kWidth, acc[r][v]);
    }
  }

  /// All rows of a panel for kVectors groups of X.
  template <int kVectors>
  static void PanelTiles(const float* panel, int64_t rows, const float* x, int64_t group_stride, int64_t depth,
                         float* sums, int64_t stride) {
    int64_t r = 0;
    for (; r + V::kTileRows <= rows; r += V::kTileRows) {
      Tile<V::kTileRows, kVectors>(panel + r * kDecodeChunk, x, group_stride, depth, sums + r * stride, stride);
    }
    for (; r + 4 <= rows; r += 4) {
      Tile<4, kVectors>(panel + r * kDecodeChunk, x, group_stride, depth, sums + r * stride, stride);
    }
    for (; r < rows; ++r) {
      Tile<1, kVectors>(panel + r * kDecodeChunk, x, group_stride, depth, sums + r * stride, stride);
    }
  }

  static void Rows(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
                   void* scratch, float* y, int64_t ldy) {
    const int64_t stride = RoundUp(m, kWidth);
    const int64_t cols = view.cols;
    const int64_t group_stride = cols * kWidth;
    auto* panel = static_cast<float*>(scratch);
    float* sums = panel + kPanelRows * kDecodeChunk;
    RowDecoder<V> decoder(view);
    for (int64_t first = begin; first < end; first += kPanelRows) {
      const int64_t rows = Min(kPanelRows, end - first);
      NextRows next(view, first + rows, kPanelRows,
                    (cols + kDecodeChunk - 1) / kDecodeChunk * (stride / (V::kTileVectors * kWidth) + 1));
      for (int64_t i = 0; i < rows * stride; ++i) sums[i] = 0.0F;
      for (int64_t k = 0; k < cols; k += kDecodeChunk) {
        const int64_t depth = Min(kDecodeChunk, cols - k);
        for (int64_t r = 0; r < rows; ++r) decoder.Decode(first + r, k, depth, panel + r * kDecodeChunk);
        int64_t group = 0;
        const auto* x = static_cast<const float*>(packed) + k * kWidth;
        for (; group + V::kTileVectors * kWidth <= stride; group += V::kTileVectors * kWidth) {
          next.Fetch();
          PanelTiles<V::kTileVectors>(panel, rows, x + group * cols, group_stride, depth, sums + group, stride);
        }
        for (; group < stride; group += kWidth) {
          PanelTiles<1>(panel, rows, x + group * cols, group_stride, depth, sums + group, stride);
        }
      }
      const float* added = bias != nullptr ? bias + first : nullptr;
      if constexpr (requires { &V::StoreTransposed; }) {
        V::StoreTransposed(sums, kWidth, stride, rows, m, added, y + first, ldy);
      } else {
        StoreTransposed(sums, stride, rows, m, added, y + first, ldy);
      }
    }
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_MATMUL_INL_H_
