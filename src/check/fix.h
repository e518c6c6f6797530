// Fixes: applies the passes that rules name, one finding after the other.
#ifndef MILWRIGHT_CHECK_FIX_H_
#define MILWRIGHT_CHECK_FIX_H_

#include <functional>
#include <string>
#include <vector>

#include "check/rule.h"
#include "passes/pass.h"

namespace milwright {

struct FixOptions {
  CheckOptions check;
  Severity at_least = Severity::kWarning;        ///< findings below it are left alone
  std::function<bool(const Finding&)> accepted;  ///< findings that are left alone too; may be empty
};

/// One fix that was tried.
struct FixAttempt {
  Finding finding;  ///< what it was tried for; other findings of the same fix went with it
  std::vector<PassUse> uses;
  std::vector<PassResult> results;
  std::string refusal;  ///< why the pass refused; empty: applied

  [[nodiscard]] bool applied() const { return refusal.empty(); }
};

struct FixResult {
  ModelSpec model;
  std::vector<FixAttempt> attempts;
  std::vector<Finding> findings;  ///< of `model`

  /// The passes that were applied, in order.
  [[nodiscard]] std::vector<PassUse> uses() const;
};

/// The steps that show that `result` computes the same as `before`: 16, and where a window became a ring, until after
/// its first turn (but at most 1024).
int StepsToProve(const ModelSpec& before, const FixResult& result);

/// Checks `model`, applies the safe fix of the worst finding that has one, and checks again, until no finding names a
/// safe fix that was not tried. A pass that refuses leaves the model as it was. What comes out is verified; that it
/// computes the same is the caller's to prove (CompareRewritten).
Result<FixResult> ApplyFixes(const ModelSpec& model, const FixOptions& options);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_FIX_H_
