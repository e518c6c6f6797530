// What two runs remember, in states or in caches that a host keeps, compared across layouts.
#ifndef MILWRIGHT_PASSES_MEMORY_MATCH_H_
#define MILWRIGHT_PASSES_MEMORY_MATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exec/steps.h"
#include "milwright/tensor.h"

namespace milwright {

/// One state or cache.
struct MemoryCell {
  Tensor value;
  bool shifts = false;  ///< new rows push the oldest out, so that the newest is always last
};
using Memory = std::map<std::string, MemoryCell, std::less<>>;

struct MemoryDifference {
  std::string name_a;
  std::string name_b;
  Shape shape;  ///< of the part that was compared
  TensorDifference difference;
};

/// Compares `b` with `a` after `position` rows. Cells match by name (through `names` where renamed); those left over by
/// their order among equal types; and those still left over slot by slot, a slot being an index of the first dimension.
/// Where sizes differ, the part that both have is compared. Where one side shifts and the other does not, the windows
/// are rotated, each slot by itself if need be. What finds no counterpart goes to `notes`.
std::vector<MemoryDifference> CompareMemory(const Memory& a, const Memory& b,
                                            const std::map<std::string, std::string>& names, int64_t position,
                                            const Tolerance& tolerance, std::vector<std::string>& notes);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_MEMORY_MATCH_H_
