// Exact matrix-vector products, written once for all vector instruction sets.
//
// Several rows run side by side so that loads of x are shared and additions overlap; the order of the sum of one row
// does not depend on how many run with it, so results do not depend on how rows are split over threads.
#ifndef MILWRIGHT_KERNELS_SIMD_MATVEC_INL_H_
#define MILWRIGHT_KERNELS_SIMD_MATVEC_INL_H_

#include <cstdint>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/simd/decode-inl.h"

namespace milwright::kernels {
namespace {

/// How far ahead of the loads weights are prefetched, and into which cache: the second level takes more requests at a
/// time than the first. Whole decode steps of a 0.6B model in fp16, medians of five sittings: 82 % of the read
/// bandwidth with 8 KB into the first level, 86 % with 8 KB and 88 % with 16 KB into the second; other formats do not
/// care.
constexpr int64_t kPrefetchBytes = 16384;

inline void Prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

/// Calls fn.template operator()<rows>(first_row) over [begin, end) with as many rows at a time as possible.
template <int kRows, typename Fn>
void ForRows(int64_t begin, int64_t end, Fn fn) {
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows) fn.template operator()<kRows>(row);
  for (; row < end; ++row) fn.template operator()<1>(row);
}

inline bool SupportsAll(const WeightView&, Precision) { return true; }

template <Codec kCodec>
bool SupportsDense(const WeightView& view, Precision) {
  return view.codec == kCodec && view.mask == nullptr && !view.offset && !view.scale;
}

inline size_t FloatBytes(int64_t cols) { return static_cast<size_t>(cols) * sizeof(float); }

inline void CopyActivation(const float* x, int64_t cols, void* scratch) { std::memcpy(scratch, x, FloatBytes(cols)); }

/// fp32 or fp16 weights: load, convert, multiply and add.
template <typename V, bool kHalf>
struct FloatRows {
  static constexpr int64_t kBytes = kHalf ? 2 : 4;

  static typename V::F Load(const uint8_t* p) {
    if constexpr (kHalf) return V::LoadHalf(p);
    return V::Load(reinterpret_cast<const float*>(p));
  }
  static typename V::F LoadN(const uint8_t* p, int64_t n) {
    if constexpr (kHalf) return V::LoadHalfN(p, n);
    return V::LoadN(reinterpret_cast<const float*>(p), n);
  }

  template <int kRows>
  static void Dot(const uint8_t* weights, int64_t stride, const float* x, int64_t cols, float* sums) {
    constexpr int64_t kWidth = V::kWidth;
    typename V::F even[kRows];
    typename V::F odd[kRows];
    MW_UNROLL for (int r = 0; r < kRows; ++r) even[r] = odd[r] = V::Zero();
    int64_t k = 0;
    for (; k + 2 * kWidth <= cols; k += 2 * kWidth) {
      const auto x0 = V::Load(x + k);
      const auto x1 = V::Load(x + k + kWidth);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        const uint8_t* p = weights + r * stride + k * kBytes;
        Prefetch(p + kPrefetchBytes);
        even[r] = V::Fma(Load(p), x0, even[r]);
        odd[r] = V::Fma(Load(p + kWidth * kBytes), x1, odd[r]);
      }
    }
    for (; k < cols; k += kWidth) {
      const int64_t n = Min(kWidth, cols - k);
      const auto x0 = V::LoadN(x + k, n);
      MW_UNROLL for (int r = 0; r < kRows; ++r) even[r] =
          V::Fma(LoadN(weights + r * stride + k * kBytes, n), x0, even[r]);
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) sums[r] = V::Sum(V::Add(even[r], odd[r]));
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const auto* x = static_cast<const float*>(scratch);
    const int64_t stride = view.cols * kBytes;
    ForRows<4>(begin, end, [&]<int kRows>(int64_t row) {
      float sums[kRows];
      Dot<kRows>(view.codes + row * stride, stride, x, view.cols, sums);
      MW_UNROLL for (int r = 0; r < kRows; ++r) y[row + r] = sums[r] + (bias != nullptr ? bias[row + r] : 0.0F);
    });
  }
};

/// (u)int8 weights with scales (and offsets) per block of columns that is a whole number of vectors, or per row.
template <typename V, bool kSigned>
struct ByteRows {
  static bool Supports(const WeightView& view, Precision) {
    return view.codec == (kSigned ? Codec::kInt8 : Codec::kUInt8) && view.mask == nullptr && view.scale &&
           !view.round_to_half && BlockFits(view.scale, view.cols) &&
           (!view.offset || (view.offset.col_block == view.scale.col_block || view.offset.col_block >= view.cols));
  }

  static bool BlockFits(const Grid& grid, int64_t cols) {
    return grid.col_block >= cols || grid.col_block % V::kWidth == 0;
  }

