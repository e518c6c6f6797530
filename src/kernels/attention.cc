#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "milwright/half.h"

namespace milwright::kernels {
namespace {

/// exp(x) of fp32 is exactly 0 below -104 (half of the least denormal is exp(-103.97)); the rest is room for the
/// rounding of sums.
constexpr float kExpIsZero = 110.0F;

float MaskValue(const MaskView& mask, int64_t row, int64_t column) {
  const int64_t index = row * mask.row_stride + column;
  if (mask.type == DataType::kFp32) return static_cast<const float*>(mask.data)[index];
  return HalfToFloat(static_cast<const uint16_t*>(mask.data)[index]);
}

/// Largest value of a mask row in [begin, end); NaN counts as infinity, so that its column is never skipped.
float LargestIn(const MaskView& mask, int64_t row, int64_t begin, int64_t end) {
  float largest = -std::numeric_limits<float>::infinity();
  if (mask.type == DataType::kFp32) {
    for (int64_t c = begin; c < end; ++c) {
      const float value = MaskValue(mask, row, c);
      largest = std::isnan(value) ? std::numeric_limits<float>::infinity() : std::max(largest, value);
    }
    return largest;
  }
  // fp16: compare bit patterns mapped to integers of the same order; most of a long mask is scanned here.
  const auto* bits = static_cast<const int16_t*>(mask.data) + row * mask.row_stride;
  int16_t key = std::numeric_limits<int16_t>::min();
  for (int64_t c = begin; c < end; ++c) {
    const int16_t value = bits[c];
    key = std::max(key, static_cast<int16_t>(value ^ ((value >> 15) & 0x7FFF)));
  }
  const auto pattern = static_cast<uint16_t>(key ^ ((key >> 15) & 0x7FFF));
  const float value = HalfToFloat(pattern);
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
}

/// Adds [begin, end) to the ranges of a row, joined to the one before if they touch.
void Extend(std::vector<ColumnRange>& ranges, int32_t first, ColumnRange range) {
  if (static_cast<int32_t>(ranges.size()) > first && ranges.back().end >= range.begin) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

/// Bound on |score| before the mask for one query.
float ScoreBound(const AttentionParams& params, const float* q) {
  float k_abs_max = params.k_abs_max;
  if (std::isinf(k_abs_max) && params.k.type == DataType::kFp16) k_abs_max = 65504.0F;
  double sum = 0;
  for (int64_t d = 0; d < params.dim; ++d) sum += std::fabs(q[d]);
  // The factor covers the rounding of the dot product.
  const double bound = 1.001 * sum * k_abs_max * std::fabs(params.scale);
  const double capped = params.soft_cap > 0 ? std::min<double>(bound, 1.001 * params.soft_cap) : bound;
  return static_cast<float>(capped);
}

/// Whether leaving out what the scan row left out cannot change the result of a query with this bound on its scores.
bool MaySkip(const MaskScan::Row& row, float score_bound) {
  if (std::isinf(row.gap)) return true;  // -inf wins over every finite score
  return row.gap >= 2.0F * score_bound * 1.001F + kExpIsZero;
}

/// Rows (head in group, query) of one KV head in the order in which tiles take them: query-major, so that the queries
/// of a tile see almost the same columns.
struct RowIndex {
  int64_t head;
  int64_t query;
};

RowIndex RowAt(const AttentionParams& params, int64_t kv_head, int64_t index) {
  const int64_t group = params.heads / params.kv_heads;
  return {kv_head * group + index % group, index / group};
}

const void* Advance(const void* data, DataType type, int64_t elements) {
  return static_cast<const uint8_t*>(data) + elements * (type == DataType::kFp32 ? 4 : 2);
}

/// Columns that the last row of the mask, which sees the most, leaves to look at.
int64_t LastRowColumns(const AttentionParams& params) {
  if (params.scan == nullptr || params.scan->rows.empty()) return params.columns;
  int64_t columns = 0;
  const MaskScan::Row& row = params.scan->rows.back();  // the last query sees the most
  const auto ranges =
      std::span(params.scan->ranges).subspan(static_cast<size_t>(row.first), static_cast<size_t>(row.count));
  for (const ColumnRange& range : ranges) columns += range.end - range.begin;
  return columns;
}

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Room for the ranges of one thread: a tile of queries may need the union of theirs.
int64_t MaxRanges(int64_t columns) { return columns / (2 * kTileColumns) + 2; }

/// Fills `ranges` with the columns that a tile of rows must visit; returns how many ranges there are.
int64_t TileRanges(const AttentionParams& params, const AttentionTile& tile, const int64_t* queries,
                   ColumnRange* ranges) {
  const ColumnRange all{0, static_cast<int32_t>(params.columns)};
  int64_t count = 0;
  bool skip = params.scan != nullptr && params.mask.data != nullptr;
  for (int i = 0; skip && i < tile.queries; ++i) {
    const MaskScan::Row& row = params.scan->rows[static_cast<size_t>(params.mask.row_stride == 0 ? 0 : queries[i])];
    skip = MaySkip(row, ScoreBound(params, tile.q[i]));
  }
  if (!skip) {
    ranges[0] = all;
    return 1;
  }
  // Merge the sorted ranges of up to four rows: repeatedly take the one that begins first.
  const ColumnRange* next[AttentionTile::kTileQueries];
  const ColumnRange* last[AttentionTile::kTileQueries];
  for (int i = 0; i < tile.queries; ++i) {
    const MaskScan::Row& row = params.scan->rows[static_cast<size_t>(params.mask.row_stride == 0 ? 0 : queries[i])];
    next[i] = params.scan->ranges.data() + row.first;
    last[i] = next[i] + row.count;
  }
  while (true) {
    int least = -1;
    for (int i = 0; i < tile.queries; ++i) {
      if (next[i] != last[i] && (least < 0 || next[i]->begin < next[least]->begin)) least = i;
    }
    if (least < 0) return count;
    const ColumnRange range = *next[least]++;
    if (count > 0 && ranges[count - 1].end >= range.begin) {
      ranges[count - 1].end = std::max(ranges[count - 1].end, range.end);
    } else {
      ranges[count++] = range;
    }
  }
}

}  // namespace

void ScanMask(const MaskView& mask, int64_t rows, int64_t columns, MaskScan* scan) {
  scan->rows.clear();
  scan->ranges.clear();
  std::vector<float> tiles(static_cast<size_t>((columns + kTileColumns - 1) / kTileColumns));
  for (int64_t row = 0; row < rows; ++row) {
    float largest = -std::numeric_limits<float>::infinity();
    for (size_t t = 0; t < tiles.size(); ++t) {
      const int64_t begin = static_cast<int64_t>(t) * kTileColumns;
      tiles[t] = LargestIn(mask, row, begin, std::min(begin + kTileColumns, columns));
      largest = std::max(largest, tiles[t]);
    }
    MaskScan::Row result;
    result.first = static_cast<int32_t>(scan->ranges.size());
    float outside = -std::numeric_limits<float>::infinity();
    for (size_t t = 0; t < tiles.size(); ++t) {
      // Not `largest - tile <= gap`: in a row of only -inf that would be NaN, and all its columns must stay.
      if (tiles[t] == largest || tiles[t] > largest - MaskScan::kGap) {
        const int64_t begin = static_cast<int64_t>(t) * kTileColumns;
        const int64_t end = std::min(begin + kTileColumns, columns);
        Extend(scan->ranges, result.first, {static_cast<int32_t>(begin), static_cast<int32_t>(end)});
      } else {
        outside = std::max(outside, tiles[t]);
      }
    }
    result.count = static_cast<int32_t>(scan->ranges.size()) - result.first;
    result.gap = std::isinf(outside) ? std::numeric_limits<float>::infinity() : largest - outside;
    scan->rows.push_back(result);
  }
}

int64_t AttentionTileScratch(int64_t dim, int64_t value_dim) {
  // Queries and accumulators padded to whole vectors (16 floats at most), scores of one tile, running maximum and sum.
  return AttentionTile::kTileQueries * (RoundUp(dim, 16) + RoundUp(value_dim, 16) + kTileColumns + 16);
}

size_t AttentionScratchBytes(const AttentionParams& params, int threads) {
  const int64_t floats = RoundUp(AttentionTileScratch(params.dim, params.value_dim), 16);
  const int64_t ranges = RoundUp(MaxRanges(params.columns) * static_cast<int64_t>(sizeof(ColumnRange)), 64);
  return static_cast<size_t>(threads) * static_cast<size_t>(floats * 4 + ranges);
}

AttentionStats Attention(const Kernels& kernels, ThreadPool& pool, const AttentionParams& params,
                         std::span<uint8_t> scratch) {
  const int64_t group = params.heads / params.kv_heads;
  const int64_t rows = group * params.queries;
  // When one row of tiles per KV head would leave threads idle (few KV heads, one query), tiles get smaller. The split
  // depends on the shape alone, so results do not depend on the number of threads.
  const int64_t per_tile = params.kv_heads == 1 && rows <= AttentionTile::kTileQueries ? std::max<int64_t>(rows / 2, 1)
                                                                                       : AttentionTile::kTileQueries;
  const int64_t tiles_per_head = (rows + per_tile - 1) / per_tile;
  const size_t thread_bytes = AttentionScratchBytes(params, 1);
  std::atomic<int64_t> visited{0};
  const auto run = [&](int thread) {
    const TaskRange part = PartOf(params.kv_heads * tiles_per_head, thread, pool.threads());
    uint8_t* memory = scratch.data() + static_cast<size_t>(thread) * thread_bytes;
    AttentionTile tile;
    tile.dim = params.dim;
    tile.value_dim = params.value_dim;
    tile.columns = params.columns;
    tile.scale = params.scale;
    tile.soft_cap = params.soft_cap;
    tile.k_row_stride = params.k.row_stride;
    tile.v_row_stride = params.v.row_stride;
    tile.k_half = params.k.type == DataType::kFp16;
    tile.v_half = params.v.type == DataType::kFp16;
    tile.mask_half = params.mask.type == DataType::kFp16;
    tile.prefetch = params.queries == 1;
    tile.scratch = reinterpret_cast<float*>(memory);
    auto* ranges =
        reinterpret_cast<ColumnRange*>(memory + RoundUp(AttentionTileScratch(params.dim, params.value_dim), 16) * 4);
    int64_t columns_visited = 0;
    for (int64_t task = part.begin; task < part.end; ++task) {
      const int64_t kv_head = task / tiles_per_head;
      const int64_t begin = task % tiles_per_head * per_tile;
      tile.queries = static_cast<int>(std::min(per_tile, rows - begin));
      int64_t queries[AttentionTile::kTileQueries];
      for (int i = 0; i < tile.queries; ++i) {
        const RowIndex row = RowAt(params, kv_head, begin + i);
        queries[i] = row.query;
        tile.q[i] = params.q + row.head * params.q_head_stride + row.query * params.q_row_stride;
        tile.out[i] = params.out + row.head * params.out_head_stride + row.query * params.out_row_stride;
        tile.mask[i] = params.mask.data == nullptr
                           ? nullptr
                           : Advance(params.mask.data, params.mask.type, row.query * params.mask.row_stride);
      }
      const auto keys = [&](int64_t head) {
        return Advance(params.k.data, params.k.type, head * params.k.head_stride);
      };
      const auto values = [&](int64_t head) {
        return Advance(params.v.data, params.v.type, head * params.v.head_stride);
      };
      tile.k = keys(kv_head);
      tile.v = values(kv_head);
      const bool next = tiles_per_head == 1 && task + 1 < part.end;
      tile.next_k = next ? keys(kv_head + 1) : nullptr;
      tile.next_v = next ? values(kv_head + 1) : nullptr;
      const int64_t count = TileRanges(params, tile, queries, ranges);
      tile.ranges = {ranges, static_cast<size_t>(count)};
      for (const ColumnRange& range : tile.ranges) columns_visited += range.end - range.begin;
      kernels.attention_tile(tile);
    }
    visited += columns_visited;
  };
  // Few columns are read sooner than another thread wakes.
  constexpr int64_t kWorthAThread = 1 << 16;
  if (rows * params.kv_heads * LastRowColumns(params) * (params.dim + params.value_dim) < kWorthAThread) {
    for (int thread = 0; thread < pool.threads(); ++thread) run(thread);
  } else {
    pool.Run(run);
  }
  return {visited.load()};
}

}  // namespace milwright::kernels
