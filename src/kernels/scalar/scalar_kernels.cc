// The plain form of every kernel: the judge that the others are tested against. Written to be read, not to be fast.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/quantize.h"
#include "kernels/tables.h"
#include "milwright/half.h"

namespace milwright::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void DecodeRow(const WeightView& view, int64_t row, int64_t begin, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = WeightAt(view, row, begin + i);
}

float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Columns that are decoded at a time: bounds the stack, not the result.
constexpr int64_t kChunk = 256;

float RowDot(const WeightView& view, int64_t row, const float* x) {
  float weights[kChunk];
  float sum = 0;
  for (int64_t begin = 0; begin < view.cols; begin += kChunk) {
    const int64_t count = std::min(kChunk, view.cols - begin);
    DecodeRow(view, row, begin, count, weights);
    sum += Dot(weights, x + begin, count);
  }
  return sum;
}

// --- Products ------------------------------------------------------------------------------------------------------

bool SupportsAll(const WeightView&, Precision) { return true; }

bool SupportsInt8Activation(const WeightView& view, Precision precision) {
  return precision == Precision::kFast && CodeBits(view.codec) <= 8 && !IsLut(view.codec);
}

size_t FloatBytes(int64_t cols) { return static_cast<size_t>(cols) * sizeof(float); }

void CopyActivation(const float* x, int64_t cols, void* scratch) { std::copy_n(x, cols, static_cast<float*>(scratch)); }

/// x as int8 activations would represent it.
void RoundActivation(const float* x, int64_t cols, void* scratch) {
  auto* out = static_cast<float*>(scratch);
  int8_t codes[kActivationBlock];
  for (int64_t begin = 0; begin < cols; begin += kActivationBlock) {
    const int64_t count = std::min(kActivationBlock, cols - begin);
    const float scale = QuantizeBlock(x + begin, count, codes);
    for (int64_t i = 0; i < count; ++i) out[begin + i] = scale * static_cast<float>(codes[i]);
  }
}

void MatVecRows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end, float* y) {
  for (int64_t row = begin; row < end; ++row) {
    y[row] = RowDot(view, row, static_cast<const float*>(scratch)) + (bias != nullptr ? bias[row] : 0.0F);
  }
}

/// 4-bit tables of floats for whole rows.
bool SupportsInt8Table(const WeightView& view, Precision precision) {
  return precision == Precision::kFast && view.codec == Codec::kLut4 && view.table.col_block >= view.cols &&
         (view.table.type == DataType::kFp16 || view.table.type == DataType::kFp32) && !view.offset &&
         view.mask == nullptr && !view.round_to_half && (!view.scale || view.scale.col_block >= view.cols);
}

/// A row with its table's entries as int8 would represent them.
void DecodeRoundedRow(const WeightView& view, int64_t row, float* out) {
  constexpr int kEntries = 16;
  const int64_t first = row / view.table.row_block * kEntries;
  float entries[kEntries];
  for (int i = 0; i < kEntries; ++i) {
    entries[i] = view.table.type == DataType::kFp16
                     ? HalfToFloat(static_cast<const uint16_t*>(view.table.data)[first + i])
                     : static_cast<const float*>(view.table.data)[first + i];
  }
  int8_t codes[kEntries];
  const float scale = QuantizeBlock(entries, kEntries, codes);
  WeightView rounded = view;
  for (int i = 0; i < kEntries; ++i) entries[i] = scale * static_cast<float>(codes[i]);
  rounded.table = {entries, DataType::kFp32, view.rows, view.cols};  // one table for all rows: this row's
  DecodeRow(rounded, row, 0, view.cols, out);
}

void MatVecTableRows(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end,
                     float* y) {
  std::vector<float> weights(static_cast<size_t>(view.cols));
  for (int64_t row = begin; row < end; ++row) {
    DecodeRoundedRow(view, row, weights.data());
    y[row] = Dot(weights.data(), static_cast<const float*>(scratch), view.cols) + (bias != nullptr ? bias[row] : 0.0F);
  }
}

