#include "milwright/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "milwright/half.h"

namespace milwright {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor storage is little endian");

// No single tensor beyond this is made: a hostile shape must not take the machine down.
constexpr int64_t kMaxTensorBytes = int64_t{64} << 30;

template <typename T>
T Load(std::span<const std::byte> bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Store(std::span<std::byte> bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Bit fields of 1, 2, 3, 4 or 6 bits in an LSB-first stream; one may straddle two bytes.
uint32_t LoadBits(std::span<const std::byte> bytes, int64_t i, int bits) {
  const int64_t position = i * bits;
  const auto byte = static_cast<size_t>(position / 8);
  uint32_t window = std::to_integer<uint32_t>(bytes[byte]);
  if (byte + 1 < bytes.size()) window |= std::to_integer<uint32_t>(bytes[byte + 1]) << 8U;
  return (window >> static_cast<unsigned>(position % 8)) & ((1U << static_cast<unsigned>(bits)) - 1U);
}

void StoreBits(std::span<std::byte> bytes, int64_t i, int bits, uint32_t value) {
  const uint32_t mask = (1U << static_cast<unsigned>(bits)) - 1U;
  for (int bit = 0; bit < bits; ++bit) {
    const int64_t position = i * bits + bit;
    const auto flag = std::byte{1} << static_cast<unsigned>(position % 8);
    std::byte& target = bytes[static_cast<size_t>(position / 8)];
    target = ((value & mask) >> static_cast<unsigned>(bit) & 1U) != 0 ? target | flag : target & ~flag;
  }
}

struct IntegerRange {
  double low;
  double high;
};

IntegerRange RangeOf(DataType type) {
  const int bits = BitWidth(type);
  const bool is_signed = type == DataType::kInt4 || type == DataType::kInt8 || type == DataType::kInt16 ||
                         type == DataType::kInt32 || type == DataType::kInt64;
  if (is_signed) return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
  return {0, std::ldexp(1.0, bits) - 1};
}

}  // namespace

namespace {

// From this size on memory is mapped on huge pages: caches of hundreds of megabytes are read all over in every step.
constexpr size_t kHugeBytes = size_t{4} << 20U;
constexpr size_t kHugePage = size_t{2} << 20U;

// Zeroed memory that the system provides as it is touched. Null when there is none.
std::shared_ptr<std::byte[]> ZeroedMemory(size_t bytes) {
  if (bytes < kHugeBytes) {
    auto* memory = static_cast<std::byte*>(std::calloc(std::max<size_t>(bytes, 1), 1));
    if (memory == nullptr) return nullptr;
    return {memory, [](std::byte* data) { std::free(data); }};
  }
  const size_t size = bytes + kHugePage;  // room to begin at a multiple of the page
  void* mapping = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  std::byte* aligned =
      static_cast<std::byte*>(mapping) + (kHugePage - reinterpret_cast<uintptr_t>(mapping) % kHugePage) % kHugePage;
  madvise(aligned, bytes, MADV_HUGEPAGE);  // only a hint
  return {aligned, [mapping, size](std::byte*) { munmap(mapping, size); }};
}

std::shared_ptr<std::byte[]> CopyOf(std::span<const std::byte> bytes) {
  auto copy = ZeroedMemory(bytes.size());
  if (copy == nullptr) throw std::bad_alloc();
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return copy;
}

}  // namespace

Result<Tensor> Tensor::Zeros(const TensorType& type) {
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type));
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(type.shape));
  if (bytes > kMaxTensorBytes || count > kMaxTensorBytes) {
    return Status(ErrorCode::kUsage, "a tensor of type " + TypeToString(type) + " is beyond the limit of 64 GiB");
  }
  Tensor tensor;
  tensor.type_ = type;
  tensor.size_ = count;
  if (type.dtype == DataType::kString) {
    try {
      tensor.strings_ = std::make_shared<const std::vector<std::string>>(static_cast<size_t>(count));
      return tensor;
    } catch (const std::bad_alloc&) {
      return Status(ErrorCode::kRuntime, "not enough memory for a tensor of type " + TypeToString(type));
    }
  }
  tensor.owned_ = ZeroedMemory(static_cast<size_t>(bytes));
  tensor.owned_bytes_ = static_cast<size_t>(bytes);
  if (tensor.owned_ == nullptr) {
    return Status(ErrorCode::kRuntime, "not enough memory for a tensor of type " + TypeToString(type));
  }
  return tensor;
}

