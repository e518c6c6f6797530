// A vector of few elements that lie in the object itself.
//
// Between two products of a decode step everything small has left the caches, so a step that follows pointers to its
// shapes waits for memory at each of them; with shapes inside, one look at the step brings them all.
#ifndef MILWRIGHT_ENGINE_INLINE_VECTOR_H_
#define MILWRIGHT_ENGINE_INLINE_VECTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "milwright/type.h"

namespace milwright::engine {

/// As std::vector, for at most `kCapacity` elements of a cheap default. Who adds elements makes
/// sure that they fit: more would end the program.
template <typename T, size_t kCapacity>
class InlineVector {
 public:
  using value_type = T;
  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) : InlineVector(values.begin(), values.end()) {}
  InlineVector(const std::vector<T>& values) : InlineVector(values.begin(), values.end()) {}  // NOLINT: as a shape is
  explicit InlineVector(size_t size, const T& value = T()) { resize(size, value); }
  template <std::input_iterator Iterator>
  InlineVector(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  operator std::vector<T>() const { return std::vector<T>(begin(), end()); }  // NOLINT: ... and back

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* begin() { return values_.data(); }
  [[nodiscard]] T* end() { return values_.data() + size_; }
  [[nodiscard]] const T* begin() const { return values_.data(); }
  [[nodiscard]] const T* end() const { return values_.data() + size_; }
  [[nodiscard]] T& operator[](size_t i) { return values_[i]; }
  [[nodiscard]] const T& operator[](size_t i) const { return values_[i]; }
  [[nodiscard]] T& front() { return values_[0]; }
  [[nodiscard]] const T& front() const { return values_[0]; }
  [[nodiscard]] T& back() { return values_[size_ - 1]; }
  [[nodiscard]] const T& back() const { return values_[size_ - 1]; }

  void push_back(T value) {
    if (size_ >= kCapacity) std::abort();
    values_[size_++] = std::move(value);
  }
  void resize(size_t size, const T& value = T()) {
    if (size > kCapacity) std::abort();
    for (size_t i = size_; i < size; ++i) values_[i] = value;
    size_ = static_cast<uint32_t>(size);
  }
  void clear() { size_ = 0; }
  void erase(const T* at) {
    std::move(values_.begin() + (at - begin()) + 1, values_.begin() + size_, values_.begin() + (at - begin()));
    --size_;
  }
  template <std::input_iterator Iterator>
  void insert(const T* at, Iterator first, Iterator last) {
    const auto place = at - begin();
    const std::vector<T> tail(begin() + place, end());
    size_ = static_cast<uint32_t>(place);
    for (; first != last; ++first) push_back(*first);
    for (const T& value : tail) push_back(value);
  }
  void insert(const T* at, std::initializer_list<T> values) { insert(at, values.begin(), values.end()); }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<T, kCapacity> values_{};
  uint32_t size_ = 0;
};

/// Values of more axes are not planned.
inline constexpr size_t kMaxAxes = 12;
/// Sizes or strides, one for each axis.
using Dims = InlineVector<int64_t, kMaxAxes>;

inline bool operator==(const Dims& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_INLINE_VECTOR_H_
