#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "compress/compress.h"
#include "llm/compress_folder.h"
#include "llm/manifest.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Result<CompressOptions> ReadCompression(const std::string& format, const std::vector<std::string>& layers,
                                        int threads) {
  CompressOptions options;
  options.threads = threads;
  MW_ASSIGN_OR_RETURN(options.format, ParseCompression(format));
  for (const std::string& layer : layers) {
    const size_t equals = layer.rfind('=');
    if (equals == std::string::npos) {
      return Status(ErrorCode::kUsage, fmt::format("--layer takes REGEX=FORMAT, not '{}'", layer));
    }
    MW_ASSIGN_OR_RETURN(CompressionFormat own, ParseCompression(layer.substr(equals + 1)));
    options.rules.push_back({layer.substr(0, equals), own});
  }
  return options;
}

void PrintCompression(const CompressReport& report, size_t worst) {
  int64_t before = 0;
  int64_t after = 0;
  for (const CompressedWeight& weight : report.weights) {
    before += weight.bytes_before;
    after += weight.bytes_after;
  }
  std::cout << fmt::format("{} weights compressed: {} -> {}\n", report.weights.size(), Bytes(before), Bytes(after));
  std::vector<CompressedWeight> sorted = report.weights;
  std::ranges::stable_sort(sorted, std::greater<>(), &CompressedWeight::relative_error);
  std::vector<std::vector<std::string>> rows;
  if (!sorted.empty()) rows.push_back({"worst", "shape", "format", "relative error", "largest error"});
  for (size_t i = 0; i < sorted.size() && i < worst; ++i) {
    rows.push_back({sorted[i].name, ShapeToString(sorted[i].shape), sorted[i].format,
                    fmt::format("{:.4f}", sorted[i].relative_error), fmt::format("{:.4g}", sorted[i].max_error)});
  }
  std::cout << Table(rows);
  for (const std::string& note : report.notes) std::cout << "note: " << note << "\n";
}

int Compress(const CompressArguments& arguments) {
  const auto options = ReadCompression(arguments.quantize, arguments.layers, arguments.threads);
  if (!options.ok()) return Fail(options.status());
  CompressReport report;
  if (std::filesystem::exists(std::filesystem::path(arguments.path) / kManifestName)) {
    auto done = CompressFolder(arguments.path, arguments.output, *options);
    if (!done.ok()) return Fail(done.status());
    report = *std::move(done);
  } else {
    auto done = CompressPackage(arguments.path, arguments.output, *options);
    if (!done.ok()) return Fail(done.status());
    report = *std::move(done);
  }
  if (!arguments.json) {
    PrintCompression(report, static_cast<size_t>(arguments.worst));
    return kFine;
  }
  Json json = {{"output", arguments.output}, {"weights", Json::array()}, {"notes", report.notes}};
  for (const CompressedWeight& weight : report.weights) {
    json["weights"].push_back({{"name", weight.name},
                               {"shape", weight.shape},
                               {"format", weight.format},
                               {"bytes_before", weight.bytes_before},
                               {"bytes_after", weight.bytes_after},
                               {"relative_error", weight.relative_error},
                               {"max_error", weight.max_error}});
  }
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return kFine;
}

}  // namespace milwright::cli
