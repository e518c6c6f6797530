// Decoding of stored weights to fp32, written once for all vector instruction sets.
//
// The *-inl.h files are templates over a vector type V (avx2/vec.h, avx512/vec.h, neon/vec.h) in an unnamed namespace:
// every folder that includes them gets its own copy, compiled with its own flags.
#ifndef MILWRIGHT_KERNELS_SIMD_DECODE_INL_H_
#define MILWRIGHT_KERNELS_SIMD_DECODE_INL_H_

#include <cstdint>
#include <cstring>

#include "kernels/simd/unroll.h"
#include "kernels/weights.h"

namespace milwright::kernels {
namespace {

/// Columns that are decoded at a time; also the depth of a panel in matrix-matrix products.
constexpr int64_t kDecodeChunk = 256;

constexpr int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline int64_t GridColumns(const Grid& grid, int64_t cols) { return (cols + grid.col_block - 1) / grid.col_block; }

/// Number of the grid's entry for a weight.
inline int64_t GridEntry(const Grid& grid, int64_t row, int64_t col, int64_t cols) {
  return row / grid.row_block * GridColumns(grid, cols) + col / grid.col_block;
}

/// Value `index` of a grid's array.
template <typename V>
float GridLoad(const Grid& grid, int64_t index) {
  const auto* bytes = static_cast<const uint8_t*>(grid.data);
  switch (grid.type) {
    case DataType::kFp32: {
      float value = 0;
      std::memcpy(&value, bytes + index * 4, 4);
      return value;
    }
    case DataType::kFp16: {
      uint16_t value = 0;
      std::memcpy(&value, bytes + index * 2, 2);
      return V::FromHalf(value);
    }
    case DataType::kInt8:
      return static_cast<float>(static_cast<int8_t>(bytes[index]));
    case DataType::kUInt8:
      return static_cast<float>(bytes[index]);
    default: {
      const int nibble = (bytes[index >> 1] >> ((index & 1) * 4)) & 0xF;
      return static_cast<float>(grid.type == DataType::kInt4 ? (nibble ^ 8) - 8 : nibble);
    }
  }
}

/// `count` bits (at most 32) of a bitmap from bit `index` on; reads only the bytes that hold them.
inline uint32_t BitsAt(const uint8_t* bitmap, int64_t index, int64_t count) {
  const int64_t bytes = ((index & 7) + count + 7) >> 3;
  uint64_t window = 0;
  std::memcpy(&window, bitmap + (index >> 3), static_cast<size_t>(bytes));
  window >>= static_cast<unsigned>(index & 7);
  return static_cast<uint32_t>(window & ((uint64_t{1} << static_cast<unsigned>(count)) - 1));
}

/// Decodes parts of rows of one matrix. Keeps the table of the last group, which mostly serves many rows.
template <typename V>
class RowDecoder {
 public:
  explicit RowDecoder(const WeightView& view) : view_(view), bits_(CodeBits(view.codec)), lut_(IsLut(view.codec)) {}

  /// out[0..count) = weights of `row` from column `begin` on.
  void Decode(int64_t row, int64_t begin, int64_t count, float* out) {
    for (int64_t done = 0; done < count; done += kDecodeChunk) {
      Chunk(row, begin + done, Min(kDecodeChunk, count - done), out + done);
    }
  }

 private:
  static constexpr int64_t kWidth = V::kWidth;

  void Chunk(int64_t row, int64_t begin, int64_t count, float* out) {
    const int64_t element = row * view_.cols + begin;
    if (view_.mask == nullptr) {
      Stored(row, element, count, begin, out);
    } else {
      Expand(row, begin, count, out);
    }
    if (view_.offset) {
      ForSegments(view_.offset, row, begin, count, [&](float offset, int64_t first, int64_t n) {
        const auto value = V::Set1(offset);
        Map(out + first, n, [&](auto x) { return V::Sub(x, value); });
      });
    }
    if (view_.scale) {
      ForSegments(view_.scale, row, begin, count, [&](float scale, int64_t first, int64_t n) {
        const auto value = V::Set1(scale);
        Map(out + first, n, [&](auto x) { return V::Mul(x, value); });
      });
    }
    if (view_.mask != nullptr && view_.offset) {
      for (int64_t i = 0; i < count; ++i) {
        if (BitsAt(view_.mask, element + i, 1) == 0) out[i] = 0.0F;
      }
    }
    if (view_.round_to_half) Map(out, count, [](auto x) { return V::RoundToHalf(x); });
  }

  template <typename Fn>
  static void Map(float* x, int64_t n, Fn fn) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::Store(x + i, fn(V::Load(x + i)));
    if (i < n) V::StoreN(x + i, n - i, fn(V::LoadN(x + i, n - i)));
  }

  /// Calls fn(value, first, n) for the runs of columns that share an entry of the grid.
  template <typename Fn>
  void ForSegments(const Grid& grid, int64_t row, int64_t begin, int64_t count, Fn fn) {
    int64_t entry = GridEntry(grid, row, begin, view_.cols);
    int64_t n = grid.col_block - begin % grid.col_block;  // columns of the first entry from `begin` on
    for (int64_t done = 0; done < count; done += n, n = grid.col_block) {
      fn(GridLoad<V>(grid, entry++), done, Min(n, count - done));
    }
  }

