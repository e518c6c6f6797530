#include "tokenizer/word_cache.h"

#include <functional>

namespace milwright {
namespace {

constexpr size_t kMaxCachedWordBytes = 128;
constexpr size_t kMaxWords = size_t{1} << 16;
constexpr size_t kFirstSlots = 1024;

}  // namespace

size_t WordCache::SlotOf(std::string_view word, size_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].key_size != 0) {
    const Entry& entry = slots_[slot];
    if (entry.hash == hash && std::string_view(keys_).substr(entry.key_begin, entry.key_size) == word) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

std::optional<std::span<const int32_t>> WordCache::Find(std::string_view word) const {
  if (slots_.empty() || word.size() > kMaxCachedWordBytes) return std::nullopt;
  const Entry& entry = slots_[SlotOf(word, std::hash<std::string_view>{}(word))];
  if (entry.key_size == 0) return std::nullopt;
  return std::span<const int32_t>(ids_).subspan(entry.ids_begin, entry.ids_size);
}

void WordCache::Add(std::string_view word, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kMaxCachedWordBytes) return;
  if (count_ >= kMaxWords) *this = WordCache();
  if (count_ * 2 >= slots_.size()) Grow();
  const size_t hash = std::hash<std::string_view>{}(word);
  slots_[SlotOf(word, hash)] = {hash, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(word.size()),
                                static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(ids.size())};
  keys_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++count_;
}

void WordCache::Grow() {
  std::vector<Entry> old = std::move(slots_);
  slots_.assign(old.empty() ? kFirstSlots : old.size() * 2, Entry());
  for (const Entry& entry : old) {
    if (entry.key_size == 0) continue;
    slots_[SlotOf(std::string_view(keys_).substr(entry.key_begin, entry.key_size), entry.hash)] = entry;
  }
}

}  // namespace milwright
