// QuantizeBlock (kernels/quantize.h) with AVX-512: the same operations in the same order, so the same bits.
#ifndef MILWRIGHT_KERNELS_AVX512_QUANTIZE_H_
#define MILWRIGHT_KERNELS_AVX512_QUANTIZE_H_

#include "kernels/avx512/vec.h"
#include "kernels/simd/decode-inl.h"

namespace milwright::kernels {
namespace {

/// Quantises the first min(n, 32) values of x; codes behind them become 0. Writes 32 codes.
inline float QuantizeBlockAvx512(const float* x, int64_t n, int8_t* codes) {
  const __m512 low = Avx512::LoadN(x, Min(n, 16));
  const __m512 high = n > 16 ? Avx512::LoadN(x + 16, Min(n - 16, 16)) : _mm512_setzero_ps();
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  const __m512 inverse = _mm512_set1_ps(largest > 0.0F ? 127.0F / largest : 0.0F);
  const auto store = [inverse](__m512 values, int8_t* out) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(out),
                     _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values, inverse))));
  };
  store(low, codes);
  store(high, codes + 16);
  return largest / 127.0F;
}

/// The 16 table entries that begin at entry * 16, as unsigned bytes: 128 + round(t * 127 / max|t|). Returns max|t| /
/// 127.
inline float QuantizeTable16(const Grid& table, int64_t entry, uint8_t* codes) {
  const auto* bytes = static_cast<const uint8_t*>(table.data);
  const __m512 values =
      table.type == DataType::kFp16
          ? _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(bytes + entry * 32)))
          : _mm512_loadu_ps(bytes + entry * 64);
  const float largest = _mm512_reduce_max_ps(_mm512_abs_ps(values));
  const __m512 inverse = _mm512_set1_ps(largest > 0.0F ? 127.0F / largest : 0.0F);
  const __m128i rounded = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(values, inverse)));
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(codes), _mm_xor_si128(rounded, _mm_set1_epi8(static_cast<char>(0x80))));
  return largest / 127.0F;
}

/// Whether a view is a 4-bit table for whole rows, of floats, with a scale for whole rows if any: what QuantizeTable16
/// serves.
inline bool IsRowTable16(const WeightView& view) {
  return view.codec == Codec::kLut4 && view.table.col_block >= view.cols && !view.offset && view.cols % 2 == 0 &&
         (!view.scale || view.scale.col_block >= view.cols) &&
         (view.table.type == DataType::kFp16 || view.table.type == DataType::kFp32);
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_QUANTIZE_H_
