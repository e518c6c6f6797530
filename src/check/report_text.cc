#include <fmt/format.h>

#include <array>

#include "base/utf8.h"
#include "check/report.h"

namespace milwright {
namespace {

constexpr std::string_view kBold = "1";
constexpr std::array<std::string_view, 4> kSeverityColors = {"", "36", "33", "31"};  // off, note, warning, error

class TextWriter {
 public:
  TextWriter(const Report& report, bool color) : report_(report), color_(color) {}

  std::string Write() {
    for (const ReportFinding& finding : report_.findings) WriteFinding(finding);
    for (const ReportVerdict& verdict : report_.verdicts) WriteVerdict(verdict);
    Line("", "{}: {} errors, {} warnings, {} notes (target {})", report_.path, report_.Count(Severity::kError),
         report_.Count(Severity::kWarning), report_.Count(Severity::kNote), report_.target);
    if (!report_.baseline.empty()) {
      Line("", "{}: {} findings accepted by {}", report_.path, report_.accepted, report_.baseline);
      for (const std::string& entry : report_.no_longer_found) {
        Line("", "{}: no longer found: {}", report_.baseline, entry);
      }
    }
    return std::move(text_);
  }

 private:
  // One line. Names come from the package, so what could move a cursor is shown instead of done; colour follows that.
  template <typename... Arguments>
  void Line(std::string_view indent, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::string line = EscapeForMessage(fmt::format(format, std::forward<Arguments>(arguments)...));
    text_ += indent;
    if (color_ && !colored_.first.empty()) {
      const size_t at = line.find(colored_.second);
      text_ += fmt::format("{}\x1b[{}m{}\x1b[0m{}", line.substr(0, at), colored_.first, colored_.second,
                           line.substr(at + colored_.second.size()));
    } else {
      text_ += line;
    }
    colored_ = {};
    text_ += '\n';
  }

  void WriteFinding(const ReportFinding& entry) {
    const Finding& finding = entry.finding;
    const Rule* rule = FindRule(finding.id);
    const std::string severity = fmt::format(": {}: ", SeverityName(finding.severity));
    colored_ = {kSeverityColors[static_cast<size_t>(finding.severity)], severity};
    Line("", "{}: {}{}{} [{} {}]", report_.path, PlaceOf(finding.location), severity, finding.message, finding.id,
         rule != nullptr ? rule->slug : "");
    for (const std::string& note : finding.notes) Line("  ", "note: {}", note);
    if (!entry.command.empty()) Line("  ", "fix: {}", entry.command);
  }

  void WriteVerdict(const ReportVerdict& verdict) {
    colored_ = {kBold, verdict.text};
    Line("", "{}: {}: {} ({}): {}", report_.path, verdict.function, verdict.text, report_.target, verdict.why);
    if (!verdict.codes.empty()) Line("  ", "codes seen: {}", fmt::join(verdict.codes, ", "));
    WriteNeighbours("near", verdict.nearest);
    WriteNeighbours("otherwise", verdict.contrary);
    if (!verdict.dismissed.empty()) {
      Line("  ", "holds but is contradicted: {}", fmt::join(verdict.dismissed, ", "));
    }
  }

  void WriteNeighbours(std::string_view what, const std::vector<ReportNeighbour>& neighbours) {
    for (const ReportNeighbour& neighbour : neighbours) {
      const auto row = report_.observations.find(neighbour.id);
      const bool known = row != report_.observations.end();
      Line("  ", "{}: {} ({}, {}), distance {}: {}", what, neighbour.id, known ? row->second.outcome : "",
           known ? row->second.date : "", neighbour.distance,
           neighbour.differences.empty() ? "equal in all features compared"
                                         : fmt::format("differs in {}", fmt::join(neighbour.differences, ", ")));
    }
  }

  const Report& report_;
  bool color_;
  std::string text_;
  std::pair<std::string_view, std::string> colored_;  // the colour of a part of the next line
};

}  // namespace

std::string WriteTextReport(const Report& report, bool color) { return TextWriter(report, color).Write(); }

}  // namespace milwright
