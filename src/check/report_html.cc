#include "check/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/sha256.h"
#include "base/utf8.h"

namespace milwright {
namespace {

constexpr size_t kShownObservations = 40;
constexpr size_t kShownPlaces = 6;  // of a rule, before the others fold away

std::string Code(std::string_view text) { return fmt::format("<code>{}</code>", Html(text)); }

// The text of a rule, whose paragraphs are separated by empty lines.
std::string Paragraphs(std::string_view text) {
  std::string html;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    html += fmt::format("<p>{}</p>", Html(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
  }
  return html;
}

std::string Base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8U | (i + j < bytes.size() ? bytes[i + j] : 0U);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63U];
  }
  return text;
}

// Nothing is loaded, and no script runs but the page's own, whatever a name in the package may hold.
std::string ContentPolicy() {
  Sha256 hash;
  hash.Update(ReportJs());
  return fmt::format(
      "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; "
      "form-action 'none'",
      Base64(hash.Finish()));
}

struct SeverityLook {
  std::string_view css;
  std::string_view icon;  // a shape of its own beside the word
};

SeverityLook LookOf(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return {"error",
              "<path d=\"M5 1H11L15 5V11L11 15H5L1 11V5Z\"/><path class=\"cut\" d=\"M5.5 5.5L10.5 10.5M10.5 "
              "5.5L5.5 10.5\"/>"};
    case Severity::kWarning:
      return {"warning", "<path d=\"M8 1L15.5 14.5H0.5Z\"/><path class=\"cut\" d=\"M8 6V9.6M8 11.6V12.6\"/>"};
    default:
      return {"note", "<circle cx=\"8\" cy=\"8\" r=\"7\"/><path class=\"cut\" d=\"M8 3.8V4.8M8 7V12\"/>"};
  }
}

SeverityLook LookOf(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::kRuns:
      return {"runs", "<circle cx=\"8\" cy=\"8\" r=\"7\"/><path class=\"cut\" d=\"M4.6 8.2L7.2 10.8L11.6 5.6\"/>"};
    case VerdictKind::kFailsAtLoad:
    case VerdictKind::kFailsAtPredict:
      return {"fails", LookOf(Severity::kError).icon};
    case VerdictKind::kFallsBack:
      return {"warning", "<path d=\"M8 1L15.5 14.5H0.5Z\"/><path class=\"cut\" d=\"M8 5.6V11M5.8 9L8 11.2L10.2 9\"/>"};
    case VerdictKind::kDisputed:
      return {"warning",
              "<path d=\"M8 0.5L15.5 8L8 15.5L0.5 8Z\"/><path class=\"cut\" d=\"M5 8H11M5 8L6.8 6.2M5 8L6.8 "
              "9.8M11 8L9.2 6.2M11 8L9.2 9.8\"/>"};
    case VerdictKind::kUnknown:
      break;
  }
  return {"unknown",
          "<circle cx=\"8\" cy=\"8\" r=\"7\"/><path class=\"cut\" d=\"M6 6.2C6 3.4 10.2 3.6 10 6.4C9.8 8 8 "
          "7.8 8 9.6M8 11.4V12.4\"/>"};
}

std::string Badge(const SeverityLook& look, std::string_view text) {
  return fmt::format(
      "<span class=\"badge {}\"><svg viewBox=\"0 0 16 16\" width=\"14\" height=\"14\" "
      "aria-hidden=\"true\">{}</svg>{}</span>",
      look.css, look.icon, Html(text));
}

// A link to where an observation was published; only http and https lead anywhere.
std::string Link(const ReportObservation& row) {
  std::string title = Html(row.source_title.empty() ? row.source_url : row.source_title);
  if (!row.source_url.starts_with("https://") && !row.source_url.starts_with("http://")) return title;
  return fmt::format("<a href=\"{}\" rel=\"noreferrer noopener\">{}</a>", Html(row.source_url), title);
}

// Whether two functions have the same verdict for the same reasons.
bool IsSameVerdict(const ReportVerdict& a, const ReportVerdict& b) {
  return a.kind == b.kind && a.why == b.why && a.causes == b.causes && a.dismissed == b.dismissed &&
         std::ranges::equal(a.nearest, b.nearest, {}, &ReportNeighbour::id, &ReportNeighbour::id) &&
         std::ranges::equal(a.nearest, b.nearest, {}, &ReportNeighbour::differences, &ReportNeighbour::differences);
}

