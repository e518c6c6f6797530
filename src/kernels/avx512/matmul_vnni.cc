// Matrix-matrix product with int8 activations. Lanes hold rows of X, as in simd/matmul-inl.h; a step is one block of 32
// columns (eight vpdpbusd per lane and row of W), after which the 32-bit sums are scaled by the activation's and the
// weights' scale of that block and added in fp32.
#if defined(__x86_64__)

#include "kernels/avx512/extensions.h"
#include "kernels/avx512/quantize.h"
#include "kernels/avx512/vec.h"
#include "kernels/simd/matmul-inl.h"

namespace milwright::kernels {
namespace {

constexpr int64_t kWidth = 16;
constexpr int64_t kBlock = kActivationBlock;
constexpr int64_t kPanelBlocks = kDecodeChunk / kBlock;
constexpr int kTileRows = 6;

/// One block of 32 columns of 16 rows of X.
struct ActivationBlock {
  alignas(64) int8_t codes[kBlock / 4][kWidth][4];
  alignas(64) float scale[kWidth];
  alignas(64) int32_t sum[kWidth];  // of the codes of each row
};

/// One row of a decoded panel: unsigned codes, and per block the scale and what the codes are too large by.
struct PanelRow {
  alignas(64) uint8_t codes[kDecodeChunk];
  float scale[kPanelBlocks];
  float excess[kPanelBlocks];  // only where weights have offsets
};

bool BlockFits(const Grid& grid, int64_t cols) { return grid.col_block >= cols || grid.col_block % kBlock == 0; }

bool Supports(const WeightView& view, Precision precision) {
  return precision == Precision::kFast && CodeBits(view.codec) <= 8 && !IsLut(view.codec) && view.mask == nullptr &&
         !view.round_to_half && (CodeBits(view.codec) == 8 || view.cols % 2 == 0) &&
         (!view.scale || BlockFits(view.scale, view.cols)) && (!view.offset || BlockFits(view.offset, view.cols)) &&
         MachineHasVnni();
}

bool SupportsTable(const WeightView& view, Precision precision) {
  return precision == Precision::kFast && IsRowTable16(view) && view.mask == nullptr && !view.round_to_half &&
         MachineHasVnni();
}

int64_t Blocks(int64_t cols) { return (cols + kBlock - 1) / kBlock; }

size_t PackedBytes(int64_t m, int64_t cols) {
  return static_cast<size_t>(RoundUp(m, kWidth) / kWidth * Blocks(cols)) * sizeof(ActivationBlock);
}

void Pack(const float* x, int64_t ldx, int64_t, int64_t cols, int64_t begin, int64_t end, void* packed) {
  for (int64_t group = begin; group < end; group += kWidth) {
    auto* blocks = static_cast<ActivationBlock*>(packed) + group / kWidth * Blocks(cols);
    for (int64_t r = 0; r < kWidth; ++r) {
      for (int64_t k = 0; k < cols; k += kBlock) {
        ActivationBlock& block = blocks[k / kBlock];
        alignas(32) int8_t codes[kBlock] = {};
        const bool real = group + r < end;
        block.scale[r] = real ? QuantizeBlockAvx512(x + (group + r) * ldx + k, cols - k, codes) : 0.0F;
        int32_t sum = 0;
        for (const int8_t code : codes) sum += code;
        block.sum[r] = sum;
        for (int64_t i = 0; i < kBlock; i += 4) std::memcpy(block.codes[i / 4][r], codes + i, 4);
      }
    }
  }
}

size_t ScratchBytes(int64_t m, int64_t) {
  return static_cast<size_t>(kPanelRows) * (sizeof(PanelRow) + static_cast<size_t>(RoundUp(m, kWidth)) * 4);
}

/// Codes [column, column + depth) of a row made unsigned, or their entries of `table` (16 bytes) when there is one;
/// behind them anything up to a whole block, where the activation is 0.
void DecodeCodes(const WeightView& view, int64_t row, int64_t column, int64_t depth, const uint8_t* table,
                 uint8_t* out) {
  const int64_t element = row * view.cols + column;
  if (CodeBits(view.codec) == 8) {
    const __m512i flip = _mm512_set1_epi8(view.codec == Codec::kInt8 ? static_cast<char>(0x80) : '\0');
    for (int64_t k = 0; k < depth; k += 64) {
      const __mmask64 mask = _bzhi_u64(~uint64_t{0}, static_cast<unsigned>(Min(64, depth - k)));
      _mm512_store_si512(out + k, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, view.codes + element + k), flip));
    }
    return;
  }
  const __m512i flip = _mm512_set1_epi8(view.codec == Codec::kInt4 ? 0x08 : 0);
  const __m512i entries = table != nullptr
                              ? _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(table)))
                              : _mm512_setzero_si512();
  for (int64_t k = 0; k < depth; k += 64) {
    const auto mask = static_cast<__mmask32>(_bzhi_u32(~0U, static_cast<unsigned>(Min(32, (depth - k) / 2))));
    const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, view.codes + (element + k) / 2));
    const __m512i codes = _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi16(bytes, 4)), _mm512_set1_epi8(0x0F));
    const __m512i weights = table != nullptr ? _mm512_shuffle_epi8(entries, codes) : _mm512_xor_si512(codes, flip);
    _mm512_store_si512(out + k, weights);
  }
}

