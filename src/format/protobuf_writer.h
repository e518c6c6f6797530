// ModelSpec -> bytes of a model.mlmodel (protobuf).
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

/// Whether a tensor goes to the weight file. `op` is the operation that holds it, null for those of a program, function
/// or block.
using BlobPolicy = std::function<bool(const Literal& literal, const Operation* op)>;

/// The policy of packages: what came from a weight file goes to one, and so do the constants of `const` and constexpr
/// ops that have at least `threshold` elements of a type that coremltools puts there (floats and narrow integers).
BlobPolicy PackageBlobPolicy(int64_t threshold);

/// Serialises `model`, deterministically: maps are written sorted by key, functions in program order. Tensors that
/// `policy` picks go to `store_blob`, in program order; all others are encoded in place as coremltools does
/// (package-format.md, section 3). kInvalidProgram: a name that is no identifier (`[A-Za-z_][A-Za-z0-9_@]*`).
Result<std::string> WriteModelProtobuf(const ModelSpec& model, const BlobPolicy& policy, const BlobStore& store_blob);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_WRITER_H_
