// Unary and binary arithmetic, comparison, logic, cast and select. Semantics: op-semantics.md, section 3.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "ops/op.h"
#include "ops/pointwise.h"

namespace milwright {
namespace {

// ---- unary functions of one number ----

double Abs(double x) { return std::fabs(x); }
double Acos(double x) { return std::acos(x); }
double Asin(double x) { return std::asin(x); }
double Atan(double x) { return std::atan(x); }
double Atanh(double x) { return std::atanh(x); }
double Ceil(double x) { return std::ceil(x); }
double Cos(double x) { return std::cos(x); }
double Cosh(double x) { return std::cosh(x); }
double Erf(double x) { return std::erf(x); }
double Exp(double x) { return std::exp(x); }
double Exp2(double x) { return std::exp2(x); }
double Floor(double x) { return std::floor(x); }
double Round(double x) { return std::nearbyint(x); }  // halves to even, the default rounding mode
double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
double Sin(double x) { return std::sin(x); }
double Sinh(double x) { return std::sinh(x); }
double Sqrt(double x) { return std::sqrt(x); }
double Square(double x) { return x * x; }
double Tan(double x) { return std::tan(x); }
double Tanh(double x) { return std::tanh(x); }
double Inverse(double x, double epsilon) { return 1 / (x + epsilon); }
double Log(double x, double epsilon) { return std::log(x + epsilon); }
double Rsqrt(double x, double epsilon) { return 1 / std::sqrt(x + epsilon); }
double Clip(double x, double alpha, double beta) { return Minimum(Maximum(x, alpha), beta); }

int64_t IntegerAbs(int64_t x) { return x < 0 ? -x : x; }
int64_t IntegerSign(int64_t x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
int64_t IntegerMaximum(int64_t x, int64_t y) { return std::max(x, y); }
int64_t IntegerMinimum(int64_t x, int64_t y) { return std::min(x, y); }
int64_t IntegerSquare(int64_t x) { return WrappingMultiply(x, x); }
int64_t LogicalNot(int64_t x) { return x == 0 ? 1 : 0; }

// The result stays int32: fractions truncate to 0, and 2^31 and beyond saturate.
int64_t IntegerExp2(int64_t x) {
  if (x < 0) return 0;
  return x > 30 ? std::numeric_limits<int32_t>::max() : int64_t{1} << x;
}

// The bounds must be in order from iOS17 on; before, min(max(x, alpha), beta) decides.
Result<std::vector<Type>> InferClip(const OpContext& ctx) {
  if (ctx.definition().since >= Opset::kIOS17 && ctx.Known("alpha") && ctx.Known("beta") &&
      ctx.Double("alpha") >= ctx.Double("beta")) {
    return ctx.Error(fmt::format("alpha ({}) must be less than beta ({})", ctx.Double("alpha"), ctx.Double("beta")));
  }
  return InferPointwise(ctx);
}

// ---- binary functions ----

double Add(double x, double y) { return x + y; }
double Subtract(double x, double y) { return x - y; }
double Multiply(double x, double y) { return x * y; }
double Divide(double x, double y) { return x / y; }
double Power(double x, double y) { return std::pow(x, y); }

// The remainder takes the sign of the divisor.
double Modulo(double x, double y) {
  const double remainder = std::fmod(x, y);
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}

// x minus its remainder is a whole multiple of y up to rounding, so the quotient lies next to an integer; x / y itself
// could round up to an integer that it does not reach.
double FloorDivide(double x, double y) {
  if (y == 0 || std::isinf(x)) return x / y;
  const double remainder = std::fmod(x, y);
  const double toward_zero = std::nearbyint((x - remainder) / y);
  return remainder != 0 && (remainder < 0) != (y < 0) ? toward_zero - 1 : toward_zero;
}

int64_t IntegerSubtract(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) - static_cast<uint64_t>(y));
}
// A zero divisor gives 0, as in NumPy: there is no integer infinity, and a program must not fault.
int64_t IntegerDivide(int64_t x, int64_t y) { return y == 0 ? 0 : x / y; }
int64_t IntegerModulo(int64_t x, int64_t y) {
  if (y == 0) return 0;
  const int64_t remainder = x % y;
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}
int64_t IntegerFloorDivide(int64_t x, int64_t y) { return y == 0 ? 0 : (x - IntegerModulo(x, y)) / y; }

int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {  // 1 / base^|exponent| truncated; 0 has no inverse
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = WrappingMultiply(result, base);
    base = WrappingMultiply(base, base);
  }
  return result;
}

