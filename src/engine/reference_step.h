// The step that every op can fall back to: the registry's reference kernel.
#ifndef MILWRIGHT_ENGINE_REFERENCE_STEP_H_
#define MILWRIGHT_ENGINE_REFERENCE_STEP_H_

#include <memory>
#include <string_view>
#include <vector>

#include "engine/graph.h"
#include "engine/plan.h"

namespace milwright::engine {

struct ReferenceArgument {
  std::string_view parameter;
  const Type* type = nullptr;
  const Literal* known = nullptr;  ///< else `view`
  View view;
};

/// Runs node.definition->evaluate on tensors made of the arguments and stores its results in `results`.
NewStep MakeReferenceStep(const Node& node, std::vector<ReferenceArgument> arguments, std::vector<View> results);

/// The elements of a view as a dense tensor of `type` (of the view's shape).
Result<Tensor> TensorOf(const Frame& frame, const View& view, const TensorType& type);
/// Stores a tensor's elements in a view of its shape.
void StoreTensor(const Frame& frame, const Tensor& tensor, const View& view);

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_REFERENCE_STEP_H_
