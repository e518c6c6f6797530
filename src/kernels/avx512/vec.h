// The vector type of the AVX-512 kernels: 16 floats.
#ifndef MILWRIGHT_KERNELS_AVX512_VEC_H_
#define MILWRIGHT_KERNELS_AVX512_VEC_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/avx512/transpose.h"

namespace milwright::kernels {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int64_t kWidth = 16;
  /// Rows of W times vectors of X rows that a matrix-matrix tile keeps in registers.
  static constexpr int kTileRows = 12;
  static constexpr int kTileVectors = 2;
  /// Vectors of an attention accumulator that are kept in registers per query.
  static constexpr int kAttentionVectors = 4;

  static __mmask16 First(int64_t n) { return static_cast<__mmask16>(_bzhi_u32(0xFFFFU, static_cast<unsigned>(n))); }

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set1(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadN(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(First(n), p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static void StoreN(float* p, int64_t n, F x) { _mm512_mask_storeu_ps(p, First(n), x); }
  static void StoreUpTo(float* p, int64_t n, F x) { n >= kWidth ? Store(p, x) : StoreN(p, n, x); }

  static float FromHalf(uint16_t h) { return _cvtsh_ss(h); }
  static F LoadHalf(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i_u*>(p))); }
  static F LoadHalfN(const void* p, int64_t n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(n), p)); }
  static __m256i ToHalf(F x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static void StoreHalf(uint16_t* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), ToHalf(x)); }
  static void StoreHalfN(uint16_t* p, int64_t n, F x) { _mm256_mask_storeu_epi16(p, First(n), ToHalf(x)); }
  static F RoundToHalf(F x) { return _mm512_cvtph_ps(ToHalf(x)); }
  static F LoadI8(const void* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i_u*>(p))));
  }
  static F LoadI8N(const void* p, int64_t n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(First(n), p)));
  }
  static F LoadU8(const void* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i_u*>(p))));
  }
  static F LoadU8N(const void* p, int64_t n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(First(n), p)));
  }

  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    ///< a * b + c
  static F Fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  ///< c - a * b
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }              ///< b if either is NaN
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }              ///< b if either is NaN
  static F Abs(F x) { return _mm512_abs_ps(x); }
  static F Round(F x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F TimesPow2(F x, F n) { return _mm512_scalef_ps(x, n); }  ///< x * 2^n for a whole n
  /// x < y ? a : b
  static F SelectLess(F x, F y, F a, F b) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a); }
  static bool AnyEqual(F x, F y) { return _mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ) != 0; }

  static float Sum(F x) { return _mm512_reduce_add_ps(x); }
  static float Largest(F x) { return _mm512_reduce_max_ps(x); }
  /// out[i] = sum of x[i], for four vectors.
  static void Sum4(const F* x, float* out) {
    const __m256 ab = _mm256_hadd_ps(Halves(x[0]), Halves(x[1]));
    const __m256 cd = _mm256_hadd_ps(Halves(x[2]), Halves(x[3]));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
  }

  /// The fields of `packed` that lie behind each other, one per byte of `mask`.
  static uint64_t SpreadBits(uint64_t packed, uint64_t mask) { return _pdep_u64(packed, mask); }

  /// out[i] = table[codes[i]]; table has 2^bits entries of at most 256, and `codes` is readable up to a whole vector.
  static void LookUp(const float* table, int bits, const uint8_t* codes, int64_t n, float* out) {
    if (bits <= 4) {
      const F entries = LoadN(table, int64_t{1} << bits);
      for (int64_t i = 0; i < n; i += kWidth) {
        StoreUpTo(out + i, n - i, _mm512_permutexvar_ps(Indices(codes + i), entries));
      }
      return;
    }
    for (int64_t i = 0; i < n; i += kWidth) {
      StoreUpTo(out + i, n - i, _mm512_i32gather_ps(Indices(codes + i), table, 4));
    }
  }

  /// Lane i gets the next of `values` if bit i is set, else 0.
  static F Expand(const float* values, uint32_t bits) {
    return _mm512_maskz_expand_ps(static_cast<__mmask16>(bits), Load(values));
  }

  /// y[i * ldy + n] = sum (n, i) + bias[n] for n in [0, count), i in [0, m); bias may be null. Sum (n, i) lies at
  /// sums[i / 16 * group_stride + n * row_stride + i % 16]; those up to whole tiles of 16 x 16 are readable.
  static void StoreTransposed(const float* sums, int64_t group_stride, int64_t row_stride, int64_t count, int64_t m,
                              const float* bias, float* y, int64_t ldy) {
    constexpr int64_t kTile = 16;
    for (int64_t n = 0; n < count; n += kTile) {
      const __mmask16 mask = First(count - n < kTile ? count - n : kTile);
      const __m512 added = bias != nullptr ? _mm512_maskz_loadu_ps(mask, bias + n) : _mm512_setzero_ps();
      for (int64_t i = 0; i < m; i += kTile) {
        __m512i rows[kTile];
        MW_UNROLL for (int64_t r = 0; r < kTile; ++r) {
          rows[r] = _mm512_loadu_si512(sums + i / kTile * group_stride + (n + r) * row_stride);
        }
        Transpose16(rows);
        const int64_t last = m - i < kTile ? m - i : kTile;
        for (int64_t r = 0; r < last; ++r) {
          _mm512_mask_storeu_ps(y + (i + r) * ldy + n, mask, _mm512_add_ps(_mm512_castsi512_ps(rows[r]), added));
        }
      }
    }
  }

 private:
  static __m256 Halves(F x) { return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }
  static __m512i Indices(const uint8_t* codes) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(codes)));
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_VEC_H_
