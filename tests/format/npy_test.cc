// .npy and .npz: every type in and out, files by NumPy, and files that lie.
#include "format/npy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

#include "format/zip.h"
#include "support/files.h"

namespace milwright {
namespace {

using testing::DataDir;
using ::testing::HasSubstr;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::WriteAll;

constexpr DataType kTypes[] = {DataType::kBool,   DataType::kInt8,  DataType::kInt16,  DataType::kInt32,
                               DataType::kInt64,  DataType::kUInt8, DataType::kUInt16, DataType::kUInt32,
                               DataType::kUInt64, DataType::kFp16,  DataType::kFp32,   DataType::kFp64};

std::string Npy(std::string_view header, std::string_view data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xFFU);
  return bytes + std::string(header) + std::string(data);
}

TEST(Npy, EveryTypeAndShapeComesBack) {
  for (const DataType dtype : kTypes) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{0}, Shape{5}, Shape{2, 3}, Shape{2, 0, 3}, Shape{2, 1, 3, 2}}) {
      Tensor tensor = *Tensor::Zeros({dtype, shape});
      for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, dtype == DataType::kBool ? i % 2 : i * 7 - 3);
      const auto bytes = FormatNpy(tensor);
      ASSERT_OK(bytes);
      const auto back = ParseNpy(*bytes, "test");
      ASSERT_OK(back);
      EXPECT_TRUE(back->BitEquals(tensor)) << TypeToString(tensor.type());
      EXPECT_EQ((bytes->size() - static_cast<size_t>(*ByteSize(tensor.type()))) % 64, 0U);
    }
  }
  EXPECT_EQ(FormatNpy(*Tensor::Zeros({DataType::kBf16, {2}})).status().code(), ErrorCode::kUsage);
}

// The bytes that NumPy 1.x writes for np.save(f, np.arange(3, dtype='<i2')), as numpy.lib.format documents them.
TEST(Npy, IsWhatNumpyWrites) {
  const std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }";
  const std::string expected =
      Npy(header + std::string(128 - 10 - header.size() - 1, ' ') + "\n", std::string_view("\0\0\1\0\2\0", 6));
  Tensor tensor = Tensor::VectorOf(DataType::kInt16, {0, 1, 2});
  EXPECT_EQ(FormatNpy(tensor)->substr(6), expected.substr(6));
}

TEST(Npy, ReadsOtherVersionsOrdersAndSpacings) {
  const std::string_view data("\1\2\3\4\5\6", 6);
  for (const char version : {1, 2, 3}) {
    const auto tensor =
        ParseNpy(Npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}\n", data, version), "t");
    ASSERT_OK(tensor);
    EXPECT_EQ(tensor->ToInts(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  }
  const auto columns = ParseNpy(Npy(R"({"shape":(2,3,),"descr":"<u1","fortran_order":True,})", data), "t");
  ASSERT_OK(columns);
  EXPECT_EQ(columns->ToInts(), (std::vector<int64_t>{1, 3, 5, 2, 4, 6}));
  const auto cube = ParseNpy(
      Npy("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 2, 2), }", std::string_view("\0\1\2\3\4\5\6\7", 8)),
      "t");
  EXPECT_EQ(cube->ToInts(), (std::vector<int64_t>{0, 4, 2, 6, 1, 5, 3, 7}));
  const auto flags = ParseNpy(Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\x7F\x01"), "t");
  EXPECT_EQ(flags->ToInts(), (std::vector<int64_t>{1, 1}));
}

TEST(Npy, StringsComeBack) {
  const Tensor scalar = Tensor::ScalarString("prefill \xE2\x82\xAC");
  const Tensor list = *Tensor::FromStrings({3}, {"", "a", "\xF0\x9F\x98\x80!"});
  for (const Tensor& tensor : {scalar, list}) {
    const auto bytes = FormatNpy(tensor);
    ASSERT_OK(bytes);
    const auto back = ParseNpy(*bytes, "test");
    ASSERT_OK(back);
    EXPECT_EQ(back->strings(), tensor.strings());
    EXPECT_EQ(back->shape(), tensor.shape());
  }
}

TEST(Npy, LiesAreFound) {
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "does not begin"},
      {"not an array at all", "does not begin"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"), "takes 8 bytes, but there are 4"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "12345"), "takes 4 bytes, but there are 5"},
      {Npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"), "'>f4' is not supported"},
      {Npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "1234"), "'|O' is not supported"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }", ""), "too large"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }", ""), "too large"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ""), "malformed"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", ""), "malformed"},
      {Npy("{'descr': '<f4', 'shape': (1,), }", "1234"), "malformed"},
      {Npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "1234"), "malformed"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } + evil()", "1234"), "malformed"},
      {Npy("{'descr': '<U9999999999', 'fortran_order': False, 'shape': (), }", ""), "not supported"},
      {Npy("{'descr': '<U1', 'fortran_order': False, 'shape': (), }", std::string_view("\0\xD8\0\0", 4)), "code point"},
      {Npy("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }", ""), "too many"},
      {Npy("x", "", 9), "format version 9"},
      {std::string("\x93NUMPY\1\0\xFF\xFF{", 11), "cut off"},
  };
  for (const auto& [bytes, message] : cases) {
    const auto tensor = ParseNpy(bytes, "t.npy");
    ASSERT_FALSE(tensor.ok()) << message;
    EXPECT_EQ(tensor.status().code(), ErrorCode::kUnreadable);
    EXPECT_THAT(tensor.status().message(), HasSubstr(std::string(message)));
  }
}

