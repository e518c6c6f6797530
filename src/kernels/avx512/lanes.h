// Scales and offsets spread over lanes, for kernels whose 16 lanes hold runs of consecutive columns of one row.
#ifndef MILWRIGHT_KERNELS_AVX512_LANES_H_
#define MILWRIGHT_KERNELS_AVX512_LANES_H_

#include "kernels/avx512/vec.h"
#include "kernels/simd/decode-inl.h"

namespace milwright::kernels {
namespace {

/// Reads the entries of a grid that belong to one step of kStep columns, lane i holding columns [i, i + 1) * kStep
/// / 16.
/// kHalf: the values are known to be fp16, which is the common case.
template <int kStep, bool kHalf>
class LaneGrid {
 public:
  static constexpr int kRun = kStep / 16;

  /// Whether every lane lies in one block and a step holds at most 8 blocks.
  static bool Fits(const Grid& grid, int64_t cols) {
    const int64_t block = grid.col_block;
    if (block >= cols || block % kStep == 0) return true;
    return block % kRun == 0 && kStep % block == 0 && kStep / block <= 8;
  }

  LaneGrid(const Grid& grid, int64_t cols)
      : grid_(grid),
        columns_(GridColumns(grid, cols)),
        entries_(grid.col_block >= kStep || grid.col_block >= cols ? 1 : kStep / grid.col_block),
        steps_per_entry_(entries_ == 1 ? (grid.col_block + kStep - 1) / kStep : 1) {
    alignas(64) int32_t index[16];
    for (int lane = 0; lane < 16; ++lane) {
      index[lane] = entries_ == 1 ? 0 : static_cast<int32_t>(lane * kRun / grid.col_block);
    }
    index_ = _mm512_load_si512(index);
    all_ = First(entries_);
  }

  /// Number of the first entry of a row.
  int64_t RowEntry(int64_t row) const { return (grid_.row_block == 1 ? row : row / grid_.row_block) * columns_; }

  /// Goes to the first step of a row; the position is the same for all rows, so that nothing is divided per row and
  /// step.
  void Rewind() {
    entry_ = 0;
    steps_left_ = steps_per_entry_;
  }
  void Advance() {
    if (--steps_left_ == 0) {
      entry_ += entries_;
      steps_left_ = steps_per_entry_;
    }
  }

  /// The values of the current step for the row whose RowEntry is `row_entry`. kFull: all kStep columns exist.
  template <bool kFull>
  __m512 Load(int64_t row_entry) const {
    if constexpr (kFull) return LoadEntries(row_entry + entry_, entries_, all_);
    const int64_t count = Min(entries_, columns_ - entry_);
    return LoadEntries(row_entry + entry_, count, First(count));
  }

 private:
  static __mmask8 First(int64_t n) { return static_cast<__mmask8>(_bzhi_u32(0xFFU, static_cast<unsigned>(n))); }

  __m512 LoadEntries(int64_t entry, int64_t count, __mmask8 mask) const {
    const auto* bytes = static_cast<const uint8_t*>(grid_.data);
    __m256 values;
    if (kHalf || grid_.type == DataType::kFp16) {
      values = _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, bytes + entry * 2));
    } else if (grid_.type == DataType::kFp32) {
      values = _mm256_maskz_loadu_ps(mask, bytes + entry * 4);
    } else {
      values = _mm256_cvtepi32_ps(LoadIntegers(bytes, entry, count, mask));
    }
    return _mm512_permutexvar_ps(index_, _mm512_castps256_ps512(values));
  }

  __m256i LoadIntegers(const uint8_t* bytes, int64_t entry, int64_t count, __mmask8 mask) const {
    if (grid_.type == DataType::kInt8) return _mm256_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, bytes + entry));
    if (grid_.type == DataType::kUInt8) return _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, bytes + entry));
    uint64_t nibbles = 0;
    const auto first = static_cast<unsigned>(entry & 1);
    const auto last_byte = static_cast<unsigned>(first + count - 1) / 2;
    for (unsigned i = 0; i <= last_byte; ++i) nibbles |= uint64_t{bytes[entry / 2 + i]} << (8 * i);
    const __m256i codes = _mm256_cvtepu8_epi32(
        _mm_cvtsi64_si128(static_cast<int64_t>(_pdep_u64(nibbles >> (4 * first), 0x0F0F0F0F0F0F0F0FU))));
    if (grid_.type == DataType::kUInt4) return codes;
    const __m256i eight = _mm256_set1_epi32(8);
    return _mm256_sub_epi32(_mm256_xor_si256(codes, eight), eight);
  }

  const Grid grid_;
  const int64_t columns_;
  const int64_t entries_;          // per step
  const int64_t steps_per_entry_;  // 1 when a step has several entries
  int64_t entry_ = 0;
  int64_t steps_left_ = 1;
  __m512i index_;
  __mmask8 all_;
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_LANES_H_
