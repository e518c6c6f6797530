#include "llm/pipeline_inputs.h"

#include <fmt/format.h>

#include <cstring>

#include "llm/rope.h"
#include "milwright/half.h"

namespace milwright {
namespace {

Result<Tensor> Int32Tensor(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::VectorOf(DataType::kInt32, values).Reshaped(std::move(shape));
}

/// Position that column `c` of `columns` holds after the call; negative: none.
int64_t PositionOf(const ManifestFeature& feature, const PipelineCall& call, int64_t c, int64_t columns) {
  const int64_t last = call.end() - 1;
  switch (feature.columns) {
    case MaskColumns::kAbsolute:
      return c;
    case MaskColumns::kRing: {
      const int64_t back = ((last - c) % columns + columns) % columns;
      return last - back;
    }
    case MaskColumns::kShift:
      return call.end() - columns + c;
  }
  return -1;
}

Result<Tensor> MakeDeepstack(const ManifestFeature& feature, const PipelineCall& call) {
  const TensorType type = CallType(feature, call);
  if (call.image == nullptr) return Tensor::Zeros(type);
  const auto layer = static_cast<size_t>(feature.index);
  if (layer >= call.image->deepstack.size()) {
    return Status(ErrorCode::kUsage, fmt::format("the image has no features for input '{}'", feature.name));
  }
  const std::vector<float>& rows = call.image->deepstack[layer];
  const auto width = static_cast<size_t>(type.shape.back());
  std::vector<float> values(call.tokens.size() * width, 0.0F);
  for (size_t t = 0; t < call.tokens.size(); ++t) {
    if (call.image_rows[t] < 0) continue;
    const size_t first = static_cast<size_t>(call.image_rows[t]) * width;
    if (first + width > rows.size()) {
      return Status(ErrorCode::kUsage, fmt::format("the image has too few features for input '{}'", feature.name));
    }
    std::memcpy(values.data() + t * width, rows.data() + first, width * sizeof(float));
  }
  return Tensor::FromFloats(type, values);
}

}  // namespace

std::string PassedName(const ManifestFeature& feature) {
  std::string name(FeatureKindName(feature.kind));
  if (feature.index >= 0) name += fmt::format(" {}", feature.index);
  return name;
}

TensorType CallType(const ManifestFeature& feature, const PipelineCall& call) {
  TensorType type = feature.type;
  const size_t rank = type.shape.size();
  const bool mask = feature.kind == FeatureKind::kMask || feature.kind == FeatureKind::kSlidingMask;
  for (size_t i = 0; i < rank; ++i) {
    if (type.shape[i] == kUnknownDim) type.shape[i] = mask && i + 1 == rank ? call.end() : call.length();
  }
  return type;
}

Result<Tensor> MakeMask(const ManifestFeature& feature, const PipelineCall& call, double fill) {
  const TensorType type = CallType(feature, call);
  if (type.shape.size() != 4 || type.shape[2] != call.length()) {
    return Status(ErrorCode::kUsage, fmt::format("mask '{}' of shape {} is not for {} tokens", feature.name,
                                                 ShapeToString(type.shape), call.length()));
  }
  const int64_t columns = type.shape[3];
  MW_ASSIGN_OR_RETURN(Tensor mask, Tensor::Zeros(type));
  const auto hide = [&](auto&& store) {
    for (int64_t t = 0; t < call.length(); ++t) {
      const int64_t own = call.position + t;
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t position = PositionOf(feature, call, c, columns);
        const bool seen = position >= 0 && position <= own && (feature.window == 0 || position > own - feature.window);
        if (!seen) store(t * columns + c);
      }
    }
  };
  if (type.dtype == DataType::kFp16) {  // long masks are made for every token
    const std::span<uint16_t> halves = mask.MutableAs<uint16_t>();
    const uint16_t hidden = FloatToHalf(static_cast<float>(fill));
    hide([&](int64_t i) { halves[static_cast<size_t>(i)] = hidden; });
  } else {
    hide([&](int64_t i) { mask.SetDouble(i, fill); });
  }
  return mask;
}

