#include "check/targets.h"

#include <algorithm>
#include <array>

namespace milwright {
namespace {

constexpr std::array<Target, 7> kTargets = {{
    {"ane-ios18", "Neural Engine of an iPhone, iOS 18", "rules for the ANE; ledger rows of iPhones whose OS says 18",
     "iPhone", "cpuAndNeuralEngine"},
    {"ane-ios26", "Neural Engine of an iPhone, iOS 26", "rules for the ANE; ledger rows of iPhones", "iPhone",
     "cpuAndNeuralEngine"},
    {"ane-macos26", "Neural Engine of a Mac, macOS 15 to 26",
     "rules for the ANE; ledger rows of Macs, and of devices that are not named", "Mac", "cpuAndNeuralEngine"},
    {"ane-macos27-m4", "Neural Engine of an M4, macOS 27",
     "166 single-op probes and 68 size sweeps (Apple-Neural-Engine-Microarchitecture-Study-M6); no ledger rows",
     "Mac M4", "cpuAndNeuralEngine"},
    {"gpu", "GPU, by compute units cpuAndGPU", "rules of the format; ledger rows that ran with cpuAndGPU", "unknown",
     "cpuAndGPU"},
    {"cpu", "CPU, by compute units cpuOnly", "rules of the format; ledger rows that ran with cpuOnly", "unknown",
     "cpuOnly"},
    {"any", "no compute unit in particular", "rules of the format; findings of one unit are notes", "unknown",
     "unknown"},
}};

const Target& Named(std::string_view name) { return *std::ranges::find(kTargets, name, &Target::name); }

}  // namespace

std::span<const Target> AllTargets() { return kTargets; }

const Target* FindTarget(std::string_view name) {
  const auto* it = std::ranges::find(kTargets, name, &Target::name);
  return it != kTargets.end() ? it : nullptr;
}

const Target& TargetOf(const Environment& environment) {
  const std::string& units = environment.compute_units;
  if (units == "cpuAndGPU") return Named("gpu");
  if (units == "cpuOnly") return Named("cpu");
  if (units != "cpuAndNeuralEngine" && units != "all") return Named("any");
  if (!environment.device.starts_with("iPhone")) return Named("ane-macos26");
  return Named(environment.os.find("iOS 18") != std::string::npos ? "ane-ios18" : "ane-ios26");
}

Environment EnvironmentOf(const Target& target) {
  return {std::string(target.device), "unknown", "unknown", std::string(target.compute_units)};
}

}  // namespace milwright
