// Matrix-matrix product with AMX tiles of bf16 (TDPBF16PS: 16 x 16 sums of 32 products each).
//
// A value is split into bf16 values that add up to it: an fp16 number into two, an fp32 number into three. Products of
// two bf16 numbers are exact in fp32, so with all parts the result is as good as one of fp32 multiply-adds, at several
// times their rate (Intel's instruction set reference gives the order of the additions: fp32, to nearest, subnormal
// numbers as zero).
//
// The tiles of W hold 16 rows and 32 columns as they lie; those of X hold pairs of columns of 16 rows of X, as the
// instruction wants its second operand. A block of 2 x 2 tiles of sums stays in tile registers for the columns of a
// panel.
#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "kernels/avx512/extensions.h"
#include "kernels/avx512/transpose.h"
#include "kernels/avx512/vec.h"
#include "kernels/simd/matmul-inl.h"

namespace milwright::kernels {
namespace {

constexpr int64_t kTile = 16;           // rows of a tile
constexpr int64_t kStep = 32;           // columns of a tile
constexpr int64_t kBlockRows = 32;      // rows of W in a block of sums
constexpr int kWeightParts = 2;         // of an fp16 number
constexpr int kXParts = 3;              // of an fp32 number
constexpr int64_t kPanelColumns = 128;  // a panel, two groups of X and their sums fit the first-level cache
constexpr int64_t kPanelSteps = kPanelColumns / kStep;

/// 16 rows and 32 columns: of W [row][column], of X [pair of columns][row][2].
struct alignas(64) Tile {
  uint16_t values[kTile][kStep];
};

/// A step of a panel: the parts of two tiles of W.
using WeightStep = Tile[kWeightParts][2];

/// A step of a group of 16 rows of X.
using XStep = Tile[kXParts];

/// Sums of 32 rows of W [row] and a group of 16 rows of X.
struct alignas(64) Sums {
  float values[kBlockRows][kTile];
};

/// What is known of a group of 16 rows of X.
struct alignas(64) GroupInfo {
  int32_t parts;        ///< how many of the parts have a value that is not 0
  uint32_t non_finite;  ///< bit r: row r has an infinity or NaN, which parts cannot express
};

#if defined(__linux__)
/// Tile registers are given to a process that asks for them (Linux, Documentation/arch/x86/xstate.rst).
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool RequestTiles() { return false; }
#endif

bool FindAmx() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  constexpr unsigned kAvx512Bf16 = 1U << 5;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax & kAvx512Bf16) == 0) return false;
  return RequestTiles();
}

bool MachineHasAmx() {
  static const bool kHas = FindAmx();  // asks once; constant from then on
  return kHas;
}

/// The weights are fp16 numbers, so two parts are all of them. The sums are as exact as any of fp32, but in another
/// order than the reference's, whose results kExact is to give as often as it can.
bool Supports(const WeightView& view, Precision precision) {
  return precision == Precision::kFast &&
         ((view.codec == Codec::kFp16 && !view.scale && !view.offset) || view.round_to_half) && MachineHasAmx();
}

int64_t Steps(int64_t cols) { return (cols + kStep - 1) / kStep; }

/// The columns of a step as fp32; zeros behind the last one.
struct StepValues {
  __m512 low;
  __m512 high;

  static StepValues Load(const float* x, int64_t n) {
    if (n >= kStep) return {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    return {Avx512::LoadN(x, Min(n, 16)), n > 16 ? Avx512::LoadN(x + 16, n - 16) : _mm512_setzero_ps()};
  }

  /// Takes the nearest bf16 numbers away.
  __m512i TakePart() {
    const auto part = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    const auto widen = [](__m256i values) {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
    };
    low = _mm512_sub_ps(low, widen(_mm512_castsi512_si256(part)));
    high = _mm512_sub_ps(high, widen(_mm512_extracti64x4_epi64(part, 1)));
    return part;
  }

  [[nodiscard]] bool Finite() const { return (NonFinite(low) | NonFinite(high)) == 0; }
  void KeepNonFinite() {
    low = _mm512_maskz_mov_ps(NonFinite(low), low);
    high = _mm512_maskz_mov_ps(NonFinite(high), high);
  }

 private:
  static __mmask16 NonFinite(__m512 values) {
    constexpr int kNanOrInfinity = 0x01 | 0x08 | 0x10 | 0x80;
    return _mm512_fpclass_ps_mask(values, kNanOrInfinity);
  }
};

/// The registers: 0 to 3 hold sums [tile of W][group of X], 4 and 5 tiles of W, 6 and 7 tiles of X.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Tells the compiler that memory is read and written here: g++'s intrinsics of tiles do not.
inline void MemoryBarrier() { __asm__ volatile("" ::: "memory"); }

inline void LoadWeights(const Tile (&tiles)[2]) {
  _tile_loadd(4, &tiles[0], 64);
  _tile_loadd(5, &tiles[1], 64);
}

template <bool kTwoGroups>
void LoadActivation(const Tile& first, const Tile& second) {
  _tile_loadd(6, &first, 64);
  if constexpr (kTwoGroups) _tile_loadd(7, &second, 64);
}

template <bool kTwoGroups>
void Multiply() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kTwoGroups) _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  if constexpr (kTwoGroups) _tile_dpbf16ps(3, 5, 7);
}

