// Status and Result: how every fallible function of Milwright reports failure.
//
// The library throws nothing across its API. A function that can fail returns `Status`, or `Result<T>` where there is a
// value. Both are [[nodiscard]].
#ifndef MILWRIGHT_STATUS_H_
#define MILWRIGHT_STATUS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace milwright {

/// What kind of failure a Status carries; the command line maps kinds to exit codes (`ExitCodeFor` in cli).
enum class ErrorCode {
  kOk,
  kUsage,           ///< the caller asked for something that makes no sense (wrong name, wrong shape, bad option)
  kUnreadable,      ///< the input file is missing, truncated, hostile or of another kind
  kInvalidProgram,  ///< the file reads, but the program in it breaks a rule of the format
  kPrecondition,    ///< a pass or a build refuses: what it needs does not hold
  kRuntime,         ///< a prediction failed (index out of range, state busy, ...)
  kIo,              ///< writing failed
  kInternal,        ///< a bug in Milwright
};

/// Success, or an error code with one line of text that names file, place, what is wrong and what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  [[nodiscard]] bool ok() const { return code_ == ErrorCode::kOk; }
  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

  /// The same error with `context` and ": " put in front of its message; success stays success.
  [[nodiscard]] Status WithContext(std::string_view context) const {
    if (ok()) return *this;
    std::string text(context);
    text += ": ";
    text += message_;
    return {code_, std::move(text)};
  }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): `return value;`
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor): `return error;`
    if (status_.ok()) status_ = Status(ErrorCode::kInternal, "Result made from an ok Status");
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }

  /// The value; only when ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T operator*() && { return std::move(*value_); }  // by value, so that `for (x : *F())` does not dangle
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

namespace internal {
inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}
}  // namespace internal

}  // namespace milwright

#define MW_CONCAT_INNER(a, b) a##b
#define MW_CONCAT(a, b) MW_CONCAT_INNER(a, b)

/// Returns the error of `expr` (a Status or Result) from the enclosing function, if it has one.
#define MW_RETURN_IF_ERROR(expr)                                 \
  do {                                                           \
    if (const auto& mw_status_or = (expr); !mw_status_or.ok()) { \
      return ::milwright::internal::StatusOf(mw_status_or);      \
    }                                                            \
  } while (false)

/// `MW_ASSIGN_OR_RETURN(auto x, F());` defines x from the Result of F(), or returns its error.
// NOLINTBEGIN(bugprone-macro-parentheses): a declaration cannot stand in parentheses
#define MW_ASSIGN_OR_RETURN(declaration, expr) \
  MW_ASSIGN_OR_RETURN_IMPL(MW_CONCAT(mw_result_, __LINE__), declaration, expr)
#define MW_ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                     \
  if (!result.ok()) return result.status();                 \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)

#endif  // MILWRIGHT_STATUS_H_
