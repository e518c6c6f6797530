// Measurements of generation: decode at several fill levels, prefill, time to the first token, and what limits them,
// all taken in one run.
#ifndef MILWRIGHT_LLM_BENCH_H_
#define MILWRIGHT_LLM_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "milwright/engine.h"
#include "milwright/status.h"

namespace milwright {

/// Median and extremes of repeated measurements.
struct BenchSpread {
  double median = 0;
  double least = 0;
  double most = 0;
};

struct BenchOptions {
  EngineOptions engine;
  std::vector<int64_t> fills;  ///< positions at which decode is measured; empty: 0, and as far as the context allows
  int64_t decode_tokens = 8;   ///< steps of one repetition
  int repetitions = 5;
  int64_t prefill_tokens = 128;                ///< 0: not measured
  int64_t bandwidth_bytes = int64_t{1} << 30;  ///< read once per repetition by all threads; 0: not measured
  bool profile = false;
};

struct DecodeBench {
  int64_t fill = 0;
  BenchSpread tokens_per_second;
  double tokens_per_cpu_second = 0;
  double bandwidth_share = 0;          ///< bytes of weights and caches read per second / streaming reads; 0: unknown
  int64_t cache_bytes_per_token = 0;   ///< of K and V, read by attention
  int64_t state_bytes_per_token = 0;   ///< written into states
  int64_t copied_bytes_per_token = 0;  ///< of values that could not be viewed or updated in place
  int64_t attention_columns = 0;       ///< rows of K looked at for a token
};

struct BenchReport {
  std::string family;
  int64_t context_length = 0;
  int threads = 0;
  std::string kernels;
  double open_seconds = 0;   ///< opening and planning until the first token is there
  int64_t weight_bytes = 0;  ///< stored bytes of weights that one token reads
  BenchSpread bandwidth;     ///< GB/s of streaming reads, interleaved with the decode runs
  std::vector<DecodeBench> decode;
  int64_t prefill_tokens = 0;
  BenchSpread prefill_tokens_per_second;
  double prefill_multiply_adds = 0;  ///< 10^9 per second, with weights; those of attention are not counted
  double fma_peak = 0;               ///< 10^9 fp32 multiply-adds per second of the machine's threads
  double int8_peak = 0;              ///< 10^9 8-bit multiply-adds per second; 0: no such instruction
  WeightCounts weights;
  EngineCounters counters;
  int64_t peak_bytes = 0;                ///< anonymous memory and resident file pages, at their highest
  int64_t reference_steps = 0;           ///< steps of the decode plan that run reference kernels
  std::vector<std::string> not_planned;  ///< functions that run on the reference interpreter, with the reason
  std::vector<ProfileEntry> profile;     ///< of decode
};

/// Runs a built folder (milwright.json). Tokens are 1, 2, 3, ... modulo the vocabulary.
Result<BenchReport> BenchFolder(const std::string& folder, const BenchOptions& options);

/// One way of keeping a cache, at one context length.
struct CacheModeBench {
  int64_t context_length = 0;
  std::string mode;  ///< "state", "explicit, copied back", "explicit, double-buffered backings"
  BenchSpread milliseconds_per_step;
  int64_t bytes_moved_per_step = 0;  ///< cache bytes written or copied, by engine and host
};

/// Builds `checkpoint` with states and with explicit caches (whole) at each context length and times decode steps of
/// the three ways that Core ML offers.
Result<std::vector<CacheModeBench>> BenchCacheModes(const std::string& checkpoint,
                                                    const std::vector<int64_t>& context_lengths,
                                                    const std::string& quantize, const BenchOptions& options);

/// The profile as a Chrome trace (chrome://tracing, Perfetto): steps one after another, each with its mean duration.
std::string ChromeTrace(const std::vector<ProfileEntry>& profile);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_BENCH_H_
