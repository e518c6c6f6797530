// Transposition of 16 x 16 values of 32 bits in registers.
#ifndef MILWRIGHT_KERNELS_AVX512_TRANSPOSE_H_
#define MILWRIGHT_KERNELS_AVX512_TRANSPOSE_H_

#include <immintrin.h>

#include "kernels/simd/unroll.h"

namespace milwright::kernels {
namespace {

/// rows[i] lane j <-> rows[j] lane i.
inline void Transpose16(__m512i (&rows)[16]) {
  __m512i pairs[16];
  MW_UNROLL for (int i = 0; i < 16; i += 2) {  // 2 x 2
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  MW_UNROLL for (int i = 0; i < 16; i += 4) {  // 4 x 4, in each quarter of the registers
    rows[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  MW_UNROLL for (int i = 0; i < 4; ++i) {  // the quarters of rows i, i + 4, i + 8, i + 12
    const __m512i even_low = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    const __m512i even_high = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
    const __m512i odd_high = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
    rows[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xDD);
    rows[i + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[i + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD);
  }
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_TRANSPOSE_H_
