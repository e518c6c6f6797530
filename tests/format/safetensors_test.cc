// safetensors: in and out, several files with an index, and files that lie.
#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/files.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::WriteAll;

SafetensorsEntry Entry(std::string name, Tensor tensor) {
  TensorType type = tensor.type();
  return {std::move(name), std::move(type), [tensor = std::move(tensor)]() -> Result<Tensor> { return tensor; }};
}

std::string File(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + std::string(header) + std::string(data);
}

TEST(Safetensors, EveryTypeComesBack) {
  const TemporaryFolder folder;
  std::vector<SafetensorsEntry> entries;
  for (const DataType dtype :
       {DataType::kFp64, DataType::kFp32, DataType::kFp16, DataType::kBf16, DataType::kFp8E4M3, DataType::kFp8E5M2,
        DataType::kInt64, DataType::kInt32, DataType::kInt16, DataType::kInt8, DataType::kUInt64, DataType::kUInt32,
        DataType::kUInt16, DataType::kUInt8, DataType::kBool}) {
    std::vector<std::byte> bytes(static_cast<size_t>(*ByteSize({dtype, {3, 5}})));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(dtype == DataType::kBool ? i % 2 : i);
    entries.push_back(Entry(std::string(DataTypeName(dtype)), *Tensor::FromBytes({dtype, {3, 5}}, std::move(bytes))));
  }
  entries.push_back(Entry("empty", *Tensor::Zeros({DataType::kFp32, {0, 4}})));
  entries.push_back(Entry("scalar", Tensor::Scalar(DataType::kFp32, 2)));
  const std::string path = folder.Path("m.safetensors");
  ASSERT_OK(WriteSafetensors(path, entries, {{"format", "pt"}}));
  const auto file = Safetensors::Open(path);
  ASSERT_OK(file);
  EXPECT_EQ(file->Names().size(), entries.size());
  EXPECT_EQ(file->metadata().at("format"), "pt");
  uint64_t total = 0;
  for (const SafetensorsEntry& entry : entries) {
    ASSERT_TRUE(file->Contains(entry.name));
    EXPECT_EQ(*file->TypeOf(entry.name), entry.type);
    const auto tensor = file->Load(entry.name);
    ASSERT_OK(tensor);
    EXPECT_TRUE(tensor->BitEquals(*entry.load())) << entry.name;
    total += static_cast<uint64_t>(*ByteSize(entry.type));
  }
  EXPECT_EQ(file->TotalBytes(), total);
  EXPECT_EQ(file->TypeOf("none"), nullptr);
  EXPECT_EQ(file->Load("none").status().code(), ErrorCode::kUsage);
  EXPECT_OK(Safetensors::Open(folder.Path()));  // the only one in its folder
}

TEST(Safetensors, UnalignedTensorsAreReadable) {
  const TemporaryFolder folder;
  WriteAll(
      folder.Path("m.safetensors"),
      File(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I32","shape":[1],"data_offsets":[1,5]}})",
          std::string_view("\7\1\0\0\0", 5)));
  const auto file = Safetensors::Open(folder.Path("m.safetensors"));
  ASSERT_OK(file);
  EXPECT_EQ(file->Load("b")->GetInt(0), 1);
}

