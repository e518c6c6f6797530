// MIL types and values, between protobuf and the IR. Only for src/format/protobuf_*.
#ifndef MILWRIGHT_FORMAT_PROTOBUF_TYPES_H_
#define MILWRIGHT_FORMAT_PROTOBUF_TYPES_H_

#include <google/protobuf/repeated_ptr_field.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "format/protobuf_reader.h"
#include "mil.pb.h"
#include "mil/literal.h"
#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

namespace pb = CoreML::Specification;

/// Errors below are kInvalidProgram and say what is wrong; the caller puts the place in front.
Result<Type> ReadType(const pb::MILSpec::ValueType& proto);
void WriteType(const Type& type, pb::MILSpec::ValueType* proto);

/// A value of any kind. Blob references are resolved with `load_blob`.
Result<Literal> ReadLiteral(const pb::MILSpec::Value& proto, const BlobLoader& load_blob);

/// Stores a tensor and says where, or nullopt: the tensor stays in place.
using BlobChoice = std::function<Result<std::optional<BlobReference>>(const Literal&)>;
/// Writes `literal`; each tensor in it goes where `choose` says.
Status WriteLiteral(const Literal& literal, const BlobChoice& choose, pb::MILSpec::Value* proto);

using AttributeMap = std::map<std::string, Literal, std::less<>>;
using AttributeEntries = google::protobuf::RepeatedPtrField<pb::MILSpec::AttributesEntry>;

/// Attributes of a program, function, block or operation; a repeated key is an error.
Result<AttributeMap> ReadAttributes(const AttributeEntries& entries, const BlobLoader& load_blob);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_TYPES_H_
