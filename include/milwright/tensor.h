// Tensor: a dense, typed, shaped block of elements; the currency of the interpreter, of constants and of predictions.
#ifndef MILWRIGHT_TENSOR_H_
#define MILWRIGHT_TENSOR_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

/// A dense row-major tensor with a static shape.
///
/// Storage is little endian in the element's own width; bools take a byte (0 or 1); sub-byte types are one LSB-first
/// bit stream, as in weight.bin (package-format.md, section 4). Copies share storage; the first write through a shared
/// or borrowed tensor copies it, so a Tensor behaves as a value. Strings live beside, one std::string an element.
class Tensor {
 public:
  Tensor() = default;

  /// All elements zero (false, ""). Fails when the shape is not static or its size overflows or is beyond memory.
  static Result<Tensor> Zeros(const TensorType& type);
  /// Takes over `bytes`, whose size must be ByteSize(type).
  static Result<Tensor> FromBytes(const TensorType& type, std::vector<std::byte> bytes);
  /// Borrows `bytes` (a mapped file), kept alive by `owner`; nothing is read until an element is.
  static Result<Tensor> Borrow(const TensorType& type, std::span<const std::byte> bytes,
                               std::shared_ptr<const void> owner);
  /// A tensor of strings.
  static Result<Tensor> FromStrings(Shape shape, std::vector<std::string> values);
  /// Rank-0 or rank-1 tensors of small constants; values are converted to `dtype` as Set* would.
  static Tensor Scalar(DataType dtype, double value);
  static Tensor ScalarString(std::string value);
  static Tensor VectorOf(DataType dtype, const std::vector<int64_t>& values);
  /// From floats, rounded to `type.dtype`; `values.size()` must be the element count.
  static Result<Tensor> FromFloats(const TensorType& type, std::span<const float> values);

  [[nodiscard]] const TensorType& type() const { return type_; }
  [[nodiscard]] DataType dtype() const { return type_.dtype; }
  [[nodiscard]] const Shape& shape() const { return type_.shape; }
  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(type_.shape.size()); }
  [[nodiscard]] int64_t size() const { return size_; }  ///< elements

  [[nodiscard]] std::span<const std::byte> bytes() const;
  /// Writable bytes; copies first when the storage is shared or borrowed.
  std::span<std::byte> mutable_bytes();
  /// The elements as T, whose size must be the element width (fp16 and bf16 as uint16_t).
  template <typename T>
  [[nodiscard]] std::span<const T> As() const {
    return {reinterpret_cast<const T*>(bytes().data()), static_cast<size_t>(size_)};
  }
  template <typename T>
  std::span<T> MutableAs() {
    return {reinterpret_cast<T*>(mutable_bytes().data()), static_cast<size_t>(size_)};
  }
  [[nodiscard]] const std::vector<std::string>& strings() const;

  /// Element `i` in row-major order as a number, whatever the type (bool: 0 or 1).
  [[nodiscard]] double GetDouble(int64_t i) const;
  [[nodiscard]] float GetFloat(int64_t i) const { return static_cast<float>(GetDouble(i)); }
  [[nodiscard]] int64_t GetInt(int64_t i) const;
  /// Stores `value` rounded to nearest even (floats) or saturated and truncated toward zero, NaN to 0 (integers).
  void SetDouble(int64_t i, double value);
  /// Stores the low bits of `value` (integers wrap), or the value rounded (floats).
  void SetInt(int64_t i, int64_t value);

  /// All elements as floats, or as integers.
  [[nodiscard]] std::vector<float> ToFloats() const;
  [[nodiscard]] std::vector<int64_t> ToInts() const;

  /// The same elements under another shape of equal element count.
  [[nodiscard]] Result<Tensor> Reshaped(Shape shape) const;

  /// Same type and same bytes (so NaN equals the same NaN, and 0 differs from -0).
  [[nodiscard]] bool BitEquals(const Tensor& other) const;

 private:
  TensorType type_;
  int64_t size_ = 0;
  std::shared_ptr<std::byte[]> owned_;  // owned_bytes_ of them
  size_t owned_bytes_ = 0;
  std::span<const std::byte> borrowed_;
  std::shared_ptr<const void> borrowed_owner_;
  std::shared_ptr<const std::vector<std::string>> strings_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TENSOR_H_
