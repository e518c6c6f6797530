// weight.bin: the file of constants of an ML Program (package-format.md, section 4).
#ifndef MILWRIGHT_FORMAT_WEIGHT_FILE_H_
#define MILWRIGHT_FORMAT_WEIGHT_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/mapped_file.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// The number by which weight.bin names a data type, or nullopt: bools, strings, fp64 and 64-bit integers have none.
std::optional<uint32_t> BlobDataTypeNumber(DataType type);

/// One blob's metadata record.
struct BlobRecord {
  uint64_t offset = 0;  ///< of the metadata record: what a BlobReference holds
  DataType dtype = DataType::kInvalid;
  uint64_t bytes = 0;
  uint64_t data_offset = 0;   ///< absolute
  uint64_t padding_bits = 0;  ///< unused bits at the end of a sub-byte blob
};

/// A weight.bin opened for reading. Opening, and looking up a blob, read the 64-byte records only (by pread): no page
/// of the map is touched until a tensor's element is.
class WeightFile {
 public:
  /// kUnreadable when the file is missing, shorter than its header, or of another version than 2.
  static Result<std::shared_ptr<const WeightFile>> Open(const std::string& path);
  static Result<std::shared_ptr<const WeightFile>> FromMap(std::shared_ptr<const MappedFile> map);

  [[nodiscard]] const std::string& path() const { return map_->path(); }
  [[nodiscard]] uint64_t size() const { return map_->size(); }
  /// The number of blobs by the header.
  [[nodiscard]] uint32_t count() const { return count_; }

  /// The record at `offset`, checked: sentinel, known data type, data inside the file and aligned to 64 bytes.
  [[nodiscard]] Result<BlobRecord> Record(uint64_t offset) const;
  /// All `count()` records in file order.
  [[nodiscard]] Result<std::vector<BlobRecord>> Records() const;
  /// The blob at `offset` as a tensor of `type`, borrowed from the map and keeping it alive. The record's data type,
  /// size and padding must be those of `type`. Errors (kUnreadable) name file, offset and what differs.
  [[nodiscard]] Result<Tensor> Blob(uint64_t offset, const TensorType& type) const;

 private:
  WeightFile(std::shared_ptr<const MappedFile> map, uint32_t count) : map_(std::move(map)), count_(count) {}
  [[nodiscard]] Status Error(uint64_t offset, const std::string& what) const;
  std::shared_ptr<const MappedFile> map_;
  uint32_t count_;
};

/// Writes a weight.bin. Equal content of one data type is stored once, whatever its shape and wherever it comes from;
/// blobs appear in the order of their first Add, so equal calls give equal bytes. Bytes are streamed to the file and
/// nothing of what was added is kept: a supposed duplicate is compared with what the file already holds.
class WeightWriter {
 public:
  /// Creates `path`, which must not exist.
  static Result<WeightWriter> Create(const std::string& path);

  /// Stores `tensor` unless its content is there already; returns the offset of its metadata record. kUsage for a data
  /// type that weight.bin cannot hold.
  Result<uint64_t> Add(const Tensor& tensor);
  /// Adds a blob of `type` whose bytes come piece by piece: `fill` hands them to the function it is given, in order,
  /// and all of them. The blob is not compared with others. Gives it back as a tensor borrowed from the file, which
  /// `Add` recognises. kInternal when `fill` hands over another number of bytes.
  using Emit = std::function<Status(std::span<const std::byte>)>;
  Result<Tensor> AddStreamed(const TensorType& type, const std::function<Status(const Emit&)>& fill);
  /// See OutputFile::WriteBehind.
  void WriteBehind() { file_.WriteBehind(); }
  /// Writes the number of blobs into the header and closes the file.
  Status Finish(bool durable);

  [[nodiscard]] uint32_t count() const { return count_; }
  [[nodiscard]] uint64_t size() const { return file_.size(); }

 private:
  explicit WeightWriter(OutputFile file) : file_(std::move(file)) {}
  /// What makes two blobs candidates for equality.
  struct Key {
    uint32_t type_number = 0;
    uint64_t bytes = 0;
    uint64_t padding_bits = 0;  ///< the record says it, so it tells sub-byte blobs of equal bytes apart
    uint64_t hash = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): a mistake of clang-tidy 14
  };
  /// A blob that was streamed, by where its map lies.
  struct Streamed {
    std::shared_ptr<const MappedRange> range;  ///< kept, so that no other bytes come to lie at the address
    uint32_t type_number = 0;
    uint64_t offset = 0;
  };
  Result<uint64_t> AppendMetadata(const Key& key);
  Result<bool> HoldsAt(uint64_t offset, std::span<const std::byte> bytes);
  OutputFile file_;
  uint32_t count_ = 0;
  std::multimap<Key, uint64_t> stored_;  ///< offsets of the metadata records
  std::map<const std::byte*, Streamed> streamed_;
};

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_WEIGHT_FILE_H_
