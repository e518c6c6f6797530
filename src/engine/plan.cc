#include "engine/plan.h"

#include <algorithm>
#include <cstring>

namespace milwright::engine {

namespace {
constexpr int64_t kAlignment = 64;
}

void UndoLog::Save(std::byte* data, size_t bytes) {
  records_.push_back({data, bytes_.size(), bytes});
  bytes_.insert(bytes_.end(), data, data + bytes);
}

void UndoLog::Restore() {
  for (size_t i = records_.size(); i-- > 0;) {
    std::memcpy(records_[i].data, bytes_.data() + records_[i].offset, records_[i].bytes);
  }
  Clear();
}

Result<std::unique_ptr<Frame>> Plan::MakeFrame(const kernels::Kernels& kernels, kernels::ThreadPool& pool) const {
  auto frame = std::make_unique<Frame>();
  frame->kernels = &kernels;
  frame->pool = &pool;
  MW_ASSIGN_OR_RETURN(frame->arena, kernels::AlignedBuffer::Allocate(static_cast<size_t>(arena_bytes)));
  MW_ASSIGN_OR_RETURN(frame->scratch, kernels::AlignedBuffer::Allocate(static_cast<size_t>(scratch_bytes)));
  frame->bases.resize(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    if (roots[i].memory == Memory::kArena) {
      frame->bases[i] = reinterpret_cast<std::byte*>(frame->arena.data()) + roots[i].offset;
    } else if (roots[i].memory == Memory::kFixed) {
      frame->bases[i] = const_cast<std::byte*>(roots[i].fixed);  // no step writes to a fixed root
    }
  }
  frame->scans.resize(static_cast<size_t>(scans));
  frame->scanned.resize(static_cast<size_t>(scans));
  frame->state_bounds.resize(states.size());
  return frame;
}

int64_t PlaceRoots(std::vector<Root>& roots) {
  // Largest first; each goes to the lowest gap between those placed before that are alive at the same time.
  std::vector<Root*> order;
  for (Root& root : roots) {
    if (root.memory == Memory::kArena) order.push_back(&root);
  }
  std::ranges::stable_sort(order, [](const Root* a, const Root* b) { return a->bytes > b->bytes; });
  int64_t size = 0;
  std::vector<const Root*> placed;
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (Root* root : order) {
    taken.clear();
    for (const Root* other : placed) {
      if (other->last_step >= root->first_step && root->last_step >= other->first_step) {
        taken.emplace_back(other->offset, other->offset + other->bytes);
      }
    }
    std::ranges::sort(taken);
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= root->bytes) break;
      at = std::max(at, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    root->offset = at;
    size = std::max(size, at + root->bytes);
    placed.push_back(root);
  }
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace milwright::engine
