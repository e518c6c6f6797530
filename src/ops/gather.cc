// gather and scatter in their three forms: by slices of one axis, along one axis, and by index tuples (_nd).
//
// Negative indices count from the end: so it is up to iOS16, and from iOS17, where Core ML leaves them undefined, it is
// the harmless reading. An index outside the axis ends the run with an error that names it, whether or not
// validate_indices asks for that.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/op.h"

namespace milwright {
namespace {

int64_t ProductOf(Shape::const_iterator begin, Shape::const_iterator end) {
  int64_t product = 1;
  for (auto it = begin; it != end; ++it) product *= *it;
  return product;
}

void Append(Shape& shape, Shape::const_iterator begin, Shape::const_iterator end) {
  shape.insert(shape.end(), begin, end);
}

Result<int64_t> CheckedIndex(const OpContext& ctx, int64_t index, int64_t size, int64_t axis) {
  const int64_t at = index < 0 ? index + size : index;
  if (at >= 0 && at < size) return at;
  return RuntimeError(ctx, fmt::format("index {} is outside the size {} of axis {}", index, size, axis));
}

// All indices, checked against one axis.
Result<std::vector<int64_t>> CheckedIndices(const OpContext& ctx, int64_t size, int64_t axis) {
  std::vector<int64_t> indices = ctx.Ints("indices");
  for (int64_t& index : indices) {
    MW_ASSIGN_OR_RETURN(index, CheckedIndex(ctx, index, size, axis));
  }
  return indices;
}

// How many leading axes of x and indices run together.
Result<size_t> BatchDims(const OpContext& ctx, size_t limit) {
  const int64_t dims = ctx.Int("batch_dims");
  const Shape& x = ctx.ShapeOf("x");
  const Shape& indices = ctx.ShapeOf("indices");
  if (dims < 0 || dims > static_cast<int64_t>(limit)) {
    return ctx.Error(
        fmt::format("batch_dims {} does not suit x {} and indices {}", dims, ShapeToString(x), ShapeToString(indices)));
  }
  for (size_t i = 0; i < static_cast<size_t>(dims); ++i) {
    MW_RETURN_IF_ERROR(EqualSizes(ctx, x[i], indices[i], fmt::format("the batch axis {}", i)));
  }
  return static_cast<size_t>(dims);
}

// ---- gather ----

struct GatherPlan {
  size_t axis;
  size_t batch_dims;
};

Result<GatherPlan> PlanGather(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x));
  const size_t limit = std::min(static_cast<size_t>(axis), ctx.ShapeOf("indices").size());
  MW_ASSIGN_OR_RETURN(const size_t batch_dims, BatchDims(ctx, limit));
  return GatherPlan{static_cast<size_t>(axis), batch_dims};
}

// x[:axis] + indices[batch_dims:] + x[axis + 1:], as TensorFlow's gather.
Result<std::vector<Type>> InferGather(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(ctx));
  const Shape& x = ctx.ShapeOf("x");
  const Shape& indices = ctx.ShapeOf("indices");
  const auto axis = static_cast<int64_t>(plan.axis);
  Shape shape;
  Append(shape, x.begin(), x.begin() + axis);
  Append(shape, indices.begin() + static_cast<int64_t>(plan.batch_dims), indices.end());
  Append(shape, x.begin() + axis + 1, x.end());
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

Result<std::vector<Literal>> EvaluateGather(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const GatherPlan plan, PlanGather(ctx));
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& shape = x.shape();
  const auto axis = static_cast<int64_t>(plan.axis);
  const auto batch_dims = static_cast<int64_t>(plan.batch_dims);
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, CheckedIndices(ctx, shape[plan.axis], axis));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(types.front().tensor));
  if (result.size() == 0) return One(std::move(result));
  const int64_t batches = ProductOf(shape.begin(), shape.begin() + batch_dims);
  const int64_t outer = ProductOf(shape.begin() + batch_dims, shape.begin() + axis);
  const int64_t run = ProductOf(shape.begin() + axis + 1, shape.end()) * width;
  const int64_t picked = batches == 0 ? 0 : static_cast<int64_t>(indices.size()) / batches;
  const std::byte* source = x.bytes().data();
  std::byte* target = result.mutable_bytes().data();
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t row = 0; row < outer; ++row) {
      const std::byte* slab = source + (batch * outer + row) * shape[plan.axis] * run;
      for (int64_t k = 0; k < picked; ++k, target += run) {
        std::memcpy(target, slab + indices[static_cast<size_t>(batch * picked + k)] * run, static_cast<size_t>(run));
      }
    }
  }
  return One(std::move(result));
}

