// Which operations the Neural Engine takes, as published: one entry per statement, with where it was measured or said,
// and what says otherwise. A statement is about placement (what Core ML's segmenter may choose), not about what runs.
#ifndef MILWRIGHT_CHECK_PLACEMENT_SUPPORT_TABLE_H_
#define MILWRIGHT_CHECK_PLACEMENT_SUPPORT_TABLE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "mil/program.h"

namespace milwright {

/// Whether the ANE takes an operation. kUnknown: no source says; a plan counts it as not on the ANE, and says so.
enum class AneSupport : uint8_t { kNo, kYes, kUnknown };
std::string_view AneSupportName(AneSupport support);

/// What a statement rests on.
enum class SupportBasis : uint8_t {
  kMeasured,  ///< single-op models on an M4, macOS 27.0.1 (ane-placement.md, section A)
  kReported,  ///< a report by others, on other systems
  kInferred,  ///< follows from one of these
};
std::string_view SupportBasisName(SupportBasis basis);

struct AneSupportRule {
  std::string_view id;                                    ///< "int32-tensor"
  std::string_view ops;                                   ///< op types with blanks between; empty: all
  bool (*applies)(const Operation&) = nullptr;            ///< a condition beyond the type; null: always
  bool (*applies_to)(std::string_view target) = nullptr;  ///< null: every ANE target
  AneSupport support = AneSupport::kUnknown;
  SupportBasis basis = SupportBasis::kMeasured;
  std::string_view statement;  ///< one line
  std::string_view source;
  std::string_view conflict = {};  ///< what says otherwise, with its source; empty: nothing known
};

/// The table, in the order in which it is asked: the first rule that fits decides. The last fits everything.
std::span<const AneSupportRule> AneSupportRules();
/// The rule that decides for `op` (a dispatchable operation) on an ANE target ("ane-ios18", "ane-macos27-m4", ...).
const AneSupportRule& FindAneSupport(const Operation& op, std::string_view target);
/// Whether `word` is one of the words of `list` (op types with blanks between).
bool HasWord(std::string_view list, std::string_view word);
/// The rule with this id, or null.
const AneSupportRule* FindAneSupportRule(std::string_view id);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_PLACEMENT_SUPPORT_TABLE_H_
