#include "format/protobuf_wire.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/utf8.h"

namespace milwright {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr uint64_t kMaxMessageBytes = std::numeric_limits<int>::max();

enum WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5
};

// A cursor over the wire format. Every read says whether the bytes were there.
class WireCursor {
 public:
  WireCursor(std::span<const std::byte> bytes, uint64_t offset) : bytes_(bytes), offset_(offset) {}

  [[nodiscard]] bool AtEnd() const { return position_ == bytes_.size(); }
  [[nodiscard]] uint64_t offset() const { return offset_ + position_; }  ///< in the file
  [[nodiscard]] uint64_t left() const { return bytes_.size() - position_; }

  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      if (AtEnd()) return std::nullopt;
      const auto byte = std::to_integer<uint64_t>(bytes_[position_++]);
      if (shift < 64) value |= (byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    return std::nullopt;
  }
  std::optional<std::span<const std::byte>> Take(uint64_t count) {
    if (count > left()) return std::nullopt;
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t offset_;
  size_t position_ = 0;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Finds the first fault of a message that protobuf refused, by walking it with its descriptor.
class Diagnosis {
 public:
  // Fault of `bytes`, which start at `offset` of the file; empty when there is none.
  std::string Walk(std::span<const std::byte> bytes, uint64_t offset, const Descriptor& descriptor, int depth) {
    WireCursor cursor(bytes, offset);
    std::map<int, int> counts;
    while (!cursor.AtEnd()) {
      const uint64_t start = cursor.offset();
      const std::optional<uint64_t> tag = cursor.Varint();
      const uint64_t number = tag.value_or(0) >> 3U;
      if (!tag || number == 0 || number > FieldDescriptor::kMaxNumber) return Fault(start, "malformed field tag");
      const FieldDescriptor* field = descriptor.FindFieldByNumber(static_cast<int>(number));
      std::string name = field != nullptr ? field->name() : fmt::format("field {}", number);
      if (field != nullptr && field->is_repeated()) name += fmt::format("[{}]", counts[field->number()]++);
      const size_t path_size = path_.size();
      path_ += (path_.empty() ? "" : ".") + name;
      if (std::string fault = Content(cursor, start, static_cast<int>(*tag & 7U), field, depth); !fault.empty()) {
        return fault;
      }
      path_.resize(path_size);
    }
    return {};
  }

 private:
  std::string Content(WireCursor& cursor, uint64_t start, int wire_type, const FieldDescriptor* field, int depth) {
    switch (wire_type) {
      case kVarint:
        return cursor.Varint() ? "" : Fault(start, "malformed number");
      case kFixed64:
        return cursor.Take(8) ? "" : Fault(start, "the file ends inside a number");
      case kFixed32:
        return cursor.Take(4) ? "" : Fault(start, "the file ends inside a number");
      case kLengthDelimited:
        break;
      case kStartGroup:
      case kEndGroup:
        return Fault(start, "a group, which this format does not have");
      default:
        return Fault(start, fmt::format("unknown wire type {}", wire_type));
    }
    const std::optional<uint64_t> length = cursor.Varint();
    if (!length) return Fault(start, "malformed length");
    const uint64_t offset = cursor.offset();
    const auto payload = cursor.Take(*length);
    if (!payload) {
      return Fault(start, fmt::format("says {} bytes, but only {} are left: the file is cut off or damaged", *length,
                                      cursor.left()));
    }
    if (field == nullptr) return {};
    if (field->type() == FieldDescriptor::TYPE_STRING && !IsUtf8(AsText(*payload))) {
      return Fault(start, "text that is not UTF-8");
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) return {};
    if (depth == kMaxMessageDepth) {
      return Fault(start, fmt::format("messages nest deeper than {} levels (too many nested blocks, types or values)",
                                      kMaxMessageDepth));
    }
    const size_t path_size = path_.size();
    path_ += Label(*payload, *field->message_type());
    std::string fault = Walk(*payload, offset, *field->message_type(), depth + 1);
    if (fault.empty()) path_.resize(path_size);
    return fault;
  }

  // The first field of most messages names it (key, name, type): " 'main'".
  static std::string Label(std::span<const std::byte> message, const Descriptor& descriptor) {
    const FieldDescriptor* first = descriptor.FindFieldByNumber(1);
    if (first == nullptr || first->type() != FieldDescriptor::TYPE_STRING || first->is_repeated()) return {};
    WireCursor cursor(message, 0);
    if (cursor.Varint() != (1U << 3U | kLengthDelimited)) return {};
    const auto length = cursor.Varint();
    const auto text = length && *length <= 64 ? cursor.Take(*length) : std::nullopt;
    return text ? fmt::format(" '{}'", EscapeForMessage(AsText(*text))) : "";
  }

  [[nodiscard]] std::string Fault(uint64_t offset, std::string_view what) const {
    constexpr size_t kShown = 100;
    std::string path = path_.empty() ? "top level" : path_;
    if (path.size() > 2 * kShown) {
      path = EscapeForMessage(path.substr(0, kShown) + " ... " + path.substr(path.size() - kShown));
    }
    return fmt::format("{} (byte {}): {}", path, offset, what);
  }

  std::string path_;
};

}  // namespace

Status ParseMessage(std::span<const std::byte> bytes, Message* message) {
  if (bytes.size() > kMaxMessageBytes) {
    return {ErrorCode::kUnreadable,
            fmt::format("{} bytes, more than the 2 GiB that a protobuf can hold", bytes.size())};
  }
  const google::protobuf::LogSilencer silence;  // the library would print what the Status says
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMaxMessageDepth);
  if (message->ParseFromCodedStream(&input) && input.ConsumedEntireMessage()) return {};
  std::string fault = Diagnosis().Walk(bytes, 0, *message->GetDescriptor(), 0);
  if (fault.empty()) fault = "malformed protobuf";
  return {ErrorCode::kUnreadable, std::move(fault)};
}

