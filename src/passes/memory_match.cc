#include "passes/memory_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace milwright {
namespace {

size_t ElementBytes(const Tensor& tensor) { return static_cast<size_t>(BitWidth(tensor.dtype())) / 8; }

// The leading part of `tensor` of shape `part` (sub-byte types have no states).
Tensor LeadingPart(const Tensor& tensor, const Shape& part) {
  if (part == tensor.shape()) return tensor;
  Tensor result = *Tensor::Zeros({tensor.dtype(), part});
  const size_t width = ElementBytes(tensor);
  const auto source = tensor.bytes();
  const auto target = result.mutable_bytes();
  Shape index(part.size(), 0);
  const size_t row = static_cast<size_t>(part.back()) * width;
  for (size_t at = 0; at < target.size() && row > 0; at += row) {
    int64_t from = 0;
    for (size_t i = 0; i < part.size(); ++i) from = from * tensor.shape()[i] + index[i];
    std::memcpy(target.data() + at, source.data() + static_cast<size_t>(from) * width, row);
    for (size_t i = part.size() - 1; i-- > 0;) {
      if (++index[i] < part[i]) break;
      index[i] = 0;
    }
  }
  return result;
}

// What lies at index j along `axis` goes to index (j + by) mod size.
Tensor Rotated(const Tensor& tensor, size_t axis, int64_t by) {
  Tensor result = tensor;
  const int64_t size = tensor.shape()[axis];
  size_t inner = ElementBytes(tensor);
  for (size_t i = axis + 1; i < tensor.shape().size(); ++i) inner *= static_cast<size_t>(tensor.shape()[i]);
  const auto source = tensor.bytes();
  const auto target = result.mutable_bytes();
  if (inner == 0) return result;
  for (size_t row = 0; row < source.size() / inner; ++row) {
    const auto j = static_cast<int64_t>(row) % size;
    const auto to = static_cast<int64_t>(row) - j + ((j + by) % size + size) % size;
    std::memcpy(target.data() + static_cast<size_t>(to) * inner, source.data() + row * inner, inner);
  }
  return result;
}

// The first row of Rotated(tensor, axis, by): its elements along the last axis.
Tensor FirstRow(const Tensor& tensor, size_t axis, int64_t by) {
  const Shape& shape = tensor.shape();
  const int64_t width = shape.back();
  Tensor row = *Tensor::Zeros({tensor.dtype(), {width}});
  const auto from_start = [](int64_t at, int64_t size) { return size == 0 ? 0 : (at % size + size) % size; };
  int64_t begin = 0;
  if (axis + 1 < shape.size()) {
    begin = from_start(-by, shape[axis]);
    for (size_t i = axis + 1; i < shape.size(); ++i) begin *= shape[i];
  }
  std::memcpy(row.mutable_bytes().data(), tensor.bytes().data() + static_cast<size_t>(begin) * ElementBytes(tensor),
              row.bytes().size());
  return axis + 1 < shape.size() ? row : Rotated(row, 0, by);
}

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// The part that tensors of these shapes have in common; nothing when they have other ranks.
std::optional<Shape> CommonPart(const Shape& a, const Shape& b) {
  if (a.size() != b.size() || a.empty()) return std::nullopt;
  Shape part(a.size());
  for (size_t i = 0; i < a.size(); ++i) part[i] = std::min(a[i], b[i]);
  return part;
}

TensorDifference CompareParts(const Tensor& b, const Tensor& a, const Shape& part, const Tolerance& tolerance) {
  return CompareTensors(LeadingPart(b, part), LeadingPart(a, part), tolerance);
}

// Slot `i`: what lies at index `i` of the first dimension.
Tensor SlotAt(const Tensor& tensor, int64_t i) {
  Tensor slot = *Tensor::Zeros({tensor.dtype(), {tensor.shape().begin() + 1, tensor.shape().end()}});
  const auto target = slot.mutable_bytes();
  std::memcpy(target.data(), tensor.bytes().data() + static_cast<size_t>(i) * target.size(), target.size());
  return slot;
}

class Matcher {
 public:
  Matcher(const Memory& a, const Memory& b, int64_t position, const Tolerance& tolerance,
          std::vector<std::string>& notes)
      : a_(a), b_(b), position_(position), tolerance_(tolerance), notes_(notes) {
    for (const auto& [name, cell] : a) left_a_.insert(name);
    for (const auto& [name, cell] : b) left_b_.insert(name);
  }

