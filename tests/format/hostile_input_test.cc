// Input that is damaged or made to harm: each gives one clear line, never a crash, a hang, or memory beyond the file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <functional>
#include <random>

#include "format/package.h"
#include "format/protobuf_reader.h"
#include "format/protobuf_writer.h"
#include "protobuf_text.h"
#include "support/files.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using testing::CopyPackage;
using ::testing::HasSubstr;
using testing::kModelFile;
using testing::kWeightFile;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::TestPackage;
using testing::WriteAll;

// What every refusal must be: of a kind that means "unreadable input", on one line, with the file's name.
void ExpectClearError(const Status& status, const std::string& place) {
  EXPECT_TRUE(status.code() == ErrorCode::kUnreadable || status.code() == ErrorCode::kInvalidProgram)
      << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(place));
  EXPECT_LT(status.message().size(), 1500U);
}

int64_t PeakKilobytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// ---- damaged model files ----

class Damage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    package_ = folder_.Path("m.mlpackage");
    CopyPackage(TestPackage(GetParam()), package_);
    good_ = ReadAll(package_ + std::string(kModelFile));
  }
  void Try(const std::string& bytes, bool must_fail) {
    WriteAll(package_ + std::string(kModelFile), bytes);
    const auto model = OpenModel(package_);
    if (!model.ok()) return ExpectClearError(model.status(), package_);
    EXPECT_FALSE(must_fail);
    // What is taken for a program must be one: it can be written, unless a name in it was damaged.
    const auto written = WriteModelProtobuf(*model, PackageBlobPolicy(10), [](const Tensor&) -> Result<BlobReference> {
      return BlobReference{"@model_path/weights/weight.bin", 64};
    });
    EXPECT_TRUE(written.ok() || written.status().code() == ErrorCode::kInvalidProgram) << written.status().message();
  }

  const TemporaryFolder folder_;
  std::string package_;
  std::string good_;
};

TEST_P(Damage, TruncatedModelFiles) {
  const size_t step = std::max<size_t>(1, good_.size() / 1000);
  for (size_t size = 0; size < good_.size(); size += step) {
    SCOPED_TRACE(size);
    Try(good_.substr(0, size), true);
  }
}

TEST_P(Damage, FlippedBits) {
  constexpr uint32_t kSeed = 1;
  std::mt19937 random(kSeed);
  const int rounds = good_.size() < 20'000 ? 4000 : 400;
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", kSeed, i));
    std::string bad = good_;
    for (int flips = 1 + i % 3; flips > 0; --flips) {
      char& byte = bad[random() % bad.size()];
      byte = static_cast<char>(byte ^ (1 << (random() % 8)));
    }
    Try(bad, false);
  }
}

TEST_P(Damage, OverwrittenRanges) {
  constexpr uint32_t kSeed = 2;
  std::mt19937 random(kSeed);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", kSeed, i));
    std::string bad = good_;
    const size_t place = random() % bad.size();
    const size_t length = std::min<size_t>(bad.size() - place, 1 + random() % 64);
    if (i % 3 == 0) {
      bad.erase(place, length);
    } else if (i % 3 == 1) {
      bad.insert(place, bad.substr(random() % bad.size(), length));
    } else {
      std::memset(bad.data() + place, i % 2 == 0 ? 0xFF : 0, length);
    }
    Try(bad, false);
  }
}

INSTANTIATE_TEST_SUITE_P(, Damage, ::testing::Values("a_accumulator", "h_int4_block32", "i_multifunction_int4"),
                         [](const auto& info) { return info.param; });

