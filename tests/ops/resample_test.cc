#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpCall;

// ---- crop_resize ----

// The image 0..8 in three rows.
OpCall Crop(const std::vector<float>& box, int64_t size) {
  return OpCall("crop_resize")
      .Floats("x", {1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8})
      .Floats("boxes", {static_cast<int64_t>(box.size()) / 4, 4}, box)
      .Int("target_height", size)
      .Int("target_width", size)
      .Text("sampling_mode", "ALIGN_CORNERS");
}

TEST(CropResize, CutsTheBoxAndMirrorsABackwardOne) {
  EXPECT_THAT(Crop({1, 1, 2, 2}, 2).Output(), ElementsAre(4, 5, 7, 8));
  EXPECT_THAT(Crop({2, 2, 1, 1}, 2).Output(), ElementsAre(8, 7, 5, 4));
  EXPECT_THAT(Crop({0, 0, 2, 2}, 1).Output(), ElementsAre(4));
  EXPECT_THAT(Crop({0, 0, 0.5F, 0.5F}, 2).Bool("normalized_coordinates", true).Output(), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(Crop({2, 2, 4, 4}, 2).Float("spatial_scale", 0.5).Output(), ElementsAre(4, 5, 7, 8));
}

TEST(CropResize, ReadsEveryBoxMode) {
  EXPECT_THAT(Crop({0, 1, 1, 2}, 2).Text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST").Output(),
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Crop({0, 1, 1, 2}, 2).Text("box_coordinate_mode", "CORNERS_WIDTH_FIRST").Output(),
              ElementsAre(3, 4, 6, 7));
  EXPECT_THAT(Crop({0.5F, 1.5F, 1, 1}, 2).Text("box_coordinate_mode", "CENTER_SIZE_HEIGHT_FIRST").Output(),
              ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Crop({0.5F, 1.5F, 1, 1}, 2).Text("box_coordinate_mode", "CENTER_SIZE_WIDTH_FIRST").Output(),
              ElementsAre(3, 4, 6, 7));
}

TEST(CropResize, PadsOutsideTheImageAndSurvivesNan) {
  EXPECT_THAT(Crop({-1, 0, 0, 1}, 2).Float("pad_value", 9).Output(), ElementsAre(9, 9, 0, 1));
  const float nan = std::nanf("");
  const float huge = std::numeric_limits<float>::max();
  EXPECT_THAT(Crop({nan, nan, nan, nan}, 2).Float("pad_value", 9).Output(), Each(9.0F));
  EXPECT_THAT(Crop({-huge, -huge, huge, huge}, 2).Float("pad_value", 9).Output(), Each(9.0F));
}

TEST(CropResize, BoxIndicesPickTheImageAndAreChecked) {
  const auto crop = [](int64_t index) {
    return OpCall("crop_resize")
        .Floats("x", {2, 1, 1, 1}, {3, 5})
        .Floats("boxes", {1, 4}, {0, 0, 0, 0})
        .Ints("box_indices", {index});
  };
  EXPECT_THAT(crop(1).Output(), ElementsAre(5));
  EXPECT_THAT(crop(2).Run().status().message(), HasSubstr("batch element 2"));
  EXPECT_THAT(crop(-1).Run().status().message(), HasSubstr("batch element -1"));
}

TEST(CropResize, OldRegionsHaveFiveDimensions) {
  const auto crop = [](int64_t entries, const std::vector<float>& roi) {
    return OpCall("crop_resize", Opset::kIOS15)
        .Floats("x", {1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8})
        .Floats("roi", {1, 1, entries, 1, 1}, roi)
        .Int("target_height", 1)
        .Int("target_width", 2)
        .Text("sampling_mode", "ALIGN_CORNERS");
  };
  EXPECT_EQ(crop(4, {0, 0, 0, 1}).InferredShape(), "[1, 1, 1, 1, 2]");
  EXPECT_THAT(crop(4, {0, 0, 0, 1}).Output(), ElementsAre(0, 1));
  EXPECT_THAT(crop(5, {0, 0, 0, 0, 1}).Output(), ElementsAre(0, 1));
  EXPECT_THAT(crop(3, {0, 0, 0}).InferError(), HasSubstr("[N, 1, 4 or 5, 1, 1], but has [1, 1, 3, 1, 1]"));
}

TEST(CropResize, InfersUnknownSizes) {
  const auto crop = OpCall("crop_resize")
                        .Typed("x", DataType::kFp16, {kUnknownDim, 3, kUnknownDim, 8})
                        .Typed("boxes", DataType::kFp16, {kUnknownDim, 4})
                        .Int("target_height", 5)
                        .Int("target_width", 6);
  EXPECT_EQ(crop.InferredShape(), "[?, 3, 5, 6]");
}

// ---- resample ----

OpCall Resample(const std::vector<float>& xy, const char* sampling, const char* padding) {
  return OpCall("resample")
      .Floats("x", {1, 1, 1, 4}, {1, 2, 4, 8})
      .Floats("coordinates", {1, 1, static_cast<int64_t>(xy.size()) / 2, 2}, xy)
      .Text("sampling_mode", sampling)
      .Text("padding_mode", padding)
      .Float("padding_value", 100)
      .Text("coordinates_mode", "unnormalized")
      .Bool("align_corners", true);
}

TEST(Resample, PadsInFourWays) {
  // Places -1.25, 3.5 and 4 in a row of four pixels at 0..3.
  const std::vector<float> xy = {-1.25F, 0, 3.5F, 0, 4, 0};
  // Constant, per pixel: outside; half of pixel 3 and half of the padding value; outside.
  EXPECT_THAT(Resample(xy, "bilinear", "constant").Output(), ElementsAre(100, 54, 100));
  EXPECT_THAT(Resample(xy, "bilinear", "border").Output(), ElementsAre(1, 8, 8));
  // About the pixel centres 0 and 3: 1.25, 2.5, 2.
  EXPECT_THAT(Resample(xy, "bilinear", "reflection").Output(), ElementsAre(2.5F, 6, 4));
  // About the edges -0.5 and 3.5: 0.25, 3.5 (then clamped), 3.
  EXPECT_THAT(Resample(xy, "bilinear", "symmetric").Output(), ElementsAre(1.25F, 8, 8));
  EXPECT_THAT(Resample({1.4F, 0, 1.6F, 0}, "nearest", "constant").Output(), ElementsAre(2, 4));
}

TEST(Resample, NormalisedCoordinates) {
  const auto resample = [](const char* coordinates, bool align_corners, float x, float y) {
    return OpCall("resample")
        .Floats("x", {1, 1, 1, 4}, {1, 2, 4, 8})
        .Floats("coordinates", {1, 1, 1, 2}, {x, y})
        .Text("sampling_mode", "bilinear")
        .Text("padding_mode", "border")
        .Float("padding_value", 0)
        .Text("coordinates_mode", coordinates)
        .Bool("align_corners", align_corners)
        .Output();
  };
  EXPECT_THAT(resample("normalized_minus_one_to_one", true, 1, 0), ElementsAre(8));
  EXPECT_THAT(resample("normalized_minus_one_to_one", true, 0, 0), ElementsAre(3));
  EXPECT_THAT(resample("normalized_zero_to_one", true, 0.5F, 0.5F), ElementsAre(3));
  // Corners not aligned: 0.25 of the unit interval lies at (0.25 * 2 * 4 - 1) / 2 = 0.5.
  EXPECT_THAT(resample("normalized_zero_to_one", false, 0.25F, 0.5F), ElementsAre(1.5F));
}

TEST(Resample, NoCoordinateLeavesTheImage) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* padding : {"constant", "border", "reflection", "symmetric"}) {
    for (const float place : {infinity, -infinity, std::nanf(""), 3e38F, -3e38F}) {
      for (const float value : Resample({place, 0}, "bilinear", padding).Output()) {
        EXPECT_TRUE(value == 100 || (value >= 1 && value <= 8)) << padding << " at " << place << " gave " << value;
      }
    }
  }
}

