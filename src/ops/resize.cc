// Resizing and resampling of images.
#include "ops/op.h"

namespace milwright {

std::vector<OpDefinition> ResizeOps() {
  return {
      Op(Opset::kIOS17,
         "resize(T x, U shape, const uint32 resized_dims, const string interpolation_mode=\"LINEAR\", const string "
         "sampling_mode=\"DEFAULT\") where T=fp16|fp32|int32, U=int32|int16|uint16|uint32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "resize_bilinear(T x, const int32 target_size_height=1, const int32 target_size_width=1, const string "
         "sampling_mode=\"DEFAULT\") where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "resize_nearest_neighbor(T x, const int32 target_size_height, const int32 target_size_width) where "
         "T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "upsample_bilinear(T x, const U scale_factor_height=1, const U scale_factor_width=1, const bool "
         "align_corners=true) where T=fp16|fp32, U=int32|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS16,
         "upsample_bilinear(T x, const U scale_factor_height=1, const U scale_factor_width=1, const bool "
         "align_corners=true, const bool half_pixel_centers?) where T=fp16|fp32, U=int32|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "upsample_nearest_neighbor(T x, const U scale_factor_height=1, const U scale_factor_width=1) where "
         "T=fp16|fp32, U=fp32|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "crop_resize(T x, T roi, const int32 target_height=1, const int32 target_width=1, const bool "
         "normalized_coordinates=false, const fp32 spatial_scale=1.0, const string "
         "box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string sampling_mode=\"DEFAULT\") where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS16,
         "crop_resize(T x, T roi, const int32 target_height=1, const int32 target_width=1, const bool "
         "normalized_coordinates=false, const fp32 spatial_scale=1.0, const string "
         "box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string sampling_mode=\"DEFAULT\", const T pad_value=0.0) "
         "where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "crop_resize(T x, BOX_T boxes, BOX_INDEX_T box_indices=\"range(boxes.shape[0])\", const int32 "
         "target_height=1, const int32 target_width=1, const bool normalized_coordinates=false, const fp32 "
         "spatial_scale=1.0, const string box_coordinate_mode=\"CORNERS_HEIGHT_FIRST\", const string "
         "sampling_mode=\"DEFAULT\", const T pad_value=0.0) where T=fp16|fp32, BOX_T=fp16|fp32|uint16, "
         "BOX_INDEX_T=uint16|int32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "affine(T x, T transform_matrix, const int32 output_height, const int32 output_width, const string "
         "sampling_mode, const string padding_mode, const T padding_value, const string coordinates_mode, const bool "
         "align_corners) where T=fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS15,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, U=int32|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS16,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, U=int32|fp16|fp32",
         nullptr, nullptr),
      Op(Opset::kIOS17,
         "resample(T x, U coordinates, const string sampling_mode, const string padding_mode, const T padding_value, "
         "const string coordinates_mode, const bool align_corners) where T=fp16|fp32, "
         "U=int8|uint8|int16|uint16|int32|fp16|fp32",
         nullptr, nullptr),
  };
}

}  // namespace milwright
