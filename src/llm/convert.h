// Conversion of stored weights (fp32, fp16, bf16, fp8) to the data type of a build.
#ifndef MILWRIGHT_LLM_CONVERT_H_
#define MILWRIGHT_LLM_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "milwright/type.h"

namespace milwright {

/// Converts runs of elements from one stored type to fp16 or fp32. Types of one or two bytes go through a table of all
/// their values, which is as fast as memory and exactly the rounding of FloatToHalf.
class Converter {
 public:
  /// Whether `source` is a type that checkpoints store weights in.
  static bool Supports(DataType source);
  Converter(DataType source, DataType target);

  /// Converts `count` elements. Returns false when a finite value became infinite.
  [[nodiscard]] bool Convert(const std::byte* source, std::byte* target, size_t count) const;
  /// Element `i` of `source` as a float.
  [[nodiscard]] static float Load(const std::byte* source, DataType type, size_t i);

 private:
  DataType source_;
  DataType target_;
  std::vector<uint16_t> half_table_;  // 16-bit and 8-bit sources to fp16
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_CONVERT_H_
