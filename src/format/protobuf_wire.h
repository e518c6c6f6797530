// Parsing protobuf messages that come from hostile files, and the unknown fields in them. Only for
// src/format/protobuf_*.
#ifndef MILWRIGHT_FORMAT_PROTOBUF_WIRE_H_
#define MILWRIGHT_FORMAT_PROTOBUF_WIRE_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "milwright/status.h"

namespace milwright {

/// How deep messages may nest: enough for 90 nested blocks, and far from the end of any stack.
inline constexpr int kMaxMessageDepth = 200;

/// Parses `bytes` into `message`. On failure (kUnreadable) the text tells the field path and the byte offset of the
/// first fault: a length beyond the end, a malformed number or tag, text that is no UTF-8, nesting beyond the limit.
Status ParseMessage(std::span<const std::byte> bytes, google::protobuf::Message* message);

/// The first field number at the top level of `bytes` that is `wanted`, found without parsing what is below; nullopt
/// when there is none before the end or the first fault.
std::optional<int> FindTopLevelField(std::span<const std::byte> bytes, const std::function<bool(int)>& wanted);

/// The serialised unknown fields of `message` itself, not of what is below it.
std::string UnknownFieldsOf(const google::protobuf::Message& message);
/// Puts unknown fields back.
void SetUnknownFields(const std::string& bytes, google::protobuf::Message* message);

/// Clears every known field of `message`, keeping unknown fields of it and of the singular messages below it. What is
/// left, serialised, can be merged into a message that was built anew from the known fields.
void KeepUnknownFieldsOnly(google::protobuf::Message* message);

/// kInvalidProgram when `message` itself has an unknown field, for messages that the IR has no place for: what it says
/// would be lost.
Status CheckAllKnown(const google::protobuf::Message& message);
template <typename... Messages>
Status CheckAllKnown(const google::protobuf::Message& first, const Messages&... others) {
  Status status = CheckAllKnown(first);
  return status.ok() ? CheckAllKnown(others...) : status;
}

/// Serialises `message`; kInvalidProgram when it is beyond the 2 GiB that protobuf can hold.
Result<std::string> SerializeMessage(const google::protobuf::Message& message);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PROTOBUF_WIRE_H_
