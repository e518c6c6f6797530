// The predicates are those of evidence/predicates.py, the classification is that of evidence/evaluate.py.
#include "check/hypotheses.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace milwright {
namespace {

using States = std::vector<StateFeatures>;

bool Has(const Observation& o, std::string_view tag) { return o.program.Has(tag); }
bool StatesKnown(const Observation& o) { return !Has(o, "state_count_unknown"); }

// The number at the end of `text` after `prefix`.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view prefix) {
  const size_t at = text.find(prefix);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(at + prefix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> StateCount(const Observation& o) {
  for (const std::string& tag : o.program.tags) {
    if (const auto count = NumberAfter(tag, "state_count_"); count.has_value()) return count;
  }
  if (!StatesKnown(o)) return std::nullopt;
  return static_cast<int64_t>(o.program.states.size());
}

// True when one is true, else unknown when one is unknown.
template <typename Range, typename Predicate>
Truth Any(const Range& range, Predicate predicate) {
  Truth any = false;
  for (const auto& entry : range) {
    const Truth truth = predicate(entry);
    if (truth == Truth(true)) return true;
    if (!truth.has_value()) any = std::nullopt;
  }
  return any;
}
Truth Both(Truth a, Truth b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  return *a && *b;
}
template <typename T>
Truth AtLeast(const std::optional<T>& value, T limit) {
  return value.has_value() ? Truth(*value >= limit) : std::nullopt;
}

// Scopes.

bool IsStateful(const Observation& o) { return !o.program.states.empty(); }
bool UnitIs(const Observation& o, std::initializer_list<std::string_view> units) {
  return std::ranges::find(units, o.environment.compute_units) != units.end();
}
bool AneAllowed(const Observation& o) { return UnitIs(o, {"cpuAndNeuralEngine", "all"}) && !Has(o, "core_ai_stack"); }
bool AnePossible(const Observation& o) {
  return UnitIs(o, {"cpuAndNeuralEngine", "all", "unknown"}) && !Has(o, "core_ai_stack") &&
         o.outcome.stage != "convert" && !Has(o, "converter_bug");
}
bool StatefulAne(const Observation& o) { return IsStateful(o) && AneAllowed(o) && !Has(o, "host_state_copy"); }
bool StatefulMaybeAne(const Observation& o) { return IsStateful(o) && AnePossible(o); }
bool StatefulIphone(const Observation& o) { return StatefulAne(o) && o.environment.device.starts_with("iPhone"); }
bool StatefulCpuRun(const Observation& o) {
  const std::string& stage = o.outcome.stage;
  return IsStateful(o) && UnitIs(o, {"cpuOnly"}) &&
         (stage == "predict" || stage == "numerics" || stage == "performance");
}
bool StatefulConversion(const Observation& o) { return IsStateful(o) && o.outcome.stage == "convert"; }
bool PlannedOnAne(const Observation& o) { return AneAllowed(o) && o.outcome.ane_share.has_value(); }
bool PlacedOnAne(const Observation& o) { return AneAllowed(o) && o.outcome.stage == "placement"; }

// Properties.

template <int64_t kCount>
Truth CountAtLeast(const Observation& o) {
  return AtLeast(StateCount(o), kCount);
}

Truth DifferingShapes(const Observation& o) {
  if (Has(o, "identical_state_shapes") || Has(o, "many_states_identical_shape")) return false;
  const auto count = StateCount(o);
  if (!count.has_value()) return std::nullopt;
  if (*count < 2) return false;
  const States& states = o.program.states;
  if (std::ranges::any_of(states, [](const StateFeatures& state) { return !state.shape.has_value(); })) {
    return std::nullopt;
  }
  // Equal in every known dimension counts as equal: such rows come from one recipe.
  for (size_t a = 0; a < states.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const auto& x = *states[a].shape;
      const auto& y = *states[b].shape;
      if (x.size() != y.size()) return true;
      for (size_t i = 0; i < x.size(); ++i) {
        if (x[i].has_value() && y[i].has_value() && x[i] != y[i]) return true;
      }
    }
  }
  return false;
}

Truth DifferingRoles(const Observation& o) {
  const auto count = StateCount(o);
  if (!count.has_value()) return std::nullopt;
  if (*count < 2) return false;
  std::set<std::string_view> roles;
  for (const StateFeatures& state : o.program.states) roles.insert(state.role);
  if (roles.contains("unknown")) return std::nullopt;
  return roles.size() > 1;
}

Truth InnermostNotMultipleOf32(const Observation& o) {
  if (!StatesKnown(o)) return std::nullopt;
  return Any(o.program.states, [](const StateFeatures& state) -> Truth {
    if (!state.shape.has_value() || state.shape->empty() || !state.shape->back().has_value()) return std::nullopt;
    return *state.shape->back() % 32 != 0;
  });
}

Truth UpdateIs(const StateFeatures& state, std::string_view update) {
  if (state.update == update) return true;
  return state.update == "unknown" ? std::nullopt : Truth(false);
}
Truth AnyUpdateIs(const Observation& o, std::string_view update) {
  if (!StatesKnown(o)) return std::nullopt;
  return Any(o.program.states, [update](const StateFeatures& state) { return UpdateIs(state, update); });
}
Truth ShiftConcat(const Observation& o) { return AnyUpdateIs(o, "shift_concat"); }
Truth MaskBlend(const Observation& o) { return AnyUpdateIs(o, "mask_blend"); }
Truth ShiftConcatOfKv(const Observation& o) {
  if (!StatesKnown(o)) return std::nullopt;
  return Any(o.program.states, [](const StateFeatures& state) -> Truth {
    return state.role == "kv" ? UpdateIs(state, "shift_concat") : Truth(false);
  });
}
Truth TiedEmbeddingAndShift(const Observation& o) {
  const Truth shift = ShiftConcat(o);
  return shift.has_value() ? Truth(*shift && Has(o, "tied_embedding")) : std::nullopt;
}

Truth RankNot4(const States& states) {
  return Any(states, [](const StateFeatures& state) -> Truth {
    if (!state.shape.has_value() || state.shape->empty()) return std::nullopt;
    return state.shape->size() != 4;
  });
}
Truth StateRankNot4(const Observation& o) { return StatesKnown(o) ? RankNot4(o.program.states) : std::nullopt; }
States Caches(const Observation& o) {
  States caches = o.program.states;
  caches.insert(caches.end(), o.program.explicit_caches.begin(), o.program.explicit_caches.end());
  return caches;
}
Truth CacheRankNot4(const Observation& o) { return StatesKnown(o) ? RankNot4(Caches(o)) : std::nullopt; }
Truth ScatterOnCache(const Observation& o) {
  if (Has(o, "scatter_on_cache")) return true;
  return Any(Caches(o), [](const StateFeatures& state) { return UpdateIs(state, "scatter"); });
}

Truth ToolchainBefore9(const Observation& o) {
  const auto major = NumberAfter(o.environment.toolchain, "coremltools ");
  return major.has_value() ? Truth(*major < 9) : std::nullopt;
}
Truth IndexIsInt64(const Observation& o) {
  if (Has(o, "state_index_int64")) return true;
  return Has(o, "state_index_int32") ? Truth(false) : std::nullopt;
}

Truth MultiFunctionWithLongQuery(const Observation& o) {
  const auto& functions = o.program.functions;
  if (functions.size() < 2) return false;
  return Any(functions, [](const FunctionFeatures& function) -> Truth {
    return function.query_length.has_value() ? Truth(*function.query_length > 1) : std::nullopt;
  });
}
Truth MultiFunctionAndMultiState(const Observation& o) {
  return Both(MultiFunctionWithLongQuery(o), CountAtLeast<2>(o));
}
Truth QueryLongerThan32(const Observation& o) {
  Truth longer;
  for (const FunctionFeatures& function : o.program.functions) {
    if (function.query_length.has_value()) longer = longer.value_or(false) || *function.query_length > 32;
  }
  return longer;
}

Truth BadGranularity(const Observation& o) {
  const std::string& format = o.program.weight_format;
  if (format == "unknown" || format.find("unknown_granularity") != std::string::npos) return std::nullopt;
  return format == "lut_per_row_block" || format == "lut_plus_blockwise_scale" || format == "int4_per_block" ||
         format == "int8_per_block";
}
Truth LongContext(const Observation& o) { return AtLeast<int64_t>(o.program.context_length, 32768); }
Truth MoreThan1400(const std::optional<double>& megabytes) {
  return megabytes.has_value() ? Truth(*megabytes > 1400) : std::nullopt;
}
Truth LargePackage(const Observation& o) { return MoreThan1400(o.program.package_mb); }
Truth LargeDecompressed(const Observation& o) { return MoreThan1400(o.program.depalettized_mb); }
Truth FlexibleInputs(const Observation& o) {
  const std::string& flexible = o.program.flexible_inputs;
  return flexible == "unknown" ? std::nullopt : Truth(flexible == "range" || flexible == "enumerated");
}
Truth StateSliceIsOutput(const Observation& o) { return Has(o, "state_slice_is_output") ? Truth(true) : std::nullopt; }
Truth HasState(const Observation& o) { return IsStateful(o); }
Truth SeveralStatesWithSliceUpdate(const Observation& o) {
  const auto count = StateCount(o);
  if (!count.has_value()) return std::nullopt;
  return *count >= 2 && std::ranges::any_of(o.program.states, [](const StateFeatures& state) {
    return state.update == "slice_update_dynamic";
  });
}
Truth ManyLayers(const Observation& o) {
  // Rows of a chunked model tell the layers of the whole model only.
  return Has(o, "multi_chunk_model") ? std::nullopt : AtLeast<int64_t>(o.program.layers, 24);
}
Truth HighPlanShare(const Observation& o) { return *o.outcome.ane_share >= 0.9; }
Truth ReadOnlyState(const Observation& o) {
  if (!StatesKnown(o)) return std::nullopt;
  return std::ranges::any_of(o.program.states, [](const StateFeatures& state) { return state.update == "read_only"; });
}
Truth ActivationQuantization(const Observation& o) { return Has(o, "activation_quant"); }
Truth PassBug(const Observation& o) { return Has(o, "pass_bug"); }
Truth Depthwise1024(const Observation& o) { return Has(o, "depthwise_conv_groups_1024_k3"); }
Truth InGraphArgmax(const Observation& o) { return Has(o, "in_graph_argmax"); }

std::vector<Hypothesis> MakeHypotheses() {
  const std::vector<std::string_view> fail_or_fallback = {"fail", "fallback"};
  const std::vector<std::string_view> fallback = {"fallback"};
  const std::vector<std::string_view> wrong = {"wrong_numerics"};
  return {
      {"state-count-gt1", {"-14", "0x1d"}, StatefulAne, CountAtLeast<2>},
      {"state-count-ge3", {"0x1d"}, StatefulAne, CountAtLeast<3>},
      {"differing-shapes", {"-14", "0x1d"}, StatefulAne, DifferingShapes},
      {"differing-roles", {"0x1d"}, StatefulAne, DifferingRoles},
      {"innermost-not-mult32", {"0x1d", "ane_error_unspecified"}, StatefulAne, InnermostNotMultipleOf32},
      {"index-dtype-int64", {"-14"}, StatefulAne, IndexIsInt64},
      {.id = "update-shift-concat",
       .codes = {"-14"},
       .scope = StatefulMaybeAne,
       .property = ShiftConcat,
       .passed_plan = true},
      {.id = "update-shift-concat-kv",
       .codes = {"-14"},
       .scope = StatefulMaybeAne,
       .property = ShiftConcatOfKv,
       .passed_plan = true},
      {.id = "update-mask-blend", .codes = {"-14"}, .scope = StatefulAne, .property = MaskBlend, .passed_plan = true},
      {"old-toolchain", {"-14", "14"}, StatefulMaybeAne, ToolchainBefore9},
      {"multifunction-T-gt1-iphone", {"FAILED 11"}, StatefulIphone, MultiFunctionWithLongQuery},
      {"multifunction-T-gt1-multistate-iphone", {"FAILED 11"}, StatefulIphone, MultiFunctionAndMultiState},
      {"query-length-gt32", {"ane_error_unspecified", "FAILED 11"}, StatefulAne, QueryLongerThan32},
      {"rank-ne-4-state", {"-14", "14", "0x1d", "ane_error_unspecified"}, StatefulMaybeAne, StateRankNot4},
      {"rank-ne-4-any-cache",
       {"-14", "14", "0x1d", "ANECCompile FAILED", "ane_error_unspecified"},
       AnePossible,
       CacheRankNot4},
      {"scatter-on-cache", {"ANECCompile FAILED"}, AnePossible, ScatterOnCache},
      {"weight-granularity", {"-14", "14", ""}, AneAllowed, BadGranularity, fail_or_fallback},
      {"context-ge-32768", {"14", "-14"}, StatefulMaybeAne, LongContext},
      {"package-size-gt-1400mb", {}, AneAllowed, LargePackage, fail_or_fallback},
      {"depalettized-size-gt-1400mb", {}, AneAllowed, LargeDecompressed, fail_or_fallback},
      {"flexible-inputs", {}, AnePossible, FlexibleInputs, fail_or_fallback},
      {"state-slice-as-output", {"bad_cast"}, StatefulAne, StateSliceIsOutput},
      {"mlstate-unsupported-on-ane", {"-14", "0x1d"}, AneAllowed, HasState},
      {"tied-embedding-plus-shift", {"-14"}, StatefulMaybeAne, TiedEmbeddingAndShift},
      {"cpu-multistate-slice-update", {""}, StatefulCpuRun, SeveralStatesWithSliceUpdate, wrong, {"ok", "slow"}},
      {"activation-quant-iphone", {"ANECCompile FAILED"}, AneAllowed, ActivationQuantization},
      {"two-writes-one-state-pass-bug", {""}, StatefulConversion, PassBug, wrong, {"ok"}},
      {"too-many-layers-in-one-package",
       {"compiler_daemon_crash", "no_space_left", "ANECCompile FAILED", "jetsam"},
       AneAllowed,
       ManyLayers},
      {"plan-share-predicts-runtime",
       {},
       PlannedOnAne,
       HighPlanShare,
       {"ok", "slow", "wrong_numerics"},
       fail_or_fallback},
      {"depthwise-conv-1024-on-cpu", {}, PlacedOnAne, Depthwise1024, fallback},
      {"argmax-tail-on-cpu", {}, PlacedOnAne, InGraphArgmax, fallback},
      {"state-slice-read-only-suffices", {}, StatefulAne, ReadOnlyState, {"ok", "slow"}, {"fail"}},
  };
}

bool Contains(const std::vector<std::string_view>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

std::span<const Hypothesis> AllHypotheses() {
  static const std::vector<Hypothesis> hypotheses = MakeHypotheses();
  return hypotheses;
}

const Hypothesis* FindHypothesis(std::string_view id) {
  const auto all = AllHypotheses();
  const auto it = std::ranges::find(all, id, &Hypothesis::id);
  return it != all.end() ? &*it : nullptr;
}

Bearing BearingOf(const Hypothesis& hypothesis, const Observation& observation) {
  if (!hypothesis.scope(observation)) return Bearing::kOutOfScope;
  const Outcome& outcome = observation.outcome;
  const bool hit = Contains(hypothesis.predicts, outcome.status) &&
                   (hypothesis.codes.empty() || Contains(hypothesis.codes, outcome.code));
  const bool past_plan =
      hypothesis.passed_plan && outcome.status == "fail" && outcome.stage == "predict" && outcome.code == "0x1d";
  const bool ran = !hit && (Contains(hypothesis.ran, outcome.status) || past_plan);
  if (!hit && !ran) return Bearing::kNeither;
  const Truth property = hypothesis.property(observation);
  if (!property.has_value()) return Bearing::kUndecidable;
  if (*property) {
    if (hit) return Bearing::kSupports;
    const bool weak =
        Has(observation, "ane_residency_unverified") || observation.environment.compute_units == "unknown";
    return weak ? Bearing::kWeakCounterexample : Bearing::kContradicts;
  }
  return hit ? Bearing::kSameOutcomeWithout : Bearing::kConsistentNegative;
}

std::vector<std::string> ObservationsThat(Bearing bearing, const Hypothesis& hypothesis,
                                          std::span<const Observation> observations) {
  std::vector<std::string> ids;
  for (const Observation& observation : observations) {
    if (BearingOf(hypothesis, observation) == bearing) ids.push_back(observation.id);
  }
  return ids;
}

}  // namespace milwright
