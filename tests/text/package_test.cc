// Programs of whole packages through the text and back, and packages against
// what Apple's compiler made of them.
#include "format/package.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "text/parser.h"
#include "text/printer.h"
#include "text_test_util.h"

namespace milwright {
namespace {

constexpr OpenOptions kUnverified = {.verify = false};  // the text layer knows no op registry

// Gives each blob of a program, so that its text can be read without its weight
// file.
class BlobTable {
 public:
  explicit BlobTable(const Program& program) {
    for (const auto& function : program.functions()) {
      ForEachOperation(function->body(), [this](const Operation& op) {
        for (const auto& [name, literal] : op.attributes) Add(literal);
        for (const Input& input : op.inputs()) {
          for (const Operand& operand : input.arguments) {
            if (operand.literal != nullptr) Add(*operand.literal);
          }
        }
      });
    }
  }

  [[nodiscard]] ParseOptions Options() const {
    ParseOptions options;
    options.load_blob = [this](const BlobReference& blob, const TensorType& type) -> Result<Tensor> {
      const auto it = tensors_.find({blob.file_name, blob.offset, TypeToString(type)});
      if (it == tensors_.end()) return Status(ErrorCode::kUnreadable, "the package has no such blob");
      return it->second;
    };
    return options;
  }

 private:
  void Add(const Literal& literal) {
    if (!literal.blob.has_value()) return;
    tensors_[{literal.blob->file_name, literal.blob->offset, TypeToString(literal.type)}] = literal.tensor;
  }
  std::map<std::tuple<std::string, uint64_t, std::string>, Tensor> tensors_;
};

void ExpectComesBack(const std::filesystem::path& path) {
  const auto model = OpenModel(path.string(), kUnverified);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const BlobTable blobs(model->program);
  const auto parsed = ParseProgram(PrintProgram(model->program), blobs.Options());
  ASSERT_TRUE(parsed.ok()) << path << ": " << parsed.status().message();
  std::string why;
  EXPECT_TRUE(ProgramsEqual(model->program, *parsed, {}, &why)) << path << ": " << why;
}

std::vector<std::filesystem::path> PackagesUnder(const std::string& folder) {
  std::vector<std::filesystem::path> packages;
  for (const auto& manifest : FindFiles(std::filesystem::path(MILWRIGHT_SHARED_DIR) / folder, "Manifest.json")) {
    packages.push_back(manifest.parent_path());
  }
  return packages;
}

class PackageText : public testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(PackageText, ComesBack) {
  const auto& [folder, at_least] = GetParam();
  const auto packages = PackagesUnder(folder);
  if (packages.empty()) GTEST_SKIP() << "needs " << MILWRIGHT_SHARED_DIR << "/" << folder;
  EXPECT_GE(packages.size(), at_least);
  for (const auto& path : packages) ExpectComesBack(path);
}

INSTANTIATE_TEST_SUITE_P(Shared, PackageText,
                         testing::Values(std::pair{"fixtures", size_t{60}}, std::pair{"ops", size_t{200}},
                                         std::pair{"real-files", size_t{10}}),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           std::erase(name, '-');
                           return name;
                         });

// What Apple's compiler writes of a package is the package's program: same
// operations in order, types, names, attributes and values. It adds to
// buildInfo and sorts the inputs of functions.
TEST(PackagePairs, CompiledTextEqualsThePackage) {
  const auto root = kRealFiles / "FluidInference__mobius/models/vad/silero-vad/coreml";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "needs " << root;
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"silero-vad-coreml/silero-vad-unified-v6.0.0", "silero-vad-unified-v6.0.0"},
      {"quantized_models/unified_standard/unified_int8", "unified_int8"},
      {"quantized_models/unified_standard/unified_palette_2bit", "unified_palette_2bit"},
      {"quantized_models/unified_standard/unified_palette_4bit", "unified_palette_4bit"},
      {"quantized_models/unified_standard/unified_palette_6bit", "unified_palette_6bit"},
      {"quantized_models/unified_standard/unified_pruned_int8", "unified_pruned_int8"},
  };
  for (const auto& [package_name, compiled_name] : pairs) {
    const auto package = OpenModel((root / (package_name + ".mlpackage")).string(), kUnverified);
    ASSERT_TRUE(package.ok()) << package.status().message();
    const BlobTable blobs(package->program);
    const auto file = root / "compiled" / (compiled_name + ".mlmodelc") / "model.mil";
    ParseOptions options = blobs.Options();
    options.file_name = file.string();
    const auto compiled = ParseProgram(ReadFile(file), options);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    std::string why;
    const EqualOptions as_compiled = {.ignore_program_attributes = true, .match_function_inputs_by_name = true};
    EXPECT_TRUE(ProgramsEqual(package->program, *compiled, as_compiled, &why)) << compiled_name << ": " << why;

    // And so does the text that Milwright prints of the package, read back.
    const auto printed = ParseProgram(PrintProgram(package->program), blobs.Options());
    ASSERT_TRUE(printed.ok()) << printed.status().message();
    EXPECT_TRUE(ProgramsEqual(*printed, *compiled, as_compiled, &why)) << compiled_name << ": " << why;

    // The compiled folder as a whole, with its own weight file.
    const auto opened = OpenModel(file.parent_path().string(), kUnverified);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_TRUE(ProgramsEqual(package->program, opened->program, as_compiled, &why)) << compiled_name << ": " << why;
  }
}

}  // namespace
}  // namespace milwright
