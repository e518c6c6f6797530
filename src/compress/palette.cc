// Palettization of one tensor: indices into a table for each group of output channels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compress/elements.h"
#include "compress/kmeans.h"
#include "compress/streamed_kmeans.h"
#include "milwright/half.h"

namespace milwright::compress {
namespace {

using Granularity = CompressionFormat::Granularity;

// Groups of fewer elements are not worth a pass over all fp16 values.
constexpr size_t kCountedLength = 8192;

// Longer groups are not copied, but counted in bins.
constexpr size_t kStreamedLength = size_t{1} << 17;

constexpr uint32_t kHalves = 1U << 16U;
constexpr uint32_t kHalfSign = 0x8000;
constexpr uint32_t kHalfInfinity = 0x7C00;  // and NaN above

// How often each fp16 value occurs. There are 65,536 of them, so counting sorts, whatever the number of elements.
class HalfCounts {
 public:
  void Add(std::span<const uint16_t> halves) {
    for (const uint16_t half : halves) ++counts_[half];
  }
  void Add(const HalfCounts& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }
  // The values that occur, ascending, and their counts; special values defined away as by Elements::Read. Clears.
  void Take(std::vector<float>& values, std::vector<uint32_t>& counts) {
    values.clear();
    counts.clear();
    for (const uint32_t sign : {0U, kHalfSign}) {
      counts_[sign | (kHalfInfinity - 1)] += std::exchange(counts_[sign | kHalfInfinity], 0);
      for (uint32_t half = kHalfInfinity + 1; half < kHalfSign; ++half)
        counts_[0] += std::exchange(counts_[sign | half], 0);
    }
    counts_[0] += std::exchange(counts_[kHalfSign], 0);  // -0
    const auto take = [&](uint32_t half) {
      if (counts_[half] == 0) return;
      values.push_back(HalfToFloat(static_cast<uint16_t>(half)));
      counts.push_back(std::exchange(counts_[half], 0));
    };
    for (uint32_t magnitude = kHalfInfinity; magnitude-- > 0;) take(kHalfSign | magnitude);
    for (uint32_t magnitude = 0; magnitude < kHalfInfinity; ++magnitude) take(magnitude);
  }

 private:
  std::vector<uint32_t> counts_ = std::vector<uint32_t>(kHalves);
};

// The index of the nearest centre for every fp16 value: NearestCenters as a table.
class HalfIndices {
 public:
  void Fill(std::span<const float> centers) {
    // Of the values up to a middle, the positive ones reach up to a magnitude, the negative ones down to one.
    size_t positive = 0;
    size_t negative = kHalfInfinity;
    const auto set = [&](size_t begin, size_t end, size_t index) {
      if (begin < end) std::fill(Place(begin), Place(end), static_cast<uint8_t>(index));
    };
    const std::vector<float> middles = Middles(centers);
    for (size_t c = 0; c < middles.size(); ++c) {
      const size_t positive_end = std::max(positive, CountUpTo(middles[c]));
      const size_t negative_begin = std::min(negative, LeastMagnitude(-middles[c]));
      set(positive, positive_end, c);
      set(kHalfSign + negative_begin, kHalfSign + negative, c);
      positive = positive_end;
      negative = negative_begin;
    }
    set(positive, kHalfInfinity, middles.size());
    set(kHalfSign, kHalfSign + negative, middles.size());
    for (const uint32_t sign : {0U, kHalfSign}) {
      indices_[sign | kHalfInfinity] = indices_[sign | (kHalfInfinity - 1)];
      set((sign | kHalfInfinity) + 1, sign + kHalfSign, indices_[0]);
    }
  }
  void Read(std::span<const uint16_t> halves, std::span<uint8_t> indices) const {
    for (size_t i = 0; i < halves.size(); ++i) indices[i] = indices_[halves[i]];
  }

