#include "format/weight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/checked_math.h"

namespace milwright {
namespace {

constexpr uint32_t kVersion = 2;
constexpr uint32_t kSentinel = 0xDEADBEEF;
constexpr uint64_t kAlignment = 64;
constexpr size_t kPieceBytes = size_t{1} << 18U;  // fits the cache between hashing and writing

// The two records of the file, field by field as they lie there. Reserved fields are written as zero and not read:
// older writers left them uninitialised.
struct WeightFileHeader {
  uint32_t count = 0;
  uint32_t version = kVersion;
  std::array<uint64_t, 7> reserved{};
};
struct BlobMetadata {
  uint32_t sentinel = kSentinel;
  uint32_t type = 0;
  uint64_t bytes = 0;
  uint64_t data_offset = 0;
  uint64_t padding_bits = 0;
  std::array<uint64_t, 4> reserved{};
};
static_assert(sizeof(WeightFileHeader) == 64 && sizeof(BlobMetadata) == 64);
static_assert(std::endian::native == std::endian::little, "weight files are little endian");

// package-format.md, section 4; the place in the table is the number less one.
constexpr std::array<DataType, 17> kBlobTypes = {
    DataType::kFp16,   DataType::kFp32,  DataType::kUInt8,  DataType::kInt8,    DataType::kBf16,   DataType::kInt16,
    DataType::kUInt16, DataType::kInt4,  DataType::kUInt1,  DataType::kUInt2,   DataType::kUInt4,  DataType::kUInt3,
    DataType::kUInt6,  DataType::kInt32, DataType::kUInt32, DataType::kFp8E4M3, DataType::kFp8E5M2};

template <typename T>
std::span<const std::byte> BytesOf(const T& record) {
  return std::as_bytes(std::span(&record, 1));
}

uint64_t AlignUp(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

// Unused bits behind the elements of a tensor that takes `bytes` bytes.
uint64_t PaddingBits(const TensorType& type, uint64_t bytes) {
  return bytes * 8 - static_cast<uint64_t>(*ElementCount(type.shape)) * static_cast<uint64_t>(BitWidth(type.dtype));
}

// A hash to sort blobs into groups; equality is then decided by the bytes. Four lanes, so that it runs at the speed of
// memory. Fed piece by piece; all pieces but the last are multiples of 32 bytes.
class ContentHash {
 public:
  void Update(std::span<const std::byte> bytes) {
    auto [a, b, c, d] = lanes_;  // in registers
    const std::byte* next = bytes.data();
    size_t left = bytes.size();
    for (; left >= 32; next += 32, left -= 32) {
      a = Mix(a, Word(next));
      b = Mix(b, Word(next + 8));
      c = Mix(c, Word(next + 16));
      d = Mix(d, Word(next + 24));
    }
    std::array<std::byte, 32> tail{};
    std::copy_n(next, left, tail.begin());
    if (left > 0) a = Mix(a, Word(&tail[0]) ^ Mix(Word(&tail[8]), Mix(Word(&tail[16]), Word(&tail[24]))));
    lanes_ = {a, b, c, d};
  }
  [[nodiscard]] uint64_t Value() const {
    uint64_t hash = 0;
    for (const uint64_t lane : lanes_) hash = Mix(hash, lane);
    return hash;
  }

 private:
  static uint64_t Mix(uint64_t lane, uint64_t word) {
    lane = (lane ^ word) * 0x9E3779B185EBCA87;
    return lane ^ (lane >> 29U);
  }
  static uint64_t Word(const std::byte* bytes) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof(word));
    return word;
  }
  std::array<uint64_t, 4> lanes_ = {1, 2, 3, 4};
};

}  // namespace

std::optional<uint32_t> BlobDataTypeNumber(DataType type) {
  const auto* const found = std::ranges::find(kBlobTypes, type);
  if (found == kBlobTypes.end()) return std::nullopt;
  return static_cast<uint32_t>(found - kBlobTypes.begin()) + 1;
}

Result<std::shared_ptr<const WeightFile>> WeightFile::Open(const std::string& path) {
  MW_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> map, MappedFile::Open(path, AccessPattern::kRandom));
  return FromMap(std::move(map));
}

