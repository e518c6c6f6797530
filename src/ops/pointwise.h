// Kernels that apply one scalar function to every element. An op is then one table entry: a schema line and a function.
#ifndef MILWRIGHT_OPS_POINTWISE_H_
#define MILWRIGHT_OPS_POINTWISE_H_

#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "ops/kernel_helpers.h"

namespace milwright {

/// The smaller / larger number; NaN when one is NaN, as NumPy (and the goldens in shared/ops) have it.
inline double Minimum(double x, double y) { return std::isnan(x) || x < y ? x : y; }
inline double Maximum(double x, double y) { return std::isnan(x) || x > y ? x : y; }
inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The number parameters behind x (alpha, beta, epsilon, ...) in schema order. A default takes the type of x, so that
/// epsilon 1e-12 is 0 in fp16 (op-semantics.md, section 3).
using Scalars = std::array<double, 2>;
Scalars ScalarParameters(const OpContext& ctx);

/// x's type; an error when a number parameter holds more than one number.
Result<std::vector<Type>> InferPointwise(const OpContext& ctx);

/// kMath(x), kMath(x, first) or kMath(x, first, second), by its arity.
template <auto kMath, typename T>
T ApplyScalar(T x, const Scalars& scalars) {
  using Function = decltype(kMath);
  const T first = static_cast<T>(scalars[0]);
  const T second = static_cast<T>(scalars[1]);
  if constexpr (std::is_invocable_v<Function, T, T, T>) {
    return kMath(x, first, second);
  } else if constexpr (std::is_invocable_v<Function, T, T>) {
    return kMath(x, first);
  } else {
    return kMath(x);
  }
}

/// Element by element kMath over float tensors: computed in double, rounded once to the result type.
template <auto kMath>
Result<std::vector<Literal>> MapFloats(const Tensor& x, const TensorType& type, const Scalars& scalars) {
  std::vector<float> values = x.ToFloats();
  for (float& value : values) value = static_cast<float>(ApplyScalar<kMath, double>(value, scalars));
  return One(MakeTensor(type, values));
}

/// Kernel of an op with parameter x and up to two number parameters. kIntegerMath serves integers and bools (in int64,
/// wrapped to the type).
template <auto kMath, auto kIntegerMath = nullptr>
Result<std::vector<Literal>> EvaluatePointwise(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Scalars scalars = ScalarParameters(ctx);
  if constexpr (!std::is_null_pointer_v<decltype(kIntegerMath)>) {
    if (!IsFloat(x.dtype())) {
      std::vector<int64_t> values = x.ToInts();
      for (int64_t& value : values) value = ApplyScalar<kIntegerMath, int64_t>(value, scalars);
      return One(MakeTensor(types.front().tensor, values));
    }
  }
  return MapFloats<kMath>(x, types.front().tensor, scalars);
}

}  // namespace milwright

#endif  // MILWRIGHT_OPS_POINTWISE_H_
