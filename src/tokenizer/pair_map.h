// A hash map from pairs of 32-bit numbers to merges, built once and then only read.
#ifndef MILWRIGHT_TOKENIZER_PAIR_MAP_H_
#define MILWRIGHT_TOKENIZER_PAIR_MAP_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace milwright {

/// What a pair of symbols merges into, and how early.
struct Merge {
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

  int32_t rank = kNone;  ///< kNone: the pair does not merge
  int32_t id = 0;
};

/// Open addressing at a load of at most one half.
class PairMap {
 public:
  /// Sets the value of a pair, also if it had one.
  void Set(uint32_t first, uint32_t second, Merge merge) {
    if (count_ * 2 >= slots_.size()) Grow();
    Slot& slot = slots_[SlotOf(first, second)];
    if (!slot.used) ++count_;
    slot = {first, second, merge, true};
  }

  /// The merge of a pair, with rank kNone if there is none.
  [[nodiscard]] Merge Find(uint32_t first, uint32_t second) const {
    if (slots_.empty()) return {};
    return slots_[SlotOf(first, second)].merge;
  }

 private:
  struct Slot {
    uint32_t first = 0;
    uint32_t second = 0;
    Merge merge;
    bool used = false;
  };

  [[nodiscard]] size_t SlotOf(uint32_t first, uint32_t second) const {
    const uint64_t key = uint64_t{first} << 32 | second;
    size_t slot = key * 0x9E3779B97F4A7C15U >> shift_;
    while (slots_[slot].used && (slots_[slot].first != first || slots_[slot].second != second)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  void Grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(old.empty() ? 16 : old.size() * 2);
    shift_ = old.empty() ? 60 : shift_ - 1;
    for (const Slot& slot : old) {
      if (slot.used) slots_[SlotOf(slot.first, slot.second)] = slot;
    }
  }

  std::vector<Slot> slots_;
  int shift_ = 64;  ///< 64 minus the logarithm of the number of slots
  size_t count_ = 0;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_PAIR_MAP_H_
