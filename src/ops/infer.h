// Type inference and verification of operations and programs against the registry.
#ifndef MILWRIGHT_OPS_INFER_H_
#define MILWRIGHT_OPS_INFER_H_

#include <string>
#include <vector>

#include "mil/program.h"
#include "milwright/status.h"
#include "ops/op.h"

namespace milwright {

/// The output types of `op` by the registry's rules: checks that the op exists in `opset`, that its parameters are
/// known, present, constant where they must be, and of allowed types, then infers. Nested blocks are not looked into.
Result<std::vector<Type>> InferOperation(const Operation& op, Opset opset);

struct VerifyOptions {
  bool check_types = true;  ///< compare inferred with declared types
  size_t max_errors = 20;
};

/// Every fault of the program: undefined or later-defined values, duplicate names, unknown ops, arity, parameter and
/// result types, block counts, outputs. Each message names function, op path and value.
std::vector<Status> VerifyProgram(const Program& program, const VerifyOptions& options = {});
/// The first fault, or ok.
Status Verify(const Program& program);

/// Recomputes the declared types of every operation of `function` in order (after an edit upstream).
Status ReinferTypes(Function& function);

/// Whether a type that inference gave (with unknowns) agrees with a declared one: equal, or unknown where the declared
/// size is known only by the file.
bool TypesAgree(const Type& inferred, const Type& declared);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_INFER_H_
