// Streaming attention: softmax(scale * q k^T + mask) v over a KV cache, without the matrix of scores, with grouped
// queries read directly and with masked columns skipped where that cannot change the result.
#ifndef MILWRIGHT_KERNELS_ATTENTION_H_
#define MILWRIGHT_KERNELS_ATTENTION_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "milwright/type.h"

namespace milwright::kernels {

/// A borrowed [heads, length, dim] array of fp16 or fp32 values; strides count elements, the last axis has stride 1.
struct HeadsView {
  const void* data = nullptr;
  DataType type = DataType::kFp16;  ///< kFp16 or kFp32
  int64_t head_stride = 0;
  int64_t row_stride = 0;
};

/// A borrowed additive mask of [T, C] fp16 or fp32 values; the same for all heads. data == nullptr: no mask.
struct MaskView {
  const void* data = nullptr;
  DataType type = DataType::kFp16;
  int64_t row_stride = 0;  ///< elements; 0 uses one row for all queries
};

struct ColumnRange {
  int32_t begin = 0;
  int32_t end = 0;

  bool operator==(const ColumnRange&) const = default;
};

/// What a scan of a mask finds: for each row, the columns that can matter. Scan once per mask and step and use it in
/// all layers. Reused, it allocates only when the mask grows.
struct MaskScan {
  /// Columns whose mask is more than this below the row's largest are candidates for skipping.
  static constexpr float kGap = 4096.0F;

  struct Row {
    int32_t first = 0;  ///< its ranges are ranges[first..first + count)
    int32_t count = 0;
    float gap = 0;  ///< least distance from the row's largest mask value to one outside the ranges; inf if there is
                    ///< none or all of them are -inf
  };
  std::vector<Row> rows;
  std::vector<ColumnRange> ranges;  ///< begin and end are multiples of kTileColumns (end: or the number of columns)
};

/// Columns are visited in tiles of this many, counted from column 0, so that skipping whole tiles leaves the order of
/// all sums as it was.
inline constexpr int64_t kTileColumns = 64;

/// Scans a mask of [rows, columns]. A row whose values are all equal (fully masked or fully visible) keeps all columns.
void ScanMask(const MaskView& mask, int64_t rows, int64_t columns, MaskScan* scan);

struct AttentionParams {
  int64_t heads = 0;      ///< H, a multiple of kv_heads
  int64_t kv_heads = 0;   ///< head h reads KV head h / (H / kv_heads)
  int64_t queries = 0;    ///< T
  int64_t columns = 0;    ///< C: rows of k and v that are looked at
  int64_t dim = 0;        ///< D of q and k
  int64_t value_dim = 0;  ///< D of v and out
  float scale = 1.0F;
  float soft_cap = 0.0F;  ///< > 0: scores become cap * tanh(score / cap) before the mask is added

  const float* q = nullptr;  ///< [H, T, D] fp32 with the strides below, in elements
  int64_t q_head_stride = 0;
  int64_t q_row_stride = 0;
  HeadsView k;  ///< [kv_heads, C, D]
  HeadsView v;  ///< [kv_heads, C, value_dim]
  MaskView mask;
  /// Of `mask`, or null to look at all columns. One scan row may serve all queries (mask.row_stride 0).
  const MaskScan* scan = nullptr;
  /// Upper bound on |k| over all columns, also the masked ones (Kernels::abs_max_*, kept up to date as the cache is
  /// written). It is what proves that a skipped column's weight is exactly zero in fp32: with finite masks such as -1e4
  /// the score must not be able to make up for the mask. Unknown: infinity, which is taken as 65504 for fp16; then only
  /// -inf and very large masks are skipped.
  float k_abs_max = std::numeric_limits<float>::infinity();

  float* out = nullptr;  ///< [H, T, value_dim] fp32
  int64_t out_head_stride = 0;
  int64_t out_row_stride = 0;
};

/// Counters of what a call looked at.
struct AttentionStats {
  int64_t columns_visited = 0;  ///< summed over (KV head, query tile): rows of k read
};

/// Scratch bytes that Attention needs (64-byte aligned) for a pool of `threads`.
size_t AttentionScratchBytes(const AttentionParams& params, int threads);

/// out = softmax(soft_cap(scale * q k^T) + mask) v. A column is skipped only when its weight is exactly zero in fp32,
/// so the result is bitwise the one without `scan` (k and v of skipped columns must be finite for that). A row
/// whose columns are all masked follows the plain formula: the mask cancels (finite) or the row is NaN (-inf). Results
/// do not depend on the number of threads.
AttentionStats Attention(const Kernels& kernels, ThreadPool& pool, const AttentionParams& params,
                         std::span<uint8_t> scratch);

/// The work of one task: a tile of up to kTileQueries (head, query) pairs that share a KV head.
struct AttentionTile {
  static constexpr int kTileQueries = 4;

  int64_t dim = 0;
  int64_t value_dim = 0;
  int64_t columns = 0;
  float scale = 1.0F;
  float soft_cap = 0.0F;
  const void* k = nullptr;  ///< row 0 of the KV head
  const void* v = nullptr;
  int64_t k_row_stride = 0;
  int64_t v_row_stride = 0;
  bool k_half = true;  ///< fp16, else fp32
  bool v_half = true;
  bool prefetch = false;         ///< keys and values are read once, from memory
  const void* next_k = nullptr;  ///< those of the tile that the thread runs next; null: not known
  const void* next_v = nullptr;

  int queries = 0;                      ///< 1..kTileQueries
  const float* q[kTileQueries] = {};    ///< dim values each
  const void* mask[kTileQueries] = {};  ///< columns values each, or null
  bool mask_half = true;
  float* out[kTileQueries] = {};        ///< value_dim values each
  std::span<const ColumnRange> ranges;  ///< columns to visit: sorted, apart, aligned to kTileColumns
  float* scratch = nullptr;             ///< AttentionTileScratch(dim, value_dim) floats
};

/// Floats of scratch that one tile needs.
int64_t AttentionTileScratch(int64_t dim, int64_t value_dim);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_ATTENTION_H_