/// What DecodeCodes makes codes larger by.
int32_t CodeExcess(Codec codec) {
  if (codec == Codec::kInt8 || IsLut(codec)) return 128;
  return codec == Codec::kInt4 ? 8 : 0;
}

/// The scales of `blocks` blocks (at most kPanelBlocks) of a row from `column` on, times `factor`.
void LoadScales(const WeightView& view, int64_t row, int64_t column, int64_t blocks, float factor, float* out) {
  static_assert(kPanelBlocks == 8);
  if (!view.scale || view.scale.col_block >= view.cols) {
    const float scale = view.scale ? GridLoad<Avx512>(view.scale, GridEntry(view.scale, row, 0, view.cols)) : 1.0F;
    _mm256_storeu_ps(out, _mm256_set1_ps(factor * scale));
    return;
  }
  if (view.scale.col_block == kBlock && view.scale.type == DataType::kFp16) {
    const auto* halves =
        static_cast<const uint8_t*>(view.scale.data) + 2 * GridEntry(view.scale, row, column, view.cols);
    const auto mask = static_cast<__mmask8>(_bzhi_u32(0xFFU, static_cast<unsigned>(blocks)));
    const __m256 scales = _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, halves));
    _mm256_storeu_ps(out, _mm256_mul_ps(scales, _mm256_set1_ps(factor)));
    return;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    out[b] = factor * GridLoad<Avx512>(view.scale, GridEntry(view.scale, row, column + b * kBlock, view.cols));
  }
}

void DecodePanelRow(const WeightView& view, int64_t row, int64_t column, int64_t depth, PanelRow& out) {
  float factor = 1.0F;
  const auto excess = static_cast<float>(CodeExcess(view.codec));
  if (IsLut(view.codec)) {
    uint8_t table[16];
    factor = QuantizeTable16(view.table, row / view.table.row_block, table);
    DecodeCodes(view, row, column, depth, table, out.codes);
  } else {
    DecodeCodes(view, row, column, depth, nullptr, out.codes);
  }
  const int64_t blocks = Blocks(depth);
  LoadScales(view, row, column, blocks, factor, out.scale);
  if (!view.offset) return;  // all codes are too large by CodeExcess
  for (int64_t b = 0; b < blocks; ++b) {
    out.excess[b] = excess + GridLoad<Avx512>(view.offset, GridEntry(view.offset, row, column + b * kBlock, view.cols));
  }
}

