#include "kernels/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "milwright/half.h"

namespace milwright::kernels {
namespace {

struct CodecInfo {
  const char* name;
  int bits;
  bool lut;
};

constexpr CodecInfo kCodecs[] = {
    {"fp32", 32, false}, {"fp16", 16, false}, {"int8", 8, false}, {"uint8", 8, false},
    {"int4", 4, false},  {"uint4", 4, false}, {"lut1", 1, true},  {"lut2", 2, true},
    {"lut3", 3, true},   {"lut4", 4, true},   {"lut6", 6, true},  {"lut8", 8, true},
};

const CodecInfo& InfoOf(Codec codec) { return kCodecs[static_cast<size_t>(codec)]; }

/// The code of `bits` bits (at most 8) at element `index` of an LSB-first stream.
uint32_t CodeAt(const uint8_t* codes, int bits, uint64_t index) {
  const uint64_t bit = index * static_cast<uint64_t>(bits);
  const auto shift = static_cast<unsigned>(bit & 7U);
  uint32_t window = codes[bit >> 3U];
  if (shift + static_cast<unsigned>(bits) > 8) window |= static_cast<uint32_t>(codes[(bit >> 3U) + 1]) << 8U;
  return (window >> shift) & ((1U << static_cast<unsigned>(bits)) - 1U);
}

/// Element `index` of an array of one of the types that a Grid may have.
float GridValue(const Grid& grid, uint64_t index) {
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
      return HalfToFloat(value);
    }
    case DataType::kInt8:
      return static_cast<float>(static_cast<int8_t>(bytes[index]));
    case DataType::kUInt8:
      return static_cast<float>(bytes[index]);
    case DataType::kInt4:
      return static_cast<float>(static_cast<int>(CodeAt(bytes, 4, index) ^ 8U) - 8);
    default:  // kUInt4: CheckWeights allows nothing else
      return static_cast<float>(CodeAt(bytes, 4, index));
  }
}

int64_t BlocksPerRow(const Grid& grid, int64_t cols) { return (cols + grid.col_block - 1) / grid.col_block; }

uint64_t EntryOf(const Grid& grid, int64_t row, int64_t col, int64_t cols) {
  return static_cast<uint64_t>(row / grid.row_block * BlocksPerRow(grid, cols) + col / grid.col_block);
}

int64_t GridBytes(const Grid& grid, const WeightView& view, int64_t values_per_entry) {
  if (!grid) return 0;
  const int64_t entries =
      (view.rows + grid.row_block - 1) / grid.row_block * BlocksPerRow(grid, view.cols) * values_per_entry;
  switch (grid.type) {
    case DataType::kFp32:
      return entries * 4;
    case DataType::kFp16:
      return entries * 2;
    case DataType::kInt4:
    case DataType::kUInt4:
      return (entries + 1) / 2;
    default:
      return entries;
  }
}

bool StoredAt(const uint8_t* mask, uint64_t index) { return ((mask[index >> 3U] >> (index & 7U)) & 1U) != 0; }

/// Number of 1 bits among bits [begin, end) of a bitmap.
uint64_t CountBits(const uint8_t* mask, uint64_t begin, uint64_t end) {
  uint64_t count = 0;
  while (begin < end && (begin & 7U) != 0) count += StoredAt(mask, begin++) ? 1 : 0;
  while (begin + 64 <= end) {
    uint64_t word = 0;
    std::memcpy(&word, mask + (begin >> 3U), 8);
    count += static_cast<uint64_t>(std::popcount(word));
    begin += 64;
  }
  while (begin < end) count += StoredAt(mask, begin++) ? 1 : 0;
  return count;
}

Status CheckGrid(const Grid& grid, const char* what, std::initializer_list<DataType> types) {
  if (!grid) return Status::Ok();
  if (grid.row_block < 1 || grid.col_block < 1) {
    return {ErrorCode::kInvalidProgram, fmt::format("weights: the {} has blocks of {} x {}; both must be at least 1",
                                                    what, grid.row_block, grid.col_block)};
  }
  if (std::find(types.begin(), types.end(), grid.type) == types.end()) {
    return {ErrorCode::kInvalidProgram, fmt::format("weights: the {} has element type {}, which no kernel reads", what,
                                                    static_cast<int>(grid.type))};
  }
  return Status::Ok();
}

}  // namespace

int CodeBits(Codec codec) { return InfoOf(codec).bits; }
bool IsLut(Codec codec) { return InfoOf(codec).lut; }
const char* CodecName(Codec codec) { return InfoOf(codec).name; }

