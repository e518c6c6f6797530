// Ops that put tensors together or take them apart: concat, stack, split, tile, pad.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/op.h"

namespace milwright {
namespace {

// ---- concat and stack ----

// All values must be tensors of one data type whose elements can be moved, and of one rank.
Status CheckValues(const OpContext& ctx) {
  const auto values = ctx.Arguments("values");
  if (values.empty()) return ctx.Error("there are no values");
  const Type& first = *values.front().type;
  for (const OpContext::Argument& value : values) {
    if (!value.type->IsTensor() || value.type->dtype() != first.dtype() || value.type->rank() != first.rank()) {
      return ctx.Error(
          fmt::format("the values {} and {} do not go together", TypeToString(first), TypeToString(*value.type)));
    }
  }
  const auto width = ElementBytes(first.dtype());
  return width.ok() ? Status::Ok() : ctx.Error(width.status().message());
}

// The sizes that all values share, apart from `axis`, which is left as in the first value; -1: none apart.
Result<Shape> CommonShape(const OpContext& ctx, int64_t axis) {
  const auto values = ctx.Arguments("values");
  Shape shape = values.front().type->shape();
  for (const OpContext::Argument& value : values) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (static_cast<int64_t>(i) == axis) continue;
      MW_ASSIGN_OR_RETURN(shape[i], EqualSizes(ctx, shape[i], value.type->shape()[i], fmt::format("axis {}", i)));
    }
  }
  return shape;
}

Result<std::vector<Type>> InferConcat(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckValues(ctx));
  const auto values = ctx.Arguments("values");
  const DataType dtype = values.front().type->dtype();
  // Scalars make a vector (op-semantics.md, section 3).
  if (values.front().type->rank() == 0) {
    return std::vector<Type>{Type::Tensor(dtype, {static_cast<int64_t>(values.size())})};
  }
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", values.front().type->shape()));
  MW_ASSIGN_OR_RETURN(Shape shape, CommonShape(ctx, axis));
  int64_t& total = shape[static_cast<size_t>(axis)];
  total = 0;
  int64_t piece = kUnknownDim;
  for (const OpContext::Argument& value : values) {
    const int64_t size = value.type->shape()[static_cast<size_t>(axis)];
    if (ctx.Bool("interleave")) {
      MW_ASSIGN_OR_RETURN(piece, EqualSizes(ctx, piece, size, fmt::format("the interleaved axis {}", axis)));
    }
    if (size == kUnknownDim || total == kUnknownDim) {
      total = kUnknownDim;
    } else if (__builtin_add_overflow(total, size, &total)) {
      return ctx.Error(fmt::format("the sizes of axis {} add up beyond 64 bits", axis));
    }
  }
  return std::vector<Type>{Type::Tensor(dtype, std::move(shape))};
}

const Tensor& ValueTensor(const OpContext::Argument& argument) { return argument.value->tensor; }

Result<std::vector<Literal>> EvaluateConcat(const OpContext& ctx, const std::vector<Type>& types) {
  const auto values = ctx.Arguments("values");
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const int64_t axis_number, NormalizeAxis(ctx.Int("axis"), types.front().rank()));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(type.dtype));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(type));
  const auto axis = static_cast<size_t>(axis_number);
  const bool interleave = ctx.Bool("interleave");
  const std::span<std::byte> target = result.mutable_bytes();
  Walk to = DenseWalk(type.shape);
  const int64_t step = to.strides[axis];
  if (interleave) to.strides[axis] *= static_cast<int64_t>(values.size());
  for (const OpContext::Argument& value : values) {
    const Tensor& tensor = ValueTensor(value);
    const Shape sizes = tensor.rank() == 0 ? Shape{1} : tensor.shape();
    CopyStrided(sizes, width, tensor.bytes().data(), DenseWalk(sizes), target.data(), to);
    to.offset += interleave ? step : step * sizes[axis];
  }
  return One(std::move(result));
}

