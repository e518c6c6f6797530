// Quantising an activation to int8: one formula for all instruction sets, so that their results agree to the bit.
#ifndef MILWRIGHT_KERNELS_QUANTIZE_H_
#define MILWRIGHT_KERNELS_QUANTIZE_H_

#include <cstdint>

namespace milwright::kernels {

/// Quantises one block of n <= kActivationBlock values: scale = max|x| / 127, codes[i] = round-half-even(x[i] * (127 /
/// max|x|)), in -127..127. A block of zeros has scale 0. Returns the scale.
float QuantizeBlock(const float* x, int64_t n, int8_t* codes);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_QUANTIZE_H_
