// Whether passes kept what a model computes: both are run.
#ifndef MILWRIGHT_PASSES_VERIFY_REWRITE_H_
#define MILWRIGHT_PASSES_VERIFY_REWRITE_H_

#include <span>

#include "passes/equal.h"
#include "passes/pass.h"

namespace milwright {

/// Runs `before` and `after`, which `uses` made of it, for `steps` steps of each function and compares them as these
/// passes promise: bit for bit, or within 1e-3 where one of them is Exactness::kReordered; features and functions that
/// they rename are matched. Errors as for CompareModels.
Result<CompareReport> CompareRewritten(const ModelSpec& before, const ModelSpec& after, std::span<const PassUse> uses,
                                       int steps = CompareOptions().steps);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_VERIFY_REWRITE_H_
