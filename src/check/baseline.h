// Baselines: findings of today that a team accepts, so that only new ones fail.
#ifndef MILWRIGHT_CHECK_BASELINE_H_
#define MILWRIGHT_CHECK_BASELINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/rule.h"

namespace milwright {

/// What a finding is known by from one build to the next. Equal entries are one.
struct BaselineEntry {
  std::string package;  ///< file name, where a folder of packages was checked; else empty: any
  std::string rule;
  std::string function;
  std::string place;  ///< the value, else the path of the op without its number

  auto operator<=>(const BaselineEntry&) const = default;  // NOLINT(modernize-use-nullptr): a mistake of clang-tidy 14
};

BaselineEntry EntryFor(const Finding& finding, std::string_view package = {});

class Baseline {
 public:
  Baseline() = default;
  explicit Baseline(std::vector<BaselineEntry> entries);

  /// Whether `finding` of the package of this file name is accepted.
  [[nodiscard]] bool Accepts(const Finding& finding, std::string_view package) const;
  /// The entries that speak of the package (or of any), and that none of its `findings` meets.
  [[nodiscard]] std::vector<BaselineEntry> Stale(std::span<const Finding> findings, std::string_view package) const;
  [[nodiscard]] const std::vector<BaselineEntry>& entries() const { return entries_; }

 private:
  std::vector<BaselineEntry> entries_;  // sorted, each once
};

/// kUnreadable, with the entry and field that is wrong.
Result<Baseline> ReadBaseline(const std::string& path);
/// Written beside and then renamed; the same entries give the same bytes.
Status WriteBaseline(const Baseline& baseline, const std::string& path);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_BASELINE_H_
