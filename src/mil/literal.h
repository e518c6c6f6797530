// Literal: a value known without running: the content of a const op, an attribute, or a bound parameter; and, at run
// time, any value that flows through a program (lists included).
#ifndef MILWRIGHT_MIL_LITERAL_H_
#define MILWRIGHT_MIL_LITERAL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "milwright/tensor.h"
#include "milwright/type.h"

namespace milwright {

/// Where a tensor's bytes lie in a weight file. `offset` is that of the blob's metadata record, as in the file.
struct BlobReference {
  std::string file_name;  ///< as written, e.g. "@model_path/weights/weight.bin"
  uint64_t offset = 0;

  bool operator==(const BlobReference&) const = default;
};

class Literal;
using LiteralPtr = std::shared_ptr<const Literal>;

/// A typed value: a tensor, a list or tuple of values, or a dictionary.
class Literal {
 public:
  Literal() = default;
  explicit Literal(Tensor tensor) : type(tensor.type()), tensor(std::move(tensor)) {}
  /// A tensor whose bytes are borrowed from a weight file.
  Literal(Tensor tensor, BlobReference blob) : type(tensor.type()), tensor(std::move(tensor)), blob(std::move(blob)) {}

  static Literal String(std::string text) { return Literal(Tensor::ScalarString(std::move(text))); }
  static Literal Int32(int64_t value) { return Literal(Tensor::Scalar(DataType::kInt32, static_cast<double>(value))); }
  static Literal Bool(bool value) { return Literal(Tensor::Scalar(DataType::kBool, value ? 1 : 0)); }
  static Literal Int32s(const std::vector<int64_t>& values) {
    return Literal(Tensor::VectorOf(DataType::kInt32, values));
  }
  static Literal Bools(const std::vector<int64_t>& values) {
    return Literal(Tensor::VectorOf(DataType::kBool, values));
  }
  static Literal Float(DataType dtype, double value) { return Literal(Tensor::Scalar(dtype, value)); }
  static LiteralPtr Share(Literal literal) { return std::make_shared<const Literal>(std::move(literal)); }

  [[nodiscard]] bool IsString() const {
    return type.IsTensor() && type.dtype() == DataType::kString && type.rank() == 0;
  }
  /// The text of a string scalar; empty for anything else.
  [[nodiscard]] std::string AsString() const { return IsString() ? tensor.strings().front() : std::string(); }

  /// Equal type and content (tensors by their bytes); where the bytes come from does not matter.
  bool operator==(const Literal& other) const;

  Type type;
  Tensor tensor;                                     ///< kTensor
  std::vector<Literal> elements;                     ///< kList, kTuple
  std::vector<std::pair<Literal, Literal>> entries;  ///< kDictionary, in file order
  std::optional<BlobReference> blob;                 ///< set when the tensor lies in a weight file
};

}  // namespace milwright

#endif  // MILWRIGHT_MIL_LITERAL_H_
