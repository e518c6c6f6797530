// What every engine needs before it runs a prediction: inputs bound and checked, and the states to work on.
#ifndef MILWRIGHT_EXEC_PREPARED_CALL_H_
#define MILWRIGHT_EXEC_PREPARED_CALL_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/interpreter.h"
#include "mil/program.h"
#include "milwright/model.h"
#include "milwright/status.h"

namespace milwright {

/// The contents behind a State handle. Whoever touches `values` holds a StateClaim.
struct State::Impl {
  StateValues values;
  std::map<std::string, TensorType, std::less<>> types;
  /// Upper bounds on the magnitude of the elements, of states for which one is known.
  std::map<std::string, float, std::less<>> bounds;
  const void* origin = nullptr;  ///< the model that made it
  std::string origin_name;
  mutable std::atomic_flag busy = ATOMIC_FLAG_INIT;
};

/// Holds a state for one reader, writer or prediction; never waits.
class StateClaim {
 public:
  explicit StateClaim(std::atomic_flag& flag) : flag_(flag), held_(!flag.test_and_set(std::memory_order_acquire)) {}
  ~StateClaim() {
    if (held_) flag_.clear(std::memory_order_release);
  }
  StateClaim(const StateClaim&) = delete;
  StateClaim& operator=(const StateClaim&) = delete;
  /// kRuntime when somebody else holds the state.
  [[nodiscard]] Status status() const {
    if (held_) return Status::Ok();
    return {ErrorCode::kRuntime,
            "the state is in use by a running prediction; one prediction at a time may use a state"};
  }

 private:
  std::atomic_flag& flag_;
  bool held_;
};

/// A prediction whose arguments were checked against the function and converted to its types.
struct PreparedCall {
  const Function* function = nullptr;
  std::vector<Literal> arguments;      ///< one for each tensor input, in order
  std::shared_ptr<State::Impl> state;  ///< of fitting names and types (empty when the function has none); not claimed
};

/// The tensor that hosts get for a result: a dictionary from label to probability gives its values, label by label.
Tensor OutputTensor(Literal result);

}  // namespace milwright

#endif  // MILWRIGHT_EXEC_PREPARED_CALL_H_
