// Slices: reading, the slice update of iOS18, crop and sliding windows.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/op.h"
#include "ops/slice_bounds.h"

namespace milwright {
namespace {

// ---- slice_by_index and slice_update: begin, end, stride and the masks, as numpy's x[begin:end:stride] ----

// One value an axis, when the parameter's content is known; absent masks are false and absent strides 1.
using PerAxis = std::optional<std::vector<int64_t>>;

Result<PerAxis> PerAxisParameter(const OpContext& ctx, std::string_view parameter, int64_t absent) {
  const Shape& x = ctx.ShapeOf("x");
  if (!ctx.Has(parameter)) return PerAxis(std::vector<int64_t>(x.size(), absent));
  const Shape& shape = ctx.ShapeOf(parameter);
  const auto rank = static_cast<int64_t>(x.size());
  const bool known = ctx.Known(parameter);
  const int64_t length = known ? ctx.TensorOf(parameter)->size() : (shape.size() == 1 ? shape.front() : 0);
  if (shape.size() != 1 || (length != rank && length != kUnknownDim)) {
    return ctx.Error(fmt::format("'{}' has the shape {}, but x is {}: one value an axis is needed", parameter,
                                 ShapeToString(shape), ShapeToString(x)));
  }
  return known ? PerAxis(ctx.Ints(parameter)) : PerAxis();
}

// The parameters of a slice, one value an axis.
struct SliceParameters {
  PerAxis begin;  // unset: not known before the run
  PerAxis end;
  std::vector<int64_t> stride;
  std::vector<int64_t> begin_mask;
  std::vector<int64_t> end_mask;
  std::vector<int64_t> squeeze_mask;
};

Result<SliceParameters> ReadSliceParameters(const OpContext& ctx) {
  SliceParameters slice;
  MW_ASSIGN_OR_RETURN(slice.begin, PerAxisParameter(ctx, "begin", 0));
  MW_ASSIGN_OR_RETURN(slice.end, PerAxisParameter(ctx, "end", 0));
  const std::vector<int64_t> ones(ctx.ShapeOf("x").size(), 1);
  const std::vector<int64_t> zeros(ctx.ShapeOf("x").size(), 0);
  MW_ASSIGN_OR_RETURN(const PerAxis stride, PerAxisParameter(ctx, "stride", 1));
  MW_ASSIGN_OR_RETURN(const PerAxis begin_mask, PerAxisParameter(ctx, "begin_mask", 0));
  MW_ASSIGN_OR_RETURN(const PerAxis end_mask, PerAxisParameter(ctx, "end_mask", 0));
  MW_ASSIGN_OR_RETURN(const PerAxis squeeze_mask, PerAxisParameter(ctx, "squeeze_mask", 0));
  slice.stride = stride.value_or(ones);
  slice.begin_mask = begin_mask.value_or(zeros);
  slice.end_mask = end_mask.value_or(zeros);
  slice.squeeze_mask = squeeze_mask.value_or(zeros);
  if (std::ranges::find(slice.stride, 0) != slice.stride.end()) return ctx.Error("a stride is 0");
  return slice;
}

Result<AxisSlice> ResolveAxis(const OpContext& ctx, const SliceParameters& slice, size_t axis) {
  const int64_t size = ctx.ShapeOf("x")[axis];
  const int64_t stride = slice.stride[axis];
  if (slice.squeeze_mask[axis] != 0) {
    if (!slice.begin.has_value() || size == kUnknownDim) return AxisSlice{.size = 1, .squeeze = true};
    const int64_t asked = (*slice.begin)[axis];
    const int64_t at = asked < 0 ? asked + size : asked;
    if (at < 0 || at >= size) {
      return RuntimeError(ctx, fmt::format("axis {}: position {} is outside the size {}", axis, asked, size));
    }
    return AxisSlice{.begin = at, .size = 1, .squeeze = true};
  }
  const bool from_edge = slice.begin_mask[axis] != 0;
  const bool to_edge = slice.end_mask[axis] != 0;
  if (size == kUnknownDim) {
    return AxisSlice{.stride = stride};
  }
  if ((!from_edge && !slice.begin.has_value()) || (!to_edge && !slice.end.has_value())) {
    return AxisSlice{.stride = stride};
  }
  return ClampedSlice(size, from_edge ? std::nullopt : std::optional((*slice.begin)[axis]),
                      to_edge ? std::nullopt : std::optional((*slice.end)[axis]), stride);
}

Result<std::vector<AxisSlice>> ResolveSlices(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const SliceParameters slice, ReadSliceParameters(ctx));
  std::vector<AxisSlice> slices;
  for (size_t axis = 0; axis < ctx.ShapeOf("x").size(); ++axis) {
    MW_ASSIGN_OR_RETURN(AxisSlice resolved, ResolveAxis(ctx, slice, axis));
    slices.push_back(resolved);
  }
  return slices;
}

Shape SlicedShape(const std::vector<AxisSlice>& slices) {
  Shape shape;
  for (const AxisSlice& slice : slices) {
    if (!slice.squeeze) shape.push_back(slice.size);
  }
  return shape;
}

// The walk over the sliced elements of a tensor of shape `x`, over all its axes, and the sizes of that walk.
struct SlicedWalk {
  Walk walk;
  Shape sizes;
};

SlicedWalk WalkSlices(const Shape& x, const std::vector<AxisSlice>& slices) {
  SlicedWalk sliced{DenseWalk(x), {}};
  for (size_t i = 0; i < x.size(); ++i) {
    int64_t& step = sliced.walk.strides[i];
    sliced.walk.offset += slices[i].begin * step;
    // A stride that is never taken may be any number, so it must not be multiplied.
    step = slices[i].size > 1 ? step * slices[i].stride : 0;
    sliced.sizes.push_back(slices[i].size);
  }
  return sliced;
}

Result<std::vector<Literal>> TakeSlices(const Tensor& x, const std::vector<AxisSlice>& slices) {
  SlicedWalk sliced = WalkSlices(x.shape(), slices);
  MW_ASSIGN_OR_RETURN(const Tensor taken, Collect(x, sliced.sizes, sliced.walk));
  return One(taken.Reshaped(SlicedShape(slices)));
}

Result<std::vector<Type>> InferSliceByIndex(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSlices(ctx));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), SlicedShape(slices))};
}

