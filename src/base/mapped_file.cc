#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace milwright {

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path, AccessPattern pattern) {
  // O_NONBLOCK: a named pipe must not make the open wait; it is refused below like all that is no regular file.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Status(ErrorCode::kUnreadable, fmt::format("{}: cannot open: {}", path, strerror(errno)));
  return FromDescriptor(std::move(fd), path, pattern);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::FromDescriptor(UniqueFd fd, const std::string& path,
                                                                     AccessPattern pattern) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: cannot stat: {}", path, strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) return Status(ErrorCode::kUnreadable, path + ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  std::span<const std::byte> bytes;
  if (size > 0) {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (address == MAP_FAILED) {
      return Status(ErrorCode::kUnreadable, fmt::format("{}: cannot map: {}", path, strerror(errno)));
    }
    bytes = {static_cast<const std::byte*>(address), size};
  }
  if (pattern == AccessPattern::kRandom) {
    // Advice belongs to an open file: records are read through one of their own, so that the map keeps its read-ahead.
    // Advice only: where it fails, it costs speed.
    if (UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), O_RDONLY | O_CLOEXEC)); own.valid()) {
      fd = std::move(own);
      static_cast<void>(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM));
    }
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(std::move(fd), path, bytes));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Status MappedFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size() || out.size() > size() - offset) {
    return {ErrorCode::kUnreadable, fmt::format("{}: {} bytes at offset {} are wanted, but the file has {}", path_,
                                                out.size(), offset, size())};
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return {ErrorCode::kUnreadable, fmt::format("{}: cannot read at offset {}: {}", path_, offset,
                                                  got == 0 ? "the file has become shorter" : strerror(errno))};
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace milwright
