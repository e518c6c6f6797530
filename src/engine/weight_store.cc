#include "engine/weight_store.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "ops/op.h"

namespace milwright::engine {
namespace {

using kernels::Codec;
using kernels::Grid;
using kernels::WeightView;

// Both ways of reading are timed on a piece of this size, a few times; the median decides.
constexpr size_t kMeasuredBytes = size_t{64} << 20U;
constexpr size_t kLeastMeasuredBytes = size_t{2} << 20U;
constexpr size_t kMeasurements = 5;
// Copying costs time and memory, so it must gain more than noise.
constexpr double kWorthCopying = 1.1;

std::optional<Codec> CodecOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFp32:
      return Codec::kFp32;
    case DataType::kFp16:
      return Codec::kFp16;
    case DataType::kInt8:
      return Codec::kInt8;
    case DataType::kUInt8:
      return Codec::kUInt8;
    case DataType::kInt4:
      return Codec::kInt4;
    case DataType::kUInt4:
      return Codec::kUInt4;
    default:
      return std::nullopt;
  }
}

std::optional<Codec> TableCodec(DataType indices) {
  switch (indices) {
    case DataType::kUInt1:
      return Codec::kLut1;
    case DataType::kUInt2:
      return Codec::kLut2;
    case DataType::kUInt3:
      return Codec::kLut3;
    case DataType::kUInt4:
      return Codec::kLut4;
    case DataType::kUInt6:
      return Codec::kLut6;
    case DataType::kUInt8:
      return Codec::kLut8;
    default:
      return std::nullopt;
  }
}

// The literal bound to a parameter of a constexpr op, or null when another constexpr op makes it.
const Literal* LiteralOf(const Operation& op, std::string_view parameter) {
  if (const Literal* attribute = op.FindAttribute(parameter); attribute != nullptr) return attribute;
  return op.InputConstant(parameter);
}

const Operation* ProducerOf(const Operation& op, std::string_view parameter) {
  const Value* value = op.InputValue(parameter);
  return value != nullptr ? value->producer() : nullptr;
}

// Whether what has the axes `shape` changes along the first two axes of a weight only.
bool VariesInMatrix(const Shape& shape, size_t axes) {
  for (size_t i = 2; i < axes; ++i) {
    if (shape[i] != 1) return false;
  }
  return shape.size() >= 2;
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Seconds that all threads take to read `bytes`, as they do when decoding. (One thread alone is not limited by small
// pages: it read a mapped file at 0.93 to 0.99 of the speed of a copy where two read it at 0.6 to 0.8.)
double ReadSeconds(const kernels::Kernels& kernels, kernels::ThreadPool& pool, std::span<const std::byte> bytes) {
  const auto start = std::chrono::steady_clock::now();
  pool.ParallelFor(
      static_cast<int64_t>(bytes.size()),
      [&](int64_t begin, int64_t end) { kernels.read_stream(bytes.data() + begin, static_cast<size_t>(end - begin)); },
      int64_t{1} << 20);
  return Seconds(start);
}

// Gives the pages of a mapped file back that lie wholly inside `bytes`.
void ReleasePages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const size_t skipped = (page - reinterpret_cast<uintptr_t>(bytes.data()) % page) % page;
  if (skipped >= bytes.size()) return;
  const size_t size = (bytes.size() - skipped) / page * page;
  if (size > 0) madvise(const_cast<std::byte*>(bytes.data()) + skipped, size, MADV_DONTNEED);
}

}  // namespace

