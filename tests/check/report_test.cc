// Reports: what is collected of a package, and that every format says it, whatever names the package holds. The full
// SARIF schema and a real browser have tests of their own (tests/sarif, tests/browser).
#include "check/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "check/report_html.h"
#include "check/targets.h"
#include "format/package.h"
#include "support/files.h"
#include "support/small_model.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::DataDir;
using ::testing::HasSubstr;
using testing::MakeSpec;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using Json = nlohmann::json;

constexpr std::string_view kHostile = "</script><img src=x onerror=alert(1)>\"'&\x1b[2J\xff";

Report ReportOn(const ModelSpec& model, const std::string& path, const std::string& target) {
  const Target& to = *FindTarget(target);
  const auto& observations = BuiltInLedger().observations;
  const std::vector<Finding> findings = CheckModel(model, {target, {}});
  return CollectReport(model, {path, "0.0.1", &to, observations}, findings,
                       JudgeModel(model, to, observations, findings));
}

// A run over one package.
ReportSet Alone(Report report) {
  ReportSet set;
  set.path = report.path;
  set.packages.push_back(std::move(report));
  return set;
}

Report ReportOnFixture(const std::string& name, const std::string& target) {
  const auto model = OpenModel((DataDir() / name).string());
  EXPECT_OK(model);
  return ReportOn(*model, name, target);
}

// A state of 8 rows of 4, updated at a position known at run time, and read before and after.
ModelSpec CacheModel(const std::string& state_name, const std::string& function_name = "main") {
  return MakeSpec(
      [&](Function& function, Builder& b) {
        Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 1, 1, 4}));
        Value* begin = function.AddInput("begin", Type::Tensor(DataType::kInt32, {4}));
        Value* end = function.AddInput("end", Type::Tensor(DataType::kInt32, {4}));
        Value* state = function.AddInput(state_name, Type::State({DataType::kFp16, {1, 1, 8, 4}}));
        Value* old = b.Op("read_state", {{"input", state}});
        Value* updated = b.Op("slice_update", {{"x", old}, {"update", x}, {"begin", begin}, {"end", end}});
        b.Op("write_state", {{"input", state}, {"data", updated}});
        Value* now = b.Op("read_state", {{"input", state}});
        function.body().SetOutputs({b.Op("relu", {{"x", now}})});
      },
      function_name);
}