constexpr MatVecKernel kMatVec[] = {
    {"matvec_i8_lut4_scalar", Operands::kInt8Table, SupportsInt8Table, FloatBytes, RoundActivation, MatVecTableRows},
    {"matvec_i8_any_scalar", Operands::kInt8Activation, SupportsInt8Activation, FloatBytes, RoundActivation,
     MatVecRows},
    {"matvec_f32_any_scalar", Operands::kFp32, SupportsAll, FloatBytes, CopyActivation, MatVecRows},
};

size_t PackedBytes(int64_t m, int64_t cols) { return static_cast<size_t>(m * cols) * sizeof(float); }
size_t RowBytes(int64_t, int64_t cols) { return FloatBytes(cols); }

template <void (*Prepare)(const float*, int64_t, void*)>
void PackRows(const float* x, int64_t ldx, int64_t, int64_t cols, int64_t begin, int64_t end, void* packed) {
  for (int64_t row = begin; row < end; ++row) Prepare(x + row * ldx, cols, static_cast<float*>(packed) + row * cols);
}

template <bool kRoundedTable>
void MatMulRows(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
                void* scratch, float* y, int64_t ldy) {
  auto* weights = static_cast<float*>(scratch);
  for (int64_t row = begin; row < end; ++row) {
    if constexpr (kRoundedTable) {
      DecodeRoundedRow(view, row, weights);
    } else {
      DecodeRow(view, row, 0, view.cols, weights);
    }
    for (int64_t i = 0; i < m; ++i) {
      const float* x = static_cast<const float*>(packed) + i * view.cols;
      y[i * ldy + row] = Dot(weights, x, view.cols) + (bias != nullptr ? bias[row] : 0.0F);
    }
  }
}

constexpr MatMulKernel kMatMul[] = {
    {"matmul_i8_lut4_scalar", Operands::kInt8Table, SupportsInt8Table, PackedBytes, PackRows<RoundActivation>, 1, 1,
     RowBytes, MatMulRows<true>},
    {"matmul_i8_any_scalar", Operands::kInt8Activation, SupportsInt8Activation, PackedBytes, PackRows<RoundActivation>,
     1, 1, RowBytes, MatMulRows<false>},
    {"matmul_f32_any_scalar", Operands::kFp32, SupportsAll, PackedBytes, PackRows<CopyActivation>, 1, 1, RowBytes,
     MatMulRows<false>},
};

// --- Attention -----------------------------------------------------------------------------------------------------

float LoadValue(const void* data, bool half, int64_t index) {
  return half ? HalfToFloat(static_cast<const uint16_t*>(data)[index]) : static_cast<const float*>(data)[index];
}

float Score(const AttentionTile& tile, int query, int64_t column) {
  float score = 0;
  for (int64_t d = 0; d < tile.dim; ++d) {
    score += tile.q[query][d] * LoadValue(tile.k, tile.k_half, column * tile.k_row_stride + d);
  }
  score *= tile.scale;
  if (tile.soft_cap > 0) score = tile.soft_cap * std::tanh(score / tile.soft_cap);
  return tile.mask[query] == nullptr ? score : score + LoadValue(tile.mask[query], tile.mask_half, column);
}

/// The formula in two passes: the largest score, then weights, their sum and the weighted sum of values.
void AttentionQuery(const AttentionTile& tile, int query) {
  float largest = -kInfinity;
  for (const ColumnRange& range : tile.ranges) {
    for (int64_t column = range.begin; column < range.end; ++column) {
      largest = std::max(largest, Score(tile, query, column));
    }
  }
  float* out = tile.out[query];
  std::fill_n(out, tile.value_dim, 0.0F);
  float sum = 0;
  for (const ColumnRange& range : tile.ranges) {
    for (int64_t column = range.begin; column < range.end; ++column) {
      const float weight = std::exp(Score(tile, query, column) - largest);
      sum += weight;
      for (int64_t d = 0; d < tile.value_dim; ++d) {
        out[d] += weight * LoadValue(tile.v, tile.v_half, column * tile.v_row_stride + d);
      }
    }
  }
  for (int64_t d = 0; d < tile.value_dim; ++d) out[d] /= sum;
}

