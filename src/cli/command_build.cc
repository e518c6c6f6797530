#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "compress/compress.h"
#include "llm/build.h"
#include "llm/compress_folder.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

// Parses `text` into `target` when it is given.
template <typename T, typename Parser>
Status ParseInto(const std::string& text, Parser parse, T& target) {
  if (text.empty()) return Status::Ok();
  MW_ASSIGN_OR_RETURN(auto value, parse(text));
  target = std::move(value);
  return Status::Ok();
}

Result<BuildOptions> ReadOptions(const BuildArguments& arguments) {
  BuildOptions options;
  options.checkpoint = arguments.checkpoint;
  options.output = arguments.output;
  options.contract = arguments.contract;
  MW_RETURN_IF_ERROR(ParseInto(arguments.layout, ParseLayout, options.layout));
  MW_RETURN_IF_ERROR(ParseInto(arguments.update, ParseUpdate, options.update));
  MW_RETURN_IF_ERROR(ParseInto(arguments.hybrid_caches, ParseHybridCaches, options.hybrid_caches));
  MW_RETURN_IF_ERROR(ParseInto(arguments.style, ParseStyle, options.style));
  MW_RETURN_IF_ERROR(ParseInto(arguments.functions, ParseFunctions, options.functions));
  options.separate_functions = arguments.separate_functions;
  options.context_length = arguments.context_length;
  MW_RETURN_IF_ERROR(ParseInto(arguments.chunks, ParseChunks, options.chunks));
  MW_RETURN_IF_ERROR(ParseInto(arguments.embedding, ParseEmbedding, options.embedding));
  MW_RETURN_IF_ERROR(ParseInto(arguments.head, ParseHead, options.head));
  options.head_splits = arguments.head_splits;
  MW_RETURN_IF_ERROR(ParseInto(arguments.compute, ParseCompute, options.compute));
  MW_RETURN_IF_ERROR(ParseInto(arguments.cache_dtype, ParseCompute, options.cache_dtype));
  MW_RETURN_IF_ERROR(ParseInto(arguments.hybrid_dtype, ParseCompute, options.hybrid_dtype));
  MW_RETURN_IF_ERROR(ParseInto(arguments.hybrid_precision, ParseHybridPrecision, options.hybrid_precision));
  MW_RETURN_IF_ERROR(ParseInto(arguments.min_target, ParseMinTarget, options.min_target));
  options.hash_checkpoint = !arguments.no_hash;
  options.tool = "milwright " MILWRIGHT_VERSION;
  return options;
}

void PrintJson(const BuildReport& report) {
  Json json = {{"family", report.family},
               {"output", report.output},
               {"checkpoint_bytes", report.checkpoint_bytes},
               {"seconds", report.seconds}};
  for (const auto& package : report.packages)
    json["packages"].push_back({{"path", package.path}, {"bytes", package.bytes}});
  json["files"] = report.other_files;
  json["ignored_tensors"] = report.ignored.size();
  json["notes"] = report.notes;
  json["warnings"] = report.warnings;
  std::cout << json.dump(2) << "\n";
}

}  // namespace

int Build(const BuildArguments& arguments) {
  const auto options = ReadOptions(arguments);
  if (!options.ok()) return Fail(options.status());
  std::optional<CompressOptions> compression;
  if (!arguments.quantize.empty()) {
    auto parsed = ReadCompression(arguments.quantize, arguments.layers, arguments.threads);
    if (!parsed.ok()) return Fail(parsed.status());
    compression = *std::move(parsed);
  }
  const auto report = BuildCheckpoint(*options);
  if (!report.ok()) return Fail(report.status());
  std::optional<CompressReport> compressed;
  if (compression.has_value()) {
    auto done = CompressFolder(arguments.output, arguments.output, *compression);
    if (!done.ok()) return Fail(done.status());
    compressed = *std::move(done);
  }
  if (arguments.json) {
    PrintJson(*report);
    return kFine;
  }
  std::cout << fmt::format("{}: family {}, checkpoint {}, built in {:.2f} s\n", report->output, report->family,
                           Bytes(static_cast<int64_t>(report->checkpoint_bytes)), report->seconds);
  std::vector<std::vector<std::string>> rows;
  for (const auto& package : report->packages)
    rows.push_back({package.path, Bytes(static_cast<int64_t>(package.bytes))});
  for (const std::string& file : report->other_files) rows.push_back({file});
  std::cout << Table(rows);
  if (compressed.has_value()) PrintCompression(*compressed, 5);
  for (const std::string& note : report->notes) std::cout << "note: " << note << "\n";
  for (const std::string& warning : report->warnings)
    std::cout << Styled("warning: ", Style::kYellow) << warning << "\n";
  if (!report->ignored.empty())
    std::cout << fmt::format("{} tensors of the checkpoint are left aside\n", report->ignored.size());
  return kFine;
}

}  // namespace milwright::cli
