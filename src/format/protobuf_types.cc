#include "format/protobuf_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "format/protobuf_wire.h"

namespace milwright {
namespace {

namespace mil = pb::MILSpec;
using google::protobuf::RepeatedField;

Result<int64_t> ReadDimension(const mil::Dimension& proto) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  switch (proto.dimension_case()) {
    case mil::Dimension::kConstant:
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.constant()));
      if (proto.constant().size() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Invalid(fmt::format("a dimension of size {}", proto.constant().size()));
      }
      return static_cast<int64_t>(proto.constant().size());
    case mil::Dimension::kUnknown:
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.unknown()));
      if (proto.unknown().variadic()) return Invalid("a variadic dimension; only types of known rank are supported");
      return kUnknownDim;
    case mil::Dimension::DIMENSION_NOT_SET:
      break;
  }
  return Invalid("a dimension that is neither constant nor unknown");
}

void WriteDimension(int64_t size, mil::Dimension* proto) {
  if (size == kUnknownDim) {
    proto->mutable_unknown();
  } else {
    proto->mutable_constant()->set_size(static_cast<uint64_t>(size));
  }
}

Result<TensorType> ReadTensorType(const mil::TensorType& proto) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  TensorType type;
  const int number = proto.datatype();
  if (!mil::DataType_IsValid(number) || number == mil::UNUSED_TYPE) {
    return Invalid(fmt::format("unknown data type {}", number));
  }
  type.dtype = static_cast<DataType>(number);  // the numbers of the IR are those of the file
  if (proto.rank() != proto.dimensions_size()) {
    return Invalid(fmt::format("a tensor type of rank {} with {} dimensions", proto.rank(), proto.dimensions_size()));
  }
  if (!proto.attributes().empty()) return Invalid("a tensor type with attributes, which are not supported");
  for (const mil::Dimension& dimension : proto.dimensions()) {
    MW_ASSIGN_OR_RETURN(const int64_t size, ReadDimension(dimension));
    type.shape.push_back(size);
  }
  return type;
}

void WriteTensorType(const TensorType& type, mil::TensorType* proto) {
  proto->set_datatype(static_cast<mil::DataType>(type.dtype));
  proto->set_rank(static_cast<int64_t>(type.shape.size()));
  for (const int64_t size : type.shape) WriteDimension(size, proto->add_dimensions());
}

// ---- tensors in place ----

// The field of TensorValue that carries a data type (coremltools' helper.py; package-format.md, section 3).
mil::TensorValue::ValueCase CarrierOf(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return mil::TensorValue::kFloats;
    case DataType::kFp64:
      return mil::TensorValue::kDoubles;
    case DataType::kInt16:
    case DataType::kUInt16:
    case DataType::kInt32:
      return mil::TensorValue::kInts;
    case DataType::kInt64:
    case DataType::kUInt64:
      return mil::TensorValue::kLongInts;
    case DataType::kBool:
      return mil::TensorValue::kBools;
    case DataType::kString:
      return mil::TensorValue::kStrings;
    default:
      return mil::TensorValue::kBytes;
  }
}

// Number of elements (bytes: of bytes) that the value holds, and the name of its field.
std::pair<int64_t, std::string_view> Holds(const mil::TensorValue& proto) {
  switch (proto.value_case()) {
    case mil::TensorValue::kFloats:
      return {proto.floats().values_size(), "floats"};
    case mil::TensorValue::kInts:
      return {proto.ints().values_size(), "ints"};
    case mil::TensorValue::kBools:
      return {proto.bools().values_size(), "bools"};
    case mil::TensorValue::kStrings:
      return {proto.strings().values_size(), "strings"};
    case mil::TensorValue::kLongInts:
      return {proto.longints().values_size(), "longInts"};
    case mil::TensorValue::kDoubles:
      return {proto.doubles().values_size(), "doubles"};
    case mil::TensorValue::kBytes:
      return {static_cast<int64_t>(proto.bytes().values().size()), "bytes"};
    case mil::TensorValue::VALUE_NOT_SET:
      break;
  }
  return {0, "values"};
}

template <typename T>
Result<Tensor> FromValues(const TensorType& type, const RepeatedField<T>& values) {
  const auto bytes = std::as_bytes(std::span(values.data(), static_cast<size_t>(values.size())));
  return Tensor::FromBytes(type, std::vector<std::byte>(bytes.begin(), bytes.end()));
}

// Integers of up to 32 bits from the `ints` field; each must fit the type.
Result<Tensor> FromInts(const TensorType& type, const RepeatedField<int32_t>& values) {
  if (type.dtype == DataType::kInt32) return FromValues(type, values);
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
  for (int i = 0; i < values.size(); ++i) {
    tensor.SetInt(i, values[i]);
    if (tensor.GetInt(i) != values[i]) {
      return Invalid(fmt::format("the value {} does not fit {}", values[i], TypeToString(type)));
    }
  }
  return tensor;
}

