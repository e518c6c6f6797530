#include "tokenizer/byte_trie.h"

#include <algorithm>

namespace milwright {

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Level by level: a node is the range of sorted keys that share a prefix of `depth` bytes.
  struct Node {
    size_t begin, end, depth;
  };
  std::vector<Node> nodes;
  size_t first_key = 0;
  while (first_key < entries.size() && entries[first_key].first.empty()) ++first_key;
  nodes.push_back({first_key, entries.size(), 0});
  labels_.push_back(0);
  values_.push_back(-1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node node = nodes[n];
    first_child_.push_back(static_cast<uint32_t>(nodes.size()));
    size_t key = node.begin;
    while (key < node.end && entries[key].first.size() == node.depth) values_[n] = entries[key++].second;
    while (key < node.end) {
      const char label = entries[key].first[node.depth];
      size_t end = key + 1;
      while (end < node.end && entries[end].first[node.depth] == label) ++end;
      nodes.push_back({key, end, node.depth + 1});
      labels_.push_back(static_cast<unsigned char>(label));
      values_.push_back(-1);
      key = end;
    }
  }
  first_child_.push_back(static_cast<uint32_t>(nodes.size()));
  root_children_.assign(256, 0);
  for (uint32_t child = first_child_[0]; child < first_child_[1]; ++child) root_children_[labels_[child]] = child;
}

std::pair<size_t, int32_t> ByteTrie::LongestPrefix(std::string_view text) const {
  std::pair<size_t, int32_t> longest{0, -1};
  ForEachPrefix(text, [&](size_t length, int32_t value) { longest = {length, value}; });
  return longest;
}

}  // namespace milwright
