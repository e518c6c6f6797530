// Matrix-vector products with int8 activations: 64 multiply-adds per instruction.
//
// vpdpbusd multiplies unsigned by signed bytes and adds groups of four into 32-bit lanes. The weights are the unsigned
// side: signed codes are made unsigned by flipping their top bit, which adds 128 (int8) or 8 (int4), and lanes start at
// minus that times the sum of the activation codes of the lane, which is computed once per product. Lane i of a load
// holds a run of consecutive columns; the activation of int4 is split into even and odd columns, as the nibbles are.
#if defined(__x86_64__)

#include "kernels/avx512/extensions.h"
#include "kernels/avx512/lanes.h"
#include "kernels/avx512/matvec_permute.h"
#include "kernels/avx512/quantize.h"
#include "kernels/avx512/vec.h"

namespace milwright::kernels {
namespace {

/// What a step of 64 bytes of codes needs of the activation.
template <int kBits>
struct Step {
  static constexpr int kColumns = 512 / kBits;
  static constexpr int kParts = 8 / kBits;  // codes per byte
  static constexpr int kRun = kColumns / 16;
  static constexpr int kExcess = 1 << (kBits - 1);  // what flipping the top bit adds to a signed code

  alignas(64) int8_t codes[kParts][64];  // part p of byte b is column b * kParts + p
  alignas(64) int32_t excess[16];        // -kExcess * sum of the codes of each lane
  alignas(64) float scale[16];           // of the block of each lane
  alignas(64) float sum[16];             // scale * sum of the codes of each lane
};

template <int kBits, bool kSigned>
struct VnniRows {
  using Activation = Step<kBits>;
  static constexpr int kColumns = Activation::kColumns;

  static bool Supports(const WeightView& view, Precision precision) {
    constexpr Codec kCodec =
        kBits == 8 ? (kSigned ? Codec::kInt8 : Codec::kUInt8) : (kSigned ? Codec::kInt4 : Codec::kUInt4);
    return precision == Precision::kFast && view.codec == kCodec && view.mask == nullptr && !view.round_to_half &&
           view.cols % Activation::kParts == 0 && view.scale &&
           LaneGrid<kColumns, false>::Fits(view.scale, view.cols) &&
           (!view.offset || LaneGrid<kColumns, false>::Fits(view.offset, view.cols)) && MachineHasVnni();
  }

  static size_t ScratchBytes(int64_t cols) {
    return static_cast<size_t>((cols + kColumns - 1) / kColumns) * sizeof(Activation);
  }