TEST(HostileInput, DamagedWeightRecords) {
  const TemporaryFolder folder;
  const std::string package = folder.Path("m.mlpackage");
  CopyPackage(TestPackage("h_int4_block32"), package);
  const std::string path = package + std::string(kWeightFile);
  const std::string good = ReadAll(path);
  std::vector<size_t> records;
  for (size_t place = 64; place + 64 <= good.size(); place += 64) {
    if (good.compare(place, 4, "\xEF\xBE\xAD\xDE") == 0) records.push_back(place);
  }
  ASSERT_GT(records.size(), 20U);
  for (const size_t record : records) {
    for (const size_t field : {0U, 4U, 8U, 15U, 16U, 23U}) {  // sentinel, type, size, data offset: low and high bytes
      std::string bad = good;
      bad[record + field] = static_cast<char>(bad[record + field] ^ 0x40);
      WriteAll(path, bad);
      const auto model = OpenModel(package);
      // One place is left that a single flip may move without a fault: the data, by 64 bytes.
      if (model.ok()) {
        EXPECT_EQ(field, 16U);
      } else {
        ExpectClearError(model.status(), fmt::format("weight.bin: blob at offset {}", record));
      }
    }
  }
  for (size_t size = 0; size < good.size(); size += 997) {
    WriteAll(path, good.substr(0, size));
    const auto model = OpenModel(package);
    ASSERT_FALSE(model.ok()) << size;
    ExpectClearError(model.status(), "weight.bin");
  }
}

// ---- packages that lie about their files ----

constexpr std::string_view kManifest = R"({{"fileFormatVersion": "{}", "itemInfoEntries":
  {{"m": {{"path": "{}"}}, "w": {{"path": "{}"}}}}, "rootModelIdentifier": "{}"}})";