  static typename V::F Load(const uint8_t* p) { return kSigned ? V::LoadI8(p) : V::LoadU8(p); }
  static typename V::F LoadN(const uint8_t* p, int64_t n) { return kSigned ? V::LoadI8N(p, n) : V::LoadU8N(p, n); }

  /// One block of columns: acc[r] += scale[r] * sum (code - offset) x, per lane.
  template <int kRows, bool kOffset>
  static void Block(const uint8_t* weights, int64_t stride, const float* x, int64_t count, const float* scales,
                    const float* offsets, typename V::F* acc) {
    constexpr int64_t kWidth = V::kWidth;
    typename V::F even[kRows];
    typename V::F odd[kRows];
    MW_UNROLL for (int r = 0; r < kRows; ++r) even[r] = odd[r] = V::Zero();
    const auto code = [&](typename V::F value, int r) {
      if constexpr (kOffset) return V::Sub(value, V::Set1(offsets[r]));
      return value;
    };
    int64_t k = 0;
    for (; k + 2 * kWidth <= count; k += 2 * kWidth) {
      const auto x0 = V::Load(x + k);
      const auto x1 = V::Load(x + k + kWidth);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        const uint8_t* p = weights + r * stride + k;
        Prefetch(p + kPrefetchBytes);
        even[r] = V::Fma(code(Load(p), r), x0, even[r]);
        odd[r] = V::Fma(code(Load(p + kWidth), r), x1, odd[r]);
      }
    }
    for (; k < count; k += kWidth) {
      const int64_t n = Min(kWidth, count - k);
      const auto x0 = V::LoadN(x + k, n);
      MW_UNROLL for (int r = 0; r < kRows; ++r) even[r] =
          V::Fma(code(LoadN(weights + r * stride + k, n), r), x0, even[r]);
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) acc[r] = V::Fma(V::Add(even[r], odd[r]), V::Set1(scales[r]), acc[r]);
  }

  template <bool kOffset>
  static void RowsOf(const WeightView& view, const float* x, const float* bias, int64_t begin, int64_t end, float* y) {
    const int64_t block = Min(view.scale.col_block, view.cols);
    const bool offset_per_block = view.offset && view.offset.col_block < view.cols;
    ForRows<4>(begin, end, [&]<int kRows>(int64_t row) {
      typename V::F acc[kRows];
      int64_t scale_entry[kRows];
      int64_t offset_entry[kRows];
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        acc[r] = V::Zero();
        scale_entry[r] = GridEntry(view.scale, row + r, 0, view.cols);
        if constexpr (kOffset) offset_entry[r] = GridEntry(view.offset, row + r, 0, view.cols);
      }
      for (int64_t k = 0; k < view.cols; k += block) {
        float scales[kRows];
        float offsets[kRows] = {};
        MW_UNROLL for (int r = 0; r < kRows; ++r) {
          scales[r] = GridLoad<V>(view.scale, scale_entry[r]++);
          if constexpr (kOffset) {
            offsets[r] = GridLoad<V>(view.offset, offset_entry[r]);
            if (offset_per_block) ++offset_entry[r];
          }
        }
        Block<kRows, kOffset>(view.codes + row * view.cols + k, view.cols, x + k, Min(block, view.cols - k), scales,
                              offsets, acc);
      }
      MW_UNROLL for (int r = 0; r < kRows; ++r) y[row + r] = V::Sum(acc[r]) + (bias != nullptr ? bias[row + r] : 0.0F);
    });
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const auto* x = static_cast<const float*>(scratch);
    view.offset ? RowsOf<true>(view, x, bias, begin, end, y) : RowsOf<false>(view, x, bias, begin, end, y);
  }
};

/// Every format: decode a chunk of a row into the cache, then multiply.
template <typename V>
void DecodedRows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end, float* y) {
  constexpr int64_t kWidth = V::kWidth;
  const auto* x = static_cast<const float*>(scratch);
  RowDecoder<V> decoder(view);
  alignas(64) float weights[kDecodeChunk];
  for (int64_t row = begin; row < end; ++row) {
    auto even = V::Zero();
    auto odd = V::Zero();
    for (int64_t first = 0; first < view.cols; first += kDecodeChunk) {
      const int64_t count = Min(kDecodeChunk, view.cols - first);
      decoder.Decode(row, first, count, weights);
      int64_t k = 0;
      for (; k + 2 * kWidth <= count; k += 2 * kWidth) {
        even = V::Fma(V::Load(weights + k), V::Load(x + first + k), even);
        odd = V::Fma(V::Load(weights + k + kWidth), V::Load(x + first + k + kWidth), odd);
      }
      for (; k < count; k += kWidth) {
        const int64_t n = Min(kWidth, count - k);
        even = V::Fma(V::LoadN(weights + k, n), V::LoadN(x + first + k, n), even);
      }
    }
    y[row] = V::Sum(V::Add(even, odd)) + (bias != nullptr ? bias[row] : 0.0F);
  }
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_MATVEC_INL_H_
