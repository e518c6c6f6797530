// Errors by the names that code returns them under.
#ifndef MILWRIGHT_BASE_ERRORS_H_
#define MILWRIGHT_BASE_ERRORS_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "milwright/status.h"

namespace milwright {

/// kUsage: what was asked for makes no sense.
inline Status Usage(std::string message) { return {ErrorCode::kUsage, std::move(message)}; }
/// kPrecondition: it makes sense, but not for this model.
inline Status Refuse(std::string message) { return {ErrorCode::kPrecondition, std::move(message)}; }
/// kUnreadable: what is wrong with the file at `path`.
inline Status Unreadable(const std::string& path, std::string_view what) {
  return {ErrorCode::kUnreadable, fmt::format("{}: {}", path, what)};
}
/// kInvalidProgram: the model breaks a rule.
inline Status Invalid(std::string message) { return {ErrorCode::kInvalidProgram, std::move(message)}; }

}  // namespace milwright

#endif  // MILWRIGHT_BASE_ERRORS_H_
