// Sampling x at places that the program computes: crop_resize (boxes), affine (a matrix), resample (coordinates).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "ops/float_math.h"
#include "ops/op.h"
#include "ops/sampling.h"

namespace milwright {
namespace {

Status CheckChoice(const OpContext& ctx, std::string_view parameter, std::initializer_list<std::string_view> choices) {
  const std::string value = ctx.String(parameter);
  if (std::ranges::find(choices, value) != choices.end()) return Status::Ok();
  return ctx.Error(fmt::format("{} '{}' is not {}", parameter, value, fmt::join(choices, " or ")));
}

// ---- crop_resize ----

// Regions stand in `boxes` [N, 4] from iOS17 on, before in `roi` [N, 1, 4 or 5, 1, 1] (5: batch index first).
bool HasBoxes(const OpContext& ctx) { return ctx.definition().Find("boxes") != nullptr; }

Result<std::vector<Type>> InferCropResize(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckImage(ctx, 4, true));
  MW_RETURN_IF_ERROR(CheckChoice(
      ctx, "box_coordinate_mode",
      {"CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"}));
  MW_ASSIGN_OR_RETURN([[maybe_unused]] const SamplingMode mode, SamplingModeParameter(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t height, TargetSize(ctx, "target_height"));
  MW_ASSIGN_OR_RETURN(const int64_t width, TargetSize(ctx, "target_width"));
  const Shape& x = ctx.ShapeOf("x");
  if (HasBoxes(ctx)) {
    const Shape& boxes = ctx.ShapeOf("boxes");
    if (boxes.size() != 2 || KnownToDiffer(boxes[1], 4)) {
      return ctx.Error(fmt::format("boxes must have shape [N, 4], but have {}", ShapeToString(boxes)));
    }
    if (ctx.Has("box_indices")) {
      const Shape& indices = ctx.ShapeOf("box_indices");
      if (indices.size() != 1 || KnownToDiffer(indices[0], boxes[0])) {
        return ctx.Error(fmt::format("box_indices {} must have one entry for each of the boxes {}",
                                     ShapeToString(indices), ShapeToString(boxes)));
      }
    }
    return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), {boxes[0], x[1], height, width})};
  }
  const Shape& roi = ctx.ShapeOf("roi");
  if (roi.size() != 5 || KnownToDiffer(roi[1], 1) || (KnownToDiffer(roi[2], 4) && KnownToDiffer(roi[2], 5)) ||
      KnownToDiffer(roi[3], 1) || KnownToDiffer(roi[4], 1)) {
    return ctx.Error(fmt::format("roi must have shape [N, 1, 4 or 5, 1, 1], but has {}", ShapeToString(roi)));
  }
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), {roi[0], x[0], x[1], height, width})};
}

// One side of a box in pixels of x; it may run backwards.
struct Side {
  double start = 0;
  double end = 0;
};

// Where the samples of one side read; nullopt: outside the image.
std::vector<std::optional<LinearTap>> SideTaps(const Side& side, int64_t size, int64_t count, SamplingMode mode) {
  // Boxes are fp32 or fp16: an edge that misses the border by rounding alone counts as on it.
  constexpr double kSlack = 1e-5;
  const double last = static_cast<double>(size) - 1;
  const double extent = std::abs(side.end - side.start) + 1;
  const double direction = side.end < side.start ? -1 : 1;
  std::vector<std::optional<LinearTap>> taps(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double position = side.start + direction * GridPoint(mode, i, extent, count);
    if (position >= -kSlack && position <= last + kSlack) {
      taps[static_cast<size_t>(i)] = TapAt(std::clamp(position, 0.0, last), size);
    }
  }
  return taps;
}

