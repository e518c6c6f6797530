// Small programs rebuilt from what the ledger records of a program.
#ifndef MILWRIGHT_TESTS_CHECK_MINI_PROGRAM_H_
#define MILWRIGHT_TESTS_CHECK_MINI_PROGRAM_H_

#include <optional>

#include "check/features.h"
#include "mil/model.h"

namespace milwright::testing {

/// A program with the states, roles, update forms, functions and weight format of `features`; unknown sizes become 2.
/// nullopt when a state's shape, role or update form is not known, or no such program is known to this file.
std::optional<ModelSpec> Rebuild(const ProgramFeatures& features);

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_CHECK_MINI_PROGRAM_H_
