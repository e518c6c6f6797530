#include "ops/spatial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>

namespace milwright {
namespace {

// Sizes and parameters up to here keep every sum and product of two below in int64.
constexpr int64_t kMaxSpatial = std::numeric_limits<int32_t>::max();

struct PadType {
  bool custom = false;
  bool same = false;
  bool extra_in_front = false;  // same_lower
};

Result<PadType> ReadPadType(const OpContext& ctx, bool lower_allowed) {
  std::string text = ctx.String("pad_type", "valid");
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text == "valid") return PadType{};
  if (text == "custom") return PadType{.custom = true};
  if (text == "same") return PadType{.same = true};
  if (text == "same_lower" && lower_allowed) return PadType{.same = true, .extra_in_front = true};
  return ctx.Error(fmt::format("pad_type '{}' is not one of valid, same, custom{}", ctx.String("pad_type"),
                               lower_allowed ? ", same_lower" : ""));
}

// A parameter with one entry per spatial dimension; all ones when absent.
Result<std::vector<int64_t>> Steps(const OpContext& ctx, std::string_view parameter, size_t dimensions) {
  std::vector<int64_t> steps = ctx.Ints(parameter, std::vector<int64_t>(dimensions, 1));
  if (steps.size() != dimensions) {
    return ctx.Error(fmt::format("{} has {} entries, but x of shape {} has {} spatial dimensions", parameter,
                                 steps.size(), ShapeToString(ctx.ShapeOf("x")), dimensions));
  }
  for (size_t d = 0; d < dimensions; ++d) {
    if (steps[d] < 1 || steps[d] > kMaxSpatial) {
      return ctx.Error(fmt::format("{} of spatial dimension {} is {}; it must be positive", parameter, d, steps[d]));
    }
  }
  return steps;
}

// Everything but padding and output.
Result<SpatialGeometry> ReadWindow(const OpContext& ctx, const Shape& kernel) {
  const Shape& x = ctx.ShapeOf("x");
  if (x.size() < 3 || x.size() > 5) {
    return ctx.Error(fmt::format("x has shape {}; it takes rank 3 to 5 (batch, channels, 1 to 3 spatial dimensions)",
                                 ShapeToString(x)));
  }
  SpatialGeometry geometry;
  geometry.input.assign(x.begin() + 2, x.end());
  const size_t dimensions = geometry.input.size();
  if (kernel.size() != dimensions) {
    return ctx.Error(fmt::format("the window {} does not fit x of shape {}, which has {} spatial dimensions",
                                 ShapeToString(kernel), ShapeToString(x), dimensions));
  }
  geometry.kernel = kernel;
  for (size_t d = 0; d < dimensions; ++d) {
    if (kernel[d] != kUnknownDim && (kernel[d] < 1 || kernel[d] > kMaxSpatial)) {
      return ctx.Error(
          fmt::format("the window [{}] must have sizes from 1 to {}", fmt::join(kernel, ", "), kMaxSpatial));
    }
    if (geometry.input[d] > kMaxSpatial) {
      return ctx.Error(fmt::format("x of shape {} is too large in spatial dimension {}", ShapeToString(x), d));
    }
  }
  MW_ASSIGN_OR_RETURN(geometry.strides, Steps(ctx, "strides", dimensions));
  MW_ASSIGN_OR_RETURN(geometry.dilations, Steps(ctx, "dilations", dimensions));
  geometry.before.assign(dimensions, 0);
  geometry.after.assign(dimensions, 0);
  geometry.output.assign(dimensions, kUnknownDim);
  return geometry;
}

// pad_type custom: "pad" holds (before, after) per dimension.
Status ReadCustomPad(const OpContext& ctx, SpatialGeometry& geometry) {
  const size_t dimensions = geometry.input.size();
  const std::vector<int64_t> pad = ctx.Ints("pad", std::vector<int64_t>(2 * dimensions, 0));
  if (pad.size() != 2 * dimensions) {
    return ctx.Error(fmt::format("pad has {} entries, but x of shape {} needs {} (before and after of each dimension)",
                                 pad.size(), ShapeToString(ctx.ShapeOf("x")), 2 * dimensions));
  }
  for (size_t d = 0; d < dimensions; ++d) {
    geometry.before[d] = pad[2 * d];
    geometry.after[d] = pad[2 * d + 1];
    if (geometry.before[d] < 0 || geometry.after[d] < 0) {
      return ctx.Error(fmt::format("pad of spatial dimension {} is ({}, {}); it must not be negative", d,
                                   geometry.before[d], geometry.after[d]));
    }
  }
  return Status::Ok();
}

// Length of the dilated window.
int64_t Reach(const SpatialGeometry& geometry, size_t d) {
  return (geometry.kernel[d] - 1) * geometry.dilations[d] + 1;
}

Status NoOutput(const OpContext& ctx, const SpatialGeometry& geometry, size_t d) {
  return ctx.Error(fmt::format(
      "spatial dimension {} of x {} (size {}, padded by {} and {}) leaves no output for a window of {}", d,
      ShapeToString(ctx.ShapeOf("x")), geometry.input[d], geometry.before[d], geometry.after[d], Reach(geometry, d)));
}

}  // namespace

