// The reference interpreter: runs a function op by op through the registry's kernels. Slow and obvious; the judge of
// everything faster.
#ifndef MILWRIGHT_EXEC_INTERPRETER_H_
#define MILWRIGHT_EXEC_INTERPRETER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// The contents of states by name, during one prediction.
using StateValues = std::map<std::string, Tensor, std::less<>>;

/// Decoded weights: results of constexpr_* ops, each computed once. Shared by all predictions of a model.
class ConstantCache {
 public:
  /// The outputs of a constexpr op, decoded on first use.
  Result<std::vector<Literal>> Get(const Operation& op, const std::function<Result<std::vector<Literal>>()>& decode);

 private:
  std::mutex mutex_;
  std::unordered_map<const Operation*, std::vector<Literal>> values_;
};

/// Called after every operation, with its results.
using ValueObserver = std::function<void(const Operation& op, const std::vector<Literal>& results)>;

/// Runs `function` on `inputs` (one literal for each tensor input, in order). State ops read and write `states` in
/// program order; on error `states` may be half written, so the caller keeps a copy (tensors share storage: cheap).
Result<std::vector<Literal>> RunFunction(const Function& function, const std::vector<Literal>& inputs,
                                         StateValues& states, ConstantCache& constants,
                                         const ValueObserver& observer = {});

}  // namespace milwright

#endif  // MILWRIGHT_EXEC_INTERPRETER_H_
