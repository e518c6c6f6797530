// Data-flow helpers of the state analysis.
#ifndef MILWRIGHT_ANALYSIS_DATAFLOW_H_
#define MILWRIGHT_ANALYSIS_DATAFLOW_H_

#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mil/program.h"

namespace milwright {

using ValueSet = std::unordered_set<const Value*>;

/// Every value computed from one of `sources`, the sources included. What happens in a nested block counts for the
/// results of the op that holds it.
ValueSet ForwardClosure(const std::vector<const Value*>& sources);

/// Walks forward from `source` through ops for which `passes` holds and calls `visit` for every other reader.
void WalkForward(const Value* source, const std::function<bool(const Operation&)>& passes,
                 const std::function<void(const Operation&, const Value* operand)>& visit);

/// Whether an op of a type in `targets` is met going back from `value` through ops of the types in `through`.
bool ComesFrom(const Value* value, const std::unordered_set<std::string_view>& targets,
               const std::unordered_set<std::string_view>& through);
/// ... or going forward.
bool LeadsTo(const Value* value, const std::unordered_set<std::string_view>& targets,
             const std::unordered_set<std::string_view>& through);

/// Place of every operation in program order (an op before what is nested in it).
std::unordered_map<const Operation*, size_t> ProgramOrder(const Function& function);

}  // namespace milwright

#endif  // MILWRIGHT_ANALYSIS_DATAFLOW_H_