Result<std::vector<Type>> InferBroadcast(const OpContext& ctx, DataType dtype) {
  Result<Shape> shape = BroadcastShapes(ctx.ShapeOf("x"), ctx.ShapeOf("y"));
  if (!shape.ok()) return ctx.Error(shape.status().message());
  return std::vector<Type>{Type::Tensor(dtype, *std::move(shape))};
}
Result<std::vector<Type>> InferBinary(const OpContext& ctx) { return InferBroadcast(ctx, ctx.DTypeOf("x")); }
Result<std::vector<Type>> InferComparison(const OpContext& ctx) { return InferBroadcast(ctx, DataType::kBool); }

// Element i of the result is function(x[i], y[i]) over the broadcast of x and y.
template <typename In, typename Function>
Result<std::vector<Literal>> MapPairs(const OpContext& ctx, const TensorType& type, const std::vector<In>& x,
                                      const std::vector<In>& y, Function&& function) {
  const std::vector<int64_t> x_strides = BroadcastStrides(ctx.TensorOf("x")->shape(), type.shape);
  const std::vector<int64_t> y_strides = BroadcastStrides(ctx.TensorOf("y")->shape(), type.shape);
  return One(BuildTensor(type, [&](auto&& store) {
    ForEachPosition<2>(type.shape, {x_strides, y_strides}, [&](int64_t i, const std::array<int64_t, 2>& at) {
      store(i, function(x[static_cast<size_t>(at[0])], y[static_cast<size_t>(at[1])]));
    });
  }));
}

// kMath in double, which is exact enough for one rounding of + - * / to fp32; kIntegerMath in int64.
template <auto kMath, auto kIntegerMath>
Result<std::vector<Literal>> EvaluateBinary(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Tensor& y = *ctx.TensorOf("y");
  const TensorType& type = types.front().tensor;
  if (!IsFloat(type.dtype)) return MapPairs(ctx, type, x.ToInts(), y.ToInts(), kIntegerMath);
  return MapPairs(ctx, type, x.ToFloats(), y.ToFloats(), [](float a, float b) { return kMath(a, b); });
}

// Comparison and logic: `Predicate` is a transparent functor such as std::less<>.
template <typename Predicate>
Result<std::vector<Literal>> EvaluatePredicate(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Tensor& y = *ctx.TensorOf("y");
  const TensorType& type = types.front().tensor;
  const auto predicate = [](auto a, auto b) { return int64_t{Predicate()(a, b) ? 1 : 0}; };
  if (!IsFloat(x.dtype())) return MapPairs(ctx, type, x.ToInts(), y.ToInts(), predicate);
  return MapPairs(ctx, type, x.ToFloats(), y.ToFloats(), predicate);
}

// ---- cast ----

// The targets of a version are the types it takes.
Result<std::vector<Type>> InferCast(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const DataType dtype, DataTypeParameter(ctx, "dtype"));
  if (!ctx.definition().Find("x")->types.Contains(dtype)) {
    return ctx.Error(fmt::format("cannot cast to {} in opset {}", DataTypeName(dtype), OpsetName(ctx.opset())));
  }
  return std::vector<Type>{Type::Tensor(dtype, ctx.ShapeOf("x"))};
}

// Floats truncate toward zero, saturate and give 0 for NaN; integers wrap (field-reports.md, T23 and T24); bool is
// x != 0.
Result<std::vector<Literal>> EvaluateCast(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  const Tensor& x = *ctx.TensorOf("x");
  if (x.dtype() == type.dtype) return One(x);
  return WithNumbers(x, [&type](const auto& values) { return One(MakeTensor(type, values)); });
}

// ---- select ----

Result<std::vector<Type>> InferSelect(const OpContext& ctx) {
  const Shape& condition = ctx.ShapeOf("cond");
  Result<Shape> shape = BroadcastShapes(ctx.ShapeOf("a"), ctx.ShapeOf("b"));
  if (!shape.ok()) return ctx.Error(shape.status().message());
  // The result takes its shape from a and b alone; cond is stretched to it, never the other way.
  bool fits = condition.size() <= shape->size();
  for (size_t i = 0; fits && i < condition.size(); ++i) {
    const int64_t mine = condition[condition.size() - 1 - i];
    const int64_t wanted = (*shape)[shape->size() - 1 - i];
    fits = mine == 1 || mine == kUnknownDim || wanted == kUnknownDim || mine == wanted;
  }
  if (!fits) {
    return ctx.Error(fmt::format("cond of shape {} does not broadcast to the shape {} of a and b",
                                 ShapeToString(condition), ShapeToString(*shape)));
  }
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("a"), *std::move(shape))};
}

