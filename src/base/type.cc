#include "milwright/type.h"

#include <array>
#include <cctype>
#include <limits>

#include "base/checked_math.h"

namespace milwright {
namespace {

struct DataTypeRow {
  DataType type;
  std::string_view name;
  int bits;
};

// Names as in Apple's model.mil and coremltools' type_to_str.
constexpr std::array kDataTypes = {
    DataTypeRow{DataType::kBool, "bool", 8},         DataTypeRow{DataType::kString, "string", 0},
    DataTypeRow{DataType::kFp16, "fp16", 16},        DataTypeRow{DataType::kFp32, "fp32", 32},
    DataTypeRow{DataType::kFp64, "fp64", 64},        DataTypeRow{DataType::kBf16, "bf16", 16},
    DataTypeRow{DataType::kInt8, "int8", 8},         DataTypeRow{DataType::kInt16, "int16", 16},
    DataTypeRow{DataType::kInt32, "int32", 32},      DataTypeRow{DataType::kInt64, "int64", 64},
    DataTypeRow{DataType::kInt4, "int4", 4},         DataTypeRow{DataType::kUInt8, "uint8", 8},
    DataTypeRow{DataType::kUInt16, "uint16", 16},    DataTypeRow{DataType::kUInt32, "uint32", 32},
    DataTypeRow{DataType::kUInt64, "uint64", 64},    DataTypeRow{DataType::kUInt4, "uint4", 4},
    DataTypeRow{DataType::kUInt2, "uint2", 2},       DataTypeRow{DataType::kUInt1, "uint1", 1},
    DataTypeRow{DataType::kUInt6, "uint6", 6},       DataTypeRow{DataType::kUInt3, "uint3", 3},
    DataTypeRow{DataType::kFp8E4M3, "fp8e4m3fn", 8}, DataTypeRow{DataType::kFp8E5M2, "fp8e5m2", 8},
};

struct OpsetRow {
  Opset opset;
  std::string_view name;
  std::string_view key;
  std::string_view text;
};
constexpr std::array kOpsets = {
    OpsetRow{Opset::kIOS15, "iOS15", "CoreML5", "ios15"}, OpsetRow{Opset::kIOS16, "iOS16", "CoreML6", "ios16"},
    OpsetRow{Opset::kIOS17, "iOS17", "CoreML7", "ios17"}, OpsetRow{Opset::kIOS18, "iOS18", "CoreML8", "ios18"},
    OpsetRow{Opset::kIOS26, "iOS26", "CoreML9", "ios26"},
};

const OpsetRow& RowOf(Opset opset) { return kOpsets[static_cast<size_t>(opset) - static_cast<size_t>(Opset::kIOS15)]; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

const DataTypeRow* FindRow(DataType type) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

std::string_view DataTypeName(DataType type) {
  const DataTypeRow* row = FindRow(type);
  return row != nullptr ? row->name : "invalid";
}

std::optional<DataType> DataTypeFromName(std::string_view name) {
  for (const DataTypeRow& row : kDataTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

int BitWidth(DataType type) {
  const DataTypeRow* row = FindRow(type);
  return row != nullptr ? row->bits : 0;
}

bool IsFloat(DataType type) {
  switch (type) {
    case DataType::kFp16:
    case DataType::kFp32:
    case DataType::kFp64:
    case DataType::kBf16:
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
      return true;
    default:
      return false;
  }
}

bool IsInteger(DataType type) {
  return !IsFloat(type) && type != DataType::kBool && type != DataType::kString && type != DataType::kInvalid;
}

bool IsSubByte(DataType type) {
  const int bits = BitWidth(type);
  return bits > 0 && bits < 8;
}

bool IsStatic(const Shape& shape) {
  for (int64_t size : shape) {
    if (size < 0) return false;
  }
  return true;
}

std::string ShapeToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] < 0 ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

Result<int64_t> ElementCount(const Shape& shape) {
  int64_t count = 1;
  bool overflow = false;
  for (int64_t size : shape) {
    if (size < 0) {
      return Status(ErrorCode::kUsage, "the shape " + ShapeToString(shape) + " has a size that is not known");
    }
    // A zero size makes the product zero, but the others must still be sane numbers.
    overflow = overflow || !CheckedMultiply(count, size == 0 ? 1 : size, &count);
  }
  if (overflow)
    return Status(ErrorCode::kUnreadable, "the sizes of " + ShapeToString(shape) + " multiply beyond 64 bits");
  for (int64_t size : shape) {
    if (size == 0) return 0;
  }
  return count;
}

Result<int64_t> ByteSize(const TensorType& type) {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(type.shape));
  int64_t bits = 0;
  if (!CheckedMultiply(count, BitWidth(type.dtype), &bits) || bits > std::numeric_limits<int64_t>::max() - 7) {
    return Status(ErrorCode::kUnreadable, "the bytes of " + TypeToString(type) + " are beyond 64 bits");
  }
  return (bits + 7) / 8;
}

std::string TypeToString(const TensorType& type) {
  return "tensor<" + std::string(DataTypeName(type.dtype)) + ", " + ShapeToString(type.shape) + ">";
}

Type Type::State(TensorType wrapped) {
  Type type(std::move(wrapped));
  type.kind = Kind::kState;
  return type;
}

Type Type::List(Type element, int64_t length) {
  Type type;
  type.kind = Kind::kList;
  type.elements.push_back(std::move(element));
  type.length = length;
  return type;
}

Type Type::Tuple(std::vector<Type> elements) {
  Type type;
  type.kind = Kind::kTuple;
  type.elements = std::move(elements);
  return type;
}

Type Type::Dictionary(Type key, Type value) {
  Type type;
  type.kind = Kind::kDictionary;
  type.elements.push_back(std::move(key));
  type.elements.push_back(std::move(value));
  return type;
}

std::string TypeToString(const Type& type) {
  const auto join = [&type] {
    std::string text;
    for (const Type& element : type.elements) text += (text.empty() ? "" : ", ") + TypeToString(element);
    return text;
  };
  switch (type.kind) {
    case Type::Kind::kTensor:
      return TypeToString(type.tensor);
    case Type::Kind::kState:
      return "state<" + TypeToString(type.tensor) + ">";
    case Type::Kind::kList:
      return "list<" + join() + ", " + (type.length < 0 ? "?" : std::to_string(type.length)) + ">";
    case Type::Kind::kTuple:
      return "tuple<" + join() + ">";
    case Type::Kind::kDictionary:
      return "dict<" + join() + ">";
  }
  return "invalid";
}

std::string_view OpsetName(Opset opset) { return RowOf(opset).name; }
std::string_view OpsetKey(Opset opset) { return RowOf(opset).key; }
std::string_view OpsetTextName(Opset opset) { return RowOf(opset).text; }

std::optional<Opset> OpsetFromName(std::string_view name) {
  for (const OpsetRow& row : kOpsets) {
    if (EqualIgnoringCase(name, row.name) || EqualIgnoringCase(name, row.key)) return row.opset;
  }
  return std::nullopt;
}

}  // namespace milwright
