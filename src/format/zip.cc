#include "format/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "base/utf8.h"

namespace milwright {
namespace {

static_assert(std::endian::native == std::endian::little, "archives are little endian");

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr uint16_t kZip64Tag = 1;
constexpr uint32_t kInZip64 = 0xFFFFFFFF;  ///< a 32-bit field whose value stands in the zip64 extra field
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
// Deflate spends at least one bit pair per 258 bytes: 1032 to 1 at best.
constexpr uint64_t kMaxDeflateRatio = 1032;

Status UnreadableZip(const std::string& name, std::string_view what) {
  return {ErrorCode::kUnreadable, fmt::format("{}: not a readable zip archive: {}", name, what)};
}

// A field at a place that is known to be inside.
template <typename T>
T Field(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

Result<Directory> FindDirectory(std::string_view archive, const std::string& name) {
  // The end record is followed by a comment of at most 65535 bytes.
  constexpr size_t kMaxTail = kEndBytes + 0xFFFF;
  if (archive.size() < kEndBytes) return UnreadableZip(name, "it is too short");
  const size_t first = archive.size() > kMaxTail ? archive.size() - kMaxTail : 0;
  std::optional<size_t> end;
  for (size_t place = archive.size() - kEndBytes + 1; place-- > first;) {
    if (Field<uint32_t>(archive, place) == kEndSignature &&
        place + kEndBytes + Field<uint16_t>(archive, place + 20) == archive.size()) {
      end = place;
      break;
    }
  }
  if (!end) return UnreadableZip(name, "there is no end record (a truncated file?)");
  Directory directory{Field<uint32_t>(archive, *end + 16), Field<uint32_t>(archive, *end + 12),
                      Field<uint16_t>(archive, *end + 10)};
  if (*end >= kLocatorBytes && Field<uint32_t>(archive, *end - kLocatorBytes) == kLocator64Signature) {
    const auto place = Field<uint64_t>(archive, *end - kLocatorBytes + 8);
    if (place > archive.size() || archive.size() - place < kEnd64Bytes ||
        Field<uint32_t>(archive, place) != kEnd64Signature) {
      return UnreadableZip(name, "the zip64 end record is not where it should be");
    }
    directory = {Field<uint64_t>(archive, place + 48), Field<uint64_t>(archive, place + 40),
                 Field<uint64_t>(archive, place + 32)};
  }
  if (directory.offset > archive.size() || directory.bytes > archive.size() - directory.offset) {
    return UnreadableZip(name, "the directory lies outside the file");
  }
  return directory;
}

// Replaces the fields that stand in the zip64 extra field; `offset` is that of the local header.
bool ApplyZip64(std::string_view extra, ZipEntry* entry, uint64_t* offset) {
  const auto wide = [](uint64_t value) { return value == kInZip64; };
  if (!wide(entry->bytes) && !wide(entry->stored_bytes) && !wide(*offset)) return true;
  while (extra.size() >= 4) {
    const auto tag = Field<uint16_t>(extra, 0);
    const auto size = Field<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return false;
    std::string_view content = extra.substr(4, size);
    extra.remove_prefix(4 + size_t{size});
    if (tag != kZip64Tag) continue;
    for (uint64_t* field : {&entry->bytes, &entry->stored_bytes, offset}) {
      if (!wide(*field)) continue;
      if (content.size() < 8) return false;
      *field = Field<uint64_t>(content, 0);
      content.remove_prefix(8);
    }
    return true;
  }
  return false;
}

Status CheckNoOverlap(const std::vector<ZipEntry>& entries, const std::string& name) {
  std::vector<const ZipEntry*> sorted;
  sorted.reserve(entries.size());
  for (const ZipEntry& entry : entries) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const ZipEntry* entry) { return entry->data_offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->data_offset + sorted[i - 1]->stored_bytes > sorted[i]->data_offset) {
      return UnreadableZip(name, fmt::format("the entries '{}' and '{}' overlap", EscapeForMessage(sorted[i - 1]->name),
                                             EscapeForMessage(sorted[i]->name)));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<ZipEntry>> ReadZipDirectory(std::string_view archive, const std::string& name) {
  MW_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(archive, name));
  std::string_view rest = archive.substr(directory.offset, directory.bytes);
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (rest.size() < kCentralBytes || Field<uint32_t>(rest, 0) != kCentralSignature) {
      return UnreadableZip(name, fmt::format("entry {} of the directory is malformed", i));
    }
    const auto flags = Field<uint16_t>(rest, 8);
    const size_t name_bytes = Field<uint16_t>(rest, 28);
    const size_t extra_bytes = Field<uint16_t>(rest, 30);
    const size_t comment_bytes = Field<uint16_t>(rest, 32);
    if (rest.size() - kCentralBytes < name_bytes + extra_bytes + comment_bytes) {
      return UnreadableZip(name, fmt::format("entry {} of the directory is cut off", i));
    }
    ZipEntry entry;
    entry.name = rest.substr(kCentralBytes, name_bytes);
    entry.method = Field<uint16_t>(rest, 10);
    entry.crc = Field<uint32_t>(rest, 16);
    entry.stored_bytes = Field<uint32_t>(rest, 20);
    entry.bytes = Field<uint32_t>(rest, 24);
    uint64_t local = Field<uint32_t>(rest, 42);
    const auto fault = [&](std::string_view what) {
      return UnreadableZip(name, fmt::format("entry '{}' {}", EscapeForMessage(entry.name), what));
    };
    if (!ApplyZip64(rest.substr(kCentralBytes + name_bytes, extra_bytes), &entry, &local)) {
      return fault("has a malformed zip64 field");
    }
    rest.remove_prefix(kCentralBytes + name_bytes + extra_bytes + comment_bytes);
    if ((flags & kEncrypted) != 0) return fault("is encrypted");
    if (entry.method != kStored && entry.method != kDeflated) {
      return fault(fmt::format("uses the compression method {}, which is not supported", entry.method));
    }
    if (local > archive.size() || archive.size() - local < kLocalBytes ||
        Field<uint32_t>(archive, local) != kLocalSignature) {
      return fault("has no header where the directory says");
    }
    entry.data_offset =
        local + kLocalBytes + Field<uint16_t>(archive, local + 26) + Field<uint16_t>(archive, local + 28);
    if (entry.data_offset > archive.size() || entry.stored_bytes > archive.size() - entry.data_offset) {
      return fault("lies outside the file");
    }
    const bool possible = entry.method == kStored ? entry.bytes == entry.stored_bytes
                                                  : entry.bytes / kMaxDeflateRatio <= entry.stored_bytes;
    if (!possible) return fault(fmt::format("claims {} bytes from {}", entry.bytes, entry.stored_bytes));
    if (!names.insert(entry.name).second) return fault("is there twice");
    entries.push_back(std::move(entry));
  }
  MW_RETURN_IF_ERROR(CheckNoOverlap(entries, name));
  return entries;
}

Result<std::string> ExtractZipEntry(std::string_view archive, const ZipEntry& entry, const std::string& name) {
  const std::string_view stored = archive.substr(entry.data_offset, entry.stored_bytes);
  const auto fault = [&](std::string_view what) {
    return UnreadableZip(name, fmt::format("entry '{}' {}", EscapeForMessage(entry.name), what));
  };
  std::string content;
  if (entry.method == kStored) {
    content = stored;
  } else {
    z_stream stream{};
    // Negative window bits: a raw deflate stream, without zlib's own header.
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return Status(ErrorCode::kInternal, "zlib cannot start");
    // Grown as data come, so that a false size costs no memory. zlib counts in 32 bits: fed in pieces.
    constexpr size_t kPiece = size_t{1} << 24U;
    size_t used = 0;
    size_t made = 0;
    int code = Z_OK;
    while (code == Z_OK && made <= entry.bytes) {
      const size_t room = std::min<uint64_t>(std::max<size_t>(made, size_t{1} << 16U), entry.bytes - made + 1);
      content.resize(made + std::min(room, kPiece));
      const size_t in = std::min(stored.size() - used, kPiece);
      const size_t out = content.size() - made;
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(stored.data() + used));
      stream.avail_in = static_cast<uInt>(in);
      stream.next_out = reinterpret_cast<Bytef*>(content.data() + made);
      stream.avail_out = static_cast<uInt>(out);
      code = inflate(&stream, Z_NO_FLUSH);
      used += in - stream.avail_in;
      made += out - stream.avail_out;
    }
    inflateEnd(&stream);
    if (code != Z_STREAM_END || made != entry.bytes) return fault("does not inflate to the size it claims");
    content.resize(made);
  }
  const auto crc = crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(content.data()), content.size());
  if (crc != entry.crc) return fault("is damaged: its CRC does not match");
  return content;
}

