// Packages with gigabytes of weights that take no room: the weight file is sparse, only its records exist.
#ifndef MILWRIGHT_BENCH_SPARSE_PACKAGE_H_
#define MILWRIGHT_BENCH_SPARSE_PACKAGE_H_

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "format/protobuf_writer.h"
#include "format/weight_file.h"
#include "mil/model.h"

namespace milwright::bench {

/// Literals whose bytes nobody reads: they borrow from one mapping of zeros, each from a place of its own.
class SparseWeights {
 public:
  explicit SparseWeights(size_t capacity) : capacity_(capacity) {
    void* pages = mmap(nullptr, capacity, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    pages_ = std::shared_ptr<const std::byte>(static_cast<const std::byte*>(pages), [capacity](const std::byte* p) {
      munmap(const_cast<std::byte*>(p), capacity);
    });
  }

  Literal Add(const TensorType& type) {
    const auto bytes = static_cast<size_t>(*ByteSize(type));
    if (used_ + bytes > capacity_) std::abort();
    Literal literal(*Tensor::Borrow(type, {pages_.get() + used_, bytes}, pages_));
    used_ += bytes;
    return literal;
  }

 private:
  size_t capacity_;
  size_t used_ = 0;
  std::shared_ptr<const std::byte> pages_;
};

/// Writes `model` to `path`: its larger constants go to a sparse weight file by record only. Constants that several
/// functions share are stored once.
inline void WriteSparsePackage(const ModelSpec& model, const std::filesystem::path& path) {
  std::filesystem::create_directories(path / "Data/com.apple.CoreML/weights");
  const std::filesystem::path weights = path / "Data/com.apple.CoreML/weights/weight.bin";
  const int file = open(weights.c_str(), O_CREAT | O_RDWR | O_TRUNC, 0644);
  const auto write_at = [file](const void* data, size_t size, uint64_t offset) {
    if (pwrite(file, data, size, static_cast<off_t>(offset)) < 0) std::perror("pwrite");
  };
  constexpr uint64_t kRecordBytes = 64;
  std::map<const std::byte*, uint64_t> stored;
  uint64_t end = kRecordBytes;  // behind the header
  const auto store = [&](const Tensor& tensor) -> Result<BlobReference> {
    const auto [it, added] = stored.emplace(tensor.bytes().data(), end);
    if (added) {
      const uint64_t bytes = tensor.bytes().size();
      const uint64_t number = *BlobDataTypeNumber(tensor.dtype());
      const uint64_t record[8] = {0xDEADBEEFULL | number << 32U, bytes, end + kRecordBytes, 0, 0, 0, 0, 0};
      write_at(record, sizeof record, end);
      end += kRecordBytes + (bytes + kRecordBytes - 1) / kRecordBytes * kRecordBytes;
    }
    return BlobReference{"@model_path/weights/weight.bin", it->second};
  };
  const auto bytes = WriteModelProtobuf(model, PackageBlobPolicy(1024), store);
  if (!bytes.ok()) fmt::print("{}\n", bytes.status().message());
  const uint32_t header[2] = {static_cast<uint32_t>(stored.size()), 2};
  write_at(header, sizeof header, 0);
  if (ftruncate(file, static_cast<off_t>(end)) != 0) std::perror("ftruncate");
  close(file);
  std::ofstream(path / "Data/com.apple.CoreML/model.mlmodel", std::ios::binary) << *bytes;
  std::ofstream(path / "Manifest.json") << R"({"fileFormatVersion": "1.0.0", "itemInfoEntries": {
    "1": {"author": "com.apple.CoreML", "description": "Specification", "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"},
    "2": {"author": "com.apple.CoreML", "description": "Weights", "name": "weights", "path": "com.apple.CoreML/weights"}},
    "rootModelIdentifier": "1"})";
}

}  // namespace milwright::bench

#endif  // MILWRIGHT_BENCH_SPARSE_PACKAGE_H_
