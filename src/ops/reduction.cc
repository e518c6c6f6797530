// Reductions along axes, argmax and argmin, and cumsum. Semantics: op-semantics.md, section 3.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>

#include "ops/axes.h"
#include "ops/kernel_helpers.h"
#include "ops/op.h"

namespace milwright {
namespace {

// ---- reductions over `axes` ----

// Which axes of x are reduced: all where `axes` is absent.
Result<std::vector<bool>> ReducedAxes(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  std::vector<bool> reduced(x.size(), !ctx.Has("axes"));
  if (!ctx.Has("axes")) return reduced;
  if (!ctx.Known("axes")) return ctx.Error("parameter 'axes' must be known");
  const auto axes = AxesParameter(ctx, "axes", static_cast<int64_t>(x.size()));
  if (!axes.ok()) return axes.status().WithContext(fmt::format("x of shape {}", ShapeToString(x)));
  for (const int64_t axis : *axes) reduced[static_cast<size_t>(axis)] = true;
  return reduced;
}

// `shape` with the reduced axes as 1 (`keep`) or gone.
Shape ReduceShape(const Shape& shape, const std::vector<bool>& reduced, bool keep) {
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!reduced[i]) {
      result.push_back(shape[i]);
    } else if (keep) {
      result.push_back(1);
    }
  }
  return result;
}

Result<std::vector<Type>> InferReduce(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(ctx));
  Shape shape = ReduceShape(ctx.ShapeOf("x"), reduced, ctx.Bool("keep_dims"));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

// A number of the accumulator's type: int64 truncates, and has 0 for NaN and the ends of int32 beyond them.
template <typename T>
T FromDouble(double value) {
  if constexpr (std::integral<T>) {
    if (std::isnan(value)) return 0;
    return static_cast<T>(
        std::clamp(value, double{std::numeric_limits<int32_t>::min()}, double{std::numeric_limits<int32_t>::max()}));
  } else {
    return static_cast<T>(value);
  }
}
float AddNumbers(float a, float b) { return a + b; }
int64_t AddNumbers(int64_t a, int64_t b) { return WrappingAdd(a, b); }
float MultiplyNumbers(float a, float b) { return a * b; }
int64_t MultiplyNumbers(int64_t a, int64_t b) { return WrappingMultiply(a, b); }
template <typename T>
T Magnitude(T x) {
  return x < 0 ? -x : x;
}
template <typename T>
bool IsNan(T x) {
  return x != x;
}

// A fold starts from a number, takes in the elements one by one, and finishes with how many there were.
struct Sum {
  template <typename T>
  static T Start() {
    return 0;
  }
  template <typename T>
  static T Take(T total, T x) {
    return AddNumbers(total, x);
  }
  template <typename T>
  static T Finish(T total, int64_t) {
    return total;
  }
};
struct Mean : Sum {
  template <typename T>
  static T Finish(T total, int64_t count) {
    if (std::integral<T> && count == 0) return 0;
    return total / static_cast<T>(count);
  }
};
struct LogSum : Sum {
  template <typename T>
  static T Finish(T total, int64_t) {
    return FromDouble<T>(std::log(static_cast<double>(total)));
  }
};
struct L1Norm : Sum {
  template <typename T>
  static T Take(T total, T x) {
    return AddNumbers(total, Magnitude(x));
  }
};
struct SumSquare : Sum {
  template <typename T>
  static T Take(T total, T x) {
    return AddNumbers(total, MultiplyNumbers(x, x));
  }
};
struct L2Norm : SumSquare {
  template <typename T>
  static T Finish(T total, int64_t) {
    return FromDouble<T>(std::sqrt(static_cast<double>(total)));
  }
};
struct Product : Sum {
  template <typename T>
  static T Start() {
    return 1;
  }
  template <typename T>
  static T Take(T total, T x) {
    return MultiplyNumbers(total, x);
  }
};
// NaN wins, as in NumPy.
struct Largest : Sum {
  template <typename T>
  static T Start() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
  }
  template <typename T>
  static T Take(T largest, T x) {
    return x > largest || IsNan(x) ? x : largest;
  }
};
struct Smallest : Sum {
  template <typename T>
  static T Start() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
  template <typename T>
  static T Take(T smallest, T x) {
    return x < smallest || IsNan(x) ? x : smallest;
  }
};