// The (y, x) sides of a box given by four numbers in the declared mode.
std::array<Side, 2> BoxSides(const OpContext& ctx, const float* box) {
  const std::string mode = ctx.String("box_coordinate_mode");
  const Shape& x = ctx.ShapeOf("x");
  std::array<Side, 2> sides = {Side{box[0], box[2]}, Side{box[1], box[3]}};
  if (mode.ends_with("WIDTH_FIRST")) std::swap(sides[0], sides[1]);
  const double scale = ctx.Double("spatial_scale", 1);
  for (size_t d = 0; d < 2; ++d) {
    Side& side = sides[d];
    if (mode.starts_with("CENTER_SIZE")) side = {side.start - side.end / 2, side.start + side.end / 2};
    const double unit = ctx.Bool("normalized_coordinates") ? static_cast<double>(x[2 + d] - 1) : 1;
    side.start *= scale * unit;
    side.end *= scale * unit;
  }
  return sides;
}

// The crop of one box from every channel of one batch element, appended to `out`.
void Crop(const float* image, const Shape& x, const std::vector<std::optional<LinearTap>>& rows,
          const std::vector<std::optional<LinearTap>>& columns, float pad_value, float*& out) {
  const int64_t width = x[3];
  for (int64_t channel = 0; channel < x[1]; ++channel, image += x[2] * width) {
    for (const auto& row : rows) {
      for (const auto& column : columns) {
        float& value = *out++;
        value = pad_value;
        if (!row.has_value() || !column.has_value()) continue;
        const float* low = image + row->low * width;
        const float* high = image + row->high * width;
        value = Mix(*row, Mix(*column, low[column->low], low[column->high]),
                    Mix(*column, high[column->low], high[column->high]));
      }
    }
  }
}

Result<std::vector<Literal>> EvaluateCropResize(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(const SamplingMode mode, SamplingModeParameter(ctx));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  const Shape& shape = ctx.ShapeOf("x");
  const std::vector<float> x = ctx.TensorOf("x")->ToFloats();
  const int64_t image_size = shape[1] * shape[2] * shape[3];
  const auto pad_value = static_cast<float>(ctx.Double("pad_value", 0));
  const int64_t height = type.shape[type.shape.size() - 2];
  const int64_t width = type.shape[type.shape.size() - 1];

  const bool boxes = HasBoxes(ctx);
  const std::vector<float> regions = ctx.TensorOf(boxes ? "boxes" : "roi")->ToFloats();
  const size_t entries = boxes ? 4 : static_cast<size_t>(ctx.ShapeOf("roi")[2]);
  const bool indexed = ctx.Has("box_indices");
  const std::vector<int64_t> indices = indexed ? ctx.Ints("box_indices") : std::vector<int64_t>();
  float* out = result.data();
  for (size_t n = 0; n * entries < regions.size(); ++n) {
    const float* region = regions.data() + n * entries;
    const std::array<Side, 2> sides = BoxSides(ctx, entries == 5 ? region + 1 : region);
    const auto rows = SideTaps(sides[0], shape[2], height, mode);
    const auto columns = SideTaps(sides[1], shape[3], width, mode);
    if (!boxes && entries == 4) {  // every batch element is cropped
      for (int64_t b = 0; b < shape[0]; ++b) Crop(x.data() + b * image_size, shape, rows, columns, pad_value, out);
      continue;
    }
    // A roi with a batch index has a result per batch element by type, which only a batch of 1 makes consistent.
    if (!boxes && shape[0] != 1) {
      return ctx.Error(
          fmt::format("a roi with a batch index needs x with a batch of 1, but x has shape {}", ShapeToString(shape)));
    }
    const double index = entries == 5 ? static_cast<double>(region[0])
                                      : static_cast<double>(indexed ? indices[n] : static_cast<int64_t>(n));
    if (!(index >= 0 && index < static_cast<double>(shape[0]))) {
      return Status(ErrorCode::kRuntime, fmt::format("crop_resize: box {} is for batch element {}, but x has shape {}",
                                                     n, index, ShapeToString(shape)));
    }
    Crop(x.data() + static_cast<int64_t>(index) * image_size, shape, rows, columns, pad_value, out);
  }
  return One(Tensor::FromFloats(type, result));
}

// ---- affine and resample: a grid of points ----

enum class Outside : uint8_t { kConstant, kBorder, kReflection, kSymmetric };

