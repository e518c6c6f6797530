// Model -> bytes of a model.mlmodel (protobuf).
#ifndef MILWRIGHT_FORMAT_PROTOBUF_WRITER_H_
#define MILWRIGHT_FORMAT_PROTOBUF_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "mil/literal.h"
#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// Stores a tensor in a weight file and says where it lies.
using BlobStore = std::function<Result<BlobReference>(const Tensor&)>;

/// Serialises `model`, deterministically: maps are written sorted by key, functions in program order. Every constant
/// that belongs to the weight file (see WriteOptions::blob_threshold in package.h) goes to `store_blob`, in program
/// order; all others are encoded in place as coremltools does (package-format.md, section 3). kInvalidProgram: a name
/// that is no identifier (`[A-Za-z_][A-Za-z0-9_@]*`).
Result<std::string> WriteModelProtobuf(const ModelSpec& model, int64_t blob_threshold, const BlobStore& store_blob);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_WRITER_H_