class HtmlWriter {
 public:
  explicit HtmlWriter(const Report& report) : report_(report) {
    name_ = std::filesystem::path(report.path).filename().string();
    if (name_.empty()) name_ = report.path;
  }

  std::string Write() {
    html_ += fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">"
        "<title>{} on {}: Milwright check</title>\n<style>{}</style></head>\n<body>{}"
        "<a class=\"skip\" href=\"#main\">Skip to the report</a>\n",
        ContentPolicy(), Html(name_), Html(report_.target), ReportCss(), ChartSymbols());
    WriteHeader();
    html_ += "<main id=\"main\">\n";
    WriteVerdicts();
    WriteProgram();
    WriteFindings();
    WriteBudget();
    html_ += "</main>\n";
    html_ += fmt::format(
        "<footer><p>Made by <code>milwright check</code> {}. What is said of devices rests on published reports and on "
        "the evidence named here, not on a device.</p></footer>"
        "<p id=\"live\" class=\"visually-hidden\" role=\"status\"></p>\n<script>{}</script></body></html>\n",
        Html(report_.version), ReportJs());
    return std::move(html_);
  }

 private:
  void WriteHeader() {
    const auto count = [this](Severity severity, std::string_view noun) {
      const size_t number = report_.Count(severity);
      if (number == 0) return fmt::format("<li><span class=\"badge none\">{}</span></li>", Counted(0, noun));
      return fmt::format("<li>{}</li>", Badge(LookOf(severity), Counted(number, noun)));
    };
    html_ += fmt::format(
        "<header><p class=\"kicker\">Milwright check</p><h1>{}</h1><dl class=\"facts\"><div><dt>Package</dt>"
        "<dd><code>{}</code></dd></div><div><dt>Target</dt><dd><code>{}</code> {}</dd></div><div><dt>Contents</dt>"
        "<dd>{}, weights {}</dd></div></dl><ul class=\"counts\" aria-label=\"Findings by severity\">{}{}{}</ul>"
        "<nav aria-label=\"Sections\"><a href=\"#verdicts\">Verdicts</a><a href=\"#program\">States and placement</a>"
        "<a href=\"#findings\">Findings</a><a href=\"#budget\">Budget</a></nav></header>\n",
        Html(name_), Html(report_.path), Html(report_.target), Html(report_.target_summary),
        Counted(report_.functions.size(), "function"), BytesText(report_.StoredWeightBytes()),
        count(Severity::kError, "error"), count(Severity::kWarning, "warning"), count(Severity::kNote, "note"));
  }

  void BeginSection(std::string_view id, std::string_view title) {
    html_ += fmt::format("<section id=\"{}\" aria-labelledby=\"{}-h\"><h2 id=\"{}-h\">{}</h2>\n", id, id, id, title);
  }

  void WriteVerdicts() {
    BeginSection("verdicts", "Verdicts");
    if (report_.verdicts.empty()) {
      html_ += fmt::format(
          "<p>No verdict: target {} is no compute unit in particular. Choose one with <code>--target</code>.</p>",
          Code(report_.target));
    }
    // Functions that fare alike share an entry.
    std::vector<bool> done(report_.verdicts.size());
    for (size_t i = 0; i < report_.verdicts.size(); ++i) {
      if (done[i]) continue;
      std::string functions;
      for (size_t j = i; j < report_.verdicts.size(); ++j) {
        if (!IsSameVerdict(report_.verdicts[i], report_.verdicts[j])) continue;
        done[j] = true;
        functions += (functions.empty() ? "" : ", ") + Code(report_.verdicts[j].function);
      }
      WriteVerdict(report_.verdicts[i], functions);
    }
    html_ += "</section>\n";
  }

  void WriteVerdict(const ReportVerdict& verdict, const std::string& functions) {
    const SeverityLook look = LookOf(verdict.kind);
    html_ += fmt::format("<article class=\"verdict {}\"><h3><span class=\"functions\">{}</span> {}</h3><p>{}</p>",
                         look.css, functions, Badge(look, verdict.text), Html(verdict.why));
    WriteExplanations(verdict);
    WriteNearest(verdict);
    if (!verdict.dismissed.empty()) {
      html_ += "<p class=\"quiet\">Hold for this function, but observations contradict them: ";
      for (size_t i = 0; i < verdict.dismissed.size(); ++i) {
        html_ += (i > 0 ? ", " : "") + Code(verdict.dismissed[i]);
      }
      html_ += ".</p>";
    }
    html_ += "</article>\n";
  }

  // The hypotheses that stand for a function, side by side: what each says, what it rests on, and what would mend it.
  void WriteExplanations(const ReportVerdict& verdict) {
    if (verdict.causes.empty()) return;
    html_ += fmt::format("<h4>{}</h4><div class=\"explanations\">",
                         verdict.causes.size() > 1 ? "Competing explanations" : "Explanation");
    for (const std::string& cause : verdict.causes) {
      const auto it = report_.hypotheses.find(cause);
      if (it == report_.hypotheses.end()) continue;
      const ReportHypothesis& hypothesis = it->second;
      html_ += fmt::format(
          "<section class=\"explanation\" aria-label=\"Explanation {}\"><h5>{}</h5><p>{}</p><p class=\"quiet\">{} for, "
          "{} against; status {}</p>",
          Html(cause), Code(cause), Html(hypothesis.statement), hypothesis.supported_by.size(),
          hypothesis.contradicted_by.size(), Html(hypothesis.status));
      WriteObservations("Observations for it", hypothesis.supported_by, true);
      std::set<std::string> rules;
      for (const ReportFinding& entry : report_.findings) {
        const Rule* rule = FindRule(entry.finding.id);
        if (rule == nullptr || !rules.insert(entry.finding.id).second) continue;
        if (std::ranges::find(rule->evidence_for, cause) == rule->evidence_for.end()) continue;
        html_ += fmt::format("<p>Finding <a href=\"#{}\">{} {}</a>{}</p>", rule->id, rule->id, rule->slug,
                             entry.command.empty() ? "" : ", with a rewrite to try");
      }
      html_ += "</section>";
    }
    html_ += "</div>";
  }

  void WriteNearest(const ReportVerdict& verdict) {
    if (verdict.nearest.empty()) return;
    html_ += fmt::format(
        "<details><summary>{}</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Nearest "
        "observations of {}\"><table><caption>What was observed of the programs most like <code>{}</code></caption>"
        "<thead><tr><th scope=\"col\">Observation</th><th scope=\"col\">Outcome</th><th scope=\"col\">Where</th>"
        "<th scope=\"col\">Differs in</th><th scope=\"col\">Source</th></tr></thead><tbody>",
        Counted(verdict.nearest.size(), "nearest observation"), Html(verdict.function), Html(verdict.function));
    for (const ReportNeighbour& neighbour : verdict.nearest) {
      const auto row = report_.observations.find(neighbour.id);
      if (row == report_.observations.end()) continue;
      html_ +=
          fmt::format("<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                      Html(neighbour.id), Html(row->second.outcome), Html(row->second.environment),
                      neighbour.differences.empty() ? "nothing compared"
                                                    : Html(fmt::format("{}", fmt::join(neighbour.differences, ", "))),
                      Link(row->second));
    }
    html_ += "</tbody></table></div></details>";
  }

  // `brief`: without the caveats, for narrow columns.
  void WriteObservations(std::string_view title, const std::vector<std::string>& ids, bool brief = false) {
    if (ids.empty()) return;
    html_ += fmt::format("<details><summary>{} ({})</summary><ul class=\"observations\">", title, ids.size());
    for (size_t i = 0; i < std::min(ids.size(), kShownObservations); ++i) {
      const auto row = report_.observations.find(ids[i]);
      if (row == report_.observations.end()) continue;
      const ReportObservation& observation = row->second;
      html_ += fmt::format("<li><code>{}</code>: {}; {}. <span class=\"source\">{}, {}{}{}</span>{}</li>", Html(ids[i]),
                           Html(observation.outcome), Html(observation.environment), Html(observation.strength),
                           Html(observation.date), observation.date.empty() ? "" : ", ", Link(observation),
                           brief || observation.caveats.empty()
                               ? ""
                               : fmt::format(" <span class=\"source\">{}</span>", Html(observation.caveats)));
    }
    if (ids.size() > kShownObservations) {
      html_ +=
          fmt::format("<li>and {} more: <code>milwright evidence list</code></li>", ids.size() - kShownObservations);
    }
    html_ += "</ul></details>";
  }

  void WriteProgram() {
    BeginSection("program", "States and placement");
    html_ += "<h3>States to scale</h3>" + StatesFigure(report_);
    for (size_t i = 0; i < report_.functions.size(); ++i) {
      const ReportFunction& function = report_.functions[i];
      html_ += fmt::format(
          "<section class=\"function\" aria-labelledby=\"f{}\"><h3 id=\"f{}\">Function {} <span>{}{}"
          "</span></h3>",
          i, i, Code(function.name), Html(function.opset), function.is_default ? ", default" : "");
      html_ += TimelineFigure(function, i) + PlacementDetails(function, i) + "</section>\n";
    }
    html_ += "</section>\n";
  }

  void WriteFindings() {
    BeginSection("findings", "Findings");
    if (report_.findings.empty()) html_ += "<p>None.</p>";
    if (!report_.findings.empty()) {
      html_ += "<p class=\"tools\"><button type=\"button\" id=\"open-all\" hidden>Open all evidence</button></p>";
    }
    // By rule, in the order in which each is first found: worst first.
    std::vector<std::string_view> ids;
    for (const ReportFinding& entry : report_.findings) {
      if (std::ranges::find(ids, entry.finding.id) == ids.end()) ids.emplace_back(entry.finding.id);
    }
    for (const std::string_view id : ids) {
      std::vector<const ReportFinding*> group;
      for (const ReportFinding& entry : report_.findings) {
        if (entry.finding.id == id) group.push_back(&entry);
      }
      WriteRule(id, group);
    }
    html_ += "</section>\n";
  }

  void WriteRule(std::string_view id, const std::vector<const ReportFinding*>& group) {
    const Rule* rule = FindRule(id);
    const Finding& first = group.front()->finding;
    const SeverityLook look = LookOf(first.severity);
    html_ += fmt::format("<article class=\"finding {}\" id=\"{}\"><h3>{} <code>{}</code> {}</h3>", look.css, Html(id),
                         Badge(look, SeverityName(first.severity)), Html(id), rule != nullptr ? rule->slug : "");
    if (rule != nullptr) html_ += fmt::format("<p class=\"summary\">{}</p>", Html(rule->summary));
    const size_t shown = group.size() > kShownPlaces + 3 ? kShownPlaces : group.size();
    WritePlaces(std::span(group).first(shown));
    if (shown < group.size()) {
      html_ += fmt::format("<details><summary>{}</summary>", Counted(group.size() - shown, "more place"));
      WritePlaces(std::span(group).subspan(shown));
      html_ += "</details>";
    }
    WriteOnce("note", group);
    WriteFixes(group);
    if (rule != nullptr) WriteEvidence(*rule);
    html_ += "</article>\n";
  }

  void WritePlaces(std::span<const ReportFinding* const> group) {
    html_ += "<ul class=\"places\">";
    for (const ReportFinding* entry : group) {
      const std::string place = PlaceOf(entry->finding.location);
      html_ += fmt::format("<li>{}{}{}</li>", place.empty() ? "" : Code(place), place.empty() ? "" : " ",
                           Html(entry->finding.message));
    }
    html_ += "</ul>";
  }

  // The notes of a group's findings, each different one once.
  void WriteOnce(std::string_view css, const std::vector<const ReportFinding*>& group) {
    std::set<std::string_view> seen;
    for (const ReportFinding* entry : group) {
      for (const std::string& note : entry->finding.notes) {
        if (seen.insert(note).second) html_ += fmt::format("<p class=\"{}-text\">{}</p>", css, Html(note));
      }
    }
  }

  void WriteFixes(const std::vector<const ReportFinding*>& group) {
    std::set<std::string_view> seen;
    for (const ReportFinding* entry : group) {
      if (entry->command.empty() || !seen.insert(entry->command).second) continue;
      const std::string id = fmt::format("fix{}", fixes_++);
      html_ += fmt::format(
          "<div class=\"fix\"><p class=\"fix-label\">{}</p><pre tabindex=\"0\" aria-label=\"Command that mends it\">"
          "<code id=\"{}\">{}</code></pre><button type=\"button\" class=\"copy\" data-copy=\"{}\" hidden>Copy"
          "<span class=\"visually-hidden\"> command {}</span></button></div>",
          entry->finding.fix.has_value() && entry->finding.fix->safe ? "Fix, applied by <code>check --fix</code>"
                                                                     : "Fix, yours to decide",
          id, Html(entry->command), id, fixes_);
    }
  }

  void WriteSide(std::string_view title, const std::vector<std::string_view>& evidence) {
    html_ += fmt::format("<div><h4>{}</h4>", title);
    if (evidence.empty()) html_ += "<p class=\"quiet\">Nothing known.</p>";
    for (const std::string_view id : evidence) {
      const auto it = report_.hypotheses.find(id);
      if (it != report_.hypotheses.end()) {
        html_ += fmt::format("<p>{}: {}</p>", Code(id), Html(it->second.statement));
        WriteObservations("Observations for it", it->second.supported_by);
        WriteObservations("Observations against it", it->second.contradicted_by);
      } else if (report_.observations.contains(id)) {
        WriteObservations("Observation", {std::string(id)});
      } else {
        html_ += fmt::format("<p>{}</p>", Html(id));
      }
    }
    html_ += "</div>";
  }

  void WriteEvidence(const Rule& rule) {
    html_ += fmt::format(
        "<details class=\"evidence\"><summary>Why, and the evidence <span>{} for, {} against; rests on: {}</span>"
        "</summary>{}<div class=\"sides\">",
        rule.evidence_for.size(), rule.evidence_against.size(), ConfidenceName(rule.confidence),
        Paragraphs(rule.explanation));
    WriteSide("For", rule.evidence_for);
    WriteSide("Against", rule.evidence_against);
    html_ += "</div></details>";
  }

  void WriteBudget() {
    BeginSection("budget", "Budget");
    const auto bytes = [](const std::optional<int64_t>& value) {
      return value.has_value() ? BytesText(*value) : std::string("known at run time");
    };
    html_ +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Budget by function\"><table><caption>"
        "What one step of each function takes</caption><thead><tr><th scope=\"col\">Function</th><th scope=\"col\" "
        "class=\"number\">Operations</th><th scope=\"col\" class=\"number\">States</th><th scope=\"col\" "
        "class=\"number\">Read from states</th><th scope=\"col\" class=\"number\">Inputs</th><th scope=\"col\" "
        "class=\"number\">Outputs</th><th scope=\"col\" class=\"number\">Steps until full</th></tr></thead><tbody>";
    for (const ReportFunction& function : report_.functions) {
      const ReportBudget& budget = function.budget;
      html_ += fmt::format(
          "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}"
          "</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
          Code(function.name), function.operations, BytesText(budget.state_bytes), bytes(budget.state_read_bytes),
          bytes(budget.input_bytes), bytes(budget.output_bytes),
          budget.steps.has_value() ? std::to_string(*budget.steps) : "no limit found");
    }
    html_ += "</tbody></table></div>";
    html_ +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Weights by format\"><table><caption>"
        "Weights, shared ones once</caption><thead><tr><th scope=\"col\">Format</th><th scope=\"col\" "
        "class=\"number\">Tensors</th><th scope=\"col\" class=\"number\">Stored</th><th scope=\"col\" "
        "class=\"number\">Decompressed</th></tr></thead><tbody>";
    for (const WeightTotal& total : report_.weights) {
      html_ += fmt::format(
          "<tr><th scope=\"row\"><code>{}</code>{}</th><td class=\"number\">{}</td><td "
          "class=\"number\">{}</td><td class=\"number\">{}</td></tr>",
          Html(total.format.name), total.format.block_size > 0 ? fmt::format(" of {}", total.format.block_size) : "",
          total.count, BytesText(total.stored_bytes), BytesText(total.dense_bytes));
    }
    html_ += fmt::format(
        "</tbody><tfoot><tr><th scope=\"row\">All</th><td></td><td class=\"number\">{}</td><td "
        "class=\"number\">{}</td></tr></tfoot></table></div></section>\n",
        BytesText(report_.StoredWeightBytes()), BytesText(report_.DenseWeightBytes()));
  }

  const Report& report_;
  std::string name_;
  std::string html_;
  size_t fixes_ = 0;
};

}  // namespace

std::string Html(std::string_view text) {
  std::string html;
  for (const char c : EscapeForMessage(text)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string WriteHtmlReport(const Report& report) { return HtmlWriter(report).Write(); }

}  // namespace milwright
