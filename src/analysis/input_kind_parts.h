// The parts of FindInputKinds, each in a file of its own (input_kind_*.cc).
#ifndef MILWRIGHT_ANALYSIS_INPUT_KIND_PARTS_H_
#define MILWRIGHT_ANALYSIS_INPUT_KIND_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "analysis/input_kind.h"
#include "analysis/state_analysis.h"
#include "mil/program.h"

namespace milwright {

// ---- shared by the parts ----

using OpNames = std::unordered_set<std::string_view>;

inline bool IsMask(InputKind kind) {
  return kind == InputKind::kCausalMask || kind == InputKind::kSlidingMaskLeft || kind == InputKind::kSlidingMaskRight;
}
inline bool IsRotary(InputKind kind) { return kind == InputKind::kRotaryCos || kind == InputKind::kRotarySin; }

/// Whether new rows come behind the others, which move up and push the oldest out.
inline bool Shifts(UpdateForm form) { return form == UpdateForm::kShiftConcat || form == UpdateForm::kShiftMatmul; }

/// Whether the name holds one of `parts`; case does not count.
bool NameHas(const Value& value, std::initializer_list<std::string_view> parts);

/// The size of an axis, counted from the back when negative; nothing when it is open or there is no such axis.
std::optional<int64_t> KnownSize(const Shape& shape, int64_t axis);

inline void Limit(std::optional<int64_t>& bound, std::optional<int64_t> by) {
  if (by.has_value()) bound = std::min(bound.value_or(*by), *by);
}

// ---- integers: positions, rings, tokens (input_kind_index.cc) ----

/// What an index goes into, seen through arithmetic on indices.
struct IndexUse {
  bool writes = false;                ///< where a cache is written
  std::optional<int64_t> write_size;  ///< fewest rows of such a cache
  bool compared = false;              ///< with a range of positions, or made one-hot
  std::set<const Value*> tables;      ///< constants that it picks rows of
  std::optional<int64_t> table_size;  ///< fewest rows among them
  std::optional<int64_t> ring_size;   ///< the constant of a `mod` behind it
};
using IndexUses = std::map<const Value*, IndexUse>;

/// Follows `input` to all its uses.
IndexUse FindIndexUse(const Value& input);
/// Finds kind and bound of an integer input.
void FindIndexKind(const IndexUse& use, InputFacts& facts);
/// Of several write positions, those of shorter caches count modulo their length.
void SeparateRings(const IndexUses& uses, FunctionInputs& inputs);

// ---- floats and bools: masks, rotary tables, hidden states (input_kind_mask.cc) ----

/// What a float or bool input goes into, seen through what is done to masks.
struct MaskUse {
  std::vector<const Operation*> scores;  ///< where it joins the scores of an attention, the fused op included
  bool multiplies = false;
  bool complemented = false;  ///< 1 - m
  bool rotated = false;       ///< its columns are moved by computed amounts on the way
};
using MaskUses = std::map<const Value*, MaskUse>;

/// Follows `input` to all its uses.
MaskUse FindMaskUse(const Value& input);
/// Finds the kind of a float or bool input; a mask over the cache is a causal one at first.
void FindMaskKind(const MaskUse& use, InputFacts& facts);
/// Tells masks over rings and shifted windows from those over all positions, and finds where the rows of a step lie
/// behind those of the cache, by the caches that the masked scores are computed from. `uses` holds every causal mask.
void SeparateSlidingMasks(const FunctionStates& states, const MaskUses& uses, FunctionInputs& inputs);

// ---- dimensions (input_kind_shape.cc) ----

/// Finds which dimensions of an input hold the rows of the step and the rows of the cache.
void FindAxes(InputFacts& facts);
/// Finds T and the context length, once all kinds and axes are known.
void FindLengths(FunctionInputs& inputs);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_INPUT_KIND_PARTS_H_
