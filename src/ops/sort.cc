// argsort, topk and non-maximum suppression.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> SortOps() {
  return {
      Op(Opset::kIOS15, "argsort(T x, const int32 axis=-1, const bool ascending=false) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "topk(T x, const int32 k=1, const int32 axis=-1, const bool ascending=false) where T=fp16|fp32|int32", nullptr,
         nullptr),
      Op(Opset::kIOS16,
         "topk(T x, const int32 k=1, const int32 axis=-1, const bool ascending=false, const bool sort=true, const bool "
         "return_indices=true) where T=fp16|fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "topk(T x, const K k=1, const int32 axis=-1, const bool ascending=false, const bool sort=true, const bool "
         "return_indices=true, const string output_indices_dtype=\"int32\") where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16, K=int8|int16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "non_maximum_suppression(T boxes, T scores, const T iou_threshold, const T score_threshold, const int32 "
         "max_boxes, const bool per_class_suppression=false) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "non_maximum_suppression(T boxes, T scores, const T iou_threshold, const int32 max_boxes, const bool "
         "per_class_suppression=false) where T=fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
