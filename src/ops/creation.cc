// Ops that make tensors: fills, ranges, random numbers, masks, shapes; and classify. Semantics: op-semantics.md,
// section 3.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "milwright/half.h"
#include "ops/axes.h"
#include "ops/kernel_helpers.h"
#include "ops/op.h"

namespace milwright {
namespace {

// The result shape of an op whose parameter `shape` holds it. Unknown contents leave unknown sizes; when even their
// number is unknown, the declared rank decides.
Result<Shape> ShapeParameter(const OpContext& ctx) {
  const Shape& type = ctx.ShapeOf("shape");
  if (type.size() != 1) return ctx.Error(fmt::format("shape must be a vector, but has shape {}", ShapeToString(type)));
  if (ctx.Known("shape")) {
    Shape shape = ctx.Ints("shape");
    if (!IsStatic(shape)) return ctx.Error(fmt::format("the shape [{}] has a negative size", fmt::join(shape, ", ")));
    return shape;
  }
  int64_t rank = type[0];
  if (rank == kUnknownDim && !ctx.declared().empty()) rank = ctx.declared().front()->rank();
  if (rank == kUnknownDim) return ctx.Error("the length of shape, which is the rank of the result, must be known");
  MW_ASSIGN_OR_RETURN(const Type unknown, TypeOfRank(ctx, DataType::kFp32, rank));
  return unknown.shape();
}

// The data type that the parameters of type variable T have; `fallback` when none is present.
DataType DTypeOfT(const OpContext& ctx, DataType fallback) {
  for (const ParameterSpec& parameter : ctx.definition().parameters) {
    if (parameter.domain == "T" && ctx.Has(parameter.name)) return ctx.DTypeOf(parameter.name);
  }
  return fallback;
}

// ---- fill, fill_like, one_hot ----

// Every element is the number `value`.
Result<Tensor> Filled(const TensorType& type, double value) {
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(type));
  if (value == 0 || result.size() == 0) return result;
  const Tensor one = Tensor::Scalar(type.dtype, value);
  const std::span<std::byte> bytes = result.mutable_bytes();
  for (size_t at = 0; at < bytes.size(); at += one.bytes().size()) {
    std::memcpy(bytes.data() + at, one.bytes().data(), one.bytes().size());
  }
  return result;
}

Result<std::vector<Type>> InferFill(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(Shape shape, ShapeParameter(ctx));
  return std::vector<Type>{Type::Tensor(DTypeOfT(ctx, DataType::kFp32), std::move(shape))};
}

Result<std::vector<Type>> InferFillLike(const OpContext& ctx) {
  const DataType dtype = ctx.Has("value") ? ctx.DTypeOf("value") : DataType::kFp32;
  return std::vector<Type>{Type::Tensor(dtype, ctx.ShapeOf("ref_tensor"))};
}

Result<std::vector<Literal>> EvaluateFill(const OpContext& ctx, const std::vector<Type>& types) {
  return One(Filled(types.front().tensor, ctx.Double("value")));
}

// The place of the new axis in a result of one rank more than `indices`.
Result<int64_t> OneHotAxis(const OpContext& ctx) {
  const Shape& indices = ctx.ShapeOf("indices");
  Result<int64_t> axis = NormalizeAxis(ctx.Int("axis"), static_cast<int64_t>(indices.size()) + 1);
  if (axis.ok()) return axis;
  return ctx.Error(fmt::format("axis {} is outside the result, which has one axis more than the shape {}",
                               ctx.Int("axis"), ShapeToString(indices)));
}

Result<std::vector<Type>> InferOneHot(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const int64_t axis, OneHotAxis(ctx));
  if (ctx.Has("on_value") && ctx.Has("off_value") && ctx.DTypeOf("on_value") != ctx.DTypeOf("off_value")) {
    return ctx.Error(fmt::format("on_value is {}, but off_value is {}", DataTypeName(ctx.DTypeOf("on_value")),
                                 DataTypeName(ctx.DTypeOf("off_value"))));
  }
  const bool known = ctx.Known("one_hot_vector_size");
  const int64_t size = known ? ctx.Int("one_hot_vector_size") : kUnknownDim;
  if (known && size < 0) return ctx.Error(fmt::format("one_hot_vector_size {} is negative", size));
  Shape shape = ctx.ShapeOf("indices");
  shape.insert(shape.begin() + axis, size);
  return std::vector<Type>{Type::Tensor(DTypeOfT(ctx, DataType::kInt32), std::move(shape))};
}