// Elements are copied as bits of their width, so that what is not selected cannot leak.
template <typename Bits>
Result<std::vector<Literal>> Select(const OpContext& ctx, const TensorType& type) {
  const Tensor& cond = *ctx.TensorOf("cond");
  const Tensor& a = *ctx.TensorOf("a");
  const Tensor& b = *ctx.TensorOf("b");
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(type));
  const std::span<Bits> out = result.MutableAs<Bits>();
  const std::span<const uint8_t> choice = cond.As<uint8_t>();
  const std::span<const Bits> when_true = a.As<Bits>();
  const std::span<const Bits> when_false = b.As<Bits>();
  ForEachPosition<3>(type.shape,
                     {BroadcastStrides(cond.shape(), type.shape), BroadcastStrides(a.shape(), type.shape),
                      BroadcastStrides(b.shape(), type.shape)},
                     [&](int64_t i, const std::array<int64_t, 3>& at) {
                       out[static_cast<size_t>(i)] = choice[static_cast<size_t>(at[0])] != 0
                                                         ? when_true[static_cast<size_t>(at[1])]
                                                         : when_false[static_cast<size_t>(at[2])];
                     });
  return One(std::move(result));
}

Result<std::vector<Literal>> EvaluateSelect(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  switch (BitWidth(type.dtype)) {
    case 8:
      return Select<uint8_t>(ctx, type);
    case 16:
      return Select<uint16_t>(ctx, type);
    default:
      return Select<uint32_t>(ctx, type);
  }
}

// ---- identity ----

// Any one value but a state: coremltools once wrote such programs, which Core ML refuses (field-reports.md, report 7).
Result<std::vector<Type>> InferIdentity(const OpContext& ctx) {
  if (ctx.Arguments("x").size() != 1) {
    return ctx.Error(fmt::format("parameter 'x' takes one argument, but has {}", ctx.Arguments("x").size()));
  }
  if (ctx.TypeOf("x").IsState()) {
    return ctx.Error(
        fmt::format("x is a {}; a state can only be read and written: use read_state", TypeToString(ctx.TypeOf("x"))));
  }
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateIdentity(const OpContext& ctx, const std::vector<Type>&) {
  return std::vector<Literal>{*ctx.ValueOf("x")};
}

}  // namespace

