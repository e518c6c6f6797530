// Compression of weights: linear quantization, palettization, sparsity, on any model of iOS18 or newer.
#ifndef MILWRIGHT_COMPRESS_COMPRESS_H_
#define MILWRIGHT_COMPRESS_COMPRESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// How one weight is compressed.
struct CompressionFormat {
  enum class Kind : uint8_t { kNone, kLinear, kPalette, kSparse };
  enum class Granularity : uint8_t { kTensor, kChannel, kBlock };
  Kind kind = Kind::kNone;
  int bits = 8;                                     ///< linear: 4 or 8; palette: 1, 2, 3, 4, 6, 8
  Granularity granularity = Granularity::kChannel;  ///< palette: kTensor, or kChannel for groups of output channels
  int64_t block_size =
      32;  ///< linear kBlock: input elements that share a scale; palette: output channels that share a table
  bool asymmetric = false;     ///< linear: unsigned codes with an offset
  bool channel_scale = false;  ///< palette: every output channel is divided by its largest magnitude first
  bool int8_table = false;     ///< palette: table entries stored as int8 with a scale for each table
  double sparsity = 0.5;       ///< sparse: share of elements, the smallest, that become zero

  bool operator==(const CompressionFormat&) const = default;
};

/// Reads a format: "int8", "int4", each with ":tensor", ":channel" (default for int8) or ":block32" (default for int4)
/// and
/// ":asym"; "lut4" (1, 2, 3, 4, 6, 8) with ":tensor" (default) or ":group16", and ":scale", ":int8"; "sparse:0.5";
/// "none".
Result<CompressionFormat> ParseCompression(std::string_view text);
std::string CompressionText(const CompressionFormat& format);

/// Formats by weight name; the first regular expression (ECMAScript, searched) that matches decides.
struct CompressionRule {
  std::string pattern;
  CompressionFormat format;
};

struct CompressOptions {
  CompressionFormat format;  ///< of everything that no rule names
  std::vector<CompressionRule> rules;
  int64_t min_elements = 2048;  ///< smaller weights stay as they are (coremltools' threshold)
  int threads = 0;              ///< 0: one for each core; the result does not depend on it
};

struct CompressedWeight {
  std::string name;
  std::string format;
  Shape shape;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  double relative_error = 0;  ///< ||w - w'|| / ||w||
  double max_error = 0;
};

struct CompressReport {
  std::vector<CompressedWeight> weights;  ///< each different weight once
  std::vector<std::string> notes;         ///< weights left as they are, and why
};

/// Replaces fp16 and fp32 constants that linear, conv, matmul or gather use by compressed ones. A weight that several
/// functions share is compressed once. Special values are defined: NaN becomes 0, infinities the largest finite number;
/// a channel or block of zeros gets the scale 1 and codes 0. kPrecondition: a function older than iOS18 (set-opset
/// first).
///
/// With `store`, every large part of a compressed weight is handed to it as soon as it is made, and the model refers to
/// the tensor that comes back (borrowed from a file, say): then the codes of one weight are in memory at a time.
using StorePart = std::function<Result<Tensor>(const Tensor&)>;
Result<CompressReport> CompressModel(ModelSpec& model, const CompressOptions& options, const StorePart& store = {});

/// The sums that relative and largest errors come from, over the finite elements of a weight.
struct CompressionError {
  double squares = 0;        ///< of the weight
  double error_squares = 0;  ///< of the weight minus what the codes stand for
  double largest = 0;        ///< of the differences
};

/// A compressed tensor: the parts of the constexpr op, and what it decodes to.
struct CompressedTensor {
  struct Part {
    std::string parameter;
    Tensor tensor;
  };
  std::string op;  ///< constexpr_blockwise_shift_scale, constexpr_lut_to_dense, constexpr_sparse_to_dense
  std::vector<Part> parts;
  std::vector<Part> table_parts;  ///< int8 tables: parts of the constexpr op that makes the table `lut`
  std::vector<Part> scale_parts;  ///< channel scales: `scale` of a constexpr op over the result
  std::vector<float> decoded;     ///< by the arithmetic of the ops, before rounding to the weight's type
  CompressionError error;
};

struct TensorOptions {
  bool decoded = true;  ///< fill CompressedTensor::decoded, which takes twice the memory of an fp16 weight
  int threads = 1;      ///< the result does not depend on it
};

/// Compresses one weight [output channels, inputs, ...]. kPrecondition: a block size that does not divide the input
/// axis, a group size that does not divide the output axis, rank below 2, or a type that is not fp16 or fp32.
Result<CompressedTensor> CompressTensor(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_COMPRESS_COMPRESS_H_
