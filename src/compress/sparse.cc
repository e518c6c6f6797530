// Magnitude pruning of one tensor.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <type_traits>
#include <utility>

#include "compress/elements.h"
#include "milwright/half.h"

namespace milwright::compress {
namespace {

constexpr uint32_t kLowBits = 16;

uint32_t MagnitudeBits(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFU; }

// The magnitude below which everything goes.
struct Threshold {
  uint32_t bits = 0;
  size_t equals = 0;  ///< so many of those that have it go, too: those that come first
};

// What a piece holds.
struct PieceCounts {
  size_t above = 0;
  size_t equal = 0;
};

// Moves `rest` into the first count that covers it, and returns its index.
uint32_t Locate(const std::vector<size_t>& counts, size_t& rest) {
  uint32_t index = 0;
  while (index + 1 < counts.size() && rest >= counts[index]) rest -= counts[index++];
  return index;
}

class Pruner {
 public:
  Pruner(const Elements& weight, int threads)
      : weight_(weight), pool_(threads), pieces_((weight.size() + kPiece - 1) / kPiece) {}

  // Finds what goes: `zeros` elements. Bit patterns of magnitudes are ordered like the magnitudes, so two passes that
  // count their upper and lower halves do, whatever the size. Returns the number of elements that stay and are not 0.
  size_t Choose(size_t zeros) {
    threshold_.equals = zeros;
    const uint32_t upper = Locate(
        CountMagnitudes(size_t{1} << (31 - kLowBits), [](uint32_t bits, auto& counts) { ++counts[bits >> kLowBits]; }),
        threshold_.equals);
    const std::vector<size_t> lower = CountMagnitudes(size_t{1} << kLowBits, [upper](uint32_t bits, auto& counts) {
      if (bits >> kLowBits == upper) ++counts[bits & ((1U << kLowBits) - 1U)];
    });
    threshold_.bits = (upper << kLowBits) | Locate(lower, threshold_.equals);
    CountKept();
    return kept_;
  }

  // Fills the mask (zero), the elements that stay, and `decoded` unless it is empty.
  template <typename Stored>
  CompressionError Prune(std::span<std::byte> mask, std::span<Stored> data, std::span<float> decoded) {
    std::vector<CompressionError> errors(pieces_);
    ForEachPiece(pool_, pieces_, [&](size_t piece) {
      std::array<uint8_t, kBlock> bits;
      std::array<Stored, kBlock> stored;
      size_t equals = threshold_.equals - std::min(threshold_.equals, equals_before_[piece]);
      size_t next = kept_before_[piece];
      ForEachBlock(piece, [&](size_t begin, std::span<float> block) {
        size_t count = 0;
        for (size_t i = 0; i < block.size(); ++i) {
          const uint32_t magnitude = MagnitudeBits(block[i]);
          const bool equal = magnitude == threshold_.bits && equals > 0;
          equals -= equal ? 1 : 0;
          if (magnitude < threshold_.bits || equal) block[i] = 0;
          bits[i] = block[i] != 0 ? 1 : 0;
          if constexpr (std::is_same_v<Stored, float>) {
            stored[count] = block[i];
          } else {
            stored[count] = FloatToHalf(block[i]);
          }
          count += bits[i];  // without a branch, which would be guessed wrong half of the time
        }
        std::copy_n(stored.begin(), count, data.begin() + static_cast<std::ptrdiff_t>(next));
        next += count;
        PackCodes(std::span(bits).first(block.size()), 1, begin, mask);
        AddError(weight_, begin, block, errors[piece]);
        if (!decoded.empty()) std::ranges::copy(block, decoded.subspan(begin, block.size()).begin());
      });
    });
    return SumOf(errors);
  }

 private:
  template <typename Visit>
  void ForEachBlock(size_t piece, Visit visit) const {
    std::array<float, kBlock> values;
    const size_t end = std::min((piece + 1) * kPiece, weight_.size());
    for (size_t begin = piece * kPiece; begin < end; begin += kBlock) {
      const auto block = std::span(values).first(std::min(kBlock, end - begin));
      weight_.Read(begin, block);
      visit(begin, block);
    }
  }

  template <typename Count>
  std::vector<size_t> CountMagnitudes(size_t size, Count count) {
    std::vector<size_t> sum(size);
    CountPieces<std::vector<uint32_t>>(
        pool_, pieces_,
        [&](size_t piece, std::vector<uint32_t>& own) {
          own.resize(size);
          ForEachBlock(piece, [&](size_t /*begin*/, std::span<const float> block) {
            for (const float value : block) count(MagnitudeBits(value), own);
          });
        },
        [&](const std::vector<uint32_t>& own) { std::ranges::transform(sum, own, sum.begin(), std::plus()); });
    return sum;
  }

  // Where in the results each piece begins.
  void CountKept() {
    std::vector<PieceCounts> counts(pieces_);
    ForEachPiece(pool_, pieces_, [&](size_t piece) {
      ForEachBlock(piece, [&](size_t /*begin*/, std::span<const float> block) {
        uint32_t above = 0;
        uint32_t equal = 0;
        for (const float value : block) {
          const uint32_t magnitude = MagnitudeBits(value);
          above += magnitude > threshold_.bits ? 1U : 0U;
          equal += magnitude == threshold_.bits ? 1U : 0U;
        }
        counts[piece].above += above;
        counts[piece].equal += equal;
      });
    });
    size_t equals = 0;
    for (const PieceCounts& count : counts) {
      equals_before_.push_back(equals);
      kept_before_.push_back(kept_);
      const size_t go = std::min(count.equal, threshold_.equals - std::min(threshold_.equals, equals));
      equals += count.equal;
      kept_ += count.above + (threshold_.bits > 0 ? count.equal - go : 0);
    }
  }

  const Elements& weight_;
  kernels::ThreadPool pool_;
  const size_t pieces_;
  Threshold threshold_;
  std::vector<size_t> equals_before_;
  std::vector<size_t> kept_before_;
  size_t kept_ = 0;
};

}  // namespace

Result<CompressedTensor> CompressSparse(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options) {
  const Elements elements(weight);
  const auto zeros = static_cast<size_t>(format.sparsity * static_cast<double>(elements.size()));
  Pruner pruner(elements, options.threads);
  const auto kept = static_cast<int64_t>(pruner.Choose(zeros));
  CompressedTensor result;
  result.op = "constexpr_sparse_to_dense";
  MW_ASSIGN_OR_RETURN(Tensor mask, Tensor::Zeros({DataType::kUInt1, weight.shape()}));
  MW_ASSIGN_OR_RETURN(Tensor data, Tensor::Zeros({weight.dtype(), {kept}}));
  if (options.decoded) result.decoded.resize(elements.size());
  result.error = weight.dtype() == DataType::kFp16
                     ? pruner.Prune(mask.mutable_bytes(), data.MutableAs<uint16_t>(), result.decoded)
                     : pruner.Prune(mask.mutable_bytes(), data.MutableAs<float>(), result.decoded);
  result.parts = {{"mask", std::move(mask)}, {"nonzero_data", std::move(data)}};
  return result;
}

}  // namespace milwright::compress
