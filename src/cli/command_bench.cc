#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file_io.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"
#include "llm/bench.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const BenchSpread& spread) {
  return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}};
}

std::string Text(const BenchSpread& spread, int digits) {
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", spread.median, digits, spread.least, digits, spread.most, digits);
}

std::string FunctionOf(const ProfileEntry& entry) { return entry.path.substr(0, entry.path.find('/')); }

void PrintProfile(const std::string& function, const std::vector<ProfileEntry>& profile) {
  struct Total {
    double seconds = 0;
    int64_t steps = 0;
    int64_t operations = 0;
    bool reference = false;
  };
  std::map<std::string, Total> by_kind;
  double all = 0;
  for (const ProfileEntry& entry : profile) {
    if (FunctionOf(entry) != function) continue;
    Total& total = by_kind[entry.kind];
    total.seconds += entry.seconds / static_cast<double>(entry.runs);
    total.operations += entry.operations;
    total.reference = total.reference || entry.reference;
    ++total.steps;
    all += entry.seconds / static_cast<double>(entry.runs);
  }
  std::vector<std::pair<std::string, Total>> sorted(by_kind.begin(), by_kind.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::vector<std::vector<std::string>> rows = {{"step", "us per call", "share", "steps", "operations", ""}};
  for (const auto& [kind, total] : sorted) {
    rows.push_back({kind, fmt::format("{:.1f}", 1e6 * total.seconds),
                    fmt::format("{:.1f} %", 100 * total.seconds / all), std::to_string(total.steps),
                    std::to_string(total.operations), total.reference ? "reference kernel" : ""});
  }
  std::cout << Styled(fmt::format("Profile of one call of '{}'", function), Style::kBold) << "\n" << Table(rows);
}

/// `rate` as a share of `peak`; 0 when there is no such peak.
double Share(double rate, double peak) { return peak > 0 ? rate / peak : 0; }

Json ToJson(const BenchReport& report) {
  Json json = {{"family", report.family},
               {"context_length", report.context_length},
               {"threads", report.threads},
               {"kernels", report.kernels},
               {"open_seconds", report.open_seconds},
               {"weight_bytes_per_token", report.weight_bytes},
               {"bandwidth_gb_per_second", ToJson(report.bandwidth)},
               {"fma_peak_giga", report.fma_peak},
               {"int8_peak_giga", report.int8_peak},
               {"peak_bytes", report.peak_bytes},
               {"reference_steps", report.reference_steps},
               {"not_planned", report.not_planned}};
  json["weights"] = {{"matrices", report.weights.matrices},
                     {"mapped_bytes", report.weights.mapped_bytes},
                     {"copied_bytes", report.weights.copied_bytes},
                     {"repacked_bytes", report.weights.repacked_bytes}};
  for (const DecodeBench& bench : report.decode) {
    json["decode"].push_back({{"fill", bench.fill},
                              {"tokens_per_second", ToJson(bench.tokens_per_second)},
                              {"tokens_per_cpu_second", bench.tokens_per_cpu_second},
                              {"bandwidth_share", bench.bandwidth_share},
                              {"state_bytes_per_token", bench.state_bytes_per_token},
                              {"cache_bytes_per_token", bench.cache_bytes_per_token},
                              {"copied_bytes_per_token", bench.copied_bytes_per_token},
                              {"attention_columns", bench.attention_columns}});
  }
  if (report.prefill_tokens > 0) {
    json["prefill"] = {{"tokens", report.prefill_tokens},
                       {"tokens_per_second", ToJson(report.prefill_tokens_per_second)},
                       {"multiply_adds_giga", report.prefill_multiply_adds},
                       {"fma_peak_share", Share(report.prefill_multiply_adds, report.fma_peak)},
                       {"int8_peak_share", Share(report.prefill_multiply_adds, report.int8_peak)}};
  }
  for (const ProfileEntry& entry : report.profile) {
    json["profile"].push_back({{"kind", entry.kind},
                               {"path", entry.path},
                               {"operations", entry.operations},
                               {"reference", entry.reference},
                               {"weight_bytes", entry.weight_bytes},
                               {"microseconds", 1e6 * entry.seconds / static_cast<double>(entry.runs)}});
  }
  return json;
}

void PrintReport(const BenchReport& report) {
  std::cout << fmt::format("{}: context {}, {} threads, {} kernels\n", report.family, report.context_length,
                           report.threads, report.kernels);
  std::cout << fmt::format("opening to first token {:.0f} ms; peak memory {}\n", 1e3 * report.open_seconds,
                           Bytes(report.peak_bytes));
  std::cout << fmt::format("weights: {} read per token; {} in the mapped file, {} copied, {} repacked\n",
                           Bytes(report.weight_bytes), Bytes(report.weights.mapped_bytes),
                           Bytes(report.weights.copied_bytes), Bytes(report.weights.repacked_bytes));
  if (report.bandwidth.median > 0) {
    std::cout << fmt::format("streaming reads: {} GB/s\n", Text(report.bandwidth, 1));
  }
  std::vector<std::vector<std::string>> rows = {
      {"decode at", "tokens/s", "of bandwidth", "tokens/CPU s", "cache read", "state written", "copied"}};
  for (const DecodeBench& bench : report.decode) {
    rows.push_back({std::to_string(bench.fill), Text(bench.tokens_per_second, 1),
                    bench.bandwidth_share > 0 ? fmt::format("{:.0f} %", 100 * bench.bandwidth_share) : "",
                    fmt::format("{:.1f}", bench.tokens_per_cpu_second), Bytes(bench.cache_bytes_per_token),
                    std::to_string(bench.state_bytes_per_token), Bytes(bench.copied_bytes_per_token)});
  }
  std::cout << Table(rows);
  if (report.prefill_tokens > 0) {
    const double rate = report.prefill_multiply_adds;
    std::cout << fmt::format(
        "prefill of {}: {} tokens/s; {:.0f} G multiply-adds/s with weights: {:.0f} % of the fp32 peak ({:.0f} G)",
        report.prefill_tokens, Text(report.prefill_tokens_per_second, 0), rate, 100 * Share(rate, report.fma_peak),
        report.fma_peak);
    if (report.int8_peak > 0) {
      std::cout << fmt::format(", {:.0f} % of the 8-bit peak ({:.0f} G)", 100 * Share(rate, report.int8_peak),
                               report.int8_peak);
    }
    std::cout << "\n";
  }
  for (const std::string& why : report.not_planned) {
    std::cout << Styled("runs on the reference interpreter: ", Style::kYellow) << why << "\n";
  }
  if (report.reference_steps > 0) {
    std::cout << fmt::format("{} steps run reference kernels (see --profile)\n", report.reference_steps);
  }
  std::set<std::string> functions;
  for (const ProfileEntry& entry : report.profile) functions.insert(FunctionOf(entry));
  for (const std::string& function : functions) PrintProfile(function, report.profile);
}

Status RunCacheModes(const BenchArguments& arguments, const BenchOptions& options) {
  MW_ASSIGN_OR_RETURN(const auto benches,
                      BenchCacheModes(arguments.path, arguments.context_lengths, arguments.quantize, options));
  if (arguments.json) {
    Json json = Json::array();
    for (const CacheModeBench& bench : benches) {
      json.push_back({{"context_length", bench.context_length},
                      {"mode", bench.mode},
                      {"milliseconds_per_step", ToJson(bench.milliseconds_per_step)},
                      {"bytes_moved_per_step", bench.bytes_moved_per_step}});
    }
    std::cout << json.dump(2) << "\n";
    return Status::Ok();
  }
  std::vector<std::vector<std::string>> rows = {{"context", "cache", "ms per step", "cache bytes moved per step"}};
  for (const CacheModeBench& bench : benches) {
    rows.push_back({std::to_string(bench.context_length), bench.mode, Text(bench.milliseconds_per_step, 2),
                    Bytes(bench.bytes_moved_per_step)});
  }
  std::cout << Table(rows);
  return Status::Ok();
}

Status Run(const BenchArguments& arguments) {
  BenchOptions options;
  options.engine = ReadEngineOptions(arguments.engine);
  options.fills = arguments.fills;
  options.decode_tokens = arguments.tokens;
  options.repetitions = arguments.repetitions;
  options.prefill_tokens = arguments.prefill;
  options.bandwidth_bytes = arguments.bandwidth_mb * 1000000;
  options.profile = arguments.profile || !arguments.trace.empty();
  if (arguments.cache_modes) return RunCacheModes(arguments, options);
  MW_ASSIGN_OR_RETURN(const BenchReport report, BenchFolder(arguments.path, options));
  if (!arguments.trace.empty()) {
    MW_RETURN_IF_ERROR(WriteFileAtomically(arguments.trace, ChromeTrace(report.profile)));
  }
  if (arguments.json) {
    std::cout << ToJson(report).dump(2) << "\n";
  } else {
    PrintReport(report);
  }
  return Status::Ok();
}

}  // namespace

int Bench(const BenchArguments& arguments) {
  const Status status = Run(arguments);
  return status.ok() ? kFine : Fail(status);
}

}  // namespace milwright::cli
