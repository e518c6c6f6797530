// The patterns of the fusions: each has the type Fusion and an entry in the table of fusion.cc.
#ifndef MILWRIGHT_ENGINE_FUSION_PATTERNS_H_
#define MILWRIGHT_ENGINE_FUSION_PATTERNS_H_

#include <memory>

#include "engine/graph.h"

namespace milwright::engine {

/// RMSNorm in its written-out forms, that of layer_norm over [x, -x] among them.
std::unique_ptr<Node> MatchRmsNorm(Graph&, const Node& root);
/// Rotary embedding: x * cos + rotated halves of x * sin.
std::unique_ptr<Node> MatchRope(Graph&, const Node& root);
/// silu(gate) * up and gelu(gate) * up.
std::unique_ptr<Node> MatchGated(Graph&, const Node& root);
/// Products, scale, mask and softmax written out.
std::unique_ptr<Node> MatchAttention(Graph&, const Node& root);
/// The fused op, with the repetition of its keys and values.
std::unique_ptr<Node> MatchGroupedAttention(Graph&, const Node& root);
/// A mask blend, and the slice update that puts it where its old content came from.
std::unique_ptr<Node> MatchBlend(Graph& graph, const Node& root);
/// A slice update whose bounds are put together from single numbers: it reads them where they are.
std::unique_ptr<Node> MatchSliceAt(Graph& graph, const Node& root);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_FUSION_PATTERNS_H_