namespace {

constexpr uint16_t kVersionNeeded = 45;         // 4.5: zip64
constexpr uint16_t kDosDate = (1U << 5U) | 1U;  // 1980-01-01, the earliest there is

template <typename T>
void Put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

uint32_t Narrow(uint64_t value) { return value >= kInZip64 ? kInZip64 : static_cast<uint32_t>(value); }

// The fields shared by local and central headers, from "version needed" on.
void PutCommon(std::string& header, const ZipEntry& entry, size_t extra_bytes) {
  Put<uint16_t>(header, kVersionNeeded);
  Put<uint16_t>(header, 0);  // flags
  Put<uint16_t>(header, kStored);
  Put<uint16_t>(header, 0);  // time
  Put<uint16_t>(header, kDosDate);
  Put<uint32_t>(header, entry.crc);
  Put<uint32_t>(header, Narrow(entry.stored_bytes));
  Put<uint32_t>(header, Narrow(entry.bytes));
  Put<uint16_t>(header, static_cast<uint16_t>(entry.name.size()));
  Put<uint16_t>(header, static_cast<uint16_t>(extra_bytes));
}

std::string Zip64Extra(std::initializer_list<uint64_t> values) {
  std::string content;
  for (const uint64_t value : values) {
    if (value >= kInZip64) Put<uint64_t>(content, value);
  }
  if (content.empty()) return {};
  std::string extra;
  Put<uint16_t>(extra, kZip64Tag);
  Put<uint16_t>(extra, static_cast<uint16_t>(content.size()));
  return extra + content;
}

}  // namespace

