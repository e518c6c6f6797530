// Runs one op through its registry entry, as the interpreter and the verifier do, without a program around it.
#ifndef MILWRIGHT_TESTS_OPS_RUN_OP_H_
#define MILWRIGHT_TESTS_OPS_RUN_OP_H_

#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"

namespace milwright::testing {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Parameters of a call: a literal (content known) or only a type (content known when the program runs).
class Call {
 public:
  Call(std::string op, Opset opset) : opset_(opset), definition_(OpRegistry::Get().Find(op, opset)) {}

  Call& With(std::string name, Literal value) {
    values_.push_back({std::move(name), std::move(value), true});
    return *this;
  }
  Call& WithType(std::string name, Type type) {
    Literal unknown;
    unknown.type = std::move(type);
    values_.push_back({std::move(name), std::move(unknown), false});
    return *this;
  }

  [[nodiscard]] Result<std::vector<Type>> Infer() const { return definition_->infer(Context()); }
  /// Infers, then computes.
  [[nodiscard]] Result<std::vector<Literal>> Run() const {
    const OpContext context = Context();
    MW_ASSIGN_OR_RETURN(const std::vector<Type> types, definition_->infer(context));
    return definition_->evaluate(context, types);
  }
  /// The only result of Run(), which must succeed.
  [[nodiscard]] Tensor Result1() const { return (*Run()).front().tensor; }

 private:
  struct Parameter {
    std::string name;
    Literal value;
    bool known = false;
  };
  [[nodiscard]] OpContext Context() const {
    OpContext context(*definition_, opset_);
    // Several calls with one name are the arguments of a variadic parameter.
    std::map<std::string_view, std::vector<OpContext::Argument>> bound;
    for (const Parameter& parameter : values_) {
      bound[parameter.name].push_back({&parameter.value.type, parameter.known ? &parameter.value : nullptr});
    }
    for (auto& [name, arguments] : bound) context.Bind(name, std::move(arguments));
    return context;
  }

  Opset opset_;
  const OpDefinition* definition_;
  std::deque<Parameter> values_;
};

inline Literal Floats(DataType dtype, Shape shape, const std::vector<float>& values) {
  return Literal(*Tensor::FromFloats({dtype, std::move(shape)}, values));
}
inline Literal Fp32(Shape shape, const std::vector<float>& values) {
  return Floats(DataType::kFp32, std::move(shape), values);
}
inline Literal Fp16(Shape shape, const std::vector<float>& values) {
  return Floats(DataType::kFp16, std::move(shape), values);
}
inline Literal Integers(DataType dtype, Shape shape, const std::vector<int64_t>& values) {
  return Literal(*Tensor::VectorOf(dtype, values).Reshaped(std::move(shape)));
}
inline Literal Int32s(Shape shape, const std::vector<int64_t>& values) {
  return Integers(DataType::kInt32, std::move(shape), values);
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_OPS_RUN_OP_H_
