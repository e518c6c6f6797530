// weight.bin: every data type in and out, stored once, aligned; records that lie; no page touched before its use.
#include "format/weight_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "support/files.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::WriteAll;

constexpr DataType kBlobTypes[] = {
    DataType::kFp16,   DataType::kFp32,  DataType::kBf16,   DataType::kInt8,    DataType::kUInt8,  DataType::kInt16,
    DataType::kUInt16, DataType::kInt32, DataType::kUInt32, DataType::kInt4,    DataType::kUInt4,  DataType::kUInt6,
    DataType::kUInt3,  DataType::kUInt2, DataType::kUInt1,  DataType::kFp8E4M3, DataType::kFp8E5M2};

// `count` elements of different content for each `salt`.
Tensor Numbers(DataType dtype, int64_t count, uint64_t salt) {
  const int64_t size = *ByteSize({dtype, {count}});
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + salt * 17) & 0xFFU);
  return *Tensor::FromBytes({dtype, {count}}, std::move(bytes));
}

TEST(WeightFile, EveryTypeComesBack) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("weight.bin");
  auto writer = WeightWriter::Create(path);
  ASSERT_OK(writer);
  std::vector<std::pair<uint64_t, Tensor>> stored;
  for (const DataType dtype : kBlobTypes) {
    for (const int64_t count : {1, 7, 64, 1000}) {
      Tensor tensor = Numbers(dtype, count, static_cast<uint64_t>(dtype));
      const auto offset = writer->Add(tensor);
      ASSERT_OK(offset);
      EXPECT_EQ(*offset % 64, 0U);
      stored.emplace_back(*offset, std::move(tensor));
    }
  }
  ASSERT_OK(writer->Finish(false));
  const auto file = WeightFile::Open(path);
  ASSERT_OK(file);
  const auto records = (*file)->Records();
  ASSERT_OK(records);
  EXPECT_EQ(records->size(), stored.size());
  EXPECT_EQ((*file)->count(), stored.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto& [offset, tensor] = stored[i];
    const auto back = (*file)->Blob(offset, tensor.type());
    ASSERT_OK(back);
    EXPECT_TRUE(back->BitEquals(tensor)) << TypeToString(tensor.type());
    EXPECT_EQ((*records)[i].data_offset, offset + 64);
    const uint64_t bits = static_cast<uint64_t>(tensor.size()) * static_cast<uint64_t>(BitWidth(tensor.dtype()));
    EXPECT_EQ((*records)[i].padding_bits, (8 - bits % 8) % 8);
  }
  for (const DataType dtype : {DataType::kBool, DataType::kInt64, DataType::kFp64}) {
    EXPECT_FALSE(BlobDataTypeNumber(dtype).has_value());
  }
}

