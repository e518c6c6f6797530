// A read-only memory map of a file: weights are views into it until someone really needs the bytes.
#ifndef MILWRIGHT_BASE_MAPPED_FILE_H_
#define MILWRIGHT_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "milwright/status.h"

namespace milwright {

/// How `ReadAt` will be used: `kRandom` switches read-ahead off for it, so that reading small records from a file of
/// gigabytes does not pull megabytes behind each of them.
enum class AccessPattern : uint8_t { kNormal, kRandom };

/// A regular file, opened and mapped read-only. Opening touches no page of it.
///
/// Held by shared_ptr: tensors that borrow bytes keep it alive (`Tensor::Borrow`). The file may be replaced or unlinked
/// meanwhile; the map keeps the old content. A file that someone else truncates in place while it is mapped is outside
/// what any reader can guard against.
class MappedFile {
 public:
  /// Opens `path`. Fails (kUnreadable) when it is missing, is not a regular file, or cannot be mapped.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path,
                                                        AccessPattern pattern = AccessPattern::kNormal);
  /// Maps an open descriptor; `path` is for messages.
  static Result<std::shared_ptr<const MappedFile>> FromDescriptor(UniqueFd fd, const std::string& path,
                                                                  AccessPattern pattern = AccessPattern::kNormal);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }
  /// The whole file; a page is read when it is first touched.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Reads `out.size()` bytes at `offset` with pread: no page of the map is touched. Fails when they are not all there.
  [[nodiscard]] Status ReadAt(uint64_t offset, std::span<std::byte> out) const;

 private:
  MappedFile(UniqueFd fd, std::string path, std::span<const std::byte> bytes)
      : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes) {}
  UniqueFd fd_;
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace milwright

#endif  // MILWRIGHT_BASE_MAPPED_FILE_H_
