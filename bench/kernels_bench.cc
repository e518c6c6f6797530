// How close the kernels come to what the machine can do. Prints one table per kind of work:
//   matvec  GB/s of stored weights read, and its share of the streaming read bandwidth measured between the runs
//   matmul  multiply-adds per second, and their share of the measured fp32 fused-multiply-add peak
//   attention  one decode step over a filled cache, and over the same columns of a larger one
//
// usage: kernels_bench [threads=2] [kernels: scalar|avx2|avx512|neon] [matvec|matmul|attention]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/bandwidth.h"
#include "kernels/matmul.h"
#include "milwright/half.h"

namespace milwright::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 9;

double SecondsOf(const auto& work) {
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct BenchFormat {
  const char* name;
  Codec codec;
  int64_t block;  // columns per scale; 0: none, -1: one per row
  int64_t group;  // rows per table; 0: one table
};

constexpr BenchFormat kFormats[] = {
    {"fp32", Codec::kFp32, 0, 0},           {"fp16", Codec::kFp16, 0, 0},
    {"int8 channel", Codec::kInt8, -1, 0},  {"int8 block 32", Codec::kInt8, 32, 0},
    {"int4 channel", Codec::kInt4, -1, 0},  {"int4 block 32", Codec::kInt4, 32, 0},
    {"lut8 tensor", Codec::kLut8, 0, 0},    {"lut6 group 16", Codec::kLut6, 0, 16},
    {"lut4 tensor", Codec::kLut4, 0, 0},    {"lut4 group 16", Codec::kLut4, 0, 16},
    {"lut3 group 16", Codec::kLut3, 0, 16}, {"lut2 group 16", Codec::kLut2, 0, 16},
};

/// A matrix of random codes in anonymous memory.
struct Matrix {
  AlignedBuffer codes;
  AlignedBuffer parameters;
  WeightView view;

  Matrix(const BenchFormat& format, int64_t rows, int64_t cols) {
    std::mt19937_64 random(1);
    view.rows = rows;
    view.cols = cols;
    view.codec = format.codec;
    view.code_bytes = rows * cols * CodeBits(format.codec) / 8;
    codes = *AlignedBuffer::Allocate(static_cast<size_t>(view.code_bytes));
    view.codes = codes.data();
    // Floats get magnitudes in [0.5, 1): random exponents would make denormal products, which are slow.
    const bool fp32 = format.codec == Codec::kFp32;
    const bool fp16 = format.codec == Codec::kFp16;
    const uint64_t keep = fp32 ? 0x807FFFFF807FFFFFU : fp16 ? 0x83FF83FF83FF83FFU : ~uint64_t{0};
    const uint64_t set = fp32 ? 0x3F0000003F000000U : fp16 ? 0x3800380038003800U : 0;
    for (uint64_t& word : codes.As<uint64_t>()) word = (random() & keep) | set;
    const int64_t scales = format.block == 0 ? 0 : format.block < 0 ? rows : rows * (cols / format.block);
    const int64_t tables = IsLut(format.codec) ? (format.group == 0 ? 1 : rows / format.group) : 0;
    const int64_t values = scales + (tables << static_cast<unsigned>(CodeBits(format.codec)));
    parameters = *AlignedBuffer::Allocate(static_cast<size_t>(values) * 2 + 64);
    for (uint16_t& value : parameters.As<uint16_t>()) value = FloatToHalf(0.01F * static_cast<float>(random() % 100));
    if (scales > 0) view.scale = {parameters.data(), DataType::kFp16, 1, format.block < 0 ? cols : format.block};
    if (tables > 0) view.table = {parameters.data(), DataType::kFp16, format.group == 0 ? rows : format.group, cols};
  }
};

void BenchMatVec(const Kernels& kernels, ThreadPool& pool, BandwidthProbe& probe) {
  fmt::print("\nmatrix-vector: as many matrices of 3072 x 1024 as make 256 MB, read once per run, {} threads\n",
             pool.threads());
  fmt::print("{:16} {:30} {:>9} {:>7} {:>10}\n", "format", "kernel", "GB/s", "share", "Gweights/s");
  for (const BenchFormat& format : kFormats) {
    // One tall matrix stands for many: rows are independent.
    const int64_t row_bytes = 1024 * CodeBits(format.codec) / 8;
    const int64_t rows = (int64_t{256} << 20) / row_bytes;
    const Matrix matrix(format, rows, 1024);
    std::vector<float> x(1024);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01F * static_cast<float>(i % 97) - 0.5F;
    std::vector<float> y(static_cast<size_t>(rows));
    const MatVecKernel* last = nullptr;
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      const MatVecKernel& kernel = FindMatVec(kernels, matrix.view, precision);
      if (&kernel == last) continue;
      last = &kernel;
      AlignedBuffer scratch = *AlignedBuffer::Allocate(MatVecScratchBytes(kernel, matrix.view));
      std::vector<double> rates;
      std::vector<double> shares;
      for (int i = 0; i < kRepetitions; ++i) {
        const double bandwidth = probe.ReadOnce();
        const double seconds = SecondsOf([&] {
          // In regions of 3072 rows, as the layers of a model make them.
          for (int64_t row = 0; row < rows; row += 3072) {
            const int64_t count = std::min<int64_t>(3072, rows - row);
            if (row == 0) kernel.prepare(x.data(), 1024, scratch.data());
            pool.ParallelFor(
                count,
                [&](int64_t begin, int64_t end) {
                  kernel.rows(matrix.view, scratch.data(), nullptr, row + begin, row + end, y.data());
                },
                16);
          }
        });
        rates.push_back(static_cast<double>(StoredBytes(matrix.view)) / seconds / 1e9);
        shares.push_back(rates.back() / bandwidth);
      }
      const double rate = Summarize(rates).median;
      fmt::print("{:16} {:30} {:9.1f} {:6.0f}% {:10.1f}\n", format.name, kernel.name, rate,
                 100 * Summarize(shares).median,
                 rate * static_cast<double>(rows * 1024) / static_cast<double>(StoredBytes(matrix.view)));
    }
  }
}

