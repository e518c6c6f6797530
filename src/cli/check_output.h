// What `check` and `check --fix` share.
#ifndef MILWRIGHT_CLI_CHECK_OUTPUT_H_
#define MILWRIGHT_CLI_CHECK_OUTPUT_H_

#include <string>

#include "check/report.h"
#include "cli/check_settings.h"

namespace milwright::cli {

/// Checks and judges `model`; findings that the baseline accepts are left out and counted.
Report ReportOn(const ModelSpec& model, const std::string& path, const CheckSettings& settings, ReportFormat format);
bool AnyAtLeast(const Report& report, Severity severity);

/// `check --fix` of one package (command_check_fix.cc).
int CheckAndFix(const CheckArguments& arguments, const CheckSettings& settings);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_CHECK_OUTPUT_H_
