// Files and folders: bounded reading, and writing that leaves either the old or the new content, never a mixture.
#ifndef MILWRIGHT_BASE_FILE_IO_H_
#define MILWRIGHT_BASE_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "milwright/status.h"

namespace milwright {

/// kIo with the text of errno: `what` failed on `path`.
Status WriteError(const std::string& path, std::string_view what);

/// The whole content of a regular file of at most `limit` bytes; kUnreadable when it is missing, larger, or no regular
/// file.
Result<std::string> ReadFile(const std::string& path, uint64_t limit);
/// The same of an open descriptor; `path` is for messages.
Result<std::string> ReadDescriptor(const UniqueFd& fd, const std::string& path, uint64_t limit);

/// The names in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> ListDirectory(const std::string& path);

/// Whether `relative` is a path that stays below a folder by its text: not empty, not absolute, without ".." and NUL.
/// `root` is for the message.
Status CheckRelativePath(const std::string& root, const std::string& relative);

/// Opens `relative` below the folder `root` for reading, refusing absolute paths, "..", and symbolic links that lead
/// outside `root` (openat2 with RESOLVE_BENEATH; where the kernel lacks it, by comparing resolved paths).
Result<UniqueFd> OpenBeneath(const std::string& root, const std::string& relative);

/// A part of a file, mapped for reading.
class MappedRange {
 public:
  MappedRange(std::span<const std::byte> pages, uint64_t skip, uint64_t bytes)
      : pages_(pages), bytes_(pages.subspan(skip, bytes)) {}
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> pages_;
  std::span<const std::byte> bytes_;
};

/// A new file, written from front to back; small parts may be patched afterwards.
class OutputFile {
 public:
  /// Creates `path`, which must not exist (kIo otherwise).
  static Result<OutputFile> Create(const std::string& path);

  /// Adds bytes at the end. Pieces are buffered; large ones go straight to the file.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  /// Adds zero bytes.
  Status AppendZeros(uint64_t count);
  /// Overwrites bytes that were already appended.
  Status PatchAt(uint64_t offset, std::span<const std::byte> bytes);
  /// Reads bytes that were already appended.
  Status ReadBack(uint64_t offset, std::span<std::byte> out);
  /// Takes back what was appended beyond `size`.
  Status Truncate(uint64_t size);

  /// From now on the disk starts on what was appended while more is, so that a durable Finish has little to wait for.
  void WriteBehind() { write_behind_ = true; }

  /// Maps bytes that were already appended, for reading; the map outlives the file object and a later rename.
  Result<std::shared_ptr<const MappedRange>> MapBack(uint64_t offset, uint64_t bytes);
  /// Bytes appended so far.
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Writes out what is buffered and, when `durable`, waits until the disk has it. Nothing may be appended afterwards.
  Status Finish(bool durable);

 private:
  OutputFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Status Flush();
  Status WriteAll(std::span<const std::byte> bytes);
  UniqueFd fd_;
  std::string path_;
  std::vector<std::byte> buffer_;
  uint64_t size_ = 0;
  bool write_behind_ = false;
  uint64_t started_ = 0;  ///< the disk has been told to write up to here
};

/// A file that is written beside its target and renamed over it by Commit; without Commit nothing is left behind.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& target);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  OutputFile& file() { return file_; }
  Status Commit(bool durable = true);

 private:
  AtomicFile(OutputFile file, std::string target) : file_(std::move(file)), target_(std::move(target)) {}
  OutputFile file_;
  std::string target_;  ///< empty after Commit or a move
};

/// Writes `content` to `path` atomically.
Status WriteFileAtomically(const std::string& path, std::string_view content);

/// A folder that is filled beside its target and then exchanged with it.
///
/// The staging folder is `.NAME.tmp-PID-N` beside the target, locked (flock) while its writer lives, so that a later
/// writer or reader knows what an interrupted one left behind. Commit uses renameat2(RENAME_EXCHANGE), which is one
/// step; where the file system lacks it, the old folder goes aside as `.NAME.old-PID-N`, the new one in, and
/// `RecoverDirectory` puts the old one back when that was interrupted in between.
class StagedDirectory {
 public:
  /// `target` may exist (a folder) or not; its parent must. A symbolic link is followed.
  static Result<StagedDirectory> Create(const std::string& target);
  StagedDirectory(StagedDirectory&& other) noexcept;
  StagedDirectory& operator=(StagedDirectory&&) = delete;
  ~StagedDirectory();

  /// Where to put the files.
  [[nodiscard]] const std::string& path() const { return staging_; }
  /// Puts the folder in the target's place and removes what was there. With `durable` it waits for the disk; the caller
  /// has finished its files with `durable` too.
  Status Commit(bool durable);

 private:
  StagedDirectory(UniqueFd lock, std::string staging, std::string target)
      : lock_(std::move(lock)), staging_(std::move(staging)), target_(std::move(target)) {}
  UniqueFd lock_;
  std::string staging_;  ///< empty after Commit or a move
  std::string target_;
};

/// What an interrupted StagedDirectory left beside `target`: puts the old folder back when the target is missing, and
/// removes staging folders whose writer is gone. Does its best and reports nothing: on a read-only disk it does
/// nothing.
void RecoverDirectory(const std::string& target);

/// Removes a folder or file with all it holds; symbolic links are removed, not followed.
void RemoveTree(const std::string& path);

}  // namespace milwright

#endif  // MILWRIGHT_BASE_FILE_IO_H_
