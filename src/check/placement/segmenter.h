// The segmenter: which backend each operation of a sequence goes to, as Core ML's segmenter decides it
// (ane-placement.md, section B: 440 of 482 models exactly, 41 ties, 1 miss on an M4 under macOS 27).
#ifndef MILWRIGHT_CHECK_PLACEMENT_SEGMENTER_H_
#define MILWRIGHT_CHECK_PLACEMENT_SEGMENTER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/analytics.h"

namespace milwright {

/// What it costs to start a backend, to pass from one to another, and to end on one. All in microseconds; backends go
/// by their index in `names`. On equal costs the earlier backend wins.
struct BackendCosts {
  std::vector<std::string> names;
  std::vector<double> launch_us;                   ///< for each segment started
  std::vector<std::vector<double>> transition_us;  ///< [from][to]
  std::vector<double> output_us;                   ///< when the last operation is there
};

/// Milliseconds in section B, here in microseconds: for each ANE segment, each change of backend, and an output on ANE.
inline constexpr double kLaunchAneUs = 125;
inline constexpr double kChangeBackendUs = 125;
inline constexpr double kOutputOnAneUs = 125;

/// The two backends of section B, "cpu" (0) and "ane" (1).
const BackendCosts& CpuAndAneCosts();

/// The estimated time of an operation by backend; nullopt where the backend does not take it. An operation that no
/// backend takes goes where the one before it went (at the front: where the next one goes) and costs nothing.
using BackendTimes = std::vector<std::optional<double>>;

struct Segmentation {
  std::vector<std::optional<size_t>> backends;  ///< by operation; nullopt only when no operation has a backend
  double total_us = 0;
  bool tied = false;  ///< another assignment costs the same
};

/// The assignment with the least sum of times, launches, changes and output cost. On equal sums the one with fewer
/// changes wins, then the earlier backend. Linear in the operations.
Segmentation Segment(std::span<const BackendTimes> operations, const BackendCosts& costs);

/// The same from the segmenter's own figures: EstimatedRuntime, Launch_B_ms and Src_A_Dest_B_ms of one function.
struct AnalyticsSegmentation {
  std::vector<std::string> backends;  ///< by operation of the function
  double total_us = 0;
  bool tied = false;
};
AnalyticsSegmentation Segment(const AnalyticsFunction& function);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_PLACEMENT_SEGMENTER_H_
