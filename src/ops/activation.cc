// Activations and softmax. Formulas: op-semantics.md, section 3.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/axes.h"
#include "ops/op.h"
#include "ops/pointwise.h"

namespace milwright {
namespace {

double ClampedRelu(double x, double alpha, double beta) { return Minimum(beta, x >= 0 ? x : alpha * x); }
double Elu(double x, double alpha) { return x > 0 ? x : alpha * std::expm1(x); }
double LeakyRelu(double x, double alpha) { return x < 0 ? alpha * x : x; }
double LinearActivation(double x, double alpha, double beta) { return alpha * x + beta; }
double Relu(double x) { return Maximum(x, 0); }
double Relu6(double x) { return Minimum(Maximum(x, 0), 6); }
double ScaledTanh(double x, double alpha, double beta) { return alpha * std::tanh(beta * x); }
double SigmoidHard(double x, double alpha, double beta) { return Minimum(Maximum(alpha * x + beta, 0), 1); }
double Silu(double x) { return x * Sigmoid(x); }
double Softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + Maximum(x, 0); }
double SoftplusParametric(double x, double alpha, double beta) { return alpha * Softplus(beta * x); }
double Softsign(double x) { return x / (1 + std::fabs(x)); }
double ThresholdedRelu(double x, double alpha) { return x >= alpha ? x : 0; }

// ---- gelu ----

double GeluExact(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double GeluTanh(double x) {
  const double slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  return 0.5 * x * (1 + std::tanh(slope * (x + 0.044715 * x * x * x)));
}
double GeluSigmoid(double x) { return x * Sigmoid(1.702 * x); }

struct GeluMode {
  std::string_view name;
  Result<std::vector<Literal>> (*map)(const Tensor& x, const TensorType& type, const Scalars& scalars);
};
constexpr GeluMode kGeluModes[] = {
    {"EXACT", MapFloats<GeluExact>},
    {"TANH_APPROXIMATION", MapFloats<GeluTanh>},
    {"SIGMOID_APPROXIMATION", MapFloats<GeluSigmoid>},
};

const GeluMode* FindGeluMode(const OpContext& ctx) {
  const std::string name = ctx.String("mode");
  for (const GeluMode& mode : kGeluModes) {
    if (mode.name == name) return &mode;
  }
  return nullptr;
}

Result<std::vector<Type>> InferGelu(const OpContext& ctx) {
  if (FindGeluMode(ctx) == nullptr) {
    return ctx.Error(
        fmt::format("mode '{}' is none of EXACT, TANH_APPROXIMATION, SIGMOID_APPROXIMATION", ctx.String("mode")));
  }
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateGelu(const OpContext& ctx, const std::vector<Type>& types) {
  return FindGeluMode(ctx)->map(*ctx.TensorOf("x"), types.front().tensor, Scalars{});
}

// ---- one parameter per channel (axis 1): prelu, softplus_parametric ----

Result<std::vector<Type>> InferPerChannel(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  if (x.size() < 3 || x.size() > 5) {
    return ctx.Error(fmt::format("x must have rank 3, 4 or 5, but has shape {}", ShapeToString(x)));
  }
  for (const ParameterSpec& parameter : ctx.definition().parameters) {
    if (parameter.name == "x") continue;
    const Shape& shape = ctx.ShapeOf(parameter.name);
    if (shape.size() != 1 || (shape[0] != x[1] && shape[0] != kUnknownDim && x[1] != kUnknownDim)) {
      return ctx.Error(fmt::format("{} of shape {} must hold one number per channel (axis 1) of x of shape {}",
                                   parameter.name, ShapeToString(shape), ShapeToString(x)));
    }
  }
  return InferSameAsX(ctx);
}

// Ranks 3 and 5 are served only when all slopes are the same (coremltools iOS15 prelu).
Result<std::vector<Type>> InferPrelu(const OpContext& ctx) {
  const Tensor* alpha = ctx.TensorOf("alpha");
  if (ctx.ShapeOf("x").size() != 4 && alpha != nullptr) {
    for (int64_t i = 1; i < alpha->size(); ++i) {
      if (std::fabs(alpha->GetDouble(i) - alpha->GetDouble(0)) > 1e-5) {
        return ctx.Error(fmt::format("alpha must hold equal numbers where x has rank 3 or 5; x has shape {}",
                                     ShapeToString(ctx.ShapeOf("x"))));
      }
    }
  }
  return InferPerChannel(ctx);
}

template <auto kMath>
Result<std::vector<Literal>> EvaluatePerChannel(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const AxisSplit split = SplitAt(x.shape(), 1);
  std::vector<std::vector<float>> parameters;  // alpha, and beta where the op has one
  for (size_t i = 1; i < ctx.definition().parameters.size(); ++i) {
    parameters.push_back(ctx.TensorOf(ctx.definition().parameters[i].name)->ToFloats());
    if (static_cast<int64_t>(parameters.back().size()) != split.size) {
      return ctx.Error(fmt::format("{} numbers for x of shape {}", parameters.back().size(), ShapeToString(x.shape())));
    }
  }
  std::vector<float> values = x.ToFloats();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = i / static_cast<size_t>(split.inner) % static_cast<size_t>(split.size);
    Scalars scalars{};
    for (size_t p = 0; p < parameters.size(); ++p) scalars[p] = parameters[p][channel];
    values[i] = static_cast<float>(ApplyScalar<kMath, double>(values[i], scalars));
  }
  return One(MakeTensor(types.front().tensor, values));
}

// ---- softmax ----

Result<std::vector<Type>> InferSoftmax(const OpContext& ctx) {
  const Result<int64_t> axis = AxisParameter(ctx, "axis", ctx.ShapeOf("x"));
  if (!axis.ok()) return axis.status();
  return InferSameAsX(ctx);
}

// exp(x - max) / sum, the sum in fp32.
Result<std::vector<Literal>> EvaluateSoftmax(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  const AxisSplit split = SplitAt(x.shape(), axis);
  std::vector<float> values = x.ToFloats();
  ForEachLine(split, [&](int64_t first) {
    const auto at = [&](int64_t i) -> float& { return values[static_cast<size_t>(first + i * split.inner)]; };
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < split.size; ++i) largest = Maximum(largest, at(i));
    float sum = 0;
    for (int64_t i = 0; i < split.size; ++i) {
      at(i) = static_cast<float>(std::exp(at(i) - largest));
      sum += at(i);
    }
    for (int64_t i = 0; i < split.size; ++i) at(i) /= sum;
  });
  return One(MakeTensor(types.front().tensor, values));
}

}  // namespace

