#include "check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace milwright {
namespace {

constexpr int kNear = 2;               // features in which a neighbour that decides may differ
constexpr size_t kCertainSupport = 2;  // observations that a cause needs to decide alone
constexpr size_t kCertainSources = 2;  // sources that must agree where no cause is known
constexpr double kCertainShare = 0.8;  // of the weight of all near sources
constexpr size_t kShownNeighbours = 3;
constexpr size_t kShownContrary = 2;

// What a program is compared by: a few coarse properties, each a word; "?" when not known. States count as a set, so
// that names and order play no part.
struct Signature {
  std::map<std::string_view, std::string> words;
};

std::string Words(const std::set<std::string>& words) { return fmt::format("{}", fmt::join(words, "+")); }

std::string Word(Truth truth) { return !truth.has_value() ? "?" : *truth ? "yes" : "no"; }

std::string CountWord(const ProgramFeatures& program) {
  if (program.Has("state_count_unknown")) return "?";
  const size_t count = program.states.size();
  return count > 2 ? "several" : std::to_string(count);
}

Signature SignatureOf(const Observation& o) {
  const ProgramFeatures& program = o.program;
  std::set<std::string> roles;
  std::set<std::string> updates;
  std::set<std::string> ranks;
  for (const StateFeatures& state : program.states) {
    roles.insert(state.role == "unknown" ? "?" : state.role);
    updates.insert(state.update == "unknown" ? "?" : state.update);
    ranks.insert(state.shape.has_value() ? std::to_string(state.shape->size()) : "?");
  }
  const auto property = [&o](std::string_view id) { return Word(FindHypothesis(id)->property(o)); };
  const auto sole = [](const std::set<std::string>& words) { return words.contains("?") ? "?" : Words(words); };
  return {{{"state count", CountWord(program)},
           {"roles", sole(roles)},
           {"update forms", sole(updates)},
           {"rank", sole(ranks)},
           {"innermost dimension not a multiple of 32", property("innermost-not-mult32")},
           {"query length above 1 in several functions", property("multifunction-T-gt1-iphone")},
           {"query length above 32", property("query-length-gt32")},
           {"weight granularity that the ANE refuses", property("weight-granularity")},
           {"context from 32768", property("context-ge-32768")},
           {"flexible inputs", property("flexible-inputs")},
           {"scatter", property("scatter-on-cache")},
           {"activation quantization", property("activation-quant-iphone")},
           {"layers from 24", property("too-many-layers-in-one-package")}}};
}

// Differences that are known to be ones; what one side does not say is listed for the roles and forms of states only.
std::vector<std::string> Differences(const Signature& a, const Signature& b) {
  std::vector<std::string> differences;
  for (const auto& [name, word] : a.words) {
    const std::string& other = b.words.at(name);
    if (word == other) continue;
    const bool unknown = word == "?" || other == "?";
    if (!unknown) {
      differences.push_back(fmt::format("{} ({} here, {} there)", name, word, other));
    } else if (name == "roles" || name == "update forms" || name == "rank") {
      differences.push_back(fmt::format("{} ({} here, {} there)", name, word == "?" ? "not known" : word,
                                        other == "?" ? "not known" : other));
    }
  }
  return differences;
}

bool IsSameUnit(const Target& a, const Target& b) { return a.name == b.name || (a.IsAne() && b.IsAne()); }

std::vector<Neighbour> FindNeighbours(const Observation& program, const Target& target,
                                      std::span<const Observation> observations) {
  const Signature signature = SignatureOf(program);
  std::vector<Neighbour> neighbours;
  for (const Observation& candidate : observations) {
    const Target& other = TargetOf(candidate.environment);
    if (candidate.program.Has("core_ai_stack") || candidate.outcome.stage == "convert" ||
        candidate.program.states.empty() != program.program.states.empty() || !IsSameUnit(other, target) ||
        KindOf(candidate.outcome) == VerdictKind::kUnknown) {
      continue;
    }
    std::vector<std::string> differences = Differences(signature, SignatureOf(candidate));
    if (other.name != target.name) {
      differences.push_back(fmt::format("device ({} here, {} there)", target.name, other.name));
    }
    const int distance = static_cast<int>(differences.size());
    neighbours.push_back({&candidate, distance, std::move(differences)});
  }
  std::ranges::stable_sort(neighbours, {}, &Neighbour::distance);
  return neighbours;
}

// A hypothesis that holds for the program, with what the observations say of it.
struct Cause {
  const Hypothesis* hypothesis = nullptr;
  std::vector<const Observation*> supporters;
  std::vector<const Observation*> possible;  // of which it is not known whether it holds
  size_t contradictions = 0;
};

// Hypotheses of what a planner does, of converters and of the absence of failure are not causes of a failure.
bool IsCauseOfFailure(const Hypothesis& hypothesis) {
  return std::ranges::find(hypothesis.predicts, "fail") != hypothesis.predicts.end() ||
         std::ranges::find(hypothesis.predicts, "fallback") != hypothesis.predicts.end();
}

// Every hypothesis on failures that speaks of the program and whose property is known for it.
std::vector<std::pair<Cause, bool>> FindCauses(const Observation& program, std::span<const Observation> observations) {
  std::vector<std::pair<Cause, bool>> causes;
  for (const Hypothesis& hypothesis : AllHypotheses()) {
    if (!IsCauseOfFailure(hypothesis) || !hypothesis.scope(program)) continue;
    const Truth holds = hypothesis.property(program);
    if (!holds.has_value()) continue;
    Cause cause{&hypothesis, {}, {}, 0};
    for (const Observation& observation : observations) {
      const Bearing bearing = BearingOf(hypothesis, observation);
      if (bearing == Bearing::kSupports) cause.supporters.push_back(&observation);
      if (bearing == Bearing::kUndecidable) cause.possible.push_back(&observation);
      if (bearing == Bearing::kContradicts) ++cause.contradictions;
    }
    causes.emplace_back(std::move(cause), *holds);
  }
  return causes;
}

bool Supports(const Cause& cause, const Observation* observation) {
  return std::ranges::find(cause.supporters, observation) != cause.supporters.end();
}

bool AccountsFor(const Cause& cause, const std::vector<const Observation*>& observations) {
  return std::ranges::all_of(observations,
                             [&cause](const Observation* observation) { return Supports(cause, observation); });
}

// Whether a better supported hypothesis that the program does not meet accounts for every observation behind `cause`:
// three states fail in public only where their roles differ too.
bool IsExplainedAway(const Cause& cause, const std::vector<Cause>& lacking) {
  return std::ranges::any_of(lacking, [&cause](const Cause& other) {
    return other.supporters.size() > cause.supporters.size() && AccountsFor(other, cause.supporters);
  });
}

// Whether, of the hypotheses that account for what supports `cause`, more hold for the program than not: where public
// data cannot tell two explanations apart, a program that meets only one of them is an open question.
bool OutweighsRivals(const Cause& cause, const std::vector<Cause>& holding, const std::vector<Cause>& lacking) {
  const auto rivals = [&cause](const Cause& other) { return AccountsFor(other, cause.supporters); };
  return std::ranges::count_if(holding, rivals) > std::ranges::count_if(lacking, rivals);
}

// A failure that has, or may have, a cause which the program lacks says nothing of the program.
bool SpeaksOf(const Neighbour& neighbour, const std::vector<Cause>& lacking) {
  const Observation* observation = neighbour.observation;
  if (KindOf(observation->outcome) == VerdictKind::kRuns) return true;
  return std::ranges::none_of(lacking, [observation](const Cause& cause) {
    return Supports(cause, observation) || std::ranges::find(cause.possible, observation) != cause.possible.end();
  });
}

const Finding* WorstFinding(std::span<const Finding> findings, Severity at_least) {
  const auto worst = std::ranges::max_element(findings, {}, &Finding::severity);
  return worst != findings.end() && worst->severity >= at_least ? &*worst : nullptr;
}

// A rule that demands something of every target: the package does not load anywhere.
const Finding* FormatError(std::span<const Finding> findings) {
  const auto it = std::ranges::find_if(findings, [](const Finding& finding) {
    const Rule* rule = FindRule(finding.id);
    return finding.severity == Severity::kError && rule != nullptr && rule->severity == Severity::kError;
  });
  return it != findings.end() ? &*it : nullptr;
}

void Decide(Verdict& verdict, VerdictKind kind, std::string why) {
  verdict.kind = kind;
  verdict.why = std::move(why);
}

// The kind of outcome that more than half of `observations` had; kUnknown when there is none.
VerdictKind MajorityOf(const std::vector<const Observation*>& observations, bool* unanimous) {
  std::map<VerdictKind, size_t> counts;
  for (const Observation* observation : observations) ++counts[KindOf(observation->outcome)];
  *unanimous = counts.size() == 1;
  for (const auto& [kind, count] : counts) {
    if (2 * count > observations.size()) return kind;
  }
  return VerdictKind::kUnknown;
}

// From the causes that nothing contradicts. A cause that rests on one observation counts only when it is alone.
void JudgeByCauses(Verdict& verdict, std::vector<Cause> causes, const std::vector<Cause>& lacking,
                   const std::vector<Neighbour>& neighbours) {
  for (const Cause& cause : causes) verdict.causes.emplace_back(cause.hypothesis->id);
  std::erase_if(causes, [](const Cause& cause) { return cause.supporters.size() < kCertainSupport; });
  std::set<VerdictKind> kinds;
  size_t support = 0;
  bool decisive = false;
  for (const Cause& cause : causes) {
    bool unanimous = false;
    kinds.insert(MajorityOf(cause.supporters, &unanimous));
    decisive = decisive || (unanimous && OutweighsRivals(cause, causes, lacking));
    support = std::max(support, cause.supporters.size());
  }
  const bool twin_runs = std::ranges::any_of(neighbours, [](const Neighbour& neighbour) {
    return neighbour.distance == 0 && KindOf(neighbour.observation->outcome) == VerdictKind::kRuns;
  });
  const std::string names = fmt::format("{}", fmt::join(verdict.causes, ", "));
  if (kinds.size() == 1 && decisive && !twin_runs) {
    Decide(verdict, *kinds.begin(),
           fmt::format("{}: up to {} observations support that, none contradicts{}", names, support,
                       causes.size() > 1 ? "; they compete as explanations" : ""));
  } else if (twin_runs) {
    Decide(verdict, VerdictKind::kDisputed, names + ": but an observation equal in all features runs");
  } else {
    Decide(verdict, VerdictKind::kDisputed, names + ": the observations behind them are too few or do not agree");
  }
}

// What a row weighs: one without a measurement or a reproducible report behind it counts a quarter.
double StrengthOf(const Observation& observation) {
  return observation.strength == "claimed" || observation.strength == "inferred" ? 0.25 : 1;
}

// From what near programs did. Rows of one source count once: most are one build on several devices. A source weighs
// half as much for every feature in which its nearest row differs.
void JudgeByNeighbours(Verdict& verdict, const std::vector<Neighbour>& neighbours, const std::vector<Cause>& lacking,
                       const Finding* warning) {
  std::map<VerdictKind, double> weights;
  std::map<VerdictKind, std::set<std::string_view>> sources;
  double total = 0;
  for (const Neighbour& neighbour : neighbours) {  // nearest first
    if (neighbour.distance > kNear) break;
    if (!SpeaksOf(neighbour, lacking)) continue;
    const VerdictKind kind = KindOf(neighbour.observation->outcome);
    if (!sources[kind].insert(neighbour.observation->source_url).second) continue;
    const double weight = std::ldexp(StrengthOf(*neighbour.observation), -neighbour.distance);
    weights[kind] += weight;
    total += weight;
  }
  if (weights.empty()) {
    Decide(verdict, VerdictKind::kUnknown, "no observation is near, and no hypothesis that stands applies");
    return;
  }
  const auto best = std::ranges::max_element(weights, {}, [](const auto& entry) { return entry.second; });
  const size_t agreeing = sources[best->first].size();
  if (agreeing < kCertainSources || best->second < kCertainShare * total) {
    Decide(verdict, VerdictKind::kDisputed,
           agreeing < kCertainSources ? "only one source knows a near program" : "near programs differ in outcome");
  } else if (best->first == VerdictKind::kRuns && warning != nullptr) {
    Decide(verdict, VerdictKind::kDisputed,
           fmt::format("near programs run, but {} speaks against it: {}", warning->id, warning->message));
  } else {
    Decide(verdict, best->first, fmt::format("near programs of {} sources agree", agreeing));
  }
}

// The codes of failures like `kind`: of what supports `causes`, else of near programs. Most frequent first.
std::vector<std::string> CodesOf(VerdictKind kind, const std::vector<Cause>& causes,
                                 const std::vector<Neighbour>& neighbours) {
  std::set<const Observation*> rows;
  for (const Cause& cause : causes) rows.insert(cause.supporters.begin(), cause.supporters.end());
  if (rows.empty()) {
    for (const Neighbour& neighbour : neighbours) {
      if (neighbour.distance <= kNear) rows.insert(neighbour.observation);
    }
  }
  std::map<std::string, int> counts;
  for (const Observation* row : rows) {
    if (KindOf(row->outcome) == kind && !row->outcome.code.empty()) ++counts[row->outcome.code];
  }
  std::vector<std::string> codes;
  codes.reserve(counts.size());
  for (const auto& [code, count] : counts) codes.push_back(code);
  std::ranges::stable_sort(codes, [&counts](const auto& a, const auto& b) { return counts[a] > counts[b]; });
  return codes;
}

// The nearest observations of another outcome than what is expected, or than the nearest one where nothing is.
std::vector<Neighbour> ContraryTo(const Verdict& verdict, const std::vector<Neighbour>& neighbours) {
  std::vector<Neighbour> contrary;
  if (neighbours.empty()) return contrary;
  const VerdictKind kind = verdict.IsCertain() ? verdict.kind : KindOf(neighbours.front().observation->outcome);
  for (const Neighbour& neighbour : neighbours) {
    if (contrary.size() == kShownContrary) break;
    if (KindOf(neighbour.observation->outcome) != kind) contrary.push_back(neighbour);
  }
  return contrary;
}

}  // namespace

