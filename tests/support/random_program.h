// Random stateful programs, and the smallest program that still fails.
#ifndef MILWRIGHT_TESTS_SUPPORT_RANDOM_PROGRAM_H_
#define MILWRIGHT_TESTS_SUPPORT_RANDOM_PROGRAM_H_

#include <cstdint>
#include <functional>

#include "mil/model.h"

namespace milwright::testing {

/// A program of one iOS18 function `main` over one to three fp16 states of one or two slots of [2, 4, 2], a row `x`, a
/// full tensor `y`, a write position `pos` and (in half of them) a one-hot `update_mask`. Its operations are random:
/// reads and writes of every update form in any order, pure ops (repeated ones and constant ones among them), cond and
/// while_loop with the same inside. It verifies, and values stay near 1. The same seed gives the same program.
ModelSpec RandomProgram(uint64_t seed);

/// The smallest program found by dropping operations and outputs of `spec` for which `fails` still holds. Only programs
/// that verify, and whose loops end, are tried.
ModelSpec Reduce(const ModelSpec& spec, const std::function<bool(const ModelSpec&)>& fails);

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_RANDOM_PROGRAM_H_
