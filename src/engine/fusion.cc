#include "engine/fusion.h"

#include <algorithm>
#include <map>
#include <string>

#include "engine/fusion_patterns.h"
#include "engine/pattern.h"
#include "engine/product.h"

namespace milwright::engine {
namespace {

// Linear operations of the same activation (q, k and v; gate and up) become one, where the first of them stands.
void GroupProducts(Graph& graph) {
  std::map<const GraphValue*, std::vector<size_t>> by_activation;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (ProductChannel(*graph.nodes[i]).has_value()) by_activation[graph.nodes[i]->Arg("x")].push_back(i);
  }
  for (const auto& [x, places] : by_activation) {
    if (places.size() < 2) continue;
    for (size_t begin = 0; begin < places.size(); begin += kMaxProductParts) {
      const size_t end = std::min(places.size(), begin + kMaxProductParts);
      const Node& first = *graph.nodes[places[begin]];
      auto group = Fused(first, "fused_products", static_cast<int>(end - begin));
      group->outputs.clear();
      AddArg(*group, "x", first.Arg("x"));
      group->parameters.push_back({"weights", {}});
      group->numbers.axis = *ProductChannel(first);
      for (size_t i = begin; i < end; ++i) {
        const Node& node = *graph.nodes[places[i]];
        group->parameters[1].arguments.push_back(node.Arg("weight"));
        if (node.Arg("bias") != nullptr) AddArg(*group, "bias" + std::to_string(i - begin), node.Arg("bias"));
        group->outputs.push_back(node.output());
      }
      for (GraphValue* output : group->outputs) output->producer = group.get();
      for (size_t i = begin + 1; i < end; ++i) graph.nodes[places[i]]->outputs.clear();  // pruned: nobody needs it
      graph.nodes[places[begin]] = std::move(group);
    }
  }
  Prune(graph);
}

constexpr FusionEntry kFusions[] = {
    {"fused_blend", MatchBlend, true},
    {"slice_update", MatchSliceAt, true},
    {"fused_attention", MatchGroupedAttention, true},
    {"fused_attention", MatchAttention, false},
    {"fused_rope", MatchRope, false},
    {"fused_gated", MatchGated, false},
    {"fused_rms_norm", MatchRmsNorm, false},
};

}  // namespace

std::span<const FusionEntry> Fusions() { return kFusions; }

void Fuse(Graph& graph, Numerics numerics) {
  for (const FusionEntry& entry : kFusions) {
    if (!entry.exact && numerics == Numerics::kStrict) continue;
    // From the end, so that the longest pattern wins.
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      std::unique_ptr<Node> fused = entry.match(graph, *graph.nodes[i]);
      if (fused == nullptr) continue;
      for (GraphValue* output : fused->outputs) output->producer = fused.get();
      graph.nodes[i] = std::move(fused);
    }
    Prune(graph);
  }
  GroupProducts(graph);
}

}  // namespace milwright::engine
