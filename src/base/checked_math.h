// Arithmetic on sizes that come from files: no overflow goes unnoticed.
#ifndef MILWRIGHT_BASE_CHECKED_MATH_H_
#define MILWRIGHT_BASE_CHECKED_MATH_H_

#include <cstdint>

namespace milwright {

/// *result = a * b; false when that does not fit.
inline bool CheckedMultiply(int64_t a, int64_t b, int64_t* result) { return !__builtin_mul_overflow(a, b, result); }
/// *result = a + b; false when that does not fit.
inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* result) { return !__builtin_add_overflow(a, b, result); }

}  // namespace milwright

#endif  // MILWRIGHT_BASE_CHECKED_MATH_H_
