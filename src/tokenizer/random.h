// The random numbers of sampling: the same on every machine and in every version.
#ifndef MILWRIGHT_TOKENIZER_RANDOM_H_
#define MILWRIGHT_TOKENIZER_RANDOM_H_

#include <cstdint>

namespace milwright {

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): a counter that steps by
/// the golden ratio, through a mixing function. The state is the counter, so a saved session continues where it was.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t mixed = state_;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBU;
    return mixed ^ mixed >> 31;
  }

  /// Uniform in [0, 1): the upper 53 bits.
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  [[nodiscard]] uint64_t state() const { return state_; }

 private:
  uint64_t state_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_RANDOM_H_