// An index outside the vector leaves it all off, as in TensorFlow.
Result<std::vector<Literal>> EvaluateOneHot(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const int64_t axis, OneHotAxis(ctx));
  MW_ASSIGN_OR_RETURN(Tensor result, Filled(type, ctx.Double("off_value")));
  const std::vector<int64_t> indices = ctx.Ints("indices");
  const AxisSplit split = SplitAt(type.shape, axis);
  const double on = ctx.Double("on_value");
  size_t next = 0;
  ForEachLine(split, [&](int64_t first) {
    const int64_t index = indices[next++];
    if (index >= 0 && index < split.size) result.SetDouble(first + index * split.inner, on);
  });
  return One(std::move(result));
}

// ---- range_1d ----

// ceil((end - start) / step), each step of that rounded to the data type as NumPy does it; 0 when it is negative.
Result<int64_t> RangeLength(const OpContext& ctx) {
  constexpr double kMaxLength = std::numeric_limits<int32_t>::max();
  const double start = ctx.Double("start");
  const double end = ctx.Double("end");
  const double step = ctx.Double("step");
  double length = (end - start) / step;
  if (ctx.DTypeOf("start") == DataType::kFp16) {
    length = RoundToHalf(RoundToHalf(static_cast<float>(end - start)) / static_cast<float>(step));
  } else if (ctx.DTypeOf("start") == DataType::kFp32) {
    length = static_cast<float>(end - start) / static_cast<float>(step);
  }
  if (step == 0 || std::isnan(length) || length > kMaxLength) {
    return ctx.Error(fmt::format("there is no range from {} to {} in steps of {}", start, end, step));
  }
  return static_cast<int64_t>(std::ceil(std::max(length, 0.0)));
}

Result<std::vector<Type>> InferRange(const OpContext& ctx) {
  int64_t length = kUnknownDim;
  if (ctx.Known("start") && ctx.Known("end") && ctx.Known("step")) {
    MW_ASSIGN_OR_RETURN(length, RangeLength(ctx));
  }
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("start"), {length})};
}

// start + i * step, in fp32 or int64.
Result<std::vector<Literal>> EvaluateRange(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  return WithNumbers(*ctx.TensorOf("start"), [&](const auto& start) {
    return WithNumbers(*ctx.TensorOf("step"), [&](const auto& step) {
      return One(BuildTensor(type, [&](auto&& store) {
        using Number = std::remove_cvref_t<decltype(start.front())>;
        for (int64_t i = 0; i < type.shape[0]; ++i) {
          store(i, start.front() + static_cast<Number>(i) * static_cast<Number>(step.front()));
        }
      }));
    });
  });
}

// ---- random numbers ----

// SplitMix64 (Steele, Lea, Flood 2014), seeded with `seed`: the same seed gives the same numbers on every call and
// every machine. Core ML's own generator is not documented, so only distributions agree with it. Seed -1, which asks
// for a different sequence each time, has a fixed sequence here as well, so that every run can be repeated.
class Random {
 public:
  explicit Random(int64_t seed) : state_(static_cast<uint64_t>(seed)) {}

  /// Uniform in [0, 1), in steps of 2^-53.
  double Uniform() { return static_cast<double>(Next() >> 11U) * 0x1p-53; }

  /// Normal with mean 0 and deviation 1, by Box and Muller's polar coordinates.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31U);
  }
  uint64_t state_;
};

// The type is that of the parameters of the distribution.
Result<std::vector<Type>> InferRandom(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(Shape shape, ShapeParameter(ctx));
  return std::vector<Type>{Type::Tensor(DTypeOfT(ctx, DataType::kFp32), std::move(shape))};
}

template <typename Draw>
Result<std::vector<Literal>> DrawAll(const OpContext& ctx, const TensorType& type, Draw&& draw) {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(type.shape));
  Random random(ctx.Int("seed"));
  return One(BuildTensor(type, [&](auto&& store) {
    for (int64_t i = 0; i < count; ++i) store(i, draw(random));
  }));
}

Result<std::vector<Literal>> EvaluateBernoulli(const OpContext& ctx, const std::vector<Type>& types) {
  const double probability = ctx.Double("prob");
  return DrawAll(ctx, types.front().tensor, [&](Random& random) { return random.Uniform() < probability ? 1.0 : 0.0; });
}

Result<std::vector<Literal>> EvaluateNormal(const OpContext& ctx, const std::vector<Type>& types) {
  const double mean = ctx.Double("mean");
  const double deviation = ctx.Double("stddev");
  return DrawAll(ctx, types.front().tensor, [&](Random& random) { return mean + deviation * random.Normal(); });
}

