#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpCall;

OpCall Bilinear(const std::vector<float>& row, int64_t width, const char* mode) {
  return OpCall("resize_bilinear")
      .Floats("x", {1, 1, static_cast<int64_t>(row.size())}, row)
      .Int("target_size_height", 1)
      .Int("target_size_width", width)
      .Text("sampling_mode", mode);
}

// X = 2 pixels to N = 4 samples; grid points by op-semantics.md, section 3.
TEST(ResizeBilinear, FollowsTheFiveGrids) {
  const std::vector<float> x = {0, 12};
  EXPECT_THAT(Bilinear(x, 4, "STRICT_ALIGN_CORNERS").Output(), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(Bilinear(x, 4, "ALIGN_CORNERS").Output(), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(Bilinear(x, 4, "DEFAULT").Output(), ElementsAre(0, 6, 12, 12));
  EXPECT_THAT(Bilinear(x, 4, "OFFSET_CORNERS").Output(), ElementsAre(1.5F, 4.5F, 7.5F, 10.5F));
  EXPECT_THAT(Bilinear(x, 4, "UNALIGN_CORNERS").Output(), ElementsAre(0, 3, 9, 12));
  EXPECT_THAT(Bilinear(x, 1, "ALIGN_CORNERS").Output(), ElementsAre(6));
  EXPECT_THAT(Bilinear(x, 1, "STRICT_ALIGN_CORNERS").Output(), ElementsAre(0));
}

TEST(ResizeBilinear, AnInfinitePixelDoesNotLeakIntoExactHits) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Bilinear({1, infinity}, 2, "ALIGN_CORNERS").Output(), ElementsAre(1, infinity));
}

TEST(ResizeNearestNeighbor, TakesTheHalfPixelCentre) {
  const auto resize = OpCall("resize_nearest_neighbor")
                          .Floats("x", {1, 1, 2}, {7, 9})
                          .Int("target_size_height", 1)
                          .Int("target_size_width", 3);
  EXPECT_THAT(resize.Output(), ElementsAre(7, 9, 9));  // floor((i + 0.5) * 2 / 3) = 0, 1, 1
}

TEST(Upsample, RecomputesTheRatioFromTheSizes) {
  // 2 * 2.6 = 5.2: five columns; column i reads i * 2 / 5.
  const auto nearest = OpCall("upsample_nearest_neighbor")
                           .Floats("x", {1, 1, 2}, {7, 9})
                           .Float("scale_factor_height", 1)
                           .Float("scale_factor_width", 2.6);
  EXPECT_THAT(nearest.Output(), ElementsAre(7, 7, 7, 9, 9));
}

TEST(Upsample, SizesRoundTheProductToFp32) {
  const auto upsample = [](double scale, int64_t size) {
    return OpCall("upsample_nearest_neighbor")
        .Typed("x", DataType::kFp32, {1, 1, size})
        .Float("scale_factor_width", scale)
        .InferredShape();
  };
  EXPECT_EQ(upsample(0.7, 10), "[1, 1, 7]");
  EXPECT_EQ(upsample(1.5, kUnknownDim), "[1, 1, ?]");
  EXPECT_THAT(upsample(0.1, 1), HasSubstr("scale_factor_width 0.1"));
  EXPECT_THAT(upsample(-1, 3), HasSubstr("no valid size"));
}

TEST(UpsampleBilinear, AlignCornersAndHalfPixelCentres) {
  const auto upsample = [](bool align_corners) {
    return OpCall("upsample_bilinear")
        .Floats("x", {1, 1, 2}, {0, 12})
        .Int("scale_factor_width", 2)
        .Bool("align_corners", align_corners);
  };
  EXPECT_THAT(upsample(true).Output(), ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(upsample(false).Output(), ElementsAre(0, 3, 9, 12));
  EXPECT_THAT(upsample(false).Bool("half_pixel_centers", false).Output(), ElementsAre(0, 6, 12, 12));
}

OpCall Resize(Literal x, const std::vector<int64_t>& shape, int64_t dimensions, const char* interpolation) {
  return OpCall("resize")
      .Value("x", std::move(x))
      .Ints("shape", shape)
      .Value("resized_dims", Literal(Tensor::Scalar(DataType::kUInt32, static_cast<double>(dimensions))))
      .Text("interpolation_mode", interpolation)
      .Text("sampling_mode", "DEFAULT");
}

TEST(Resize, CopiesIntegersExactly) {
  const int64_t odd = (1 << 30) + 1;  // no fp32 number
  const auto results = Resize(Literal::Int32s({odd, 5}), {4}, 1, "NEAREST_NEIGHBOR").Run();
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_THAT(results->front().ToInts(), ElementsAre(odd, odd, 5, 5));
}

TEST(Resize, UsesTheLastEntriesOfShapeAndZeroKeepsASize) {
  const Literal x(*Tensor::Zeros({DataType::kFp32, {1, 2, 3, 4}}));
  EXPECT_EQ(Resize(x, {9, 9, 5, 6}, 2, "LINEAR").InferredShape(), "[1, 2, 5, 6]");
  EXPECT_EQ(Resize(x, {0, 8}, 2, "LINEAR").InferredShape(), "[1, 2, 3, 8]");
  EXPECT_THAT(Resize(x, {8}, 2, "LINEAR").InferError(), HasSubstr("at least resized_dims (2)"));
  EXPECT_THAT(Resize(x, {8}, 5, "LINEAR").InferError(), HasSubstr("resized_dims is 5, but x has shape [1, 2, 3, 4]"));
  EXPECT_THAT(Resize(x, {-8}, 1, "LINEAR").InferError(), HasSubstr("cannot be resized to [-8]"));
  EXPECT_THAT(Resize(x, {8}, 1, "CUBIC").InferError(), HasSubstr("interpolation_mode 'CUBIC'"));
}

TEST(Resize, ARuntimeShapeLeavesTheSizesUnknown) {
  const auto resize = OpCall("resize")
                          .Typed("x", DataType::kFp32, {1, 2, 3, 4})
                          .Typed("shape", DataType::kInt32, {2})
                          .Value("resized_dims", Literal(Tensor::Scalar(DataType::kUInt32, 2)));
  EXPECT_EQ(resize.InferredShape(), "[1, 2, ?, ?]");
}

}  // namespace
}  // namespace milwright
