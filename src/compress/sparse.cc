// Magnitude pruning of one tensor.
#include <algorithm>
#include <bit>
#include <cmath>

#include "compress/elements.h"
#include "milwright/half.h"

namespace milwright::compress {
namespace {

constexpr uint32_t kLowBits = 16;

uint32_t MagnitudeBits(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU; }

// Finds the magnitude below which everything goes: bit patterns of magnitudes are ordered like the magnitudes, so two
// passes that count their upper and lower halves do, whatever the size.
struct Threshold {
  uint32_t bits = 0;
  size_t equals = 0;  ///< so many of those that have it go, too
};

template <typename Visit>
void ForEachValue(const Elements& weight, Visit visit) {
  std::array<float, kBlock> values;
  for (size_t begin = 0; begin < weight.size(); begin += kBlock) {
    const auto block = std::span(values).first(std::min(kBlock, weight.size() - begin));
    weight.Read(begin, block);
    for (size_t i = 0; i < block.size(); ++i) visit(begin + i, block[i]);
  }
}

// Moves `rest` into the first count that covers it, and returns its index.
uint32_t Locate(const std::vector<size_t>& counts, size_t& rest) {
  uint32_t index = 0;
  while (index + 1 < counts.size() && rest >= counts[index]) rest -= counts[index++];
  return index;
}

Threshold FindThreshold(const Elements& weight, size_t zeros) {
  Threshold threshold;
  threshold.equals = zeros;
  std::vector<size_t> counts(size_t{1} << (31 - kLowBits));
  ForEachValue(weight, [&](size_t /*i*/, float value) { ++counts[MagnitudeBits(value) >> kLowBits]; });
  const uint32_t upper = Locate(counts, threshold.equals);
  counts.assign(size_t{1} << kLowBits, 0);
  ForEachValue(weight, [&](size_t /*i*/, float value) {
    const uint32_t bits = MagnitudeBits(value);
    if (bits >> kLowBits == upper) ++counts[bits & ((1U << kLowBits) - 1U)];
  });
  threshold.bits = (upper << kLowBits) | Locate(counts, threshold.equals);
  return threshold;
}

}  // namespace

Result<CompressedTensor> CompressSparse(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options) {
  const Elements elements(weight);
  const auto zeros = static_cast<size_t>(format.sparsity * static_cast<double>(elements.size()));
  // The smallest magnitudes go; of equals those that come first.
  Threshold threshold = FindThreshold(elements, zeros);
  CompressedTensor result;
  result.op = "constexpr_sparse_to_dense";
  MW_ASSIGN_OR_RETURN(Tensor bitmap, Tensor::Zeros({DataType::kUInt1, weight.shape()}));
  if (options.decoded) result.decoded.resize(elements.size());
  const std::span<std::byte> mask = bitmap.mutable_bytes();
  const bool half = weight.dtype() == DataType::kFp16;
  std::vector<std::byte> kept;
  kept.reserve((elements.size() - zeros) * (half ? sizeof(uint16_t) : sizeof(float)));
  std::array<float, kBlock> decoded;
  std::array<uint8_t, kBlock> bits;
  const auto keep = [&kept](auto number) {
    const auto bytes = std::as_bytes(std::span(&number, 1));
    kept.insert(kept.end(), bytes.begin(), bytes.end());
  };
  for (size_t begin = 0; begin < elements.size(); begin += kBlock) {
    const auto block = std::span(decoded).first(std::min(kBlock, elements.size() - begin));
    elements.Read(begin, block);
    for (size_t i = 0; i < block.size(); ++i) {
      const uint32_t magnitude = MagnitudeBits(block[i]);
      const bool goes = magnitude < threshold.bits || (magnitude == threshold.bits && threshold.equals > 0);
      if (goes && magnitude == threshold.bits) --threshold.equals;
      if (goes) block[i] = 0;
      bits[i] = block[i] != 0 ? 1 : 0;
      if (bits[i] == 0) continue;
      if (half) {
        keep(FloatToHalf(block[i]));
      } else {
        keep(block[i]);
      }
    }
    PackCodes(std::span(bits).first(block.size()), 1, begin, mask);
    AddError(elements, begin, block, result.error);
    if (options.decoded) std::ranges::copy(block, result.decoded.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  const auto count = static_cast<int64_t>(kept.size() / (half ? sizeof(uint16_t) : sizeof(float)));
  MW_ASSIGN_OR_RETURN(Tensor data, Tensor::FromBytes({weight.dtype(), {count}}, std::move(kept)));
  result.parts = {{"mask", std::move(bitmap)}, {"nonzero_data", std::move(data)}};
  return result;
}

}  // namespace milwright::compress
