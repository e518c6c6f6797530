// Ops that give a tensor another shape or order its axes or elements anew: reshape, transpose, reverse and their kin.
#include <fmt/format.h>

#include <algorithm>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/op.h"

namespace milwright {
namespace {

Result<std::vector<Type>> WithShape(const OpContext& ctx, Shape shape) {
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), std::move(shape))};
}

// The kernel of every op that only renames the axes.
Result<std::vector<Literal>> EvaluateView(const OpContext& ctx, const std::vector<Type>& types) {
  return One(ctx.TensorOf("x")->Reshaped(types.front().shape()));
}

// ---- reshape ----

// What a 0 at place `i` of the new shape stands for: the size at the same place up to iOS16; from iOS17 the places are
// counted from the right, and a 0 without a partner is 1 (op-semantics.md, section 3).
Result<int64_t> CopiedAxis(const OpContext& ctx, size_t i, size_t new_rank) {
  const Shape& x = ctx.ShapeOf("x");
  const auto place = static_cast<int64_t>(i);
  if (ctx.opset() >= Opset::kIOS17) return place + static_cast<int64_t>(x.size()) - static_cast<int64_t>(new_rank);
  if (i < x.size()) return place;
  return ctx.Error(fmt::format("the 0 at place {} of the new shape has no size in {} to copy", i, ShapeToString(x)));
}

Result<int64_t> KnownCount(const Shape& shape) {
  Shape known;
  std::ranges::copy_if(shape, std::back_inserter(known), [](int64_t size) { return size != kUnknownDim; });
  return ElementCount(known);
}

Result<Shape> ResolveReshape(const OpContext& ctx, const std::vector<int64_t>& asked) {
  const Shape& x = ctx.ShapeOf("x");
  const auto fails = [&](std::string_view why) {
    return ctx.Error(fmt::format("{} cannot take the shape {}: {}", ShapeToString(x),
                                 fmt::format("[{}]", fmt::join(asked, ", ")), why));
  };
  Shape shape;
  std::optional<size_t> rest;
  auto unknown = std::ranges::count(x, kUnknownDim);  // unknown sizes of x that the new shape does not copy
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] == 0) {
      MW_ASSIGN_OR_RETURN(const int64_t axis, CopiedAxis(ctx, i, asked.size()));
      shape.push_back(axis >= 0 ? x[static_cast<size_t>(axis)] : 1);
      if (shape.back() == kUnknownDim) --unknown;
    } else if (asked[i] > 0) {
      shape.push_back(asked[i]);
    } else if (asked[i] == -1 && !rest.has_value()) {
      rest = i;
      shape.push_back(1);
    } else {
      return fails(asked[i] == -1 ? "more than one size is -1" : "a size is negative");
    }
  }
  MW_ASSIGN_OR_RETURN(const int64_t have, KnownCount(x));
  MW_ASSIGN_OR_RETURN(const int64_t want, KnownCount(shape));
  if (unknown > 0) {
    if (rest.has_value()) shape[*rest] = kUnknownDim;
    return shape;
  }
  if (!rest.has_value()) {
    if (have != want) return fails("the numbers of elements differ");
    return shape;
  }
  if (want == 0 || have % want != 0) return fails("the size at -1 is not a whole number");
  shape[*rest] = have / want;
  return shape;
}

Result<std::vector<Type>> InferReshape(const OpContext& ctx) {
  if (ctx.TypeOf("shape").rank() != 1) {
    return ctx.Error(fmt::format("'shape' must be a vector, but is {}", TypeToString(ctx.TypeOf("shape"))));
  }
  if (ctx.Known("shape")) {
    MW_ASSIGN_OR_RETURN(Shape shape, ResolveReshape(ctx, ctx.Ints("shape")));
    return WithShape(ctx, std::move(shape));
  }
  const int64_t rank = ctx.ShapeOf("shape").front();
  if (rank == kUnknownDim) {
    // The rank itself is data: only the program can say what it means to be.
    if (ctx.declared().size() == 1) return WithShape(ctx, Shape(ctx.declared().front()->shape().size(), kUnknownDim));
    return ctx.Error("the rank of the result is not known");
  }
  MW_ASSIGN_OR_RETURN(Type type, TypeOfRank(ctx, ctx.DTypeOf("x"), rank));
  return std::vector<Type>{std::move(type)};
}

