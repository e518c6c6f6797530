// Reports: everything that `milwright check` shows of one package, collected once; one writer per format turns it into
// text. Nothing in a report points into the model or the ledger.
#ifndef MILWRIGHT_CHECK_REPORT_H_
#define MILWRIGHT_CHECK_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/weight_report.h"
#include "check/placement/plan.h"
#include "check/rule.h"
#include "check/verdict.h"

namespace milwright {

/// A read or write of a state.
struct ReportAccess {
  bool is_write = false;
  size_t position = 0;          ///< on the function's time line: operations in program order, constants left out
  std::string op;               ///< OperationPath
  std::string form;             ///< of a write: UpdateFormName
  std::optional<int64_t> rows;  ///< of a write: new rows
};

struct ReportState {
  std::string name;
  std::string type;  ///< "tensor<fp16, [2, 2, 512, 16]>"
  int64_t bytes = 0;
  std::string role;                    ///< StateRoleName
  std::string form;                    ///< UpdateFormName
  std::optional<int64_t> rows;         ///< new rows in one step
  std::optional<int64_t> capacity;     ///< rows along the axis that grows, where the form shows one
  std::optional<int64_t> steps;        ///< until it is full; absent where it never is, or where that is not known
  std::vector<ReportAccess> accesses;  ///< in program order
};

/// Neighbouring operations on one unit, on the time line and by time.
struct ReportSegment {
  ComputeUnit unit = ComputeUnit::kUnknown;
  size_t position = 0;  ///< of its first operation on the time line
  size_t count = 0;     ///< dispatchable operations
  size_t scaled = 0;    ///< of them with a cost that is scaled from another shape or operation
  double us = 0;
  double scaled_us = 0;
  std::string first;  ///< outputs of its first and last operation
  std::string last;
};

/// Why operations are not on the ANE: a statement of the support table, or the segmenter's choice.
struct ReportReason {
  std::string statement;
  std::string basis;  ///< SupportBasisName; empty for the segmenter's choice
  std::string source;
  std::string conflict;
  size_t count = 0;
};

struct ReportPlacement {
  PlanShare share;
  std::vector<ReportSegment> segments;
  std::vector<size_t> state_ops;      ///< positions on the time line
  std::vector<ReportReason> reasons;  ///< most operations first
  bool tied = false;
  std::vector<std::string> notes;
};

/// Bytes that one step moves. nullopt: a size is known only at run time.
struct ReportBudget {
  std::optional<int64_t> input_bytes;
  std::optional<int64_t> output_bytes;
  int64_t state_bytes = 0;
  std::optional<int64_t> state_read_bytes;  ///< what the reads of states return, in all
  std::optional<int64_t> steps;             ///< until the first state is full
};

struct ReportFunction {
  std::string package;  ///< only in a combined report (CombineReports)
  std::string name;
  std::string opset;
  bool is_default = false;
  size_t operations = 0;  ///< all, nested blocks and constants included
  size_t length = 0;      ///< of the time line
  std::vector<ReportState> states;
  std::optional<ReportPlacement> placement;
  std::string no_placement;  ///< why there is none
  ReportBudget budget;
};

/// An observation that a verdict compares the function with.
struct ReportNeighbour {
  std::string id;
  int distance = 0;
  std::vector<std::string> differences;
};

struct ReportVerdict {
  std::string function;
  VerdictKind kind = VerdictKind::kUnknown;
  std::string text;  ///< VerdictText
  std::string why;
  std::vector<std::string> causes;  ///< ids of hypotheses; more than one compete as explanations
  std::vector<std::string> dismissed;
  std::vector<std::string> codes;  ///< of the failures that it rests on
  std::vector<ReportNeighbour> nearest;
  std::vector<ReportNeighbour> contrary;  ///< the nearest that had another outcome
};

struct ReportObservation {
  std::string model;
  std::string environment;  ///< device, OS and compute units
  std::string outcome;      ///< "fail at load -14"
  std::string strength;
  std::string date;
  std::string source_title;
  std::string source_url;
  std::string caveats;
};

struct ReportHypothesis {
  std::string statement;
  std::string status;                     ///< "open", "well-supported", "refuted as sufficient cause"
  std::vector<std::string> supported_by;  ///< ids of observations, by all observations that the check was given
  std::vector<std::string> contradicted_by;
};

/// A finding, with the command that mends it.
struct ReportFinding {
  Finding finding;
  std::string command;  ///< for a shell; empty: no rewrite mends it
};

struct Report {
  std::string path;     ///< as given
  std::string version;  ///< Milwright's
  std::string target;
  std::string target_summary;
  std::vector<ReportFinding> findings;
  std::string baseline;                      ///< the file of accepted findings, which are not in `findings`; or empty
  size_t accepted = 0;                       ///< how many it took away
  std::vector<std::string> no_longer_found;  ///< its entries that nothing meets: "MW205 in main at out"
  std::vector<ReportVerdict> verdicts;       ///< by function; none for target "any"
  std::vector<ReportFunction> functions;
  std::vector<WeightTotal> weights;
  /// What findings, verdicts and hypotheses refer to, by id.
  std::map<std::string, ReportHypothesis, std::less<>> hypotheses;
  std::map<std::string, ReportObservation, std::less<>> observations;