size_t Occurrences(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

TEST(Report, CollectsStatesAndBudget) {
  const Report report = ReportOn(CacheModel("cache"), "a.mlpackage", "ane-ios26");
  ASSERT_EQ(report.functions.size(), 1U);
  const ReportFunction& function = report.functions.front();
  ASSERT_EQ(function.states.size(), 1U);
  const ReportState& state = function.states.front();
  EXPECT_EQ(state.name, "cache");
  EXPECT_EQ(state.bytes, 8 * 4 * 2);
  ASSERT_EQ(state.accesses.size(), 3U);
  EXPECT_FALSE(state.accesses[0].is_write);
  EXPECT_TRUE(state.accesses[1].is_write);
  EXPECT_EQ(state.accesses[1].form, "slice_update_dynamic");
  EXPECT_FALSE(state.accesses[2].is_write);
  EXPECT_LT(state.accesses[0].position, state.accesses[1].position);
  EXPECT_LT(state.accesses[1].position, state.accesses[2].position);
  EXPECT_LT(state.accesses[2].position, function.length);
  EXPECT_EQ(function.budget.state_bytes, 64);
  EXPECT_EQ(function.budget.state_read_bytes, 128);
  EXPECT_EQ(function.budget.input_bytes, 4 * 2 + 2 * 4 * 4);
  EXPECT_EQ(function.budget.output_bytes, 64);
}

TEST(Report, CollectsStepsUntilFullAndPlacement) {
  const Report report = ReportOnFixture("packages/b_slice.mlpackage", "ane-macos26");
  const ReportFunction& function = report.functions.front();
  EXPECT_EQ(function.budget.steps, 64);  // 64 rows, one a step
  ASSERT_TRUE(function.placement.has_value());
  size_t in_segments = 0;
  for (const ReportSegment& segment : function.placement->segments) in_segments += segment.count;
  EXPECT_EQ(in_segments, function.placement->share.dispatchable);
  size_t with_reason = 0;
  for (const ReportReason& reason : function.placement->reasons) with_reason += reason.count;
  EXPECT_EQ(with_reason, function.placement->share.dispatchable - function.placement->share.on_ane);
  EXPECT_EQ(function.length, function.placement->share.dispatchable + function.placement->share.state_ops);
  for (const ReportVerdict& verdict : report.verdicts) {
    for (const ReportNeighbour& neighbour : verdict.nearest) EXPECT_TRUE(report.observations.contains(neighbour.id));
    for (const std::string& cause : verdict.causes) EXPECT_TRUE(report.hypotheses.contains(cause));
  }
  EXPECT_FALSE(ReportOnFixture("packages/b_slice.mlpackage", "gpu").functions.front().no_placement.empty());
}

TEST(Report, ShellWordsSurviveAShell) {
  for (const std::string word :
       {"plain/path-1.mlpackage", "with space", "it's", "$(touch x)`ls`;\"\\", "-o", "", "a\nb"}) {
    FILE* pipe = popen(("printf %s " + ShellWord(word)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string echoed(256, '\0');
    echoed.resize(fread(echoed.data(), 1, echoed.size(), pipe));
    pclose(pipe);
    EXPECT_EQ(echoed, word == "-o" ? "./-o" : word);
  }
  EXPECT_EQ(ShellWord("plain/path-1.mlpackage"), "plain/path-1.mlpackage");
}

TEST(Report, TextKeepsNamesOnTheirLine) {
  Report report = ReportOnFixture("state-semantics/T02.mlpackage", "any");
  ASSERT_FALSE(report.findings.empty());
  report.findings.front().finding.message = kHostile;
  const std::string text = WriteTextReport(report, false);
  EXPECT_TRUE(IsUtf8(text));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\\x1b[2J\\xff"));
  EXPECT_THAT(WriteTextReport(report, true), HasSubstr("\x1b[33m: warning: \x1b[0m"));
}

TEST(Report, GithubCommandsAreEscaped) {
  Report report;
  report.path = "a,b:c%.mlpackage";
  Finding finding;
  finding.id = "MW210";
  finding.severity = Severity::kError;
  finding.location.function = "main";
  finding.message = "100% wrong\n::error::second\r";
  report.findings.push_back({finding, "milwright rewrite x"});
  EXPECT_EQ(WriteGithubReport(report),
            "::error file=a%2Cb%3Ac%25.mlpackage,title=MW210 order-unsafe::main: 100%25 wrong%0A::error::second\\x0d%0A"
            "fix: milwright rewrite x\n");
}

TEST(Report, JsonSaysWhatTheReportHolds) {
  const Report report = ReportOnFixture("packages/b_slice.mlpackage", "ane-ios26");
  const Json json = Json::parse(WriteJsonReport(Alone(report)), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["findings"].size(), report.findings.size());
  EXPECT_EQ(json["verdicts"].size(), report.functions.size());
  EXPECT_EQ(json["functions"][0]["states"][0]["bytes"], report.functions[0].states[0].bytes);
  EXPECT_EQ(json["functions"][0]["budget"]["steps"], 64);
}

// The chunks of a model: one SARIF run, one list, one page on which states of different packages stay apart.
TEST(Report, FoldersAreOneReport) {
  ReportSet set;
  set.path = "chunks";
  set.is_folder = true;
  for (const std::string name : {"chunks/a.mlpackage", "chunks/b.mlpackage"}) {
    set.packages.push_back(ReportOn(CacheModel("cache"), name, "ane-ios26"));
  }
  const size_t findings = set.packages[0].findings.size();
  const Json json = Json::parse(WriteReports(set, ReportFormat::kJson));
  EXPECT_EQ(json["packages"].size(), 2U);
  EXPECT_EQ(json["packages"][1]["path"], "chunks/b.mlpackage");
  const Json log = Json::parse(WriteReports(set, ReportFormat::kSarif));
  ASSERT_EQ(log["runs"].size(), 1U);
  EXPECT_EQ(log["runs"][0]["artifacts"].size(), 2U);
  EXPECT_EQ(log["runs"][0]["results"].size(), 2 * findings);
  EXPECT_EQ(log["runs"][0]["results"].back()["locations"][0]["physicalLocation"]["artifactLocation"]["index"], 1);
  const Report all = CombineReports(set);
  EXPECT_EQ(all.functions.size(), 2U);
  EXPECT_EQ(all.findings.size(), 2 * findings);
  const std::string html = WriteReports(set, ReportFormat::kHtml);
  EXPECT_EQ(Occurrences(html, "class=\"state-bar\""), 2U);
  EXPECT_THAT(html, HasSubstr("b.mlpackage: main"));
}

// What the SARIF standard asks of a log, without the schema: tests/sarif holds the whole of it.
TEST(Report, SarifHasWhatTheStandardAsksFor) {
  Report report = ReportOn(CacheModel("cache"), "dir with space/ü.mlpackage", "ane-ios26");
  Finding hostile;
  hostile.id = "MW210";
  hostile.message = kHostile;
  hostile.location = {std::string(kHostile), {}, std::string(kHostile)};
  hostile.fix = FixIt{"dead-code-elimination", true};
  report.findings.push_back({hostile, "milwright rewrite x"});
  const Json log = Json::parse(WriteSarifReport(Alone(report)), nullptr, false);
  ASSERT_FALSE(log.is_discarded());
  EXPECT_EQ(log["version"], "2.1.0");
  ASSERT_EQ(log["runs"].size(), 1U);
  const Json& run = log["runs"][0];
  const Json& driver = run["tool"]["driver"];
  EXPECT_EQ(driver["name"], "Milwright");
  ASSERT_EQ(driver["rules"].size(), AllRules().size());
  for (const Json& rule : driver["rules"]) {
    EXPECT_FALSE(rule["shortDescription"]["text"].get<std::string>().empty());
    EXPECT_THAT(rule["help"]["markdown"].get<std::string>(), StartsWith("# " + rule["id"].get<std::string>()));
    EXPECT_TRUE(rule["defaultConfiguration"].contains("level"));
  }
  EXPECT_EQ(run["artifacts"][0]["location"]["uri"], "dir%20with%20space/%C3%BC.mlpackage");
  ASSERT_EQ(run["results"].size(), report.findings.size());
  std::set<std::string> fingerprints;
  for (const Json& result : run["results"]) {
    const auto index = result["ruleIndex"].get<size_t>();
    EXPECT_EQ(driver["rules"][index]["id"], result["ruleId"]);
    EXPECT_FALSE(result["message"]["text"].get<std::string>().empty());
    ASSERT_EQ(result["locations"].size(), 1U);
    EXPECT_EQ(result["locations"][0]["physicalLocation"]["artifactLocation"]["index"], 0);
    EXPECT_EQ(result["partialFingerprints"]["milwrightPlace/v1"].get<std::string>().size(), 64U);
    fingerprints.insert(result["partialFingerprints"]["milwrightPlace/v1"]);
    if (result.contains("fixes")) {
      EXPECT_FALSE(result["fixes"][0]["artifactChanges"][0]["replacements"].empty());
    }
  }
  EXPECT_EQ(fingerprints.size(), run["results"].size());
  EXPECT_TRUE(run["results"].back().contains("fixes"));
}

// An edit elsewhere in a program moves op numbers; the same finding stays the same to those who track it.
TEST(Report, FingerprintsOutliveOpNumbers) {
  const auto fingerprint = [](const std::string& op_path) {
    Report report;
    Finding finding;
    finding.id = "MW210";
    finding.location = {"main", op_path, {}};
    report.findings.push_back({finding, {}});
    return Json::parse(WriteSarifReport(Alone(report)))["runs"][0]["results"][0]["partialFingerprints"].dump();
  };
  EXPECT_EQ(fingerprint("main/block0/op 17 'x' (add)"), fingerprint("main/block0/op 4 'x' (add)"));
  EXPECT_NE(fingerprint("main/op 17 'x' (add)"), fingerprint("main/op 17 'y' (add)"));
  EXPECT_EQ(fingerprint("main/op 17"), fingerprint("main/op 4"));
}

TEST(Report, HtmlHoldsNoMarkupFromNames) {
  const std::string name(kHostile);
  Report report = ReportOn(CacheModel(name, name), name + ".mlpackage", "ane-ios26");
  Finding finding;
  finding.id = "MW210";
  finding.location = {name, name, name};
  finding.message = name;
  finding.notes = {name};
  finding.fix = FixIt{name, false};
  report.findings.push_back({finding, "milwright rewrite " + ShellWord(name)});
  ReportObservation evil;
  evil.source_url = "javascript:alert(1)";
  evil.source_title = name;
  report.observations.emplace(name, evil);
  ReportVerdict verdict;
  verdict.function = verdict.why = verdict.text = name;
  verdict.causes = verdict.dismissed = {name};
  verdict.nearest = {{name, 0, {name}}};
  report.verdicts.push_back(verdict);
  report.functions.front().placement->notes.push_back(name);
  const std::string html = WriteHtmlReport(report);
  EXPECT_TRUE(IsUtf8(html));
  EXPECT_EQ(Occurrences(html, "<script"), 1U);
  EXPECT_EQ(Occurrences(html, "</script"), 1U);
  EXPECT_EQ(Occurrences(html, "<img"), 0U);
  EXPECT_EQ(Occurrences(html, "\x1b"), 0U);
  EXPECT_THAT(html, Not(HasSubstr("href=\"javascript")));
  EXPECT_GE(Occurrences(html, "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"), 10U);
}

// The page asks for nothing: no address but links that a reader may follow.
TEST(Report, HtmlIsSelfContained) {
  const std::string html = WriteHtmlReport(ReportOnFixture("packages/i_multifunction_int4.mlpackage", "ane-ios26"));
  for (const std::string_view attribute : {" src=", "@import", "url(http", "<link rel=\"stylesheet\"", "srcset"}) {
    EXPECT_THAT(html, Not(HasSubstr(attribute)));
  }
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, HasSubstr(ReportCss()));
  EXPECT_THAT(html, HasSubstr(ReportJs()));
}

// Costs are shown as a share only while at most a third rests on scaled figures; units are named, not only coloured.
TEST(Report, HtmlShowsPlacementOfAllUnits) {
  ReportFunction function;
  function.name = "main";
  function.length = 12;
  ReportPlacement& placement = function.placement.emplace();
  placement.share = {10, 6, 1, 2, 3, 100, 75, 20};
  placement.segments = {{ComputeUnit::kAne, 0, 6, 0, 75, 0, "a", "b"},
                        {ComputeUnit::kGpu, 7, 3, 1, 15, 10, "c", "d"},
                        {ComputeUnit::kCpu, 11, 1, 1, 10, 10, "e", "e"}};
  placement.state_ops = {6, 10};
  const std::string timeline = TimelineFigure(function, 0);
  EXPECT_EQ(Occurrences(timeline, "class=\"boundary\""), 2U);
  EXPECT_EQ(Occurrences(timeline, "class=\"state-op\""), 3U);  // two, and one in the legend
  for (const std::string_view unit : {"url(#hatch-ane)", "url(#hatch-gpu)", "url(#hatch-cpu)"}) {
    EXPECT_EQ(Occurrences(timeline, unit), 2U) << unit;
  }
  EXPECT_THAT(timeline, HasSubstr("6 of 10 dispatchable operations on the ANE (60.0 %)"));
  const std::string details = PlacementDetails(function, 0);
  EXPECT_THAT(details, HasSubstr("<strong class=\"share\">75.0 %</strong> by estimated cost"));
  EXPECT_EQ(Occurrences(details, "class=\"scaled\""), 3U);
  placement.share.scaled_us = 40;
  EXPECT_THAT(PlacementDetails(function, 0), HasSubstr("No share by cost: 40.0 % of the estimated 100.00 us"));
}

// A state with very many accesses is drawn with at most one mark for each thousandth of the line.
TEST(Report, HtmlStaysSmallOnHugePrograms) {
  ReportFunction function;
  function.name = "main";
  function.length = 1'000'000;
  ReportState state;
  state.name = "s";
  for (size_t i = 0; i < function.length; i += 5) state.accesses.push_back({i % 10 == 0, i, "op", "mask_blend", {}});
  function.states.push_back(std::move(state));
  EXPECT_LT(TimelineFigure(function, 0).size(), 1'000'000U);
}

// The official schema and the validation rules of Microsoft's SARIF Multitool (npm; scripts/test_sarif installs it).
TEST(Report, SarifValidatorFindsNothingWrong) {
  const std::filesystem::path tool =
      std::filesystem::path(MILWRIGHT_SOURCE_DIR) / "tests/sarif/node_modules/.bin/sarif-multitool";
  if (!std::filesystem::exists(tool)) GTEST_SKIP() << "no " << tool << ": run scripts/test_sarif";
  const TemporaryFolder folder;
  std::string files;
  for (const std::string name : {"packages/b_slice", "packages/i_multifunction_int4", "state-semantics/T02",
                                 "state-semantics/T07", "packages/a_accumulator"}) {
    for (const std::string target : {"ane-ios26", "any"}) {
      const std::string file =
          fmt::format("{}/{}_{}.sarif", folder.Path(), std::filesystem::path(name).filename().string(), target);
      std::ofstream(file) << WriteSarifReport(Alone(ReportOnFixture(name + ".mlpackage", target)));
      files += " " + file;
    }
  }
  FILE* pipe = popen((tool.string() + " validate" + files + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c);
  pclose(pipe);
  EXPECT_THAT(output, HasSubstr("Analysis completed successfully"));
  EXPECT_EQ(Occurrences(output, ": error "), 0U) << output;
}

}  // namespace
}  // namespace milwright