Status ZipWriter::Add(std::string name, std::string_view content) {
  if (name.size() > std::numeric_limits<uint16_t>::max()) {
    return {ErrorCode::kUsage, "an array name of more than 65535 bytes"};
  }
  ZipEntry entry;
  entry.name = std::move(name);
  entry.bytes = content.size();
  entry.stored_bytes = content.size();
  entry.data_offset = file_->size();
  entry.crc = static_cast<uint32_t>(
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(content.data()), content.size()));
  const std::string extra = Zip64Extra({entry.bytes, entry.stored_bytes});
  std::string header;
  Put<uint32_t>(header, kLocalSignature);
  PutCommon(header, entry, extra.size());
  MW_RETURN_IF_ERROR(file_->Append(header + entry.name + extra));
  entries_.push_back(std::move(entry));
  return file_->Append(content);
}

Status ZipWriter::Finish() {
  const uint64_t start = file_->size();
  for (const ZipEntry& entry : entries_) {
    const std::string extra = Zip64Extra({entry.bytes, entry.stored_bytes, entry.data_offset});
    std::string header;
    Put<uint32_t>(header, kCentralSignature);
    Put<uint16_t>(header, kVersionNeeded);  // made by
    PutCommon(header, entry, extra.size());
    Put<uint16_t>(header, 0);  // comment
    Put<uint16_t>(header, 0);  // disk
    Put<uint16_t>(header, 0);  // internal attributes
    Put<uint32_t>(header, 0);  // external attributes
    Put<uint32_t>(header, Narrow(entry.data_offset));
    MW_RETURN_IF_ERROR(file_->Append(header + entry.name + extra));
  }
  const uint64_t end = file_->size();
  const uint64_t bytes = end - start;
  const uint64_t count = entries_.size();
  std::string tail;
  if (start >= kInZip64 || bytes >= kInZip64 || count >= std::numeric_limits<uint16_t>::max()) {
    Put<uint32_t>(tail, kEnd64Signature);
    Put<uint64_t>(tail, kEnd64Bytes - 12);  // what follows this field
    Put<uint16_t>(tail, kVersionNeeded);
    Put<uint16_t>(tail, kVersionNeeded);
    Put<uint32_t>(tail, 0);  // this disk, and that of the directory
    Put<uint32_t>(tail, 0);
    Put<uint64_t>(tail, count);
    Put<uint64_t>(tail, count);
    Put<uint64_t>(tail, bytes);
    Put<uint64_t>(tail, start);
    Put<uint32_t>(tail, kLocator64Signature);
    Put<uint32_t>(tail, 0);
    Put<uint64_t>(tail, end);
    Put<uint32_t>(tail, 1);  // disks
  }
  const auto narrow_count = static_cast<uint16_t>(std::min<uint64_t>(count, std::numeric_limits<uint16_t>::max()));
  Put<uint32_t>(tail, kEndSignature);
  Put<uint16_t>(tail, 0);  // this disk, and that of the directory
  Put<uint16_t>(tail, 0);
  Put<uint16_t>(tail, narrow_count);
  Put<uint16_t>(tail, narrow_count);
  Put<uint32_t>(tail, Narrow(bytes));
  Put<uint32_t>(tail, Narrow(start));
  Put<uint16_t>(tail, 0);  // comment
  return file_->Append(tail);
}

}  // namespace milwright