Result<std::shared_ptr<const WeightFile>> WeightFile::FromMap(std::shared_ptr<const MappedFile> map) {
  WeightFileHeader header;
  if (map->size() < sizeof(header)) {
    return Status(ErrorCode::kUnreadable,
                  fmt::format("{}: not a weight file: {} bytes, less than its header", map->path(), map->size()));
  }
  MW_RETURN_IF_ERROR(map->ReadAt(0, std::as_writable_bytes(std::span(&header, 1))));
  if (header.version != kVersion) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: weight file of version {}; only version {} is known",
                                                      map->path(), header.version, kVersion));
  }
  return std::shared_ptr<const WeightFile>(new WeightFile(std::move(map), header.count));
}

Status WeightFile::Error(uint64_t offset, const std::string& what) const {
  return {ErrorCode::kUnreadable, fmt::format("{}: blob at offset {}: {}", path(), offset, what)};
}

Result<BlobRecord> WeightFile::Record(uint64_t offset) const {
  if (offset < sizeof(WeightFileHeader) || offset % kAlignment != 0) {
    return Error(offset, "not a place for a blob: a multiple of 64 behind the header is");
  }
  if (offset > size() || sizeof(BlobMetadata) > size() - offset) {
    return Error(offset, fmt::format("outside the file, which has {} bytes", size()));
  }
  BlobMetadata metadata;
  MW_RETURN_IF_ERROR(map_->ReadAt(offset, std::as_writable_bytes(std::span(&metadata, 1))));
  if (metadata.sentinel != kSentinel) {
    return Error(offset,
                 fmt::format("no blob here: the sentinel is {:#010x}, not {:#010x}", metadata.sentinel, kSentinel));
  }
  if (metadata.type == 0 || metadata.type > kBlobTypes.size()) {
    return Error(offset, fmt::format("unknown data type {}", metadata.type));
  }
  if (metadata.data_offset % kAlignment != 0) {
    return Error(offset, fmt::format("its data lie at {}, which is no multiple of 64", metadata.data_offset));
  }
  uint64_t end = 0;
  if (!CheckedAdd(metadata.data_offset, metadata.bytes, &end) || end > size()) {
    return Error(offset, fmt::format("its {} bytes of data at {} lie outside the file, which has {} bytes",
                                     metadata.bytes, metadata.data_offset, size()));
  }
  return BlobRecord{offset, kBlobTypes[metadata.type - 1], metadata.bytes, metadata.data_offset, metadata.padding_bits};
}

Result<std::vector<BlobRecord>> WeightFile::Records() const {
  std::vector<BlobRecord> records;
  uint64_t offset = sizeof(WeightFileHeader);
  for (uint32_t i = 0; i < count_; ++i) {
    MW_ASSIGN_OR_RETURN(const BlobRecord record, Record(offset));
    records.push_back(record);
    if (record.data_offset <= offset) return Error(offset, "its data lie before it");
    offset = AlignUp(record.data_offset + record.bytes);
  }
  return records;
}

Result<Tensor> WeightFile::Blob(uint64_t offset, const TensorType& type) const {
  MW_ASSIGN_OR_RETURN(const BlobRecord record, Record(offset));
  if (record.dtype != type.dtype) {
    return Error(offset,
                 fmt::format("it holds {}, but the program says {}", DataTypeName(record.dtype), TypeToString(type)));
  }
  const Result<int64_t> bytes = ByteSize(type);
  if (!bytes.ok()) return Error(offset, bytes.status().message());
  if (record.bytes != static_cast<uint64_t>(*bytes)) {
    return Error(offset, fmt::format("it has {} bytes, but {} takes {}", record.bytes, TypeToString(type), *bytes));
  }
  const uint64_t padding = PaddingBits(type, record.bytes);
  if (IsSubByte(type.dtype) && record.padding_bits != padding) {
    return Error(
        offset, fmt::format("it has {} padding bits, but {} has {}", record.padding_bits, TypeToString(type), padding));
  }
  return Tensor::Borrow(type, map_->bytes().subspan(record.data_offset, record.bytes), map_);
}

Result<WeightWriter> WeightWriter::Create(const std::string& path) {
  MW_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  MW_RETURN_IF_ERROR(file.Append(BytesOf(WeightFileHeader())));
  return WeightWriter(std::move(file));
}