Result<std::vector<Literal>> EvaluateSliceByIndex(const OpContext& ctx, const std::vector<Type>&) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSlices(ctx));
  return TakeSlices(*ctx.TensorOf("x"), slices);
}

// ---- slice_update ----

// Why the update does not fill the slice. The slice is clamped as numpy clamps it, so an update that reaches past an
// edge finds too little room: that is told with its position and the bound.
Status MisfitError(const OpContext& ctx, const std::vector<AxisSlice>& slices) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& update = ctx.ShapeOf("update");
  MW_ASSIGN_OR_RETURN(const SliceParameters slice, ReadSliceParameters(ctx));
  size_t row = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].squeeze) continue;
    const int64_t rows = update[row++];
    const bool by_position = slice.stride[i] == 1 && slice.begin.has_value() && slice.begin_mask[i] == 0;
    if (!by_position || slices[i].size == kUnknownDim || rows <= slices[i].size) continue;
    const int64_t position = (*slice.begin)[i];
    const bool to_end = slice.end_mask[i] != 0 || !slice.end.has_value();
    if (to_end || (*slice.end)[i] - position == rows) {
      return RuntimeError(
          ctx, fmt::format("axis {}: position {} with {} rows is outside the size {}", i, position, rows, x[i]));
    }
  }
  return ctx.Error(fmt::format("an update of shape {} does not fill the slice of shape {} of x {}",
                               ShapeToString(update), ShapeToString(SlicedShape(slices)), ShapeToString(x)));
}

