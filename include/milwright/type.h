// Data types, tensor types and MIL types.
#ifndef MILWRIGHT_TYPE_H_
#define MILWRIGHT_TYPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"

namespace milwright {

/// Element types of MIL tensors. The numbers are those of `DataType` in coremltools' MIL.proto.
enum class DataType : uint8_t {
  kInvalid = 0,
  kBool = 1,
  kString = 2,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kBf16 = 13,
  kInt8 = 21,
  kInt16 = 22,
  kInt32 = 23,
  kInt64 = 24,
  kInt4 = 25,
  kUInt8 = 31,
  kUInt16 = 32,
  kUInt32 = 33,
  kUInt64 = 34,
  kUInt4 = 35,
  kUInt2 = 36,
  kUInt1 = 37,
  kUInt6 = 38,
  kUInt3 = 39,
  kFp8E4M3 = 40,
  kFp8E5M2 = 41,
};

/// MIL's name of a data type: "fp16", "int32", "bool", "string", "uint4", ...
std::string_view DataTypeName(DataType type);
/// The data type of a MIL name, or nullopt.
std::optional<DataType> DataTypeFromName(std::string_view name);
/// Bits of one stored element; 0 for strings. Bools take 8.
int BitWidth(DataType type);
bool IsFloat(DataType type);
bool IsInteger(DataType type);  ///< signed or unsigned integers of any width; not bool
bool IsSubByte(DataType type);

/// Sizes of a tensor, outermost first. `kUnknownDim` stands for a size that is known only at run time.
using Shape = std::vector<int64_t>;
inline constexpr int64_t kUnknownDim = -1;

bool IsStatic(const Shape& shape);
/// "[1, 2, ?]"
std::string ShapeToString(const Shape& shape);
/// Number of elements of a static shape, or an error when a size is unknown or negative or the product overflows int64.
Result<int64_t> ElementCount(const Shape& shape);

struct TensorType {
  DataType dtype = DataType::kInvalid;
  Shape shape;

  bool operator==(const TensorType&) const = default;
};

/// Bytes that a dense tensor of this type takes (sub-byte types packed, rounded up), overflow-checked.
Result<int64_t> ByteSize(const TensorType& type);
/// "tensor<fp16, [1, 2]>"
std::string TypeToString(const TensorType& type);

/// Any MIL type. A state wraps a tensor type; list, tuple and dictionary hold element types in `elements`
/// (list: one; dictionary: key and value).
struct Type {
  enum class Kind : uint8_t { kTensor, kState, kList, kTuple, kDictionary };

  Kind kind = Kind::kTensor;
  TensorType tensor;             ///< kTensor, kState
  std::vector<Type> elements;    ///< kList, kTuple, kDictionary
  int64_t length = kUnknownDim;  ///< kList: number of elements

  Type() = default;
  Type(TensorType type) : tensor(std::move(type)) {}  // NOLINT(google-explicit-constructor): a tensor type is a type
  static Type Tensor(DataType dtype, Shape shape) { return TensorType{dtype, std::move(shape)}; }
  static Type Scalar(DataType dtype) { return TensorType{dtype, {}}; }
  static Type State(TensorType wrapped);
  static Type List(Type element, int64_t length);
  static Type Tuple(std::vector<Type> elements);
  static Type Dictionary(Type key, Type value);

  [[nodiscard]] bool IsTensor() const { return kind == Kind::kTensor; }
  [[nodiscard]] bool IsState() const { return kind == Kind::kState; }
  [[nodiscard]] bool IsList() const { return kind == Kind::kList; }
  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(tensor.shape.size()); }
  [[nodiscard]] DataType dtype() const { return tensor.dtype; }
  [[nodiscard]] const Shape& shape() const { return tensor.shape; }

  bool operator==(const Type&) const = default;
};

/// "tensor<fp16, [1, 2]>", "state<tensor<fp16, [4]>>", "list<tensor<...>, 3>", "tuple<...>", "dict<k, v>"
std::string TypeToString(const Type& type);

/// The versions of the op set, by Core ML specification version (package-format.md, section 3).
enum class Opset : uint8_t { kIOS15 = 6, kIOS16 = 7, kIOS17 = 8, kIOS18 = 9, kIOS26 = 10 };

/// "iOS18", as coremltools spells it.
std::string_view OpsetName(Opset opset);
/// "CoreML8": the key in a function's block_specializations.
std::string_view OpsetKey(Opset opset);
/// "ios18": the form in MIL text.
std::string_view OpsetTextName(Opset opset);
/// Reads any of the three spellings, case-insensitively.
std::optional<Opset> OpsetFromName(std::string_view name);

}  // namespace milwright

#endif  // MILWRIGHT_TYPE_H_
