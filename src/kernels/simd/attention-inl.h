// Streaming attention of one tile of queries, written once for all vector instruction sets.
//
// Columns come in tiles of kTileColumns, aligned to absolute positions. Each tile yields scores, a new running maximum
// per query, weights relative to it, and is added to accumulators that are scaled down when the maximum grows. A tile
// whose weights are all zero changes nothing (if nothing else was seen before, the later correction factor wipes it out
// exactly), so visiting or skipping it gives the same bits.
#ifndef MILWRIGHT_KERNELS_SIMD_ATTENTION_INL_H_
#define MILWRIGHT_KERNELS_SIMD_ATTENTION_INL_H_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/simd/elementwise-inl.h"

namespace milwright::kernels {
namespace {

template <typename V, bool kHalfKeys, bool kHalfValues>
class AttentionRun {
 public:
  explicit AttentionRun(const AttentionTile& tile)
      : tile_(tile),
        padded_dim_(RoundUp(tile.dim, kWidth)),
        padded_value_dim_(RoundUp(tile.value_dim, kWidth)),
        q_(tile.scratch),
        acc_(q_ + kQueries * padded_dim_),
        scores_(acc_ + kQueries * padded_value_dim_) {}

  void Run() {
    for (int r = 0; r < tile_.queries; ++r) {
      float* q = q_ + r * padded_dim_;
      for (int64_t d = 0; d < padded_dim_; ++d) q[d] = d < tile_.dim ? tile_.q[r][d] : 0.0F;
      float* acc = acc_ + r * padded_value_dim_;
      for (int64_t d = 0; d < padded_value_dim_; ++d) acc[d] = 0.0F;
      largest_[r] = -__builtin_inff();
      sum_[r] = 0;
    }
    for (size_t i = 0; i < tile_.ranges.size(); ++i) {
      const ColumnRange range = tile_.ranges[i];
      SetFollowing(i);
      for (int64_t first = range.begin; first < range.end; first += kTileColumns) {
        const int64_t count = Min(kTileColumns, range.end - first);
        switch (tile_.queries) {
          case 1:
            Columns<1>(first, count);
            break;
          case 2:
            Columns<2>(first, count);
            break;
          case 3:
            Columns<3>(first, count);
            break;
          default:
            Columns<4>(first, count);
        }
      }
    }
    for (int r = 0; r < tile_.queries; ++r) {
      const F total = V::Set1(sum_[r]);
      for (int64_t d = 0; d < tile_.value_dim; d += kWidth) {
        V::StoreUpTo(tile_.out[r] + d, tile_.value_dim - d, V::Div(V::Load(acc_ + r * padded_value_dim_ + d), total));
      }
    }
  }

 private:
  using F = typename V::F;
  static constexpr int64_t kWidth = V::kWidth;
  static constexpr int kQueries = AttentionTile::kTileQueries;
  /// Columns whose scores are summed side by side.
  static constexpr int kColumns = 4;

  template <bool kHalf>
  static F LoadRow(const void* data, int64_t index) {
    if constexpr (kHalf) return V::LoadHalf(static_cast<const uint16_t*>(data) + index);
    return V::Load(static_cast<const float*>(data) + index);
  }
  template <bool kHalf>
  static F LoadRowN(const void* data, int64_t index, int64_t n) {
    if constexpr (kHalf) return V::LoadHalfN(static_cast<const uint16_t*>(data) + index, n);
    return V::LoadN(static_cast<const float*>(data) + index, n);
  }

  /// Says what is read after a range: the next range, or the first one of the thread's next tile.
  void SetFollowing(size_t range) {
    end_ = tile_.ranges[range].end;
    const bool last = range + 1 == tile_.ranges.size();
    following_ = tile_.ranges[last ? 0 : range + 1].begin;
    following_k_ = last ? tile_.next_k : tile_.k;
    following_v_ = last ? tile_.next_v : tile_.v;
  }