Status CheckCarrierKnown(const mil::TensorValue& proto) {
  switch (proto.value_case()) {
    case mil::TensorValue::kFloats:
      return CheckAllKnown(proto.floats());
    case mil::TensorValue::kInts:
      return CheckAllKnown(proto.ints());
    case mil::TensorValue::kBools:
      return CheckAllKnown(proto.bools());
    case mil::TensorValue::kStrings:
      return CheckAllKnown(proto.strings());
    case mil::TensorValue::kLongInts:
      return CheckAllKnown(proto.longints());
    case mil::TensorValue::kDoubles:
      return CheckAllKnown(proto.doubles());
    case mil::TensorValue::kBytes:
      return CheckAllKnown(proto.bytes());
    case mil::TensorValue::VALUE_NOT_SET:
      break;
  }
  return {};
}

Result<Tensor> ReadTensor(const mil::TensorValue& proto, const TensorType& type) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  MW_RETURN_IF_ERROR(CheckCarrierKnown(proto));
  const Result<int64_t> count = ElementCount(type.shape);
  if (!count.ok()) return Invalid(fmt::format("a value of type {}: {}", TypeToString(type), count.status().message()));
  const auto carrier = proto.value_case();
  const auto [held, field] = Holds(proto);
  if (*count == 0 && held == 0) return Tensor::Zeros(type);
  const auto mismatch = [&, held = held, field = field] {
    return Invalid(fmt::format("a value of type {} holds {} {}", TypeToString(type), held, field));
  };
  if (carrier == mil::TensorValue::kBytes) {
    const Result<int64_t> size = ByteSize(type);
    if (type.dtype == DataType::kString || type.dtype == DataType::kBool || !size.ok() || *size != held) {
      return mismatch();
    }
    const auto bytes = std::as_bytes(std::span(proto.bytes().values()));
    return Tensor::FromBytes(type, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  if (held != *count) return mismatch();
  // Writers have put small integers into `ints` as well as into `bytes`; both say the same.
  const bool small_integer = IsInteger(type.dtype) && BitWidth(type.dtype) <= 32;
  if (carrier == mil::TensorValue::kInts && small_integer) return FromInts(type, proto.ints().values());
  if (carrier != CarrierOf(type.dtype)) return mismatch();
  switch (carrier) {
    case mil::TensorValue::kFloats:
      return FromValues(type, proto.floats().values());
    case mil::TensorValue::kDoubles:
      return FromValues(type, proto.doubles().values());
    case mil::TensorValue::kLongInts:
      return FromValues(type, proto.longints().values());
    case mil::TensorValue::kBools: {
      std::vector<std::byte> bytes;
      for (const bool value : proto.bools().values()) bytes.push_back(std::byte{value});
      return Tensor::FromBytes(type, std::move(bytes));
    }
    case mil::TensorValue::kStrings:
      return Tensor::FromStrings(type.shape, {proto.strings().values().begin(), proto.strings().values().end()});
    default:
      return mismatch();
  }
}

template <typename T>
void AddValues(const Tensor& tensor, RepeatedField<T>* values) {
  const std::span<const T> elements = tensor.As<T>();
  values->Add(elements.begin(), elements.end());
}

void WriteTensor(const Tensor& tensor, mil::TensorValue* proto) {
  switch (CarrierOf(tensor.dtype())) {
    case mil::TensorValue::kFloats:
      return AddValues(tensor, proto->mutable_floats()->mutable_values());
    case mil::TensorValue::kDoubles:
      return AddValues(tensor, proto->mutable_doubles()->mutable_values());
    case mil::TensorValue::kLongInts:
      return AddValues(tensor, proto->mutable_longints()->mutable_values());
    case mil::TensorValue::kInts: {
      auto* values = proto->mutable_ints()->mutable_values();
      for (int64_t i = 0; i < tensor.size(); ++i) values->Add(static_cast<int32_t>(tensor.GetInt(i)));
      return;
    }
    case mil::TensorValue::kBools: {
      auto* values = proto->mutable_bools()->mutable_values();
      for (int64_t i = 0; i < tensor.size(); ++i) values->Add(tensor.GetInt(i) != 0);
      return;
    }
    case mil::TensorValue::kStrings: {
      auto* values = proto->mutable_strings()->mutable_values();
      for (const std::string& text : tensor.strings()) *values->Add() = text;
      return;
    }
    default:
      proto->mutable_bytes()->set_values(tensor.bytes().data(), tensor.bytes().size());
  }
}

// ---- lists, tuples, dictionaries ----

Result<std::vector<Literal>> ReadElements(const google::protobuf::RepeatedPtrField<mil::Value>& values,
                                          const BlobLoader& load_blob) {
  std::vector<Literal> elements;
  for (const mil::Value& value : values) {
    MW_ASSIGN_OR_RETURN(Literal element, ReadLiteral(value, load_blob));
    elements.push_back(std::move(element));
  }
  return elements;
}

Result<Literal> ReadImmediate(const mil::Value::ImmediateValue& proto, Type type, const BlobLoader& load_blob) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  using Kind = mil::Value::ImmediateValue;
  const auto mismatch = [&type] {
    return Invalid(fmt::format("the content is of another kind than its type {}", TypeToString(type)));
  };
  Literal literal;
  switch (proto.value_case()) {
    case Kind::kTensor: {
      if (!type.IsTensor()) return mismatch();
      MW_ASSIGN_OR_RETURN(literal.tensor, ReadTensor(proto.tensor(), type.tensor));
      break;
    }
    case Kind::kTuple: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.tuple()));
      if (type.kind != Type::Kind::kTuple) return mismatch();
      MW_ASSIGN_OR_RETURN(literal.elements, ReadElements(proto.tuple().values(), load_blob));
      break;
    }
    case Kind::kList: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.list()));
      if (!type.IsList()) return mismatch();
      MW_ASSIGN_OR_RETURN(literal.elements, ReadElements(proto.list().values(), load_blob));
      if (type.length != kUnknownDim && static_cast<uint64_t>(type.length) != literal.elements.size()) {
        return Invalid(
            fmt::format("a value of type {} holds {} elements", TypeToString(type), literal.elements.size()));
      }
      break;
    }
    case Kind::kDictionary: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.dictionary()));
      if (type.kind != Type::Kind::kDictionary) return mismatch();
      for (const auto& entry : proto.dictionary().values()) {
        MW_RETURN_IF_ERROR(CheckAllKnown(entry));
        MW_ASSIGN_OR_RETURN(Literal key, ReadLiteral(entry.key(), load_blob));
        MW_ASSIGN_OR_RETURN(Literal value, ReadLiteral(entry.value(), load_blob));
        literal.entries.emplace_back(std::move(key), std::move(value));
      }
      break;
    }
    case Kind::VALUE_NOT_SET:
      return Invalid(fmt::format("a value of type {} without content", TypeToString(type)));
  }
  // Elements of a tuple have their types one by one; those of a list or dictionary share one.
  for (size_t i = 0; i < literal.elements.size(); ++i) {
    const bool listed = type.IsList() || literal.elements.size() == type.elements.size();
    if (!listed || literal.elements[i].type != type.elements[type.IsList() ? 0 : i]) {
      return Invalid(fmt::format("element {} of a value of type {} has another type", i, TypeToString(type)));
    }
  }
  for (const auto& [key, value] : literal.entries) {
    if (key.type != type.elements[0] || value.type != type.elements[1]) {
      return Invalid(fmt::format("an entry of a value of type {} has another type", TypeToString(type)));
    }
  }
  literal.type = std::move(type);
  return literal;
}

}  // namespace

