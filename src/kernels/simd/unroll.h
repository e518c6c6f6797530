// Loops over arrays that must live in registers have to be unrolled completely; compilers leave some of them rolled,
// with the arrays on the stack, when the body is long.
#ifndef MILWRIGHT_KERNELS_SIMD_UNROLL_H_
#define MILWRIGHT_KERNELS_SIMD_UNROLL_H_

#if defined(__clang__)
#define MW_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MW_UNROLL _Pragma("GCC unroll 32")
#endif

#endif  // MILWRIGHT_KERNELS_SIMD_UNROLL_H_