// The new axis is counted in the result, so it lies in [-rank - 1, rank].
Result<int64_t> StackAxis(const OpContext& ctx) {
  const int64_t axis = ctx.Int("axis");
  auto normalized = NormalizeAxis(axis, ctx.Arguments("values").front().type->rank() + 1);
  if (normalized.ok()) return normalized;
  return ctx.Error(fmt::format("axis {} is outside the values of {}, which the new axis may lie beside", axis,
                               TypeToString(*ctx.Arguments("values").front().type)));
}

Result<std::vector<Type>> InferStack(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckValues(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t axis, StackAxis(ctx));
  MW_ASSIGN_OR_RETURN(Shape shape, CommonShape(ctx, -1));
  const auto values = ctx.Arguments("values");
  shape.insert(shape.begin() + axis, static_cast<int64_t>(values.size()));
  return std::vector<Type>{Type::Tensor(values.front().type->dtype(), std::move(shape))};
}

Result<std::vector<Literal>> EvaluateStack(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const int64_t axis, StackAxis(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(type.dtype));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(type));
  const std::span<std::byte> target = result.mutable_bytes();
  Walk to = DenseWalk(type.shape);
  const int64_t step = to.strides[static_cast<size_t>(axis)];
  to.strides.erase(to.strides.begin() + axis);
  for (const OpContext::Argument& value : ctx.Arguments("values")) {
    const Tensor& tensor = ValueTensor(value);
    CopyStrided(tensor.shape(), width, tensor.bytes().data(), DenseWalk(tensor.shape()), target.data(), to);
    to.offset += step;
  }
  return One(std::move(result));
}

// ---- split ----

// The sizes of the pieces: split_sizes wins over num_splits, which asks for equal ones.
Result<std::vector<int64_t>> PieceSizes(const OpContext& ctx, int64_t size, int64_t axis) {
  constexpr int64_t kMaxPieces = 1 << 16;
  if (ctx.Has("split_sizes")) {
    std::vector<int64_t> sizes = ctx.Ints("split_sizes");
    int64_t sum = 0;
    for (int64_t piece : sizes) {
      if (piece < 0 || __builtin_add_overflow(sum, piece, &sum)) {
        return ctx.Error(fmt::format("the split size {} makes no sense", piece));
      }
    }
    if (size != kUnknownDim && sum != size) {
      return ctx.Error(fmt::format("the split sizes [{}] do not add up to {}, the size of axis {} of {}",
                                   fmt::join(sizes, ", "), size, axis, ShapeToString(ctx.ShapeOf("x"))));
    }
    return sizes;
  }
  const int64_t pieces = ctx.Int("num_splits");
  if (pieces < 1 || pieces > kMaxPieces) return ctx.Error(fmt::format("there cannot be {} splits", pieces));
  if (size != kUnknownDim && size % pieces != 0) {
    return ctx.Error(fmt::format("axis {} of {} does not split into {} equal pieces", axis,
                                 ShapeToString(ctx.ShapeOf("x")), pieces));
  }
  return std::vector<int64_t>(static_cast<size_t>(pieces), size == kUnknownDim ? kUnknownDim : size / pieces);
}

Result<std::vector<Type>> InferSplit(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, PieceSizes(ctx, x[static_cast<size_t>(axis)], axis));
  std::vector<Type> types;
  for (int64_t size : sizes) {
    types.push_back(ctx.TypeOf("x"));
    types.back().tensor.shape[static_cast<size_t>(axis)] = size;
  }
  return types;
}

Result<std::vector<Literal>> EvaluateSplit(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  Walk from = DenseWalk(x.shape());
  std::vector<Literal> pieces;
  for (const Type& type : types) {
    MW_ASSIGN_OR_RETURN(Tensor piece, Collect(x, type.shape(), from));
    pieces.emplace_back(std::move(piece));
    from.offset += from.strides[static_cast<size_t>(axis)] * type.shape()[static_cast<size_t>(axis)];
  }
  return pieces;
}

// ---- tile ----