Result<Type> ReadType(const mil::ValueType& proto) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  switch (proto.type_case()) {
    case mil::ValueType::kTensorType: {
      MW_ASSIGN_OR_RETURN(TensorType tensor, ReadTensorType(proto.tensortype()));
      return Type(std::move(tensor));
    }
    case mil::ValueType::kListType: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.listtype()));
      MW_ASSIGN_OR_RETURN(Type element, ReadType(proto.listtype().type()));
      int64_t length = kUnknownDim;
      if (proto.listtype().has_length()) {
        MW_ASSIGN_OR_RETURN(length, ReadDimension(proto.listtype().length()));
      }
      return Type::List(std::move(element), length);
    }
    case mil::ValueType::kTupleType: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.tupletype()));
      std::vector<Type> elements;
      for (const mil::ValueType& type : proto.tupletype().types()) {
        MW_ASSIGN_OR_RETURN(Type element, ReadType(type));
        elements.push_back(std::move(element));
      }
      return Type::Tuple(std::move(elements));
    }
    case mil::ValueType::kDictionaryType: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.dictionarytype()));
      MW_ASSIGN_OR_RETURN(Type key, ReadType(proto.dictionarytype().keytype()));
      MW_ASSIGN_OR_RETURN(Type value, ReadType(proto.dictionarytype().valuetype()));
      return Type::Dictionary(std::move(key), std::move(value));
    }
    case mil::ValueType::kStateType: {
      const mil::ValueType& wrapped = proto.statetype().wrappedtype();
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.statetype(), wrapped));
      if (!wrapped.has_tensortype()) return Invalid("a state that wraps no tensor type");
      MW_ASSIGN_OR_RETURN(TensorType tensor, ReadTensorType(wrapped.tensortype()));
      return Type::State(std::move(tensor));
    }
    case mil::ValueType::TYPE_NOT_SET:
      break;
  }
  return Invalid("a type of no kind");
}

