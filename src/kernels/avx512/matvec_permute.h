// Exact products with 4-, 2- and 1-bit codes (integers and look-up tables): every code is looked up in a register.
//
// A 64-byte load holds 512 / bits consecutive codes of a row; lane i of 32 bits holds a run of 32 / bits of them.
// Shifting all lanes right by j codes brings code j of every run to the bottom, where vpermps reads it as an index (it
// uses 4 bits; narrower tables are repeated to 16 entries, so what lies above the code does not matter). x is permuted
// once per product so that its vectors match: x'[j][i] = x[i * run + j].
#ifndef MILWRIGHT_KERNELS_AVX512_MATVEC_PERMUTE_H_
#define MILWRIGHT_KERNELS_AVX512_MATVEC_PERMUTE_H_

#include "kernels/avx512/lanes.h"
#include "kernels/avx512/vec.h"
#include "kernels/simd/matvec-inl.h"

namespace milwright::kernels {
namespace {

/// Codes of one row at a time: `n` bytes (at most 64) from p on, the rest zero.
inline __m512i LoadCodes(const uint8_t* p, int64_t n) {
  if (n >= 64) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, static_cast<unsigned>(n)), p);
}

template <int kBits>
struct PermuteRows {
  static constexpr int kRun = 32 / kBits;  // codes per lane
  static constexpr int kStep = 16 * kRun;  // codes per load
  static constexpr int kTable = 1 << kBits;

  static bool Supports(const WeightView& view, Precision) {
    if (CodeBits(view.codec) != kBits || view.mask != nullptr || view.round_to_half) return false;
    if (view.cols % (8 / kBits) != 0) return false;  // rows must begin at whole bytes
    if (IsLut(view.codec) && view.table.col_block < view.cols && view.table.col_block % kStep != 0) return false;
    return (!view.scale || LaneGrid<kStep, false>::Fits(view.scale, view.cols)) &&
           (!view.offset || LaneGrid<kStep, false>::Fits(view.offset, view.cols));
  }

  static size_t ScratchBytes(int64_t cols) { return FloatBytes(RoundUp(cols, kStep)); }