Result<uint64_t> WeightWriter::Add(const Tensor& tensor) {
  const std::optional<uint32_t> number = BlobDataTypeNumber(tensor.dtype());
  if (!number) {
    return Status(ErrorCode::kUsage, fmt::format("a weight file cannot hold {}", TypeToString(tensor.type())));
  }
  // The bytes are hashed while they are written, which reads them once; a duplicate is taken back.
  const std::span<const std::byte> bytes = tensor.bytes();
  if (const auto it = streamed_.find(bytes.data()); it != streamed_.end()) {
    const bool same = it->second.type_number == *number && it->second.range->bytes().size() == bytes.size();
    if (same) return it->second.offset;
  }
  const uint64_t before = file_.size();
  Key key{*number, bytes.size(), PaddingBits(tensor.type(), bytes.size()), 0};
  MW_ASSIGN_OR_RETURN(const uint64_t offset, AppendMetadata(key));
  ContentHash hash;
  for (size_t done = 0; done < bytes.size();) {
    const auto piece = bytes.subspan(done, std::min(kPieceBytes, bytes.size() - done));
    hash.Update(piece);
    MW_RETURN_IF_ERROR(file_.Append(piece));
    done += piece.size();
  }
  key.hash = hash.Value();
  const auto [first, last] = stored_.equal_range(key);
  for (auto it = first; it != last; ++it) {
    MW_ASSIGN_OR_RETURN(const bool equal, HoldsAt(it->second + sizeof(BlobMetadata), bytes));
    if (!equal) continue;
    MW_RETURN_IF_ERROR(file_.Truncate(before));
    --count_;
    return it->second;
  }
  stored_.emplace(key, offset);
  return offset;
}

Result<bool> WeightWriter::HoldsAt(uint64_t offset, std::span<const std::byte> bytes) {
  std::vector<std::byte> piece(std::min(bytes.size(), kPieceBytes));
  for (size_t done = 0; done < bytes.size();) {
    const auto part = std::span(piece).first(std::min(piece.size(), bytes.size() - done));
    MW_RETURN_IF_ERROR(file_.ReadBack(offset + done, part));
    if (std::memcmp(part.data(), bytes.data() + done, part.size()) != 0) return false;
    done += part.size();
  }
  return true;
}

Result<uint64_t> WeightWriter::AppendMetadata(const Key& key) {
  MW_RETURN_IF_ERROR(file_.AppendZeros(AlignUp(file_.size()) - file_.size()));
  const uint64_t offset = file_.size();
  BlobMetadata metadata;
  metadata.type = key.type_number;
  metadata.bytes = key.bytes;
  metadata.data_offset = offset + sizeof(BlobMetadata);
  metadata.padding_bits = key.padding_bits;
  MW_RETURN_IF_ERROR(file_.Append(BytesOf(metadata)));
  ++count_;
  return offset;
}

Result<Tensor> WeightWriter::AddStreamed(const TensorType& type, const std::function<Status(const Emit&)>& fill) {
  const std::optional<uint32_t> number = BlobDataTypeNumber(type.dtype);
  if (!number) return Status(ErrorCode::kUsage, fmt::format("a weight file cannot hold {}", TypeToString(type)));
  MW_ASSIGN_OR_RETURN(const int64_t size, ByteSize(type));
  const auto bytes = static_cast<uint64_t>(size);
  MW_ASSIGN_OR_RETURN(const uint64_t offset, AppendMetadata({*number, bytes, PaddingBits(type, bytes), 0}));
  const uint64_t start = file_.size();
  MW_RETURN_IF_ERROR(fill([this](std::span<const std::byte> piece) { return file_.Append(piece); }));
  if (file_.size() - start != bytes) {
    return Status(ErrorCode::kInternal,
                  fmt::format("{} bytes were given for a blob of {}", file_.size() - start, TypeToString(type)));
  }
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedRange> range, file_.MapBack(start, bytes));
  if (bytes > 0) streamed_[range->bytes().data()] = {range, *number, offset};
  return Tensor::Borrow(type, range->bytes(), range);
}

Status WeightWriter::Finish(bool durable) {
  WeightFileHeader header;
  header.count = count_;
  // coremltools pads the last blob as well, so that the file's size is a multiple of 64.
  MW_RETURN_IF_ERROR(file_.AppendZeros(AlignUp(file_.size()) - file_.size()));
  MW_RETURN_IF_ERROR(file_.PatchAt(0, BytesOf(header)));
  return file_.Finish(durable);
}

}  // namespace milwright