Result<std::vector<Type>> InferReshapeLike(const OpContext& ctx) {
  const auto references = ctx.Arguments("ref_tensors");
  const auto begins = ctx.Arguments("begins");
  const auto ends = ctx.Arguments("ends");
  const auto masks = ctx.Arguments("end_masks");
  if (begins.size() != references.size() || ends.size() != references.size() || masks.size() != references.size()) {
    return ctx.Error(fmt::format("{} references need as many begins, ends and end_masks, but have {}, {} and {}",
                                 references.size(), begins.size(), ends.size(), masks.size()));
  }
  const auto scalar = [](const OpContext::Argument& argument) -> std::optional<int64_t> {
    if (argument.value == nullptr || !argument.value->type.IsTensor() || argument.value->tensor.size() != 1) return {};
    return argument.value->tensor.GetInt(0);
  };
  Shape shape;
  for (size_t i = 0; i < references.size(); ++i) {
    const Shape& reference = references[i].type->shape();
    const auto rank = static_cast<int64_t>(reference.size());
    const auto begin = scalar(begins[i]);
    const auto end = scalar(ends[i]);
    const auto mask = scalar(masks[i]);
    if (!begin || !end || !mask) return ctx.Error(fmt::format("begin, end or end_mask {} is no known scalar", i));
    const int64_t from = *begin < 0 ? *begin + rank : *begin;
    const int64_t to = *mask != 0 ? rank : (*end < 0 ? *end + rank : *end);
    if (from < 0 || from > to || to > rank) {
      return ctx.Error(fmt::format("the axes {} to {} are outside the reference {} of shape {}", from, to, i,
                                   ShapeToString(reference)));
    }
    shape.insert(shape.end(), reference.begin() + from, reference.begin() + to);
  }
  const Shape& x = ctx.ShapeOf("x");
  if (IsStatic(shape) && IsStatic(x)) {
    MW_ASSIGN_OR_RETURN(const int64_t want, ElementCount(shape));
    MW_ASSIGN_OR_RETURN(const int64_t have, ElementCount(x));
    if (want != have) {
      return ctx.Error(fmt::format("{} cannot take the shape {}", ShapeToString(x), ShapeToString(shape)));
    }
  }
  return WithShape(ctx, std::move(shape));
}

// ---- ops that add, drop or join axes ----

Result<std::vector<Type>> InferExpandDims(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  // The axes are those of the result.
  const int64_t rank = static_cast<int64_t>(x.size() + ctx.Ints("axes").size());
  MW_ASSIGN_OR_RETURN(const Type type, TypeOfRank(ctx, ctx.DTypeOf("x"), rank));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesParameter(ctx, "axes", rank));
  Shape shape;
  auto next = x.begin();
  for (int64_t axis = 0; axis < rank; ++axis) {
    const bool added = std::ranges::find(axes, axis) != axes.end();
    shape.push_back(added ? 1 : *next++);
  }
  return WithShape(ctx, std::move(shape));
}

// Without axes every size of 1 goes; an axis of another size is left alone even when it is named, as in PyTorch.
Result<std::vector<Type>> InferSqueeze(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesParameter(ctx, "axes", ctx.TypeOf("x").rank()));
  Shape shape;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool named = !ctx.Has("axes") || std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (x[i] != 1 || !named) shape.push_back(x[i]);
  }
  return WithShape(ctx, std::move(shape));
}

Result<std::vector<Type>> InferFlatten2d(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const auto rank = static_cast<int64_t>(x.size());
  const int64_t asked = ctx.Int("axis");
  const int64_t axis = asked < 0 ? asked + rank : asked;
  if (axis < 0 || axis > rank) return ctx.Error(fmt::format("axis {} is outside {}", asked, ShapeToString(x)));
  Shape shape{1, 1};
  for (int64_t i = 0; i < rank; ++i) {
    int64_t& side = shape[i < axis ? 0 : 1];
    MW_ASSIGN_OR_RETURN(side, MultiplySizes(ctx, side, x[static_cast<size_t>(i)]));
  }
  return WithShape(ctx, std::move(shape));
}

// ---- ops that order axes or elements anew ----

Result<std::vector<Type>> InferTranspose(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, AxesParameter(ctx, "perm", ctx.TypeOf("x").rank()));
  if (perm.size() != x.size()) {
    return ctx.Error(fmt::format("a perm of {} axes cannot order the shape {}", perm.size(), ShapeToString(x)));
  }
  Shape shape;
  for (int64_t axis : perm) shape.push_back(x[static_cast<size_t>(axis)]);
  return WithShape(ctx, std::move(shape));
}

Result<std::vector<Literal>> EvaluateTranspose(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, AxesParameter(ctx, "perm", x.rank()));
  return One(PermuteView(x, x.shape(), perm, types.front().shape()));
}

Result<std::vector<Type>> InferReverse(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(AxesParameter(ctx, "axes", ctx.TypeOf("x").rank()));
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateReverse(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesParameter(ctx, "axes", x.rank()));
  Walk from = DenseWalk(x.shape());
  for (size_t i = 0; i < x.shape().size(); ++i) {
    if (ctx.Has("axes") && std::ranges::find(axes, static_cast<int64_t>(i)) == axes.end()) continue;
    from.offset += (x.shape()[i] - 1) * from.strides[i];
    from.strides[i] = -from.strides[i];
  }
  return One(Collect(x, x.shape(), from));
}