  [[nodiscard]] size_t Count(Severity severity) const;
  [[nodiscard]] int64_t StoredWeightBytes() const;
  [[nodiscard]] int64_t DenseWeightBytes() const;
};

/// What one run of `check` reports: one package, or those of a folder (the chunks of a model, say).
struct ReportSet {
  std::string path;  ///< as given
  bool is_folder = false;
  std::vector<Report> packages;

  [[nodiscard]] size_t Count(Severity severity) const;
};

/// The reports of a folder as one, in which functions, verdicts and places start with their package's name.
Report CombineReports(const ReportSet& set);

struct ReportSource {
  std::string path;
  std::string version;
  const Target* target = nullptr;
  std::span<const Observation> observations;
  bool whole = true;  ///< functions and weights too, which only some formats show (ShowsProgram)
};

/// Collects the report on `model` from what a check found. Places nothing for targets without a placement model.
Report CollectReport(const ModelSpec& model, const ReportSource& source, std::span<const Finding> findings,
                     std::span<const Verdict> verdicts);

enum class ReportFormat : uint8_t { kText, kJson, kSarif, kGithub, kHtml };
/// "text", "json", "sarif", "github", "html"
std::optional<ReportFormat> ReportFormatFromName(std::string_view name);
/// Whether a format shows states, placement and budget: what takes time to collect.
constexpr bool ShowsProgram(ReportFormat format) {
  return format == ReportFormat::kJson || format == ReportFormat::kHtml;
}

/// The reports in one format, always valid UTF-8 and ending with a newline. `color`: ANSI colours in kText.
std::string WriteReports(const ReportSet& set, ReportFormat format, bool color = false);

/// For people at a terminal.
std::string WriteTextReport(const Report& report, bool color);
/// Everything, for programs: one object, with a list of "packages" for a folder.
std::string WriteJsonReport(const ReportSet& set);
/// SARIF 2.1.0 (OASIS): one run; rules with help, one result per finding, evidence as related locations.
std::string WriteSarifReport(const ReportSet& set);
/// Workflow commands of GitHub Actions (::error file=...,title=...::...), one a line.
std::string WriteGithubReport(const Report& report);
/// One page that needs no network.
std::string WriteHtmlReport(const Report& report);

/// Where a finding stands, in one line: the operation's path, or "function/value".
std::string PlaceOf(const Location& location);
/// Bytes as "512 B", "1.54 kB", "2.05 GB" (powers of 1000).
std::string BytesText(int64_t bytes);
/// `word` as one word of a POSIX shell: quoted where it has to be, and never an option.
std::string ShellWord(std::string_view word);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_REPORT_H_
