// The parts of an HTML report: escaping, charts, and the style and script that go with every page.
#ifndef MILWRIGHT_CHECK_REPORT_HTML_H_
#define MILWRIGHT_CHECK_REPORT_HTML_H_

#include <string>
#include <string_view>

#include "check/report.h"

namespace milwright {

/// src/check/html/report.css and report.js, compiled in.
std::string_view ReportCss();
std::string_view ReportJs();

/// `text` as HTML text or a quoted attribute: markup escaped, control characters and what is no UTF-8 written as \xNN.
std::string Html(std::string_view text);
/// "1 read", "3 reads".
std::string Counted(size_t count, std::string_view noun);

/// The states of all functions as bars whose lengths are their bytes; states that functions share stand once.
std::string StatesFigure(const Report& report);
/// One function from its first operation to its last: placement, and under it a lane for each state.
std::string TimelineFigure(const ReportFunction& function, size_t index);
/// The placement in numbers: shares with their counts, segments, and why operations are not on the ANE.
std::string PlacementDetails(const ReportFunction& function, size_t index);
/// The patterns and marks that the figures of a page use.
std::string ChartSymbols();

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_REPORT_HTML_H_
