// Equality by execution: both packages run the same decode from zero states, and everything they give is compared.
#ifndef MILWRIGHT_PASSES_EQUAL_H_
#define MILWRIGHT_PASSES_EQUAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/input_kind.h"
#include "exec/steps.h"
#include "milwright/model.h"

namespace milwright {

struct CompareOptions {
  int steps = 16;       ///< of every function, and of every sequence of functions
  Tolerance tolerance;  ///< 0, 0: bit exact
  uint64_t seed = 0;
  InputKindChoices kinds;
  int64_t query_length = 0;                      ///< of functions whose shapes leave it open
  std::map<std::string, std::string> functions;  ///< A's function to B's; empty: by name, then by interface
  std::map<std::string, std::string> names;      ///< A's feature to B's, where renamed
};

/// One output, or one state or host-kept cache, over all steps.
struct ComparedValue {
  std::string function;  ///< A's
  bool is_memory = false;
  std::string name_a;
  std::string name_b;
  int64_t compared = 0;  ///< how many tensors were compared
  bool all_nan = true;   ///< nothing but NaN was seen: the comparison says little
  TensorDifference worst;
  Shape worst_shape;
  size_t worst_step = 0;
};

struct CompareReport {
  std::vector<ComparedValue> values;
  /// What A has and B lacks or fails at; each makes the packages unequal.
  std::vector<std::string> faults;
  /// What could not be compared, or was matched other than by name.
  std::vector<std::string> notes;
  size_t steps = 0;  ///< run in all

  [[nodiscard]] bool equal() const;
  /// The value that is furthest outside its tolerance, or else has the largest error; null when none was compared.
  [[nodiscard]] const ComparedValue* worst() const;
};

/// Runs every function of `a` and its counterpart in `b` for `options.steps` steps, and where functions share memory,
/// sequences from the longest query length to the shortest; when the context is full, both start over with other
/// inputs. Inputs are drawn by kind (InputSource), the same for both sides.
///
/// Features match by name, else by position among those of equal type and kind. Each side keeps its caches in its own
/// way, in states or through the host; their contents are compared at the end of a run: by name, by position among
/// equal types, slot by slot where one side unifies what the other keeps apart (in any order, and the common part where
/// one side is padded), and rotated by the position where one side shifts and the other writes a ring.
///
/// kUsage: bad options; kRuntime: `a` itself does not run on its inputs. That `b` fails is a fault in the report.
Result<CompareReport> CompareModels(const Model& a, const Model& b, const CompareOptions& options = {});

/// "output 'logits' of 'main', step 3: [0, 0, 17] is 1.25, expected 1.5 (12 elements differ)".
std::string DescribeDifference(const ComparedValue& value);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_EQUAL_H_
