// Random weight matrices in every stored format, for the tests of the kernels.
#ifndef MILWRIGHT_TESTS_KERNELS_STORED_WEIGHTS_H_
#define MILWRIGHT_TESTS_KERNELS_STORED_WEIGHTS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/weights.h"

namespace milwright::kernels::testing {

using Random = std::mt19937_64;

/// Half the distance of 1 to the next float: what one fp32 rounding errs by, relatively.
constexpr double kUnit = 1.0 / (1 << 24);
constexpr float kInf = std::numeric_limits<float>::infinity();

/// The kernels without vector instructions, which judge the others.
inline const Kernels& Scalar() { return *AvailableKernels().back(); }

/// n values of a normal distribution.
std::vector<float> RandomFloats(Random& random, int64_t n, float deviation = 1.0F);
std::vector<uint16_t> ToHalves(const std::vector<float>& values);
/// Seed of this run: MILWRIGHT_TEST_SEED if set, so that a failure can be repeated, else fixed.
uint64_t TestSeed();

/// One stored format. Block sizes of 0 mean the whole axis.
struct Format {
  std::string name;
  Codec codec;
  bool scaled = false;
  int64_t scale_rows = 1;
  int64_t scale_cols = 0;
  DataType scale_type = DataType::kFp16;
  bool has_offset = false;
  DataType offset_type = DataType::kInt8;
  int64_t table_rows = 0;
  int64_t table_cols = 0;
  DataType table_type = DataType::kFp16;
  bool sparse = false;
  bool round_to_half = false;
};

/// All formats that the kernels are tested with.
const std::vector<Format>& AllFormats();
/// The format of that name.
const Format& FormatNamed(const std::string& name);

/// A random [rows, cols] matrix: owns what `view` points to. The buffers have their exact sizes, so that reads past
/// their ends are found by AddressSanitizer.
struct StoredWeights {
  WeightView view;
  std::unique_ptr<uint8_t[]> codes;
  std::unique_ptr<uint8_t[]> table;
  std::unique_ptr<uint8_t[]> scale;
  std::unique_ptr<uint8_t[]> offset;
  std::unique_ptr<uint8_t[]> mask;
  std::vector<uint64_t> row_starts;

  StoredWeights(const Format& format, int64_t rows, int64_t cols, Random& random);
};

/// (|code| + |offset|) |scale| of every weight: what bounds of rounding errors are relative to.
std::vector<double> Magnitudes(const WeightView& view);
/// sum_k magnitude |x| for each row.
std::vector<double> RowNorms(const WeightView& view, const float* x);

}  // namespace milwright::kernels::testing

#endif  // MILWRIGHT_TESTS_KERNELS_STORED_WEIGHTS_H_
