// Features: what the evidence ledger records of a program, taken from an observation or computed from a package.
#ifndef MILWRIGHT_CHECK_FEATURES_H_
#define MILWRIGHT_CHECK_FEATURES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/state_analysis.h"
#include "mil/model.h"

namespace milwright {

/// A shape of which some or all is unknown.
using PartialShape = std::optional<std::vector<std::optional<int64_t>>>;

/// A state, or a cache that the host carries between steps. Words are those of the ledger (data/evidence).
struct StateFeatures {
  std::string name;
  PartialShape shape;
  std::string dtype;
  std::string role;    ///< kv, conv, recurrent, accumulator, weights, unknown
  std::string update;  ///< slice_update_dynamic, mask_blend, shift_concat, ..., unknown
};

struct FunctionFeatures {
  std::string name;
  std::optional<int64_t> query_length;
};

struct ProgramFeatures {
  std::string opset;
  std::vector<FunctionFeatures> functions;
  std::vector<StateFeatures> states;
  std::vector<StateFeatures> explicit_caches;
  std::string flexible_inputs;  ///< none, range, enumerated, unknown
  std::string weight_format;    ///< as WeightFormat names them
  std::optional<int64_t> layers;
  std::optional<int64_t> context_length;
  std::vector<std::string> tags;          ///< "in_graph_argmax", "state_slice_is_output", ...: the ledger's `other`
  std::optional<double> package_mb;       ///< weights as stored
  std::optional<double> depalettized_mb;  ///< weights decompressed

  [[nodiscard]] bool Has(std::string_view tag) const;
};

/// The features of `function` of a package: its states and caches, with what the whole package says of functions and
/// weights. `states` is the analysis of that function.
ProgramFeatures FeaturesOf(const ModelSpec& model, const Function& function, const FunctionStates& states);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_FEATURES_H_