WeightCounts WeightStore::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Status WeightStore::Decide(std::span<const std::byte> bytes) {
  if (placement_ != WeightPlacement::kAuto || bytes.size() < kLeastMeasuredBytes) return Status::Ok();
  const size_t size = std::min(bytes.size(), kMeasuredBytes);
  MW_ASSIGN_OR_RETURN(kernels::AlignedBuffer copy, kernels::AlignedBuffer::Allocate(size));
  std::memcpy(copy.data(), bytes.data(), size);
  const std::span<const std::byte> copied(reinterpret_cast<const std::byte*>(copy.data()), size);
  // In turn, so that a busy moment of the machine hits both.
  std::array<double, kMeasurements> ratios{};
  for (double& ratio : ratios) {
    const double mapped = ReadSeconds(kernels_, pool_, bytes.first(size));
    ratio = mapped / ReadSeconds(kernels_, pool_, copied);
  }
  std::ranges::sort(ratios);
  placement_ = ratios[kMeasurements / 2] > kWorthCopying ? WeightPlacement::kCopy : WeightPlacement::kMap;
  return Status::Ok();
}

Result<std::byte*> WeightStore::Reserve(size_t bytes) {
  constexpr size_t kPadding = 64;  // kernels read whole vectors
  constexpr size_t kSlab = size_t{32} << 20U;
  const size_t needed = (bytes + kPadding + 63) / 64 * 64;
  if (slabs_.empty() || slabs_.back().size() - slab_used_ < needed) {
    MW_ASSIGN_OR_RETURN(kernels::AlignedBuffer slab, kernels::AlignedBuffer::Allocate(std::max(kSlab, needed)));
    slabs_.push_back(std::move(slab));
    slab_used_ = 0;
  }
  auto* place = reinterpret_cast<std::byte*>(slabs_.back().data()) + slab_used_;
  slab_used_ += needed;
  return place;
}

Result<const std::byte*> WeightStore::PlaceLocked(std::span<const std::byte> bytes) {
  if (const auto it = copies_.find(bytes.data()); it != copies_.end() && it->second.size() >= bytes.size()) {
    return it->second.data();
  }
  MW_RETURN_IF_ERROR(Decide(bytes));
  if (placement_ != WeightPlacement::kCopy) {
    if (mapped_.insert(bytes.data()).second) counts_.mapped_bytes += static_cast<int64_t>(bytes.size());
    return bytes.data();
  }
  MW_ASSIGN_OR_RETURN(std::byte * copy, Reserve(bytes.size()));
  // Piece by piece, so that no page is held twice for long.
  constexpr size_t kPiece = size_t{8} << 20U;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    pool_.ParallelFor(
        static_cast<int64_t>(piece.size()),
        [&](int64_t begin, int64_t end) {
          std::memcpy(copy + at + begin, piece.data() + begin, static_cast<size_t>(end - begin));
        },
        int64_t{1} << 20);
    ReleasePages(piece);
  }
  counts_.copied_bytes += static_cast<int64_t>(bytes.size());
  copies_.insert_or_assign(bytes.data(), std::span<const std::byte>(copy, bytes.size()));
  return copy;
}

Result<const std::byte*> WeightStore::Place(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  return PlaceLocked(bytes);
}

Result<const std::byte*> WeightStore::PlaceLiteral(const Literal& literal) {
  if (literal.blob.has_value()) return PlaceLocked(literal.tensor.bytes());
  kept_.push_back(literal.tensor);  // lies in the model file, which the program keeps, or was computed
  return kept_.back().bytes().data();
}

Result<bool> WeightStore::FillGrid(const Literal& literal, const WeightView& view, size_t axes, Grid* grid) {
  const Shape& shape = literal.tensor.shape();
  if (!VariesInMatrix(shape, axes) || shape[0] == 0 || shape[1] == 0 || view.rows % shape[0] != 0 ||
      view.cols % shape[1] != 0) {
    return false;
  }
  MW_ASSIGN_OR_RETURN(const std::byte* place, PlaceLiteral(literal));
  *grid = Grid{place, literal.tensor.dtype(), view.rows / shape[0], view.cols / shape[1]};
  return true;
}

Result<bool> WeightStore::FillCodes(const Literal& literal, std::optional<Codec> codec, WeightView* view) {
  if (!codec.has_value()) return false;
  view->codec = *codec;
  MW_ASSIGN_OR_RETURN(const std::byte* place, PlaceLiteral(literal));
  view->codes = reinterpret_cast<const uint8_t*>(place);
  view->code_bytes = static_cast<int64_t>(literal.tensor.bytes().size());
  return true;
}

