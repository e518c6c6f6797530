// How the weights of a program are stored, and how large they are stored and decompressed.
#ifndef MILWRIGHT_ANALYSIS_WEIGHT_REPORT_H_
#define MILWRIGHT_ANALYSIS_WEIGHT_REPORT_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "mil/program.h"

namespace milwright {

/// The storage format of one weight, in the words of the evidence ledger: "fp16", "int4_per_block",
/// "int8_per_channel", "lut4_per_tensor", "lut4_per_grouped_channel", "lut4_sparse_per_tensor", ...
struct WeightFormat {
  std::string name;
  int64_t block_size = 0;  ///< elements that share a scale, or rows that share a table; 0 when all do

  bool operator<(const WeightFormat& other) const {
    return std::tie(name, block_size) < std::tie(other.name, other.block_size);
  }
  bool operator==(const WeightFormat&) const = default;
};

/// One weight: a const of ten or more elements, or the outermost constexpr op that makes it.
struct Weight {
  const Operation* op = nullptr;
  WeightFormat format;
  int64_t elements = 0;
  int64_t stored_bytes = 0;  ///< what its parts take in the file
  int64_t dense_bytes = 0;   ///< decompressed, in its declared type
};

/// Totals of one format. Weights that several functions share (the same bytes of the weight file) count once.
struct WeightTotal {
  WeightFormat format;
  int64_t count = 0;
  int64_t elements = 0;
  int64_t stored_bytes = 0;
  int64_t dense_bytes = 0;
};

/// The format of `op` when it is a weight (see Weight); nothing is read but types.
bool DescribeWeight(const Operation& op, Weight* weight);
std::vector<Weight> FindWeights(const Function& function);
/// By format, largest first.
std::vector<WeightTotal> ReportWeights(const Program& program);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_WEIGHT_REPORT_H_
