// Helpers shared by the tests of the text layer.
#ifndef MILWRIGHT_TESTS_TEXT_TEXT_TEST_UTIL_H_
#define MILWRIGHT_TESTS_TEXT_TEXT_TEST_UTIL_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/parser.h"

namespace milwright {

inline const std::filesystem::path kRealFiles = std::filesystem::path(MILWRIGHT_SHARED_DIR) / "real-files";

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Every file named `name` below `folder`, sorted; none when the folder is missing.
inline std::vector<std::filesystem::path> FindFiles(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::exists(folder)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == name) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Parse options that give a zero tensor for every blob.
inline ParseOptions WithZeroWeights(std::string file_name = {}) {
  ParseOptions options;
  options.file_name = std::move(file_name);
  options.load_blob = [](const BlobReference&, const TensorType& type) { return Tensor::Zeros(type); };
  return options;
}

/// `body` as the only operations of an iOS18 function main(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) -> ().
inline std::string InMain(const std::string& body) {
  return "program(1.3)\n{\n    func main<ios18>(tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s) {\n" + body +
         "\n    } -> ();\n}";
}

}  // namespace milwright

#endif  // MILWRIGHT_TESTS_TEXT_TEXT_TEST_UTIL_H_
