// The little of the ZIP format that .npz files use (PKWARE APPNOTE 6.3: stored and deflated entries, zip64).
#ifndef MILWRIGHT_FORMAT_ZIP_H_
#define MILWRIGHT_FORMAT_ZIP_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_io.h"
#include "milwright/status.h"

namespace milwright {

/// One file of an archive.
struct ZipEntry {
  std::string name;
  uint16_t method = 0;  ///< 0 stored, 8 deflated
  uint32_t crc = 0;
  uint64_t stored_bytes = 0;
  uint64_t bytes = 0;        ///< once inflated
  uint64_t data_offset = 0;  ///< of the stored bytes in the archive
};

/// Reads the central directory of `archive` and checks it: entries inside the file, not overlapping, not encrypted, of
/// a known method, with distinct names, and not claiming to inflate beyond what deflate can do. kUnreadable otherwise.
Result<std::vector<ZipEntry>> ReadZipDirectory(std::string_view archive, const std::string& name);

/// The content of an entry, inflated and checked against its size and CRC.
Result<std::string> ExtractZipEntry(std::string_view archive, const ZipEntry& entry, const std::string& name);

/// Writes an archive of stored entries with a fixed time stamp.
class ZipWriter {
 public:
  explicit ZipWriter(OutputFile* file) : file_(file) {}
  Status Add(std::string name, std::string_view content);
  /// Writes the central directory. The caller finishes the file.
  Status Finish();

 private:
  OutputFile* file_;
  std::vector<ZipEntry> entries_;  ///< data_offset: of the local header
};

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_ZIP_H_