Status CheckUpdate(const OpContext& ctx, const std::vector<AxisSlice>& slices) {
  const Shape wanted = SlicedShape(slices);
  const Shape& update = ctx.ShapeOf("update");
  if (wanted.empty()) {
    return ctx.Error(
        fmt::format("every axis of x {} is squeezed, but the update must keep one", ShapeToString(ctx.ShapeOf("x"))));
  }
  if (wanted.size() != update.size()) {
    return ctx.Error(fmt::format("the update {} has not the rank of the slice {} of x {}", ShapeToString(update),
                                 ShapeToString(wanted), ShapeToString(ctx.ShapeOf("x"))));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != update[i] && wanted[i] != kUnknownDim && update[i] != kUnknownDim) return MisfitError(ctx, slices);
  }
  return Status::Ok();
}

Result<std::vector<Type>> InferSliceUpdate(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSlices(ctx));
  MW_RETURN_IF_ERROR(CheckUpdate(ctx, slices));
  return InferSameAsX(ctx);
}

Result<std::vector<Literal>> EvaluateSliceUpdate(const OpContext& ctx, const std::vector<Type>&) {
  const Tensor& update = *ctx.TensorOf("update");
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSlices(ctx));
  MW_RETURN_IF_ERROR(CheckUpdate(ctx, slices));
  Tensor result = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(result.dtype()));
  SlicedWalk to = WalkSlices(result.shape(), slices);
  // The squeezed axes have size 1, so the update is dense over the sizes of the walk.
  CopyStrided(to.sizes, width, update.bytes().data(), DenseWalk(to.sizes), result.mutable_bytes().data(), to.walk);
  return One(std::move(result));
}

// ---- slice_by_size ----

Result<std::vector<AxisSlice>> ResolveSliceBySize(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const PerAxis begins, PerAxisParameter(ctx, "begin", 0));
  MW_ASSIGN_OR_RETURN(const PerAxis sizes, PerAxisParameter(ctx, "size", -1));
  std::vector<AxisSlice> slices(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    AxisSlice& slice = slices[i];
    const std::optional<int64_t> size = sizes.has_value() ? std::optional((*sizes)[i]) : std::nullopt;
    if (size.has_value() && *size < -1) return ctx.Error(fmt::format("axis {} cannot have the size {}", i, *size));
    if (size.has_value() && *size >= 0) slice.size = *size;
    if (!begins.has_value() || x[i] == kUnknownDim) continue;
    const int64_t asked = (*begins)[i];
    slice.begin = asked < 0 ? asked + x[i] : asked;
    if (size.has_value() && *size == -1) slice.size = x[i] - slice.begin;
    if (slice.begin < 0 || slice.begin > x[i] || (size.has_value() && slice.size > x[i] - slice.begin)) {
      return RuntimeError(ctx, fmt::format("axis {}: position {} with {} rows is outside the size {}", i, asked,
                                           std::max<int64_t>(slice.size, 0), x[i]));
    }
  }
  return slices;
}

Result<std::vector<Type>> InferSliceBySize(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSliceBySize(ctx));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), SlicedShape(slices))};
}

Result<std::vector<Literal>> EvaluateSliceBySize(const OpContext& ctx, const std::vector<Type>&) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveSliceBySize(ctx));
  return TakeSlices(*ctx.TensorOf("x"), slices);
}

// ---- crop ----

// [before, after] for the height (axis rank - 2) and the width (axis rank - 1).
Result<std::vector<AxisSlice>> ResolveCrop(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  if (x.size() < 3) return ctx.Error(fmt::format("x {} has no height and width to crop", ShapeToString(x)));
  std::vector<AxisSlice> slices;
  for (int64_t size : x) slices.push_back({.size = size});
  for (const auto& [parameter, axis] :
       {std::pair("crop_height", x.size() - 2), std::pair("crop_width", x.size() - 1)}) {
    const std::vector<int64_t> crop = ctx.Ints(parameter);
    if (crop.size() != 2 || crop[0] < 0 || crop[1] < 0) {
      return ctx.Error(fmt::format("{} must hold two sizes, but holds [{}]", parameter, fmt::join(crop, ", ")));
    }
    slices[axis].begin = crop[0];
    if (x[axis] == kUnknownDim) continue;
    slices[axis].size = x[axis] - crop[0] - crop[1];
    if (slices[axis].size < 0) {
      return ctx.Error(fmt::format("{} [{}] leaves nothing of axis {} of {}", parameter, fmt::join(crop, ", "), axis,
                                   ShapeToString(x)));
    }
  }
  return slices;
}

