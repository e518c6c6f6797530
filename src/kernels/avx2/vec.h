// The vector type of the AVX2 kernels: 8 floats, with F16C and FMA.
#ifndef MILWRIGHT_KERNELS_AVX2_VEC_H_
#define MILWRIGHT_KERNELS_AVX2_VEC_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace milwright::kernels {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int64_t kWidth = 8;
  /// Rows of W times vectors of X rows that a matrix-matrix tile keeps in registers (16 in all).
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;
  static constexpr int kAttentionVectors = 2;

  /// Lanes 0..n-1 set.
  static __m256i First(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set1(float x) { return _mm256_set1_ps(x); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static F LoadN(const float* p, int64_t n) { return _mm256_maskload_ps(p, First(n)); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static void StoreN(float* p, int64_t n, F x) { _mm256_maskstore_ps(p, First(n), x); }
  static void StoreUpTo(float* p, int64_t n, F x) { n >= kWidth ? Store(p, x) : StoreN(p, n, x); }

  static float FromHalf(uint16_t h) { return _cvtsh_ss(h); }
  static F LoadHalf(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i_u*>(p))); }
  static F LoadHalfN(const void* p, int64_t n) { return _mm256_cvtph_ps(LoadBytes(p, n * 2)); }
  static __m128i ToHalf(F x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static void StoreHalf(uint16_t* p, F x) { _mm_storeu_si128(reinterpret_cast<__m128i_u*>(p), ToHalf(x)); }
  static void StoreHalfN(uint16_t* p, int64_t n, F x) {
    const __m128i halves = ToHalf(x);
    std::memcpy(p, &halves, static_cast<size_t>(n) * 2);
  }
  static F RoundToHalf(F x) { return _mm256_cvtph_ps(ToHalf(x)); }
  static F LoadI8(const void* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i_u*>(p))));
  }
  static F LoadI8N(const void* p, int64_t n) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(LoadBytes(p, n))); }
  static F LoadU8(const void* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i_u*>(p))));
  }
  static F LoadU8N(const void* p, int64_t n) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(LoadBytes(p, n))); }

  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }    ///< a * b + c
  static F Fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }  ///< c - a * b
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }              ///< b if either is NaN
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }              ///< b if either is NaN
  static F Abs(F x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x); }
  static F Round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// x * 2^n for a whole n in -126..127
  static F TimesPow2(F x, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  /// x < y ? a : b
  static F SelectLess(F x, F y, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ)); }
  static bool AnyEqual(F x, F y) { return _mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_EQ_OQ)) != 0; }

  static float Sum(F x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  static float Largest(F x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  /// out[i] = sum of x[i], for four vectors.
  static void Sum4(const F* x, float* out) {
    const __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
  }

  /// The fields of `packed` that lie behind each other, one per byte of `mask`.
  static uint64_t SpreadBits(uint64_t packed, uint64_t mask) { return _pdep_u64(packed, mask); }

  /// out[i] = table[codes[i]]; table has 2^bits entries of at most 256, and `codes` is readable up to a whole vector.
  static void LookUp(const float* table, int bits, const uint8_t* codes, int64_t n, float* out) {
    if (bits <= 4) {
      // Tables of up to 16 entries live in two registers.
      const F low = Load(table);
      const F high = Load(table + 8);
      for (int64_t i = 0; i < n; i += kWidth) {
        const __m256i indices = Indices(codes + i);
        const F second = _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28));  // bit 3 becomes the sign
        StoreUpTo(
            out + i, n - i,
            _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, indices), _mm256_permutevar8x32_ps(high, indices), second));
      }
      return;
    }
    for (int64_t i = 0; i < n; i += kWidth) {
      StoreUpTo(out + i, n - i, _mm256_i32gather_ps(table, Indices(codes + i), 4));
    }
  }

  /// Lane i gets the next of `values` if bit i is set, else 0.
  static F Expand(const float* values, uint32_t bits) {
    alignas(32) float lanes[kWidth];
    for (unsigned i = 0; i < kWidth; ++i) {
      const uint32_t bit = (bits >> i) & 1U;
      lanes[i] = bit != 0 ? *values : 0.0F;
      values += bit;
    }
    return _mm256_load_ps(lanes);
  }

 private:
  static __m256i Indices(const uint8_t* codes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(codes)));
  }
  static __m128i LoadBytes(const void* p, int64_t n) {
    __m128i bytes = _mm_setzero_si128();
    std::memcpy(&bytes, p, static_cast<size_t>(n));
    return bytes;
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX2_VEC_H_