// How points of the unit square, or pixels, become places in x, and what lies outside.
struct PointSampler {
  enum class Coordinates : uint8_t { kMinusOneToOne, kZeroToOne, kPixels };
  Coordinates coordinates = Coordinates::kMinusOneToOne;
  Outside padding = Outside::kConstant;
  bool align_corners = true;
  bool nearest = false;
  float padding_value = 0;

  [[nodiscard]] double Pixel(double c, int64_t size) const;
  [[nodiscard]] double Fold(double pixel, int64_t size) const;
  void Sample(const float* image, const Shape& x, double column, double row, float* out, int64_t out_stride) const;
};

Result<PointSampler> ReadSampler(const OpContext& ctx) {
  PointSampler sampler;
  const std::string coordinates = ctx.String("coordinates_mode");
  if (coordinates == "normalized_zero_to_one") sampler.coordinates = PointSampler::Coordinates::kZeroToOne;
  if (coordinates == "unnormalized") sampler.coordinates = PointSampler::Coordinates::kPixels;
  const std::string padding = ctx.String("padding_mode");
  if (padding == "border") sampler.padding = Outside::kBorder;
  if (padding == "reflection") sampler.padding = Outside::kReflection;
  if (padding == "symmetric") sampler.padding = Outside::kSymmetric;
  sampler.align_corners = ctx.Bool("align_corners");
  sampler.nearest = ctx.String("sampling_mode") == "nearest";
  sampler.padding_value = static_cast<float>(ctx.Double("padding_value"));
  return sampler;
}

// A coordinate in pixels of a dimension of `size` pixels.
double PointSampler::Pixel(double c, int64_t size) const {
  const auto n = static_cast<double>(size);
  switch (coordinates) {
    case Coordinates::kPixels:
      return c;
    case Coordinates::kZeroToOne:
      c = 2 * c - 1;
      break;
    case Coordinates::kMinusOneToOne:
      break;
  }
  return align_corners ? (c + 1) / 2 * (n - 1) : ((c + 1) * n - 1) / 2;
}

// The pixel that the padding mode reads in its place. Constant padding keeps it, brought near the image so that it fits
// an integer: one pixel outside is as good as any. NaN is outside.
double PointSampler::Fold(double pixel, int64_t size) const {
  const double last = static_cast<double>(size) - 1;
  if (padding == Outside::kConstant) return std::isnan(pixel) ? -2 : std::clamp(pixel, -2.0, last + 2);
  if (std::isnan(pixel)) return 0;
  if (padding == Outside::kReflection && std::isfinite(pixel)) {  // about the centres of the border pixels
    if (last == 0) return 0;
    const double place = std::fmod(std::abs(pixel), 2 * last);
    pixel = place > last ? 2 * last - place : place;
  }
  if (padding == Outside::kSymmetric && std::isfinite(pixel)) {  // about the outer edges of the border pixels
    const double n = last + 1;
    const double place = std::fmod(std::abs(pixel + 0.5), 2 * n);
    pixel = (place > n ? 2 * n - place : place) - 0.5;
  }
  return std::clamp(pixel, 0.0, last);
}