Result<Tensor> Tensor::FromBytes(const TensorType& type, std::vector<std::byte> bytes) {
  MW_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(type));
  if (static_cast<int64_t>(bytes.size()) != expected) {
    return Status(ErrorCode::kUnreadable, TypeToString(type) + " takes " + std::to_string(expected) + " bytes, but " +
                                              std::to_string(bytes.size()) + " are given");
  }
  Tensor tensor;
  tensor.type_ = type;
  tensor.size_ = *ElementCount(type.shape);
  auto holder = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  tensor.owned_bytes_ = holder->size();
  tensor.owned_ = std::shared_ptr<std::byte[]>(holder, holder->data());
  return tensor;
}

Result<Tensor> Tensor::Borrow(const TensorType& type, std::span<const std::byte> bytes,
                              std::shared_ptr<const void> owner) {
  MW_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(type));
  if (static_cast<int64_t>(bytes.size()) != expected) {
    return Status(ErrorCode::kUnreadable, TypeToString(type) + " takes " + std::to_string(expected) +
                                              " bytes, but the blob holds " + std::to_string(bytes.size()));
  }
  Tensor tensor;
  tensor.type_ = type;
  tensor.size_ = *ElementCount(type.shape);
  tensor.borrowed_ = bytes;
  tensor.borrowed_owner_ = std::move(owner);
  return tensor;
}

Result<Tensor> Tensor::FromStrings(Shape shape, std::vector<std::string> values) {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  if (static_cast<int64_t>(values.size()) != count) {
    return Status(ErrorCode::kUnreadable, "the shape " + ShapeToString(shape) + " takes " + std::to_string(count) +
                                              " strings, but " + std::to_string(values.size()) + " are given");
  }
  Tensor tensor;
  tensor.type_ = {DataType::kString, std::move(shape)};
  tensor.size_ = count;
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return tensor;
}

Tensor Tensor::Scalar(DataType dtype, double value) {
  Tensor tensor = *Zeros({dtype, {}});
  tensor.SetDouble(0, value);
  return tensor;
}

Tensor Tensor::ScalarString(std::string value) { return *FromStrings({}, {std::move(value)}); }

Tensor Tensor::VectorOf(DataType dtype, const std::vector<int64_t>& values) {
  Tensor tensor = *Zeros({dtype, {static_cast<int64_t>(values.size())}});
  for (size_t i = 0; i < values.size(); ++i) tensor.SetInt(static_cast<int64_t>(i), values[i]);
  return tensor;
}

Result<Tensor> Tensor::FromFloats(const TensorType& type, std::span<const float> values) {
  MW_ASSIGN_OR_RETURN(Tensor tensor, Zeros(type));
  if (static_cast<int64_t>(values.size()) != tensor.size()) {
    return Status(ErrorCode::kUsage, TypeToString(type) + " takes " + std::to_string(tensor.size()) +
                                         " elements, but " + std::to_string(values.size()) + " are given");
  }
  switch (type.dtype) {
    case DataType::kFp32:
      std::ranges::copy(values, tensor.MutableAs<float>().begin());
      break;
    case DataType::kFp16:
      std::ranges::transform(values, tensor.MutableAs<uint16_t>().begin(), FloatToHalf);
      break;
    default:
      for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(static_cast<int64_t>(i), values[i]);
  }
  return tensor;
}