  std::vector<MemoryDifference> Run(const std::map<std::string, std::string>& names) {
    for (const auto& [name, cell] : a_) {
      const auto renamed = names.find(name);
      const std::string& other = renamed != names.end() ? renamed->second : name;
      const auto twin = b_.find(other);
      if (twin != b_.end() && left_b_.contains(other)) CompareCells(name, cell, other, twin->second);
    }
    ByOrder();
    if (!left_a_.empty() && !left_b_.empty()) BySlots();
    for (const std::string& name : left_a_) {
      notes_.push_back(fmt::format("'{}' of A has no counterpart in B; its content is not compared", name));
    }
    for (const std::string& name : left_b_) {
      notes_.push_back(fmt::format("'{}' of B has no counterpart in A; its content is not compared", name));
    }
    return std::move(differences_);
  }

 private:
  struct Slot {
    const std::string* name;
    MemoryCell content;
  };

  // `a` as `b` should hold it: windows that one side shifts and the other does not are turned along the axis along
  // which they then agree.
  [[nodiscard]] Tensor Fitted(const MemoryCell& a, const MemoryCell& b) const {
    const auto part = CommonPart(a.value.shape(), b.value.shape());
    if (!part.has_value() || CompareParts(b.value, a.value, *part, tolerance_).passed()) return a.value;
    // A ring holds at j what a shifted window holds at (j - position) mod W. A cell that shifts may have slots that do
    // not, so of two that shift either may be the ring.
    for (const int64_t by : {position_, -position_}) {
      if (!(by > 0 ? a.shifts : b.shifts)) continue;
      for (size_t axis = 0; axis < part->size(); ++axis) {
        if (a.value.shape()[axis] != b.value.shape()[axis]) continue;  // padded: not the axis of the rows
        // Most differ in their first row already.
        const Shape width = {part->back()};
        if (!CompareParts(FirstRow(b.value, axis, 0), FirstRow(a.value, axis, by), width, tolerance_).passed())
          continue;
        Tensor turned = Rotated(a.value, axis, by);
        if (CompareParts(b.value, turned, *part, tolerance_).passed()) return turned;
      }
    }
    return a.value;
  }

  // The same for each slot by itself.
  [[nodiscard]] Tensor FittedBySlot(const MemoryCell& a, const MemoryCell& b) const {
    Tensor result = a.value;
    const int64_t count = a.value.shape()[0];
    const size_t bytes = count == 0 ? 0 : result.bytes().size() / static_cast<size_t>(count);
    for (int64_t i = 0; i < count && bytes > 0; ++i) {
      const Tensor slot = Fitted({SlotAt(a.value, i), a.shifts}, {SlotAt(b.value, i), b.shifts});
      std::memcpy(result.mutable_bytes().data() + static_cast<size_t>(i) * bytes, slot.bytes().data(), bytes);
    }
    return result;
  }

  void CompareCells(const std::string& name_a, const MemoryCell& a, const std::string& name_b, const MemoryCell& b) {
    const auto part = CommonPart(a.value.shape(), b.value.shape());
    if (!part.has_value()) return;  // other ranks: perhaps slot by slot
    MemoryDifference entry{name_a, name_b, *part, {}};
    entry.difference = CompareParts(b.value, a.shifts != b.shifts ? Fitted(a, b) : a.value, *part, tolerance_);
    const bool slots = part->size() > 1 && (a.shifts || b.shifts) && a.value.shape()[0] == b.value.shape()[0];
    if (!entry.difference.passed() && slots) {
      entry.difference = CompareParts(b.value, FittedBySlot(a, b), *part, tolerance_);
    }
    differences_.push_back(std::move(entry));
    left_a_.erase(name_a);
    left_b_.erase(name_b);
  }

