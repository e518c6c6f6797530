// What `check` and `check --fix` print alike.
#ifndef MILWRIGHT_CLI_CHECK_OUTPUT_H_
#define MILWRIGHT_CLI_CHECK_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "check/rule.h"
#include "check/verdict.h"
#include "cli/check_settings.h"

namespace milwright::cli {

/// "function/value" or the path of the op.
std::string Place(const Location& location);
void PrintFinding(const std::string& path, const Finding& finding);
nlohmann::ordered_json FindingJson(const Finding& finding);
void PrintVerdict(const std::string& path, const Verdict& verdict, const Target& target);
nlohmann::ordered_json VerdictJson(const Verdict& verdict, const Target& target);
/// "PATH: 1 errors, 0 warnings, 2 notes (target any)".
void PrintCounts(const std::string& path, const std::vector<Finding>& findings, const std::string& target);
bool AnyAtLeast(const std::vector<Finding>& findings, Severity severity);

/// `check --fix` of one package (command_check_fix.cc).
int CheckAndFix(const CheckArguments& arguments, const CheckSettings& settings);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_CHECK_OUTPUT_H_