  /// Codes `element`.. as numbers, without offset and scale. `column` says which columns they are in (tables).
  void Stored(int64_t row, int64_t element, int64_t count, int64_t column, float* out) {
    if (view_.codec == Codec::kFp32) {
      std::memcpy(out, view_.codes + element * 4, static_cast<size_t>(count) * 4);
      return;
    }
    if (view_.codec == Codec::kFp16) {
      const uint8_t* halves = view_.codes + element * 2;
      int64_t i = 0;
      for (; i + kWidth <= count; i += kWidth) V::Store(out + i, V::LoadHalf(halves + i * 2));
      if (i < count) V::StoreN(out + i, count - i, V::LoadHalfN(halves + i * 2, count - i));
      return;
    }
    alignas(64) uint8_t unpacked[kDecodeChunk + 64];
    const uint8_t* codes = Unpack(element, count, unpacked);
    if (lut_) {
      LookUp(row, codes, count, column, out);
    } else if (view_.codec == Codec::kInt8) {
      for (int64_t i = 0; i < count; i += kWidth) V::StoreUpTo(out + i, count - i, V::LoadI8(codes + i));
    } else {
      // int4 was turned into unsigned codes that are 8 too large.
      const auto bias = V::Set1(view_.codec == Codec::kInt4 ? 8.0F : 0.0F);
      for (int64_t i = 0; i < count; i += kWidth) {
        V::StoreUpTo(out + i, count - i, V::Sub(V::LoadU8(codes + i), bias));
      }
    }
  }

  void LookUp(int64_t row, const uint8_t* codes, int64_t count, int64_t column, float* out) {
    const Grid& grid = view_.table;
    int64_t entry = GridEntry(grid, row, column, view_.cols);
    int64_t n = grid.col_block - column % grid.col_block;
    for (int64_t done = 0; done < count; done += n, n = grid.col_block) {
      LoadTable(entry++);
      V::LookUp(table_, bits_, codes + done, Min(n, count - done), out + done);
    }
  }

  void LoadTable(int64_t entry) {
    if (entry == table_entry_) return;
    const int64_t size = int64_t{1} << bits_;
    for (int64_t i = 0; i < size; ++i) table_[i] = GridLoad<V>(view_.table, entry * size + i);
    table_entry_ = entry;
  }

  /// One byte per code. Eight codes of b bits are b bytes of the stream, so a group of eight always starts at the same
  /// bit of a byte. May write up to 63 bytes more than `count`; those are zero or further codes.
  const uint8_t* Unpack(int64_t element, int64_t count, uint8_t* out) {
    if (bits_ == 8) {
      std::memcpy(out, view_.codes + element, static_cast<size_t>(count));
      return out;
    }
    constexpr uint64_t kLowBits = 0x0101010101010101U;
    const uint64_t spread = kLowBits * ((uint64_t{1} << static_cast<unsigned>(bits_)) - 1);
    const uint64_t flip = view_.codec == Codec::kInt4 ? kLowBits * 8 : 0;
    const int64_t first_bit = element * bits_;
    const auto shift = static_cast<unsigned>(first_bit & 7);
    int64_t byte = first_bit >> 3;
    for (int64_t i = 0; i < count; i += 8, byte += bits_) {
      uint64_t window = 0;
      const int64_t left = view_.code_bytes - byte;
      if (left >= 8) {
        std::memcpy(&window, view_.codes + byte, 8);
      } else {
        std::memcpy(&window, view_.codes + byte, static_cast<size_t>(left));
      }
      const uint64_t eight = V::SpreadBits(window >> shift, spread) ^ flip;
      std::memcpy(out + i, &eight, 8);
    }
    return out;
  }

  /// Stored weights of a sparse row moved to their columns.
  void Expand(int64_t row, int64_t begin, int64_t count, float* out) {
    const int64_t row_bit = row * view_.cols;
    int64_t stored = static_cast<int64_t>(view_.row_starts[row]);
    for (int64_t k = 0; k < begin; k += 32) {
      stored += __builtin_popcount(BitsAt(view_.mask, row_bit + k, Min(32, begin - k)));
    }
    int64_t here = 0;
    for (int64_t k = 0; k < count; k += 32) {
      here += __builtin_popcount(BitsAt(view_.mask, row_bit + begin + k, Min(32, count - k)));
    }
    alignas(64) float values[kDecodeChunk + kWidth];
    if (lut_ && view_.table.col_block < view_.cols) {
      ExpandGrouped(row, begin, count, stored, out);
      return;
    }
    if (here > 0) Stored(row, stored, here, begin, values);
    const float* next = values;
    for (int64_t k = 0; k < count; k += kWidth) {
      const int64_t n = Min(kWidth, count - k);
      const uint32_t bits = BitsAt(view_.mask, row_bit + begin + k, n);
      V::StoreUpTo(out + k, n, V::Expand(next, bits));
      next += __builtin_popcount(bits);
    }
  }

  /// Sparse weights whose table depends on the column: one at a time.
  void ExpandGrouped(int64_t row, int64_t begin, int64_t count, int64_t stored, float* out) {
    for (int64_t k = 0; k < count; ++k) {
      out[k] = 0.0F;
      if (BitsAt(view_.mask, row * view_.cols + begin + k, 1) != 0) Stored(row, stored++, 1, begin + k, out + k);
    }
  }

  const WeightView view_;
  const int bits_;
  const bool lut_;
  int64_t table_entry_ = -1;
  alignas(64) float table_[256] = {};
};

template <typename V>
void DecodeRowOnce(const WeightView& view, int64_t row, int64_t begin, int64_t count, float* out) {
  RowDecoder<V>(view).Decode(row, begin, count, out);
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_DECODE_INL_H_
