// Where a decoder can be cut between layers: places that only one value crosses.
#ifndef MILWRIGHT_PASSES_LAYER_CUTS_H_
#define MILWRIGHT_PASSES_LAYER_CUTS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "mil/program.h"

namespace milwright {

/// Gives every user of a state read a read of its own where no write lies between, so that no state content crosses
/// more of the program than it must.
void ReadWhereUsed(Function& function);

/// One layer: the operations of the body up to and including `last` (and behind the layer before); `hidden` is the only
/// value made up to there that later operations need, but for what they can compute anew from the function's inputs.
struct Layer {
  size_t last = 0;           ///< place in the body
  Value* hidden = nullptr;   ///< null for the last layer, which runs to the end
  int64_t weight_bytes = 0;  ///< of the constants its operations use (as stored)
};

/// The layers of `function`: each holds accesses to states, or to caches the host keeps; what comes before the first
/// access belongs to the first layer, what comes behind the last to the last. One layer when it cannot be cut.
std::vector<Layer> FindLayers(const Function& function);

/// Places of the top-level operations in the body.
std::unordered_map<const Operation*, size_t> BodyOrder(const Function& function);

}  // namespace milwright

#endif  // MILWRIGHT_PASSES_LAYER_CUTS_H_
