#include "llm/compress_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <set>

#include "base/file_io.h"
#include "format/package.h"
#include "llm/manifest.h"

namespace milwright {
namespace fs = std::filesystem;

Result<CompressReport> CompressPackage(const std::string& input, const std::string& output,
                                       const CompressOptions& options) {
  MW_ASSIGN_OR_RETURN(const ModelSpec before, OpenModel(input));
  ModelSpec model = before.Clone();
  WriteOptions write;
  write.immediates_of = &before;  // what is not compressed stays where it is
  MW_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(output, write));
  auto report = CompressModel(model, options, [&writer](const Tensor& part) {
    return writer.AddWeight(part.type(), [&part](const auto& emit) { return emit(part.bytes()); });
  });
  if (!report.ok()) return report.status().WithContext(input);
  MW_RETURN_IF_ERROR(writer.Write(model));
  return report;
}

Result<CompressReport> CompressFolder(const std::string& input, const std::string& output,
                                      const CompressOptions& options) {
  MW_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(input));
  std::error_code error;
  fs::create_directories(output, error);
  if (error) return Status(ErrorCode::kIo, fmt::format("{}: {}", output, error.message()));
  std::set<std::string> packages;
  for (const ManifestStage& stage : manifest.stages) {
    for (const ManifestFunction& function : stage.functions) packages.insert(function.package);
  }
  CompressReport report;
  for (const std::string& package : packages) {
    MW_ASSIGN_OR_RETURN(CompressReport done, CompressPackage(fmt::format("{}/{}", input, package),
                                                             fmt::format("{}/{}", output, package), options));
    std::ranges::move(done.weights, std::back_inserter(report.weights));
    std::ranges::move(done.notes, std::back_inserter(report.notes));
  }
  const bool in_place = fs::equivalent(input, output, error);
  for (const auto& entry : fs::directory_iterator(input, error)) {
    const std::string name = entry.path().filename();
    if (in_place || packages.contains(name) || name == kManifestName) continue;
    fs::copy(entry.path(), fs::path(output) / name, fs::copy_options::recursive | fs::copy_options::overwrite_existing,
             error);
    if (error) return Status(ErrorCode::kIo, fmt::format("{}: {}", entry.path().string(), error.message()));
  }
  manifest.provenance.options["quantize"] = CompressionText(options.format);
  for (const CompressionRule& rule : options.rules) {
    manifest.provenance.options["quantize " + rule.pattern] = CompressionText(rule.format);
  }
  MW_RETURN_IF_ERROR(WriteFileAtomically(fmt::format("{}/{}", output, kManifestName), FormatManifest(manifest)));
  return report;
}

}  // namespace milwright
