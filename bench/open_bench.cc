// What opening a package with 4 GB of weights costs: time and memory of `milwright info`, beside reading the model file
// alone, and how many bytes of the weight file were touched (none). The weight file is sparse: only its records exist.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/file_io.h"
#include "format/package.h"
#include "format/protobuf_writer.h"
#include "ops/builder.h"

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

// A chain of linear ops whose weights are never held: the tensors borrow from a mapping that nobody reads.
void MakePackage(const fs::path& path) {
  fs::create_directories(path / "Data/com.apple.CoreML/weights");
  const fs::path weights = path / "Data/com.apple.CoreML/weights/weight.bin";
  const int file = open(weights.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0644);
  const uint64_t stride = kBlobBytes + 64;
  if (ftruncate(file, static_cast<off_t>(64 + kLayers * stride)) != 0) std::perror("ftruncate");
  const uint32_t header[2] = {kLayers, 2};
  if (pwrite(file, header, sizeof header, 0) < 0) std::perror("pwrite");
  for (uint64_t i = 0; i < kLayers; ++i) {
    const uint64_t offset = 64 + i * stride;
    uint64_t record[8] = {0xDEADBEEFULL | 1ULL << 32U, kBlobBytes, offset + 64, 0, 0, 0, 0, 0};
    if (pwrite(file, record, sizeof record, static_cast<off_t>(offset)) < 0) std::perror("pwrite");
  }
  close(file);

  ModelSpec model;
  Function* function = model.program.AddFunction("main", Opset::kIOS18);
  Value* x = function->AddInput("x", TensorType{DataType::kFp16, {1, kWidth}});
  const std::vector<std::byte> unread(kBlobBytes);
  Builder builder(function->body());
  for (uint64_t i = 0; i < kLayers; ++i) {
    const auto owner = std::make_shared<int>(0);
    Literal weight(*Tensor::Borrow({DataType::kFp16, {kWidth, kWidth}}, unread, owner),
                   BlobReference{"@model_path/weights/weight.bin", 64 + i * stride});
    x = builder.Op("linear", {{"x", x}, {"weight", std::move(weight)}}, fmt::format("layer_{}", i));
  }
  function->body().SetOutputs({x});
  model.description.functions.push_back(DescribeFunction(*function));
  uint64_t next = 0;
  const auto bytes =
      WriteModelProtobuf(model, PackageBlobPolicy(1 << 20), [&next, stride](const Tensor&) -> Result<BlobReference> {
        return BlobReference{"@model_path/weights/weight.bin", 64 + next++ * stride};
      });
  if (!bytes.ok()) fmt::print("{}\n", bytes.status().message());
  std::ofstream(path / "Data/com.apple.CoreML/model.mlmodel", std::ios::binary) << *bytes;
  std::ofstream(path / "Manifest.json") << R"({"fileFormatVersion": "1.0.0", "itemInfoEntries": {
    "1": {"author": "com.apple.CoreML", "description": "Specification", "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"},
    "2": {"author": "com.apple.CoreML", "description": "Weights", "name": "weights", "path": "com.apple.CoreML/weights"}},
    "rootModelIdentifier": "1"})";
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
