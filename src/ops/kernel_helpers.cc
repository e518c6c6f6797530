#include "ops/kernel_helpers.h"

namespace milwright {

AxisSplit SplitAt(const Shape& shape, int64_t axis) {
  AxisSplit split;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t& part = static_cast<int64_t>(i) < axis    ? split.outer
                    : static_cast<int64_t>(i) == axis ? split.size
                                                      : split.inner;
    part *= shape[i];
  }
  return split;
}

std::vector<int64_t> BroadcastStrides(const Shape& operand, const Shape& result) {
  std::vector<int64_t> strides(result.size(), 0);
  const std::vector<int64_t> own = Strides(operand);
  const size_t lead = result.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i) strides[lead + i] = operand[i] == 1 ? 0 : own[i];
  return strides;
}

}  // namespace milwright