// All channels of one image at one point. Each pixel that the interpolation mixes is padded by itself.
void PointSampler::Sample(const float* image, const Shape& x, double column, double row, float* out,
                          int64_t out_stride) const {
  const int64_t height = x[2];
  const int64_t width = x[3];
  double y = Fold(Pixel(row, height), height);
  double x_place = Fold(Pixel(column, width), width);
  if (nearest) {
    y = std::nearbyint(y);
    x_place = std::nearbyint(x_place);
  }
  // Up to four pixels, each with its share; index kOutside stands for the padding value.
  struct Tap {
    int64_t index;
    float weight;
  };
  constexpr int64_t kOutside = -1;
  const double top = std::floor(y);
  const double left = std::floor(x_place);
  std::array<Tap, 4> taps{};
  for (int64_t corner = 0; corner < 4; ++corner) {
    const int64_t i = static_cast<int64_t>(top) + corner / 2;
    const int64_t j = static_cast<int64_t>(left) + corner % 2;
    const double share_y = corner / 2 == 0 ? 1 - (y - top) : y - top;
    const double share_x = corner % 2 == 0 ? 1 - (x_place - left) : x_place - left;
    const bool inside = i >= 0 && i < height && j >= 0 && j < width;
    taps[static_cast<size_t>(corner)] = {inside ? i * width + j : kOutside, static_cast<float>(share_y * share_x)};
  }
  for (int64_t channel = 0; channel < x[1]; ++channel, image += height * width, out += out_stride) {
    float sum = 0;
    for (const Tap& tap : taps) {
      if (tap.weight == 0) continue;  // an infinite pixel beside the point does not count
      sum += tap.weight * (tap.index == kOutside ? padding_value : image[tap.index]);
    }
    *out = sum;
  }
}

Result<std::vector<Type>> InferAffine(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckImage(ctx, 4, true));
  MW_RETURN_IF_ERROR(CheckChoice(ctx, "sampling_mode", {"bilinear"}));
  MW_RETURN_IF_ERROR(CheckChoice(ctx, "padding_mode", {"constant"}));
  MW_RETURN_IF_ERROR(CheckChoice(ctx, "coordinates_mode", {"normalized_minus_one_to_one"}));
  MW_ASSIGN_OR_RETURN(const int64_t height, TargetSize(ctx, "output_height"));
  MW_ASSIGN_OR_RETURN(const int64_t width, TargetSize(ctx, "output_width"));
  const Shape& x = ctx.ShapeOf("x");
  const Shape& matrix = ctx.ShapeOf("transform_matrix");
  if (matrix.size() != 2 || (KnownToDiffer(matrix[0], 1) && KnownToDiffer(matrix[0], x[0])) ||
      KnownToDiffer(matrix[1], 6)) {
    return ctx.Error(fmt::format("transform_matrix must have shape [1, 6] or [batch, 6], but has {} for x {}",
                                 ShapeToString(matrix), ShapeToString(x)));
  }
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), {x[0], x[1], height, width})};
}

Result<std::vector<Type>> InferResample(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckImage(ctx, 4, true));
  MW_RETURN_IF_ERROR(CheckChoice(ctx, "sampling_mode", {"bilinear", "nearest"}));
  MW_RETURN_IF_ERROR(CheckChoice(ctx, "padding_mode", {"constant", "border", "reflection", "symmetric"}));
  MW_RETURN_IF_ERROR(
      CheckChoice(ctx, "coordinates_mode", {"normalized_minus_one_to_one", "normalized_zero_to_one", "unnormalized"}));
  const Shape& x = ctx.ShapeOf("x");
  const Shape& points = ctx.ShapeOf("coordinates");
  if (points.size() != 4 || KnownToDiffer(points[0], x[0]) || KnownToDiffer(points[3], 2)) {
    return ctx.Error(fmt::format("coordinates must have shape [batch, height, width, 2], but have {} for x {}",
                                 ShapeToString(points), ShapeToString(x)));
  }
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("x"), {x[0], x[1], points[1], points[2]})};
}

// A result of type [B, C, H, W] whose pixel (row, column) of batch element b reads x at point(b, row, column), a pair
// (x, y).
template <typename Point>
Result<std::vector<Literal>> SamplePoints(const OpContext& ctx, const TensorType& type, Point point) {
  MW_ASSIGN_OR_RETURN(const PointSampler sampler, ReadSampler(ctx));
  MW_ASSIGN_OR_RETURN(std::vector<float> result, FloatsFor(type.shape));
  const std::vector<float> x = ctx.TensorOf("x")->ToFloats();
  const Shape& shape = ctx.ShapeOf("x");
  const int64_t height = type.shape[2];
  const int64_t width = type.shape[3];
  for (int64_t b = 0; b < shape[0] && !result.empty(); ++b) {
    const float* image = x.data() + b * shape[1] * shape[2] * shape[3];
    float* out = result.data() + b * shape[1] * height * width;
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t column = 0; column < width; ++column, ++out) {
        const auto [place_x, place_y] = point(b, row, column);
        sampler.Sample(image, shape, place_x, place_y, out, height * width);
      }
    }
  }
  return One(Tensor::FromFloats(type, result));
}

