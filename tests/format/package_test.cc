// Reading and writing whole packages: everything that is there reads, and comes back equal after writing.
#include "format/package.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "format/weight_file.h"
#include "support/files.h"

namespace milwright {
namespace {

using testing::AllPackages;
using testing::PackagesBelow;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::TestPackage;
using ::testing::HasSubstr;

const WriteOptions kQuick{.durable = false};
const OpenOptions kOpen{.verify = false};

// Every file of a package by its path below it.
std::map<std::string, std::string> FilesOf(const std::string& package) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(package)) {
    if (entry.is_regular_file()) {
      files[entry.path().string().substr(package.size())] = ReadAll(entry.path());
    }
  }
  return files;
}

// The bytes that every blob reference of the program stands for, in program order.
std::vector<std::string> BlobContents(const Program& program) {
  std::vector<std::string> contents;
  const auto visit = [&contents](const Literal& literal) {
    if (!literal.blob) return;
    const auto bytes = literal.tensor.bytes();
    contents.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const auto& function : program.functions()) {
    ForEachOperation(function->body(), [&visit](const Operation& op) {
      for (const auto& [key, literal] : op.attributes) visit(literal);
      for (const Input& input : op.inputs()) {
        for (const Operand& operand : input.arguments) {
          if (operand.literal != nullptr) visit(*operand.literal);
        }
      }
    });
  }
  return contents;
}

TEST(Package, EveryPackageReadsAndComesBackEqual) {
  const TemporaryFolder folder;
  const std::vector<std::string> packages = AllPackages();
  ASSERT_GE(packages.size(), 20U);
  for (const std::string& path : packages) {
    SCOPED_TRACE(path);
    const Result<ModelSpec> model = OpenModel(path, kOpen);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::string first = folder.Path("first.mlpackage");
    const std::string second = folder.Path("second.mlpackage");
    const Status written = WriteModel(*model, first, kQuick);
    ASSERT_TRUE(written.ok()) << written.message();
    const Result<ModelSpec> again = OpenModel(first, kOpen);
    ASSERT_TRUE(again.ok()) << again.status().message();
    std::string why;
    EXPECT_TRUE(ModelsEqual(*model, *again, &why)) << why;
    EXPECT_EQ(BlobContents(model->program), BlobContents(again->program));
    // Writing what was written gives the same bytes, file by file.
    ASSERT_TRUE(WriteModel(*again, second, kQuick).ok());
    EXPECT_TRUE(FilesOf(first) == FilesOf(second));
    EXPECT_EQ(*PackageIdentity(*model), *PackageIdentity(*again));
  }
}

}  // namespace
}  // namespace milwright