Result<std::vector<Literal>> EvaluateUniform(const OpContext& ctx, const std::vector<Type>& types) {
  const double low = ctx.Double("low");
  const double high = ctx.Double("high");
  return DrawAll(ctx, types.front().tensor, [&](Random& random) { return low + (high - low) * random.Uniform(); });
}

Result<std::vector<Type>> InferCategorical(const OpContext& ctx) {
  const std::string mode = ctx.String("mode");
  if (mode != "logits" && mode != "probs") {
    return ctx.Error(fmt::format("mode '{}' is neither logits nor probs", mode));
  }
  if (ctx.Int("size") < 0) return ctx.Error(fmt::format("size {} is negative", ctx.Int("size")));
  Shape shape = ctx.ShapeOf("x");
  if (shape.empty()) return ctx.Error("x must have at least one axis, the classes");
  shape.back() = ctx.Int("size");
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

// `size` draws from the distribution in each row of x; classes are given by number, in the type of x.
Result<std::vector<Literal>> EvaluateCategorical(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const bool logits = ctx.String("mode") == "logits";
  const std::vector<float> values = x.ToFloats();
  const auto classes = static_cast<size_t>(x.shape().back());
  const int64_t size = types.front().shape().back();
  MW_ASSIGN_OR_RETURN(Tensor drawn, Tensor::Zeros(types.front().tensor));
  Random random(ctx.Int("seed"));
  if (classes == 0 && drawn.size() > 0) return ctx.Error("x has no classes to draw from");
  for (size_t row = 0; row * classes < values.size(); ++row) {
    const std::span<const float> weights = std::span(values).subspan(row * classes, classes);
    const double largest = logits ? *std::ranges::max_element(weights) : 0;
    std::vector<double> cumulative;
    double total = 0;
    for (const float weight : weights) {
      total += logits ? std::exp(weight - largest) : weight;
      cumulative.push_back(total);
    }
    if (!(total > 0) || std::isinf(total) || !std::ranges::is_sorted(cumulative)) {
      return ctx.Error(fmt::format("row {} of x of shape {} is no distribution: its weights sum to {}", row,
                                   ShapeToString(x.shape()), total));
    }
    for (int64_t i = 0; i < size; ++i) {
      // The first class whose share of the total reaches beyond the number drawn, which rounding can lift to the total.
      const auto chosen = std::ranges::upper_bound(cumulative, random.Uniform() * total) - cumulative.begin();
      drawn.SetInt(static_cast<int64_t>(row) * size + i, std::min<int64_t>(chosen, x.shape().back() - 1));
    }
  }
  return One(std::move(drawn));
}

// ---- non_zero, band_part, shape ----

Result<std::vector<Type>> InferNonZero(const OpContext& ctx) {
  return std::vector<Type>{Type::Tensor(DataType::kInt32, {kUnknownDim, ctx.TypeOf("x").rank()})};
}

// Positions of the elements that are not 0 (NaN among them), one a row, in row-major order.
Result<std::vector<Literal>> EvaluateNonZero(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& x = *ctx.TensorOf("x");
  const std::vector<int64_t> strides = Strides(x.shape());
  return WithNumbers(x, [&](const auto& values) {
    std::vector<int64_t> positions;
    int64_t rows = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      ++rows;
      for (size_t axis = 0; axis < strides.size(); ++axis) {
        positions.push_back(static_cast<int64_t>(i) / strides[axis] % x.shape()[axis]);
      }
    }
    return One(MakeTensor(TensorType{DataType::kInt32, {rows, x.rank()}}, positions));
  });
}

Result<std::vector<Type>> InferBandPart(const OpContext& ctx) {
  if (ctx.TypeOf("x").rank() < 2) {
    return ctx.Error(
        fmt::format("x must be a matrix or a stack of them, but has shape {}", ShapeToString(ctx.ShapeOf("x"))));
  }
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateBandPart(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const int64_t lower = ctx.Int("lower");
  const int64_t upper = ctx.Int("upper");
  const int64_t columns = x.shape().back();
  const int64_t rows = x.shape()[x.shape().size() - 2];
  return WithNumbers(x, [&](auto values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % columns;
      const int64_t row = static_cast<int64_t>(i) / columns % rows;
      const bool kept = (lower < 0 || row - column <= lower) && (upper < 0 || column - row <= upper);
      if (!kept) values[i] = 0;
    }
    return One(MakeTensor(types.front().tensor, values));
  });
}

Result<std::vector<Type>> InferShape(const OpContext& ctx) {
  return std::vector<Type>{Type::Tensor(DataType::kInt32, {ctx.TypeOf("x").rank()})};
}