Status CheckWeights(const WeightView& view) {
  const auto invalid = [](const std::string& text) { return Status(ErrorCode::kInvalidProgram, "weights: " + text); };
  if (view.rows < 1 || view.cols < 1) return invalid(fmt::format("shape is {} x {}", view.rows, view.cols));
  // Bit positions are computed as int64: rows * cols * 32 must fit.
  if (view.rows > std::numeric_limits<int64_t>::max() / 64 / view.cols) {
    return invalid(fmt::format("{} x {} elements are more than can be addressed", view.rows, view.cols));
  }
  if (view.codes == nullptr) return invalid("there are no codes");
  using enum DataType;
  MW_RETURN_IF_ERROR(CheckGrid(view.scale, "scale", {kFp16, kFp32}));
  MW_RETURN_IF_ERROR(CheckGrid(view.offset, "offset", {kFp16, kFp32, kInt8, kUInt8, kInt4, kUInt4}));
  MW_RETURN_IF_ERROR(CheckGrid(view.table, "table", {kFp16, kFp32, kInt8, kUInt8}));
  if (IsLut(view.codec) != static_cast<bool>(view.table)) {
    return invalid(IsLut(view.codec) ? "palette indices without a table" : "a table without palette indices");
  }
  int64_t stored = view.rows * view.cols;
  if (view.mask != nullptr) {
    if (view.row_starts == nullptr) return invalid("a sparsity mask without row starts; call CountRowStarts");
    stored = static_cast<int64_t>(view.row_starts[view.rows]);
  }
  const int64_t needed = (stored * CodeBits(view.codec) + 7) / 8;
  if (view.code_bytes < needed) {
    return invalid(fmt::format("{} codes of {} take {} bytes but only {} are there", stored, CodecName(view.codec),
                               needed, view.code_bytes));
  }
  return Status::Ok();
}

int64_t StoredBytes(const WeightView& view) {
  const int64_t elements = view.rows * view.cols;
  const int64_t stored = view.mask != nullptr ? static_cast<int64_t>(view.row_starts[view.rows]) : elements;
  int64_t bytes = (stored * CodeBits(view.codec) + 7) / 8;
  if (view.mask != nullptr) bytes += (elements + 7) / 8;
  bytes += GridBytes(view.scale, view, 1) + GridBytes(view.offset, view, 1);
  if (IsLut(view.codec))
    bytes += GridBytes(view.table, view, int64_t{1} << static_cast<unsigned>(CodeBits(view.codec)));
  return bytes;
}

void CountRowStarts(const uint8_t* mask, int64_t rows, int64_t cols, uint64_t* starts) {
  starts[0] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = static_cast<uint64_t>(row * cols);
    starts[row + 1] = starts[row] + CountBits(mask, begin, begin + static_cast<uint64_t>(cols));
  }
}

float WeightAt(const WeightView& view, int64_t row, int64_t col) {
  auto index = static_cast<uint64_t>(row * view.cols + col);
  if (view.mask != nullptr) {
    if (!StoredAt(view.mask, index)) return 0.0F;
    index = view.row_starts[row] + CountBits(view.mask, static_cast<uint64_t>(row * view.cols), index);
  }
  float value = 0;
  switch (view.codec) {
    case Codec::kFp32:
      std::memcpy(&value, view.codes + index * 4, 4);
      break;
    case Codec::kFp16: {
      uint16_t half = 0;
      std::memcpy(&half, view.codes + index * 2, 2);
      value = HalfToFloat(half);
      break;
    }
    case Codec::kInt8:
      value = static_cast<float>(static_cast<int8_t>(view.codes[index]));
      break;
    case Codec::kUInt8:
      value = static_cast<float>(view.codes[index]);
      break;
    case Codec::kInt4:
      value = static_cast<float>(static_cast<int>(CodeAt(view.codes, 4, index) ^ 8U) - 8);
      break;
    case Codec::kUInt4:
      value = static_cast<float>(CodeAt(view.codes, 4, index));
      break;
    default: {
      const int bits = CodeBits(view.codec);
      const uint64_t entry = EntryOf(view.table, row, col, view.cols) << static_cast<unsigned>(bits);
      value = GridValue(view.table, entry + CodeAt(view.codes, bits, index));
    }
  }
  if (view.offset) value -= GridValue(view.offset, EntryOf(view.offset, row, col, view.cols));
  if (view.scale) value *= GridValue(view.scale, EntryOf(view.scale, row, col, view.cols));
  return view.round_to_half ? RoundToHalf(value) : value;
}

float FastErrorBound(const WeightView& view, int64_t row, const float* weights, const float* x) {
  // Half a step of a table's int8 entries: its largest entry / 254.
  double table_error = 0;
  if (IsLut(view.codec)) {
    const auto entries = uint64_t{1} << static_cast<unsigned>(CodeBits(view.codec));
    for (int64_t k = 0; k < view.cols; k += std::min(view.table.col_block, view.cols)) {
      const uint64_t first = EntryOf(view.table, row, k, view.cols) * entries;
      for (uint64_t i = 0; i < entries; ++i) {
        table_error = std::max(table_error, std::fabs(static_cast<double>(GridValue(view.table, first + i))) / 254);
      }
    }
  }
  double bound = 0;
  for (int64_t begin = 0; begin < view.cols; begin += kActivationBlock) {
    const int64_t end = std::min(begin + kActivationBlock, view.cols);
    double largest = 0;
    double sum = 0;
    double rounded = 0;  // sum of |x| times the error of its weight
    for (int64_t k = begin; k < end; ++k) {
      const double scale =
          view.scale ? std::fabs(static_cast<double>(GridValue(view.scale, EntryOf(view.scale, row, k, view.cols))))
                     : 1;
      largest = std::max(largest, std::fabs(static_cast<double>(x[k])));
      sum += std::fabs(static_cast<double>(weights[k])) + table_error * scale;
      rounded += table_error * scale * std::fabs(static_cast<double>(x[k]));
    }
    bound += largest / 254 * sum + rounded;
  }
  // Rounding x * (127 / max) and the scale adds a few units of 2^-24 to half a step: far less than 0.1 %.
  return static_cast<float>(1.001 * bound);
}

}  // namespace milwright::kernels
