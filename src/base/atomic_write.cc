// The parts of file_io.h that replace a file or folder in one step.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/file_io.h"

namespace milwright {
namespace {

// Folders beside the target: `.NAME.tmp-PID-N` is being filled, `.NAME.old-PID-N` was the target a moment ago. The
// second has a name of its own for each writer, so that nobody clears away a folder that another one still needs.
constexpr std::string_view kStagingPrefix = "tmp-";
constexpr std::string_view kAsidePrefix = "old-";

// Tries before giving up on a name, or on a target that others keep changing.
constexpr int kAttempts = 100;

// The target's folder, and its name in it; links followed, trailing slashes dropped.
struct Place {
  std::filesystem::path folder;
  std::string name;

  [[nodiscard]] std::string Sibling(std::string_view suffix) const {
    return (folder / fmt::format(".{}.{}", name, suffix)).string();
  }
  [[nodiscard]] std::string Path() const { return (folder / name).string(); }
};

Place PlaceOf(const std::string& target) {
  std::filesystem::path path(target);
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    if (auto resolved = std::filesystem::canonical(path, error); !error) path = std::move(resolved);
  }
  Place place{path.parent_path(), path.filename().string()};
  if (place.folder.empty()) place.folder = ".";
  return place;
}

Status SyncFolder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return WriteError(path, "cannot sync the folder");
  return {};
}

Status SyncFolders(const std::string& root) {
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) MW_RETURN_IF_ERROR(SyncFolder(it->path().string()));
  }
  if (error) return {ErrorCode::kIo, fmt::format("{}: {}", root, error.message())};
  return SyncFolder(root);
}

bool Exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Opens the staging folder `path` and takes its lock; invalid when another process has it. The one that holds the lock,
// its writer or whoever clears up after a dead one, is the only one that touches the folder.
UniqueFd LockFolder(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  struct stat opened {};
  struct stat named {};
  const bool same = ::fstat(fd.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  return same ? std::move(fd) : UniqueFd();
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& target) {
  const Place place = PlaceOf(target);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string path = place.Sibling(fmt::format("{}{}-{}", kStagingPrefix, ::getpid(), attempt));
    Result<OutputFile> file = OutputFile::Create(path);
    if (file.ok()) return AtomicFile(*std::move(file), place.Path());
    if (!Exists(path)) return file.status();
  }
  return Status(ErrorCode::kIo, target + ": no free name for a temporary file beside it");
}

AtomicFile::~AtomicFile() {
  if (!target_.empty()) ::unlink(file_.path().c_str());
}

Status AtomicFile::Commit(bool durable) {
  MW_RETURN_IF_ERROR(file_.Finish(durable));
  if (::rename(file_.path().c_str(), target_.c_str()) != 0) return WriteError(target_, "cannot replace");
  const std::string target = std::exchange(target_, {});
  return durable ? SyncFolder(PlaceOf(target).folder.string()) : Status();
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  MW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  MW_RETURN_IF_ERROR(file.file().Append(content));
  return file.Commit();
}

Result<StagedDirectory> StagedDirectory::Create(const std::string& target) {
  RecoverDirectory(target);
  const Place place = PlaceOf(target);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string staging = place.Sibling(fmt::format("{}{}-{}", kStagingPrefix, ::getpid(), attempt));
    if (::mkdir(staging.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return WriteError(staging, "cannot create");
    }
    // Another process that clears up may take the folder before it is locked; then try the next name.
    UniqueFd lock = LockFolder(staging);
    if (lock.valid()) return StagedDirectory(std::move(lock), staging, place.Path());
  }
  return Status(ErrorCode::kIo, target + ": no free name for a temporary folder beside it");
}

StagedDirectory::StagedDirectory(StagedDirectory&& other) noexcept
    : lock_(std::move(other.lock_)),
      staging_(std::exchange(other.staging_, {})),
      target_(std::exchange(other.target_, {})) {}

StagedDirectory::~StagedDirectory() {
  if (!staging_.empty()) RemoveTree(staging_);
}

Status StagedDirectory::Commit(bool durable) {
  if (durable) MW_RETURN_IF_ERROR(SyncFolders(staging_));
  const Place place = PlaceOf(target_);
  const std::string number = staging_.substr(staging_.rfind(kStagingPrefix) + kStagingPrefix.size());
  const std::string aside = place.Sibling(std::string(kAsidePrefix) + number);
  bool done = false;
  for (int attempt = 0; attempt < kAttempts && !done; ++attempt) {
    if (!Exists(target_)) {
      // A folder that appears meanwhile makes this fail (it is not empty): then it is exchanged in the next round.
      done = ::rename(staging_.c_str(), target_.c_str()) == 0;
      if (!done && errno != ENOTEMPTY && errno != EEXIST) {
        Status status = WriteError(target_, "cannot move into place");
        RecoverDirectory(target_);
        return status;
      }
      if (done) staging_.clear();
      continue;
    }
    if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
      done = true;
      continue;
    }
    if (errno == ENOENT) continue;
    if (errno != EINVAL && errno != ENOSYS) return WriteError(target_, "cannot exchange");
    // No exchange on this file system: two steps, which RecoverDirectory can undo.
    if (::rename(target_.c_str(), aside.c_str()) != 0) {
      if (errno == ENOENT) continue;
      if (errno != ENOTEMPTY && errno != EEXIST) return WriteError(target_, "cannot move aside");
      RemoveTree(aside);  // left by a dead process of the same number; the target stands
      continue;
    }
    if (durable) MW_RETURN_IF_ERROR(SyncFolder(place.folder.string()));
  }
  if (!done) return {ErrorCode::kIo, target_ + ": others keep changing it; nothing was written"};
  if (durable) MW_RETURN_IF_ERROR(SyncFolder(place.folder.string()));
  if (!staging_.empty()) RemoveTree(std::exchange(staging_, {}));
  RemoveTree(aside);
  return {};
}

void RecoverDirectory(const std::string& target) {
  const Place place = PlaceOf(target);
  const Result<std::vector<std::string>> names = ListDirectory(place.folder.string());
  if (!names.ok()) return;
  const std::string staging_prefix = fmt::format(".{}.{}", place.name, kStagingPrefix);
  const std::string aside_prefix = fmt::format(".{}.{}", place.name, kAsidePrefix);
  for (const std::string& name : *names) {
    const std::string path = (place.folder / name).string();
    if (name.starts_with(aside_prefix)) {
      // A writer that is between its two steps finds the target back and starts them again. The rename fails when the
      // target has come back meanwhile.
      if (!Exists(place.Path())) {
        static_cast<void>(::rename(path.c_str(), place.Path().c_str()));
      } else {
        RemoveTree(path);
      }
    } else if (name.starts_with(staging_prefix)) {
      if (const UniqueFd lock = LockFolder(path); lock.valid()) RemoveTree(path);
    }
  }
}

void RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

}  // namespace milwright