void AttentionTileScalar(const AttentionTile& tile) {
  for (int query = 0; query < tile.queries; ++query) AttentionQuery(tile, query);
}

// --- Elementwise and rows ------------------------------------------------------------------------------------------

void HalfToFloats(const uint16_t* in, int64_t n, float* out) { std::transform(in, in + n, out, HalfToFloat); }
void FloatToHalves(const float* in, int64_t n, uint16_t* out) { std::transform(in, in + n, out, FloatToHalf); }
void RoundToHalves(float* x, int64_t n) { std::transform(x, x + n, x, milwright::RoundToHalf); }

float AbsMaxF32(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(x[i]));
  return largest;
}

float AbsMaxF16(const uint16_t* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(HalfToFloat(x[i])));
  return largest;
}

void Add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void Mul(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void Scale(const float* x, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}

void SiluMul(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

void GeluTanhMul(const float* gate, const float* up, int64_t n, float* y) {
  constexpr float kSqrt2OverPi = 0.7978845608F;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    y[i] = 0.5F * g * (1.0F + std::tanh(kSqrt2OverPi * (g + 0.044715F * g * g * g))) * up[i];
  }
}

void RmsNorm(const float* x, const float* weight, float epsilon, int64_t n, float* y) {
  const float factor = 1.0F / std::sqrt(Dot(x, x, n) / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * (weight != nullptr ? weight[i] : 1.0F);
}

void LayerNorm(const float* x, const float* gamma, const float* beta, float epsilon, int64_t n, float* y) {
  float mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  float variance = 0;
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0F / std::sqrt(variance / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = (x[i] - mean) * factor * (gamma != nullptr ? gamma[i] : 1.0F) + (beta != nullptr ? beta[i] : 0.0F);
  }
}

void Softmax(const float* x, int64_t n, float* y) {
  float largest = -kInfinity;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i]);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = std::exp(x[i] - largest);
    sum += y[i];
  }
  for (int64_t i = 0; i < n; ++i) y[i] /= sum;
}

void Rope(const float* x, const float* cos, const float* sin, int64_t n, float* y) {
  const int64_t half = n / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float low = x[i];
    const float high = x[i + half];
    y[i] = low * cos[i] - high * sin[i];
    y[i + half] = high * cos[i + half] + low * sin[i + half];
  }
}

int64_t ArgMax(const float* x, int64_t n) {
  int64_t best = 0;
  float largest = -kInfinity;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] > largest) {
      largest = x[i];
      best = i;
    }
  }
  return best;
}

// --- Measuring -----------------------------------------------------------------------------------------------------

uint64_t ReadStream(const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  uint64_t combined = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, begin + i, 8);
    combined ^= word;
  }
  return combined;
}

int64_t FmaStream(int64_t iterations, float* sink) {
  constexpr int kChains = 16;
  float chains[kChains];
  std::fill_n(chains, kChains, *sink);
  for (int64_t i = 0; i < iterations; ++i) {
    for (float& chain : chains) chain = chain * 0.5F + 1.0F;
  }
  for (const float chain : chains) *sink += chain;
  return iterations * kChains;
}

}  // namespace

const Kernels* ScalarKernels() {
  static constexpr Kernels kKernels = {
      .isa = Isa::kScalar,
      .name = "scalar",
      .matvec = kMatVec,
      .matmul = kMatMul,
      .decode_row = DecodeRow,
      .attention_tile = AttentionTileScalar,
      .half_to_float = HalfToFloats,
      .float_to_half = FloatToHalves,
      .round_to_half = RoundToHalves,
      .abs_max_f32 = AbsMaxF32,
      .abs_max_f16 = AbsMaxF16,
      .add = Add,
      .mul = Mul,
      .scale = Scale,
      .silu_mul = SiluMul,
      .gelu_tanh_mul = GeluTanhMul,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .softmax = Softmax,
      .rope = Rope,
      .argmax = ArgMax,
      .read_stream = ReadStream,
      .fma_stream = FmaStream,
      .int8_dot_stream = nullptr,
  };
  return &kKernels;
}

}  // namespace milwright::kernels