Result<SpatialGeometry> SlidingWindow(const OpContext& ctx, const Shape& kernel) {
  MW_ASSIGN_OR_RETURN(SpatialGeometry geometry, ReadWindow(ctx, kernel));
  MW_ASSIGN_OR_RETURN(const PadType type, ReadPadType(ctx, ctx.opset() >= Opset::kIOS16));
  if (type.custom) MW_RETURN_IF_ERROR(ReadCustomPad(ctx, geometry));
  const bool ceil_mode = ctx.Bool("ceil_mode");
  for (size_t d = 0; d < kernel.size(); ++d) {
    const int64_t in = geometry.input[d];
    const int64_t stride = geometry.strides[d];
    if (in == kUnknownDim || kernel[d] == kUnknownDim) continue;
    const int64_t reach = Reach(geometry, d);
    if (type.same) {
      const int64_t total = std::max<int64_t>(0, ((in + stride - 1) / stride - 1) * stride + reach - in);
      geometry.before[d] = type.extra_in_front ? total - total / 2 : total / 2;
      geometry.after[d] = total - geometry.before[d];
    }
    const int64_t padded = in + geometry.before[d] + geometry.after[d];
    if (padded < reach) return NoOutput(ctx, geometry, d);
    int64_t out = (padded - reach + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    // A window that would start behind the input and the padding in front of it is dropped, as PyTorch does.
    const bool has_padding = geometry.before[d] + geometry.after[d] > 0;
    if (ceil_mode && has_padding && (out - 1) * stride >= in + geometry.before[d]) --out;
    if (out < 1) return NoOutput(ctx, geometry, d);
    geometry.output[d] = out;
  }
  return geometry;
}

Result<SpatialGeometry> TransposedWindow(const OpContext& ctx, const Shape& kernel) {
  MW_ASSIGN_OR_RETURN(SpatialGeometry geometry, ReadWindow(ctx, kernel));
  MW_ASSIGN_OR_RETURN(const PadType type, ReadPadType(ctx, false));
  if (type.custom) MW_RETURN_IF_ERROR(ReadCustomPad(ctx, geometry));
  const size_t rank = kernel.size() + 2;
  std::vector<int64_t> wanted = ctx.Ints("output_shape");
  if (std::ranges::all_of(wanted, [](int64_t size) { return size == 0; })) wanted.clear();
  const bool positive = std::ranges::all_of(wanted, [](int64_t size) { return size > 0; });
  if (!wanted.empty() && (wanted.size() != rank || !positive)) {
    return ctx.Error(fmt::format("output_shape [{}] must have a positive entry for each of the {} dimensions of x",
                                 fmt::join(wanted, ", "), rank));
  }
  for (size_t d = 0; d < kernel.size(); ++d) {
    const int64_t in = geometry.input[d];
    if (!wanted.empty()) geometry.output[d] = wanted[d + 2];
    if (in == kUnknownDim || kernel[d] == kUnknownDim) continue;
    const int64_t full = (in - 1) * geometry.strides[d] + Reach(geometry, d);
    int64_t out = full - geometry.before[d] - geometry.after[d];
    if (type.same) out = in * geometry.strides[d];
    if (!wanted.empty()) out = wanted[d + 2];
    if (out < 1) return NoOutput(ctx, geometry, d);
    // Only "same" places the result within the full size; elsewhere sizes beyond it come at the end.
    if (type.same) geometry.before[d] = std::max<int64_t>(0, full - out) / 2;
    geometry.after[d] = full - out - geometry.before[d];
    geometry.output[d] = out;
  }
  return geometry;
}

SpatialGeometry Adjoint(SpatialGeometry geometry) {
  std::swap(geometry.input, geometry.output);
  return geometry;
}

void WindowTaps::Locate(int64_t position) {
  starts_.resize(geometry_.input.size());
  for (size_t d = starts_.size(); d-- > 0; position /= geometry_.output[d]) {
    starts_[d] = position % geometry_.output[d] * geometry_.strides[d] - geometry_.before[d];
  }
}

std::span<const int64_t> WindowTaps::All(int64_t position) {
  Locate(position);
  taps_.assign(1, 0);
  for (size_t d = 0; d < starts_.size(); ++d) {
    const int64_t size = geometry_.input[d];
    widened_.clear();
    for (const int64_t tap : taps_) {
      for (int64_t k = 0; k < geometry_.kernel[d]; ++k) {
        const int64_t i = starts_[d] + k * geometry_.dilations[d];
        widened_.push_back(tap >= 0 && i >= 0 && i < size ? tap * size + i : kOutside);
      }
    }
    taps_.swap(widened_);
  }
  return taps_;
}

std::span<const int64_t> WindowTaps::Inside(int64_t position) {
  Locate(position);
  taps_.assign(1, 0);
  for (size_t d = 0; d < starts_.size(); ++d) {
    const int64_t step = geometry_.dilations[d];
    const int64_t first = starts_[d] >= 0 ? starts_[d] : starts_[d] + (-starts_[d] + step - 1) / step * step;
    const int64_t end = std::min(geometry_.input[d], starts_[d] + geometry_.kernel[d] * step);
    widened_.clear();
    for (const int64_t tap : taps_) {
      for (int64_t i = first; i < end; i += step) widened_.push_back(tap * geometry_.input[d] + i);
    }
    taps_.swap(widened_);
  }
  return taps_;
}

double WindowTaps::PaddedCount(int64_t position) {
  Locate(position);
  double count = 1;
  for (size_t d = 0; d < starts_.size(); ++d) {
    const int64_t step = geometry_.dilations[d];
    const int64_t room = geometry_.input[d] + geometry_.after[d] - starts_[d];
    count *= static_cast<double>(std::min(geometry_.kernel[d], (room + step - 1) / step));
  }
  return count;
}

}  // namespace milwright