  static void Prepare(const float* x, int64_t cols, void* scratch) {
    auto* step = static_cast<Activation*>(scratch);
    for (int64_t first = 0; first < cols; first += kColumns, ++step) {
      alignas(64) int8_t codes[kColumns] = {};
      float scales[kColumns / kActivationBlock] = {};
      for (int64_t k = 0; k < kColumns && first + k < cols; k += kActivationBlock) {
        scales[k / kActivationBlock] = QuantizeBlockAvx512(x + first + k, cols - first - k, codes + k);
      }
      SplitParts(codes, *step);
      const __m512i ones = _mm512_set1_epi8(1);
      __m512i sums = _mm512_setzero_si512();
      for (const auto& part : step->codes) sums = _mm512_dpbusd_epi32(sums, ones, _mm512_load_si512(part));
      alignas(64) float lane_scales[16];
      for (int lane = 0; lane < 16; ++lane) lane_scales[lane] = scales[lane * Activation::kRun / kActivationBlock];
      const __m512 scale = _mm512_load_ps(lane_scales);
      _mm512_store_si512(step->excess, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-Activation::kExcess)));
      _mm512_store_ps(step->scale, scale);
      _mm512_store_ps(step->sum, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sums)));
    }
  }

  static void SplitParts(const int8_t* codes, Activation& step) {
    if constexpr (kBits == 8) {
      _mm512_store_si512(step.codes[0], _mm512_load_si512(codes));
    } else {
      for (int half = 0; half < 2; ++half) {
        const __m512i pairs = _mm512_load_si512(codes + half * 64);
        _mm256_store_si256(reinterpret_cast<__m256i*>(step.codes[0] + half * 32), _mm512_cvtepi16_epi8(pairs));
        _mm256_store_si256(reinterpret_cast<__m256i*>(step.codes[1] + half * 32),
                           _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
      }
    }
  }

  /// Dot products of 64 bytes of codes with a step of the activation, per lane.
  static __m512i Dot(__m512i codes, const Activation& step) {
    __m512i sums = kSigned ? _mm512_load_si512(step.excess) : _mm512_setzero_si512();
    if constexpr (kBits == 8) {
      if (kSigned) codes = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
      return _mm512_dpbusd_epi32(sums, codes, _mm512_load_si512(step.codes[0]));
    } else {
      // (codes ^ flip) & low in one instruction: truth table of (A ^ B) & C.
      const __m512i low = _mm512_set1_epi8(0x0F);
      const __m512i flip = kSigned ? _mm512_set1_epi8(0x08) : _mm512_setzero_si512();
      const __m512i even = _mm512_ternarylogic_epi32(codes, flip, low, 0x28);
      const __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi32(codes, 4), flip, low, 0x28);
      sums = _mm512_dpbusd_epi32(sums, even, _mm512_load_si512(step.codes[0]));
      return _mm512_dpbusd_epi32(sums, odd, _mm512_load_si512(step.codes[1]));
    }
  }

  template <bool kHalfScale, bool kOffset>
  static void RowsOf(const WeightView& view, const Activation* steps, const float* bias, int64_t begin, int64_t end,
                     float* y) {
    const int64_t row_bytes = view.cols * kBits / 8;
    LaneGrid<kColumns, kHalfScale> scales(view.scale, view.cols);
    LaneGrid<kColumns, false> offsets(kOffset ? view.offset : Grid{}, view.cols);
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
      const Activation* step = steps;
      const auto run = [&]<bool kFull>(int64_t k) {
        const __m512 x_scale = _mm512_load_ps(step->scale);
        MW_UNROLL for (int r = 0; r < kRows; ++r) {
          const uint8_t* p = codes + r * row_bytes + k * kBits / 8;
          Prefetch(p + kPrefetchBytes);
          const __m512i words = kFull ? _mm512_loadu_si512(p) : LoadCodes(p, row_bytes - k * kBits / 8);
          __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(Dot(words, *step)), x_scale);
          if constexpr (kOffset) {
            dot = _mm512_fnmadd_ps(offsets.template Load<kFull>(offset_rows[r]), _mm512_load_ps(step->sum), dot);
          }
          acc[r] = _mm512_fmadd_ps(dot, scales.template Load<kFull>(scale_rows[r]), acc[r]);
        }
        scales.Advance();
        offsets.Advance();
        ++step;
      };
      int64_t k = 0;
      for (; k + kColumns <= view.cols; k += kColumns) run.template operator()<true>(k);
      if (k < view.cols) run.template operator()<false>(k);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        y[row + r] = _mm512_reduce_add_ps(acc[r]) + (bias != nullptr ? bias[row + r] : 0.0F);
      }
    });
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const auto* steps = static_cast<const Activation*>(scratch);
    const auto run = view.scale.type == DataType::kFp16 ? (view.offset ? RowsOf<true, true> : RowsOf<true, false>)
                                                        : (view.offset ? RowsOf<false, true> : RowsOf<false, false>);
    run(view, steps, bias, begin, end, y);
  }
};

/// 4-bit tables for whole rows: entries are rounded to int8 as well, and looked up by vpshufb.
struct VnniTableRows {
  using Ints = VnniRows<4, true>;
  using Activation = Ints::Activation;

  static bool Supports(const WeightView& view, Precision precision) {
    return precision == Precision::kFast && IsRowTable16(view) && view.mask == nullptr && !view.round_to_half &&
           MachineHasVnni();
  }

