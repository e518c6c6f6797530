// A read-only trie over byte strings, for finding every key that starts at a position of a text.
#ifndef MILWRIGHT_TOKENIZER_BYTE_TRIE_H_
#define MILWRIGHT_TOKENIZER_BYTE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace milwright {

/// Keys with int32 values >= 0. Nodes lie in level order, so the children of a node are one contiguous range: about
/// nine bytes per node, built in time and memory linear in the keys.
class ByteTrie {
 public:
  ByteTrie() = default;
  /// Of equal keys the last wins. Empty keys are left out.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> entries);

  [[nodiscard]] bool empty() const { return labels_.size() <= 1; }

  /// Calls `visit(length, value)` for every key that is a prefix of `text`, shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) visit(i + 1, values_[node]);
    }
  }

  /// The longest key that is a prefix of `text`: {length, value}; length 0 if there is none.
  [[nodiscard]] std::pair<size_t, int32_t> LongestPrefix(std::string_view text) const;

 private:
  /// The child of `node` by `label`; 0 (the root, nobody's child) if there is none.
  [[nodiscard]] uint32_t Child(uint32_t node, unsigned char label) const {
    if (labels_.empty()) return 0;
    if (node == 0) return root_children_[label];
    for (uint32_t child = first_child_[node]; child < first_child_[node + 1]; ++child) {
      if (labels_[child] == label) return child;
    }
    return 0;
  }

  std::vector<uint32_t> first_child_;  ///< the children of n are first_child_[n] .. first_child_[n + 1] - 1
  std::vector<unsigned char> labels_;  ///< the byte that leads to each node
  std::vector<int32_t> values_;        ///< -1: no key ends here
  std::vector<uint32_t> root_children_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_BYTE_TRIE_H_
