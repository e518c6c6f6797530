// Calls one op of the registry directly, through OpContext: what the tests of the op families use.
#ifndef MILWRIGHT_TESTS_OPS_OP_CALL_H_
#define MILWRIGHT_TESTS_OPS_OP_CALL_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "run_op.h"

namespace milwright::testing {

/// A Call with setters for the parameters that these families take; Infer and Run may be called any number of times.
class OpCall {
 public:
  explicit OpCall(std::string_view op, Opset opset = Opset::kIOS18) : call_(std::string(op), opset) {}

  /// An argument with known content.
  OpCall& Value(std::string_view parameter, Literal value) {
    call_.With(std::string(parameter), std::move(value));
    return *this;
  }
  OpCall& Value(std::string_view parameter, Tensor value) { return Value(parameter, Literal(std::move(value))); }
  /// Several arguments of a variadic parameter.
  OpCall& Values(std::string_view parameter, const std::vector<Tensor>& values) {
    for (const Tensor& value : values) Value(parameter, value);
    return *this;
  }
  OpCall& Floats(std::string_view parameter, Shape shape, const std::vector<float>& values,
                 DataType dtype = DataType::kFp32) {
    return Value(parameter, testing::Floats(dtype, std::move(shape), values));
  }
  OpCall& Float(std::string_view parameter, double value) {
    return Value(parameter, Literal::Float(DataType::kFp32, value));
  }
  OpCall& Ints(std::string_view parameter, const std::vector<int64_t>& values) {
    return Value(parameter, Literal::Int32s(values));
  }
  OpCall& Int(std::string_view parameter, int64_t value) { return Value(parameter, Literal::Int32(value)); }
  OpCall& Bool(std::string_view parameter, bool value) { return Value(parameter, Literal::Bool(value)); }
  OpCall& Text(std::string_view parameter, std::string value) {
    return Value(parameter, Literal::String(std::move(value)));
  }
  /// An argument of which only the type is known, as in the verifier.
  OpCall& Typed(std::string_view parameter, DataType dtype, Shape shape) {
    call_.WithType(std::string(parameter), Type::Tensor(dtype, std::move(shape)));
    return *this;
  }

  [[nodiscard]] Result<std::vector<Type>> Infer() const { return call_.Infer(); }
  /// The error text of inference, or "" when it succeeds.
  [[nodiscard]] std::string InferError() const { return Infer().status().message(); }
  /// The one inferred shape as text, or the error.
  [[nodiscard]] std::string InferredShape() const {
    const auto types = Infer();
    return types.ok() ? ShapeToString(types->front().shape()) : types.status().message();
  }
  /// Inference and kernel: the outputs.
  [[nodiscard]] Result<std::vector<Tensor>> Run() const {
    MW_ASSIGN_OR_RETURN(std::vector<Literal> results, call_.Run());
    std::vector<Tensor> tensors;
    for (Literal& result : results) tensors.push_back(std::move(result.tensor));
    return tensors;
  }
  /// The elements of output `index` as floats; empty when the call fails.
  [[nodiscard]] std::vector<float> Output(size_t index = 0) const {
    const auto results = Run();
    return results.ok() && index < results->size() ? (*results)[index].ToFloats() : std::vector<float>();
  }

 private:
  Call call_;
};

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_OPS_OP_CALL_H_
