#include "cli/check_settings.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file_io.h"
#include "check/config.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

namespace fs = std::filesystem;

// The packages directly in the folder at `path`, sorted by name; none when it is no folder.
std::vector<std::string> PackagesIn(const std::string& path) {
  std::vector<std::string> packages;
  const auto names = ListDirectory(path);
  if (!names.ok()) return packages;
  for (const std::string& name : *names) {
    const std::string extension = fs::path(name).extension().string();
    if (extension == ".mlpackage" || extension == ".mlmodelc") packages.push_back((fs::path(path) / name).string());
  }
  return packages;
}

Result<const Target*> TargetNamed(const std::string& name) {
  if (const Target* target = FindTarget(name); target != nullptr) return target;
  std::vector<std::string> known;
  for (const Target& target : AllTargets()) known.emplace_back(target.name);
  const std::string nearest = NearestWord(name, known);
  return Status(ErrorCode::kUsage,
                fmt::format("there is no target '{}'; {}", name,
                            nearest.empty() ? "see 'milwright targets'" : "did you mean '" + nearest + "'?"));
}

}  // namespace

std::string CheckSettings::NameInBaseline(const std::string& package) const {
  return is_folder ? fs::path(package).filename().string() : std::string();
}

Result<CheckSettings> GatherSettings(const CheckArguments& arguments) {
  CheckSettings settings;
  settings.packages = {arguments.path};
  if (!LocatePackage(arguments.path).ok()) {
    const std::vector<std::string> inside = PackagesIn(arguments.path);
    settings.is_folder = !inside.empty();
    if (settings.is_folder) settings.packages = inside;  // else opening the path says what is wrong with it
  }
  CheckConfig config;
  const std::string config_path =
      !arguments.config.empty() ? arguments.config : FindConfig(arguments.path, settings.is_folder);
  if (!config_path.empty()) {
    MW_ASSIGN_OR_RETURN(config, ReadConfig(config_path));
  }
  MW_ASSIGN_OR_RETURN(settings.target,
                      TargetNamed(!arguments.target.empty() ? arguments.target : config.target.value_or("any")));
  settings.fail_on = SeverityFromName(arguments.fail_on).value_or(config.fail_on.value_or(Severity::kError));
  settings.options = {std::string(settings.target->name), config.severities};
  std::vector<std::string> evidence = config.evidence;
  evidence.insert(evidence.end(), arguments.evidence.begin(), arguments.evidence.end());
  MW_ASSIGN_OR_RETURN(settings.observations, GatherObservations(evidence));
  settings.baseline_path = !arguments.baseline.empty() ? arguments.baseline : config.baseline;
  if (!settings.baseline_path.empty() && arguments.write_baseline.empty()) {
    MW_ASSIGN_OR_RETURN(settings.baseline, ReadBaseline(settings.baseline_path));
  }
  return settings;
}

}  // namespace milwright::cli
