// Anonymous, zero-filled memory for weights and scratch: aligned to huge pages and advised to use them when it is
// large.
//
// Weights in plain mapped files were seen to decode about three times slower than in anonymous memory on huge pages
// (performance-anchors.md); what is placed here is therefore counted, so that tools can print it.
#ifndef MILWRIGHT_KERNELS_ALIGNED_BUFFER_H_
#define MILWRIGHT_KERNELS_ALIGNED_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "milwright/status.h"

namespace milwright::kernels {

/// Adds up the bytes of the buffers that were given this counter. Safe to share between threads.
class ByteCounter {
 public:
  void Add(int64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  [[nodiscard]] int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_{0};
};

/// Owns a block of anonymous memory, zero-filled and aligned to at least 64 bytes. Blocks of 2 MB and more are aligned
/// to 2 MB and advised with MADV_HUGEPAGE. Movable, not copyable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Reserves `bytes` (0 gives an empty buffer). While it lives, its size is counted in `counter`, which must outlive
  /// it. Error kRuntime when the system refuses.
  static Result<AlignedBuffer> Allocate(size_t bytes, ByteCounter* counter = nullptr);

  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  [[nodiscard]] uint8_t* data() { return data_; }
  [[nodiscard]] const uint8_t* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  /// The buffer as an array of T (as many as fit).
  template <typename T>
  [[nodiscard]] std::span<T> As() {
    return {reinterpret_cast<T*>(data_), size_ / sizeof(T)};
  }

 private:
  void Release();

  uint8_t* data_ = nullptr;  // what the caller sees
  size_t size_ = 0;          // what the caller asked for
  void* mapping_ = nullptr;  // what mmap returned
  size_t mapping_size_ = 0;
  ByteCounter* counter_ = nullptr;
};

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_ALIGNED_BUFFER_H_