Result<bool> WeightStore::FillView(const Operation& op, WeightView* view, std::vector<uint64_t>* row_starts) {
  const Shape& shape = op.output()->type.shape();
  const size_t axes = shape.size();
  if (op.type() == "constexpr_lut_to_dense") {
    const Literal* indices = LiteralOf(op, "indices");
    const Literal* lut = LiteralOf(op, "lut");
    if (indices == nullptr || lut == nullptr || lut->tensor.rank() != static_cast<int64_t>(axes) + 2 ||
        lut->tensor.shape().back() != 1) {
      return false;
    }
    MW_ASSIGN_OR_RETURN(const bool grid, FillGrid(*lut, *view, axes, &view->table));
    if (!grid) return false;
    return FillCodes(*indices, TableCodec(indices->tensor.dtype()), view);
  }
  if (op.type() == "constexpr_blockwise_shift_scale") {
    const Literal* data = LiteralOf(op, "data");
    const Operation* inner = ProducerOf(op, "data");
    if (data != nullptr) {
      if (IsFloat(data->tensor.dtype())) return false;
      MW_ASSIGN_OR_RETURN(const bool codes, FillCodes(*data, CodecOf(data->tensor.dtype()), view));
      if (!codes) return false;
    } else if (inner != nullptr && inner->type() == "constexpr_lut_to_dense") {
      MW_ASSIGN_OR_RETURN(const bool table, FillView(*inner, view, row_starts));
      if (!table) return false;
    } else {
      return false;
    }
    const Literal* scale = LiteralOf(op, "scale");
    if (scale == nullptr) return false;
    MW_ASSIGN_OR_RETURN(const bool scaled, FillGrid(*scale, *view, axes, &view->scale));
    if (!scaled) return false;
    if (op.FindInput("offset") == nullptr) return true;
    const Literal* offset = LiteralOf(op, "offset");
    if (offset == nullptr) return false;
    return FillGrid(*offset, *view, axes, &view->offset);
  }
  if (op.type() == "constexpr_sparse_to_dense") {
    const Literal* data = LiteralOf(op, "nonzero_data");
    const Literal* mask = LiteralOf(op, "mask");
    if (data == nullptr || mask == nullptr || mask->tensor.dtype() != DataType::kUInt1) return false;
    MW_ASSIGN_OR_RETURN(const std::byte* bits, PlaceLiteral(*mask));
    view->mask = reinterpret_cast<const uint8_t*>(bits);
    row_starts->resize(static_cast<size_t>(view->rows) + 1);
    kernels::CountRowStarts(view->mask, view->rows, view->cols, row_starts->data());
    view->row_starts = row_starts->data();
    return FillCodes(*data, CodecOf(data->tensor.dtype()), view);
  }
  return false;
}

Result<Literal> WeightStore::DecodeLocked(const Value& value) {
  const Operation& op = *value.producer();
  if (const auto it = decoded_.find(&op); it != decoded_.end()) return it->second[value.index()];
  const Opset opset = op.parent()->function()->opset;
  const OpDefinition* definition = OpRegistry::Get().Find(op.type(), opset);
  if (definition == nullptr) return Status(ErrorCode::kInvalidProgram, "no such op").WithContext(OperationPath(op));
  OpContext context(*definition, opset);
  std::deque<Literal> contents;
  for (const Input& input : op.inputs()) {
    std::vector<OpContext::Argument> arguments;
    for (const Operand& operand : input.arguments) {
      const Literal* content = operand.constant();
      if (content == nullptr) {
        MW_ASSIGN_OR_RETURN(Literal inner, DecodeLocked(*operand.value));
        contents.push_back(std::move(inner));
        content = &contents.back();
      }
      arguments.push_back({&content->type, content});
    }
    context.Bind(input.name, std::move(arguments));
  }
  for (const ParameterSpec& spec : definition->parameters) {
    const Literal* attribute = spec.attribute ? op.FindAttribute(spec.name) : nullptr;
    if (attribute != nullptr) context.Bind(spec.name, {{&attribute->type, attribute}});
  }
  std::vector<const Type*> declared;
  for (const auto& output : op.outputs()) declared.push_back(&output->type);
  context.BindDeclared(std::move(declared));
  MW_ASSIGN_OR_RETURN(const std::vector<Type> types, definition->infer(context));
  MW_ASSIGN_OR_RETURN(std::vector<Literal> values, definition->evaluate(context, types));
  for (const Literal& part : values) counts_.repacked_bytes += static_cast<int64_t>(part.tensor.bytes().size());
  return decoded_.emplace(&op, std::move(values)).first->second[value.index()];
}

