// Exact products with 3-, 6- and 8-bit look-up tables of fp16 values.
//
// 64 codes are spread to one byte each (vpermb and vpmultishiftqb), looked up twice in registers, once for the low
// bytes and once for the high bytes of the table's fp16 values, and interleaved to 64 fp16 weights. vpermb uses 6 bits
// of an index; a table of 8 entries is repeated, so what lies above a code does not matter. The interleaving leaves the
// columns of 64 in another order, in which x is brought once per product.
#if defined(__x86_64__)

#include <type_traits>

#include "kernels/avx512/extensions.h"
#include "kernels/avx512/vec.h"
#include "kernels/simd/matvec-inl.h"

namespace milwright::kernels {
namespace {

constexpr int kColumns = 64;

/// Column of 64 that lane `lane` of vector `vector` holds after interleaving and splitting.
constexpr int ColumnAt(int vector, int lane) {
  const int quarter = vector % 2 * 2 + lane / 8;  // 128-bit lane of the bytes
  return quarter * 16 + vector / 2 * 8 + lane % 8;
}

size_t ScratchBytes(int64_t cols) { return FloatBytes(RoundUp(cols, kColumns)); }

void Prepare(const float* x, int64_t cols, void* scratch) {
  auto* out = static_cast<float*>(scratch);
  for (int64_t first = 0; first < cols; first += kColumns) {
    for (int vector = 0; vector < 4; ++vector) {
      for (int lane = 0; lane < 16; ++lane) {
        const int64_t k = first + ColumnAt(vector, lane);
        *out++ = k < cols ? x[k] : 0.0F;
      }
    }
  }
}

/// The low and the high bytes of a table's entries.
template <int kBits>
struct Planes {
  static constexpr int kRegisters = kBits == 8 ? 4 : 1;
  __m512i low[kRegisters];
  __m512i high[kRegisters];

  explicit Planes(const uint8_t* table) {
    alignas(64) uint8_t bytes[2][kRegisters * 64];
    for (int i = 0; i < kRegisters * 64; ++i) {
      const int entry = i % (1 << kBits);
      bytes[0][i] = table[entry * 2];
      bytes[1][i] = table[entry * 2 + 1];
    }
    for (int i = 0; i < kRegisters; ++i) {
      low[i] = _mm512_load_si512(bytes[0] + i * 64);
      high[i] = _mm512_load_si512(bytes[1] + i * 64);
    }
  }

  static __m512i LookUp(const __m512i* plane, __m512i codes) {
    if constexpr (kRegisters == 1) {
      return _mm512_permutexvar_epi8(codes, plane[0]);
    } else {
      return _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), _mm512_permutex2var_epi8(plane[0], codes, plane[1]),
                                    _mm512_permutex2var_epi8(plane[2], codes, plane[3]));
    }
  }
};

/// Control vectors that spread eight codes of kBits bits from kBits bytes to eight bytes.
template <int kBits>
struct Spreader {
  __m512i bytes;
  __m512i shifts;

  Spreader() {
    alignas(64) uint8_t byte[64];
    alignas(64) uint8_t shift[64];
    for (int i = 0; i < 64; ++i) {
      byte[i] = static_cast<uint8_t>((i / 8 * kBits + i % 8) % 64);
      shift[i] = static_cast<uint8_t>(i % 8 * kBits);
    }
    bytes = _mm512_load_si512(byte);
    shifts = _mm512_load_si512(shift);
  }

  __m512i operator()(__m512i packed) const {
    if constexpr (kBits == 8) return packed;
    return _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(bytes, packed));
  }
};

template <int kBits>
struct TableRows {
  static constexpr int64_t kStepBytes = 8 * kBits;  // of 64 codes

  static bool Supports(const WeightView& view, Precision) {
    return IsLut(view.codec) && CodeBits(view.codec) == kBits && view.mask == nullptr && !view.round_to_half &&
           !view.offset && view.table.type == DataType::kFp16 && view.table.col_block >= view.cols &&
           (!view.scale || view.scale.col_block >= view.cols) && view.cols * kBits % 8 == 0 &&
           __builtin_cpu_supports("avx512vbmi") != 0;
  }