// ---- gather_along_axis ----

// The sizes of `other` (indices) must be those of `base`, apart from the axis. Gives the axis.
Result<int64_t> PlanAlongAxis(const OpContext& ctx, std::string_view base) {
  const Shape& shape = ctx.ShapeOf(base);
  const Shape& indices = ctx.ShapeOf("indices");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", shape));
  if (indices.size() != shape.size()) {
    return ctx.Error(
        fmt::format("indices {} have not the rank of {} {}", ShapeToString(indices), base, ShapeToString(shape)));
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) == axis) continue;
    MW_RETURN_IF_ERROR(EqualSizes(ctx, shape[i], indices[i], fmt::format("axis {} of {} and indices", i, base)));
  }
  return axis;
}

Result<std::vector<Type>> InferGatherAlongAxis(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(PlanAlongAxis(ctx, "x"));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), ctx.ShapeOf("indices"))};
}

// Calls visit(k, place) for every index k: `place` is the element of the tensor of shape `base` that it means.
template <typename Visit>
Status ForEachAlongAxis(const OpContext& ctx, const Shape& base, int64_t axis, Visit visit) {
  const auto a = static_cast<size_t>(axis);
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, CheckedIndices(ctx, base[a], axis));
  const Shape& sizes = ctx.TensorOf("indices")->shape();
  const int64_t inner = ProductOf(base.begin() + axis + 1, base.end());
  for (size_t k = 0; k < indices.size(); ++k) {
    const auto i = static_cast<int64_t>(k);
    visit(i, ((i / (inner * sizes[a])) * base[a] + indices[k]) * inner + i % inner);
  }
  return Status::Ok();
}

Result<std::vector<Literal>> EvaluateGatherAlongAxis(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, PlanAlongAxis(ctx, "x"));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(types.front().tensor));
  if (result.size() == 0) return One(std::move(result));
  const std::byte* source = x.bytes().data();
  std::byte* target = result.mutable_bytes().data();
  MW_RETURN_IF_ERROR(ForEachAlongAxis(ctx, x.shape(), axis, [&](int64_t k, int64_t place) {
    std::memcpy(target + k * width, source + place * width, static_cast<size_t>(width));
  }));
  return One(std::move(result));
}

// ---- gather_nd ----

// indices [..., depth]: each tuple names a slice of the axes of `base` that follow the batch axes.
struct TuplePlan {
  size_t batch_dims;
  size_t depth;
};

Result<TuplePlan> PlanTuples(const OpContext& ctx, std::string_view base) {
  const Shape& shape = ctx.ShapeOf(base);
  const Shape& indices = ctx.ShapeOf("indices");
  if (indices.empty() || indices.back() == kUnknownDim) {
    return ctx.Error(fmt::format("indices {} have no known tuple length", ShapeToString(indices)));
  }
  size_t batch_dims = 0;
  if (ctx.definition().Find("batch_dims") != nullptr) {
    MW_ASSIGN_OR_RETURN(batch_dims, BatchDims(ctx, std::min(shape.size(), indices.size() - 1)));
  }
  const auto most = static_cast<int64_t>(shape.size() - batch_dims);
  if (indices.back() > most) {
    return ctx.Error(fmt::format("tuples of {} indices are too long for {} {} with {} batch axes", indices.back(), base,
                                 ShapeToString(shape), batch_dims));
  }
  return TuplePlan{batch_dims, static_cast<size_t>(indices.back())};
}

// indices[:-1] + base[batch_dims + depth:]
Shape TupleShape(const TuplePlan& plan, const Shape& indices, const Shape& base) {
  Shape shape(indices.begin(), indices.end() - 1);
  Append(shape, base.begin() + static_cast<int64_t>(plan.batch_dims + plan.depth), base.end());
  return shape;
}

