// The merge loop of byte pair encoding.
#ifndef MILWRIGHT_TOKENIZER_BPE_MERGE_H_
#define MILWRIGHT_TOKENIZER_BPE_MERGE_H_

#include <cstdint>
#include <vector>

#include "tokenizer/pair_map.h"

namespace milwright {

/// Merges adjacent `symbols` in place: always the pair of lowest rank, of those the leftmost, until no pair merges.
/// O(n log n) time and O(n) memory.
void MergeSymbols(const PairMap& merges, std::vector<int32_t>& symbols);

}  // namespace milwright

#endif  // MILWRIGHT_TOKENIZER_BPE_MERGE_H_