std::vector<OpDefinition> ActivationOps() {
  const auto plain = [](std::string_view name, EvaluateFunction evaluate) {
    return Op(Opset::kIOS15, fmt::format("{}(T x) where T=fp16|fp32", name), InferPointwise, evaluate);
  };
  // Parameters have the type of x at first; from iOS17 on they may be of another float type.
  const auto with_alpha = [](Opset since, std::string_view name, InferFunction infer, EvaluateFunction evaluate) {
    return Op(since,
              since < Opset::kIOS17 ? fmt::format("{}(T x, const T alpha) where T=fp16|fp32", name)
                                    : fmt::format("{}(T x, const U alpha) where T=fp16|fp32, U=fp16|fp32", name),
              infer, evaluate);
  };
  const auto with_alpha_beta = [](Opset since, std::string_view name, InferFunction infer, EvaluateFunction evaluate) {
    return Op(since,
              since < Opset::kIOS17
                  ? fmt::format("{}(T x, const T alpha, const T beta) where T=fp16|fp32", name)
                  : fmt::format("{}(T x, const U alpha, const U beta) where T=fp16|fp32, U=fp16|fp32", name),
              infer, evaluate);
  };
  std::vector<OpDefinition> ops = {
      plain("relu", EvaluatePointwise<Relu>),
      plain("relu6", EvaluatePointwise<Relu6>),
      plain("sigmoid", EvaluatePointwise<Sigmoid>),
      plain("silu", EvaluatePointwise<Silu>),
      plain("softplus", EvaluatePointwise<Softplus>),
      plain("softsign", EvaluatePointwise<Softsign>),
      Op(Opset::kIOS15, "gelu(T x, const string mode=\"EXACT\") where T=fp16|fp32", InferGelu, EvaluateGelu),
      Op(Opset::kIOS15, "softmax(T x, const int32 axis=-1) where T=fp16|fp32", InferSoftmax, EvaluateSoftmax),
  };
  for (const Opset since : {Opset::kIOS15, Opset::kIOS17}) {
    ops.push_back(with_alpha(since, "elu", InferPointwise, EvaluatePointwise<Elu>));
    ops.push_back(with_alpha(since, "leaky_relu", InferPointwise, EvaluatePointwise<LeakyRelu>));
    ops.push_back(with_alpha(since, "thresholded_relu", InferPointwise, EvaluatePointwise<ThresholdedRelu>));
    ops.push_back(with_alpha(since, "prelu", InferPrelu, EvaluatePerChannel<LeakyRelu>));
    ops.push_back(with_alpha_beta(since, "clamped_relu", InferPointwise, EvaluatePointwise<ClampedRelu>));
    ops.push_back(with_alpha_beta(since, "linear_activation", InferPointwise, EvaluatePointwise<LinearActivation>));
    ops.push_back(with_alpha_beta(since, "scaled_tanh", InferPointwise, EvaluatePointwise<ScaledTanh>));
    ops.push_back(with_alpha_beta(since, "sigmoid_hard", InferPointwise, EvaluatePointwise<SigmoidHard>));
    ops.push_back(
        with_alpha_beta(since, "softplus_parametric", InferPerChannel, EvaluatePerChannel<SoftplusParametric>));
  }
  return ops;
}

}  // namespace milwright