// Where the elements of x land in the result: `shape` of x, and the result's strides along it (0 on reduced axes).
struct Landing {
  Shape shape;
  std::vector<int64_t> strides;
  int64_t results = 0;  // elements of the result
  int64_t count = 0;    // elements of x per element of the result

  static Result<Landing> Of(const OpContext& ctx) {
    MW_ASSIGN_OR_RETURN(const std::vector<bool> reduced, ReducedAxes(ctx));
    Landing landing;
    landing.shape = ctx.TensorOf("x")->shape();
    const Shape kept = ReduceShape(landing.shape, reduced, true);
    landing.strides = BroadcastStrides(kept, landing.shape);
    MW_ASSIGN_OR_RETURN(landing.results, ElementCount(kept));
    // A result is at most as large as x, unless x is empty: then no memory of the caller's bounds it.
    constexpr int64_t kMaxFromNothing = 1 << 28;
    if (ctx.TensorOf("x")->size() == 0 && landing.results > kMaxFromNothing) {
      return ctx.Error(fmt::format("{} results from the empty shape {} are too many", landing.results,
                                   ShapeToString(landing.shape)));
    }
    landing.count = 1;
    for (size_t i = 0; i < reduced.size(); ++i) landing.count *= reduced[i] ? landing.shape[i] : 1;
    return landing;
  }

  template <typename Take>
  void ForEach(Take&& take) const {
    ForEachPosition<1>(shape, {strides}, [&take](int64_t i, const std::array<int64_t, 1>& at) {
      take(static_cast<size_t>(i), static_cast<size_t>(at[0]));
    });
  }
};

template <typename Fold, typename T>
std::vector<T> FoldAll(const std::vector<T>& values, const Landing& landing) {
  std::vector<T> totals(static_cast<size_t>(landing.results), Fold::template Start<T>());
  landing.ForEach([&](size_t from, size_t to) { totals[to] = Fold::Take(totals[to], values[from]); });
  for (T& total : totals) total = Fold::Finish(total, landing.count);
  return totals;
}

// Floats are folded in fp32, integers in int64.
template <typename Fold>
Result<std::vector<Literal>> EvaluateReduce(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const Landing landing, Landing::Of(ctx));
  const bool has_extreme = std::is_same_v<Fold, Largest> || std::is_same_v<Fold, Smallest>;
  if (has_extreme && landing.count == 0 && landing.results > 0) {
    return ctx.Error(
        fmt::format("nothing to choose from along the axes of x of shape {}", ShapeToString(landing.shape)));
  }
  return WithNumbers(*ctx.TensorOf("x"), [&](const auto& values) {
    return One(MakeTensor(types.front().tensor, FoldAll<Fold>(values, landing)));
  });
}

// max + log(sum(exp(x - max))), which does not overflow; an infinite maximum is its own result.
Result<std::vector<Literal>> EvaluateLogSumExp(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const Landing landing, Landing::Of(ctx));
  const std::vector<float> values = ctx.TensorOf("x")->ToFloats();
  std::vector<float> results = FoldAll<Largest>(values, landing);
  std::vector<float> sums(results.size(), 0);
  landing.ForEach([&](size_t from, size_t to) {
    sums[to] += static_cast<float>(std::exp(static_cast<double>(values[from]) - results[to]));
  });
  for (size_t i = 0; i < results.size(); ++i) {
    if (!std::isinf(results[i])) results[i] = static_cast<float>(results[i] + std::log(static_cast<double>(sums[i])));
  }
  return One(MakeTensor(types.front().tensor, results));
}

// ---- argmax, argmin ----

Result<std::vector<Type>> InferArg(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x));
  DataType dtype = DataType::kInt32;
  if (ctx.definition().Find("output_dtype") != nullptr) {
    MW_ASSIGN_OR_RETURN(dtype, DataTypeParameter(ctx, "output_dtype"));
    if (dtype != DataType::kInt32 && dtype != DataType::kUInt16) {
      return ctx.Error(fmt::format("output_dtype must be int32 or uint16, not {}", DataTypeName(dtype)));
    }
  }
  std::vector<bool> reduced(x.size(), false);
  reduced[static_cast<size_t>(axis)] = true;
  return std::vector<Type>{Type::Tensor(dtype, ReduceShape(x, reduced, ctx.Bool("keep_dims")))};
}

