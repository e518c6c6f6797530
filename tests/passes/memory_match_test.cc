// What two runs remember is compared across layouts: windows that shift against rings, alone, unified and split.
#include "passes/memory_match.h"

#include <cstring>

#include "support/test_util.h"

namespace milwright {
namespace {

constexpr int64_t kWindow = 4;
constexpr int64_t kPosition = 6;  // rows written so far: the window has wrapped

// One slot of shape [2, W, 2]; `row(j)` is the row, counted from the first ever written, that lies at index j.
template <typename RowAt>
std::vector<float> Slot(float base, RowAt row) {
  std::vector<float> values;
  for (int head = 0; head < 2; ++head) {
    for (int64_t j = 0; j < kWindow; ++j) {
      for (int i = 0; i < 2; ++i) {
        values.push_back(base + static_cast<float>(head) * 100 + static_cast<float>(row(j)) * 10 +
                         static_cast<float>(i));
      }
    }
  }
  return values;
}

// The newest row last: rows position - W ... position - 1.
std::vector<float> Shifted(float base) {
  return Slot(base, [](int64_t j) { return kPosition - kWindow + j; });
}

// Row p lies at p mod W.
std::vector<float> Ring(float base) {
  return Slot(base, [](int64_t j) { return (j - kPosition % kWindow + kWindow) % kWindow + kPosition - kWindow; });
}

MemoryCell Cell(const std::vector<std::vector<float>>& slots, bool shifts) {
  Tensor value = *Tensor::Zeros({DataType::kFp32, {static_cast<int64_t>(slots.size()), 2, kWindow, 2}});
  size_t at = 0;
  for (const auto& slot : slots) {
    std::memcpy(value.mutable_bytes().data() + at, slot.data(), slot.size() * sizeof(float));
    at += slot.size() * sizeof(float);
  }
  return {std::move(value), shifts};
}

bool Equal(const Memory& a, const Memory& b) {
  std::vector<std::string> notes;
  const auto differences = CompareMemory(a, b, {}, kPosition, Tolerance{}, notes);
  return !differences.empty() && notes.empty() &&
         std::ranges::all_of(differences, [](const MemoryDifference& d) { return d.difference.passed(); });
}

TEST(CompareMemory, ShiftedWindowsEqualRings) {
  const Memory window = {{"s", Cell({Shifted(1), Shifted(2)}, true)}};
  const Memory ring = {{"s", Cell({Ring(1), Ring(2)}, false)}};
  EXPECT_TRUE(Equal(window, ring));
  EXPECT_TRUE(Equal(ring, window));
}

TEST(CompareMemory, AWindowThatIsNotTurnedIsNoRing) {
  const Memory window = {{"s", Cell({Shifted(1), Shifted(2)}, true)}};
  EXPECT_FALSE(Equal(window, {{"s", Cell({Shifted(1), Ring(3)}, false)}}));
  // Two windows of the same kind are not turned against each other.
  EXPECT_FALSE(Equal({{"s", Cell({Shifted(1)}, false)}}, {{"s", Cell({Ring(1)}, false)}}));
}

TEST(CompareMemory, RingsInOneStateWithOtherSlots) {
  const Memory apart = {{"s0", Cell({Shifted(1)}, true)}, {"s1", Cell({Shifted(2), Shifted(3)}, false)}};
  for (const bool still_shifts : {false, true}) {  // another slot of the unified state may go on shifting
    const Memory unified = {{"kv_cache", Cell({Shifted(2), Shifted(3), Ring(1)}, still_shifts)}};
    EXPECT_TRUE(Equal(apart, unified));
    EXPECT_TRUE(Equal(unified, {{"s0", Cell({Ring(1)}, false)}, {"s1", Cell({Shifted(2), Shifted(3)}, false)}}));
  }
  EXPECT_FALSE(Equal(apart, {{"kv_cache", Cell({Shifted(2), Shifted(3), Ring(4)}, false)}}));
}

TEST(CompareMemory, RingsSplitByLayer) {
  const Memory whole = {{"s", Cell({Shifted(1), Shifted(2)}, true)}};
  EXPECT_TRUE(Equal(whole, {{"a", Cell({Ring(1)}, false)}, {"b", Cell({Ring(2)}, false)}}));
  EXPECT_FALSE(Equal(whole, {{"a", Cell({Ring(1)}, false)}, {"b", Cell({Ring(3)}, false)}}));
}

TEST(CompareMemory, SomeSlotsOfAStateAreRings) {
  const Memory before = {{"s", Cell({Shifted(1), Shifted(2)}, true)}};
  EXPECT_TRUE(Equal(before, {{"s", Cell({Shifted(1), Ring(2)}, true)}}));
  EXPECT_FALSE(Equal(before, {{"s", Cell({Shifted(1), Ring(3)}, true)}}));
}

}  // namespace
}  // namespace milwright