  /// Asks for the row that is read kAhead columns later. Values are asked for while scores are computed and keys while
  /// values are added, so that memory and arithmetic overlap. Reading 235 MB for 16/8 heads of 128 in fp16, two
  /// threads: 20.6 GB/s when the scores' loop asks for both, 22.3 with 64 columns ahead, 25.0 with 32, 24.1 with 16;
  /// into the first level 23.7, 24.0, 24.6 (a streaming read: 29.3).
  template <bool kHalf>
  void Prefetch(const void* data, const void* following, int64_t column, int64_t row_stride, int64_t width) const {
    constexpr int64_t kAhead = 32;
    constexpr int64_t kLine = 64;
    constexpr int64_t kElement = kHalf ? 2 : 4;
    column += kAhead;
    if (column >= end_) {
      if (following == nullptr) return;
      data = following;
      column += following_ - end_;
    }
    const char* row = static_cast<const char*>(data) + column * row_stride * kElement;
    for (int64_t at = 0; at < width * kElement; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }

  template <int kRows>
  void Columns(int64_t first, int64_t count) {
    int64_t c = 0;
    for (; c + kColumns <= count; c += kColumns) {
      for (int64_t i = c; tile_.prefetch && i < c + kColumns; ++i) {
        Prefetch<kHalfValues>(tile_.v, following_v_, first + i, tile_.v_row_stride, tile_.value_dim);
      }
      Scores<kRows, kColumns>(first + c, scores_ + c);
    }
    for (; c < count; ++c) Scores<kRows, 1>(first + c, scores_ + c);
    bool any = false;
    MW_UNROLL for (int r = 0; r < kRows; ++r) any = Weights(r, first, count) || any;
    if (any) Accumulate<kRows>(first, count);
  }

  /// scores[r * kTileColumns + c] = q_r . k_(first + c)
  template <int kRows, int kCount>
  void Scores(int64_t first, float* scores) {
    F acc[kRows][kColumns];
    MW_UNROLL for (int r = 0; r < kRows; ++r) { MW_UNROLL for (int c = 0; c < kColumns; ++c) acc[r][c] = V::Zero(); }
    const int64_t row = first * tile_.k_row_stride;
    int64_t d = 0;
    const auto step = [&](auto load) {
      F keys[kCount];
      MW_UNROLL for (int c = 0; c < kCount; ++c) keys[c] = load(row + c * tile_.k_row_stride + d);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        const F query = V::Load(q_ + r * padded_dim_ + d);
        MW_UNROLL for (int c = 0; c < kCount; ++c) acc[r][c] = V::Fma(query, keys[c], acc[r][c]);
      }
    };
    for (; d + kWidth <= tile_.dim; d += kWidth) {
      step([&](int64_t index) { return LoadRow<kHalfKeys>(tile_.k, index); });
    }
    if (d < tile_.dim) {
      step([&](int64_t index) { return LoadRowN<kHalfKeys>(tile_.k, index, tile_.dim - d); });
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      float sums[kColumns];
      V::Sum4(acc[r], sums);
      MW_UNROLL for (int c = 0; c < kCount; ++c) scores[r * kTileColumns + c] = sums[c];
    }
  }

  /// Turns the scores of query r into weights relative to its running maximum, after correcting what was summed so far.
  /// False when all scores so far are -inf, which leave no weight.
  bool Weights(int r, int64_t first, int64_t count) {
    float* scores = scores_ + r * kTileColumns;
    const F scale = V::Set1(tile_.scale);
    F tile_largest = V::Set1(-__builtin_inff());
    for (int64_t c = 0; c < count; c += kWidth) {
      const int64_t n = count - c;
      F score = V::Mul(V::Load(scores + c), scale);
      if (tile_.soft_cap > 0) {
        const F cap = V::Set1(tile_.soft_cap);
        score = V::Mul(Tanh<V>(V::Div(score, cap)), cap);
      }
      if (tile_.mask[r] != nullptr) score = V::Add(score, LoadMask(r, first + c, n));
      V::Store(scores + c, score);
      if (n >= kWidth) {
        tile_largest = V::Max(score, tile_largest);
      } else {
        for (int64_t i = c; i < count; ++i) tile_largest = V::Max(V::Set1(scores[i]), tile_largest);
      }
    }
    const float tile_max = V::Largest(tile_largest);
    const float largest = tile_max > largest_[r] ? tile_max : largest_[r];
    if (largest == -__builtin_inff()) {
      for (int64_t c = 0; c < count; ++c) scores[c] = 0.0F;
      return false;
    }
    if (largest > largest_[r]) Correct(r, largest);
    const F shift = V::Set1(largest);
    F sum = V::Zero();
    for (int64_t c = 0; c < count; c += kWidth) {
      const F weight = Exp<V>(V::Sub(V::Load(scores + c), shift));
      V::Store(scores + c, weight);
      sum = V::Add(sum, count - c >= kWidth ? weight : V::LoadN(scores + c, count - c));
    }
    sum_[r] += V::Sum(sum);
    return true;
  }