std::vector<OpDefinition> ElementwiseOps() {
  const auto unary = [](std::string_view name, EvaluateFunction evaluate, std::string_view types = "fp16|fp32") {
    return Op(Opset::kIOS15, fmt::format("{}(T x) where T={}", name, types), InferPointwise, evaluate);
  };
  // From iOS17 on, epsilon may be of another float type than x.
  const auto with_epsilon = [](Opset since, std::string_view name, std::string_view epsilon,
                               EvaluateFunction evaluate) {
    const std::string_view schema = since < Opset::kIOS17
                                        ? "{}(T x, const T epsilon={}) where T=fp16|fp32"
                                        : "{}(T x, const U epsilon={}) where T=fp16|fp32, U=fp16|fp32";
    return Op(since, fmt::format(fmt::runtime(schema), name, epsilon), InferPointwise, evaluate);
  };
  const auto binary = [](std::string_view name, EvaluateFunction evaluate) {
    return Op(Opset::kIOS15, fmt::format("{}(T x, T y) where T=fp16|fp32|int32", name), InferBinary, evaluate);
  };
  const auto comparison = [](std::string_view name, EvaluateFunction evaluate,
                             std::string_view types = "fp16|fp32|int32") {
    return Op(Opset::kIOS15, fmt::format("{}(T x, T y) where T={}", name, types), InferComparison, evaluate);
  };
  constexpr std::string_view kWithInt = "fp16|fp32|int32";
  return {
      unary("abs", EvaluatePointwise<Abs, IntegerAbs>, kWithInt),
      unary("acos", EvaluatePointwise<Acos>),
      unary("asin", EvaluatePointwise<Asin>),
      unary("atan", EvaluatePointwise<Atan>),
      unary("atanh", EvaluatePointwise<Atanh>),
      unary("ceil", EvaluatePointwise<Ceil>),
      unary("cos", EvaluatePointwise<Cos>),
      unary("cosh", EvaluatePointwise<Cosh>),
      unary("erf", EvaluatePointwise<Erf>),
      unary("exp", EvaluatePointwise<Exp>),
      unary("exp2", EvaluatePointwise<Exp2, IntegerExp2>, kWithInt),
      unary("floor", EvaluatePointwise<Floor>),
      unary("round", EvaluatePointwise<Round>),
      unary("sign", EvaluatePointwise<Sign, IntegerSign>, kWithInt),
      unary("sin", EvaluatePointwise<Sin>),
      unary("sinh", EvaluatePointwise<Sinh>),
      unary("sqrt", EvaluatePointwise<Sqrt>),
      unary("square", EvaluatePointwise<Square, IntegerSquare>, kWithInt),
      unary("tan", EvaluatePointwise<Tan>),
      unary("tanh", EvaluatePointwise<Tanh>),
      with_epsilon(Opset::kIOS15, "inverse", "9.999999747378752e-05", EvaluatePointwise<Inverse>),
      with_epsilon(Opset::kIOS17, "inverse", "9.999999747378752e-05", EvaluatePointwise<Inverse>),
      with_epsilon(Opset::kIOS15, "log", "1.401298464324817e-45", EvaluatePointwise<Log>),
      with_epsilon(Opset::kIOS17, "log", "1.401298464324817e-45", EvaluatePointwise<Log>),
      with_epsilon(Opset::kIOS15, "rsqrt", "9.999999960041972e-13", EvaluatePointwise<Rsqrt>),
      with_epsilon(Opset::kIOS17, "rsqrt", "9.999999960041972e-13", EvaluatePointwise<Rsqrt>),
      Op(Opset::kIOS15, "logical_not(bool x)", InferPointwise, EvaluatePointwise<Abs, LogicalNot>),
      Op(Opset::kIOS15, "threshold(T x, const T alpha) where T=fp16|fp32|int32", InferPointwise,
         EvaluatePointwise<Maximum, IntegerMaximum>),
      Op(Opset::kIOS15, "clip(T x, const T alpha, const T beta) where T=fp16|fp32", InferClip, EvaluatePointwise<Clip>),
      Op(Opset::kIOS17, "clip(T x, const T alpha, const T beta) where T=fp16|fp32", InferClip, EvaluatePointwise<Clip>),
      binary("add", EvaluateBinary<Add, WrappingAdd>),
      binary("sub", EvaluateBinary<Subtract, IntegerSubtract>),
      binary("mul", EvaluateBinary<Multiply, WrappingMultiply>),
      binary("real_div", EvaluateBinary<Divide, IntegerDivide>),
      binary("floor_div", EvaluateBinary<FloorDivide, IntegerFloorDivide>),
      binary("mod", EvaluateBinary<Modulo, IntegerModulo>),
      binary("pow", EvaluateBinary<Power, IntegerPower>),
      binary("maximum", EvaluateBinary<Maximum, IntegerMaximum>),
      binary("minimum", EvaluateBinary<Minimum, IntegerMinimum>),
      comparison("equal", EvaluatePredicate<std::equal_to<>>),
      comparison("not_equal", EvaluatePredicate<std::not_equal_to<>>),
      comparison("greater", EvaluatePredicate<std::greater<>>),
      comparison("greater_equal", EvaluatePredicate<std::greater_equal<>>),
      comparison("less", EvaluatePredicate<std::less<>>),
      comparison("less_equal", EvaluatePredicate<std::less_equal<>>),
      comparison("logical_and", EvaluatePredicate<std::logical_and<>>, "bool"),
      comparison("logical_or", EvaluatePredicate<std::logical_or<>>, "bool"),
      comparison("logical_xor", EvaluatePredicate<std::not_equal_to<>>, "bool"),
      Op(Opset::kIOS15, "cast(T x, const string dtype) where T=fp16|fp32|int32|bool", InferCast, EvaluateCast),
      Op(Opset::kIOS17, "cast(T x, const string dtype) where T=fp16|fp32|int8|uint8|int16|uint16|int32|bool", InferCast,
         EvaluateCast),
      Op(Opset::kIOS15, "select(bool cond, T a, T b) where T=fp16|fp32|bool|int32", InferSelect, EvaluateSelect),
      Op(Opset::kIOS15, "identity(any x)", InferIdentity, EvaluateIdentity),
  };
}

}  // namespace milwright