std::map<std::string, Tensor> SomeArrays() {
  std::map<std::string, Tensor> arrays;
  arrays["num_steps"] = Tensor::Scalar(DataType::kInt64, 2);
  arrays["step0/in/x"] = Tensor::VectorOf(DataType::kInt32, {1, 2, 3});
  arrays["step0/function"] = Tensor::ScalarString("main");
  arrays["big"] = *Tensor::Zeros({DataType::kFp32, {100, 100}});
  return arrays;
}

TEST(Npz, ComesBackAndIsReproducible) {
  const TemporaryFolder folder;
  const auto arrays = SomeArrays();
  ASSERT_OK(WriteNpz(folder.Path("a.npz"), arrays));
  ASSERT_OK(WriteNpz(folder.Path("b.npz"), arrays));
  EXPECT_EQ(ReadAll(folder.Path("a.npz")), ReadAll(folder.Path("b.npz")));
  const auto back = ReadNpz(folder.Path("a.npz"));
  ASSERT_OK(back);
  ASSERT_EQ(back->size(), arrays.size());
  for (const auto& [name, tensor] : arrays) EXPECT_TRUE(back->at(name).BitEquals(tensor)) << name;
}

TEST(Npz, ReadsWhatNumpyWrote) {
  const auto golden = ReadNpz(DataDir() / "packages/a_accumulator.npz");
  ASSERT_OK(golden);
  ASSERT_TRUE(golden->contains("num_steps"));
  EXPECT_EQ(golden->at("step0/function").strings(), (std::vector<std::string>{"main"}));
  EXPECT_EQ(golden->at("step0/state/acc").type(), (TensorType{DataType::kFp32, {1, 8}}));
}

TEST(Npz, ReadsDeflatedCheckpoints) {
  const auto folder = testing::SharedDir() / "checkpoints";
  const auto files = testing::FindAll(folder, ".npz");
  if (files.empty()) GTEST_SKIP() << folder << " is not there";
  for (const auto& file : files) EXPECT_OK(ReadNpz(file));
}

// A zip archive of one entry, with any method and claims.
std::string Archive(std::string_view name, std::string_view stored, uint16_t method, uint32_t bytes, uint32_t crc,
                    uint16_t flags = 0, int copies = 1) {
  const auto put = [](std::string& out, uint64_t value, int width) {
    for (int i = 0; i < width; ++i) out += static_cast<char>(i < 8 ? value >> (8 * i) & 0xFFU : 0);
  };
  const auto common = [&](std::string& out) {
    put(out, 20, 2);
    put(out, flags, 2);
    put(out, method, 2);
    put(out, 0, 4);
    put(out, crc, 4);
    put(out, stored.size(), 4);
    put(out, bytes, 4);
    put(out, name.size(), 2);
    put(out, 0, 2);
  };
  std::string archive = "PK\3\4";
  common(archive);
  archive += name;
  archive += stored;
  const size_t start = archive.size();
  for (int i = 0; i < copies; ++i) {
    archive += "PK\1\2";
    put(archive, 20, 2);
    common(archive);
    put(archive, 0, 10);
    put(archive, 0, 4);  // offset of the local header
    archive += name;
  }
  const size_t size = archive.size() - start;
  archive += "PK\5\6";
  put(archive, 0, 4);
  put(archive, static_cast<uint64_t>(copies), 2);
  put(archive, static_cast<uint64_t>(copies), 2);
  put(archive, size, 4);
  put(archive, start, 4);
  put(archive, 0, 2);
  return archive;
}