/// sums += W X^T for the steps of a panel and one or two groups of X, kUsedParts parts of which count. Of two products
/// in turn one operand is the same, which saves its loading; the large parts come last.
template <int kUsedParts, bool kTwoGroups>
void Block(const WeightStep* panel, int64_t steps, const Tile* first, const Tile* second, Sums* sums) {
  MemoryBarrier();
  _tile_loadd(0, sums[0].values[0], 64);
  _tile_loadd(2, sums[0].values[kTile], 64);
  if constexpr (kTwoGroups) {
    _tile_loadd(1, sums[1].values[0], 64);
    _tile_loadd(3, sums[1].values[kTile], 64);
  }
  for (int64_t s = 0; s < steps; ++s, first += kXParts, second += kXParts) {
    MW_UNROLL for (int part = kUsedParts - 1; part >= 0; --part) {
      const int held = (kUsedParts - 1 - part) % 2 == 0 ? 1 : 0;  // the part of W that is in the registers
      if (part == kUsedParts - 1) LoadWeights(panel[s][held]);
      LoadActivation<kTwoGroups>(first[part], second[part]);
      Multiply<kTwoGroups>();
      LoadWeights(panel[s][1 - held]);
      Multiply<kTwoGroups>();
    }
  }
  _tile_stored(0, sums[0].values[0], 64);
  _tile_stored(2, sums[0].values[kTile], 64);
  if constexpr (kTwoGroups) {
    _tile_stored(1, sums[1].values[0], 64);
    _tile_stored(3, sums[1].values[kTile], 64);
  }
  MemoryBarrier();
}

/// Of one group of X: what is known of it, and its steps.
size_t GroupBytes(int64_t cols) { return sizeof(GroupInfo) + static_cast<size_t>(Steps(cols)) * sizeof(XStep); }
size_t PackedBytes(int64_t m, int64_t cols) { return static_cast<size_t>((m + kTile - 1) / kTile) * GroupBytes(cols); }

/// A panel of weights, and the sums of all groups of X.
size_t ScratchBytes(int64_t m, int64_t) {
  return static_cast<size_t>(kPanelSteps) * sizeof(WeightStep) +
         static_cast<size_t>((m + kTile - 1) / kTile) * sizeof(Sums);
}

/// Rows that have infinities or NaN keep only those: nothing else counts in their sums, and parts of infinities would
/// be NaN.
void PackGroup(const float* x, int64_t ldx, int64_t rows, int64_t cols, GroupInfo& info, XStep* steps) {
  info = {};
  for (int64_t r = 0; r < rows; ++r) {
    bool finite = true;
    for (int64_t k = 0; k < cols; k += kStep) finite = finite && StepValues::Load(x + r * ldx + k, cols - k).Finite();
    if (!finite) info.non_finite |= 1U << r;
  }
  __m512i seen[kXParts] = {};
  for (int64_t k = 0; k < cols; k += kStep) {
    __m512i parts[kXParts][kTile];
    for (int64_t r = 0; r < kTile; ++r) {
      StepValues values = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      if (r < rows) values = StepValues::Load(x + r * ldx + k, cols - k);
      if ((info.non_finite >> r & 1) != 0) values.KeepNonFinite();
      for (int part = 0; part < kXParts; ++part) {
        const bool none = part > 0 && (info.non_finite >> r & 1) != 0;
        parts[part][r] = none ? _mm512_setzero_si512() : values.TakePart();
        seen[part] = _mm512_or_si512(seen[part], parts[part][r]);
      }
    }
    for (int part = 0; part < kXParts; ++part) {
      Transpose16(parts[part]);
      for (int64_t pair = 0; pair < kTile; ++pair) {
        _mm512_store_si512(steps[k / kStep][part].values[pair], parts[part][pair]);
      }
    }
  }
  for (int part = 0; part < kXParts; ++part) {
    if (_mm512_test_epi32_mask(seen[part], seen[part]) != 0) info.parts = part + 1;
  }
}

void Pack(const float* x, int64_t ldx, int64_t, int64_t cols, int64_t begin, int64_t end, void* packed) {
  for (int64_t group = begin; group < end; group += kTile) {
    auto* bytes = static_cast<uint8_t*>(packed) + static_cast<size_t>(group / kTile) * GroupBytes(cols);
    PackGroup(x + group * ldx, ldx, Min(kTile, end - group), cols, *reinterpret_cast<GroupInfo*>(bytes),
              reinterpret_cast<XStep*>(bytes + sizeof(GroupInfo)));
  }
}

