#include "kernels/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

namespace milwright::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Runs a peak loop of the table on all threads, `repetitions` times, for about 20 ms each.
RateSummary MeasurePeak(int64_t (*stream)(int64_t, float*), ThreadPool& pool, int repetitions) {
  if (stream == nullptr) return Summarize({0.0});
  int64_t iterations = int64_t{1} << 14U;
  std::vector<double> samples;
  while (static_cast<int>(samples.size()) < std::max(repetitions, 1)) {
    std::atomic<int64_t> operations{0};
    const Clock::time_point start = Clock::now();
    pool.Run([&](int) {
      float sink = 0;
      operations += stream(iterations, &sink);
      // The comparison keeps the loop alive: no finite chain of the streams ends in NaN.
      if (sink != sink) operations = 0;
    });
    const double seconds = SecondsSince(start);
    if (seconds < 0.02 && samples.empty()) {
      iterations *= 2;
      continue;
    }
    samples.push_back(static_cast<double>(operations.load()) / seconds / 1e9);
  }
  return Summarize(std::move(samples));
}

}  // namespace

RateSummary Summarize(std::vector<double> samples) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  const double median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {median, sorted.back(), sorted.front(), std::move(samples)};
}

Result<BandwidthProbe> BandwidthProbe::Make(const Kernels& kernels, ThreadPool& pool, size_t bytes) {
  MW_ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::Allocate(bytes));
  // Untouched anonymous pages all map to one zero page: write every byte once.
  pool.ParallelFor(static_cast<int64_t>(memory.size()), [&](int64_t begin, int64_t end) {
    std::memset(memory.data() + begin, 1, static_cast<size_t>(end - begin));
  });
  return BandwidthProbe(kernels, pool, std::move(memory));
}

double BandwidthProbe::ReadOnce() {
  std::atomic<uint64_t> sink{0};
  const Clock::time_point start = Clock::now();
  pool_->ParallelFor(
      static_cast<int64_t>(memory_.size()),
      [&](int64_t begin, int64_t end) {
        sink += kernels_->read_stream(memory_.data() + begin, static_cast<size_t>(end - begin));
      },
      4096);
  return static_cast<double>(memory_.size()) / SecondsSince(start) / 1e9;
}

RateSummary BandwidthProbe::Read(int repetitions) {
  std::vector<double> samples;
  for (int i = 0; i < std::max(repetitions, 1); ++i) samples.push_back(ReadOnce());
  return Summarize(std::move(samples));
}

RateSummary MeasureFmaPeak(const Kernels& kernels, ThreadPool& pool, int repetitions) {
  return MeasurePeak(kernels.fma_stream, pool, repetitions);
}

RateSummary MeasureInt8Peak(const Kernels& kernels, ThreadPool& pool, int repetitions) {
  return MeasurePeak(kernels.int8_dot_stream, pool, repetitions);
}

}  // namespace milwright::kernels