void WriteType(const Type& type, mil::ValueType* proto) {
  switch (type.kind) {
    case Type::Kind::kTensor:
      WriteTensorType(type.tensor, proto->mutable_tensortype());
      break;
    case Type::Kind::kState:
      WriteTensorType(type.tensor, proto->mutable_statetype()->mutable_wrappedtype()->mutable_tensortype());
      break;
    case Type::Kind::kList:
      WriteType(type.elements[0], proto->mutable_listtype()->mutable_type());
      WriteDimension(type.length, proto->mutable_listtype()->mutable_length());
      break;
    case Type::Kind::kTuple:
      proto->mutable_tupletype();
      for (const Type& element : type.elements) WriteType(element, proto->mutable_tupletype()->add_types());
      break;
    case Type::Kind::kDictionary:
      WriteType(type.elements[0], proto->mutable_dictionarytype()->mutable_keytype());
      WriteType(type.elements[1], proto->mutable_dictionarytype()->mutable_valuetype());
      break;
  }
}

Result<Literal> ReadLiteral(const mil::Value& proto, const BlobLoader& load_blob) {
  MW_RETURN_IF_ERROR(CheckAllKnown(proto));
  if (!proto.docstring().empty()) return Invalid("a value with a doc string, which would be lost");
  MW_ASSIGN_OR_RETURN(Type type, ReadType(proto.type()));
  switch (proto.value_case()) {
    case mil::Value::kImmediateValue:
      return ReadImmediate(proto.immediatevalue(), std::move(type), load_blob);
    case mil::Value::kBlobFileValue: {
      MW_RETURN_IF_ERROR(CheckAllKnown(proto.blobfilevalue()));
      if (!type.IsTensor()) return Invalid(fmt::format("a blob of type {}", TypeToString(type)));
      BlobReference blob{proto.blobfilevalue().filename(), proto.blobfilevalue().offset()};
      MW_ASSIGN_OR_RETURN(Tensor tensor, load_blob(blob, type.tensor));
      return Literal(std::move(tensor), std::move(blob));
    }
    case mil::Value::VALUE_NOT_SET:
      break;
  }
  return Invalid(fmt::format("a value of type {} without content", TypeToString(type)));
}

Status WriteLiteral(const Literal& literal, const BlobChoice& choose, mil::Value* proto) {
  WriteType(literal.type, proto->mutable_type());
  switch (literal.type.kind) {
    case Type::Kind::kTensor: {
      MW_ASSIGN_OR_RETURN(const std::optional<BlobReference> blob, choose(literal));
      if (blob) {
        proto->mutable_blobfilevalue()->set_filename(blob->file_name);
        proto->mutable_blobfilevalue()->set_offset(blob->offset);
      } else {
        WriteTensor(literal.tensor, proto->mutable_immediatevalue()->mutable_tensor());
      }
      return {};
    }
    case Type::Kind::kList: {
      auto* list = proto->mutable_immediatevalue()->mutable_list();
      for (const Literal& element : literal.elements) {
        MW_RETURN_IF_ERROR(WriteLiteral(element, choose, list->add_values()));
      }
      return {};
    }
    case Type::Kind::kTuple: {
      auto* tuple = proto->mutable_immediatevalue()->mutable_tuple();
      for (const Literal& element : literal.elements) {
        MW_RETURN_IF_ERROR(WriteLiteral(element, choose, tuple->add_values()));
      }
      return {};
    }
    case Type::Kind::kDictionary: {
      auto* dictionary = proto->mutable_immediatevalue()->mutable_dictionary();
      for (const auto& [key, value] : literal.entries) {
        auto* entry = dictionary->add_values();
        MW_RETURN_IF_ERROR(WriteLiteral(key, choose, entry->mutable_key()));
        MW_RETURN_IF_ERROR(WriteLiteral(value, choose, entry->mutable_value()));
      }
      return {};
    }
    case Type::Kind::kState:
      break;
  }
  return Invalid("a literal cannot be a state");
}

Result<AttributeMap> ReadAttributes(const AttributeEntries& entries, const BlobLoader& load_blob) {
  AttributeMap attributes;
  for (const mil::AttributesEntry& entry : entries) {
    MW_RETURN_IF_ERROR(CheckAllKnown(entry));
    Result<Literal> literal = ReadLiteral(entry.value(), load_blob);
    if (!literal.ok()) return literal.status().WithContext(fmt::format("attribute '{}'", entry.key()));
    if (!attributes.emplace(entry.key(), *std::move(literal)).second) {
      return Invalid(fmt::format("attribute '{}' is given twice", entry.key()));
    }
  }
  return attributes;
}

}  // namespace milwright
