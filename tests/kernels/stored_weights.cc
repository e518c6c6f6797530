#include "kernels/stored_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "milwright/half.h"

namespace milwright::kernels::testing {
namespace {

std::unique_ptr<uint8_t[]> Bytes(int64_t n) { return std::make_unique<uint8_t[]>(static_cast<size_t>(n)); }

std::vector<Format> MakeFormats() {
  std::vector<Format> formats = {
      {.name = "fp32", .codec = Codec::kFp32},
      {.name = "fp16", .codec = Codec::kFp16},
      {.name = "fp16_scaled", .codec = Codec::kFp16, .scaled = true},
      {.name = "int8_tensor", .codec = Codec::kInt8, .scaled = true, .scale_rows = 0},
      {.name = "int8_channel", .codec = Codec::kInt8, .scaled = true},
      {.name = "int8_channel_scale_fp32", .codec = Codec::kInt8, .scaled = true, .scale_type = DataType::kFp32},
      {.name = "int8_unscaled", .codec = Codec::kInt8},
      {.name = "int8_offset_only", .codec = Codec::kInt8, .has_offset = true},
      {.name = "uint8_channel",
       .codec = Codec::kUInt8,
       .scaled = true,
       .has_offset = true,
       .offset_type = DataType::kUInt8},
      {.name = "int8_block_rows", .codec = Codec::kInt8, .scaled = true, .scale_rows = 4, .scale_cols = 32},
      {.name = "int8_column", .codec = Codec::kInt8, .scaled = true, .scale_rows = 0, .scale_cols = 1},
      {.name = "int4_channel", .codec = Codec::kInt4, .scaled = true},
      {.name = "int4_tensor", .codec = Codec::kInt4, .scaled = true, .scale_rows = 0},
      {.name = "uint4_channel",
       .codec = Codec::kUInt4,
       .scaled = true,
       .has_offset = true,
       .offset_type = DataType::kUInt4},
      {.name = "int4_offset_fp16",
       .codec = Codec::kInt4,
       .scaled = true,
       .scale_cols = 64,
       .has_offset = true,
       .offset_type = DataType::kFp16},
      {.name = "int4_offset_int4",
       .codec = Codec::kInt4,
       .scaled = true,
       .scale_cols = 32,
       .has_offset = true,
       .offset_type = DataType::kInt4},
      {.name = "uint4_block_fp32",
       .codec = Codec::kUInt4,
       .scaled = true,
       .scale_cols = 32,
       .scale_type = DataType::kFp32,
       .has_offset = true,
       .offset_type = DataType::kFp32},
      {.name = "lut4_columns", .codec = Codec::kLut4, .table_cols = 48},
      {.name = "lut4_scaled", .codec = Codec::kLut4, .scaled = true, .table_rows = 8},
      {.name = "lut4_int8_table",
       .codec = Codec::kLut4,
       .scaled = true,
       .scale_rows = 0,
       .table_rows = 16,
       .table_type = DataType::kInt8},
      {.name = "lut8_uint8_table", .codec = Codec::kLut8, .scaled = true, .table_type = DataType::kUInt8},
      {.name = "lut6_fp32_table", .codec = Codec::kLut6, .table_rows = 3, .table_type = DataType::kFp32},
      {.name = "fp16_sparse", .codec = Codec::kFp16, .sparse = true},
      {.name = "fp32_sparse", .codec = Codec::kFp32, .sparse = true},
      {.name = "int8_sparse", .codec = Codec::kInt8, .scaled = true, .sparse = true},
      {.name = "int4_sparse_block",
       .codec = Codec::kInt4,
       .scaled = true,
       .scale_cols = 32,
       .has_offset = true,
       .offset_type = DataType::kInt4,
       .sparse = true},
      {.name = "lut4_sparse", .codec = Codec::kLut4, .table_rows = 4, .sparse = true},
      {.name = "lut3_sparse_columns", .codec = Codec::kLut3, .table_cols = 40, .sparse = true},
      {.name = "int8_rounded", .codec = Codec::kInt8, .scaled = true, .scale_cols = 32, .round_to_half = true},
      {.name = "lut4_rounded", .codec = Codec::kLut4, .scaled = true, .table_rows = 4, .round_to_half = true},
  };
  for (const int64_t block : {16, 32, 64, 128, 24}) {
    for (const Codec codec : {Codec::kInt8, Codec::kUInt8, Codec::kInt4, Codec::kUInt4}) {
      const bool is_unsigned = codec == Codec::kUInt8 || codec == Codec::kUInt4;
      formats.push_back({.name = std::string(CodecName(codec)) + "_block" + std::to_string(block),
                         .codec = codec,
                         .scaled = true,
                         .scale_cols = block,
                         .has_offset = is_unsigned,
                         .offset_type = codec == Codec::kUInt8 ? DataType::kUInt8 : DataType::kUInt4});
    }
  }
  for (const Codec codec : {Codec::kLut1, Codec::kLut2, Codec::kLut3, Codec::kLut4, Codec::kLut6, Codec::kLut8}) {
    formats.push_back({.name = std::string(CodecName(codec)) + "_tensor", .codec = codec});
    formats.push_back({.name = std::string(CodecName(codec)) + "_grouped", .codec = codec, .table_rows = 8});
    formats.push_back(
        {.name = std::string(CodecName(codec)) + "_row_scaled", .codec = codec, .scaled = true, .table_rows = 5});
  }
  return formats;
}

/// Fills a grid with `entries` values of its type; floats get values around `scale`.
std::unique_ptr<uint8_t[]> RandomGrid(DataType type, int64_t entries, float scale, Random& random) {
  std::unique_ptr<uint8_t[]> bytes = Bytes(type == DataType::kFp32 ? entries * 4 : entries * 2);
  std::normal_distribution<float> normal(0.0F, scale);
  switch (type) {
    case DataType::kFp32:
      for (int64_t i = 0; i < entries; ++i) {
        const float value = normal(random);
        std::memcpy(bytes.get() + i * 4, &value, 4);
      }
      return bytes;
    case DataType::kFp16:
      for (int64_t i = 0; i < entries; ++i) {
        const uint16_t value = FloatToHalf(normal(random));
        std::memcpy(bytes.get() + i * 2, &value, 2);
      }
      return bytes;
    default: {
      const bool nibbles = type == DataType::kInt4 || type == DataType::kUInt4;
      const int64_t count = nibbles ? (entries + 1) / 2 : entries;
      bytes = Bytes(count);
      for (int64_t i = 0; i < count; ++i) bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(random());
      return bytes;
    }
  }
}

int64_t Entries(const Grid& grid, int64_t rows, int64_t cols) {
  return ((rows + grid.row_block - 1) / grid.row_block) * ((cols + grid.col_block - 1) / grid.col_block);
}

}  // namespace

std::vector<float> RandomFloats(Random& random, int64_t n, float deviation) {
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<uint16_t> ToHalves(const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), FloatToHalf);
  return halves;
}