std::optional<int> FindTopLevelField(std::span<const std::byte> bytes, const std::function<bool(int)>& wanted) {
  WireCursor cursor(bytes, 0);
  while (!cursor.AtEnd()) {
    const std::optional<uint64_t> tag = cursor.Varint();
    if (!tag || *tag >> 3U > FieldDescriptor::kMaxNumber) break;
    if (wanted(static_cast<int>(*tag >> 3U))) return static_cast<int>(*tag >> 3U);
    bool whole = false;
    switch (*tag & 7U) {
      case kVarint:
        whole = cursor.Varint().has_value();
        break;
      case kFixed64:
        whole = cursor.Take(8).has_value();
        break;
      case kFixed32:
        whole = cursor.Take(4).has_value();
        break;
      case kLengthDelimited: {
        const std::optional<uint64_t> length = cursor.Varint();
        whole = length && cursor.Take(*length);
        break;
      }
      default:
        break;
    }
    if (!whole) break;
  }
  return std::nullopt;
}

std::string UnknownFieldsOf(const Message& message) {
  std::string bytes;
  message.GetReflection()->GetUnknownFields(message).SerializeToString(&bytes);
  return bytes;
}

void SetUnknownFields(const std::string& bytes, Message* message) {
  if (!bytes.empty()) message->GetReflection()->MutableUnknownFields(message)->ParseFromString(bytes);
}

Status CheckAllKnown(const Message& message) {
  const auto& fields = message.GetReflection()->GetUnknownFields(message);
  if (fields.empty()) return {};
  return {ErrorCode::kInvalidProgram,
          fmt::format("the field {} of {} is not known, and what it says would be lost: a newer tool wrote this file",
                      fields.field(0).number(), message.GetDescriptor()->name())};
}

void KeepUnknownFieldsOnly(Message* message) {
  const google::protobuf::Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() == FieldDescriptor::TYPE_MESSAGE && !field->is_repeated()) {
      Message* below = reflection->MutableMessage(message, field);
      KeepUnknownFieldsOnly(below);
      if (below->ByteSizeLong() > 0) continue;
    }
    reflection->ClearField(message, field);
  }
}

Result<std::string> SerializeMessage(const Message& message) {
  if (message.ByteSizeLong() > kMaxMessageBytes) {
    return Status(
        ErrorCode::kInvalidProgram,
        "the model file would be larger than the 2 GiB that a protobuf can hold; move constants to the weight file");
  }
  std::string bytes;
  if (!message.SerializeToString(&bytes)) return Status(ErrorCode::kInternal, "protobuf cannot serialise the model");
  return bytes;
}

}  // namespace milwright
