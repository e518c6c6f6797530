#include "base/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/utf8.h"

namespace milwright {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18U;
constexpr uint64_t kWriteBehindBytes = uint64_t{1} << 25U;

Status ReadError(const std::string& path, std::string_view what) {
  return {ErrorCode::kUnreadable, fmt::format("{}: {}: {}", path, what, strerror(errno))};
}

// For kernels without openat2: resolves every link and compares. (A link exchanged between the check and the open is
// not caught; openat2 has no such window.)
Result<UniqueFd> OpenBeneathByComparing(const std::string& root, const std::string& path) {
  std::error_code error;
  const std::filesystem::path base = std::filesystem::canonical(root, error);
  if (error) return Status(ErrorCode::kUnreadable, fmt::format("{}: {}", root, error.message()));
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  if (error) return Status(ErrorCode::kUnreadable, fmt::format("{}: cannot open: {}", path, error.message()));
  if (!target.string().starts_with(base.string() + "/")) {
    return Status(ErrorCode::kUnreadable, path + ": leads outside the package by a symbolic link");
  }
  UniqueFd fd(::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ReadError(path, "cannot open");
  return fd;
}

}  // namespace

Status WriteError(const std::string& path, std::string_view what) {
  return {ErrorCode::kIo, fmt::format("{}: {}: {}", path, what, strerror(errno))};
}

Result<std::string> ReadFile(const std::string& path, uint64_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ReadError(path, "cannot open");
  return ReadDescriptor(fd, path, limit);
}

Result<std::string> ReadDescriptor(const UniqueFd& fd, const std::string& path, uint64_t limit) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ReadError(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return Status(ErrorCode::kUnreadable, path + ": not a regular file");
  if (static_cast<uint64_t>(info.st_size) > limit) {
    return Status(ErrorCode::kUnreadable,
                  fmt::format("{}: {} bytes, more than the {} that such a file may have", path, info.st_size, limit));
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadError(path, "cannot read");
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  content.resize(filled);
  return content;
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (directory == nullptr) return ReadError(path, "cannot list");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Status CheckRelativePath(const std::string& root, const std::string& relative) {
  const std::filesystem::path parts(relative);
  std::string_view fault;
  if (relative.empty() || parts.is_absolute()) {
    fault = "is not a path inside the package";
  } else if (relative.find('\0') != std::string::npos) {
    fault = "holds a NUL character";
  } else if (std::ranges::find(parts, std::filesystem::path("..")) != parts.end()) {
    fault = "leads outside the package by '..'";
  }
  if (fault.empty()) return {};
  return {ErrorCode::kUnreadable, fmt::format("{}: '{}' {}", root, EscapeForMessage(relative), fault)};
}

Result<UniqueFd> OpenBeneath(const std::string& root, const std::string& relative) {
  MW_RETURN_IF_ERROR(CheckRelativePath(root, relative));
  const std::string path = root + "/" + relative;
  UniqueFd base(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!base.valid()) return ReadError(root, "cannot open the folder");
  struct open_how how {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH;
  UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, base.get(), relative.c_str(), &how, sizeof(how))));
  if (fd.valid()) return fd;
  if (errno == ENOSYS || errno == EPERM) return OpenBeneathByComparing(root, path);
  if (errno == EXDEV) {
    return Status(ErrorCode::kUnreadable, path + ": leads outside the package by a symbolic link");
  }
  return ReadError(path, "cannot open");
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return WriteError(path, "cannot create");
  return OutputFile(std::move(fd), path);
}

Status OutputFile::WriteAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return WriteError(path_, "cannot write");
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Status OutputFile::Flush() {
  MW_RETURN_IF_ERROR(WriteAll(buffer_));
  buffer_.clear();
  return {};
}

Status OutputFile::Append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) MW_RETURN_IF_ERROR(Flush());
  if (bytes.size() >= kBufferBytes) {
    MW_RETURN_IF_ERROR(WriteAll(bytes));
    if (write_behind_ && size_ - started_ >= kWriteBehindBytes) {
      // Where a file system does not know it, Finish does all the waiting.
      static_cast<void>(::sync_file_range(fd_.get(), static_cast<off_t>(started_), static_cast<off_t>(size_ - started_),
                                          SYNC_FILE_RANGE_WRITE));
      started_ = size_;
    }
    return {};
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Status OutputFile::AppendZeros(uint64_t count) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  while (count > 0) {
    const uint64_t piece = std::min<uint64_t>(count, kZeros.size());
    MW_RETURN_IF_ERROR(Append(std::span(kZeros).first(static_cast<size_t>(piece))));
    count -= piece;
  }
  return {};
}

Status OutputFile::PatchAt(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    return {ErrorCode::kInternal, fmt::format("{}: a patch at {} lies beyond what was written", path_, offset)};
  }
  MW_RETURN_IF_ERROR(Flush());
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return WriteError(path_, "cannot write");
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

Status OutputFile::Truncate(uint64_t size) {
  if (size > size_) return {ErrorCode::kInternal, path_ + ": cannot be cut to more than was written"};
  MW_RETURN_IF_ERROR(Flush());
  const auto end = static_cast<off_t>(size);
  if (::ftruncate(fd_.get(), end) != 0 || ::lseek(fd_.get(), end, SEEK_SET) != end) {
    return WriteError(path_, "cannot cut");
  }
  size_ = size;
  started_ = std::min(started_, size);
  return {};
}

MappedRange::~MappedRange() {
  if (!pages_.empty()) ::munmap(const_cast<std::byte*>(pages_.data()), pages_.size());
}

Result<std::shared_ptr<const MappedRange>> OutputFile::MapBack(uint64_t offset, uint64_t bytes) {
  if (offset > size_ || bytes > size_ - offset) {
    return Status(ErrorCode::kInternal, fmt::format("{}: a map at {} lies beyond what was written", path_, offset));
  }
  MW_RETURN_IF_ERROR(Flush());
  if (bytes == 0) return std::make_shared<const MappedRange>(std::span<const std::byte>(), 0, 0);
  const uint64_t skip = offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto size = static_cast<size_t>(skip + bytes);
  void* pages = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_.get(), static_cast<off_t>(offset - skip));
  if (pages == MAP_FAILED) return WriteError(path_, "cannot map");
  return std::make_shared<const MappedRange>(std::span(static_cast<const std::byte*>(pages), size), skip, bytes);
}

Status OutputFile::ReadBack(uint64_t offset, std::span<std::byte> out) {
  MW_RETURN_IF_ERROR(Flush());
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return WriteError(path_, "cannot read back");
    if (got == 0) return {ErrorCode::kInternal, path_ + ": reading back beyond what was written"};
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Status OutputFile::Finish(bool durable) {
  MW_RETURN_IF_ERROR(Flush());
  if (durable && ::fsync(fd_.get()) != 0) return WriteError(path_, "cannot sync");
  fd_ = UniqueFd();
  return {};
}

}  // namespace milwright
