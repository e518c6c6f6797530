// A view of a weight matrix as its bytes are stored: dense or compressed, never expanded up front.
//
// The view composes the constexpr ops of Core ML (package-format.md, section 5). For row n and column k of an [N, K]
// matrix, with codes numbered n * K + k:
//
//   weight = (table ? table[code] : code) - offset) * scale,     or 0 where the sparsity mask has a 0 bit.
//
// table, offset and scale each come from a Grid: one entry per rectangle of rows and columns. With that, one struct
// covers fp32, fp16, (u)int8 and (u)int4 per tensor, per channel and per block, look-up tables per tensor and grouped
// on either axis with an optional scale, and sparse forms of all of these.
#ifndef MILWRIGHT_KERNELS_WEIGHTS_H_
#define MILWRIGHT_KERNELS_WEIGHTS_H_

#include <cstdint>
#include <string>

#include "kernels/aligned_buffer.h"
#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright::kernels {

/// How one stored code is read. Sub-byte codes form one little-endian, LSB-first bit stream without padding between
/// rows; int4 is two's complement. kLut*: the code indexes a table of 2^bits entries.
enum class Codec : uint8_t { kFp32, kFp16, kInt8, kUInt8, kInt4, kUInt4, kLut1, kLut2, kLut3, kLut4, kLut6, kLut8 };

/// Bits of one code.
int CodeBits(Codec codec);
bool IsLut(Codec codec);
/// "fp16", "int4", "lut6", ...
const char* CodecName(Codec codec);

/// Parameters shared by rectangles of weights: entry (n / row_block, k / col_block), row-major, ceil(K / col_block)
/// entries per grid row. For a table an entry is 2^bits consecutive values.
struct Grid {
  const void* data = nullptr;  ///< nullptr: no grid (scale 1, offset 0)
  DataType type = DataType::kFp16;
  int64_t row_block = 1;
  int64_t col_block = 1;

  explicit operator bool() const { return data != nullptr; }
};

/// An [rows, cols] weight matrix: rows are outputs, columns are inputs (y = W x). Memory is borrowed.
struct WeightView {
  int64_t rows = 0;
  int64_t cols = 0;
  Codec codec = Codec::kFp16;
  const uint8_t* codes = nullptr;
  int64_t code_bytes = 0;  ///< readable bytes at `codes`

  Grid table;   ///< kLut* only. fp16, fp32, int8 or uint8
  Grid scale;   ///< fp16 or fp32
  Grid offset;  ///< fp16, fp32, int8, uint8, int4 or uint4 (packed)

  /// Sparse weights: bit n * cols + k of `mask` says whether the weight is stored; `codes` then holds only the stored
  /// ones, in order. `row_starts[n]` is the number of stored weights before row n (rows + 1 entries; see
  /// CountRowStarts).
  const uint8_t* mask = nullptr;
  const uint64_t* row_starts = nullptr;

  /// Round every weight to fp16 after scaling, as a program does whose constexpr ops yield fp16. Strict numerics need
  /// this; otherwise the product of code and scale is used in fp32.
  bool round_to_half = false;
};

/// Whether multiplying may change the numbers.
enum class Precision : uint8_t {
  /// Weights are dequantised exactly to fp32 and multiplied and summed in fp32. For every output
  /// |error| <= (K + 6) * 2^-24 * (|bias| + sum_k (|code_k| + |offset_k|) |scale_k| |x_k|), the worst case of any order
  /// of
  /// summation; the tests hold every kernel to it.
  kExact,
  /// May in addition round the activation to int8, in blocks of 32 columns (formats with integer codes), and the
  /// entries
  /// of 4-bit tables to int8. FastErrorBound bounds what that adds.
  kFast,
};

/// Columns that share one scale when the activation is quantised in Precision::kFast.
inline constexpr int64_t kActivationBlock = 32;

/// Bound on the extra error of output `row` in Precision::kFast, beyond that of kExact, for the decoded row `weights`
/// and the activation `x` of view.cols values. An int8 activation errs by at most half a step, max|x in block| / 254,
/// and an int8 table entry by max|t| / 254, so the output errs by at most the sum over blocks of max|x| / 254 * sum|w|
/// plus the sum of max|t| / 254 * |x|.
float FastErrorBound(const WeightView& view, int64_t row, const float* weights, const float* x);

/// Checks sizes, types and block shapes of a view against its buffers' sizes where known; the kernels rely on it.
/// Errors (kInvalidProgram) say which field is wrong.
Status CheckWeights(const WeightView& view);

/// Bytes of codes, tables, scales, offsets and mask that one pass over the whole matrix reads.
int64_t StoredBytes(const WeightView& view);

/// Fills starts[0..rows] with the number of 1 bits of an [rows, cols] mask before each row.
void CountRowStarts(const uint8_t* mask, int64_t rows, int64_t cols, uint64_t* starts);

/// The decoded weight at (row, col): the definition that every kernel is tested against.
float WeightAt(const WeightView& view, int64_t row, int64_t col);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_WEIGHTS_H_
