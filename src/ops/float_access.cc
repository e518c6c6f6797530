#include "ops/float_access.h"

#include <algorithm>

#include "milwright/half.h"

namespace milwright {
namespace {

template <typename T>
void ReadAs(const Tensor& tensor, size_t first, std::span<float> out) {
  std::ranges::transform(tensor.As<T>().subspan(first, out.size()), out.begin(),
                         [](T value) { return static_cast<float>(value); });
}

}  // namespace

void ReadFloats(const Tensor& tensor, int64_t first, std::span<float> out) {
  const auto begin = static_cast<size_t>(first);
  switch (tensor.dtype()) {
    case DataType::kFp32:
      return ReadAs<float>(tensor, begin, out);
    case DataType::kFp16:
      std::ranges::transform(tensor.As<uint16_t>().subspan(begin, out.size()), out.begin(), HalfToFloat);
      return;
    case DataType::kInt8:
      return ReadAs<int8_t>(tensor, begin, out);
    case DataType::kUInt8:
      return ReadAs<uint8_t>(tensor, begin, out);
    default:
      for (size_t i = 0; i < out.size(); ++i) out[i] = tensor.GetFloat(first + static_cast<int64_t>(i));
  }
}

void WriteFloats(std::span<const float> values, Tensor& tensor, int64_t first) {
  const auto begin = static_cast<size_t>(first);
  switch (tensor.dtype()) {
    case DataType::kFp32:
      std::ranges::copy(values, tensor.MutableAs<float>().subspan(begin).begin());
      return;
    case DataType::kFp16:
      std::ranges::transform(values, tensor.MutableAs<uint16_t>().subspan(begin).begin(), FloatToHalf);
      return;
    default:
      for (size_t i = 0; i < values.size(); ++i) tensor.SetDouble(first + static_cast<int64_t>(i), values[i]);
  }
}

Result<Tensor> RoundTo(DataType dtype, Tensor values) {
  if (dtype == DataType::kFp32) return values;
  return Tensor::FromFloats({dtype, values.shape()}, values.As<float>());
}

}  // namespace milwright
