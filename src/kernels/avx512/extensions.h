// Kernels that need more than the AVX-512 of this folder's flags (VNNI: int8 activations; VBMI: byte permutations; AMX:
// tiles): each file is compiled for its extension, and on machines without it `supports` says no.
//
// There is no kernel for AVX512-BF16 without tiles: on the Xeon that this was written on (a shared machine), whole
// matrix products with vdpbf16ps ran at 0.6 to 0.8 of the rate of fp32 ones, for less precision. Other processors were
// not tried.
#ifndef MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_
#define MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_

#include "kernels/dispatch.h"

namespace milwright::kernels {

extern const MatVecKernel kMatVecInt8Vnni[5];   ///< int8, uint8, int4, uint4, 4-bit tables
extern const MatMulKernel kMatMulInt8Vnni[2];   ///< integer codes, 4-bit tables
extern const MatMulKernel kMatMulAmx;           ///< fp16 weights
extern const MatVecKernel kMatVecTableVbmi[3];  ///< 3-, 6- and 8-bit tables

/// Kernels::int8_dot_stream, only to be called where VNNI is.
int64_t Int8DotStreamVnni(int64_t iterations, float* sink);
bool MachineHasVnni();

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_AVX512_EXTENSIONS_H_