Result<Literal> WeightStore::Content(const GraphValue& value) {
  if (value.known != nullptr) return *value.known;
  const std::lock_guard lock(mutex_);
  return DecodeLocked(*value.weight);
}

Result<std::shared_ptr<const WeightMatrix>> WeightStore::Matrix(const GraphValue& value, bool transposed) {
  std::shared_ptr<const WeightMatrix> none;
  const Shape& shape = value.shape();
  if (!IsFloat(value.dtype()) || shape.size() < 2 || value.type.tensor.shape.empty()) return none;
  const std::lock_guard lock(mutex_);
  const void* key = value.weight != nullptr ? static_cast<const void*>(value.weight)
                                            : static_cast<const void*>(value.known->tensor.bytes().data());
  auto matrix = std::make_shared<WeightMatrix>();
  WeightView& view = matrix->view;
  if (transposed) {
    view.cols = shape[shape.size() - 2];
    view.rows = shape.back();
  } else {
    view.rows = shape[0];
    view.cols = 1;
    for (size_t i = 1; i < shape.size(); ++i) view.cols *= shape[i];
  }
  if (view.rows <= 0 || view.cols <= 0) return none;
  const auto cache_key = std::make_tuple(key, view.rows, view.cols, transposed);
  if (const auto it = matrices_.find(cache_key); it != matrices_.end()) return it->second;

  bool as_stored = false;
  if (!transposed && value.weight != nullptr) {
    MW_ASSIGN_OR_RETURN(as_stored, FillView(*value.weight->producer(), &view, &matrix->row_starts));
  }
  if (!as_stored) {
    const int64_t rows = view.rows;
    const int64_t cols = view.cols;
    view = WeightView();
    view.rows = rows;
    view.cols = cols;
    Literal content;
    if (value.known != nullptr) {
      content = *value.known;
      kept_.push_back(content.tensor);  // the cache knows it by its address
    } else {
      MW_ASSIGN_OR_RETURN(content, DecodeLocked(*value.weight));
    }
    if (transposed) {
      const std::vector<float> floats = content.tensor.ToFloats();
      std::vector<float> turned(floats.size());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          turned[static_cast<size_t>(r * cols + c)] = floats[static_cast<size_t>(c * rows + r)];
        }
      }
      MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::FromFloats({value.dtype(), {rows, cols}}, turned));
      counts_.repacked_bytes += static_cast<int64_t>(tensor.bytes().size());
      content = Literal(std::move(tensor));
    }
    MW_ASSIGN_OR_RETURN(const bool dense, FillCodes(content, CodecOf(content.tensor.dtype()), &view));
    if (!dense) return none;
  }
  view.round_to_half = numerics_ == Numerics::kStrict && value.dtype() == DataType::kFp16;
  if (const Status status = kernels::CheckWeights(view); !status.ok()) return status.WithContext(value.name);
  const auto precision = numerics_ == Numerics::kFast ? kernels::Precision::kFast : kernels::Precision::kExact;
  matrix->matvec = &kernels::FindMatVec(kernels_, view, precision);
  matrix->matmul = &kernels::FindMatMul(kernels_, view, precision);
  ++counts_.matrices;
  return matrices_.emplace(cache_key, std::move(matrix)).first->second;
}

}  // namespace milwright::engine
