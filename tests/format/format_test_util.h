// Shared by the tests of this layer: temporary folders, and the packages to run over.
#ifndef MILWRIGHT_TESTS_FORMAT_FORMAT_TEST_UTIL_H_
#define MILWRIGHT_TESTS_FORMAT_FORMAT_TEST_UTIL_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace milwright::testing {

/// A folder of its own for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "milwright-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string Path(std::string_view name = {}) const {
    return name.empty() ? path_ : path_ + "/" + std::string(name);
  }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteAll(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// A writable copy of a package: fixtures may be read-only.
inline void CopyPackage(const std::string& from, const std::string& to) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
    if (entry.is_regular_file()) WriteAll(to + entry.path().string().substr(from.size()), ReadAll(entry.path()));
  }
}

/// All packages (folders that end in `suffix`) below `folder`, sorted.
inline std::vector<std::string> PackagesBelow(const std::string& folder, std::string_view suffix = ".mlpackage") {
  std::vector<std::string> found;
  if (!std::filesystem::is_directory(folder)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().string().ends_with(suffix)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

inline std::string TestPackage(std::string_view name) {
  return std::string(MILWRIGHT_TEST_DATA) + "/packages/" + std::string(name) + ".mlpackage";
}

/// Every package that the tests may use: those of the project, and those of the shared folder when it is there.
inline std::vector<std::string> AllPackages() {
  std::vector<std::string> packages;
  for (const char* folder : {MILWRIGHT_TEST_DATA, MILWRIGHT_SHARED_DIR "/fixtures", MILWRIGHT_SHARED_DIR "/ops",
                             MILWRIGHT_SHARED_DIR "/real-files"}) {
    std::ranges::move(PackagesBelow(folder), std::back_inserter(packages));
  }
  return packages;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_FORMAT_FORMAT_TEST_UTIL_H_
