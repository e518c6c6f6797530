// The compressed-weight ops before iOS18 keep everything in attributes; those of iOS18 take inputs of proper types.
#ifndef MILWRIGHT_PASSES_UPGRADE_CONSTEXPR_H_
#define MILWRIGHT_PASSES_UPGRADE_CONSTEXPR_H_

#include <string>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"

namespace milwright {

/// Rewrites every constexpr op of `function` that has the attribute form into its iOS18 form, bit for bit: packed
/// indices become a tensor of their own bit width, a flat table gets its group axes, affine becomes blockwise shift and
/// scale, a packed mask becomes uint1. Notes say how many. kPrecondition when one has no iOS18 form.
Status UpgradeConstexpr(Function& function, std::vector<std::string>* notes);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_UPGRADE_CONSTEXPR_H_