TEST(Resample, ErrorsNameShapesAndModes) {
  EXPECT_THAT(Resample({0, 0}, "cubic", "border").InferError(),
              HasSubstr("sampling_mode 'cubic' is not bilinear or nearest"));
  EXPECT_THAT(OpCall("resample")
                  .Typed("x", DataType::kFp32, {2, 1, 4, 4})
                  .Typed("coordinates", DataType::kFp32, {1, 5, 5, 2})
                  .Text("sampling_mode", "bilinear")
                  .Text("padding_mode", "border")
                  .Text("coordinates_mode", "unnormalized")
                  .InferError(),
              HasSubstr("[1, 5, 5, 2] for x [2, 1, 4, 4]"));
}

// ---- affine ----

TEST(Affine, TheIdentityMatrixCopiesAndAShiftPadsWithZeros) {
  const auto affine = [](const std::vector<float>& matrix) {
    return OpCall("affine")
        .Floats("x", {1, 1, 2, 2}, {1, 2, 3, 4})
        .Floats("transform_matrix", {1, 6}, matrix)
        .Int("output_height", 2)
        .Int("output_width", 2)
        .Text("sampling_mode", "bilinear")
        .Text("padding_mode", "constant")
        .Float("padding_value", 0)
        .Text("coordinates_mode", "normalized_minus_one_to_one")
        .Bool("align_corners", true);
  };
  EXPECT_THAT(affine({1, 0, 0, 0, 1, 0}).Output(), ElementsAre(1, 2, 3, 4));
  // x grows by 2, one pixel to the right: the second column lies outside.
  EXPECT_THAT(affine({1, 0, 2, 0, 1, 0}).Output(), ElementsAre(2, 0, 4, 0));
  // Swapping x and y transposes.
  EXPECT_THAT(affine({0, 1, 0, 1, 0, 0}).Output(), ElementsAre(1, 3, 2, 4));
}

}  // namespace
}  // namespace milwright
