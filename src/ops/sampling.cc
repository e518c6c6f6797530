#include "ops/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace milwright {
namespace {

constexpr int64_t kMaxImageSide = std::numeric_limits<int32_t>::max();

}  // namespace

Result<SamplingMode> SamplingModeParameter(const OpContext& ctx) {
  constexpr std::array<std::pair<std::string_view, SamplingMode>, 5> kModes = {{
      {"STRICT_ALIGN_CORNERS", SamplingMode::kStrictAlignCorners},
      {"ALIGN_CORNERS", SamplingMode::kAlignCorners},
      {"DEFAULT", SamplingMode::kDefault},
      {"OFFSET_CORNERS", SamplingMode::kOffsetCorners},
      {"UNALIGN_CORNERS", SamplingMode::kUnalignCorners},
  }};
  const std::string name = ctx.String("sampling_mode", "DEFAULT");
  for (const auto& [text, mode] : kModes) {
    if (name == text) return mode;
  }
  return ctx.Error(fmt::format(
      "sampling_mode '{}' is not one of STRICT_ALIGN_CORNERS, ALIGN_CORNERS, DEFAULT, OFFSET_CORNERS, UNALIGN_CORNERS",
      name));
}

double GridPoint(SamplingMode mode, int64_t i, double size, int64_t count) {
  const auto index = static_cast<double>(i);
  const auto n = static_cast<double>(count);
  double position = 0;
  switch (mode) {
    case SamplingMode::kStrictAlignCorners:
      position = count == 1 ? 0 : index * (size - 1) / (n - 1);
      break;
    case SamplingMode::kAlignCorners:
      position = count == 1 ? (size - 1) / 2 : index * (size - 1) / (n - 1);
      break;
    case SamplingMode::kDefault:
      position = index * size / n;
      break;
    case SamplingMode::kOffsetCorners:
      position = (index + 0.5) * std::max(1.0, size - 1) / n;
      break;
    case SamplingMode::kUnalignCorners:
      position = (index + 0.5) * size / n - 0.5;
      break;
  }
  return std::clamp(position, 0.0, size - 1);
}

LinearTap TapAt(double position, int64_t size) {
  const double floor = std::floor(position);
  LinearTap tap;
  tap.low = static_cast<int64_t>(floor);
  tap.fraction = static_cast<float>(position - floor);
  tap.high = tap.fraction == 0 ? tap.low : std::min(tap.low + 1, size - 1);
  return tap;
}

Status CheckImage(const OpContext& ctx, size_t rank, bool exact) {
  const Shape& x = ctx.ShapeOf("x");
  if (x.size() < rank || (exact && x.size() != rank)) {
    return ctx.Error(
        fmt::format("x has shape {}; it takes rank {}{}", ShapeToString(x), rank, exact ? "" : " or more"));
  }
  for (size_t d = 0; d < x.size(); ++d) {
    // An empty image has no pixel to read.
    const bool spatial = d + 2 >= x.size();
    if (x[d] > kMaxImageSide || (spatial && x[d] == 0)) {
      return ctx.Error(fmt::format("x of shape {} cannot be sampled along axis {}", ShapeToString(x), d));
    }
  }
  return Status::Ok();
}

Result<int64_t> TargetSize(const OpContext& ctx, std::string_view parameter) {
  const int64_t size = ctx.Int(parameter, 1);
  if (size < 1 || size > kMaxImageSide) {
    return ctx.Error(fmt::format("{} is {}; it must be between 1 and {}", parameter, size, kMaxImageSide));
  }
  return size;
}

}  // namespace milwright
