// Linear quantization of one tensor: codes times a scale for each group of contiguous elements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/elements.h"

namespace milwright::compress {
namespace {

using Granularity = CompressionFormat::Granularity;

// The contiguous groups that share a scale, and the shape of the scales.
struct Groups {
  size_t count = 1;
  size_t length = 0;
  Shape shape;  ///< of the scales, of the rank of the weight
};

Result<Groups> LinearGroups(const Tensor& weight, const CompressionFormat& format) {
  const Shape& shape = weight.shape();
  Groups groups{1, static_cast<size_t>(weight.size()), Shape(shape.size(), 1)};
  if (format.granularity == Granularity::kTensor) return groups;
  int64_t count = shape[0];
  groups.shape[0] = shape[0];
  if (format.granularity == Granularity::kBlock) {
    if (shape[1] % format.block_size != 0) {
      return Status(ErrorCode::kPrecondition,
                    fmt::format("blocks of {} do not divide the {} inputs", format.block_size, shape[1]));
    }
    groups.shape[1] = shape[1] / format.block_size;
    count *= groups.shape[1];
  }
  groups.count = static_cast<size_t>(count);
  groups.length = static_cast<size_t>(weight.size() / count);
  return groups;
}

struct Range {
  float low = 0;  ///< at most 0
  float high = 0;
  void Include(std::span<const float> values) {
    float least = low;
    float most = high;
    for (const float value : values) {
      least = value < least ? value : least;
      most = value > most ? value : most;
    }
    low = least;
    high = most;
  }
};

// The code of a group: w' = (code - offset) * scale.
struct Code {
  float scale = 1;
  int offset = 0;
};

class LinearCoder {
 public:
  LinearCoder(const Elements& weight, const CompressionFormat& format, Groups groups, const TensorOptions& options)
      : weight_(weight),
        format_(format),
        groups_(std::move(groups)),
        top_((1 << (format.bits - 1)) - 1),  // symmetric codes use [-top, top], as coremltools does
        unsigned_top_((1 << format.bits) - 1),
        pool_(options.threads),
        scales_(groups_.count),
        offsets_(groups_.count) {}

  // Fills the codes into `stream` (zero), and `decoded` unless it is empty.
  void Run(std::span<std::byte> stream, std::span<float> decoded) {
    stream_ = stream;
    decoded_ = decoded;
    if (groups_.count == 1) return RunWhole();
    const size_t per_piece = GroupsPerPiece(groups_.length, format_.bits);
    errors_.resize((groups_.count + per_piece - 1) / per_piece);
    ForEachPiece(pool_, errors_.size(), [&](size_t piece) {
      const size_t first = piece * per_piece;
      RunGroups(first, std::min(first + per_piece, groups_.count), errors_[piece]);
    });
  }

  [[nodiscard]] const std::vector<float>& scales() const { return scales_; }
  [[nodiscard]] const std::vector<uint8_t>& offsets() const { return offsets_; }
  [[nodiscard]] CompressionError Error() const { return SumOf(errors_); }

 private:
  struct Scratch {
    std::array<float, kBlock> values;
    std::array<float, kBlock> decoded;
    std::array<uint8_t, kBlock> codes;
  };

  // One group: its range first, by all threads, then its codes.
  void RunWhole() {
    const size_t pieces = (groups_.length + kPiece - 1) / kPiece;
    const auto end = [&](size_t piece) { return std::min((piece + 1) * kPiece, groups_.length); };
    std::vector<Range> ranges(pieces);
    ForEachPiece(pool_, pieces, [&](size_t piece) { ranges[piece] = RangeOf(piece * kPiece, end(piece)); });
    Range range;
    for (const Range& part : ranges) range.Include(std::array{part.low, part.high});
    const Code code = Fit(0, range);
    errors_.resize(pieces);
    ForEachPiece(pool_, pieces, [&](size_t piece) { Encode(piece * kPiece, end(piece), code, errors_[piece]); });
  }

  void RunGroups(size_t first, size_t last, CompressionError& error) {
    const size_t length = groups_.length;
    if (length > kBlock) {
      for (size_t g = first; g < last; ++g) {
        const Code code = Fit(g, RangeOf(g * length, (g + 1) * length));
        Encode(g * length, (g + 1) * length, code, error);
      }
      return;
    }
    Scratch scratch;
    const size_t at_once = kBlock / length;
    for (size_t g = first; g < last;) {
      const size_t stop = std::min(g + at_once, last);
      const size_t begin = g * length;
      const size_t count = (stop - g) * length;
      weight_.Read(begin, std::span(scratch.values).first(count));
      for (size_t at = 0; at < count; at += length, ++g) {
        Range range;
        range.Include(std::span(scratch.values).subspan(at, length));
        Quantize(Fit(g, range), at, length, scratch);
      }
      Put(begin, count, scratch, error);
    }
  }

