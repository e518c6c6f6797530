// Estimated run times of operations by backend: the published figures, and how they scale to other shapes
// (ane-placement.md, section B; M4, macOS 27.0.1).
#ifndef MILWRIGHT_CHECK_PLACEMENT_COST_TABLE_H_
#define MILWRIGHT_CHECK_PLACEMENT_COST_TABLE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "mil/program.h"

namespace milwright {

/// What a figure scales by.
enum class WorkUnit : uint8_t { kFlops, kBytes };

/// One published estimate.
struct CostFigure {
  std::string_view name;
  std::string_view ops;  ///< op types it stands for, with blanks between; the first is the one measured
  WorkUnit unit = WorkUnit::kBytes;
  double work = 0;               ///< floating-point operations, or bytes of run-time inputs and outputs
  double kernel_area = 1;        ///< convolutions: elements of the kernel
  std::optional<double> ane_us;  ///< absent: the elementwise rate stands in
  double cpu_us = 0;             ///< the faster one of BNNS and classic CPU
  /// Shapes of the measured operation by parameter ("" its output), without leading ones; empty: the source does not
  /// state them, so that no operation is exactly this one.
  std::vector<std::pair<std::string_view, Shape>> shapes = {};
};

std::span<const CostFigure> CostFigures();

/// Bytes in and out that an elementwise operation moves in a microsecond, on the ANE and the CPU alike (100 GB/s).
inline constexpr double kElementwiseBytesPerUs = 100e3;

struct CostEstimate {
  double ane_us = 0;  ///< should the ANE take the operation
  double cpu_us = 0;
  bool scaled = true;       ///< taken from another shape or another operation
  std::string_view figure;  ///< what it rests on
};

/// The estimate for `op`: the published figure of just this operation and shape, the elementwise rule for fp16, or the
/// nearest figure (by work, and by kernel for convolutions) scaled by FLOPs or bytes. Sizes that are known only at run
/// time count as 1.
CostEstimate EstimateCost(const Operation& op);

/// Floating-point operations of a convolution, product or attention; 0 for other ops.
double FlopsOf(const Operation& op);
/// Bytes of the inputs that are known only at run time, and of the outputs.
double DataBytesOf(const Operation& op);

}  // namespace milwright

#endif  // MILWRIGHT_CHECK_PLACEMENT_COST_TABLE_H_