std::span<const std::byte> Tensor::bytes() const {
  if (owned_bytes_ > 0) return {owned_.get(), owned_bytes_};
  return borrowed_;
}

std::span<std::byte> Tensor::mutable_bytes() {
  if (owned_bytes_ == 0) {
    owned_ = CopyOf(borrowed_);
    owned_bytes_ = borrowed_.size();
    borrowed_ = {};
    borrowed_owner_ = nullptr;
  } else if (owned_.use_count() > 1) {
    owned_ = CopyOf({owned_.get(), owned_bytes_});
  } else {
    // The count is read relaxed: what another thread read through a copy that is gone now must come before the write.
    // Dropping a copy of our own acquires what theirs released.
    std::shared_ptr<std::byte[]>(owned_).reset();
  }
  return {owned_.get(), owned_bytes_};
}

const std::vector<std::string>& Tensor::strings() const {
  static const std::vector<std::string> kNone;
  return strings_ != nullptr ? *strings_ : kNone;
}

double Tensor::GetDouble(int64_t i) const {
  switch (type_.dtype) {
    case DataType::kFp16:
      return HalfToFloat(Load<uint16_t>(bytes(), i));
    case DataType::kFp32:
      return Load<float>(bytes(), i);
    case DataType::kFp64:
      return Load<double>(bytes(), i);
    case DataType::kBf16:
      return BFloat16ToFloat(Load<uint16_t>(bytes(), i));
    case DataType::kFp8E4M3:
      return Float8E4M3ToFloat(Load<uint8_t>(bytes(), i));
    case DataType::kFp8E5M2:
      return Float8E5M2ToFloat(Load<uint8_t>(bytes(), i));
    case DataType::kUInt64:
      return static_cast<double>(Load<uint64_t>(bytes(), i));
    default:
      return static_cast<double>(GetInt(i));
  }
}

int64_t Tensor::GetInt(int64_t i) const {
  switch (type_.dtype) {
    case DataType::kBool:
      return Load<uint8_t>(bytes(), i) != 0 ? 1 : 0;
    case DataType::kInt8:
      return Load<int8_t>(bytes(), i);
    case DataType::kInt16:
      return Load<int16_t>(bytes(), i);
    case DataType::kInt32:
      return Load<int32_t>(bytes(), i);
    case DataType::kInt64:
      return Load<int64_t>(bytes(), i);
    case DataType::kUInt8:
      return Load<uint8_t>(bytes(), i);
    case DataType::kUInt16:
      return Load<uint16_t>(bytes(), i);
    case DataType::kUInt32:
      return Load<uint32_t>(bytes(), i);
    case DataType::kUInt64:
      return static_cast<int64_t>(Load<uint64_t>(bytes(), i));
    case DataType::kInt4: {
      const auto nibble = static_cast<int>(LoadBits(bytes(), i, 4));
      return nibble >= 8 ? nibble - 16 : nibble;
    }
    case DataType::kUInt1:
    case DataType::kUInt2:
    case DataType::kUInt3:
    case DataType::kUInt4:
    case DataType::kUInt6:
      return LoadBits(bytes(), i, BitWidth(type_.dtype));
    case DataType::kString:
    case DataType::kInvalid:
      return 0;
    default: {  // floats: toward zero, saturated
      const double value = GetDouble(i);
      if (std::isnan(value)) return 0;
      if (value >= 9.2233720368547758e18) return std::numeric_limits<int64_t>::max();
      if (value <= -9.2233720368547758e18) return std::numeric_limits<int64_t>::min();
      return static_cast<int64_t>(value);
    }
  }
}

