#include "format/protobuf_writer.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "format/protobuf_description.h"
#include "format/protobuf_types.h"
#include "format/protobuf_wire.h"
#include "format/weight_file.h"
#include "model.pb.h"

namespace milwright {
namespace {

namespace mil = pb::MILSpec;

bool IsIdentifier(const std::string& name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  if (name.empty() || !letter(name[0])) return false;
  return std::ranges::all_of(
      name, [&](char c) { return letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '@'; });
}

// What coremltools puts into the weight file: floats and integers of 8 bits and less, and from iOS18 on of 16 bits
// (an assumption: no file here shows it for iOS18). Wide integers are shapes and positions, which stay readable in
// place.
bool IsWeightType(DataType type, Opset opset) {
  if (!BlobDataTypeNumber(type) || type == DataType::kInt32 || type == DataType::kUInt32) return false;
  return opset >= Opset::kIOS18 || (type != DataType::kInt16 && type != DataType::kUInt16);
}

class ProgramWriter {
 public:
  ProgramWriter(const BlobPolicy& policy, const BlobStore& store_blob) : policy_(policy), store_blob_(store_blob) {}

  Status WriteProgram(const Program& program, mil::Program* proto) {
    proto->set_version(program.version);
    proto->set_docstring(program.doc_string);
    MW_RETURN_IF_ERROR(WriteAttributes(program.attributes, nullptr, proto->mutable_attributes()));
    for (const auto& function : program.functions()) {
      MW_RETURN_IF_ERROR(CheckName(function->name, "function", function->name));
      mil::FunctionsEntry* entry = proto->add_functions();
      entry->set_key(function->name);
      MW_RETURN_IF_ERROR(WriteFunction(*function, entry->mutable_value()));
    }
    SetUnknownFields(program.unknown_fields, proto);
    return {};
  }

 private:
  static Status CheckName(const std::string& name, std::string_view what, const std::string& place) {
    if (IsIdentifier(name)) return {};
    return {ErrorCode::kInvalidProgram,
            fmt::format("{}: the name '{}' of a {} is no identifier (letters, digits, _ and @; no digit in front)",
                        place, name, what)};
  }

  Status WriteFunction(const Function& function, mil::Function* proto) {
    for (const auto& input : function.inputs()) {
      MW_RETURN_IF_ERROR(WriteValue(*input, "function input", function.name, proto->add_inputs()));
    }
    const std::string opset(OpsetKey(function.opset));
    proto->set_opset(opset);
    MW_RETURN_IF_ERROR(WriteAttributes(function.attributes, nullptr, proto->mutable_attributes()));
    mil::BlockEntry* entry = proto->add_block_specializations();
    entry->set_key(opset);
    MW_RETURN_IF_ERROR(WriteBlock(function.body(), function.name, entry->mutable_value()));
    SetUnknownFields(function.unknown_fields, proto);
    return {};
  }

  static Status WriteValue(const Value& value, std::string_view what, const std::string& place,
                           mil::NamedValueType* proto) {
    MW_RETURN_IF_ERROR(CheckName(value.name, what, place));
    proto->set_name(value.name);
    WriteType(value.type, proto->mutable_type());
    return {};
  }

  Status WriteBlock(const Block& block, const std::string& place, mil::Block* proto) {
    for (const auto& input : block.inputs()) {
      MW_RETURN_IF_ERROR(WriteValue(*input, "block input", place, proto->add_inputs()));
    }
    for (const auto& op : block.operations()) MW_RETURN_IF_ERROR(WriteOperation(*op, place, proto->add_operations()));
    for (const Value* output : block.outputs()) proto->add_outputs(output->name);
    MW_RETURN_IF_ERROR(WriteAttributes(block.attributes, nullptr, proto->mutable_attributes()));
    SetUnknownFields(block.unknown_fields, proto);
    return {};
  }

  Status WriteOperation(const Operation& op, const std::string& place, mil::Operation* proto) {
    proto->set_type(op.type());
    for (const Input& input : op.inputs()) {
      mil::InputsEntry* entry = proto->add_inputs();
      entry->set_key(input.name);
      for (const Operand& operand : input.arguments) {
        auto* binding = entry->mutable_value()->add_arguments();
        if (operand.value != nullptr) {
          binding->set_name(operand.value->name);
        } else {
          const Status status = WriteLiteral(*operand.literal, ChoiceFor(&op), binding->mutable_value());
          if (!status.ok()) return status.WithContext(fmt::format("{}: '{}' ({})", place, op.name(), op.type()));
        }
      }
    }
    for (const auto& output : op.outputs()) {
      MW_RETURN_IF_ERROR(WriteValue(*output, "result", place, proto->add_outputs()));
    }
    for (const auto& block : op.blocks()) {
      MW_RETURN_IF_ERROR(WriteBlock(*block, fmt::format("{}/'{}'", place, op.name()), proto->add_blocks()));
    }
    if (const Status status = WriteAttributes(op.attributes, &op, proto->mutable_attributes()); !status.ok()) {
      return status.WithContext(fmt::format("{}: '{}' ({})", place, op.name(), op.type()));
    }
    SetUnknownFields(op.unknown_fields, proto);
    return {};
  }

  Status WriteAttributes(const AttributeMap& attributes, const Operation* op, AttributeEntries* entries) {
    for (const auto& [key, literal] : attributes) {
      mil::AttributesEntry* entry = entries->Add();
      entry->set_key(key);
      MW_RETURN_IF_ERROR(WriteLiteral(literal, ChoiceFor(op), entry->mutable_value()));
    }
    return {};
  }

  [[nodiscard]] BlobChoice ChoiceFor(const Operation* op) const {
    return [this, op](const Literal& literal) -> Result<std::optional<BlobReference>> {
      if (!policy_(literal, op)) return std::optional<BlobReference>();
      MW_ASSIGN_OR_RETURN(BlobReference blob, store_blob_(literal.tensor));
      return std::optional<BlobReference>(std::move(blob));
    };
  }

  const BlobPolicy& policy_;
  const BlobStore& store_blob_;
};

}  // namespace

BlobPolicy PackageBlobPolicy(int64_t threshold) {
  return [threshold](const Literal& literal, const Operation* op) {
    if (literal.blob && BlobDataTypeNumber(literal.type.dtype())) return true;
    const bool holds_weights = op != nullptr && (op->type() == "const" || op->type().starts_with("constexpr_"));
    return holds_weights && literal.tensor.size() >= threshold &&
           IsWeightType(literal.type.dtype(), op->parent()->function()->opset);
  };
}

Result<std::string> WriteModelProtobuf(const ModelSpec& model, const BlobPolicy& policy, const BlobStore& store_blob) {
  google::protobuf::Arena arena;
  auto* proto = google::protobuf::Arena::CreateMessage<pb::Model>(&arena);
  proto->set_specificationversion(model.specification_version);
  proto->set_isupdatable(model.is_updatable);
  WriteDescription(model.description, proto->mutable_description());
  MW_RETURN_IF_ERROR(ProgramWriter(policy, store_blob).WriteProgram(model.program, proto->mutable_mlprogram()));
  SetUnknownFields(model.unknown_fields, proto);
  return SerializeMessage(*proto);
}

}  // namespace milwright