// The first of equals wins, and the first NaN over all, as in NumPy; the documentation leaves ties open.
template <typename Fold>
Result<std::vector<Literal>> EvaluateArg(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  const AxisSplit split = SplitAt(x.shape(), axis);
  if (split.size == 0) {
    return ctx.Error(
        fmt::format("nothing to choose from along axis {} of the shape {}", axis, ShapeToString(x.shape())));
  }
  return WithNumbers(x, [&](const auto& values) {
    std::vector<int64_t> winners;
    ForEachLine(split, [&](int64_t first) {
      int64_t winner = 0;
      auto best = values[static_cast<size_t>(first)];
      for (int64_t i = 1; i < split.size && !IsNan(best); ++i) {
        const auto candidate = values[static_cast<size_t>(first + i * split.inner)];
        if (candidate == best || Fold::Take(best, candidate) == best) continue;
        best = candidate;
        winner = i;
      }
      winners.push_back(winner);
    });
    return One(MakeTensor(types.front().tensor, winners));
  });
}

// ---- cumsum ----

Result<std::vector<Type>> InferCumsum(const OpContext& ctx) {
  const Result<int64_t> axis = AxisParameter(ctx, "axis", ctx.ShapeOf("x"));
  if (!axis.ok()) return axis.status();
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateCumsum(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  const AxisSplit split = SplitAt(x.shape(), axis);
  const bool exclusive = ctx.Bool("exclusive");
  const bool reverse = ctx.Bool("reverse");
  return WithNumbers(x, [&](auto values) {
    ForEachLine(split, [&](int64_t first) {
      typename decltype(values)::value_type total = 0;
      for (int64_t i = 0; i < split.size; ++i) {
        const int64_t place = reverse ? split.size - 1 - i : i;
        auto& value = values[static_cast<size_t>(first + place * split.inner)];
        const auto with_this = AddNumbers(total, value);
        value = exclusive ? total : with_this;
        total = with_this;
      }
    });
    return One(MakeTensor(types.front().tensor, values));
  });
}

}  // namespace

std::vector<OpDefinition> ReductionOps() {
  const auto reduce = [](std::string_view name, EvaluateFunction evaluate) {
    return Op(Opset::kIOS15,
              fmt::format("{}(T x, const int32 axes?, const bool keep_dims=false) where T=fp16|fp32|int32", name),
              InferReduce, evaluate);
  };
  // From iOS17 on, the indices may be uint16.
  const auto arg = [](Opset since, std::string_view name, EvaluateFunction evaluate) {
    return Op(since,
              fmt::format("{}(T x, const int32 axis=-1, const bool keep_dims=false{}) where T=fp16|fp32|int32", name,
                          since < Opset::kIOS17 ? "" : ", const string output_dtype=\"int32\""),
              InferArg, evaluate);
  };
  return {
      arg(Opset::kIOS15, "reduce_argmax", EvaluateArg<Largest>),
      arg(Opset::kIOS17, "reduce_argmax", EvaluateArg<Largest>),
      arg(Opset::kIOS15, "reduce_argmin", EvaluateArg<Smallest>),
      arg(Opset::kIOS17, "reduce_argmin", EvaluateArg<Smallest>),
      reduce("reduce_l1_norm", EvaluateReduce<L1Norm>),
      reduce("reduce_l2_norm", EvaluateReduce<L2Norm>),
      reduce("reduce_log_sum", EvaluateReduce<LogSum>),
      reduce("reduce_log_sum_exp", EvaluateLogSumExp),
      reduce("reduce_max", EvaluateReduce<Largest>),
      reduce("reduce_mean", EvaluateReduce<Mean>),
      reduce("reduce_min", EvaluateReduce<Smallest>),
      reduce("reduce_prod", EvaluateReduce<Product>),
      reduce("reduce_sum", EvaluateReduce<Sum>),
      reduce("reduce_sum_square", EvaluateReduce<SumSquare>),
      Op(Opset::kIOS15,
         "cumsum(T x, const int32 axis=0, const bool exclusive=false, const bool reverse=false) where "
         "T=fp16|fp32|int32",
         InferCumsum, EvaluateCumsum),
  };
}

}  // namespace milwright
