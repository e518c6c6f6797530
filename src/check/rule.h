// Rules: what `milwright check` looks for. One entry of the rule table per rule; pages, help and reports come from it.
//
// Adding a rule: write a function over ProgramFacts that reports findings, and add one entry to the family file it
// belongs to (src/check/rules_<family>.cc): id, slug, summary, page text, severities, confidence, evidence, fixes,
// function.
#ifndef MILWRIGHT_CHECK_RULE_H_
#define MILWRIGHT_CHECK_RULE_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/state_analysis.h"
#include "mil/model.h"

namespace milwright {

enum class Severity : uint8_t { kOff, kNote, kWarning, kError };
std::string_view SeverityName(Severity severity);
std::optional<Severity> SeverityFromName(std::string_view name);

/// What a rule rests on.
enum class Confidence : uint8_t { kSpecification, kReproduced, kSeveralReports, kOneReport, kInference };
std::string_view ConfidenceName(Confidence confidence);

/// Where a finding stands. `function` empty: the whole package.
struct Location {
  std::string function;
  std::string op_path;  ///< OperationPath, or empty
  std::string value;    ///< value or feature name, or empty
};

/// A rewrite that mends a finding: the argument of `milwright rewrite --pass`.
struct FixIt {
  std::string passes;  ///< "drop-output-alias", "state-to-io=states:conv_cache"
  bool safe = false;   ///< as RuleFix has it
};

struct Finding {
  std::string id;  ///< "MW201"
  Severity severity = Severity::kWarning;
  Location location;
  std::string message;  ///< one sentence
  std::vector<std::string> notes;
  std::optional<FixIt> fix;
};

/// What the rules see: the model and what analysis says of each of its functions, computed once.
struct ProgramFacts {
  const ModelSpec* model = nullptr;
  std::map<std::string, FunctionStates, std::less<>> functions;

  explicit ProgramFacts(const ModelSpec& model);
};

struct Rule;
/// Collects the findings of one rule; fills in id and severity.
class Reporter {
 public:
  Reporter(const Rule& rule, Severity severity, std::vector<Finding>& findings)
      : rule_(rule), severity_(severity), findings_(findings) {}
  Finding& Report(Location location, std::string message);
  /// Gives `finding` the fix of the rule's table that runs `passes`, with the options ("key:value;key:value") of each
  /// of them in order.
  void ProposeFix(Finding& finding, std::string_view passes, std::initializer_list<std::string> options = {}) const;

 private:
  const Rule& rule_;
  Severity severity_;
  std::vector<Finding>& findings_;
};

/// Passes that mend findings of a rule. What options they take depends on the finding (Reporter::ProposeFix).
struct RuleFix {
  std::string_view passes;  ///< "split-state,state-to-io": run in order
  /// `check --fix` applies it: the program computes the same, within what the pass states (Pass::exactness). Hosts may
  /// have to follow a changed interface; the pass's report says how.
  bool safe = false;
};

struct Rule {
  std::string_view id;  ///< MW1xx format, MW2xx states, MW3xx shapes, MW4xx weights, MW5xx numerics, MW6xx placement
  std::string_view slug;
  std::string_view known_as;               ///< K number of field-reports.md, section 2
  std::string_view summary;                ///< one line
  std::string_view explanation;            ///< the page: why, and what to do
  Severity severity = Severity::kWarning;  ///< for target "any"
  std::vector<std::pair<std::string_view, Severity>> target_severities =
      {};  ///< by target profile name or prefix ("ane")
  Confidence confidence = Confidence::kSpecification;
  std::vector<std::string_view> evidence_for = {};  ///< hypotheses or observations of the ledger, or report numbers
  std::vector<std::string_view> evidence_against = {};
  std::vector<RuleFix> fixes = {};
  void (*check)(const ProgramFacts&, Reporter&) = nullptr;
};

/// Proposes to turn `state` into inputs and outputs; the rule's table has kStateToIo and kSplitStateToIo for it. A
/// state whose slots are written one by one is split first: an update of one slot of an input would stand alone
/// (MW608).
void ProposeInputOutput(const Reporter& reporter, Finding& finding, const StateFacts& state);
inline constexpr RuleFix kStateToIo{"state-to-io", true};
inline constexpr RuleFix kSplitStateToIo{"split-state,state-to-io", true};

/// Every rule, sorted by id.
std::span<const Rule> AllRules();
const Rule* FindRule(std::string_view id_or_slug);
/// The rule's page in Markdown: docs/rules/<id>.md, and what `milwright explain` prints.
std::string RulePage(const Rule& rule);

std::vector<Rule> FormatRules();     // rules_format.cc: MW1xx
std::vector<Rule> StateRules();      // rules_state.cc: MW20x, MW210
std::vector<Rule> UpdateRules();     // rules_update.cc: MW21x
std::vector<Rule> ShapeRules();      // rules_shape.cc: MW3xx
std::vector<Rule> WeightRules();     // rules_weights.cc: MW4xx
std::vector<Rule> NumericsRules();   // rules_numerics.cc: MW5xx
std::vector<Rule> PlacementRules();  // rules_placement.cc: MW6xx

struct CheckOptions {
  std::string target = "any";
  std::map<std::string, Severity, std::less<>> overrides;  ///< by rule id
};

/// Runs every rule that is not off for the target. Findings are sorted by severity (worst first), then place.
std::vector<Finding> CheckModel(const ModelSpec& model, const CheckOptions& options = {});

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_RULE_H_