// Calls visit(k, place, run): tuple k means the `run` elements of the tensor of shape `base` from `place` on.
template <typename Visit>
Status ForEachTuple(const OpContext& ctx, const Shape& base, const TuplePlan& plan, Visit visit) {
  const Tensor& tensor = *ctx.TensorOf("indices");
  const std::vector<int64_t> indices = tensor.ToInts();
  const std::vector<int64_t> strides = Strides(base);
  const int64_t run = ProductOf(base.begin() + static_cast<int64_t>(plan.batch_dims + plan.depth), base.end());
  const int64_t tuples = ProductOf(tensor.shape().begin(), tensor.shape().end() - 1);
  const int64_t batches = ProductOf(base.begin(), base.begin() + static_cast<int64_t>(plan.batch_dims));
  const int64_t batch_size = ProductOf(base.begin() + static_cast<int64_t>(plan.batch_dims), base.end());
  const int64_t tuples_per_batch = std::max<int64_t>(1, batches == 0 ? 0 : tuples / batches);
  for (int64_t k = 0; k < tuples; ++k) {
    int64_t place = k / tuples_per_batch * batch_size;
    for (size_t d = 0; d < plan.depth; ++d) {
      const size_t axis = plan.batch_dims + d;
      const int64_t index = indices[static_cast<size_t>(k) * plan.depth + d];
      MW_ASSIGN_OR_RETURN(const int64_t at, CheckedIndex(ctx, index, base[axis], static_cast<int64_t>(axis)));
      place += at * strides[axis];
    }
    visit(k, place, run);
  }
  return Status::Ok();
}

Result<std::vector<Type>> InferGatherNd(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(ctx, "x"));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), TupleShape(plan, ctx.ShapeOf("indices"), ctx.ShapeOf("x")))};
}

Result<std::vector<Literal>> EvaluateGatherNd(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(ctx, "x"));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(types.front().tensor));
  if (result.size() == 0) return One(std::move(result));
  const std::byte* source = x.bytes().data();
  std::byte* target = result.mutable_bytes().data();
  MW_RETURN_IF_ERROR(ForEachTuple(ctx, x.shape(), plan, [&](int64_t k, int64_t place, int64_t run) {
    std::memcpy(target + k * run * width, source + place * width, static_cast<size_t>(run * width));
  }));
  return One(std::move(result));
}

// ---- scatter ----

// How an update meets the element it lands on. Duplicates meet in order, so the last one wins with "update".
enum class Mode : uint8_t { kUpdate, kAdd, kSub, kMul, kDiv, kMax, kMin };

Result<Mode> ModeOf(const OpContext& ctx) {
  static constexpr std::pair<std::string_view, Mode> kModes[] = {
      {"update", Mode::kUpdate}, {"add", Mode::kAdd}, {"sub", Mode::kSub}, {"mul", Mode::kMul},
      {"div", Mode::kDiv},       {"max", Mode::kMax}, {"min", Mode::kMin},
  };
  const std::string name = ctx.String("mode");
  const auto* mode = std::ranges::find(kModes, std::string_view(name), &std::pair<std::string_view, Mode>::first);
  if (mode == std::end(kModes)) {
    return ctx.Error(fmt::format("the mode '{}' is none of update, add, sub, mul, div, max, min", name));
  }
  return mode->second;
}

float Combine(Mode mode, float old, float update) {
  switch (mode) {
    case Mode::kUpdate:
      return update;
    case Mode::kAdd:
      return old + update;
    case Mode::kSub:
      return old - update;
    case Mode::kMul:
      return old * update;
    case Mode::kDiv:
      return old / update;
    case Mode::kMax:
      return std::max(old, update);
    case Mode::kMin:
      return std::min(old, update);
  }
  return update;
}

// int32 wraps; division truncates.
int64_t Combine(Mode mode, int64_t old, int64_t update) {
  switch (mode) {
    case Mode::kUpdate:
      return update;
    case Mode::kAdd:
      return old + update;
    case Mode::kSub:
      return old - update;
    case Mode::kMul:
      return old * update;
    case Mode::kDiv:
      return old / update;
    case Mode::kMax:
      return std::max(old, update);
    case Mode::kMin:
      return std::min(old, update);
  }
  return update;
}

