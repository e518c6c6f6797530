// WeightSource: rows of checkpoint tensors, converted piece by piece.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "llm/checkpoint.h"
#include "llm/convert.h"

namespace milwright {
namespace {

constexpr int64_t kMaxValues = 1 << 22;
constexpr size_t kPieceBytes = 1 << 20;

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 1;
};

/// Rows and columns of a role as a matrix: the first axis, and all others together.
Matrix AsMatrix(const Shape& shape) {
  Matrix matrix;
  matrix.rows = shape.front();
  for (size_t i = 1; i < shape.size(); ++i) matrix.columns *= shape[i];
  return matrix;
}

/// Row of the checkpoint tensor that holds row `row` of the role.
int64_t SourceRow(const RoleTensor& role, int64_t row) {
  return row / role.count * role.period + role.offset + row % role.count;
}

bool IsWhole(const RoleTensor& role) { return role.count == role.period; }

Status Unbound(int64_t layer, std::string_view role) {
  return {ErrorCode::kInternal, fmt::format("layer {}: no tensor has the role '{}'", layer, role)};
}

/// Converts stored elements and hands them on, a piece at a time.
class Conversion {
 public:
  Conversion(DataType source, DataType target, const std::string& tensor, const EmitBytes& emit)
      : converter_(source, target),
        from_width_(static_cast<size_t>(BitWidth(source)) / 8),
        to_width_(static_cast<size_t>(BitWidth(target)) / 8),
        plain_(source == target),
        tensor_(tensor),
        emit_(emit),
        piece_(plain_ ? 0 : kPieceBytes) {}

  /// `count` elements that lie together.
  Status Take(const std::byte* from, size_t count) {
    if (plain_) return emit_(std::span(from, count * from_width_));
    const size_t step = kPieceBytes / to_width_;
    for (size_t done = 0; done < count; done += step) {
      const size_t now = std::min(step, count - done);
      if (!converter_.Convert(from + done * from_width_, piece_.data(), now)) {
        return {ErrorCode::kPrecondition,
                fmt::format("tensor '{}': has values beyond fp16's 65504; build with --compute fp32", tensor_)};
      }
      MW_RETURN_IF_ERROR(emit_(std::span(piece_).first(now * to_width_)));
    }
    return Status::Ok();
  }

 private:
  Converter converter_;
  size_t from_width_;
  size_t to_width_;
  bool plain_;
  const std::string& tensor_;
  const EmitBytes& emit_;
  std::vector<std::byte> piece_;
};

/// Rows of a tensor stored as [columns, rows]: some rows at a time are gathered, so that its pages are met once each.
Status StreamTransposed(const RoleTensor& role, const Tensor& source, const Matrix& matrix, Conversion& conversion) {
  constexpr int64_t kTileRows = 64;
  const size_t width = static_cast<size_t>(BitWidth(source.dtype())) / 8;
  const auto columns = static_cast<size_t>(matrix.columns);
  const auto stride = static_cast<size_t>(source.shape()[1]);
  const std::byte* from = source.bytes().data();
  std::vector<std::byte> tile(kTileRows * columns * width);
  for (int64_t first = 0; first < matrix.rows; first += kTileRows) {
    const auto height = static_cast<size_t>(std::min(kTileRows, matrix.rows - first));
    for (size_t c = 0; c < columns; ++c) {
      for (size_t i = 0; i < height; ++i) {
        const auto at = static_cast<size_t>(SourceRow(role, first + static_cast<int64_t>(i)));
        std::memcpy(tile.data() + (i * columns + c) * width, from + (c * stride + at) * width, width);
      }
    }
    MW_RETURN_IF_ERROR(conversion.Take(tile.data(), height * columns));
  }
  return Status::Ok();
}

}  // namespace

void WeightSource::SetSink(WeightSink sink) {
  loaded_.clear();
  sink_ = std::move(sink);
}

const RoleTensor* WeightSource::Find(int64_t layer, std::string_view role) const {
  const auto it = tensors_.roles.find(std::make_pair(layer, std::string(role)));
  return it == tensors_.roles.end() ? nullptr : &it->second;
}

Status WeightSource::Stream(int64_t layer, std::string_view role, DataType dtype, const EmitBytes& emit) const {
  const RoleTensor* found = Find(layer, role);
  if (found == nullptr) return Unbound(layer, role);
  MW_ASSIGN_OR_RETURN(const Tensor source, file_->Load(found->tensor));
  Conversion conversion(source.dtype(), dtype, found->tensor, emit);
  const Matrix matrix = AsMatrix(found->shape);
  if (found->transposed) return StreamTransposed(*found, source, matrix, conversion);
  // Runs of rows that lie together: all of them when the role is the whole tensor.
  const size_t row_bytes = static_cast<size_t>(matrix.columns * BitWidth(source.dtype())) / 8;
  const int64_t run = IsWhole(*found) ? matrix.rows : found->count;
  for (int64_t r = 0; r < matrix.rows; r += run) {
    const std::byte* from = source.bytes().data() + static_cast<size_t>(SourceRow(*found, r)) * row_bytes;
    MW_RETURN_IF_ERROR(conversion.Take(from, static_cast<size_t>(run * matrix.columns)));
  }
  return Status::Ok();
}

Result<Tensor> WeightSource::Load(int64_t layer, std::string_view role, DataType dtype) {
  const RoleTensor* found = Find(layer, role);
  if (found == nullptr) return Unbound(layer, role);
  const auto key = std::make_pair(found, dtype);
  if (const auto known = loaded_.find(key); known != loaded_.end()) return known->second;
  const TensorType type{dtype, found->shape};
  const auto fill = [&](const EmitBytes& emit) { return Stream(layer, role, dtype, emit); };
  if (sink_) {
    MW_ASSIGN_OR_RETURN(Tensor tensor, sink_(type, fill));
    return loaded_.emplace(key, std::move(tensor)).first->second;
  }
  std::vector<std::byte> bytes;
  MW_RETURN_IF_ERROR(fill([&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status::Ok();
  }));
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::FromBytes(type, std::move(bytes)));
  return loaded_.emplace(key, std::move(tensor)).first->second;
}

Result<std::vector<float>> WeightSource::Values(int64_t layer, std::string_view role) const {
  const RoleTensor* found = Find(layer, role);
  if (found == nullptr) return Unbound(layer, role);
  const Matrix matrix = AsMatrix(found->shape);
  if (matrix.rows * matrix.columns > kMaxValues) {
    return Status(ErrorCode::kInternal, fmt::format("tensor '{}' is too large to be read as values", found->tensor));
  }
  std::vector<float> values;
  values.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  MW_RETURN_IF_ERROR(Stream(layer, role, DataType::kFp32, [&](std::span<const std::byte> piece) {
    const size_t at = values.size();
    values.resize(at + piece.size() / sizeof(float));
    std::memcpy(values.data() + at, piece.data(), piece.size());
    return Status::Ok();
  }));
  return values;
}

}  // namespace milwright
