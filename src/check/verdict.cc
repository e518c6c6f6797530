#include "check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace milwright {
namespace {

constexpr int kNear = 2;               // features in which a neighbour that decides may differ
constexpr size_t kCertainSupport = 2;  // observations that a cause needs to decide alone
constexpr size_t kShownNeighbours = 3;

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
           {"innermost dimension", property("innermost-not-mult32")},
           {"query length in several functions", property("multifunction-T-gt1-iphone")},
           {"query length above 32", property("query-length-gt32")},
           {"weight granularity", property("weight-granularity")},
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
      differences.emplace_back(name);
    } else if (name == "roles" || name == "update forms" || name == "rank") {
      differences.push_back(fmt::format("{} (not known)", name));
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
    if (other.name != target.name) differences.emplace_back("device");
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
  size_t contradictions = 0;
};

// Hypotheses of what a planner does, of converters and of the absence of failure are not causes of a failure.
bool IsCauseOfFailure(const Hypothesis& hypothesis) {
  return std::ranges::find(hypothesis.predicts, "fail") != hypothesis.predicts.end() ||
         std::ranges::find(hypothesis.predicts, "fallback") != hypothesis.predicts.end();
}

std::vector<Cause> FindCauses(const Observation& program, std::span<const Observation> observations) {
  std::vector<Cause> causes;
  for (const Hypothesis& hypothesis : AllHypotheses()) {
    if (!IsCauseOfFailure(hypothesis) || !hypothesis.scope(program)) continue;
    if (hypothesis.property(program) != Truth(true)) continue;
    Cause cause{&hypothesis, {}, 0};
    for (const Observation& observation : observations) {
      const Bearing bearing = BearingOf(hypothesis, observation);
      if (bearing == Bearing::kSupports) cause.supporters.push_back(&observation);
      if (bearing == Bearing::kContradicts) ++cause.contradictions;
    }
    causes.push_back(std::move(cause));
  }
  return causes;
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

// From the causes that nothing contradicts.
void JudgeByCauses(Verdict& verdict, const std::vector<const Cause*>& causes, const std::vector<Neighbour>& near) {
  std::set<VerdictKind> kinds;
  std::set<const Observation*> supporters;
  for (const Cause* cause : causes) {
    for (const Observation* supporter : cause->supporters) {
      kinds.insert(KindOf(supporter->outcome));
      supporters.insert(supporter);
    }
  }
  kinds.erase(VerdictKind::kUnknown);
  const bool twin_runs = std::ranges::any_of(near, [](const Neighbour& neighbour) {
    return neighbour.distance == 0 && KindOf(neighbour.observation->outcome) == VerdictKind::kRuns;
  });
  const std::string names = fmt::format("{}", fmt::join(verdict.causes, ", "));
  const std::string_view competing = causes.size() > 1 ? "; they compete as explanations" : "";
  if (kinds.size() == 1 && supporters.size() >= kCertainSupport && !twin_runs) {
    Decide(
        verdict, *kinds.begin(),
        fmt::format("{} hold; {} observations support that, none contradicts{}", names, supporters.size(), competing));
    return;
  }
  Decide(verdict, VerdictKind::kDisputed,
         twin_runs ? fmt::format("{} hold, but an observation equal in all features runs", names)
                   : fmt::format("{} hold, on {} observations that do not agree or do not suffice", names,
                                 supporters.size()));
}

// From what near programs did.
void JudgeByNeighbours(Verdict& verdict, const std::vector<Neighbour>& neighbours, const Finding* warning) {
  std::set<VerdictKind> kinds;
  size_t count = 0;
  for (const Neighbour& neighbour : neighbours) {
    if (neighbour.distance > kNear) break;
    kinds.insert(KindOf(neighbour.observation->outcome));
    ++count;
  }
  if (kinds.empty()) {
    Decide(verdict, VerdictKind::kUnknown, "no observation is near, and no hypothesis that stands applies");
  } else if (kinds.size() > 1) {
    Decide(verdict, VerdictKind::kDisputed, fmt::format("the {} nearest observations differ in outcome", count));
  } else if (*kinds.begin() == VerdictKind::kRuns && warning != nullptr) {
    Decide(verdict, VerdictKind::kDisputed,
           fmt::format("near programs run, but {} speaks against it: {}", warning->id, warning->message));
  } else {
    Decide(verdict, *kinds.begin(), fmt::format("the {} nearest observations agree", count));
  }
}

}  // namespace

std::string VerdictText(VerdictKind kind, const Target& target) {
  switch (kind) {
    case VerdictKind::kRuns:
      return target.IsAne() ? "expected to run on ANE" : "expected to run";
    case VerdictKind::kFailsAtLoad:
      return "expected to fail at load";
    case VerdictKind::kFailsAtPredict:
      return "expected to fail at predict";
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
  const std::vector<Cause> all = FindCauses(program, observations);
  std::vector<const Cause*> causes;
  for (const Cause& cause : all) {
    if (cause.contradictions > 0) {
      verdict.dismissed.emplace_back(cause.hypothesis->id);
    } else if (!cause.supporters.empty()) {
      verdict.causes.emplace_back(cause.hypothesis->id);
      causes.push_back(&cause);
    }
  }
  if (const Finding* error = FormatError(findings); error != nullptr) {
    Decide(verdict, VerdictKind::kFailsAtLoad, fmt::format("{}: {}", error->id, error->message));
  } else if (!causes.empty()) {
    JudgeByCauses(verdict, causes, neighbours);
  } else {
    JudgeByNeighbours(verdict, neighbours, WorstFinding(findings, Severity::kWarning));
  }
  neighbours.resize(std::min(neighbours.size(), kShownNeighbours));
  verdict.nearest = std::move(neighbours);
  return verdict;
}

std::vector<Verdict> JudgeModel(const ModelSpec& model, const Target& target, std::span<const Finding> findings) {
  std::vector<Verdict> verdicts;
  for (const auto& function : model.program.functions()) {
    Observation program;
    program.program = FeaturesOf(model, *function, AnalyzeStates(*function));
    program.environment = EnvironmentOf(target);
    std::vector<Finding> own;
    std::ranges::copy_if(findings, std::back_inserter(own), [&function](const Finding& finding) {
      return finding.location.function.empty() || finding.location.function == function->name;
    });
    verdicts.push_back(Judge(program, target, BuiltInLedger().observations, own));
  }
  return verdicts;
}

}  // namespace milwright