Result<std::vector<Type>> InferReverseSequence(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& lengths = ctx.ShapeOf("lengths");
  MW_ASSIGN_OR_RETURN(const int64_t sequence, AxisParameter(ctx, "seq_axis", x));
  MW_ASSIGN_OR_RETURN(const int64_t batch, AxisParameter(ctx, "batch_axis", x));
  if (sequence == batch) return ctx.Error(fmt::format("seq_axis and batch_axis are both {}", batch));
  if (lengths.size() != 1) return ctx.Error(fmt::format("lengths has the shape {}", ShapeToString(lengths)));
  MW_RETURN_IF_ERROR(EqualSizes(ctx, lengths.front(), x[static_cast<size_t>(batch)], "the batch axis"));
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateReverseSequence(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& shape = x.shape();
  MW_ASSIGN_OR_RETURN(const int64_t sequence_axis, AxisParameter(ctx, "seq_axis", shape));
  MW_ASSIGN_OR_RETURN(const int64_t batch_axis, AxisParameter(ctx, "batch_axis", shape));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  const auto sequence = static_cast<size_t>(sequence_axis);
  const auto batch = static_cast<size_t>(batch_axis);
  const std::vector<int64_t> lengths = ctx.Ints("lengths");
  Tensor result = x;
  const std::span<std::byte> target = result.mutable_bytes();
  for (int64_t b = 0; b < shape[batch]; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    if (length < 0 || length > shape[sequence]) {
      return RuntimeError(ctx, fmt::format("length {} of batch {} is outside the size {} of axis {}", length, b,
                                           shape[sequence], sequence));
    }
    Shape sizes = shape;
    sizes[batch] = 1;
    sizes[sequence] = length;
    Walk to = DenseWalk(shape);
    to.offset = b * to.strides[batch];
    Walk from = to;
    from.offset += (length - 1) * from.strides[sequence];
    from.strides[sequence] = -from.strides[sequence];
    CopyStrided(sizes, width, x.bytes().data(), from, target.data(), to);
  }
  return One(std::move(result));
}

}  // namespace

std::vector<OpDefinition> ShapeOps() {
  return {
      Op(Opset::kIOS15, "reshape(T x, int32 shape) where T=fp16|fp32|int32|bool", InferReshape, EvaluateView),
      Op(Opset::kIOS17,
         "reshape(T x, U shape) where T=fp16|fp32|int8|uint8|int16|uint16|int32|bool, U=int8|int16|int32", InferReshape,
         EvaluateView),
      Op(Opset::kIOS16,
         "reshape_like(T x, any... ref_tensors, any... begins, any... ends, any... end_masks) where "
         "T=fp16|fp32|int32|bool",
         InferReshapeLike, EvaluateView),
      Op(Opset::kIOS17,
         "reshape_like(T x, any... ref_tensors, any... begins, any... ends, any... end_masks) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferReshapeLike, EvaluateView),
      Op(Opset::kIOS15, "transpose(T x, const int32 perm) where T=fp16|fp32|int32|bool", InferTranspose,
         EvaluateTranspose),
      Op(Opset::kIOS17, "transpose(T x, const int32 perm) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferTranspose, EvaluateTranspose),
      Op(Opset::kIOS15, "expand_dims(T x, const int32 axes) where T=fp16|fp32|int32|bool", InferExpandDims,
         EvaluateView),
      Op(Opset::kIOS17, "expand_dims(T x, const int32 axes) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferExpandDims, EvaluateView),
      Op(Opset::kIOS15, "squeeze(T x, const int32 axes?) where T=fp16|fp32|int32|bool", InferSqueeze, EvaluateView),
      Op(Opset::kIOS17, "squeeze(T x, const int32 axes?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferSqueeze, EvaluateView),
      Op(Opset::kIOS15, "flatten2d(T x, const int32 axis=1) where T=fp16|fp32|int32|bool", InferFlatten2d,
         EvaluateView),
      Op(Opset::kIOS15, "reverse(T x, const int32 axes?) where T=fp16|fp32|int32|bool", InferReverse, EvaluateReverse),
      Op(Opset::kIOS17, "reverse(T x, const int32 axes?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferReverse, EvaluateReverse),
      Op(Opset::kIOS15,
         "reverse_sequence(T x, int32 lengths, const int32 seq_axis=0, const int32 batch_axis=0) where "
         "T=fp16|fp32|int32|bool",
         InferReverseSequence, EvaluateReverseSequence),
      Op(Opset::kIOS17,
         "reverse_sequence(T x, U lengths, const int32 seq_axis=0, const int32 batch_axis=0) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         InferReverseSequence, EvaluateReverseSequence),
  };
}

}  // namespace milwright
