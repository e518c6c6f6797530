// Small tensors for the op tests.
#ifndef MILWRIGHT_TESTS_OPS_OP_TENSORS_H_
#define MILWRIGHT_TESTS_OPS_OP_TENSORS_H_

#include <vector>

#include "milwright/tensor.h"

namespace milwright::testing {

/// Integers of any width, bools included.
inline Tensor IntTensor(DataType dtype, Shape shape, const std::vector<int64_t>& values) {
  return *Tensor::VectorOf(dtype, values).Reshaped(std::move(shape));
}
inline Tensor FloatTensor(DataType dtype, Shape shape, const std::vector<float>& values) {
  return *Tensor::FromFloats({dtype, std::move(shape)}, values);
}
/// 0, 1, 2, ... in row-major order.
inline Tensor Counting(Shape shape, DataType dtype = DataType::kInt32) {
  Tensor tensor = *Tensor::Zeros({dtype, std::move(shape)});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.SetInt(i, i);
  return tensor;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_OPS_OP_TENSORS_H_