TEST(Safetensors, SeveralFilesWithAnIndex) {
  const TemporaryFolder folder;
  ASSERT_OK(WriteSafetensors(folder.Path("m-1.safetensors"), {Entry("a", Tensor::VectorOf(DataType::kInt32, {1}))}));
  ASSERT_OK(WriteSafetensors(folder.Path("m-2.safetensors"), {Entry("b", Tensor::VectorOf(DataType::kInt32, {2}))}));
  EXPECT_THAT(Safetensors::Open(folder.Path()).status().message(), HasSubstr("no index"));
  const std::string index = folder.Path("model.safetensors.index.json");
  WriteAll(index, R"({"metadata": {"total_size": 8}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const auto file = Safetensors::Open(folder.Path());
  ASSERT_OK(file);
  EXPECT_THAT(file->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(file->Load("b")->GetInt(0), 2);
  for (const auto& [map, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"weight_map": {"a": "m-2.safetensors"}})", "is not in m-2.safetensors"},
           {R"({"weight_map": {"a": "../m-1.safetensors"}})", "no file beside it"},
           {R"({"weight_map": {"a": "/etc/passwd"}})", "no file beside it"},
           {R"({"weight_map": {"a": "m-3.safetensors"}})", "cannot open"},
           {R"({"weight_map": {"a": "m-1.safetensors", "a": "m-2.safetensors"}})", "twice"},
           {R"({"weight_map": 3})", "no weight_map"},
           {"[]", "not a JSON object"}}) {
    WriteAll(index, map);
    EXPECT_THAT(Safetensors::Open(index).status().message(), HasSubstr(message)) << map;
  }
}

TEST(Safetensors, LiesAreFound) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "too short"},
      {std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10), "header claims"},
      {std::string("\x00\xE1\xF5\x05\x01\x00\x00\x00{}", 10), "header claims"},
      {File("{", ""), "not a JSON object"},
      {File(std::string(1000, '['), ""), "nests too deeply"},
      {File("[1]", ""), "not a JSON object"},
      {File(good, "1234567"), "outside the 7 bytes"},
      {File(good, "123456789"), "end at 8"},
      {File(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"), "has 8 bytes, but"},
      {File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "12345678"), "lies at 8 to 0"},
      {File(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", "12345678"), "unknown dtype 'F33'"},
      {File(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", "12345678"), "too large"},
      {File(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "12345678"), "too large"},
      {File(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"), "no proper shape"},
      {File(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "12345678"), "no proper shape"},
      {File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "12345678"), "no proper shape"},
      {File(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "12345678"), "has no dtype"},
      {File(R"({"a":7})", ""), "is not an object"},
      {File(R"({"__metadata__":{"k":7}})", ""), "something else than strings"},
      {File(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           "123"),
       "begins at 1"},
      {File(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           "123"),
       "begins at 2"},
      {File(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           "1"),
       "'a' is there twice"},
      {File(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "1"), "'dtype' is there twice"},
  };
  const TemporaryFolder folder;
  const std::string path = folder.Path("m.safetensors");
  for (const auto& [bytes, message] : cases) {
    WriteAll(path, bytes);
    const auto file = Safetensors::Open(path);
    ASSERT_FALSE(file.ok()) << message;
    EXPECT_EQ(file.status().code(), ErrorCode::kUnreadable);
    EXPECT_THAT(file.status().message(), HasSubstr(std::string(message)));
  }
  WriteAll(path, File(good, "12345678"));
  EXPECT_OK(Safetensors::Open(path));
}

TEST(Safetensors, WriterChecksWhatItIsGiven) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("m.safetensors");
  const Tensor one = Tensor::VectorOf(DataType::kInt32, {1});
  EXPECT_EQ(WriteSafetensors(path, {Entry("a", one), Entry("a", one)}).code(), ErrorCode::kUsage);
  EXPECT_EQ(WriteSafetensors(path, {Entry("a", Tensor::ScalarString("x"))}).code(), ErrorCode::kUsage);
  SafetensorsEntry wrong = Entry("a", one);
  wrong.type.shape = {2};
  EXPECT_EQ(WriteSafetensors(path, {wrong}).code(), ErrorCode::kUsage);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, ReadsTheSharedCheckpoints) {
  const auto folder = testing::SharedDir() / "checkpoints";
  const auto files = testing::FindAll(folder, ".safetensors");
  if (files.empty()) GTEST_SKIP() << folder << " is not there";
  for (const auto& file : files) EXPECT_OK(Safetensors::Open(file));
}

}  // namespace
}  // namespace milwright