uint64_t TestSeed() {
  const char* seed = std::getenv("MILWRIGHT_TEST_SEED");
  return seed == nullptr ? 20261130 : std::strtoull(seed, nullptr, 10);
}

const std::vector<Format>& AllFormats() {
  static const std::vector<Format> formats = MakeFormats();
  return formats;
}

const Format& FormatNamed(const std::string& name) {
  return *std::find_if(AllFormats().begin(), AllFormats().end(), [&](const Format& f) { return f.name == name; });
}

StoredWeights::StoredWeights(const Format& format, int64_t rows, int64_t cols, Random& random) {
  view.rows = rows;
  view.cols = cols;
  view.codec = format.codec;
  view.round_to_half = format.round_to_half;
  const int bits = CodeBits(format.codec);
  int64_t stored = rows * cols;
  if (format.sparse) {
    mask = Bytes((stored + 7) / 8);
    for (int64_t i = 0; i < stored; ++i) {
      if (random() % 3 == 0)
        mask[static_cast<size_t>(i / 8)] |= static_cast<uint8_t>(1U << static_cast<unsigned>(i % 8));
    }
    row_starts.resize(static_cast<size_t>(rows) + 1);
    CountRowStarts(mask.get(), rows, cols, row_starts.data());
    view.mask = mask.get();
    view.row_starts = row_starts.data();
    stored = static_cast<int64_t>(row_starts.back());
  }
  view.code_bytes = (stored * bits + 7) / 8;
  codes = Bytes(view.code_bytes);
  view.codes = codes.get();
  if (format.codec == Codec::kFp32) {
    const std::vector<float> values = RandomFloats(random, stored);
    if (stored > 0) std::memcpy(codes.get(), values.data(), static_cast<size_t>(view.code_bytes));
  } else if (format.codec == Codec::kFp16) {
    const std::vector<uint16_t> values = ToHalves(RandomFloats(random, stored));
    if (stored > 0) std::memcpy(codes.get(), values.data(), static_cast<size_t>(view.code_bytes));
  } else {
    for (int64_t i = 0; i < view.code_bytes; ++i) codes[static_cast<size_t>(i)] = static_cast<uint8_t>(random());
  }
  const auto grid = [&](DataType type, int64_t row_block, int64_t col_block) {
    return Grid{nullptr, type, row_block == 0 ? rows : row_block, col_block == 0 ? cols : col_block};
  };
  if (IsLut(format.codec)) {
    view.table = grid(format.table_type, format.table_rows, format.table_cols);
    const int64_t entries = Entries(view.table, rows, cols) << static_cast<unsigned>(bits);
    table = RandomGrid(format.table_type, entries, 1.0F, random);
    view.table.data = table.get();
  }
  if (format.scaled) {
    view.scale = grid(format.scale_type, format.scale_rows, format.scale_cols);
    scale = RandomGrid(format.scale_type, Entries(view.scale, rows, cols), 0.05F, random);
    view.scale.data = scale.get();
  }
  if (format.has_offset) {
    view.offset = grid(format.offset_type, format.scale_rows, format.scale_cols);
    offset = RandomGrid(format.offset_type, Entries(view.offset, rows, cols), 3.0F, random);
    view.offset.data = offset.get();
  }
}

std::vector<double> Magnitudes(const WeightView& view) {
  WeightView exact = view;
  exact.round_to_half = false;
  WeightView without_offset = exact;
  without_offset.offset = {};
  std::vector<double> magnitudes;
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t col = 0; col < view.cols; ++col) {
      // With an offset the two parts of a weight may cancel; |offset scale| is their difference.
      const double code = WeightAt(without_offset, row, col);
      const double offset = code - WeightAt(exact, row, col);
      magnitudes.push_back(std::fabs(code) + std::fabs(offset));
    }
  }
  return magnitudes;
}

std::vector<double> RowNorms(const WeightView& view, const float* x) {
  const std::vector<double> magnitudes = Magnitudes(view);
  std::vector<double> norms(static_cast<size_t>(view.rows));
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    norms[i / static_cast<size_t>(view.cols)] +=
        magnitudes[i] * std::fabs(static_cast<double>(x[i % static_cast<size_t>(view.cols)]));
  }
  return norms;
}

}  // namespace milwright::kernels::testing
