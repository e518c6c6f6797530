// milwright.toml: what a project has decided about `check`, beside its packages.
#ifndef MILWRIGHT_CHECK_CONFIG_H_
#define MILWRIGHT_CHECK_CONFIG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/rule.h"
#include "milwright/status.h"

namespace milwright {

/// The keys of [check]; docs/check.md shows them.
struct CheckConfig {
  std::string path;  ///< the file; empty: none
  std::optional<std::string> target;
  std::optional<Severity> fail_on;
  std::map<std::string, Severity, std::less<>> severities;  ///< by rule id; kOff for disabled ones
  std::vector<std::string> evidence;                        ///< paths; relative ones start at the file's folder
  std::string baseline;                                     ///< the same; empty: none
};

/// Reads one file. kUnreadable with file:line:column for text that is no TOML, keys that do not exist, and values that
/// are wrong.
Result<CheckConfig> ReadConfig(const std::string& path);

/// The milwright.toml that holds for the package or folder of packages at `path`: the first one in the folder around
/// the package (in the folder itself), and those above it, up to the root of a git repository or of the file system.
/// Empty: none.
std::string FindConfig(const std::string& path, bool is_folder);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_CONFIG_H_