  static __m512 Dot(__m512i codes, __m512i table, const Activation& step) {
    const __m512i low = _mm512_set1_epi8(0x0F);
    const __m512i even = _mm512_shuffle_epi8(table, _mm512_and_si512(codes, low));
    const __m512i odd = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi32(codes, 4), low));
    // Entries are 128 too large, 16 times what int4 codes are.
    __m512i sums = _mm512_slli_epi32(_mm512_load_si512(step.excess), 4);
    sums = _mm512_dpbusd_epi32(sums, even, _mm512_load_si512(step.codes[0]));
    sums = _mm512_dpbusd_epi32(sums, odd, _mm512_load_si512(step.codes[1]));
    return _mm512_cvtepi32_ps(sums);
  }

  static void Rows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                   float* y) {
    const int64_t row_bytes = view.cols / 2;
    ForRows<4>(begin, end, [&]<int kRows>(int64_t row) {
      __m512 acc[kRows];
      __m512i table[kRows];
      float scale[kRows];
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        acc[r] = _mm512_setzero_ps();
        const int64_t entry = (row + r) / view.table.row_block;
        if (r > 0 && entry == (row + r - 1) / view.table.row_block) {
          table[r] = table[r - 1];
          scale[r] = scale[r - 1];
          continue;
        }
        alignas(16) uint8_t codes[16];
        scale[r] = QuantizeTable16(view.table, entry, codes);
        table[r] = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(codes)));
      }
      const auto* step = static_cast<const Activation*>(scratch);
      const uint8_t* codes = view.codes + row * row_bytes;
      for (int64_t k = 0; k < row_bytes; k += 64, ++step) {
        const __m512 x_scale = _mm512_load_ps(step->scale);
        MW_UNROLL for (int r = 0; r < kRows; ++r) {
          const uint8_t* p = codes + r * row_bytes + k;
          Prefetch(p + kPrefetchBytes);
          acc[r] = _mm512_fmadd_ps(Dot(LoadCodes(p, row_bytes - k), table[r], *step), x_scale, acc[r]);
        }
      }
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        float sum = _mm512_reduce_add_ps(acc[r]) * scale[r];
        if (view.scale) sum *= GridLoad<Avx512>(view.scale, GridEntry(view.scale, row + r, 0, view.cols));
        y[row + r] = sum + (bias != nullptr ? bias[row + r] : 0.0F);
      }
    });
  }
};

template <int kBits, bool kSigned>
constexpr MatVecKernel MakeKernel(const char* name) {
  using Kernel = VnniRows<kBits, kSigned>;
  return {name, Operands::kInt8Activation, Kernel::Supports, Kernel::ScratchBytes, Kernel::Prepare, Kernel::Rows};
}

}  // namespace

constinit const MatVecKernel kMatVecInt8Vnni[5] = {
    MakeKernel<8, true>("matvec_i8_i8_avx512vnni"),
    MakeKernel<8, false>("matvec_i8_u8_avx512vnni"),
    MakeKernel<4, true>("matvec_i8_i4_avx512vnni"),
    MakeKernel<4, false>("matvec_i8_u4_avx512vnni"),
    {"matvec_i8_lut4_avx512vnni", Operands::kInt8Table, VnniTableRows::Supports, VnniRows<4, true>::ScratchBytes,
     VnniRows<4, true>::Prepare, VnniTableRows::Rows},
};

bool MachineHasVnni() { return __builtin_cpu_supports("avx512vnni") != 0; }

int64_t Int8DotStreamVnni(int64_t iterations, float* sink) {
  constexpr int kChains = 12;
  __m512i chains[kChains];
  for (__m512i& chain : chains) chain = _mm512_set1_epi32(static_cast<int>(*sink));
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < iterations; ++i) {
    for (__m512i& chain : chains) chain = _mm512_dpbusd_epi32(chain, ones, ones);
  }
  for (const __m512i& chain : chains) *sink += static_cast<float>(_mm512_reduce_add_epi32(chain));
  return iterations * kChains * 64;
}

}  // namespace milwright::kernels

#endif
