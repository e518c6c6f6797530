// Temporary folders, whole files, and the packages to run over.
#ifndef MILWRIGHT_TESTS_SUPPORT_FILES_H_
#define MILWRIGHT_TESTS_SUPPORT_FILES_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "support/test_util.h"

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

/// Every file of a package: content by path below it.
inline std::map<std::string, std::string> FilesOf(const std::string& package) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(package)) {
    if (entry.is_regular_file()) files[entry.path().string().substr(package.size())] = ReadAll(entry.path());
  }
  return files;
}

/// A writable copy of a package: fixtures may be read-only.
inline void CopyPackage(const std::string& from, const std::string& to) {
  for (const auto& [path, content] : FilesOf(from)) WriteAll(to + path, content);
}

inline std::string TestPackage(const std::string& name) { return DataDir() / "packages" / (name + ".mlpackage"); }

/// Every package that the tests may use: those of the project, and those of the shared folder when it is there.
inline std::vector<std::string> AllPackages() {
  std::vector<std::string> packages;
  for (const auto& folder : {DataDir(), SharedDir() / "fixtures", SharedDir() / "ops", SharedDir() / "real-files"}) {
    for (const auto& path : FindAll(folder, ".mlpackage")) packages.push_back(path);
  }
  return packages;
}

/// Where the parts of a package written by Milwright or coremltools lie.
inline constexpr std::string_view kModelFile = "/Data/com.apple.CoreML/model.mlmodel";
inline constexpr std::string_view kWeightFile = "/Data/com.apple.CoreML/weights/weight.bin";

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_FILES_H_
