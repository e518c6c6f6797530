// Writes one function of one package: inputs, embedding, layers, head, outputs.
#ifndef MILWRIGHT_LLM_FUNCTION_WRITER_H_
#define MILWRIGHT_LLM_FUNCTION_WRITER_H_

#include "llm/function_context.h"
#include "mil/model.h"

namespace milwright {

/// Adds function `option` of stage `stage` to `program` and says in the result how to run it (`package` is left empty).
Result<ManifestFunction> WriteFunction(Program& program, const BuildPlan& build, const StageSpec& stage,
                                       const CachePlan& caches, const FunctionOption& option, WeightSource& weights);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_FUNCTION_WRITER_H_