/// Rows [first, first + rows) of W, columns [k, k + depth), as parts; zeros behind them.
void DecodePanel(RowDecoder<Avx512>& decoder, int64_t first, int64_t rows, int64_t k, int64_t depth,
                 WeightStep* panel) {
  alignas(64) float values[kPanelColumns];
  for (int64_t r = 0; r < kBlockRows; ++r) {
    const bool real = r < rows;
    if (real) decoder.Decode(first + r, k, depth, values);
    for (int64_t s = 0; s < Steps(depth); ++s) {
      StepValues step = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      if (real) step = StepValues::Load(values + s * kStep, depth - s * kStep);
      for (int part = 0; part < kWeightParts; ++part) {
        _mm512_store_si512(panel[s][part][r / kTile].values[r % kTile], step.TakePart());
      }
    }
  }
}

template <bool kTwoGroups>
void RunBlock(const WeightStep* panel, int64_t steps, const uint8_t* first, const uint8_t* second, int64_t step,
              Sums* sums) {
  const int parts =
      std::max(reinterpret_cast<const GroupInfo*>(first)->parts, reinterpret_cast<const GroupInfo*>(second)->parts);
  const Tile* x0 = *(reinterpret_cast<const XStep*>(first + sizeof(GroupInfo)) + step);
  const Tile* x1 = *(reinterpret_cast<const XStep*>(second + sizeof(GroupInfo)) + step);
  if (parts <= 1) return Block<1, kTwoGroups>(panel, steps, x0, x1, sums);
  if (parts == 2) return Block<2, kTwoGroups>(panel, steps, x0, x1, sums);
  Block<3, kTwoGroups>(panel, steps, x0, x1, sums);
}

/// The sums of one row of X that has infinities or NaN: only those count, times the weights.
void SumNonFinite(RowDecoder<Avx512>& decoder, int64_t cols, int64_t first, int64_t rows, const GroupInfo& group,
                  int64_t row, Sums& sums) {
  const auto* steps = reinterpret_cast<const XStep*>(&group + 1);
  for (int64_t n = 0; n < rows; ++n) {
    float sum = 0.0F;
    for (int64_t k = 0; k < cols; k += kDecodeChunk) {
      alignas(64) float weights[kDecodeChunk];
      const int64_t depth = Min(kDecodeChunk, cols - k);
      decoder.Decode(first + n, k, depth, weights);
      for (int64_t i = 0; i < depth; ++i) {
        const Tile& tile = steps[(k + i) / kStep][0];
        const uint32_t bits = uint32_t{tile.values[i % kStep / 2][row % kTile * 2 + i % 2]} << 16;
        float value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        sum += value * weights[i];
      }
    }
    sums.values[n][row % kTile] = sum;
  }
}

void Rows(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
          void* scratch, float* y, int64_t ldy) {
  const int64_t stride = RoundUp(m, kTile);
  const size_t group_bytes = GroupBytes(view.cols);
  const auto* groups = static_cast<const uint8_t*>(packed);
  auto* panel = static_cast<WeightStep*>(scratch);
  auto* sums = reinterpret_cast<Sums*>(panel + kPanelSteps);
  RowDecoder<Avx512> decoder(view);
  const TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t first = begin; first < end; first += kBlockRows) {
    const int64_t rows = Min(kBlockRows, end - first);
    NextRows next(view, first + rows, kBlockRows,
                  (view.cols + kPanelColumns - 1) / kPanelColumns * (stride / (2 * kTile) + 1));
    std::memset(sums, 0, static_cast<size_t>(stride / kTile) * sizeof(Sums));
    for (int64_t k = 0; k < view.cols; k += kPanelColumns) {
      const int64_t depth = Min(kPanelColumns, view.cols - k);
      DecodePanel(decoder, first, rows, k, depth, panel);
      for (int64_t i = 0; i < stride; i += 2 * kTile) {
        next.Fetch();
        const uint8_t* group = groups + static_cast<size_t>(i / kTile) * group_bytes;
        if (i + kTile < stride) {
          RunBlock<true>(panel, Steps(depth), group, group + group_bytes, k / kStep, sums + i / kTile);
        } else {
          RunBlock<false>(panel, Steps(depth), group, group, k / kStep, sums + i / kTile);
        }
      }
    }
    for (int64_t i = 0; i < m; ++i) {
      const auto& group = *reinterpret_cast<const GroupInfo*>(groups + static_cast<size_t>(i / kTile) * group_bytes);
      if ((group.non_finite >> (i % kTile) & 1) != 0) {
        SumNonFinite(decoder, view.cols, first, rows, group, i, sums[i / kTile]);
      }
    }
    Avx512::StoreTransposed(sums->values[0], sizeof(Sums) / sizeof(float), kTile, rows, m,
                            bias != nullptr ? bias + first : nullptr, y + first, ldy);
  }
  _tile_release();
}

}  // namespace

constinit const MatMulKernel kMatMulAmx = {
    "matmul_f32_f16_avx512amx", Operands::kFp32, Supports, PackedBytes, Pack, kTile, kBlockRows, ScratchBytes, Rows};

}  // namespace milwright::kernels

#endif