// Writes updates into a copy of "data".
class Scatterer {
 public:
  static Result<Scatterer> Make(const OpContext& ctx) {
    MW_ASSIGN_OR_RETURN(const Mode mode, ModeOf(ctx));
    const Tensor& updates = *ctx.TensorOf("updates");
    if (mode == Mode::kDiv && !IsFloat(updates.dtype())) {
      for (int64_t i = 0; i < updates.size(); ++i) {
        if (updates.GetInt(i) == 0) return RuntimeError(ctx, fmt::format("update {} divides by zero", i));
      }
    }
    return Scatterer(mode, *ctx.TensorOf("data"), updates);
  }

  // Elements [from, from + count) of the updates meet those from `to` on.
  void Put(int64_t from, int64_t to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) PutOne(from + i, to + i);
  }

  Tensor Take() && { return std::move(result_); }

 private:
  Scatterer(Mode mode, Tensor data, const Tensor& updates) : mode_(mode), result_(std::move(data)), updates_(updates) {}

  void PutOne(int64_t from, int64_t to) {
    if (IsFloat(result_.dtype())) {
      result_.SetDouble(to, Combine(mode_, result_.GetFloat(to), updates_.GetFloat(from)));
    } else {
      result_.SetInt(to, Combine(mode_, result_.GetInt(to), updates_.GetInt(from)));
    }
  }

  Mode mode_;
  Tensor result_;
  const Tensor& updates_;
};

// The updates must have this shape; the result is like data.
Result<std::vector<Type>> CheckUpdates(const OpContext& ctx, const Shape& wanted) {
  MW_RETURN_IF_ERROR(ModeOf(ctx));
  const Shape& updates = ctx.ShapeOf("updates");
  bool fits = updates.size() == wanted.size();
  for (size_t i = 0; fits && i < wanted.size(); ++i) {
    fits = updates[i] == wanted[i] || updates[i] == kUnknownDim || wanted[i] == kUnknownDim;
  }
  if (!fits) {
    return ctx.Error(fmt::format("the updates have the shape {}, but data {} and indices {} need {}",
                                 ShapeToString(updates), ShapeToString(ctx.ShapeOf("data")),
                                 ShapeToString(ctx.ShapeOf("indices")), ShapeToString(wanted)));
  }
  return std::vector<Type>{ctx.TypeOf("data")};
}

// updates: data[:axis] + indices + data[axis + 1:]
Result<std::vector<Type>> InferScatter(const OpContext& ctx) {
  const Shape& data = ctx.ShapeOf("data");
  const Shape& indices = ctx.ShapeOf("indices");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", data));
  Shape wanted(data.begin(), data.begin() + axis);
  Append(wanted, indices.begin(), indices.end());
  Append(wanted, data.begin() + axis + 1, data.end());
  return CheckUpdates(ctx, wanted);
}

Result<std::vector<Literal>> EvaluateScatter(const OpContext& ctx, const std::vector<Type>& types) {
  const Shape& shape = types.front().shape();
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", shape));
  const int64_t size = shape[static_cast<size_t>(axis)];
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, CheckedIndices(ctx, size, axis));
  MW_ASSIGN_OR_RETURN(Scatterer scatterer, Scatterer::Make(ctx));
  const int64_t outer = ProductOf(shape.begin(), shape.begin() + axis);
  const int64_t run = ProductOf(shape.begin() + axis + 1, shape.end());
  int64_t from = 0;
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t index : indices) {
      scatterer.Put(from, (row * size + index) * run, run);
      from += run;
    }
  }
  return One(std::move(scatterer).Take());
}

Result<std::vector<Type>> InferScatterAlongAxis(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(PlanAlongAxis(ctx, "data"));
  return CheckUpdates(ctx, ctx.ShapeOf("indices"));
}

Result<std::vector<Literal>> EvaluateScatterAlongAxis(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const int64_t axis, PlanAlongAxis(ctx, "data"));
  MW_ASSIGN_OR_RETURN(Scatterer scatterer, Scatterer::Make(ctx));
  MW_RETURN_IF_ERROR(ForEachAlongAxis(ctx, types.front().shape(), axis,
                                      [&](int64_t k, int64_t place) { scatterer.Put(k, place, 1); }));
  return One(std::move(scatterer).Take());
}

