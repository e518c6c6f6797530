// Time to the first token behind a common prefix of 1,000 tokens: a session that resumes, beside one that starts cold.
// The package is the trained example of the project, run by the engine that `generate` uses; the ratio is what counts.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "base/file_io.h"
#include "llm/build.h"
#include "llm/session.h"

namespace {

using namespace milwright;

constexpr int64_t kPrefix = 1000;
constexpr int64_t kNew = 12;  // what a short turn adds
constexpr double kTarget = 20;

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<int64_t> Tokens(int64_t count, int64_t factor) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(i * factor % 1000);
  return tokens;
}

Status Measure(const std::string& folder) {
  BuildOptions options;
  options.checkpoint = std::string(MILWRIGHT_SOURCE_DIR) + "/examples/qwen3-jacobean";
  options.output = folder;
  options.context_length = 1280;
  options.functions = {{"decode", 1}, {"prefill", 16}};
  options.durable = false;
  options.hash_checkpoint = false;
  MW_RETURN_IF_ERROR(BuildCheckpoint(options));
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Pipeline> pipeline, Pipeline::Open(folder, FastEngine()));
  Session session(std::move(pipeline));
  const std::vector<int64_t> prefix = Tokens(kPrefix, 7);
  std::vector<double> cold, resumed;
  for (int64_t round = 0; round < 5; ++round) {
    std::vector<int64_t> prompt = prefix;
    for (const int64_t token : Tokens(kNew, 11 + round)) prompt.push_back(token);
    PromptReport report;
    if (round < 3) {
      MW_RETURN_IF_ERROR(session.Reset());
      const auto start = std::chrono::steady_clock::now();
      MW_RETURN_IF_ERROR(session.SetPrompt(prompt, &report));
      cold.push_back(Seconds(start));
    }
    prompt.resize(static_cast<size_t>(kPrefix));
    for (const int64_t token : Tokens(kNew, 101 + round)) prompt.push_back(token);
    const auto start = std::chrono::steady_clock::now();
    MW_RETURN_IF_ERROR(session.SetPrompt(prompt, &report));
    resumed.push_back(Seconds(start));
    fmt::print("resumed: {} of {} tokens reused, first token after {:.1f} ms\n", report.reused, report.prompt,
               resumed.back() * 1e3);
  }
  std::ranges::sort(cold);
  std::ranges::sort(resumed);
  const double ratio = cold[cold.size() / 2] / resumed[resumed.size() / 2];
  fmt::print("cold:    {} tokens, first token after {:.1f} ms (median of {})\n", kPrefix + kNew,
             cold[cold.size() / 2] * 1e3, cold.size());
  fmt::print("resumed: {} new tokens, first token after {:.1f} ms (median of {})\n", kNew,
             resumed[resumed.size() / 2] * 1e3, resumed.size());
  fmt::print("ratio:   {:.0f}x (target {:.0f}x)\n", ratio, kTarget);
  return Status::Ok();
}

}  // namespace

int main() {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("milwright_resume_bench_{}", getpid())).string();
  const Status status = Measure(folder);
  RemoveTree(folder);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  return status.ok() ? 0 : 1;
}