  static void Prepare(const float* x, int64_t cols, void* scratch) {
    auto* out = static_cast<float*>(scratch);
    const __m512i runs = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                            _mm512_set1_epi32(kRun));
    int64_t step = 0;
    for (; step + kStep <= cols; step += kStep) {
      for (int j = 0; j < kRun; ++j) {
        _mm512_storeu_ps(out + step + j * 16, _mm512_i32gather_ps(runs, x + step + j, 4));
      }
    }
    if (step == cols) return;
    for (int64_t i = 0; i < kStep; ++i) {
      const int64_t k = step + i;
      out[step + i % kRun * 16 + i / kRun] = k < cols ? x[k] : 0.0F;
    }
  }

  /// The table of a row for the columns from `column` on, repeated to 16 entries.
  static __m512 Table(const WeightView& view, int64_t row, int64_t column) {
    alignas(64) float entries[16];
    if (!IsLut(view.codec)) {
      for (int i = 0; i < 16; ++i) entries[i] = static_cast<float>(view.codec == Codec::kInt4 ? (i ^ 8) - 8 : i);
    } else if (kBits == 4 && view.table.type == DataType::kFp16) {
      const int64_t entry = GridEntry(view.table, row, column, view.cols);
      return Avx512::LoadHalf(static_cast<const uint8_t*>(view.table.data) + entry * 32);
    } else {
      const int64_t entry = GridEntry(view.table, row, column, view.cols) * kTable;
      for (int i = 0; i < 16; ++i) entries[i] = GridLoad<Avx512>(view.table, entry + i % kTable);
    }
    return _mm512_load_ps(entries);
  }

  /// One step of 64 bytes of codes for kRows rows: acc[r] += scale * sum (table[code] - offset) x, per lane.
  template <int kRows, bool kFull, bool kScaled, bool kOffset, typename Scales, typename Offsets>
  static void Step(const uint8_t* codes, int64_t row_bytes, int64_t bytes, const float* x, const __m512* tables,
                   const Scales& scales, const int64_t* scale_rows, const Offsets& offsets, const int64_t* offset_rows,
                   __m512* acc) {
    __m512i words[kRows];
    __m512 sums[kRows];
    __m512 offset[kRows];
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      const uint8_t* p = codes + r * row_bytes;
      Prefetch(p + kPrefetchBytes);
      words[r] = kFull ? _mm512_loadu_si512(p) : LoadCodes(p, bytes);
      sums[r] = kScaled ? _mm512_setzero_ps() : acc[r];
      if constexpr (kOffset) offset[r] = offsets.template Load<kFull>(offset_rows[r]);
    }
    MW_UNROLL for (int j = 0; j < kRun; ++j) {
      const __m512 lanes = _mm512_loadu_ps(x + j * 16);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        __m512 weight = _mm512_permutexvar_ps(words[r], tables[r]);
        if constexpr (kOffset) weight = _mm512_sub_ps(weight, offset[r]);
        sums[r] = _mm512_fmadd_ps(weight, lanes, sums[r]);
        words[r] = _mm512_srli_epi32(words[r], kBits);
      }
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      acc[r] = kScaled ? _mm512_fmadd_ps(sums[r], scales.template Load<kFull>(scale_rows[r]), acc[r]) : sums[r];
    }
  }

  template <bool kScaled, bool kOffset>
  static void RowsOf(const WeightView& view, const float* x, const float* bias, int64_t begin, int64_t end, float* y) {
    const int64_t row_bytes = view.cols * kBits / 8;
    const int64_t segment = IsLut(view.codec) ? Min(view.table.col_block, view.cols) : view.cols;
    LaneGrid<kStep, false> scales(kScaled ? view.scale : Grid{}, view.cols);
    LaneGrid<kStep, false> offsets(kOffset ? view.offset : Grid{}, view.cols);
    ForRows<4>(begin, end, [&]<int kRows>(int64_t row) {
      const uint8_t* codes = view.codes + row * row_bytes;
      __m512 acc[kRows];
      int64_t scale_rows[kRows];
      int64_t offset_rows[kRows];
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        acc[r] = _mm512_setzero_ps();
        scale_rows[r] = scales.RowEntry(row + r);
        offset_rows[r] = offsets.RowEntry(row + r);
      }
      scales.Rewind();
      offsets.Rewind();
      for (int64_t first = 0; first < view.cols; first += segment) {
        __m512 tables[kRows];
        MW_UNROLL for (int r = 0; r < kRows; ++r) tables[r] = Table(view, row + r, first);
        const int64_t last = Min(first + segment, view.cols);
        int64_t k = first;
        for (; k + kStep <= last; k += kStep) {
          Step<kRows, true, kScaled, kOffset>(codes + k * kBits / 8, row_bytes, 64, x + k, tables, scales, scale_rows,
                                              offsets, offset_rows, acc);
          scales.Advance();
          offsets.Advance();
        }
        // Only the last segment has a partial step: the others are whole numbers of steps.
        if (k < last) {
          Step<kRows, false, kScaled, kOffset>(codes + k * kBits / 8, row_bytes, (last - k) * kBits / 8, x + k, tables,
                                               scales, scale_rows, offsets, offset_rows, acc);
        }
      }
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        y[row + r] = _mm512_reduce_add_ps(acc[r]) + (bias != nullptr ? bias[row + r] : 0.0F);
      }
    });
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const auto* x = static_cast<const float*>(scratch);
    const auto run = view.scale ? (view.offset ? RowsOf<true, true> : RowsOf<true, false>)
                                : (view.offset ? RowsOf<false, true> : RowsOf<false, false>);
    run(view, x, bias, begin, end, y);
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_MATVEC_PERMUTE_H_