 private:
  std::vector<uint8_t>::iterator Place(size_t half) { return indices_.begin() + static_cast<std::ptrdiff_t>(half); }
  // How many of the values 0, 0x1p-24, ..., 65504 are at most `bound`.
  static size_t CountUpTo(float bound) {
    if (bound < 0) return 0;
    const uint32_t half = FloatToHalf(std::abs(bound));
    if (half >= kHalfInfinity) return kHalfInfinity;
    return HalfToFloat(static_cast<uint16_t>(half)) > bound ? half : half + 1;
  }
  // The least of their magnitudes that is at least `bound`.
  static size_t LeastMagnitude(float bound) {
    if (bound <= 0) return 0;
    const uint32_t half = FloatToHalf(bound);
    if (half >= kHalfInfinity) return kHalfInfinity;
    return HalfToFloat(static_cast<uint16_t>(half)) < bound ? half + 1 : half;
  }
  std::vector<uint8_t> indices_ = std::vector<uint8_t>(kHalves);
};

DataType IndexType(int bits) {
  switch (bits) {
    case 1:
      return DataType::kUInt1;
    case 2:
      return DataType::kUInt2;
    case 3:
      return DataType::kUInt3;
    case 4:
      return DataType::kUInt4;
    case 6:
      return DataType::kUInt6;
    default:
      return DataType::kUInt8;
  }
}

class PaletteCoder {
 public:
  PaletteCoder(const Elements& weight, const Shape& shape, const CompressionFormat& format, int64_t groups,
               const TensorOptions& options)
      : weight_(weight),
        format_(format),
        entries_(size_t{1} << static_cast<unsigned>(format.bits)),
        groups_(static_cast<size_t>(groups)),
        length_(weight.size() / groups_),
        row_(weight.size() / static_cast<size_t>(shape[0])),
        counted_(weight.dtype() == DataType::kFp16 && !format.channel_scale && length_ >= kCountedLength),
        pool_(options.threads),
        row_scales_(format.channel_scale ? static_cast<size_t>(shape[0]) : 0),
        tables_(groups_ * entries_),
        table_scales_(groups_),
        table_codes_(format.int8_table ? groups_ * entries_ : 0) {}

  // Fills the indices into `stream` (zero), and `decoded` unless it is empty.
  void Run(std::span<std::byte> stream, std::span<float> decoded) {
    stream_ = stream;
    decoded_ = decoded;
    const size_t per_piece = std::max<size_t>(1, kPiece / row_);
    ForEachPiece(pool_, (row_scales_.size() + per_piece - 1) / per_piece, [&](size_t piece) {
      const size_t end = std::min((piece + 1) * per_piece, row_scales_.size());
      for (size_t row = piece * per_piece; row < end; ++row) ScaleRow(row);
    });
    if (groups_ == 1) return RunWhole();
    const size_t step = GroupsPerPiece(length_, format_.bits);
    errors_.resize((groups_ + step - 1) / step);
    ForEachPiece(pool_, errors_.size(), [&](size_t piece) {
      Scratch scratch;
      for (size_t g = piece * step; g < std::min((piece + 1) * step, groups_); ++g) {
        const std::vector<float> centers = Table(g, Fit(g * length_, scratch));
        if (counted_) scratch.table.Fill(centers);
        Encode(g * length_, (g + 1) * length_, centers, scratch.table, errors_[piece]);
      }
    });
  }

  [[nodiscard]] const std::vector<float>& row_scales() const { return row_scales_; }
  [[nodiscard]] const std::vector<float>& tables() const { return tables_; }
  [[nodiscard]] const std::vector<float>& table_scales() const { return table_scales_; }
  [[nodiscard]] const std::vector<uint8_t>& table_codes() const { return table_codes_; }
  [[nodiscard]] CompressionError Error() const { return SumOf(errors_); }

 private:
  struct Scratch {
    HalfCounts counts;
    HalfIndices table;
    std::vector<float> values;
    std::vector<uint32_t> value_counts;
  };

  // One group: by all threads.
  void RunWhole() {
    const size_t pieces = (length_ + kPiece - 1) / kPiece;
    const auto end = [&](size_t piece) { return std::min((piece + 1) * kPiece, length_); };
    Scratch scratch;
    if (counted_) CountWhole(pieces, scratch.counts);
    const std::vector<float> centers = Table(0, counted_ ? FitCounted(scratch) : Fit(0, scratch));
    if (counted_) scratch.table.Fill(centers);
    errors_.resize(pieces);
    ForEachPiece(pool_, pieces,
                 [&](size_t piece) { Encode(piece * kPiece, end(piece), centers, scratch.table, errors_[piece]); });
  }