std::string Deflated(std::string_view content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

uint32_t Crc(std::string_view content) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
}

TEST(Npz, DeflatedEntriesInflate) {
  const TemporaryFolder folder;
  for (const int64_t count : {int64_t{0}, int64_t{10}, int64_t{3'000'000}}) {
    Tensor tensor = *Tensor::Zeros({DataType::kInt32, {count}});
    for (int64_t i = 0; i < count; i += 1000) tensor.SetInt(i, i);
    const std::string content = *FormatNpy(tensor);
    WriteAll(folder.Path("a.npz"),
             Archive("x.npy", Deflated(content), 8, static_cast<uint32_t>(content.size()), Crc(content)));
    const auto back = ReadNpz(folder.Path("a.npz"));
    ASSERT_OK(back);
    EXPECT_TRUE(back->at("x").BitEquals(tensor));
  }
}

TEST(Npz, LiesAreFound) {
  const std::string content = *FormatNpy(Tensor::VectorOf(DataType::kInt32, {1, 2, 3}));
  const std::string deflated = Deflated(content);
  const auto size = static_cast<uint32_t>(content.size());
  const std::string good = Archive("x.npy", content, 0, size, Crc(content));
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "too short"},
      {std::string(100, 'x'), "no end record"},
      {good.substr(0, good.size() - 1), "no end record"},
      {Archive("x.npy", content, 0, size, 1), "CRC"},
      {Archive("x.npy", content, 0, size + 1, Crc(content)), "claims"},
      {Archive("x.npy", deflated, 8, size - 1, Crc(content)), "does not inflate"},
      {Archive("x.npy", deflated, 8, size + 1, Crc(content)), "does not inflate"},
      {Archive("x.npy", deflated.substr(1), 8, size, Crc(content)), "'x.npy'"},
      {Archive("x.npy", deflated, 8, 0xF0000000, Crc(content)), "claims"},
      {Archive("x.npy", content, 12, size, Crc(content)), "method 12"},
      {Archive("x.npy", content, 0, size, Crc(content), 1), "encrypted"},
      {Archive("x.npy", content, 0, size, Crc(content), 0, 2), "twice"},
      {Archive("x.txt", content, 0, size, Crc(content)), "does not end in .npy"},
      {Archive("x.npy", "junk", 0, 4, Crc("junk")), "does not begin"},
  };
  const TemporaryFolder folder;
  for (const auto& [bytes, message] : cases) {
    WriteAll(folder.Path("a.npz"), bytes);
    const auto arrays = ReadNpz(folder.Path("a.npz"));
    ASSERT_FALSE(arrays.ok()) << message;
    EXPECT_EQ(arrays.status().code(), ErrorCode::kUnreadable);
    EXPECT_THAT(arrays.status().message(), HasSubstr(std::string(message)));
  }
  WriteAll(folder.Path("a.npz"), good);
  EXPECT_OK(ReadNpz(folder.Path("a.npz")));
}

TEST(Npz, DamageGivesAStatus) {
  const TemporaryFolder folder;
  ASSERT_OK(WriteNpz(folder.Path("good.npz"), SomeArrays()));
  const std::string good = ReadAll(folder.Path("good.npz")).substr(0, 100'000);
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  const std::string path = folder.Path("bad.npz");
  for (int i = 0; i < 1000; ++i) {
    std::string bad = good;
    // Headers lie at the ends: damage there more often.
    const size_t place = i % 2 == 0 ? random() % bad.size() : bad.size() - 1 - random() % 600;
    bad[place] = static_cast<char>(bad[place] ^ (1 << (random() % 8)));
    if (i % 3 == 0) bad.resize(random() % bad.size());
    WriteAll(path, bad);
    const auto arrays = ReadNpz(path);  // an undetected flip can only be in a field that nobody reads
    EXPECT_TRUE(arrays.ok() || arrays.status().code() == ErrorCode::kUnreadable) << kSeed << " " << i;
  }
}

}  // namespace
}  // namespace milwright