Result<Tensor> MakeRotary(const ManifestFeature& feature, const PipelineCall& call, const RopeTable& table) {
  std::vector<float> values, cosine, sine;
  for (const auto& position : call.positions) {
    RopeRow(table, position, cosine, sine);
    const std::vector<float>& row = feature.kind == FeatureKind::kCosine ? cosine : sine;
    values.insert(values.end(), row.begin(), row.end());
  }
  return Tensor::FromFloats(CallType(feature, call), values);
}

Result<Tensor> MakeRingPosition(const PipelineCall& call, int64_t ring) {
  if (ring < 1) return Status(ErrorCode::kUsage, "a ring position is wanted, but the model has no window");
  return Int32Tensor({1}, {call.position % ring});
}

Result<Tensor> MakeRows(const ManifestFeature& feature, const PipelineCall& call, const ManifestSidecar& sidecar,
                        const MappedFile& file) {
  const auto width = static_cast<size_t>(sidecar.columns);
  std::vector<float> values;
  values.reserve(call.tokens.size() * width);
  for (size_t t = 0; t < call.tokens.size(); ++t) {
    if (feature.kind == FeatureKind::kHidden && call.image_rows[t] >= 0) {
      const size_t first = static_cast<size_t>(call.image_rows[t]) * width;
      const std::vector<float>& embeddings = call.image->embeddings;
      if (first + width > embeddings.size()) return Status(ErrorCode::kUsage, "the image has too few embeddings");
      const auto begin = embeddings.begin() + static_cast<std::ptrdiff_t>(first);
      values.insert(values.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
      continue;
    }
    if (call.tokens[t] >= sidecar.rows) {
      return Status(ErrorCode::kUsage, fmt::format("{}: has no row for token {}", sidecar.file, call.tokens[t]));
    }
    const std::byte* row = file.bytes().data() + static_cast<size_t>(call.tokens[t]) * width * 2;
    for (size_t i = 0; i < width; ++i) {
      uint16_t half;
      std::memcpy(&half, row + 2 * i, 2);
      values.push_back(static_cast<float>(HalfToFloat(half) * sidecar.scale));
    }
  }
  return Tensor::FromFloats(CallType(feature, call), values);
}

Result<Tensor> MakePlainInput(const ManifestFeature& feature, const PipelineCall& call) {
  const TensorType type = CallType(feature, call);
  std::vector<int64_t> values;
  switch (feature.kind) {
    case FeatureKind::kTokenIds:
      return Int32Tensor(type.shape, {call.tokens.begin(), call.tokens.end()});
    case FeatureKind::kPosition:
      return Int32Tensor(type.shape, {call.position});
    case FeatureKind::kPositionIds:
      for (int64_t t = 0; t < call.length(); ++t) values.push_back(call.position + t);
      return Int32Tensor(type.shape, values);
    case FeatureKind::kMropePositions:
      for (size_t axis = 0; axis < 3; ++axis) {
        for (const auto& position : call.positions) values.push_back(position[axis]);
      }
      return Int32Tensor(type.shape, values);
    case FeatureKind::kUpdateMask: {
      MW_ASSIGN_OR_RETURN(Tensor mask, Tensor::Zeros(type));
      for (int64_t t = 0; t < call.length(); ++t) {
        mask.SetDouble((call.position + t) * call.length() + t, 1);
      }
      return mask;
    }
    case FeatureKind::kDeepstack:
      return MakeDeepstack(feature, call);
    case FeatureKind::kVisualMask:
    case FeatureKind::kVisualActive: {
      MW_ASSIGN_OR_RETURN(Tensor flags, Tensor::Zeros(type));
      for (size_t t = 0; t < call.tokens.size(); ++t) {
        if (call.image_rows[t] < 0) continue;
        flags.SetDouble(feature.kind == FeatureKind::kVisualMask ? static_cast<int64_t>(t) : 0, 1);
      }
      return flags;
    }
    default:
      return Status(ErrorCode::kUsage, fmt::format("input '{}' ({}): the host has nothing to give", feature.name,
                                                   FeatureKindName(feature.kind)));
  }
}

}  // namespace milwright