Result<std::vector<Literal>> EvaluateShape(const OpContext& ctx, const std::vector<Type>& types) {
  return One(MakeTensor(types.front().tensor, ctx.TensorOf("x")->shape()));
}

// ---- classify ----

// The label of the largest probability, and a dictionary from label to probability.
Result<std::vector<Type>> InferClassify(const OpContext& ctx) {
  const Type& classes = ctx.TypeOf("classes");
  const DataType label =
      classes.IsList() && !classes.elements.empty() ? classes.elements.front().dtype() : DataType::kInvalid;
  if (label != DataType::kString && label != DataType::kInt64) {
    return ctx.Error(fmt::format("classes must be a list of strings or int64, but is {}", TypeToString(classes)));
  }
  const Shape& shape = ctx.ShapeOf("probabilities");
  if (const Literal* list = ctx.ValueOf("classes"); list != nullptr && IsStatic(shape)) {
    MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
    if (count != static_cast<int64_t>(list->elements.size())) {
      return ctx.Error(
          fmt::format("{} classes for probabilities of shape {}", list->elements.size(), ShapeToString(shape)));
    }
  }
  return std::vector<Type>{Type::Scalar(label), Type::Dictionary(Type::Scalar(label), Type::Scalar(DataType::kFp64))};
}

Result<std::vector<Literal>> EvaluateClassify(const OpContext& ctx, const std::vector<Type>& types) {
  const std::vector<float> probabilities = ctx.TensorOf("probabilities")->ToFloats();
  const std::vector<Literal>& classes = ctx.ValueOf("classes")->elements;
  if (classes.empty() || classes.size() != probabilities.size()) {
    return ctx.Error(fmt::format("{} classes for {} probabilities", classes.size(), probabilities.size()));
  }
  Literal table;
  table.type = types[1];
  for (size_t i = 0; i < classes.size(); ++i) {
    table.entries.emplace_back(classes[i], Literal::Float(DataType::kFp64, probabilities[i]));
  }
  const auto best = std::ranges::max_element(probabilities) - probabilities.begin();
  return std::vector<Literal>{classes[static_cast<size_t>(best)], std::move(table)};
}

}  // namespace

std::vector<OpDefinition> CreationOps() {
  return {
      Op(Opset::kIOS15, "fill(int32 shape, const T value=0.0) where T=fp16|fp32|int32|bool", InferFill, EvaluateFill),
      Op(Opset::kIOS16,
         "fill_like(T ref_tensor, const U value=0.0) where T=fp16|fp32|int32|bool, U=fp16|fp32|int32|bool",
         InferFillLike, EvaluateFill),
      Op(Opset::kIOS15,
         "one_hot(int32 indices, int32 one_hot_vector_size, const int32 axis=-1, const T on_value=1, const T "
         "off_value=0) where T=fp16|fp32|int32|bool",
         InferOneHot, EvaluateOneHot),
      Op(Opset::kIOS15, "range_1d(T end, T start, T step) where T=fp16|fp32|int32", InferRange, EvaluateRange),
      Op(Opset::kIOS15, "random_bernoulli(int32 shape, const T prob=0.5, const int32 seed=-1) where T=fp16|fp32",
         InferRandom, EvaluateBernoulli, Effect::kRandom),
      Op(Opset::kIOS15,
         "random_categorical(T x, const string mode=\"logits\", const int32 size=1, const int32 seed=-1) where "
         "T=fp16|fp32",
         InferCategorical, EvaluateCategorical, Effect::kRandom),
      Op(Opset::kIOS15,
         "random_normal(int32 shape, const T mean=0.0, const T stddev=1.0, const int32 seed=-1) where T=fp16|fp32",
         InferRandom, EvaluateNormal, Effect::kRandom),
      Op(Opset::kIOS15,
         "random_uniform(int32 shape, const T low=0.0, const T high=1.0, const int32 seed=-1) where T=fp16|fp32",
         InferRandom, EvaluateUniform, Effect::kRandom),
      Op(Opset::kIOS15, "non_zero(T x) where T=fp16|fp32|int32|bool", InferNonZero, EvaluateNonZero),
      Op(Opset::kIOS15, "band_part(T x, const int32 lower=-1, const int32 upper=-1) where T=fp16|fp32|int32|bool",
         InferBandPart, EvaluateBandPart),
      Op(Opset::kIOS15, "shape(T x) where T=fp16|fp32|int32|bool", InferShape, EvaluateShape),
      Op(Opset::kIOS15, "classify(fp32 probabilities, const list classes)", InferClassify, EvaluateClassify),
  };
}

}  // namespace milwright
