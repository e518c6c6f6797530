// WeightSource: rows of checkpoint tensors, converted into a mapped spill file.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "llm/checkpoint.h"
#include "llm/convert.h"

namespace milwright {
namespace {

constexpr int64_t kMaxValues = 1 << 22;

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

}  // namespace

/// An unlinked file whose parts are mapped one tensor at a time.
class WeightSource::Spill {
 public:
  explicit Spill(std::string folder) : folder_(std::move(folder)) {}

  struct Region {
    std::byte* data = nullptr;
    size_t size = 0;
    std::shared_ptr<const UniqueFd> file;
    off_t offset = 0;

    Region() = default;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() {
      if (data == nullptr) return;
      ::munmap(data, size);
      // Nobody can see these bytes any more: give the disk space back. Failing to do so only keeps it until the end.
      ::fallocate(file->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(size));
    }
  };

  Result<std::shared_ptr<Region>> Allocate(size_t bytes) {
    if (file_ == nullptr) MW_RETURN_IF_ERROR(Create());
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t size = (bytes + page - 1) / page * page;
    auto region = std::make_shared<Region>();
    if (::ftruncate(file_->get(), end_ + static_cast<off_t>(size)) != 0) return Failure("grow");
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_->get(), end_);
    if (data == MAP_FAILED) return Failure("map");
    region->data = static_cast<std::byte*>(data);
    region->size = size;
    region->file = file_;
    region->offset = end_;
    end_ += static_cast<off_t>(size);
    return region;
  }

 private:
  Status Failure(std::string_view what) const {
    return {ErrorCode::kIo,
            fmt::format("{}: cannot {} the file for converted weights: {}", folder_, what, std::strerror(errno))};
  }

  Status Create() {
    std::string name = folder_ + "/.milwright-weights-XXXXXX";
    UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd.valid()) return Failure("make");
    ::unlink(name.c_str());
    file_ = std::make_shared<const UniqueFd>(std::move(fd));
    return Status::Ok();
  }

  std::string folder_;
  std::shared_ptr<const UniqueFd> file_;
  off_t end_ = 0;
};

WeightSource::WeightSource(std::shared_ptr<const Safetensors> file, CheckpointTensors tensors,
                           std::unique_ptr<Spill> spill)
    : file_(std::move(file)), tensors_(std::move(tensors)), spill_(std::move(spill)) {}
WeightSource::WeightSource(WeightSource&&) noexcept = default;
WeightSource& WeightSource::operator=(WeightSource&&) noexcept = default;
WeightSource::~WeightSource() = default;

Result<WeightSource> WeightSource::Create(std::shared_ptr<const Safetensors> file, CheckpointTensors tensors,
                                          const std::string& spill_folder) {
  return WeightSource(std::move(file), std::move(tensors), std::make_unique<Spill>(spill_folder));
}

const RoleTensor* WeightSource::Find(int64_t layer, std::string_view role) const {
  const auto it = tensors_.roles.find(std::make_pair(layer, std::string(role)));
  return it == tensors_.roles.end() ? nullptr : &it->second;
}

Result<Tensor> WeightSource::Load(int64_t layer, std::string_view role, DataType dtype) {
  const RoleTensor* found = Find(layer, role);
  if (found == nullptr) {
    return Status(ErrorCode::kInternal, fmt::format("layer {}: no tensor has the role '{}'", layer, role));
  }
  const auto key = std::make_pair(found, dtype);
  if (const auto known = converted_.find(key); known != converted_.end()) return known->second;

  MW_ASSIGN_OR_RETURN(const Tensor source, file_->Load(found->tensor));
  if (source.dtype() == dtype && !found->transposed && IsWhole(*found)) {
    return converted_.emplace(key, source).first->second;
  }
  const Matrix matrix = AsMatrix(found->shape);
  const TensorType type{dtype, found->shape};
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type));
  MW_ASSIGN_OR_RETURN(const std::shared_ptr<Spill::Region> region, spill_->Allocate(static_cast<size_t>(bytes)));

  const Converter converter(source.dtype(), dtype);
  const std::byte* from = source.bytes().data();
  const auto columns = static_cast<size_t>(matrix.columns);
  const size_t from_width = static_cast<size_t>(BitWidth(source.dtype())) / 8;
  const size_t to_width = static_cast<size_t>(BitWidth(dtype)) / 8;
  bool fits = true;
  if (found->transposed) {
    const auto stored_columns = static_cast<size_t>(source.shape()[1]);
    constexpr size_t kTile = 64;  // columns of the checkpoint tensor read together, so that its pages are met once
    std::vector<std::byte> tile(kTile * columns * from_width);
    for (int64_t r0 = 0; r0 < matrix.rows; r0 += kTile) {
      const auto height = static_cast<size_t>(std::min<int64_t>(kTile, matrix.rows - r0));
      for (size_t c = 0; c < columns; ++c) {
        for (size_t i = 0; i < height; ++i) {
          const auto column = static_cast<size_t>(SourceRow(*found, r0 + static_cast<int64_t>(i)));
          std::memcpy(tile.data() + (i * columns + c) * from_width, from + (c * stored_columns + column) * from_width,
                      from_width);
        }
      }
      fits &=
          converter.Convert(tile.data(), region->data + static_cast<size_t>(r0) * columns * to_width, height * columns);
    }
  } else {
    // Runs of consecutive rows: whole periods when the role is the whole tensor.
    const int64_t run = IsWhole(*found) ? matrix.rows : found->count;
    for (int64_t r = 0; r < matrix.rows; r += run) {
      const auto at = static_cast<size_t>(SourceRow(*found, r));
      fits &= converter.Convert(from + at * columns * from_width,
                                region->data + static_cast<size_t>(r) * columns * to_width,
                                static_cast<size_t>(run) * columns);
    }
  }
  if (!fits) {
    return Status(ErrorCode::kPrecondition,
                  fmt::format("tensor '{}': has values beyond fp16's 65504; build with --compute fp32", found->tensor));
  }
  const std::span<const std::byte> view(region->data, static_cast<size_t>(bytes));
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Borrow(type, view, region));
  return converted_.emplace(key, std::move(tensor)).first->second;
}

Result<std::vector<float>> WeightSource::Values(int64_t layer, std::string_view role) const {
  const RoleTensor* found = Find(layer, role);
  if (found == nullptr) {
    return Status(ErrorCode::kInternal, fmt::format("layer {}: no tensor has the role '{}'", layer, role));
  }
  const Matrix matrix = AsMatrix(found->shape);
  if (matrix.rows * matrix.columns > kMaxValues || found->transposed) {
    return Status(ErrorCode::kInternal, fmt::format("tensor '{}' is too large to be read as values", found->tensor));
  }
  MW_ASSIGN_OR_RETURN(const Tensor source, file_->Load(found->tensor));
  std::vector<float> values;
  values.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const int64_t start = SourceRow(*found, r) * matrix.columns;
    for (int64_t c = 0; c < matrix.columns; ++c) values.push_back(source.GetFloat(start + c));
  }
  return values;
}

void WeightSource::Release() { converted_.clear(); }

}  // namespace milwright