  void ScaleRow(size_t row) {
    std::array<float, kBlock> values;
    float largest = 0;
    for (size_t at = 0; at < row_; at += kBlock) {
      const auto block = std::span(values).first(std::min(kBlock, row_ - at));
      weight_.Read(row * row_ + at, block);
      largest = std::max(largest, LargestMagnitude(block));
    }
    row_scales_[row] = largest > 0 ? RoundScale(weight_.dtype(), largest) : 1.0F;
  }

  // Calls `work(position in the block, count, scale)` for the parts of a block that lie in one output channel.
  template <typename Work>
  void ForEachRow(size_t begin, size_t count, Work work) const {
    for (size_t done = 0; done < count && !row_scales_.empty();) {
      const size_t row = (begin + done) / row_;
      const size_t part = std::min(count - done, (row + 1) * row_ - begin - done);
      work(done, part, row_scales_[row]);
      done += part;
    }
  }

  // Values over the scale of their channel.
  void Read(size_t begin, std::span<float> out) const {
    weight_.Read(begin, out);
    ForEachRow(begin, out.size(), [&](size_t at, size_t count, float scale) {
      for (size_t i = at; i < at + count; ++i) out[i] /= scale;
    });
  }

  // Adds up what threads count by themselves: whole numbers, whose sum does not depend on who counted what.
  void CountWhole(size_t pieces, HalfCounts& counts) {
    CountPieces<HalfCounts>(
        pool_, pieces,
        [&](size_t piece, HalfCounts& own) {
          const size_t begin = piece * kPiece;
          own.Add(weight_.halves().subspan(begin, std::min(kPiece, length_ - begin)));
        },
        [&](const HalfCounts& own) { counts.Add(own); });
  }

  std::vector<float> FitCounted(Scratch& scratch) const {
    scratch.counts.Take(scratch.values, scratch.value_counts);
    return KMeans1d(scratch.values, scratch.value_counts, static_cast<int>(entries_));
  }

  std::vector<float> Fit(size_t begin, Scratch& scratch) {
    if (counted_) {
      scratch.counts.Add(weight_.halves().subspan(begin, length_));
      return FitCounted(scratch);
    }
    const auto k = static_cast<int>(entries_);
    if (length_ > kStreamedLength) {
      return StreamedKMeans1d(
          pool_, length_, [&](size_t at, std::span<float> out) { Read(begin + at, out); }, k);
    }
    scratch.values.resize(length_);
    Read(begin, scratch.values);
    return KMeans1d(scratch.values, k);
  }

  // Stores the table of group `g`, the last centre repeated up to its size; returns the centres as the table holds
  // them.
  std::vector<float> Table(size_t g, std::vector<float> centers) {
    const size_t start = g * entries_;
    if (format_.int8_table) {
      const float scale = RoundScale(weight_.dtype(), static_cast<double>(LargestMagnitude(centers)) / 127);
      table_scales_[g] = scale;
      for (size_t i = 0; i < entries_; ++i) {
        float& center = centers[std::min(i, centers.size() - 1)];
        if (i < centers.size()) {
          const float code = std::clamp(std::nearbyint(center / scale), -127.0F, 127.0F);
          table_codes_[start + i] = static_cast<uint8_t>(static_cast<int8_t>(code));
          center = RoundTo(weight_.dtype(), static_cast<double>(code) * scale);
        } else {
          table_codes_[start + i] = table_codes_[start + i - 1];
        }
      }
    } else {
      for (float& center : centers) center = RoundTo(weight_.dtype(), center);
    }
    for (size_t i = 0; i < entries_; ++i) tables_[start + i] = centers[std::min(i, centers.size() - 1)];
    return centers;
  }

