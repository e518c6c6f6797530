// The figures of an HTML report: states to scale, and the time line of a function with its placement and state lanes.
// x positions are percentages, so that figures stretch with the page while marks and text keep their shape. Nothing is
// told by colour alone: units have patterns, reads and writes have shapes, and every figure has a description and a
// table.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "check/report_html.h"

namespace milwright {
namespace {

constexpr size_t kTableRows = 200;  // the tables under figures name so many rows, and the number of the others

std::string_view UnitText(ComputeUnit unit) {
  switch (unit) {
    case ComputeUnit::kCpu:
      return "CPU";
    case ComputeUnit::kGpu:
      return "GPU";
    case ComputeUnit::kAne:
      return "Neural Engine";
    case ComputeUnit::kUnknown:
      break;
  }
  return "unknown";
}

// The position of an operation on a time line of `length`, in percent: the middle of its share.
double Percent(size_t position, size_t length) {
  return length == 0 ? 0 : 100.0 * (static_cast<double>(position) + 0.5) / static_cast<double>(length);
}

std::string Share(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string UpdateText(const ReportState& state) {
  std::string text = state.form;
  if (state.rows.has_value()) text += fmt::format(", {} a step", Counted(static_cast<size_t>(*state.rows), "row"));
  return text;
}

std::string MoreRows(size_t count, size_t columns) {
  if (count <= kTableRows) return {};
  return fmt::format("<tr><td colspan=\"{}\">and {} more (--format json lists all)</td></tr>", columns,
                     count - kTableRows);
}

// Marks of one kind at nearly one place are drawn once: a page stays readable, and its size bounded.
std::string Marks(const ReportState& state, bool writes, size_t length) {
  std::string svg;
  std::string titles;
  size_t count = 0;
  double at = -1;
  const auto flush = [&] {
    if (count == 0) return;
    svg += fmt::format("<use href=\"#mark-{}\" x=\"{:.2f}%\"><title>{}</title></use>", writes ? "write" : "read", at,
                       count > 3 ? Counted(count, writes ? "write" : "read") : titles);
    titles.clear();
    count = 0;
  };
  for (const ReportAccess& access : state.accesses) {
    if (access.is_write != writes) continue;
    const double x = Percent(access.position, length);
    if (x - at > 0.1) flush();
    if (count == 0) at = x;
    if (count++ < 3) {
      titles += fmt::format("{}{} {}{}", titles.empty() ? "" : "; ", writes ? "write" : "read", Html(access.op),
                            writes ? ": " + Html(access.form) : "");
    }
  }
  flush();
  return svg;
}

size_t CountAccesses(const ReportState& state, bool writes) {
  return static_cast<size_t>(std::ranges::count(state.accesses, writes, &ReportAccess::is_write));
}

std::string Lane(const ReportState& state, const ReportFunction& function, const std::string& id) {
  const size_t reads = CountAccesses(state, false);
  const size_t writes = CountAccesses(state, true);
  return fmt::format(
      "<div class=\"lane\"><div class=\"lane-label\"><code>{}</code><span>{}</span></div>"
      "<svg class=\"lane-chart\" role=\"img\" aria-labelledby=\"{}-t\" aria-describedby=\"{}-d\"><title "
      "id=\"{}-t\">State {}</title>"
      "<desc id=\"{}-d\">{} and {} along {} operations; update form {}.</desc>"
      "<line class=\"lane-line\" x1=\"0\" x2=\"100%\" y1=\"23\" y2=\"23\"/>{}{}</svg></div>",
      Html(state.name), Html(UpdateText(state)), id, id, id, Html(state.name), id, Counted(reads, "read"),
      Counted(writes, "write"), function.length, Html(state.form), Marks(state, false, function.length),
      Marks(state, true, function.length));
}

std::string Strip(const ReportPlacement& placement, size_t length, const std::string& id) {
  std::string rects;
  for (size_t i = 0; i < placement.segments.size(); ++i) {
    const ReportSegment& segment = placement.segments[i];
    const size_t begin = i == 0 ? 0 : segment.position;
    const size_t end = i + 1 < placement.segments.size() ? placement.segments[i + 1].position : length;
    const double x = 100.0 * static_cast<double>(begin) / static_cast<double>(length);
    const double width = 100.0 * static_cast<double>(end - begin) / static_cast<double>(length);
    rects += fmt::format(
        "<g><title>Segment {}: {} on {}, {} to {}, {:.2f} us</title>"
        "<rect class=\"unit-{}\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"4\" height=\"26\"/>"
        "<rect fill=\"url(#hatch-{})\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"4\" height=\"26\"/></g>",
        i + 1, Counted(segment.count, "operation"), UnitText(segment.unit), Html(segment.first), Html(segment.last),
        segment.us, ComputeUnitName(segment.unit), x, width, ComputeUnitName(segment.unit), x, width);
    if (i > 0) {
      rects += fmt::format("<line class=\"boundary\" x1=\"{:.3f}%\" x2=\"{:.3f}%\" y1=\"0\" y2=\"34\"/>", x, x);
    }
  }
  std::string ticks;
  double last = -1;
  for (const size_t position : placement.state_ops) {
    const double x = Percent(position, length);
    if (x - last < 0.1) continue;
    last = x;
    ticks += fmt::format("<line class=\"state-op\" x1=\"{:.2f}%\" x2=\"{:.2f}%\" y1=\"30\" y2=\"38\"/>", x, x);
  }
  const PlanShare& share = placement.share;
  return fmt::format(
      "<div class=\"lane\"><div class=\"lane-label\"><strong>Placement</strong><span>{}, {}</span></div>"
      "<svg class=\"strip-chart\" role=\"img\" aria-labelledby=\"{}-t\" aria-describedby=\"{}-d\"><title "
      "id=\"{}-t\">Predicted placement"
      "</title><desc id=\"{}-d\">{} of {} dispatchable operations on the ANE ({}), in {}; {} of states have no unit."
      "</desc>{}{}</svg></div>",
      Counted(placement.segments.size(), "segment"),
      placement.segments.size() == 2
          ? "1 boundary"
          : fmt::format("{} boundaries", placement.segments.empty() ? 0 : placement.segments.size() - 1),
      id, id, id, id, share.on_ane, share.dispatchable, Share(share.ByCount()),
      Counted(placement.segments.size(), "segment"), Counted(share.state_ops, "read or write"), rects, ticks);
}

// Round steps of 1, 2 or 5 times a power of ten: at most six labels.
std::string Axis(size_t length) {
  size_t step = 1;
  for (size_t factor = 0; length / step > 5; ++factor) step = factor % 3 == 1 ? step / 2 * 5 : step * 2;
  std::string labels;
  for (size_t position = 0; position < length; position += step) {
    const double x = 100.0 * static_cast<double>(position) / static_cast<double>(length);
    labels +=
        fmt::format("<line x1=\"{:.2f}%\" x2=\"{:.2f}%\" y1=\"0\" y2=\"5\"/><text x=\"{:.2f}%\" y=\"18\"{}>{}</text>",
                    x, x, x, position == 0 ? " class=\"first\"" : "", position);
  }
  return fmt::format(
      "<div class=\"lane axis\" aria-hidden=\"true\"><div class=\"lane-label\"></div><svg class=\"axis-chart\">{}</svg>"
      "</div>",
      labels);
}

std::string LegendEntry(std::string_view symbol, std::string_view text) {
  return fmt::format("<li><svg width=\"22\" height=\"16\" aria-hidden=\"true\">{}</svg>{}</li>", symbol, text);
}

std::string Legend(const ReportFunction& function) {
  std::string entries;
  if (function.placement.has_value()) {
    for (const ComputeUnit unit : {ComputeUnit::kAne, ComputeUnit::kCpu, ComputeUnit::kGpu, ComputeUnit::kUnknown}) {
      if (std::ranges::find(function.placement->segments, unit, &ReportSegment::unit) ==
          function.placement->segments.end()) {
        continue;
      }
      const std::string_view name = ComputeUnitName(unit);
      entries += LegendEntry(fmt::format("<rect class=\"unit-{}\" width=\"22\" height=\"16\"/>"
                                         "<rect fill=\"url(#hatch-{})\" width=\"22\" height=\"16\"/>",
                                         name, name),
                             UnitText(unit));
    }
    entries += LegendEntry("<line class=\"state-op\" x1=\"11\" x2=\"11\" y1=\"3\" y2=\"13\"/>", "state op, no unit");
  }
  if (!function.states.empty()) {
    entries += LegendEntry("<use href=\"#mark-read\" x=\"11\" y=\"0\"/>", "read");
    entries += LegendEntry("<use href=\"#mark-write\" x=\"11\" y=\"-27\"/>", "write");
  }
  return entries.empty() ? std::string() : fmt::format("<ul class=\"legend\">{}</ul>", entries);
}

std::string AccessTable(const ReportFunction& function) {
  std::string rows;
  size_t count = 0;
  for (const ReportState& state : function.states) {
    for (const ReportAccess& access : state.accesses) {
      if (count++ >= kTableRows) continue;
      rows += fmt::format("<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td><code>{}</code></td><td>{}</td></tr>",
                          access.position, Html(state.name), access.is_write ? "write" : "read", Html(access.op),
                          Html(access.form));
    }
  }
  return fmt::format(
      "<details><summary>Reads and writes as a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Reads and writes of {}\"><table><caption>Reads and writes of states in <code>{}</code></caption>"
      "<thead><tr><th scope=\"col\">Position</th><th scope=\"col\">State</th><th scope=\"col\">Access</th>"
      "<th scope=\"col\">Operation</th><th scope=\"col\">Update form</th></tr></thead><tbody>{}{}</tbody></table></div>"
      "</details>",
      Html(function.name), Html(function.name), rows, MoreRows(count, 5));
}

// A bar of the segments by estimated time, with the scaled part of each marked.
std::string CostStrip(const ReportPlacement& placement, const std::string& id) {
  std::string rects;
  double at = 0;
  for (const ReportSegment& segment : placement.segments) {
    const double width = 100 * segment.us / placement.share.total_us;
    const double scaled = 100 * segment.scaled_us / placement.share.total_us;
    const std::string_view unit = ComputeUnitName(segment.unit);
    rects += fmt::format(
        "<g><title>{:.2f} us on {}, {:.2f} us of it scaled</title>"
        "<rect class=\"unit-{}\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"0\" height=\"26\"/>"
        "<rect fill=\"url(#hatch-{})\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"0\" height=\"26\"/>"
        "<rect class=\"scaled\" x=\"{:.3f}%\" width=\"{:.3f}%\" y=\"29\" height=\"5\"/></g>",
        segment.us, UnitText(segment.unit), segment.scaled_us, unit, at, width, unit, at, width, at, scaled);
    at += width;
  }
  return fmt::format(
      "<div class=\"lane\"><div class=\"lane-label\"><strong>By cost</strong><span>{:.1f} us; the bar below marks "
      "scaled figures</span></div><svg class=\"strip-chart\" role=\"img\" aria-labelledby=\"{}-t\"><title id=\"{}-t\">"
      "Estimated time by unit: {} on the ANE</title>{}</svg></div>",
      placement.share.total_us, id, id, Share(placement.share.ByCost().value_or(0)), rects);
}

std::string SegmentTable(const ReportFunction& function) {
  const ReportPlacement& placement = *function.placement;
  std::string rows;
  for (size_t i = 0; i < std::min(placement.segments.size(), kTableRows); ++i) {
    const ReportSegment& segment = placement.segments[i];
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td><code>{}</code> … <code>{}</code></td>"
        "<td class=\"number\">{}{:.2f}</td><td class=\"number\">{}</td></tr>",
        i + 1, UnitText(segment.unit), segment.count, Html(segment.first), Html(segment.last),
        segment.scaled > 0 ? "~" : "", segment.us, segment.scaled);
  }
  return fmt::format(
      "<details><summary>{} as a table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"Segments of {}\"><table><caption>Segments of <code>{}</code>; ~ marks times with figures scaled "
      "from other shapes</caption><thead><tr><th scope=\"col\">Segment</th><th scope=\"col\">Unit</th><th "
      "scope=\"col\" "
      "class=\"number\">Operations</th><th scope=\"col\">From … to</th><th scope=\"col\" class=\"number\">us</th>"
      "<th scope=\"col\" class=\"number\">of them scaled</th></tr></thead><tbody>{}{}</tbody></table></div></details>",
      Counted(placement.segments.size(), "segment"), Html(function.name), Html(function.name), rows,
      MoreRows(placement.segments.size(), 6));
}

std::string Reasons(const ReportPlacement& placement) {
  if (placement.reasons.empty()) return {};
  std::string items;
  for (const ReportReason& reason : placement.reasons) {
    items += fmt::format("<li><strong>{}</strong>: {}", Counted(reason.count, "operation"), Html(reason.statement));
    items += fmt::format(" <span class=\"source\">({}{}{})</span>", Html(reason.basis),
                         reason.basis.empty() ? "" : ": ", Html(reason.source));
    if (!reason.conflict.empty()) items += fmt::format("<br>But: {}", Html(reason.conflict));
    items += "</li>";
  }
  return fmt::format("<details><summary>Why {} not on the Neural Engine</summary><ul>{}</ul></details>",
                     placement.share.dispatchable - placement.share.on_ane == 1
                         ? "1 operation is"
                         : fmt::format("{} operations are", placement.share.dispatchable - placement.share.on_ane),
                     items);
}

}  // namespace

std::string Counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string StatesFigure(const Report& report) {
  struct PackagedState {
    std::string_view package;
    const ReportState* state;
  };
  std::vector<PackagedState> states;
  int64_t largest = 1;
  for (const ReportFunction& function : report.functions) {
    for (const ReportState& state : function.states) {
      const bool known = std::ranges::any_of(states, [&](const PackagedState& other) {
        return other.package == function.package && other.state->name == state.name && other.state->type == state.type;
      });
      if (known) continue;
      states.push_back({function.package, &state});
      largest = std::max(largest, state.bytes);
    }
  }
  if (states.empty()) return "<p>This package keeps no states.</p>";
  std::string rows;
  for (size_t i = 0; i < states.size(); ++i) {
    const ReportState& state = *states[i].state;
    const double width = std::max(0.2, 100 * static_cast<double>(state.bytes) / static_cast<double>(largest));
    double step = 0;
    if (state.rows.has_value() && state.capacity.value_or(0) > 0) {
      step = std::min(width, width * static_cast<double>(*state.rows) / static_cast<double>(*state.capacity));
    }
    rows += fmt::format(
        "<div class=\"state\"><div class=\"state-name\"><code>{}</code><span>{}</span>{}</div>"
        "<svg class=\"state-bar\" role=\"img\" aria-labelledby=\"state{}-t\"><title id=\"state{}-t\">{}: {}, drawn to "
        "scale</title><rect class=\"bar\" width=\"{:.3f}%\" height=\"22\"/><rect class=\"bar-step\" width=\"{:.3f}%\" "
        "height=\"22\"/></svg><div class=\"state-facts\"><strong>{}</strong><span>role {}</span><span>{}</span></div>"
        "</div>",
        Html(state.name), Html(state.type),
        states[i].package.empty() ? "" : fmt::format("<span>{}</span>", Html(states[i].package)), i, i,
        Html(state.name), BytesText(state.bytes), width, step, BytesText(state.bytes), Html(state.role),
        Html(UpdateText(state)));
  }
  return fmt::format(
      "<figure class=\"states\"><figcaption>Lengths are bytes; the dark part is what one step of the first function "
      "with the state adds.</figcaption>{}</figure>",
      rows);
}

std::string TimelineFigure(const ReportFunction& function, size_t index) {
  if (function.length == 0) return "<p>No operations.</p>";
  std::string lanes;
  if (function.placement.has_value())
    lanes += Strip(*function.placement, function.length, fmt::format("strip{}", index));
  for (size_t i = 0; i < function.states.size(); ++i) {
    lanes += Lane(function.states[i], function, fmt::format("lane{}-{}", index, i));
  }
  if (lanes.empty()) return {};
  return fmt::format(
      "<figure class=\"timeline\"><figcaption>{} in program order, left to right; constants are left out.</figcaption>"
      "{}{}{}</figure>{}",
      Counted(function.length, "operation"), Legend(function), lanes, Axis(function.length),
      function.states.empty() ? "" : AccessTable(function));
}

std::string PlacementDetails(const ReportFunction& function, size_t index) {
  if (!function.placement.has_value()) {
    return fmt::format("<p class=\"quiet\">No placement: {}</p>", Html(function.no_placement));
  }
  const ReportPlacement& placement = *function.placement;
  const PlanShare& share = placement.share;
  std::string html = fmt::format(
      "<p><strong class=\"share\">{}</strong> of the dispatchable operations are predicted on the Neural Engine: {} of "
      "{}. {} are not, {} of them because no source speaks of them. Not counted: {} of states and {}.</p>",
      Share(share.ByCount()), share.on_ane, share.dispatchable, share.dispatchable - share.on_ane, share.unknown,
      Counted(share.state_ops, "operation"), Counted(share.constants, "constant"));
  const double scaled = share.total_us > 0 ? share.scaled_us / share.total_us : 0;
  if (const auto by_cost = share.ByCost(); by_cost.has_value()) {
    html += fmt::format(
        "<p><strong class=\"share\">{}</strong> by estimated cost: {:.2f} of {:.2f} us; {} of the time "
        "is scaled from other shapes.</p><div class=\"timeline\">{}</div>",
        Share(*by_cost), share.ane_us, share.total_us, Share(scaled),
        CostStrip(placement, fmt::format("cost{}", index)));
  } else if (share.total_us > 0) {
    html += fmt::format(
        "<p>No share by cost: {} of the estimated {:.2f} us is scaled from other shapes, and more than a "
        "third says too little.</p>",
        Share(scaled), share.total_us);
  }
  for (const std::string& note : placement.notes) html += fmt::format("<p class=\"quiet\">{}</p>", Html(note));
  return html + SegmentTable(function) + Reasons(placement);
}

std::string ChartSymbols() {
  return "<svg class=\"symbols\" aria-hidden=\"true\" focusable=\"false\"><defs>"
         "<pattern id=\"hatch-ane\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"></pattern>"
         "<pattern id=\"hatch-cpu\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" "
         "patternTransform=\"rotate(45)\"><line class=\"hatch\" x1=\"1\" x2=\"1\" y1=\"0\" y2=\"7\"/></pattern>"
         "<pattern id=\"hatch-gpu\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\">"
         "<circle class=\"hatch-dot\" cx=\"3\" cy=\"3\" r=\"1.3\"/></pattern>"
         "<pattern id=\"hatch-unknown\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
         "<path class=\"hatch\" d=\"M0 0L8 8M8 0L0 8\"/></pattern>"
         "<g id=\"mark-read\" class=\"mark-read\"><line x1=\"0\" x2=\"0\" y1=\"12\" y2=\"23\"/>"
         "<circle cx=\"0\" cy=\"8\" r=\"4\"/></g>"
         "<g id=\"mark-write\" class=\"mark-write\"><line x1=\"0\" x2=\"0\" y1=\"23\" y2=\"33\"/>"
         "<path d=\"M-5 32H5L0 41Z\"/></g></defs></svg>";
}

}  // namespace milwright