/// kOffsets: what codes are too large by differs between blocks; else all are by `excess`.
template <int kRows, int kVectors, bool kOffsets>
void Tile(const PanelRow* panel, const ActivationBlock* x, int64_t group_stride, int64_t blocks, int32_t excess,
          float* sums, int64_t stride) {
  __m512 acc[kRows][kVectors];
  MW_UNROLL for (int r = 0; r < kRows; ++r) {
    MW_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_loadu_ps(sums + r * stride + v * kWidth);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    __m512i dots[kRows][kVectors];
    MW_UNROLL for (int v = 0; v < kVectors; ++v) {
      const __m512i start =
          kOffsets ? _mm512_setzero_si512()
                   : _mm512_mullo_epi32(_mm512_load_si512(x[v * group_stride + b].sum), _mm512_set1_epi32(-excess));
      MW_UNROLL for (int r = 0; r < kRows; ++r) dots[r][v] = start;
    }
    MW_UNROLL for (int64_t k = 0; k < kBlock / 4; ++k) {
      __m512i lanes[kVectors];
      MW_UNROLL for (int v = 0; v < kVectors; ++v) lanes[v] = _mm512_load_si512(x[v * group_stride + b].codes[k]);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        int32_t four = 0;
        std::memcpy(&four, panel[r].codes + b * kBlock + k * 4, 4);
        const __m512i weights = _mm512_set1_epi32(four);
        MW_UNROLL for (int v = 0; v < kVectors; ++v) dots[r][v] = _mm512_dpbusd_epi32(dots[r][v], weights, lanes[v]);
      }
    }
    MW_UNROLL for (int v = 0; v < kVectors; ++v) {
      const ActivationBlock& block = x[v * group_stride + b];
      const __m512 x_scale = _mm512_load_ps(block.scale);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        __m512 dot = _mm512_cvtepi32_ps(dots[r][v]);
        if constexpr (kOffsets) {
          // Exact: products of whole numbers far below 2^24, unless an offset is fractional.
          const __m512 x_sum = _mm512_cvtepi32_ps(_mm512_load_si512(block.sum));
          dot = _mm512_fnmadd_ps(x_sum, _mm512_set1_ps(panel[r].excess[b]), dot);
        }
        acc[r][v] = _mm512_fmadd_ps(_mm512_mul_ps(dot, x_scale), _mm512_set1_ps(panel[r].scale[b]), acc[r][v]);
      }
    }
  }
  MW_UNROLL for (int r = 0; r < kRows; ++r) {
    MW_UNROLL for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + r * stride + v * kWidth, acc[r][v]);
  }
}

template <int kVectors, bool kOffsets>
void PanelTiles(const PanelRow* panel, int64_t rows, const ActivationBlock* x, int64_t group_stride, int64_t blocks,
                int32_t excess, float* sums, int64_t stride) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    Tile<kTileRows, kVectors, kOffsets>(panel + r, x, group_stride, blocks, excess, sums + r * stride, stride);
  }
  for (; r < rows; ++r) {
    Tile<1, kVectors, kOffsets>(panel + r, x, group_stride, blocks, excess, sums + r * stride, stride);
  }
}

template <bool kOffsets>
void RowsOf(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
            void* scratch, float* y, int64_t ldy) {
  const int64_t stride = RoundUp(m, kWidth);
  const int64_t group_stride = Blocks(view.cols);
  const int32_t excess = CodeExcess(view.codec);
  auto* panel = static_cast<PanelRow*>(scratch);
  auto* sums = reinterpret_cast<float*>(panel + kPanelRows);
  for (int64_t first = begin; first < end; first += kPanelRows) {
    const int64_t rows = Min(kPanelRows, end - first);
    NextRows next(view, first + rows, kPanelRows,
                  (view.cols + kDecodeChunk - 1) / kDecodeChunk * (stride / (2 * kWidth) + 1));
    for (int64_t i = 0; i < rows * stride; ++i) sums[i] = 0.0F;
    for (int64_t k = 0; k < view.cols; k += kDecodeChunk) {
      const int64_t depth = Min(kDecodeChunk, view.cols - k);
      for (int64_t r = 0; r < rows; ++r) DecodePanelRow(view, first + r, k, depth, panel[r]);
      const auto* x = static_cast<const ActivationBlock*>(packed) + k / kBlock;
      int64_t group = 0;
      for (; group + 2 * kWidth <= stride; group += 2 * kWidth) {
        next.Fetch();
        PanelTiles<2, kOffsets>(panel, rows, x + group / kWidth * group_stride, group_stride, Blocks(depth), excess,
                                sums + group, stride);
      }
      if (group < stride) {
        PanelTiles<1, kOffsets>(panel, rows, x + group / kWidth * group_stride, group_stride, Blocks(depth), excess,
                                sums + group, stride);
      }
    }
    Avx512::StoreTransposed(sums, kWidth, stride, rows, m, bias != nullptr ? bias + first : nullptr, y + first, ldy);
  }
}

void Rows(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
          void* scratch, float* y, int64_t ldy) {
  (view.offset ? RowsOf<true> : RowsOf<false>)(view, packed, m, bias, begin, end, scratch, y, ldy);
}

}  // namespace

constinit const MatMulKernel kMatMulInt8Vnni[2] = {
    {"matmul_i8_int_avx512vnni", Operands::kInt8Activation, Supports, PackedBytes, Pack, kWidth, kTileRows,
     ScratchBytes, Rows},
    {"matmul_i8_lut4_avx512vnni", Operands::kInt8Table, SupportsTable, PackedBytes, Pack, kWidth, kTileRows,
     ScratchBytes, Rows},
};

}  // namespace milwright::kernels

#endif