Result<std::vector<Literal>> EvaluateResample(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  const std::vector<float> points = ctx.TensorOf("coordinates")->ToFloats();
  return SamplePoints(ctx, type, [&](int64_t b, int64_t row, int64_t column) {
    const float* point = points.data() + ((b * type.shape[2] + row) * type.shape[3] + column) * 2;
    return std::pair<double, double>(point[0], point[1]);
  });
}

// The output pixel, in [-1, 1], times the matrix [[a, b, c], [d, e, f]].
Result<std::vector<Literal>> EvaluateAffine(const OpContext& ctx, const std::vector<Type>& types) {
  const TensorType& type = types.front().tensor;
  const std::vector<float> matrices = ctx.TensorOf("transform_matrix")->ToFloats();
  const bool shared = ctx.ShapeOf("transform_matrix")[0] == 1;
  const bool align_corners = ctx.Bool("align_corners");
  const auto unit = [align_corners](int64_t i, int64_t count) {
    const auto n = static_cast<double>(count);
    if (!align_corners) return (2 * static_cast<double>(i) + 1) / n - 1;
    return count == 1 ? 0 : 2 * static_cast<double>(i) / (n - 1) - 1;
  };
  return SamplePoints(ctx, type, [&](int64_t b, int64_t row, int64_t column) {
    const float* m = matrices.data() + (shared ? 0 : b * 6);
    const double x = unit(column, type.shape[3]);
    const double y = unit(row, type.shape[2]);
    return std::pair<double, double>(m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
  });
}

}  // namespace

std::vector<OpDefinition> ResampleOps() {
  return {
      Op(Opset::kIOS15,
         "crop_resize(T x, T roi, const int32 target_height=1, const int32 target_width=1, const bool "
         "normalized_coordinates=false, const fp32 spatial_scale=1.0, const string "
         "box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string sampling_mode=\"DEFAULT\") where T=fp16|fp32",
         InferCropResize, EvaluateCropResize),
      Op(Opset::kIOS16,
         "crop_resize(T x, T roi, const int32 target_height=1, const int32 target_width=1, const bool "
         "normalized_coordinates=false, const fp32 spatial_scale=1.0, const string "
         "box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string sampling_mode=\"DEFAULT\", const T pad_value=0.0) "
         "where T=fp16|fp32",
         InferCropResize, EvaluateCropResize),
      Op(Opset::kIOS17,
         "crop_resize(T x, BOX_T boxes, BOX_INDEX_T box_indices=\"range(boxes.shape[0])\", const int32 "
         "target_height=1, const int32 target_width=1, const bool normalized_coordinates=false, const fp32 "
         "spatial_scale=1.0, const string box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string "
         "sampling_mode=\"DEFAULT\", const T pad_value=0.0) where T=fp16|fp32, BOX_T=fp16|fp32|uint16, "
         "BOX_INDEX_T=uint16|int32",
         InferCropResize, EvaluateCropResize),
      Op(Opset::kIOS15,
         "affine(T x, T transform_matrix, const int32 output_height, const int32 output_width, const string "
         "sampling_mode, const string padding_mode, const T padding_value, const string coordinates_mode, const bool "
         "align_corners) where T=fp16|fp32",
         InferAffine, EvaluateAffine),
      Op(Opset::kIOS15,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, U=int32|fp32",
         InferResample, EvaluateResample),
      Op(Opset::kIOS16,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, U=int32|fp16|fp32",
         InferResample, EvaluateResample),
      Op(Opset::kIOS17,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, "
         "U=int8|uint8|int16|uint16|int32|fp16|fp32",
         InferResample, EvaluateResample),
  };
}

}  // namespace milwright
