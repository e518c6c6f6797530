#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>

namespace milwright::kernels {

float QuantizeBlock(const float* x, int64_t n, int8_t* codes) {
  float largest = 0.0F;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float inverse = largest > 0.0F ? 127.0F / largest : 0.0F;
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(std::nearbyintf(x[i] * inverse));
  return largest / 127.0F;
}

}  // namespace milwright::kernels