void Tensor::SetDouble(int64_t i, double value) {
  switch (type_.dtype) {
    case DataType::kFp16:
      // Through float first: a double is rounded twice only where the float is a tie, which fp32 sums already are.
      Store(mutable_bytes(), i, FloatToHalf(static_cast<float>(value)));
      return;
    case DataType::kFp32:
      Store(mutable_bytes(), i, static_cast<float>(value));
      return;
    case DataType::kFp64:
      Store(mutable_bytes(), i, value);
      return;
    case DataType::kBf16:
      Store(mutable_bytes(), i, FloatToBFloat16(static_cast<float>(value)));
      return;
    case DataType::kBool:
      Store<uint8_t>(mutable_bytes(), i, value != 0 ? 1 : 0);
      return;
    default:
      break;
  }
  if (std::isnan(value)) return SetInt(i, 0);
  const IntegerRange range = RangeOf(type_.dtype);
  if (value >= range.high) {  // the doubles nearest to 2^63-1 and 2^64-1 lie outside the type
    return SetInt(i, type_.dtype == DataType::kUInt64  ? -1
                     : type_.dtype == DataType::kInt64 ? std::numeric_limits<int64_t>::max()
                                                       : static_cast<int64_t>(range.high));
  }
  if (value <= range.low) {
    return SetInt(
        i, type_.dtype == DataType::kInt64 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(range.low));
  }
  SetInt(i, type_.dtype == DataType::kUInt64 ? static_cast<int64_t>(static_cast<uint64_t>(value))
                                             : static_cast<int64_t>(value));
}

void Tensor::SetInt(int64_t i, int64_t value) {
  switch (type_.dtype) {
    case DataType::kBool:
      Store<uint8_t>(mutable_bytes(), i, value != 0 ? 1 : 0);
      return;
    case DataType::kInt8:
    case DataType::kUInt8:
      Store(mutable_bytes(), i, static_cast<uint8_t>(value));
      return;
    case DataType::kInt16:
    case DataType::kUInt16:
      Store(mutable_bytes(), i, static_cast<uint16_t>(value));
      return;
    case DataType::kInt32:
    case DataType::kUInt32:
      Store(mutable_bytes(), i, static_cast<uint32_t>(value));
      return;
    case DataType::kInt64:
    case DataType::kUInt64:
      Store(mutable_bytes(), i, value);
      return;
    case DataType::kInt4:
    case DataType::kUInt1:
    case DataType::kUInt2:
    case DataType::kUInt3:
    case DataType::kUInt4:
    case DataType::kUInt6:
      StoreBits(mutable_bytes(), i, BitWidth(type_.dtype), static_cast<uint32_t>(value));
      return;
    case DataType::kFp16:
    case DataType::kFp32:
    case DataType::kFp64:
    case DataType::kBf16:
      SetDouble(i, static_cast<double>(value));
      return;
    default:
      return;
  }
}

std::vector<float> Tensor::ToFloats() const {
  std::vector<float> values(static_cast<size_t>(size_));
  switch (type_.dtype) {
    case DataType::kFp32:
      std::ranges::copy(As<float>(), values.begin());
      break;
    case DataType::kFp16:
      std::ranges::transform(As<uint16_t>(), values.begin(), HalfToFloat);
      break;
    default:
      for (int64_t i = 0; i < size_; ++i) values[static_cast<size_t>(i)] = GetFloat(i);
  }
  return values;
}

std::vector<int64_t> Tensor::ToInts() const {
  std::vector<int64_t> values(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) values[static_cast<size_t>(i)] = GetInt(i);
  return values;
}

Result<Tensor> Tensor::Reshaped(Shape shape) const {
  MW_ASSIGN_OR_RETURN(const int64_t count, ElementCount(shape));
  if (count != size_) {
    return Status(ErrorCode::kUsage, TypeToString(type_) + " cannot take the shape " + ShapeToString(shape));
  }
  Tensor result = *this;
  result.type_.shape = std::move(shape);
  return result;
}

bool Tensor::BitEquals(const Tensor& other) const {
  if (type_ != other.type_) return false;
  if (type_.dtype == DataType::kString) return strings() == other.strings();
  const auto a = bytes();
  const auto b = other.bytes();
  return a.data() == b.data() || std::ranges::equal(a, b);
}

}  // namespace milwright
