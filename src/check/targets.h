// Targets: device, OS and compute unit that a package is checked for.
#ifndef MILWRIGHT_CHECK_TARGETS_H_
#define MILWRIGHT_CHECK_TARGETS_H_

#include <span>
#include <string>
#include <string_view>

#include "check/ledger.h"

namespace milwright {

struct Target {
  std::string_view name;      ///< "ane-ios26"
  std::string_view summary;   ///< one line
  std::string_view rests_on;  ///< what its rules and verdicts rest on
  std::string_view device;    ///< for hypotheses that ask for the device
  std::string_view compute_units;

  [[nodiscard]] bool IsAne() const { return name.starts_with("ane-"); }
};

std::span<const Target> AllTargets();
/// Null when there is no such target.
const Target* FindTarget(std::string_view name);

/// The target that an observation speaks of: an iPhone's ANE is ane-ios26 (ane-ios18 where the OS says 18), any other
/// ANE ane-macos26; cpuAndGPU is gpu, cpuOnly cpu, an unknown unit any. No observation maps to ane-macos27-m4, whose
/// rules rest on single-op probes.
const Target& TargetOf(const Environment& environment);

/// The environment that stands for `target` where a hypothesis asks for one.
Environment EnvironmentOf(const Target& target);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_TARGETS_H_
