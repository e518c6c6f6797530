// What opening a package with 4 GB of weights costs: time and memory of `milwright info`, beside reading the model file
// alone, and how many bytes of the weight file were touched (none). The weight file is sparse: only its records exist.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "format/package.h"
#include "ops/builder.h"
#include "sparse_package.h"

namespace {

using namespace milwright;
namespace fs = std::filesystem;

constexpr int kLayers = 2048;
constexpr int64_t kWidth = 1024;
constexpr uint64_t kBlobBytes = static_cast<uint64_t>(kWidth) * kWidth * 2;

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <typename F>
double MedianMilliseconds(F run) {
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(Seconds(start) * 1e3);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// A chain of linear ops whose weights are never held.
void MakePackage(const fs::path& path) {
  bench::SparseWeights weights(kLayers * kBlobBytes);
  ModelSpec model;
  Function* function = model.program.AddFunction("main", Opset::kIOS18);
  Value* x = function->AddInput("x", TensorType{DataType::kFp16, {1, kWidth}});
  Builder builder(function->body());
  for (int i = 0; i < kLayers; ++i) {
    x = builder.Op("linear", {{"x", x}, {"weight", weights.Add({DataType::kFp16, {kWidth, kWidth}})}},
                   fmt::format("layer_{}", i));
  }
  function->body().SetOutputs({x});
  model.description.functions.push_back(DescribeFunction(*function));
  bench::WriteSparsePackage(model, path);
}

// Resident bytes of the mapping of weight.bin in this process.
int64_t ResidentWeightBytes() {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("-") != std::string::npos && line.find(" r") != std::string::npos)
      inside = line.find("weight.bin") != std::string::npos;
    if (inside && line.starts_with("Rss:")) return std::stoll(line.substr(4)) * 1024;
  }
  return -1;
}

}  // namespace

int main() {
  const fs::path folder = fs::temp_directory_path() / fmt::format("milwright-open-bench-{}", getpid());
  const fs::path package = folder / "Big.mlpackage";
  MakePackage(package);
  const std::string model_file = package / "Data/com.apple.CoreML/model.mlmodel";
  fmt::print("package: {} linear layers, weight file {:.2f} GB (sparse), model file {:.2f} MB\n", kLayers,
             static_cast<double>(fs::file_size(package / "Data/com.apple.CoreML/weights/weight.bin")) / 1e9,
             static_cast<double>(fs::file_size(model_file)) / 1e6);
  const double read = MedianMilliseconds([&] {
    std::ifstream file(model_file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.empty()) std::abort();
  });
  const double open_time = MedianMilliseconds([&] {
    if (!OpenModel(package).ok()) std::abort();
  });
  const auto model = OpenModel(package);
  fmt::print("read the model file alone: {:.1f} ms; OpenModel with verification: {:.1f} ms (medians of 9)\n", read,
             open_time);
  fmt::print("resident bytes of the weight mapping while the model is open: {}\n", ResidentWeightBytes());
  const double info = MedianMilliseconds([&] {
    const pid_t child = fork();
    if (child == 0) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, 1);
      execl(MILWRIGHT_BINARY, "milwright", "info", package.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) std::abort();
  });
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  fmt::print("milwright info: {:.1f} ms (median of 9 processes), peak memory {:.1f} MB\n", info,
             static_cast<double>(usage.ru_maxrss) / 1024);
  fs::remove_all(folder);
  return 0;
}
