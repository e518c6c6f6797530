#include "kernels/aligned_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace milwright::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20U;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes, ByteCounter* counter) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const bool huge = bytes >= kHugePage;
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return Status(ErrorCode::kRuntime, fmt::format("cannot reserve {} bytes: more than the address space", bytes));
  }
  // mmap aligns to small pages only: reserve one huge page more and start at the first boundary inside.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (bytes + page - 1) / page * page;
  const size_t mapping_size = huge ? rounded + kHugePage : rounded;
  void* mapping = mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return Status(ErrorCode::kRuntime,
                  fmt::format("cannot reserve {} bytes of memory: {}; free memory or use a smaller model", bytes,
                              std::strerror(errno)));
  }
  auto* data = static_cast<uint8_t*>(mapping);
  const size_t beyond = reinterpret_cast<uintptr_t>(mapping) % kHugePage;
  if (huge && beyond != 0) data += kHugePage - beyond;
  buffer.mapping_ = mapping;
  buffer.mapping_size_ = mapping_size;
  buffer.data_ = data;
  buffer.size_ = bytes;
  buffer.counter_ = counter;
  // Advice only: without huge pages everything works, slower.
  if (huge) madvise(buffer.data_, rounded, MADV_HUGEPAGE);
  if (counter != nullptr) counter->Add(static_cast<int64_t>(bytes));
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_size_ = std::exchange(other.mapping_size_, 0);
    counter_ = std::exchange(other.counter_, nullptr);
  }
  return *this;
}

AlignedBuffer::~AlignedBuffer() { Release(); }

void AlignedBuffer::Release() {
  if (mapping_ == nullptr) return;
  munmap(mapping_, mapping_size_);
  if (counter_ != nullptr) counter_->Add(-static_cast<int64_t>(size_));
  mapping_ = nullptr;
}

}  // namespace milwright::kernels