TEST(WeightWriter, StoresEqualContentOnce) {
  const TemporaryFolder folder;
  auto writer = WeightWriter::Create(folder.Path("weight.bin"));
  ASSERT_OK(writer);
  const Tensor a = Numbers(DataType::kFp16, 100'000, 1);
  const Tensor same = Numbers(DataType::kFp16, 100'000, 1);
  const Tensor other = Numbers(DataType::kFp16, 100'000, 2);
  const uint64_t first = *writer->Add(a);
  EXPECT_EQ(*writer->Add(same), first);
  EXPECT_EQ(*writer->Add(*a.Reshaped({100, 1000})), first);
  EXPECT_NE(*writer->Add(other), first);
  // Another type with the same bytes is another blob: the record says the type.
  const auto bytes = a.bytes();
  EXPECT_NE(*writer->Add(*Tensor::FromBytes({DataType::kBf16, {100'000}}, {bytes.begin(), bytes.end()})), first);
  EXPECT_EQ(writer->count(), 3U);
  EXPECT_EQ(writer->Add(Tensor::Scalar(DataType::kBool, 1)).status().code(), ErrorCode::kUsage);
}

TEST(WeightFile, LiesAreFound) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("weight.bin");
  auto writer = WeightWriter::Create(path);
  ASSERT_OK(writer);
  const TensorType type{DataType::kUInt4, {15}};
  ASSERT_EQ(*writer->Add(Numbers(DataType::kUInt4, 15, 1)), 64U);
  ASSERT_OK(writer->Finish(false));
  const std::string good = ReadAll(path);
  struct Case {
    size_t offset;
    uint64_t value;
    size_t width;
    std::string_view message;
  };
  const Case cases[] = {
      {4, 1, 4, "version 1"},
      {64, 0xDEADBEEE, 4, "sentinel"},
      {68, 0, 4, "unknown data type 0"},
      {68, 18, 4, "unknown data type 18"},
      {68, 1, 4, "holds fp16, but the program says tensor<uint4, [15]>"},
      {72, 9, 8, "has 9 bytes, but tensor<uint4, [15]> takes 8"},
      {72, UINT64_MAX, 8, "outside the file"},
      {80, 1U << 20U, 8, "outside the file"},
      {80, UINT64_MAX - 63, 8, "outside the file"},
      {80, 129, 8, "no multiple of 64"},
      {88, 3, 8, "3 padding bits"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    std::string bad = good;
    std::memcpy(bad.data() + c.offset, &c.value, c.width);
    WriteAll(path, bad);
    const auto file = WeightFile::Open(path);
    const Status status = file.ok() ? (*file)->Blob(64, type).status() : file.status();
    EXPECT_EQ(status.code(), ErrorCode::kUnreadable);
    EXPECT_THAT(status.message(), HasSubstr(std::string(c.message)));
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  // Reserved fields were left uninitialised by older writers.
  std::string garbage = good;
  for (size_t i = 8; i < 64; ++i) garbage[i] = '\x5A';
  for (size_t i = 96; i < 128; ++i) garbage[i] = '\x5A';
  WriteAll(path, garbage);
  EXPECT_OK((*WeightFile::Open(path))->Blob(64, type));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{65}, uint64_t{1U << 20U}, UINT64_MAX - 63}) {
    EXPECT_FALSE((*WeightFile::Open(path))->Blob(offset, type).ok()) << offset;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    WriteAll(path, good.substr(0, size));
    const auto file = WeightFile::Open(path);
    if (!file.ok()) continue;
    // Only the padding behind the data may be missing.
    EXPECT_EQ((*file)->Blob(64, type).ok(), size >= 128 + 8) << size;
  }
  EXPECT_THAT((*WeightFile::Open(path))->Blob(64, {DataType::kUInt4, {INT64_MAX, INT64_MAX}}).status().message(),
              HasSubstr("beyond 64 bits"));
}

// Kilobytes of the mapping of `path` that are in memory, by /proc/self/smaps.
int64_t ResidentKilobytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool mine = false;
  int64_t total = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') != std::string::npos && line.find(" r") != std::string::npos) mine = line.ends_with(path);
    if (mine && line.starts_with("Rss:")) total += std::stoll(line.substr(4));
  }
  return total;
}

TEST(WeightFile, NoPageIsTouchedBeforeAnElementIs) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("weight.bin");
  // 1 GiB of holes with a blob every 64 KiB, written record by record.
  constexpr uint64_t kStep = 1U << 16U;
  constexpr uint64_t kBlobs = 1U << 14U;
  {
    auto writer = WeightWriter::Create(folder.Path("one.bin"));
    ASSERT_OK(writer);
    ASSERT_OK(writer->Add(Numbers(DataType::kFp16, 16, 1)));
    ASSERT_OK(writer->Finish(false));
    const std::string one = ReadAll(folder.Path("one.bin"));
    std::ofstream file(path, std::ios::binary);
    file.write(one.data(), 64);
    for (uint64_t i = 0; i < kBlobs; ++i) {
      std::string record = one.substr(64);
      const uint64_t data = 64 + i * kStep + 64;
      std::memcpy(record.data() + 16, &data, 8);
      file.seekp(static_cast<std::streamoff>(64 + i * kStep));
      file.write(record.data(), static_cast<std::streamsize>(record.size()));
    }
  }
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(64 + kBlobs * kStep)), 0);
  const auto file = WeightFile::Open(path);
  ASSERT_OK(file);
  std::vector<Tensor> tensors;
  for (uint64_t i = 0; i < kBlobs; ++i) {
    auto tensor = (*file)->Blob(64 + i * kStep, {DataType::kFp16, {16}});
    ASSERT_OK(tensor);
    tensors.push_back(*std::move(tensor));
  }
  EXPECT_EQ(ResidentKilobytes(path), 0);
  EXPECT_TRUE(tensors.back().BitEquals(Numbers(DataType::kFp16, 16, 1)));
  EXPECT_GT(ResidentKilobytes(path), 0);
}

}  // namespace
}  // namespace milwright