Result<std::vector<Type>> InferScatterNd(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(ctx, "data"));
  return CheckUpdates(ctx, TupleShape(plan, ctx.ShapeOf("indices"), ctx.ShapeOf("data")));
}

Result<std::vector<Literal>> EvaluateScatterNd(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const TuplePlan plan, PlanTuples(ctx, "data"));
  MW_ASSIGN_OR_RETURN(Scatterer scatterer, Scatterer::Make(ctx));
  MW_RETURN_IF_ERROR(ForEachTuple(ctx, types.front().shape(), plan,
                                  [&](int64_t k, int64_t place, int64_t run) { scatterer.Put(k * run, place, run); }));
  return One(std::move(scatterer).Take());
}

}  // namespace

std::vector<OpDefinition> GatherOps() {
  return {
      Op(Opset::kIOS15, "gather(T x, int32 indices, const int32 axis=0) where T=fp16|fp32|int32", InferGather,
         EvaluateGather),
      Op(Opset::kIOS16,
         "gather(T x, I indices, const int32 axis=0, const int32 batch_dims=0) where T=fp16|fp32|int32, "
         "I=int32|uint16|int16",
         InferGather, EvaluateGather),
      Op(Opset::kIOS17,
         "gather(T x, I indices, const int32 axis=0, const int32 batch_dims=0, const bool validate_indices=false) "
         "where T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         InferGather, EvaluateGather),
      Op(Opset::kIOS15, "gather_along_axis(T x, int32 indices, const int32 axis=0) where T=fp16|fp32|int32",
         InferGatherAlongAxis, EvaluateGatherAlongAxis),
      Op(Opset::kIOS16,
         "gather_along_axis(T x, I indices, const int32 axis=0) where T=fp16|fp32|int32, I=int32|uint16|int16",
         InferGatherAlongAxis, EvaluateGatherAlongAxis),
      Op(Opset::kIOS17,
         "gather_along_axis(T x, I indices, const int32 axis=0, const bool validate_indices=false) where "
         "T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         InferGatherAlongAxis, EvaluateGatherAlongAxis),
      Op(Opset::kIOS15, "gather_nd(T x, int32 indices) where T=fp16|fp32|int32", InferGatherNd, EvaluateGatherNd),
      Op(Opset::kIOS16,
         "gather_nd(T x, I indices, const int32 batch_dims=0) where T=fp16|fp32|int32, I=int32|uint16|int16",
         InferGatherNd, EvaluateGatherNd),
      Op(Opset::kIOS17,
         "gather_nd(T x, I indices, const int32 batch_dims=0, const bool validate_indices=false) where "
         "T=fp16|fp32|int32|int16|uint16|int8|uint8, I=int32|int16|uint16|int8|uint8",
         InferGatherNd, EvaluateGatherNd),
      Op(Opset::kIOS15,
         "scatter(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\") where "
         "T=fp16|fp32|int32",
         InferScatter, EvaluateScatter),
      Op(Opset::kIOS17,
         "scatter(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\", const bool "
         "validate_indices=false) where T=fp16|fp32|int32",
         InferScatter, EvaluateScatter),
      Op(Opset::kIOS15,
         "scatter_along_axis(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\") where "
         "T=fp16|fp32|int32",
         InferScatterAlongAxis, EvaluateScatterAlongAxis),
      Op(Opset::kIOS17,
         "scatter_along_axis(T data, int32 indices, T updates, const int32 axis=0, const string mode=\"add\", const "
         "bool validate_indices=false) where T=fp16|fp32|int32",
         InferScatterAlongAxis, EvaluateScatterAlongAxis),
      Op(Opset::kIOS15,
         "scatter_nd(T data, int32 indices, T updates, const string mode=\"add\") where T=fp16|fp32|int32",
         InferScatterNd, EvaluateScatterNd),
      Op(Opset::kIOS17,
         "scatter_nd(T data, int32 indices, T updates, const string mode=\"add\", const bool validate_indices=false) "
         "where T=fp16|fp32|int32",
         InferScatterNd, EvaluateScatterNd),
  };
}

}  // namespace milwright
