// Structural difference of two models: what was added, removed, moved or changed, by the path of the operation.
#ifndef MILWRIGHT_PASSES_DIFF_H_
#define MILWRIGHT_PASSES_DIFF_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mil/model.h"

namespace milwright {

enum class DiffKind : uint8_t { kAdded, kRemoved, kMoved, kChanged };
/// "added", "removed", "moved", "changed"
std::string_view DiffKindName(DiffKind kind);

/// One thing that differs. `path` is an operation's path ("main/op 17 'x' (slice_update)"), "main/input 'x'",
/// "main/output 'y'", "main/state 's'", or "model".
struct DiffEntry {
  DiffKind kind = DiffKind::kChanged;
  std::string path;
  std::vector<std::string> changes;  ///< kChanged: "opset: iOS17 -> iOS18", "input x: 'a' -> 'b'", "weight weight: ..."
};

/// Operations are matched by name and type, and those left over by their order among ops of equal type and result
/// types (a renaming). Constants count as part of the op that uses them: small ones by content, weights (ten elements
/// or more) by name, type and bytes. Bytes are read only where two weights of equal type lie in different places.
struct ModelDiff {
  std::vector<DiffEntry> entries;
  [[nodiscard]] bool empty() const { return entries.empty(); }
};

ModelDiff DiffPrograms(const Program& a, const Program& b);
/// Also versions, descriptions and metadata.
ModelDiff DiffModels(const ModelSpec& a, const ModelSpec& b);

/// One line for each entry, with "+", "-", ">" (moved) or "~", its changes indented below.
std::string DiffText(const ModelDiff& diff);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_DIFF_H_