void BenchMatMul(const Kernels& kernels, ThreadPool& pool) {
  const double fma = MeasureFmaPeak(kernels, pool).median;
  const double dot = MeasureInt8Peak(kernels, pool).median;
  fmt::print("\nmatrix-matrix: 3072 x 1024, M = 128; fp32 peak {:.0f} G multiply-adds/s, int8 peak {:.0f}\n", fma, dot);
  fmt::print("{:16} {:30} {:>9} {:>9}\n", "format", "kernel", "Gmadd/s", "of fp32");
  for (const BenchFormat& format : kFormats) {
    const Matrix matrix(format, 3072, 1024);
    const int64_t m = 128;
    std::vector<float> x(static_cast<size_t>(m * 1024));
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01F * static_cast<float>(i % 97) - 0.5F;
    std::vector<float> y(static_cast<size_t>(m * 3072));
    const MatMulKernel* last = nullptr;
    for (const Precision precision : {Precision::kExact, Precision::kFast}) {
      const MatMulKernel& kernel = FindMatMul(kernels, matrix.view, precision);
      if (&kernel == last) continue;
      last = &kernel;
      AlignedBuffer scratch = *AlignedBuffer::Allocate(MatMulScratchBytes(kernel, matrix.view, m, pool.threads()));
      std::vector<double> rates;
      for (int i = 0; i < kRepetitions; ++i) {
        const double seconds = SecondsOf([&] {
          for (int j = 0; j < 4; ++j) {
            MatMul(kernel, pool, matrix.view, x.data(), 1024, m, nullptr, scratch.As<uint8_t>(), y.data(), 3072);
          }
        });
        rates.push_back(4.0 * static_cast<double>(m) * 3072 * 1024 / seconds / 1e9);
      }
      const double rate = Summarize(rates).median;
      fmt::print("{:16} {:30} {:9.1f} {:8.0f}%\n", format.name, kernel.name, rate, 100 * rate / fma);
    }
  }
}