  // Equal types in equal order: a renaming.
  void ByOrder() {
    if (left_a_.size() != left_b_.size()) return;
    std::vector<std::pair<std::string, std::string>> pairs;
    auto it = left_b_.begin();
    for (const std::string& name : left_a_) {
      if (a_.find(name)->second.value.type() != b_.find(*it)->second.value.type()) return;
      pairs.emplace_back(name, *it++);
    }
    for (const auto& [name_a, name_b] : pairs) {
      notes_.push_back(fmt::format("'{}' of A is taken for '{}' of B", name_a, name_b));
      CompareCells(name_a, a_.find(name_a)->second, name_b, b_.find(name_b)->second);
    }
  }

  static std::vector<Slot> Slots(const Memory& memory, const std::set<std::string>& names) {
    std::vector<Slot> slots;
    for (const std::string& name : names) {
      const MemoryCell& cell = memory.find(name)->second;
      const Tensor& tensor = cell.value;
      if (tensor.rank() < 2 || tensor.size() == 0 || BitWidth(tensor.dtype()) < 8) continue;
      for (int64_t i = 0; i < tensor.shape()[0]; ++i) {
        const Tensor slot = SlotAt(tensor, i);
        auto value =
            Tensor::FromBytes({slot.dtype(), WithoutOnes(slot.shape())}, {slot.bytes().begin(), slot.bytes().end()});
        if (value.ok()) slots.push_back({&*names.find(name), {*std::move(value), cell.shifts}});
      }
    }
    return slots;
  }

  // Whether the slots agree. Of two that are kept in the same order most differ in their first row already.
  [[nodiscard]] bool Agree(const MemoryCell& b, const MemoryCell& a) const {
    const auto part = CommonPart(a.value.shape(), b.value.shape());
    if (!part.has_value()) return false;
    Shape row(part->size(), 1);
    row.back() = part->back();
    if (!a.shifts && !b.shifts && !CompareParts(b.value, a.value, row, tolerance_).passed()) return false;
    return CompareParts(b.value, Fitted(a, b), *part, tolerance_).passed();
  }

  void BySlots() {
    const std::vector<Slot> slots_a = Slots(a_, left_a_);
    std::vector<Slot> slots_b = Slots(b_, left_b_);
    if (slots_a.empty() || slots_a.size() > slots_b.size()) return;
    std::vector<const Slot*> alone;
    std::set<std::string> used_a;
    std::set<std::string> used_b;
    const auto report = [&](const Slot& a, const Slot& b) {
      const auto part = CommonPart(a.content.value.shape(), b.content.value.shape());
      MemoryDifference entry{*a.name, *b.name, part.value_or(Shape{}), {}};
      if (part.has_value()) {
        entry.difference = CompareParts(b.content.value, Fitted(a.content, b.content), *part, tolerance_);
      } else {
        entry.difference.failures = -1;
        entry.difference.note = fmt::format("slots of {} instead of {}", TypeToString(b.content.value.type()),
                                            TypeToString(a.content.value.type()));
      }
      used_a.insert(*a.name);
      used_b.insert(*b.name);
      differences_.push_back(std::move(entry));
    };
    for (const Slot& slot : slots_a) {
      const auto twin = std::ranges::find_if(slots_b, [&](const Slot& b) { return Agree(b.content, slot.content); });
      if (twin == slots_b.end()) {
        alone.push_back(&slot);
        continue;
      }
      report(slot, *twin);
      slots_b.erase(twin);
    }
    for (const Slot* slot : alone) {
      report(*slot, slots_b.front());
      slots_b.erase(slots_b.begin());
    }
    for (const std::string& name : used_a) left_a_.erase(name);
    for (const std::string& name : used_b) left_b_.erase(name);
  }

  const Memory& a_;
  const Memory& b_;
  int64_t position_;
  const Tolerance& tolerance_;
  std::vector<std::string>& notes_;
  std::set<std::string> left_a_;
  std::set<std::string> left_b_;
  std::vector<MemoryDifference> differences_;
};

}  // namespace

std::vector<MemoryDifference> CompareMemory(const Memory& a, const Memory& b,
                                            const std::map<std::string, std::string>& names, int64_t position,
                                            const Tolerance& tolerance, std::vector<std::string>& notes) {
  return Matcher(a, b, position, tolerance, notes).Run(names);
}

}  // namespace milwright
