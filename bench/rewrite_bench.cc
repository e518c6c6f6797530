// What rewriting a package with 2 GB of weights costs beside copying it (cp without reflinks): the two run in turn,
// from a source that is in memory. Also how much memory `milwright rewrite` takes besides the mapped weight file.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "format/package.h"
#include "format/weight_file.h"
#include "ops/builder.h"

namespace {

using namespace milwright;
namespace fs = std::filesystem;

constexpr int64_t kWidth = 2048;
constexpr int kLayers = 256;  // of 8 MiB each
constexpr int64_t kContext = 512;
constexpr int kRuns = 5;
constexpr const char* kPasses = "unify-states,state-to-io";

// A key-value attention, so that there are states to rewrite, and a chain of linear layers with random weights.
Status MakePackage(const std::string& path) {
  WriteOptions options;
  options.durable = false;
  MW_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(path, options));
  ModelSpec model;
  Function* function = model.program.AddFunction("main", Opset::kIOS18);
  Value* x = function->AddInput("hidden_states", TensorType{DataType::kFp16, {1, 1, kWidth}});
  Value* position = function->AddInput("position", TensorType{DataType::kInt32, {1}});
  Value* mask = function->AddInput("causal_mask", TensorType{DataType::kFp16, {1, 1, kContext}});
  Builder b(function->body());
  Value* end = b.Op("add", {{"x", position}, {"y", Literal::Int32(1)}}, "end");
  const auto vector = [&b](Value* middle, std::string_view name) {
    const std::vector<Value*> parts = {b.Const(Literal::Int32s({0})), middle, b.Const(Literal::Int32s({0}))};
    return b.Op("concat", {{"values", parts}, {"axis", Literal::Int32(0)}, {"interleave", Literal::Bool(false)}}, name);
  };
  std::vector<Value*> caches;
  for (const char* name : {"k_cache", "v_cache"}) {
    Value* state = function->AddInput(name, Type::State({DataType::kFp16, {1, kContext, kWidth}}));
    Value* updated = b.Op("slice_update",
                          {{"x", b.ReadState(state)},
                           {"update", x},
                           {"begin", vector(position, "begin")},
                           {"end", vector(end, "end")},
                           {"begin_mask", Literal::Bools({1, 0, 1})},
                           {"end_mask", Literal::Bools({1, 0, 1})}},
                          "updated");
    b.WriteState(state, updated);
    caches.push_back(b.ReadState(state));
  }
  Value* scores = b.Op("matmul", {{"x", x}, {"y", caches[0]}, {"transpose_y", Literal::Bool(true)}}, "scores");
  Value* masked = b.Op("add", {{"x", scores}, {"y", mask}}, "masked");
  Value* weights = b.Op("softmax", {{"x", masked}, {"axis", Literal::Int32(-1)}}, "weights");
  x = b.Op("matmul", {{"x", weights}, {"y", caches[1]}}, "attention");
  std::mt19937_64 random(1);
  std::vector<uint64_t> piece(1U << 17U);
  for (int i = 0; i < kLayers; ++i) {
    const TensorType type{DataType::kFp16, {kWidth, kWidth}};
    MW_ASSIGN_OR_RETURN(Tensor weight, writer.AddWeight(type, [&](const WeightWriter::Emit& emit) -> Status {
      for (int64_t done = 0; done < kWidth * kWidth * 2; done += 1 << 20) {
        for (uint64_t& word : piece) word = random();
        MW_RETURN_IF_ERROR(emit(std::as_bytes(std::span(piece))));
      }
      return Status::Ok();
    }));
    x = b.Op("linear", {{"x", x}, {"weight", Literal(std::move(weight))}}, fmt::format("layer_{}", i));
  }
  MW_RETURN_IF_ERROR(b.status());
  function->body().SetOutputs({x});
  model.description.functions.push_back(DescribeFunction(*function));
  return writer.Write(model);
}

struct Run {
  double seconds = 0;
  int64_t anonymous_bytes = 0;  ///< most that was seen of memory that no file backs
};

// The value of a line such as "RssAnon:    1234 kB".
int64_t StatusBytes(pid_t process, std::string_view key) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

Run Spawn(const std::vector<std::string>& command) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  Run run;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    run.anonymous_bytes = std::max(run.anonymous_bytes, StatusBytes(child, "RssAnon:"));
    usleep(2000);
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (status != 0) {
    fmt::print(stderr, "{} failed\n", command[0]);
    std::exit(1);
  }
  return run;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / fmt::format("milwright-rewrite-bench-{}", getpid());
  fs::create_directories(folder);
  const std::string package = folder / "Big.mlpackage";
  if (const Status status = MakePackage(package); !status.ok()) {
    fmt::print(stderr, "{}\n", status.message());
    fs::remove_all(folder);
    return 1;
  }
  const auto weight_bytes = fs::file_size(package + "/Data/com.apple.CoreML/weights/weight.bin");
  fmt::print("package: {} layers, {:.2f} GB of random weights; passes {}\n", kLayers,
             static_cast<double>(weight_bytes) / 1e9, kPasses);
  const std::string copy = folder / "Copy.mlpackage";
  const std::string rewritten = folder / "Rewritten.mlpackage";
  std::vector<double> copies, durable_copies, rewrites, ratios, durable_ratios;
  int64_t memory = 0;
  // Each run starts with what the other has just left removed, so that both find the same free memory.
  for (int i = 0; i <= kRuns; ++i) {
    fs::remove_all(rewritten);
    sync();
    const double plain = Spawn({"cp", "-r", "--reflink=never", package, copy}).seconds;
    // The rewrite waits until the disk has its files; so does this copy.
    const double durable = plain + Spawn({"sync", "-f", copy}).seconds;
    fs::remove_all(copy);
    sync();
    const Run run = Spawn({MILWRIGHT_BINARY, "rewrite", package, "-o", rewritten, "--pass", kPasses});
    memory = std::max(memory, run.anonymous_bytes);
    fmt::print("  cp {:.2f} s, cp and sync {:.2f} s, rewrite {:.2f} s{}\n", plain, durable, run.seconds,
               i == 0 ? " (not counted)" : "");
    if (i == 0) continue;
    copies.push_back(plain);
    durable_copies.push_back(durable);
    rewrites.push_back(run.seconds);
    ratios.push_back(run.seconds / plain);
    durable_ratios.push_back(run.seconds / durable);
  }
  fmt::print("medians of {}: cp {:.2f} s, cp and sync {:.2f} s, rewrite {:.2f} s\n", kRuns, Median(copies),
             Median(durable_copies), Median(rewrites));
  fmt::print("rewrite / cp: {:.2f} (wanted <= 2); rewrite / (cp and sync): {:.2f}; of the best runs: {:.2f}\n",
             Median(ratios), Median(durable_ratios), std::ranges::min(rewrites) / std::ranges::min(copies));
  fmt::print("memory besides mapped files: {:.1f} MB (wanted < 200)\n", static_cast<double>(memory) / 1e6);
  fs::remove_all(folder);
  return Median(ratios) <= 2 && memory < 200'000'000 ? 0 : 1;
}
