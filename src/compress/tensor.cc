// Compression of one tensor: which compressor does it.
#include <fmt/format.h>

#include "compress/compress.h"
#include "compress/elements.h"

namespace milwright {

Result<CompressedTensor> CompressTensor(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options) {
  const bool floats = weight.dtype() == DataType::kFp16 || weight.dtype() == DataType::kFp32;
  if (weight.rank() < 2 || weight.size() == 0 || !floats) {
    return Status(ErrorCode::kPrecondition, fmt::format("{} is no weight matrix", TypeToString(weight.type())));
  }
  switch (format.kind) {
    case CompressionFormat::Kind::kLinear:
      return compress::CompressLinear(weight, format, options);
    case CompressionFormat::Kind::kPalette:
      return compress::CompressPalette(weight, format, options);
    case CompressionFormat::Kind::kSparse:
      return compress::CompressSparse(weight, format, options);
    case CompressionFormat::Kind::kNone:
      break;
  }
  return Status(ErrorCode::kUsage, "nothing to do for format none");
}

}  // namespace milwright
