#include "llm/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file_io.h"
#include "compress/compress.h"
#include "exec/input_source.h"
#include "kernels/bandwidth.h"
#include "llm/build.h"
#include "llm/compress_folder.h"
#include "llm/pipeline.h"
#include "mil/model.h"

namespace milwright {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

BenchSpread SpreadOf(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

// The highest resident size so far: anonymous memory and file pages (VmHWM).
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

// The same engines as FastEngine, but kept at hand for their counters.
EngineLoader KeepingLoader(const EngineOptions& options, std::vector<Engine>& engines) {
  return [&options, &engines](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    MW_ASSIGN_OR_RETURN(Engine engine, Engine::Load(path, options));
    engines.push_back(engine);
    return MakePackageEngine(std::move(engine));
  };
}

EngineCounters Sum(const std::vector<Engine>& engines) {
  EngineCounters sum;
  for (const Engine& engine : engines) {
    const EngineCounters counters = engine.counters();
    sum.predictions += counters.predictions;
    sum.reference_predictions += counters.reference_predictions;
    sum.state_bytes_written += counters.state_bytes_written;
    sum.bytes_copied += counters.bytes_copied;
    sum.attention_columns += counters.attention_columns;
    sum.cache_bytes_read += counters.cache_bytes_read;
    sum.multiply_adds += counters.multiply_adds;
    sum.locked_backings += counters.locked_backings;
  }
  return sum;
}

std::vector<int64_t> Tokens(const Manifest& manifest, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((i + 1) % std::max<int64_t>(1, manifest.vocabulary));
  return tokens;
}

bool HasLongFunction(const Manifest& manifest) {
  for (const ManifestStage& stage : manifest.stages) {
    for (const ManifestFunction& function : stage.functions) {
      if (stage.role == PackageRole::kBody && function.length != 1) return true;
    }
  }
  return false;
}

// Everything that one measurement of a folder shares.
class FolderBench {
 public:
  FolderBench(const BenchOptions& options, BenchReport& report) : options_(options), report_(report) {}

  Status Run(const std::string& folder) {
    const auto start = Clock::now();
    MW_ASSIGN_OR_RETURN(pipeline_, Pipeline::Open(folder, KeepingLoader(options_.engine, engines_)));
    pipeline_->SetLogitRows(LogitRows::kLast);  // as generation does
    MW_RETURN_IF_ERROR(Step());
    report_.open_seconds = Seconds(start);
    report_.family = pipeline_->manifest().family;
    report_.context_length = pipeline_->manifest().context_length;
    report_.threads = engines_.front().threads();
    report_.kernels = engines_.front().kernels();
    MW_RETURN_IF_ERROR(FindWeightBytes());
    report_.peak_bytes = PeakBytes();  // before the memory that the measurement itself takes
    MW_RETURN_IF_ERROR(MeasureDecode());
    MW_RETURN_IF_ERROR(MeasurePrefill());
    if (options_.profile) MW_RETURN_IF_ERROR(TakeProfile());
    report_.counters = Sum(engines_);
    for (const Engine& engine : engines_) {
      const WeightCounts counts = engine.weight_counts();
      report_.weights.matrices += counts.matrices;
      report_.weights.mapped_bytes += counts.mapped_bytes;
      report_.weights.copied_bytes += counts.copied_bytes;
      report_.weights.repacked_bytes += counts.repacked_bytes;
      for (const std::string& function : engine.model().function_names()) {
        MW_ASSIGN_OR_RETURN(const std::string why, engine.WhyNotPlanned(function));
        if (!why.empty()) report_.not_planned.push_back(function + ": " + why);
      }
    }
    return Status::Ok();
  }

 private:
  Status Step() {
    const int64_t token = (pipeline_->position() + 1) % std::max<int64_t>(1, pipeline_->manifest().vocabulary);
    return pipeline_->Step(token).status();
  }

  // Goes to `fill` with caches of zeros.
  Status GoTo(int64_t fill) {
    MW_RETURN_IF_ERROR(pipeline_->Reset());
    return pipeline_->SkipTo(fill);
  }

  void SetProfiling(bool on) {
    for (Engine& engine : engines_) engine.SetProfiling(on);
  }

  // A profiled step says which weights a token reads.
  Status FindWeightBytes() {
    SetProfiling(true);
    const Status status = Step();
    SetProfiling(false);
    MW_RETURN_IF_ERROR(status);
    for (const Engine& engine : engines_) {
      for (const ProfileEntry& entry : engine.Profile()) {
        report_.weight_bytes += entry.weight_bytes;
        report_.reference_steps += entry.reference ? 1 : 0;
      }
    }
    return Status::Ok();
  }

  Status MeasureDecode() {
    kernels::ThreadPool pool(report_.threads);
    MW_ASSIGN_OR_RETURN(const kernels::Kernels* kernels, kernels::SelectKernels(report_.kernels));
    std::unique_ptr<kernels::BandwidthProbe> probe;
    if (options_.bandwidth_bytes > 0) {
      MW_ASSIGN_OR_RETURN(kernels::BandwidthProbe made,
                          kernels::BandwidthProbe::Make(*kernels, pool, static_cast<size_t>(options_.bandwidth_bytes)));
      probe = std::make_unique<kernels::BandwidthProbe>(std::move(made));
    }
    const int64_t room = report_.context_length - options_.decode_tokens - 1;
    std::vector<int64_t> fills = options_.fills;
    if (fills.empty()) fills = {0, room / 2, room};
    std::vector<double> bandwidth;
    for (const int64_t fill : fills) {
      if (fill < 0 || fill > room) {
        return {ErrorCode::kUsage, fmt::format("fill level {}: {} steps from there do not fit into the context of {}",
                                               fill, options_.decode_tokens, report_.context_length)};
      }
      DecodeBench bench;
      bench.fill = fill;
      std::vector<double> rates;
      double cpu = 0;
      const EngineCounters before = Sum(engines_);
      for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
        if (probe != nullptr) {
          probe->ReadOnce();  // the first pass finds the other thread asleep and other data in the caches
          bandwidth.push_back(probe->ReadOnce());
        }
        MW_RETURN_IF_ERROR(GoTo(fill));
        MW_RETURN_IF_ERROR(Step());  // the first step after a reset touches the caches' memory for the first time
        const double cpu_start = CpuSeconds();
        const auto start = Clock::now();
        for (int64_t i = 0; i < options_.decode_tokens; ++i) MW_RETURN_IF_ERROR(Step());
        rates.push_back(static_cast<double>(options_.decode_tokens) / Seconds(start));
        cpu += CpuSeconds() - cpu_start;
      }
      const auto tokens = static_cast<int64_t>(options_.repetitions) * options_.decode_tokens;
      const auto steps = tokens + options_.repetitions;  // the untimed ones included
      const EngineCounters after = Sum(engines_);
      bench.tokens_per_second = SpreadOf(std::move(rates));
      bench.tokens_per_cpu_second = cpu > 0 ? static_cast<double>(tokens) / cpu : 0;
      bench.state_bytes_per_token = (after.state_bytes_written - before.state_bytes_written) / steps;
      bench.copied_bytes_per_token = (after.bytes_copied - before.bytes_copied) / steps;
      bench.cache_bytes_per_token = (after.cache_bytes_read - before.cache_bytes_read) / steps;
      bench.attention_columns = (after.attention_columns - before.attention_columns) / steps;
      report_.decode.push_back(bench);
    }
    report_.bandwidth = SpreadOf(std::move(bandwidth));
    for (DecodeBench& bench : report_.decode) {
      if (report_.bandwidth.median > 0) {
        bench.bandwidth_share = static_cast<double>(report_.weight_bytes + bench.cache_bytes_per_token) *
                                bench.tokens_per_second.median * 1e-9 / report_.bandwidth.median;
      }
    }
    report_.fma_peak = kernels::MeasureFmaPeak(*kernels, pool).median;
    report_.int8_peak = kernels::MeasureInt8Peak(*kernels, pool).median;
    return Status::Ok();
  }

  Status MeasurePrefill() {
    const int64_t tokens = std::min(options_.prefill_tokens, report_.context_length - 1);
    if (tokens < 2 || !HasLongFunction(pipeline_->manifest())) return Status::Ok();
    const std::vector<int64_t> prompt = Tokens(pipeline_->manifest(), tokens);
    std::vector<double> rates;
    int64_t multiply_adds = 0;  // of one prefill
    for (int repetition = 0; repetition <= options_.repetitions; ++repetition) {
      MW_RETURN_IF_ERROR(GoTo(0));
      MW_RETURN_IF_ERROR(Step());  // touches the caches' memory, as in decode
      const int64_t before = Sum(engines_).multiply_adds;
      const auto start = Clock::now();
      MW_RETURN_IF_ERROR(pipeline_->Prefill(prompt));
      if (repetition > 0) rates.push_back(static_cast<double>(tokens) / Seconds(start));  // the first one plans
      multiply_adds = Sum(engines_).multiply_adds - before;
    }
    report_.prefill_tokens = tokens;
    report_.prefill_tokens_per_second = SpreadOf(std::move(rates));
    report_.prefill_multiply_adds = static_cast<double>(multiply_adds) / static_cast<double>(tokens) *
                                    report_.prefill_tokens_per_second.median * 1e-9;
    return Status::Ok();
  }

  // Means over a few steps.
  Status TakeProfile() {
    MW_RETURN_IF_ERROR(GoTo(report_.decode.empty() ? 0 : report_.decode.back().fill));
    MW_RETURN_IF_ERROR(Step());  // touches the caches' memory
    SetProfiling(true);
    for (int64_t i = 0; i < options_.decode_tokens; ++i) MW_RETURN_IF_ERROR(Step());
    if (report_.prefill_tokens > 0) {
      MW_RETURN_IF_ERROR(GoTo(0));
      MW_RETURN_IF_ERROR(pipeline_->Prefill(Tokens(pipeline_->manifest(), report_.prefill_tokens)));
    }
    SetProfiling(false);
    for (const Engine& engine : engines_) {
      for (ProfileEntry& entry : engine.Profile()) report_.profile.push_back(std::move(entry));
    }
    return Status::Ok();
  }

  const BenchOptions& options_;
  BenchReport& report_;
  std::vector<Engine> engines_;
  std::unique_ptr<Pipeline> pipeline_;
};

// A folder that goes when this does.
class ScratchFolder {
 public:
  static Result<ScratchFolder> Make() {
    std::string pattern = (std::filesystem::temp_directory_path() / "milwright-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return Status(ErrorCode::kRuntime, fmt::format("cannot make the folder {}: {}", pattern, std::strerror(errno)));
    }
    return ScratchFolder(std::move(pattern));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

enum class CacheMode : uint8_t { kState, kCopyBack, kDoubleBuffered };

Result<CacheModeBench> TimeCacheMode(const Engine& engine, CacheMode mode, int64_t context_length,
                                     const BenchOptions& options) {
  const Model& model = engine.model();
  MW_ASSIGN_OR_RETURN(InputSource source, InputSource::Make(model.spec(), {}));
  MW_ASSIGN_OR_RETURN(State state, engine.MakeState());
  const std::string function = model.default_function();
  std::vector<CachePair> pairs;
  for (const InputFacts& facts : source.Inputs(function)->inputs) {
    if (facts.kind == InputKind::kCache && facts.pair.has_value()) pairs.push_back(*facts.pair);
  }
  TensorMap caches;
  TensorMap backings;
  int64_t cache_bytes = 0;
  for (const CachePair& pair : pairs) {
    MW_ASSIGN_OR_RETURN(caches[pair.input->name], Tensor::Zeros(pair.input->type.tensor));
    MW_ASSIGN_OR_RETURN(backings[pair.output->name], Tensor::Zeros(pair.output->type.tensor));
    cache_bytes += static_cast<int64_t>(caches[pair.input->name].bytes().size());
  }
  CacheModeBench bench;
  bench.context_length = context_length;
  bench.mode = mode == CacheMode::kState      ? "state"
               : mode == CacheMode::kCopyBack ? "explicit, copied back"
                                              : "explicit, double-buffered backings";
  std::vector<double> milliseconds;
  const int64_t steps = options.decode_tokens * options.repetitions;
  EngineCounters before;
  for (int64_t step = -1; step < steps; ++step) {  // the first one plans and touches memory
    if (step == 0) before = engine.counters();
    MW_ASSIGN_OR_RETURN(TensorMap inputs, source.Draw(function));
    for (auto& [name, cache] : caches) inputs[name] = std::move(cache);
    EngineCall call;
    if (mode == CacheMode::kDoubleBuffered) call.output_backings = std::exchange(backings, {});
    const auto start = Clock::now();
    MW_ASSIGN_OR_RETURN(TensorMap outputs, engine.Predict(inputs, &state, std::move(call)));
    for (const CachePair& pair : pairs) {
      Tensor& held = inputs.at(pair.input->name);
      Tensor& given = outputs.at(pair.output->name);
      if (mode == CacheMode::kCopyBack) {
        std::memcpy(held.mutable_bytes().data(), given.bytes().data(), given.bytes().size());
        caches[pair.input->name] = std::move(held);
      } else {
        // What was read becomes what is written next, and the other way round.
        caches[pair.input->name] = std::move(given);
        backings[pair.output->name] = std::move(held);
      }
    }
    if (step >= 0) milliseconds.push_back(1e3 * Seconds(start));
  }
  const EngineCounters after = engine.counters();
  bench.milliseconds_per_step = SpreadOf(std::move(milliseconds));
  bench.bytes_moved_per_step =
      (after.state_bytes_written - before.state_bytes_written + after.bytes_copied - before.bytes_copied) /
          std::max<int64_t>(1, steps) +
      (mode == CacheMode::kCopyBack ? cache_bytes : 0);
  return bench;
}

}  // namespace

Result<BenchReport> BenchFolder(const std::string& folder, const BenchOptions& options) {
  BenchReport report;
  MW_RETURN_IF_ERROR(FolderBench(options, report).Run(folder));
  return report;
}

Result<std::vector<CacheModeBench>> BenchCacheModes(const std::string& checkpoint,
                                                    const std::vector<int64_t>& context_lengths,
                                                    const std::string& quantize, const BenchOptions& options) {
  std::vector<CacheModeBench> benches;
  for (const int64_t context_length : context_lengths) {
    for (const bool states : {true, false}) {
      MW_ASSIGN_OR_RETURN(const ScratchFolder folder, ScratchFolder::Make());
      BuildOptions build;
      build.checkpoint = checkpoint;
      build.output = folder.path() + "/build";
      build.context_length = context_length;
      build.durable = false;
      build.hash_checkpoint = false;
      MW_ASSIGN_OR_RETURN(build.layout, ParseLayout(states ? "kv-pair" : "explicit-io:whole"));
      MW_RETURN_IF_ERROR(BuildCheckpoint(build));
      if (!quantize.empty()) {
        CompressOptions compress;
        MW_ASSIGN_OR_RETURN(compress.format, ParseCompression(quantize));
        MW_RETURN_IF_ERROR(CompressFolder(build.output, build.output, compress));
      }
      MW_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(build.output));
      MW_ASSIGN_OR_RETURN(
          const Engine engine,
          Engine::Load(build.output + "/" + manifest.stages.front().functions.front().package, options.engine));
      const std::vector<CacheMode> modes =
          states ? std::vector{CacheMode::kState} : std::vector{CacheMode::kCopyBack, CacheMode::kDoubleBuffered};
      for (const CacheMode mode : modes) {
        MW_ASSIGN_OR_RETURN(CacheModeBench bench, TimeCacheMode(engine, mode, context_length, options));
        benches.push_back(std::move(bench));
      }
    }
  }
  return benches;
}

std::string ChromeTrace(const std::vector<ProfileEntry>& profile) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  double at = 0;
  for (const ProfileEntry& entry : profile) {
    const double microseconds = entry.runs > 0 ? 1e6 * entry.seconds / static_cast<double>(entry.runs) : 0;
    events.push_back(
        {{"name", entry.kind},
         {"cat", entry.reference ? "reference" : "engine"},
         {"ph", "X"},
         {"ts", at},
         {"dur", microseconds},
         {"pid", 1},
         {"tid", 1},
         {"args", {{"path", entry.path}, {"operations", entry.operations}, {"weight_bytes", entry.weight_bytes}}}});
    at += microseconds;
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(1) + "\n";
}

}  // namespace milwright
