// Workflow commands as GitHub's "Workflow commands for GitHub Actions" has them: "::error file=F,title=T::message",
// with
// %, CR and LF escaped in messages, and : and , besides in properties.
#include <fmt/format.h>

#include "base/utf8.h"
#include "check/report.h"

namespace milwright {
namespace {

// A message keeps its line breaks, as %0A; other control characters are shown as \xNN.
std::string Escape(std::string_view text, bool is_property) {
  std::string escaped;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    for (const char c : EscapeForMessage(text.substr(0, end))) {
      if (c == '%' || (is_property && (c == ':' || c == ','))) {
        escaped += fmt::format("%{:02X}", c);
      } else {
        escaped += c;
      }
    }
    if (end == std::string_view::npos) break;
    escaped += "%0A";
    text.remove_prefix(end + 1);
  }
  return escaped;
}

std::string Command(std::string_view command, std::string_view file, std::string_view title, std::string_view message) {
  return fmt::format("::{} file={},title={}::{}\n", command, Escape(file, true), Escape(title, true),
                     Escape(message, false));
}

std::string_view CommandOf(Severity severity) {
  return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "notice";
}

std::string_view CommandOf(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::kFailsAtLoad:
    case VerdictKind::kFailsAtPredict:
    case VerdictKind::kFallsBack:
      return "warning";
    default:
      return "notice";
  }
}

}  // namespace

std::string WriteGithubReport(const Report& report) {
  std::string text;
  for (const auto& [finding, command] : report.findings) {
    const Rule* rule = FindRule(finding.id);
    std::string message = fmt::format("{}: {}", PlaceOf(finding.location), finding.message);
    for (const std::string& note : finding.notes) message += "\nnote: " + note;
    if (!command.empty()) message += "\nfix: " + command;
    text += Command(CommandOf(finding.severity), report.path,
                    fmt::format("{} {}", finding.id, rule != nullptr ? rule->slug : ""), message);
  }
  for (const ReportVerdict& verdict : report.verdicts) {
    text += Command(CommandOf(verdict.kind), report.path, fmt::format("{} on {}", verdict.function, report.target),
                    fmt::format("{}: {}", verdict.text, verdict.why));
  }
  return text;
}

}  // namespace milwright