std::string VerdictText(VerdictKind kind, const Target& target) {
  switch (kind) {
    case VerdictKind::kRuns:
      return target.IsAne() ? "expected to run on ANE" : "expected to run";
    case VerdictKind::kFailsAtLoad:
      return target.IsAne() ? "expected to fail at load (-14…)" : "expected to fail at load";
    case VerdictKind::kFailsAtPredict:
      return target.IsAne() ? "expected to fail at predict (0x1d)" : "expected to fail at predict";
    case VerdictKind::kFallsBack:
      return "expected to fall back";
    case VerdictKind::kDisputed:
      return "disputed";
    case VerdictKind::kUnknown:
      break;
  }
  return "unknown";
}

VerdictKind KindOf(const Outcome& outcome) {
  if (outcome.status == "ok" || outcome.status == "slow" || outcome.status == "wrong_numerics") {
    return VerdictKind::kRuns;
  }
  if (outcome.status == "fallback") return VerdictKind::kFallsBack;
  if (outcome.status != "fail") return VerdictKind::kUnknown;
  if (outcome.stage == "predict" || outcome.stage == "performance" || outcome.stage == "numerics") {
    return VerdictKind::kFailsAtPredict;
  }
  return VerdictKind::kFailsAtLoad;
}

Verdict Judge(const Observation& program, const Target& target, std::span<const Observation> observations,
              std::span<const Finding> findings) {
  Verdict verdict;
  if (!program.program.functions.empty()) verdict.function = program.program.functions.front().name;
  std::vector<Neighbour> neighbours = FindNeighbours(program, target, observations);
  std::vector<Cause> holding;
  std::vector<Cause> lacking;
  for (auto& [cause, holds] : FindCauses(program, observations)) {
    if (holds && cause.contradictions > 0) verdict.dismissed.emplace_back(cause.hypothesis->id);
    if (cause.contradictions > 0 || cause.supporters.empty()) continue;
    (holds ? holding : lacking).push_back(std::move(cause));
  }
  std::erase_if(holding, [&lacking](const Cause& cause) { return IsExplainedAway(cause, lacking); });
  const Finding* error = FormatError(findings);
  if (error != nullptr) {
    Decide(verdict, VerdictKind::kFailsAtLoad, fmt::format("{}: {}", error->id, error->message));
  } else if (!holding.empty()) {
    JudgeByCauses(verdict, holding, lacking, neighbours);
  } else {
    JudgeByNeighbours(verdict, neighbours, lacking, WorstFinding(findings, Severity::kWarning));
  }
  if (error == nullptr && (verdict.kind == VerdictKind::kFailsAtLoad || verdict.kind == VerdictKind::kFailsAtPredict)) {
    verdict.codes = CodesOf(verdict.kind, holding, neighbours);
  }
  verdict.contrary = ContraryTo(verdict, neighbours);
  neighbours.resize(std::min(neighbours.size(), kShownNeighbours));
  verdict.nearest = std::move(neighbours);
  return verdict;
}

std::vector<Verdict> JudgeModel(const ModelSpec& model, const Target& target, std::span<const Observation> observations,
                                std::span<const Finding> findings) {
  std::vector<Verdict> verdicts;
  for (const auto& function : model.program.functions()) {
    Observation program;
    program.program = FeaturesOf(model, *function, AnalyzeStates(*function));
    program.environment = EnvironmentOf(target);
    std::vector<Finding> own;
    std::ranges::copy_if(findings, std::back_inserter(own), [&function](const Finding& finding) {
      return finding.location.function.empty() || finding.location.function == function->name;
    });
    verdicts.push_back(Judge(program, target, observations, own));
  }
  return verdicts;
}

}  // namespace milwright