TEST(HostileInput, Manifests) {
  const TemporaryFolder folder;
  const std::string package = folder.Path("m.mlpackage");
  CopyPackage(TestPackage("a_accumulator"), package);
  WriteAll(folder.Path("outside.mlmodel"), ReadAll(package + std::string(kModelFile)));
  const std::string model = "com.apple.CoreML/model.mlmodel";
  fs::create_symlink(folder.Path("outside.mlmodel"), package + "/Data/link.mlmodel");
  fs::create_symlink("../../outside.mlmodel", package + "/Data/relative.mlmodel");
  fs::create_directory_symlink("../..", package + "/Data/up");
  fs::create_symlink("gone", package + "/Data/dangling");
  const auto manifest = [](std::string_view root_path, std::string_view weights = "com.apple.CoreML/weights",
                           std::string_view version = "1.0.0", std::string_view root = "m") {
    return fmt::format(fmt::runtime(kManifest), version, root_path, weights, root);
  };
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{", "not a JSON object"},
      {std::string(100'000, '['), "not a JSON object"},
      {"{}", "fileFormatVersion"},
      {manifest(model, "w", "2.0.0"), "fileFormatVersion"},
      {R"({"fileFormatVersion": "1.0.0", "itemInfoEntries": [], "rootModelIdentifier": "m"})", "is missing"},
      {R"({"fileFormatVersion": "1.0.0", "itemInfoEntries": {"m": 7}, "rootModelIdentifier": "m"})", "has no path"},
      {R"({"fileFormatVersion": "1.0.0", "itemInfoEntries": {"m": {"path": 7}}, "rootModelIdentifier": "m"})",
       "has no path"},
      {manifest(model, "w", "1.0.0", "z"), "no item of the rootModelIdentifier"},
      {manifest("../../outside.mlmodel"), "'..'"},
      {manifest("com.apple.CoreML/../../../outside.mlmodel"), "'..'"},
      {manifest(model, "../weights"), "'..'"},
      {manifest(folder.Path("outside.mlmodel")), "not a path inside the package"},
      {manifest(model, "/etc"), "not a path inside the package"},
      {manifest(""), "not a path inside the package"},
      {manifest("com.apple.CoreML/model\\u0000.mlmodel"), "NUL"},
      {manifest("link.mlmodel"), "symbolic link"},
      {manifest("relative.mlmodel"), "symbolic link"},
      {manifest("up/outside.mlmodel"), "symbolic link"},
      {manifest(model, "link.mlmodel"), "symbolic link"},
      {manifest("dangling"), "cannot open"},
      {manifest(model, "dangling"), "cannot open"},
      {manifest("none.mlmodel"), "cannot open"},
      {manifest("com.apple.CoreML"), "not a regular file"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(message);
    WriteAll(package + "/Manifest.json", text);
    const auto opened = OpenModel(package);
    ASSERT_FALSE(opened.ok());
    ExpectClearError(opened.status(), package);
    EXPECT_THAT(opened.status().message(), HasSubstr(std::string(message)));
  }
  WriteAll(package + "/Manifest.json", manifest(model));
  EXPECT_OK(OpenModel(package));
  fs::rename(package + "/Manifest.json", folder.Path("Manifest.json"));
  fs::create_symlink("../Manifest.json", package + "/Manifest.json");
  ExpectClearError(OpenModel(package).status(), "symbolic link");
}

TEST(HostileInput, FoldersThatAreNoPackages) {
  const TemporaryFolder folder;
  ExpectClearError(OpenModel(folder.Path("none.mlpackage")).status(), "no such file");
  ExpectClearError(OpenModel(folder.Path()).status(), "neither Manifest.json nor model.mil");
  WriteAll(folder.Path("c.mlmodelc/coremldata.bin"), "x");
  ExpectClearError(OpenModel(folder.Path("c.mlmodelc")).status(), "without model.mil");
  WriteAll(folder.Path("empty.mlmodel"), "");
  ExpectClearError(OpenModel(folder.Path("empty.mlmodel")).status(), "empty");
  ExpectClearError(OpenModel("/dev/zero").status(), "neither a file nor a folder");
}

TEST(HostileInput, MissingWeights) {
  const TemporaryFolder folder;
  const std::string package = folder.Path("m.mlpackage");
  CopyPackage(TestPackage("b_slice"), package);
  fs::remove(package + std::string(kWeightFile));
  const Status status = OpenModel(package).status();
  ExpectClearError(status, "weight.bin: cannot open");
  EXPECT_THAT(status.message(), HasSubstr("main/op "));  // which constant
  fs::create_symlink(fs::absolute(TestPackage("b_slice") + std::string(kWeightFile)),
                     package + std::string(kWeightFile));
  ExpectClearError(OpenModel(package).status(), "symbolic link");
}

TEST(HostileInput, BlobReferencesThatLeadOut) {
  const std::string type = testing::TensorTypeText("FLOAT16", {2});
  const TemporaryFolder folder;
  const std::string package = folder.Path("m.mlpackage");
  CopyPackage(TestPackage("b_slice"), package);
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"fileName: '@model_path/../../../secret' offset: 64", "'..'"},
      {"fileName: '/etc/passwd' offset: 64", "does not start with @model_path/"},
      {"fileName: '@model_path//etc/passwd' offset: 64", "not a path inside the package"},
      {"fileName: '@model_path/' offset: 64", "not a path inside the package"},
      {"fileName: '@model_path/none.bin' offset: 64", "cannot open"},
      {"fileName: '@model_path/model.mlmodel' offset: 64", "weight file of version"},
      {"fileName: '@model_path/weights/weight.bin' offset: 1", "not a place for a blob"},
      {"fileName: '@model_path/weights/weight.bin' offset: 18446744073709551552", "outside the file"},
      {"fileName: '@model_path/weights/weight.bin' offset: 1099511627776", "outside the file"},
  };
  for (const auto& [reference, message] : cases) {
    SCOPED_TRACE(message);
    WriteAll(
        package + std::string(kModelFile),
        testing::ModelFromText(
            testing::ModelText(testing::ConstText("c", type, fmt::format("blobFileValue {{ {} }}", reference)), "c"))
            .SerializeAsString());
    const auto model = OpenModel(package);
    ASSERT_FALSE(model.ok());
    ExpectClearError(model.status(), std::string(message));
  }
}

// ---- programs that break rules ----

TEST(HostileInput, ProgramsAgainstTheRegistry) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("m.mlmodel");
  const auto op = [](std::string_view type, std::string_view inputs, std::string_view more = "") {
    return testing::ModelText(fmt::format("operations {{ type: '{}' {} {} {} {} }}", type, inputs, more,
                                          testing::NamedText("outputs", "y", testing::FloatVector(2)),
                                          testing::NameAttribute("y")));
  };
  const std::string x = testing::InputText("x", {"x"});
  const std::pair<std::string, std::string_view> cases[] = {
      {op("frobnicate", x), "'frobnicate' is not known"},
      {op("read_state", testing::InputText("input", {"x"})), "exists from opset iOS18 on"},
      {op("relu", ""), "'x' of relu is missing"},
      {op("relu", x + testing::InputText("y", {"x"})), "no parameter 'y'"},
      {op("relu", testing::InputText("x", {"x", "x"})), "takes one argument, but has 2"},
      {op("relu", testing::InputText("x", {})), "takes one argument, but has 0"},
      {op("relu", x, "blocks {}"), "0 nested blocks, but has 1"},
      {op("while_loop", testing::InputText("loop_vars", {"x"})), "2 nested blocks, but has 0"},
      {testing::ModelText("operations { type: 'relu' " + x +
                          testing::NamedText("outputs", "y", testing::FloatVector(3)) + "}"),
       "'y'"},
      {testing::ModelText("operations { type: 'relu' " + x + "}", "x"), "relu"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(message);
    WriteAll(path, testing::ModelFromText(text).SerializeAsString());
    const auto model = OpenModel(path);
    ASSERT_FALSE(model.ok());
    ExpectClearError(model.status(), path + ": main");
    EXPECT_EQ(model.status().code(), ErrorCode::kInvalidProgram);
    EXPECT_THAT(model.status().message(), HasSubstr(std::string(message)));
  }
}

// ---- messages made by hand ----

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
  return bytes + static_cast<char>(value);
}

std::string Field(int number, std::string_view payload) {
  return Varint(static_cast<uint64_t>(number) << 3U | 2U) + Varint(payload.size()) + std::string(payload);
}

// A model whose function main has `block` as its body.
std::string ModelAround(std::string_view block) {
  const std::string specialization = Field(1, "CoreML7") + Field(2, block);
  const std::string function = Field(2, "CoreML7") + Field(3, specialization);
  return Field(502, Field(2, Field(1, "main") + Field(2, function)));
}

Status ReadBytes(const std::string& bytes) {
  return ReadModelProtobuf(std::as_bytes(std::span(bytes)), "m.mlmodel",
                           [](const BlobReference&, const TensorType& type) { return Tensor::Zeros(type); })
      .status();
}

TEST(HostileInput, TenThousandNestedBlocks) {
  const std::string head = Field(1, "cond");
  // Built from the inside: each level is an operation with one block that holds the next.
  std::string block;
  for (int level = 0; level < 10'000; ++level) block = Field(3, head + Field(4, block));
  const Status status = ReadBytes(ModelAround(block));
  ExpectClearError(status, "m.mlmodel");
  EXPECT_THAT(status.message(), HasSubstr("nest deeper than 200 levels"));
  EXPECT_THAT(status.message(), HasSubstr("main"));
  std::string fine;
  for (int level = 0; level < 90; ++level) fine = Field(3, head + Field(4, fine));
  EXPECT_OK(ReadBytes(ModelAround(fine)));
}

TEST(HostileInput, DeepTypesAndValues) {
  std::string type;
  for (int level = 0; level < 10'000; ++level) type = Field(2, Field(1, type));  // a list of lists of ...
  const std::string output = Field(1, "y") + Field(2, type);
  ExpectClearError(ReadBytes(ModelAround(Field(3, Field(1, "relu") + Field(3, output)))), "nest deeper");
  std::string value;
  for (int level = 0; level < 10'000; ++level) value = Field(3, Field(3, Field(1, value)));  // a list value in it
  const std::string attribute = Field(1, "a") + Field(2, value);
  ExpectClearError(ReadBytes(ModelAround(Field(3, Field(1, "relu") + Field(5, attribute)))), "nest deeper");
  std::string group;
  for (int level = 0; level < 10'000; ++level) group += Varint(7777U << 3U | 3U);  // unknown groups, never closed
  ExpectClearError(ReadBytes(ModelAround(group)), "m.mlmodel");
}

TEST(HostileInput, LengthsBeyondTheFile) {
  const int64_t before = PeakKilobytes();
  for (const uint64_t length : {uint64_t{0x7FFFFFFF}, uint64_t{0x80000000}, uint64_t{0xFFFFFFFF}, UINT64_MAX}) {
    // A string of 2 GB in the description's metadata, in an op's type, and in the bytes of a constant.
    const std::string text = Varint(1U << 3U | 2U) + Varint(length) + "abc";
    ExpectClearError(ReadBytes(Varint(2U << 3U | 2U) + Varint(length) + text + Field(502, "")), "m.mlmodel");
    const Status status = ReadBytes(Field(502, Field(2, Field(1, "main") + Field(2, text))));
    ExpectClearError(status, "are left");
    EXPECT_THAT(status.message(), HasSubstr("mlProgram.functions[0] 'main'.value"));
    EXPECT_THAT(status.message(), HasSubstr("byte "));
  }
  // Packed numbers that claim gigabytes.
  const std::string floats = Varint(1U << 3U | 2U) + Varint(0x7FFFFFF0);
  const std::string value = Field(3, Field(1, Field(1, floats)));
  ExpectClearError(ReadBytes(ModelAround(Field(3, Field(1, "const") + Field(5, Field(1, "val") + Field(2, value))))),
                   "are left");
  EXPECT_LT(PeakKilobytes() - before, 64 * 1024);
}

TEST(HostileInput, ShapesWithoutContent) {
  const int64_t before = PeakKilobytes();
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{INT64_MAX}, {1LL << 40}, {1LL << 31, 1LL << 31, 1LL << 31}}) {
    for (const char* dtype : {"FLOAT32", "STRING", "BOOL", "UINT1"}) {
      for (const char* field : {"floats", "strings", "bools", "bytes", "ints"}) {
        const auto model = testing::ModelFromText(
            testing::ModelText(testing::ConstText("c", testing::TensorTypeText(dtype, shape),
                                                  fmt::format("immediateValue {{ tensor {{ {} {{}} }} }}", field)),
                               "c"));
        ExpectClearError(ReadBytes(model.SerializeAsString()), "main/op 0");
      }
    }
  }
  EXPECT_LT(PeakKilobytes() - before, 64 * 1024);
}

TEST(HostileInput, TextThatIsNotUtf8) {
  const Status status = ReadBytes(ModelAround(Field(3, Field(1, "re\xFFlu"))));
  ExpectClearError(status, "not UTF-8");
  EXPECT_THAT(status.message(), HasSubstr("operations[0]"));
}

TEST(HostileInput, NamesDoNotBreakTheLine) {
  const Status status = ReadBytes(ModelAround(Field(3, Field(1, "relu") + Field(3, Field(1, "a\nb\x1B[31m")))));
  ExpectClearError(status, "a\\x0ab\\x1b[31m");
}

TEST(HostileInput, ManySmallThings) {
  // A megabyte of empty operations, inputs and outputs reads or fails in bounded time and memory.
  const int64_t before = PeakKilobytes();
  std::string operations;
  for (int i = 0; i < 200'000; ++i) operations += Field(3, "");
  static_cast<void>(ReadBytes(ModelAround(operations)));
  std::string inputs;
  for (int i = 0; i < 100'000; ++i) inputs += Field(2, Field(1, std::to_string((i * 7919) % 100'000)));
  static_cast<void>(ReadBytes(ModelAround(Field(3, Field(1, "relu") + inputs))));
  std::string functions;
  for (int i = 0; i < 100'000; ++i) functions += Field(20, Field(1, std::to_string(i)));
  static_cast<void>(ReadBytes(Field(2, functions) + ModelAround("")));
  EXPECT_LT(PeakKilobytes() - before, 1024 * 1024);
}

}  // namespace
}  // namespace milwright
