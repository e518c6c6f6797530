// The tables of the instruction sets; which of them exist depends on the architecture that is built for.
#ifndef MILWRIGHT_KERNELS_TABLES_H_
#define MILWRIGHT_KERNELS_TABLES_H_

#include "kernels/dispatch.h"

namespace milwright::kernels {

const Kernels* ScalarKernels();
const Kernels* Avx2Kernels();
const Kernels* Avx512Kernels();
const Kernels* NeonKernels();

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_TABLES_H_
