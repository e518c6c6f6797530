// Runs of tensor elements as floats, and back, a type switch a run instead of one an element.
#ifndef MILWRIGHT_OPS_FLOAT_ACCESS_H_
#define MILWRIGHT_OPS_FLOAT_ACCESS_H_

#include <cstdint>
#include <span>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// Elements [first, first + out.size()) of a tensor of any number type as floats.
void ReadFloats(const Tensor& tensor, int64_t first, std::span<float> out);

/// Stores `values` as elements [first, first + values.size()), rounded to the tensor's type.
void WriteFloats(std::span<const float> values, Tensor& tensor, int64_t first);

/// An fp32 tensor rounded to `dtype`.
Result<Tensor> RoundTo(DataType dtype, Tensor values);

}  // namespace milwright

#endif  // MILWRIGHT_OPS_FLOAT_ACCESS_H_
