// Input kinds: what a host must pass for each input of a function in a decode run, so that `equal`, `bench` and tests
// can draw inputs that fit each other.
#ifndef MILWRIGHT_ANALYSIS_INPUT_KIND_H_
#define MILWRIGHT_ANALYSIS_INPUT_KIND_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/state_analysis.h"
#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

/// What an input stands for. T rows of a step have the positions p .. p+T-1.
enum class InputKind : uint8_t {
  kFree,              ///< nothing is known: any value
  kPosition,          ///< integer, the first write position p
  kRingPosition,      ///< p mod W
  kPositionIds,       ///< integers, p .. p+T-1
  kUpdateMask,        ///< 1 at the cache rows that the step writes, else 0
  kCausalMask,        ///< additive (or bool): which cache rows each of the T rows may see; column j is position j
  kSlidingMaskLeft,   ///< the same over a ring of W rows: column j is the latest position that is j mod W
  kSlidingMaskRight,  ///< the same over a shifted window: the last column is the newest position
  kTokenId,           ///< integers below the size of the vocabulary
  kRotaryCos,         ///< cosines of the rotary angles of the T positions
  kRotarySin,
  kHidden,  ///< activations
  kCache,   ///< a cache that the host copies back from an output (CachePair)
};

/// "position", "ring-position", ...: the names that --input-kind takes.
std::string_view InputKindName(InputKind kind);
std::optional<InputKind> InputKindFromName(std::string_view name);

/// A kind that the caller states.
struct InputKindChoice {
  InputKind kind = InputKind::kFree;
  std::optional<int64_t> window;            ///< W of a ring position
  std::optional<std::string> cache_output;  ///< what a cache comes back from, where that is not found; "": it stays
};
using InputKindChoices = std::map<std::string, InputKindChoice, std::less<>>;

/// Reads "NAME=KIND", "NAME=ring-position:W", "NAME=cache:OUTPUT" or "NAME=cache:" (a cache that stays as it is) into
/// `choices`. kUsage when it is none of them; the message lists the kinds.
Status AddInputKindChoice(std::string_view text, InputKindChoices& choices);

/// One input with its kind and where its dimensions come from.
struct InputFacts {
  const Value* input = nullptr;
  InputKind kind = InputKind::kFree;
  std::optional<int64_t> window;       ///< ring position: W
  std::optional<size_t> query_axis;    ///< the dimension that holds the T rows
  std::optional<size_t> context_axis;  ///< masks: the dimension that runs over the rows of the cache
  std::optional<int64_t> bound;        ///< integers: values lie below it (rows of the table or of the cache)
  bool own_rows_last = false;     ///< causal mask: the last T columns are the step's own rows, the others the cache
  std::optional<CachePair> pair;  ///< kCache; absent when no output of this function changes it
  bool shifts_rows = false;  ///< kCache given out as new rows: they push the oldest out; else written at p mod length
};

/// The inputs of one function, in order.
struct FunctionInputs {
  std::vector<InputFacts> inputs;
  int64_t query_length = 1;               ///< T; kUnknownDim when shapes leave it open
  std::optional<int64_t> context_length;  ///< p + T may not exceed it; absent when nothing limits the position
};

/// Finds the kind of every tensor input from what the program does with it, then from its name. `choices` win; those
/// that name no input of this function are ignored. kUsage when a stated kind does not fit the input's type, when a
/// ring position's window or a cache's output is neither stated nor visible.
Result<FunctionInputs> FindInputKinds(const Function& function, const InputKindChoices& choices = {});

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_INPUT_KIND_H_