Result<std::vector<Type>> InferCrop(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveCrop(ctx));
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), SlicedShape(slices))};
}

Result<std::vector<Literal>> EvaluateCrop(const OpContext& ctx, const std::vector<Type>&) {
  MW_ASSIGN_OR_RETURN(const std::vector<AxisSlice> slices, ResolveCrop(ctx));
  return TakeSlices(*ctx.TensorOf("x"), slices);
}

// ---- sliding_windows ----

// The axis becomes (number of windows, window size); a tail that fills no window is left out.
Result<std::vector<Type>> InferSlidingWindows(const OpContext& ctx) {
  Type type = ctx.TypeOf("x");
  Shape& shape = type.tensor.shape;
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", shape));
  const int64_t size = ctx.Int("size");
  const int64_t stride = ctx.Int("stride");
  int64_t& windows = shape[static_cast<size_t>(axis)];
  if (size < 1 || stride < 1 || (windows != kUnknownDim && size > windows)) {
    return ctx.Error(fmt::format("windows of {} at a stride of {} do not fit axis {} of {}", size, stride, axis,
                                 ShapeToString(ctx.ShapeOf("x"))));
  }
  if (windows != kUnknownDim) windows = (windows - size) / stride + 1;
  shape.insert(shape.begin() + axis + 1, size);
  return std::vector<Type>{std::move(type)};
}

Result<std::vector<Literal>> EvaluateSlidingWindows(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  Walk from = DenseWalk(x.shape());
  const int64_t step = from.strides[static_cast<size_t>(axis)];
  const bool several = types.front().shape()[static_cast<size_t>(axis)] > 1;
  from.strides[static_cast<size_t>(axis)] = several ? step * ctx.Int("stride") : 0;
  from.strides.insert(from.strides.begin() + axis + 1, step);
  return One(Collect(x, types.front().shape(), from));
}

}  // namespace

std::vector<OpDefinition> SliceOps() {
  return {
      Op(Opset::kIOS15,
         "slice_by_index(T x, int32 begin, int32 end, const int32 stride?, const bool begin_mask?, const bool "
         "end_mask?, const bool squeeze_mask?) where T=fp16|fp32|int32|bool",
         InferSliceByIndex, EvaluateSliceByIndex),
      Op(Opset::kIOS17,
         "slice_by_index(T x, U begin, U end, const U stride?, const bool begin_mask?, const bool end_mask?, const "
         "bool squeeze_mask?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         InferSliceByIndex, EvaluateSliceByIndex),
      Op(Opset::kIOS15, "slice_by_size(T x, int32 begin, int32 size) where T=fp16|fp32|int32|bool", InferSliceBySize,
         EvaluateSliceBySize),
      Op(Opset::kIOS17,
         "slice_by_size(T x, U begin, U size) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         InferSliceBySize, EvaluateSliceBySize),
      Op(Opset::kIOS18,
         "slice_update(T x, T update, U begin, U end, const U stride?, const bool begin_mask?, const bool end_mask?, "
         "const bool squeeze_mask?) where T=fp16|fp32|int8|int16|int32|uint8|uint16|bool, U=int8|int16|int32",
         InferSliceUpdate, EvaluateSliceUpdate),
      Op(Opset::kIOS15, "crop(T x, const int32 crop_height, const int32 crop_width) where T=fp16|fp32", InferCrop,
         EvaluateCrop),
      Op(Opset::kIOS15,
         "sliding_windows(T x, const int32 axis, const int32 size, const int32 stride=1) where T=fp16|fp32|int32",
         InferSlidingWindows, EvaluateSlidingWindows),
      Op(Opset::kIOS17,
         "sliding_windows(T x, const int32 axis, const int32 size, const int32 stride=1) where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16|bool",
         InferSlidingWindows, EvaluateSlidingWindows),
  };
}

}  // namespace milwright
