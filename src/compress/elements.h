// What the compressors of one tensor share: reading its values in blocks, packing codes, adding up errors.
#ifndef MILWRIGHT_COMPRESS_ELEMENTS_H_
#define MILWRIGHT_COMPRESS_ELEMENTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "compress/compress.h"
#include "kernels/thread_pool.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright::compress {

/// Elements that are worked on at once: their values, codes and errors stay in the first-level cache.
constexpr size_t kBlock = 2048;
/// Elements of a piece, the unit that threads take. Its bounds depend on the tensor alone, and so does every result.
constexpr size_t kPiece = 32 * kBlock;

/// The values of an fp16 or fp32 weight.
class Elements {
 public:
  explicit Elements(const Tensor& weight);
  [[nodiscard]] DataType dtype() const { return dtype_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<const uint16_t> halves() const { return halves_; }  ///< of an fp16 weight
  /// Values from `begin` on as they are.
  void ReadRaw(size_t begin, std::span<float> out) const;
  /// The same with NaN and infinities defined away (compress.h).
  void Read(size_t begin, std::span<float> out) const;

 private:
  DataType dtype_;
  size_t size_;
  std::span<const uint16_t> halves_;
  std::span<const float> floats_;
  void (*half_to_float_)(const uint16_t* in, int64_t n, float* out);
};

/// Adds |w|^2, |w - w'|^2 and the largest |w - w'| of the finite elements from `begin` on.
void AddError(const Elements& weight, size_t begin, std::span<const float> decoded, CompressionError& error);
/// The sum over pieces, in their order.
CompressionError SumOf(const std::vector<CompressionError>& pieces);

/// `value` as `dtype` holds it.
float RoundTo(DataType dtype, double value);
/// A scale as its type holds it; never zero, never infinite.
float RoundScale(DataType dtype, double scale);
float LargestMagnitude(std::span<const float> values);

/// Writes codes of 1, 2, 3, 4, 6 or 8 bits from element `begin` on into an LSB-first bit stream that was zero there.
void PackCodes(std::span<const uint8_t> codes, int bits, size_t begin, std::span<std::byte> stream);
/// A tensor of codes.
Result<Tensor> CodeTensor(const TensorType& type, std::span<const uint8_t> codes);

/// How many groups of `length` elements make a piece: as many as fit, in eights where codes would straddle a byte
/// between two pieces otherwise.
size_t GroupsPerPiece(size_t length, int bits);

/// Calls `work(piece)` for each of `pieces`; threads take the next one as they get free.
template <typename Work>
void ForEachPiece(kernels::ThreadPool& pool, size_t pieces, Work&& work) {
  std::atomic<size_t> next = 0;
  pool.Run([&](int /*thread*/) {
    for (size_t piece = next++; piece < pieces; piece = next++) work(piece);
  });
}

/// The same for work that counts: calls `work(piece, own)` with an Own that a thread makes for all the pieces it takes,
/// then `add(own)` for each Own, one at a time. No more than `most` threads take part, nor Owns exist.
template <typename Own, typename Work, typename Add>
void CountPieces(kernels::ThreadPool& pool, size_t pieces, Work&& work, Add&& add, int most = 64) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  pool.Run([&](int thread) {
    if (thread >= most) return;
    size_t piece = next++;
    if (piece >= pieces) return;
    Own own{};
    for (; piece < pieces; piece = next++) work(piece, own);
    const std::scoped_lock lock(mutex);
    add(own);
  });
}

Result<CompressedTensor> CompressLinear(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options);
Result<CompressedTensor> CompressPalette(const Tensor& weight, const CompressionFormat& format,
                                         const TensorOptions& options);
Result<CompressedTensor> CompressSparse(const Tensor& weight, const CompressionFormat& format,
                                        const TensorOptions& options);

}  // namespace milwright::compress

#endif  // MILWRIGHT_COMPRESS_ELEMENTS_H_