  void Encode(size_t begin, size_t end, const std::vector<float>& centers, const HalfIndices& table,
              CompressionError& error) {
    std::array<float, kBlock> decoded;
    std::array<uint8_t, kBlock> indices;
    for (size_t at = begin; at < end; at += kBlock) {
      const auto block = std::span(decoded).first(std::min(kBlock, end - at));
      const auto codes = std::span(indices).first(block.size());
      if (counted_) {
        table.Read(weight_.halves().subspan(at, block.size()), codes);
      } else {
        Read(at, block);
        NearestCenters(block, centers, codes);
      }
      for (size_t i = 0; i < block.size(); ++i) block[i] = centers[codes[i]];
      ForEachRow(at, block.size(), [&](size_t part, size_t count, float scale) {
        for (size_t i = part; i < part + count; ++i) block[i] *= scale;
      });
      PackCodes(codes, format_.bits, at, stream_);
      AddError(weight_, at, block, error);
      if (!decoded_.empty()) std::ranges::copy(block, decoded_.subspan(at, block.size()).begin());
    }
  }

  const Elements& weight_;
  const CompressionFormat& format_;
  const size_t entries_;
  const size_t groups_;
  const size_t length_;
  const size_t row_;
  const bool counted_;  ///< values are fp16 as they stand and many: tables over all fp16 values serve
  kernels::ThreadPool pool_;
  std::vector<float> row_scales_;  ///< empty without channel scales
  std::vector<float> tables_;
  std::vector<float> table_scales_;
  std::vector<uint8_t> table_codes_;
  std::span<std::byte> stream_;
  std::span<float> decoded_;
  std::vector<CompressionError> errors_;
};

}  // namespace

Result<CompressedTensor> CompressPalette(const Tensor& weight, const CompressionFormat& format,
                                         const TensorOptions& options) {
  const Shape& shape = weight.shape();
  const bool grouped = format.granularity == Granularity::kChannel;
  if (grouped && shape[0] % format.block_size != 0) {
    return Status(ErrorCode::kPrecondition,
                  fmt::format("groups of {} do not divide the {} output channels", format.block_size, shape[0]));
  }
  const int64_t groups = grouped ? shape[0] / format.block_size : 1;
  if (weight.size() / groups > std::numeric_limits<uint32_t>::max()) {
    return Status(ErrorCode::kPrecondition,
                  fmt::format("{} elements are too many for one table", weight.size() / groups));
  }
  Shape table_shape(shape.size() + 2, 1);
  table_shape[0] = groups;
  table_shape[shape.size()] = int64_t{1} << static_cast<unsigned>(format.bits);
  CompressedTensor result;
  result.op = "constexpr_lut_to_dense";
  MW_ASSIGN_OR_RETURN(Tensor indices, Tensor::Zeros({IndexType(format.bits), shape}));
  if (options.decoded) result.decoded.resize(static_cast<size_t>(weight.size()));
  const Elements elements(weight);
  PaletteCoder coder(elements, shape, format, groups, options);
  coder.Run(indices.mutable_bytes(), result.decoded);
  result.error = coder.Error();
  result.parts.push_back({"indices", std::move(indices)});
  if (format.int8_table) {
    MW_ASSIGN_OR_RETURN(Tensor data, CodeTensor({DataType::kInt8, table_shape}, coder.table_codes()));
    Shape scale_shape(table_shape.size(), 1);
    scale_shape[0] = groups;
    MW_ASSIGN_OR_RETURN(Tensor scale,
                        Tensor::FromFloats({weight.dtype(), std::move(scale_shape)}, coder.table_scales()));
    result.table_parts = {{"data", std::move(data)}, {"scale", std::move(scale)}};
  } else {
    MW_ASSIGN_OR_RETURN(Tensor lut, Tensor::FromFloats({weight.dtype(), table_shape}, coder.tables()));
    result.parts.push_back({"lut", std::move(lut)});
  }
  if (format.channel_scale) {
    Shape scale_shape(shape.size(), 1);
    scale_shape[0] = shape[0];
    MW_ASSIGN_OR_RETURN(Tensor scale, Tensor::FromFloats({weight.dtype(), std::move(scale_shape)}, coder.row_scales()));
    result.scale_parts = {{"scale", std::move(scale)}};
  }
  return result;
}

}  // namespace milwright::compress