  [[nodiscard]] Range RangeOf(size_t begin, size_t end) const {
    std::array<float, kBlock> values;
    Range range;
    for (size_t at = begin; at < end; at += kBlock) {
      const auto block = std::span(values).first(std::min(kBlock, end - at));
      weight_.Read(at, block);
      range.Include(block);
    }
    return range;
  }

  void Encode(size_t begin, size_t end, const Code& code, CompressionError& error) {
    Scratch scratch;
    for (size_t at = begin; at < end; at += kBlock) {
      const size_t count = std::min(kBlock, end - at);
      weight_.Read(at, std::span(scratch.values).first(count));
      Quantize(code, 0, count, scratch);
      Put(at, count, scratch, error);
    }
  }

  // Chooses and stores the scale and offset of group `g`.
  Code Fit(size_t g, const Range& range) {
    Code code;
    if (format_.asymmetric) {
      code.scale = RoundScale(weight_.dtype(), (static_cast<double>(range.high) - range.low) / unsigned_top_);
      const double zero = std::nearbyint(-static_cast<double>(range.low) / code.scale);
      code.offset = static_cast<int>(std::clamp(zero, 0.0, static_cast<double>(unsigned_top_)));
    } else {
      code.scale = RoundScale(weight_.dtype(), static_cast<double>(std::max(-range.low, range.high)) / top_);
    }
    scales_[g] = code.scale;
    offsets_[g] = static_cast<uint8_t>(code.offset);
    return code;
  }

  void Quantize(const Code& code, size_t begin, size_t count, Scratch& scratch) const {
    // Adding and subtracting 1.5 * 2^23 rounds a float below 2^22 to the nearest integer, ties to even.
    constexpr float kRounder = 12582912.0F;
    const auto low = static_cast<float>(format_.asymmetric ? -code.offset : -top_);
    const auto high = static_cast<float>(format_.asymmetric ? unsigned_top_ - code.offset : top_);
    const float scale = code.scale;
    const int offset = code.offset;
    const float* values = scratch.values.data() + begin;
    float* decoded = scratch.decoded.data() + begin;
    uint8_t* codes = scratch.codes.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      float steps = values[i] / scale;
      steps = steps > low ? steps : low;
      steps = steps < high ? steps : high;
      steps = (steps + kRounder) - kRounder;
      codes[i] = static_cast<uint8_t>(static_cast<int>(steps) + offset);
      decoded[i] = steps * scale;
    }
  }

  void Put(size_t begin, size_t count, const Scratch& scratch, CompressionError& error) {
    const auto decoded = std::span(scratch.decoded).first(count);
    PackCodes(std::span(scratch.codes).first(count), format_.bits, begin, stream_);
    AddError(weight_, begin, decoded, error);
    if (!decoded_.empty()) std::ranges::copy(decoded, decoded_.subspan(begin, count).begin());
  }

  const Elements& weight_;
  const CompressionFormat& format_;
  const Groups groups_;
  const int top_;
  const int unsigned_top_;
  kernels::ThreadPool pool_;
  std::vector<float> scales_;
  std::vector<uint8_t> offsets_;
  std::span<std::byte> stream_;
  std::span<float> decoded_;
  std::vector<CompressionError> errors_;
};

}  // namespace

Result<CompressedTensor> CompressLinear(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options) {
  MW_ASSIGN_OR_RETURN(const Groups groups, LinearGroups(weight, format));
  const DataType dtype = format.asymmetric ? (format.bits == 8 ? DataType::kUInt8 : DataType::kUInt4)
                                           : (format.bits == 8 ? DataType::kInt8 : DataType::kInt4);
  CompressedTensor result;
  result.op = "constexpr_blockwise_shift_scale";
  MW_ASSIGN_OR_RETURN(Tensor data, Tensor::Zeros({dtype, weight.shape()}));
  if (options.decoded) result.decoded.resize(static_cast<size_t>(weight.size()));
  const Elements elements(weight);
  LinearCoder coder(elements, format, groups, options);
  coder.Run(data.mutable_bytes(), result.decoded);
  result.error = coder.Error();
  MW_ASSIGN_OR_RETURN(Tensor scale, Tensor::FromFloats({weight.dtype(), groups.shape}, coder.scales()));
  result.parts = {{"data", std::move(data)}, {"scale", std::move(scale)}};
  if (format.asymmetric) {
    MW_ASSIGN_OR_RETURN(Tensor offset, CodeTensor({dtype, groups.shape}, coder.offsets()));
    result.parts.push_back({"offset", std::move(offset)});
  }
  return result;
}

}  // namespace milwright::compress