  static __m512i LoadBytes(const uint8_t* p, int64_t n) {
    return _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, static_cast<unsigned>(n)), p);
  }

  /// Adds the products of 64 columns to even and odd, per lane.
  template <int kRows, bool kFull>
  static void Step(const uint8_t* codes, int64_t row_bytes, int64_t bytes, const float* x,
                   const Spreader<kBits>& spread, const Planes<kBits>& planes, __m512* even, __m512* odd) {
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      const uint8_t* p = codes + r * row_bytes;
      Prefetch(p + kPrefetchBytes);
      const __m512i index = spread(LoadBytes(p, kFull ? kStepBytes : bytes));
      const __m512i low = Planes<kBits>::LookUp(planes.low, index);
      const __m512i high = Planes<kBits>::LookUp(planes.high, index);
      const __m512i first = _mm512_unpacklo_epi8(low, high);
      const __m512i second = _mm512_unpackhi_epi8(low, high);
      const auto half = [](__m512i halves, auto upper) {
        return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, decltype(upper)::value));
      };
      using Lower = std::integral_constant<int, 0>;
      using Upper = std::integral_constant<int, 1>;
      even[r] = _mm512_fmadd_ps(half(first, Lower()), _mm512_loadu_ps(x), even[r]);
      odd[r] = _mm512_fmadd_ps(half(first, Upper()), _mm512_loadu_ps(x + 16), odd[r]);
      even[r] = _mm512_fmadd_ps(half(second, Lower()), _mm512_loadu_ps(x + 32), even[r]);
      odd[r] = _mm512_fmadd_ps(half(second, Upper()), _mm512_loadu_ps(x + 48), odd[r]);
    }
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const auto* x = static_cast<const float*>(scratch);
    const int64_t row_bytes = view.cols * kBits / 8;
    const Spreader<kBits> spread;
    int64_t group_begin = begin;
    while (group_begin < end) {
      const int64_t group = group_begin / view.table.row_block;
      const int64_t group_end = Min((group + 1) * view.table.row_block, end);
      const Planes<kBits> planes(static_cast<const uint8_t*>(view.table.data) + group * (int64_t{2} << kBits));
      ForRows<4>(group_begin, group_end, [&]<int kRows>(int64_t row) {
        const uint8_t* codes = view.codes + row * row_bytes;
        __m512 even[kRows];
        __m512 odd[kRows];
        MW_UNROLL for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
        int64_t k = 0;
        for (; k + kColumns <= view.cols; k += kColumns, codes += kStepBytes) {
          Step<kRows, true>(codes, row_bytes, kStepBytes, x + k, spread, planes, even, odd);
        }
        if (k < view.cols) {
          Step<kRows, false>(codes, row_bytes, (view.cols - k) * kBits / 8, x + k, spread, planes, even, odd);
        }
        MW_UNROLL for (int r = 0; r < kRows; ++r) {
          float sum = _mm512_reduce_add_ps(_mm512_add_ps(even[r], odd[r]));
          if (view.scale) sum *= GridLoad<Avx512>(view.scale, GridEntry(view.scale, row + r, 0, view.cols));
          y[row + r] = sum + (bias != nullptr ? bias[row + r] : 0.0F);
        }
      });
      group_begin = group_end;
    }
  }
};

template <int kBits>
constexpr MatVecKernel MakeKernel(const char* name) {
  return {name, Operands::kFp32, TableRows<kBits>::Supports, ScratchBytes, Prepare, TableRows<kBits>::Rows};
}

}  // namespace

constinit const MatVecKernel kMatVecTableVbmi[3] = {
    MakeKernel<3>("matvec_f32_lut3_avx512vbmi"),
    MakeKernel<6>("matvec_f32_lut6_avx512vbmi"),
    MakeKernel<8>("matvec_f32_lut8_avx512vbmi"),
};

}  // namespace milwright::kernels

#endif
