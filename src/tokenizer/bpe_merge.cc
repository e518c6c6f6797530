#include "tokenizer/bpe_merge.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <queue>

namespace milwright {
namespace {

constexpr size_t kShortWord = 32;  // up to here scanning all pairs is faster than a heap

Merge FindMerge(const PairMap& merges, int32_t left, int32_t right) {
  return merges.Find(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
}

void MergeShortWord(const PairMap& merges, std::vector<int32_t>& symbols) {
  std::array<Merge, kShortWord> candidates;  // candidates[i] merges symbols i and i + 1
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) candidates[i] = FindMerge(merges, symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (candidates[i].rank < candidates[best].rank) best = i;
    }
    if (candidates[best].rank == Merge::kNone) break;
    symbols[best] = candidates[best].id;
    std::move(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(count),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::move(candidates.begin() + best + 1, candidates.begin() + (count - 1), candidates.begin() + best);
    --count;
    if (best > 0) candidates[best - 1] = FindMerge(merges, symbols[best - 1], symbols[best]);
    if (best + 1 < count) candidates[best] = FindMerge(merges, symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

/// A symbol of a long word in a doubly linked list; `id` is -1 once it was merged into its left neighbour.
struct Symbol {
  int32_t id;
  int32_t previous;
  int32_t next;  ///< -1 at the end
};

struct PossibleMerge {
  int32_t rank;
  int32_t position;
  int32_t id;

  /// Later in the queue: higher rank, or the same rank further right.
  bool operator<(const PossibleMerge& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

void MergeLongWord(const PairMap& merges, std::vector<int32_t>& ids) {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols;
  symbols.reserve(ids.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto at = [&](int32_t position) -> Symbol& { return symbols[static_cast<size_t>(position)]; };
  std::vector<PossibleMerge> initial;
  for (int32_t i = 0; i + 1 < count; ++i) {
    const Merge merge = FindMerge(merges, at(i).id, at(i + 1).id);
    if (merge.rank != Merge::kNone) initial.push_back({merge.rank, i, merge.id});
  }
  std::priority_queue<PossibleMerge> queue(std::less<PossibleMerge>(), std::move(initial));
  const auto offer = [&](int32_t position) {
    const int32_t next = at(position).next;
    const Merge merge = FindMerge(merges, at(position).id, at(next).id);
    if (merge.rank != Merge::kNone) queue.push({merge.rank, position, merge.id});
  };
  while (!queue.empty()) {
    const PossibleMerge top = queue.top();
    queue.pop();
    Symbol& left = at(top.position);
    if (left.id < 0 || left.next < 0) continue;
    Symbol& right = at(left.next);
    // The pair may have changed since it was queued; then its new form is queued too.
    const Merge merge = FindMerge(merges, left.id, right.id);
    if (merge.rank != top.rank || merge.id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (left.previous >= 0) offer(left.previous);
    if (left.next >= 0) offer(top.position);
  }
  size_t kept = 0;
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids[kept++] = symbol.id;
  }
  ids.resize(kept);
}

}  // namespace

void MergeSymbols(const PairMap& merges, std::vector<int32_t>& symbols) {
  if (symbols.size() <= kShortWord) {
    MergeShortWord(merges, symbols);
  } else {
    MergeLongWord(merges, symbols);
  }
}

}  // namespace milwright
