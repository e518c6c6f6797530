// What a check goes by: options of the command line, then milwright.toml, then defaults.
#ifndef MILWRIGHT_CLI_CHECK_SETTINGS_H_
#define MILWRIGHT_CLI_CHECK_SETTINGS_H_

#include <optional>
#include <string>
#include <vector>

#include "check/baseline.h"
#include "check/ledger.h"
#include "check/rule.h"
#include "check/targets.h"
#include "cli/commands.h"

namespace milwright::cli {

struct CheckSettings {
  const Target* target = nullptr;
  Severity fail_on = Severity::kError;
  CheckOptions options;
  std::vector<Observation> observations;  ///< the ledger's, and those of the files
  std::optional<Baseline> baseline;
  std::string baseline_path;
  std::vector<std::string> packages;  ///< the path itself, or the packages in that folder
  bool is_folder = false;

  /// What a baseline calls the package: its file name in a folder, else nothing.
  [[nodiscard]] std::string NameInBaseline(const std::string& package) const;
};

/// kUsage: unknown target; kUnreadable: a configuration, baseline or ledger that does not read, or a folder that is
/// neither a package nor holds any.
Result<CheckSettings> GatherSettings(const CheckArguments& arguments);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_CHECK_SETTINGS_H_
