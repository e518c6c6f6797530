// Remembers the ids of words already encoded: natural text repeats most of its words.
#ifndef MILWRIGHT_TOKENIZER_WORD_CACHE_H_
#define MILWRIGHT_TOKENIZER_WORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace milwright {

/// A hash table with open addressing over two growing arrays, one of key bytes and one of ids. When it reaches its
/// limits it forgets everything. Belongs to one thread at a time.
class WordCache {
 public:
  /// The ids of `word`, valid until the next Add.
  [[nodiscard]] std::optional<std::span<const int32_t>> Find(std::string_view word) const;
  /// Adds a word that is not in the cache. Words that are too long to be seen again are not kept.
  void Add(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Entry {
    size_t hash = 0;
    uint32_t key_begin = 0;
    uint32_t key_size = 0;  ///< 0: free
    uint32_t ids_begin = 0;
    uint32_t ids_size = 0;
  };

  /// The slot of the word, or the free slot where it belongs.
  [[nodiscard]] size_t SlotOf(std::string_view word, size_t hash) const;
  void Grow();

  std::vector<Entry> slots_;
  size_t count_ = 0;
  std::string keys_;
  std::vector<int32_t> ids_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_WORD_CACHE_H_