Result<std::vector<Type>> InferTile(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& reps_shape = ctx.ShapeOf("reps");
  const auto rank = static_cast<int64_t>(x.size());
  if (reps_shape.size() != 1 || (reps_shape.front() != kUnknownDim && reps_shape.front() != rank)) {
    return ctx.Error(
        fmt::format("reps of shape {} do not fit the shape {}", ShapeToString(reps_shape), ShapeToString(x)));
  }
  if (!ctx.Known("reps")) {
    MW_ASSIGN_OR_RETURN(Type type, TypeOfRank(ctx, ctx.DTypeOf("x"), rank));
    return std::vector<Type>{std::move(type)};
  }
  const std::vector<int64_t> reps = ctx.Ints("reps");
  if (reps.size() != x.size()) {
    return ctx.Error(fmt::format("{} reps do not fit the shape {}", reps.size(), ShapeToString(x)));
  }
  Type type = ctx.TypeOf("x");
  for (size_t i = 0; i < x.size(); ++i) {
    if (reps[i] < 1) return ctx.Error(fmt::format("axis {} of {} cannot stand {} times", i, ShapeToString(x), reps[i]));
    MW_ASSIGN_OR_RETURN(type.tensor.shape[i], MultiplySizes(ctx, x[i], reps[i]));
  }
  return std::vector<Type>{std::move(type)};
}

// Every axis is seen as (repeats, size), of which the repeats have stride zero in x.
Result<std::vector<Literal>> EvaluateTile(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const std::vector<int64_t> reps = ctx.Ints("reps");
  const std::vector<int64_t> strides = Strides(x.shape());
  Shape sizes;
  Walk from;
  for (size_t i = 0; i < reps.size(); ++i) {
    sizes.insert(sizes.end(), {reps[i], x.shape()[i]});
    from.strides.insert(from.strides.end(), {0, strides[i]});
  }
  MW_ASSIGN_OR_RETURN(const Tensor tiled, Collect(x, sizes, from));
  return One(tiled.Reshaped(types.front().shape()));
}

// ---- pad ----

enum class PadMode : uint8_t { kConstant, kReflect, kReplicate };

Result<PadMode> PadModeOf(const OpContext& ctx) {
  const std::string mode = ctx.String("mode");
  if (mode == "constant") return PadMode::kConstant;
  if (mode == "reflect") return PadMode::kReflect;
  if (mode == "replicate") return PadMode::kReplicate;
  return ctx.Error(fmt::format("the mode '{}' is none of constant, reflect, replicate", mode));
}

// The padding before and after every axis: the pairs given belong to the last axes, in forward order.
struct Padding {
  std::vector<int64_t> before;
  std::vector<int64_t> after;
};

Result<Padding> ResolvePadding(const OpContext& ctx, const Shape& x) {
  const std::vector<int64_t> pad = ctx.Ints("pad");
  if (pad.size() % 2 != 0 || pad.size() > 2 * x.size()) {
    return ctx.Error(fmt::format("{} numbers in 'pad' are no pairs for the shape {}", pad.size(), ShapeToString(x)));
  }
  Padding padding{std::vector<int64_t>(x.size(), 0), std::vector<int64_t>(x.size(), 0)};
  const size_t first = x.size() - pad.size() / 2;
  MW_ASSIGN_OR_RETURN(const PadMode mode, PadModeOf(ctx));
  for (size_t i = first; i < x.size(); ++i) {
    const int64_t before = pad[2 * (i - first)];
    const int64_t after = pad[2 * (i - first) + 1];
    if (before < 0 || after < 0) return ctx.Error(fmt::format("the padding of axis {} is negative", i));
    const int64_t most = mode == PadMode::kReflect ? x[i] - 1 : std::numeric_limits<int32_t>::max();
    const bool nothing_to_repeat = mode == PadMode::kReplicate && x[i] == 0 && before + after > 0;
    if (x[i] != kUnknownDim && (std::max(before, after) > std::max<int64_t>(most, 0) || nothing_to_repeat)) {
      return ctx.Error(fmt::format("axis {} of {} cannot be padded by {} and {} with mode {}", i, ShapeToString(x),
                                   before, after, ctx.String("mode")));
    }
    padding.before[i] = before;
    padding.after[i] = after;
  }
  return padding;
}

