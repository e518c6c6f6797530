// Bytes of a model.mlmodel (protobuf) -> ModelSpec.
#ifndef MILWRIGHT_FORMAT_PROTOBUF_READER_H_
#define MILWRIGHT_FORMAT_PROTOBUF_READER_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "mil/literal.h"
#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// Gives the tensor behind a blob reference, of the type the program states.
using BlobLoader = std::function<Result<Tensor>(const BlobReference&, const TensorType&)>;

/// Reads a model. Types, values and names are resolved, so that every operand is a value defined before its use; ops
/// are not checked against the registry (VerifyProgram does that). `name` is the file's name, for messages.
///
/// Unknown fields of the messages that the IR has a place for (Model, ModelDescription, FunctionDescription,
/// FeatureDescription, FeatureType with all below it, Metadata, Program, Function, Block, Operation) are kept; those
/// inside MIL types and values cannot be, and a file that has one is refused (kInvalidProgram) rather than read
/// without.
///
/// Errors: kUnreadable when the bytes are no such protobuf (with the place: field path and byte offset) or hold another
/// kind of model; kInvalidProgram when the program in it breaks a rule (with function, operation and value).
Result<ModelSpec> ReadModelProtobuf(std::span<const std::byte> bytes, const std::string& name,
                                    const BlobLoader& load_blob);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_READER_H_
