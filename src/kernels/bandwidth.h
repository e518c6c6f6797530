// What this machine can do: streaming read bandwidth and peak arithmetic, measured as performance-anchors.md says.
#ifndef MILWRIGHT_KERNELS_BANDWIDTH_H_
#define MILWRIGHT_KERNELS_BANDWIDTH_H_

#include <cstddef>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "milwright/status.h"

namespace milwright::kernels {

/// Median, extremes and all samples of one measurement, in giga-units per second.
struct RateSummary {
  double median = 0;
  double best = 0;
  double worst = 0;
  std::vector<double> samples;
};

/// Summary of `samples` (at least one).
RateSummary Summarize(std::vector<double> samples);

/// Streaming reads of one block of anonymous memory by all threads of a pool. Holds the memory, so that single reads
/// can be interleaved with the runs that they are compared with.
class BandwidthProbe {
 public:
  /// `bytes`: 1 GB as in performance-anchors.md unless a test wants less. Touches the memory once.
  static Result<BandwidthProbe> Make(const Kernels& kernels, ThreadPool& pool, size_t bytes = size_t{1} << 30U);

  /// One read of the whole block: GB/s (10^9 bytes).
  double ReadOnce();
  /// Median of `repetitions` reads.
  RateSummary Read(int repetitions = 9);

 private:
  BandwidthProbe(const Kernels& kernels, ThreadPool& pool, AlignedBuffer memory)
      : kernels_(&kernels), pool_(&pool), memory_(std::move(memory)) {}

  const Kernels* kernels_;
  ThreadPool* pool_;
  AlignedBuffer memory_;
};

/// Peak fp32 multiply-adds per second of the pool, in 10^9 (one multiply-add is two FLOP).
RateSummary MeasureFmaPeak(const Kernels& kernels, ThreadPool& pool, int repetitions = 5);
/// Peak 8-bit multiply-adds per second, in 10^9; all zero when the instruction set has no 8-bit dot product.
RateSummary MeasureInt8Peak(const Kernels& kernels, ThreadPool& pool, int repetitions = 5);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_BANDWIDTH_H_