Result<std::vector<Type>> InferPad(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(PadModeOf(ctx));
  Type type = ctx.TypeOf("x");
  if (!ctx.Known("pad")) {
    MW_ASSIGN_OR_RETURN(type, TypeOfRank(ctx, ctx.DTypeOf("x"), type.rank()));
    return std::vector<Type>{std::move(type)};
  }
  MW_ASSIGN_OR_RETURN(const Padding padding, ResolvePadding(ctx, type.shape()));
  for (size_t i = 0; i < type.tensor.shape.size(); ++i) {
    int64_t& size = type.tensor.shape[i];
    if (size == kUnknownDim) continue;
    if (__builtin_add_overflow(size, padding.before[i] + padding.after[i], &size)) {
      return ctx.Error(fmt::format("axis {} grows beyond 64 bits", i));
    }
  }
  return std::vector<Type>{std::move(type)};
}

// Where position `i` of a padded axis reads from in an axis of `size`, `before` positions further on.
int64_t PaddedSource(PadMode mode, int64_t i, int64_t before, int64_t size) {
  const int64_t at = i - before;
  if (mode == PadMode::kReplicate) return std::clamp<int64_t>(at, 0, size - 1);
  if (at < 0) return -at;  // reflect: the edge itself is not repeated
  return at < size ? at : 2 * (size - 1) - at;
}

// Grows one axis by copying its own elements; the others stay.
Result<Tensor> PadAxis(const Tensor& x, size_t axis, int64_t before, int64_t after, PadMode mode) {
  Shape shape = x.shape();
  const int64_t size = shape[axis];
  shape[axis] += before + after;
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({x.dtype(), shape}));
  const std::span<std::byte> target = result.mutable_bytes();
  Shape slice = shape;
  slice[axis] = 1;
  for (int64_t i = 0; i < shape[axis]; ++i) {
    Walk from = DenseWalk(x.shape());
    Walk to = DenseWalk(shape);
    from.offset = PaddedSource(mode, i, before, size) * from.strides[axis];
    to.offset = i * to.strides[axis];
    CopyStrided(slice, width, x.bytes().data(), from, target.data(), to);
  }
  return result;
}

Result<std::vector<Literal>> EvaluatePad(const OpContext& ctx, const std::vector<Type>& types) {
  Tensor x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const PadMode mode, PadModeOf(ctx));
  MW_ASSIGN_OR_RETURN(const Padding padding, ResolvePadding(ctx, x.shape()));
  if (mode != PadMode::kConstant) {
    for (size_t axis = 0; axis < x.shape().size(); ++axis) {
      if (padding.before[axis] == 0 && padding.after[axis] == 0) continue;
      MW_ASSIGN_OR_RETURN(x, PadAxis(x, axis, padding.before[axis], padding.after[axis], mode));
    }
    return One(std::move(x));
  }
  const TensorType& type = types.front().tensor;
  const Tensor value = Tensor::Scalar(type.dtype, ctx.Double("constant_val"));
  // Filled through strides of zero, then overwritten where x lies.
  MW_ASSIGN_OR_RETURN(Tensor result, Collect(value, type.shape, {0, std::vector<int64_t>(type.shape.size(), 0)}));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(type.dtype));
  Walk to = DenseWalk(type.shape);
  for (size_t i = 0; i < to.strides.size(); ++i) to.offset += padding.before[i] * to.strides[i];
  CopyStrided(x.shape(), width, x.bytes().data(), DenseWalk(x.shape()), result.mutable_bytes().data(), to);
  return One(std::move(result));
}

}  // namespace

std::vector<OpDefinition> AssemblyOps() {
  return {
      Op(Opset::kIOS15, "concat(any... values, const int32 axis, const bool interleave=false)", InferConcat,
         EvaluateConcat),
      Op(Opset::kIOS15,
         "split(T x, const int32 num_splits?, const int32 split_sizes?, const int32 axis) where T=fp16|fp32|int32|bool",
         InferSplit, EvaluateSplit),
      Op(Opset::kIOS15, "stack(any... values, const int32 axis)", InferStack, EvaluateStack),
      Op(Opset::kIOS15,
         "pad(T x, int32 pad, const string mode=\"constant\", const T constant_val=0.0) where T=fp16|fp32", InferPad,
         EvaluatePad),
      Op(Opset::kIOS15, "tile(T x, int32 reps) where T=fp16|fp32|int32|bool", InferTile, EvaluateTile),
  };
}

}  // namespace milwright
