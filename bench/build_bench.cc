// A checkpoint of Qwen3-0.6B's shape, 1.2 GB of random bf16 weights: building it to fp16 against copying the file, and
// compressing the result. Pass a folder to keep checkpoint and builds there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/file_io.h"
#include "base/mapped_file.h"
#include "compress/compress.h"
#include "llm/build.h"
#include "llm/compress_folder.h"
#include "support/random_checkpoint.h"

namespace milwright {
namespace {

/// Megabytes of anonymous memory of this process now.
double AnonymousMegabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return 0;
}

double Seconds(const std::function<Status()>& work) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = work();
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.message());
    std::exit(1);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status Copy(const std::string& from, const std::string& to) {
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(from));
  std::remove(to.c_str());
  MW_ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(to));
  constexpr size_t kPiece = 1 << 20;
  std::vector<std::byte> piece(kPiece);
  for (uint64_t at = 0; at < file->size(); at += kPiece) {
    const auto part = std::span(piece).first(std::min<uint64_t>(kPiece, file->size() - at));
    MW_RETURN_IF_ERROR(file->ReadAt(at, part));
    MW_RETURN_IF_ERROR(out.Append(part));
  }
  return out.Finish(/*durable=*/true);
}

double Median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// The highest anonymous memory while it lives.
class MemoryWatch {
 public:
  MemoryWatch()
      : before_(AnonymousMegabytes()), thread_([this] {
          while (!done_) {
            peak_ = std::max(peak_.load(), AnonymousMegabytes());
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  double Stop() {
    done_ = true;
    thread_.join();
    return peak_ - before_;
  }

 private:
  const double before_;
  std::atomic<bool> done_ = false;
  std::atomic<double> peak_ = 0;
  std::thread thread_;
};

int Run(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/model.safetensors")) {
    Seconds([&] { return testing::WriteRandomCheckpoint(folder, testing::kQwen3Config); });
  }
  BuildOptions options;
  options.checkpoint = folder;
  options.output = folder + "/fp16";
  options.functions = *ParseFunctions("decode,prefill:128");
  options.context_length = 2048;
  // Turn by turn: the machine may be busy with other things.
  std::vector<double> copies;
  std::vector<double> builds;
  MemoryWatch build_watch;
  for (int turn = 0; turn < 3; ++turn) {
    copies.push_back(Seconds([&] { return Copy(folder + "/model.safetensors", folder + "/copy"); }));
    std::remove((folder + "/copy").c_str());
    std::filesystem::remove_all(options.output);
    builds.push_back(Seconds([&] { return BuildCheckpoint(options).status(); }));
  }
  const double build_memory = build_watch.Stop();
  fmt::print(
      "build of 1.2 GB to fp16: copy {:.2f} s, build {:.2f} s: {:.2f} of the speed of copying; {:.0f} MB beyond "
      "mapped files\n",
      Median(copies), Median(builds), Median(copies) / Median(builds), build_memory);
  const double megabytes = static_cast<double>(std::filesystem::file_size(folder + "/model.safetensors")) / 1e6;
  for (const char* format : {"int8:block32", "int4:block32", "lut4:group16"}) {
    CompressOptions compress;
    compress.format = *ParseCompression(format);
    std::string output = folder + "/" + format;
    std::ranges::replace(output, ':', '-');
    std::filesystem::remove_all(output);
    MemoryWatch watch;
    const std::clock_t cpu_start = std::clock();  // of all threads: what other programs take does not count
    const double seconds = Seconds([&] { return CompressFolder(options.output, output, compress).status(); });
    const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const double memory = watch.Stop();
    fmt::print(
        "{}: {:.1f} s, {:.0f} MB/s of fp16 on {} cores, {:.0f} MB/s per core and second of its time: {:.2f} of the "
        "speed "
        "of copying; {:.0f} MB beyond mapped files\n",
        format, seconds, megabytes / seconds, std::thread::hardware_concurrency(), megabytes / cpu,
        Median(copies) / seconds, memory);
  }
  return 0;
}

}  // namespace
}  // namespace milwright

int main(int argc, char** argv) {
  if (argc > 1) {
    std::filesystem::create_directories(argv[1]);
    return milwright::Run(argv[1]);
  }
  std::string folder = (std::filesystem::temp_directory_path() / "milwright-build-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  const int result = milwright::Run(folder);
  std::filesystem::remove_all(folder);
  return result;
}
