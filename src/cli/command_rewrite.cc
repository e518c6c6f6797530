#include <fmt/format.h>

#include <iostream>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"
#include "passes/diff.h"
#include "passes/documentation.h"
#include "passes/pass.h"
#include "passes/split_chunks.h"
#include "passes/verify_rewrite.h"

namespace milwright::cli {
namespace {

Result<std::vector<PassUse>> ParseAll(const std::vector<std::string>& texts) {
  std::vector<PassUse> uses;
  for (const std::string& text : texts) {
    MW_ASSIGN_OR_RETURN(std::vector<PassUse> parsed, ParsePasses(text));
    uses.insert(uses.end(), parsed.begin(), parsed.end());
  }
  return uses;
}

void PrintChange(const Pass& pass, const Program& before, const Program& after) {
  std::cout << Styled(fmt::format("{}:", pass.name), Style::kBold) << "\n" << DiffText(DiffPrograms(before, after));
}

void PrintResults(const RewriteArguments& arguments, const std::vector<PassResult>& results) {
  std::vector<std::vector<std::string>> rows;
  for (const PassResult& result : results) {
    rows.push_back({result.name, result.changed ? "changed" : "unchanged"});
    if (arguments.time_passes) rows.back().push_back(fmt::format("{:.1f} ms", result.seconds * 1e3));
    for (const std::string& note : result.report.notes) rows.push_back({"", note});
    for (const std::string& note : result.report.assumptions) rows.push_back({"", "assumes: " + note});
  }
  std::cout << Table(rows);
}

// Runs both; prints what differs. The exit code.
int VerifyEqual(const ModelSpec& before, const ModelSpec& after, const std::vector<PassUse>& uses) {
  const auto report = CompareRewritten(before, after, uses);
  if (!report.ok()) return Fail(report.status());
  if (report->equal()) {
    std::cout << fmt::format("equal over {} steps\n", report->steps);
    return kFine;
  }
  for (const std::string& fault : report->faults) std::cerr << "milwright: not equal: " << fault << "\n";
  for (const ComparedValue& value : report->values) {
    if (!value.worst.passed()) std::cerr << "milwright: not equal: " << DescribeDifference(value) << "\n";
  }
  return kFindings;
}

// split-chunks at the end makes a folder of packages.
bool MakesChunks(const std::vector<PassUse>& uses) {
  return !uses.empty() && uses.back().pass->name == "split-chunks" && !uses.back().arguments.Has("chunk");
}

int WriteInChunks(const ModelSpec& model, const PassUse& use, const RewriteArguments& arguments,
                  const WriteOptions& write) {
  const auto options = ParseChunkOptions(use.arguments);
  if (!options.ok()) return Fail(options.status());
  PassReport report;
  const auto chunked = SplitChunks(model, *options, report);
  if (!chunked.ok()) return Fail(chunked.status().WithContext(arguments.path));
  for (const std::string& note : report.notes) std::cout << note << "\n";
  if (const Status status = WriteChunks(*chunked, arguments.output, write); !status.ok()) return Fail(status);
  return kFine;
}

}  // namespace

int Rewrite(const RewriteArguments& arguments) {
  if (arguments.list_passes) {
    std::cout << PassesPage();
    return kFine;
  }
  if (arguments.path.empty() || arguments.output.empty() || arguments.passes.empty()) {
    return Fail(
        Status(ErrorCode::kUsage, "rewrite takes a package, -o OUT and --pass; --list-passes shows the passes"));
  }
  auto uses = ParseAll(arguments.passes);
  if (!uses.ok()) return Fail(uses.status());
  std::optional<PassUse> chunks;
  if (MakesChunks(*uses)) {
    if (arguments.verify_equal) {
      return Fail(Status(ErrorCode::kUsage, "--verify-equal compares one package, but split-chunks makes several"));
    }
    chunks = uses->back();
    uses->pop_back();
  }
  const auto before = OpenModel(arguments.path);
  if (!before.ok()) return Fail(before.status());
  ModelSpec model = before->Clone();
  PassManagerOptions options;
  options.verify_each = arguments.verify_each;
  if (arguments.print_changed) options.on_changed = PrintChange;
  const auto results = RunPasses(model, *uses, options);
  if (!results.ok()) return Fail(results.status().WithContext(arguments.path));
  PrintResults(arguments, *results);
  if (arguments.verify_equal) {
    if (const int code = VerifyEqual(*before, model, *uses); code != kFine) return code;
  }
  WriteOptions write;
  write.immediates_of = &*before;
  if (chunks.has_value()) return WriteInChunks(model, *chunks, arguments, write);
  if (const Status status = WriteModel(model, arguments.output, write); !status.ok()) return Fail(status);
  return kFine;
}

}  // namespace milwright::cli
