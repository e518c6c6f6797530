// Compression of a built folder: every package of it, with the manifest kept true.
#ifndef MILWRIGHT_LLM_COMPRESS_FOLDER_H_
#define MILWRIGHT_LLM_COMPRESS_FOLDER_H_

#include <string>

#include "compress/compress.h"
#include "milwright/status.h"

namespace milwright {

/// Compresses the package or model `input` into the package `output`. The codes of one weight are in memory at a time;
/// what is done goes to the package's file.
Result<CompressReport> CompressPackage(const std::string& input, const std::string& output,
                                       const CompressOptions& options);

/// Compresses the packages of the built folder `input` into `output` (which may be `input` itself) and copies
/// everything else; the manifest records the format. Packages are replaced one by one, each whole; the manifest comes
/// last.
Result<CompressReport> CompressFolder(const std::string& input, const std::string& output,
                                      const CompressOptions& options);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_COMPRESS_FOLDER_H_