/// One step of `queries` over `filled` columns of caches of `capacity`, for 28 layers of 8 KV heads.
void BenchAttention(const Kernels& kernels, ThreadPool& pool) {
  fmt::print("\nattention: 28 layers, 16/8 heads of 128, fp16 cache, fp16 mask of -1e4\n");
  fmt::print("{:>8} {:>9} {:>8} {:>10} {:>9}\n", "queries", "capacity", "filled", "ms", "GB/s");
  struct Case {
    int64_t queries, capacity, filled;
  };
  for (const Case& c : {Case{1, 2048, 100}, {1, 32768, 100}, {1, 2048, 2048}, {128, 2048, 128}, {128, 2048, 2048}}) {
    constexpr int64_t kLayers = 28;
    const int64_t layer = 8 * c.capacity * 128;
    AlignedBuffer cache = *AlignedBuffer::Allocate(static_cast<size_t>(2 * kLayers * layer) * 2);
    std::mt19937_64 random(1);
    for (uint64_t& word : cache.As<uint64_t>()) word = random() & 0xBBFFBBFFBBFFBBFFU;  // |value| < 1
    std::vector<float> q(static_cast<size_t>(16 * c.queries * 128), 0.1F);
    std::vector<float> out(q.size());
    std::vector<uint16_t> mask(static_cast<size_t>(c.queries * c.capacity), FloatToHalf(-1e4F));
    for (int64_t t = 0; t < c.queries; ++t) {
      std::fill_n(mask.begin() + t * c.capacity, c.filled - c.queries + t + 1, uint16_t{0});
    }
    AttentionParams params;
    params.heads = 16;
    params.kv_heads = 8;
    params.queries = c.queries;
    params.columns = c.capacity;
    params.dim = params.value_dim = 128;
    params.scale = 0.088F;
    params.q = q.data();
    params.q_head_stride = params.out_head_stride = c.queries * 128;
    params.q_row_stride = params.out_row_stride = 128;
    params.out = out.data();
    params.mask = {mask.data(), DataType::kFp16, c.capacity};
    params.k_abs_max = 1.0F;
    MaskScan scan;
    params.scan = &scan;
    AlignedBuffer scratch = *AlignedBuffer::Allocate(AttentionScratchBytes(params, pool.threads()));
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      seconds.push_back(SecondsOf([&] {
        ScanMask(params.mask, c.queries, c.capacity, &scan);
        for (int64_t l = 0; l < kLayers; ++l) {
          params.k = {cache.As<uint16_t>().data() + 2 * l * layer, DataType::kFp16, c.capacity * 128, 128};
          params.v = {cache.As<uint16_t>().data() + (2 * l + 1) * layer, DataType::kFp16, c.capacity * 128, 128};
          Attention(kernels, pool, params, scratch.As<uint8_t>());
        }
      }));
    }
    const double median = Summarize(seconds).median;
    fmt::print("{:8} {:9} {:8} {:10.3f} {:9.1f}\n", c.queries, c.capacity, c.filled, median * 1e3,
               static_cast<double>(2 * kLayers * 8 * c.filled * 128 * 2) / median / 1e9);
  }
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const Result<const Kernels*> selected = argc > 2 ? SelectKernels(argv[2]) : SelectKernelsFromEnvironment();
  if (!selected.ok()) {
    fmt::print(stderr, "{}\n", selected.status().message());
    return 2;
  }
  const Kernels& kernels = **selected;
  ThreadPool pool(threads);
  Result<BandwidthProbe> probe = BandwidthProbe::Make(kernels, pool);
  if (!probe.ok()) {
    fmt::print(stderr, "{}\n", probe.status().message());
    return 1;
  }
  const RateSummary bandwidth = probe->Read();
  fmt::print("kernels {}, {} threads, read bandwidth median {:.1f} best {:.1f} GB/s\n", kernels.name, pool.threads(),
             bandwidth.median, bandwidth.best);
  const double region = SecondsOf([&] {
    for (int i = 0; i < 10000; ++i) pool.Run([](int) {});
  });
  fmt::print("empty region: {:.2f} us\n", region / 10000 * 1e6);
  const std::string_view only = argc > 3 ? argv[3] : "";
  if (only.empty() || only == "matvec") BenchMatVec(kernels, pool, *probe);
  if (only.empty() || only == "matmul") BenchMatMul(kernels, pool);
  if (only.empty() || only == "attention") BenchAttention(kernels, pool);
  return 0;
}

}  // namespace
}  // namespace milwright::kernels

int main(int argc, char** argv) { return milwright::kernels::Main(argc, argv); }
