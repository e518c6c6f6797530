// Fusions: groups of operations that one step computes faster, found by pattern whatever the graph style.
#ifndef MILWRIGHT_ENGINE_FUSION_H_
#define MILWRIGHT_ENGINE_FUSION_H_

#include <memory>
#include <span>
#include <string_view>

#include "engine/graph.h"
#include "milwright/engine.h"

namespace milwright::engine {

/// Finds the pattern whose last operation is `node`. Returns the fused node with the outputs of `node`, or null.
/// Operations in between that nobody else needs disappear with the next Prune.
using Fusion = std::unique_ptr<Node> (*)(Graph& graph, const Node& node);

struct FusionEntry {
  std::string_view name;  ///< kind of the fused node
  Fusion match;
  bool exact = false;  ///< rounds as the operations themselves would: also in Numerics::kStrict
};

/// In the order in which they are tried.
std::span<const FusionEntry> Fusions();

/// Applies every fusion that `numerics` allows, and prunes.
void Fuse(Graph& graph, Numerics numerics);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_FUSION_H_
