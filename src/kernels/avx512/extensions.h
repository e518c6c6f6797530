// Kernels with int8 activations that need AVX512-VNNI (and one for bfloat16 that needs AVX512-BF16): in files of their
// own, since they are compiled with more than the flags of this folder. On machines without the instructions their
// `supports` says no.
#ifndef MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_
#define MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_

#include "kernels/dispatch.h"

namespace milwright::kernels {

extern const MatVecKernel kMatVecInt8Vnni[4];  ///< int8, uint8, int4, uint4
extern const MatMulKernel kMatMulInt8Vnni;
extern const MatVecKernel kMatVecTableVbmi[3];  ///< 3-, 6- and 8-bit tables

/// Kernels::int8_dot_stream, only to be called where VNNI is.
int64_t Int8DotStreamVnni(int64_t iterations, float* sink);
bool MachineHasVnni();

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_