  F LoadMask(int r, int64_t column, int64_t n) const {
    if (tile_.mask_half) {
      const uint16_t* p = static_cast<const uint16_t*>(tile_.mask[r]) + column;
      return n >= kWidth ? V::LoadHalf(p) : V::LoadHalfN(p, n);
    }
    const float* p = static_cast<const float*>(tile_.mask[r]) + column;
    return n >= kWidth ? V::Load(p) : V::LoadN(p, n);
  }

  void Correct(int r, float largest) {
    const F factor = Exp<V>(V::Set1(largest_[r] - largest));
    float* acc = acc_ + r * padded_value_dim_;
    for (int64_t d = 0; d < padded_value_dim_; d += kWidth) V::Store(acc + d, V::Mul(V::Load(acc + d), factor));
    float lane[kWidth];
    V::Store(lane, factor);
    sum_[r] *= lane[0];
    largest_[r] = largest;
  }

  /// acc_r += sum over columns of weight * v.
  template <int kRows>
  void Accumulate(int64_t first, int64_t count) {
    int64_t d = 0;
    for (; d + V::kAttentionVectors * kWidth <= tile_.value_dim; d += V::kAttentionVectors * kWidth) {
      AccumulateAt<kRows, V::kAttentionVectors>(first, count, d);
    }
    for (; d < tile_.value_dim; d += kWidth) AccumulateAt<kRows, 1>(first, count, d);
  }

  template <int kRows, int kVectors>
  void AccumulateAt(int64_t first, int64_t count, int64_t d) {
    F acc[kRows][kVectors];
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      MW_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = V::Load(acc_ + r * padded_value_dim_ + d + v * kWidth);
    }
    const int64_t last = tile_.value_dim - d - (kVectors - 1) * kWidth;  // lanes of the last vector
    for (int64_t c = 0; c < count; ++c) {
      if (tile_.prefetch && d == 0) {
        Prefetch<kHalfKeys>(tile_.k, following_k_, first + c, tile_.k_row_stride, tile_.dim);
      }
      const int64_t index = (first + c) * tile_.v_row_stride + d;
      F values[kVectors];
      MW_UNROLL for (int v = 0; v + 1 < kVectors; ++v) values[v] = LoadRow<kHalfValues>(tile_.v, index + v * kWidth);
      const int64_t end = index + (kVectors - 1) * kWidth;
      values[kVectors - 1] =
          last >= kWidth ? LoadRow<kHalfValues>(tile_.v, end) : LoadRowN<kHalfValues>(tile_.v, end, last);
      MW_UNROLL for (int r = 0; r < kRows; ++r) {
        const F weight = V::Set1(scores_[r * kTileColumns + c]);
        MW_UNROLL for (int v = 0; v < kVectors; ++v) acc[r][v] = V::Fma(weight, values[v], acc[r][v]);
      }
    }
    MW_UNROLL for (int r = 0; r < kRows; ++r) {
      MW_UNROLL for (int v = 0; v < kVectors; ++v) V::Store(acc_ + r * padded_value_dim_ + d + v * kWidth, acc[r][v]);
    }
  }

  const AttentionTile& tile_;
  const int64_t padded_dim_;
  const int64_t padded_value_dim_;
  float* const q_;       // [kQueries][padded_dim_], zero behind dim
  float* const acc_;     // [kQueries][padded_value_dim_]
  float* const scores_;  // [kQueries][kTileColumns]
  float largest_[kQueries];
  float sum_[kQueries];
  int64_t end_ = 0;        // of the range being read
  int64_t following_ = 0;  // first column that is read after it, of following_k_ and following_v_
  const void* following_k_ = nullptr;
  const void* following_v_ = nullptr;
};

template <typename V>
void AttentionTileOf(const AttentionTile& tile) {
  if (tile.k_half) {
    tile.v_half ? AttentionRun<V, true, true>(tile).Run() : AttentionRun<V, true, false>(tile).Run();
  } else {
    tile.v_half ? AttentionRun<V, false, true>(tile).Run() : AttentionRun<V, false, false>(tile).Run();
  }
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_ATTENTION_INL_H_
