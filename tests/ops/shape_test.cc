// Reshape, transpose and the other ops that give a tensor another shape or order.
#include <gmock/gmock.h>

#include "ops/op_call.h"
#include "ops/op_tensors.h"

namespace milwright {
namespace {

using testing::Counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IntTensor;
using testing::OpCall;

std::string ReshapedShape(const Shape& x, const std::vector<int64_t>& shape, Opset opset) {
  return OpCall("reshape", opset).Typed("x", DataType::kFp32, x).Ints("shape", shape).InferredShape();
}

TEST(ReshapeTest, ResolvesMinusOneAndZeros) {
  EXPECT_EQ(ReshapedShape({2, 3, 4}, {4, -1, 2}, Opset::kIOS15), "[4, 3, 2]");
  EXPECT_EQ(ReshapedShape({2, 3, 4}, {0, -1, 2}, Opset::kIOS15), "[2, 6, 2]");
  EXPECT_EQ(ReshapedShape({}, {1, 1}, Opset::kIOS15), "[1, 1]");
}

TEST(ReshapeTest, FromIOS17ZerosAreMatchedFromTheRight) {
  EXPECT_EQ(ReshapedShape({2, 50}, {1, 0, -1, 0}, Opset::kIOS17), "[1, 1, 2, 50]");
  EXPECT_EQ(ReshapedShape({2, 3, 4}, {-1, 0}, Opset::kIOS17), "[6, 4]");
  EXPECT_THAT(ReshapedShape({2, 50}, {1, 1, 0}, Opset::kIOS16), HasSubstr("no size in [2, 50] to copy"));
}

TEST(ReshapeTest, UnknownSizesStayUnknownUnlessCopied) {
  EXPECT_EQ(ReshapedShape({kUnknownDim, 6, 4}, {0, -1}, Opset::kIOS16), "[?, 24]");
  EXPECT_EQ(ReshapedShape({kUnknownDim, 6}, {-1, 3}, Opset::kIOS16), "[?, 3]");
  OpCall unknown_shape("reshape");
  unknown_shape.Typed("x", DataType::kFp32, {2, 3}).Typed("shape", DataType::kInt32, {3});
  EXPECT_EQ(unknown_shape.InferredShape(), "[?, ?, ?]");
}

TEST(ReshapeTest, SaysWhatDoesNotFit) {
  EXPECT_EQ(ReshapedShape({2, 3}, {4, 2}, Opset::kIOS18),
            "reshape: [2, 3] cannot take the shape [4, 2]: the numbers of elements differ");
  EXPECT_THAT(ReshapedShape({2, 3}, {4, -1}, Opset::kIOS18), HasSubstr("the size at -1 is not a whole number"));
  EXPECT_THAT(ReshapedShape({2, 3}, {-1, -1}, Opset::kIOS18), HasSubstr("more than one size is -1"));
  OpCall huge("reshape");
  huge.Typed("x", DataType::kFp32, {2}).Typed("shape", DataType::kInt32, {int64_t{1} << 40});
  EXPECT_THAT(huge.InferError(), HasSubstr("beyond the limit"));
}

TEST(ReshapeTest, KeepsTheElements) {
  OpCall call("reshape");
  call.Value("x", Counting({2, 3}, DataType::kBool)).Ints("shape", {3, 2});
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 1, 1, 1, 1));
}

TEST(ReshapeLikeTest, JoinsPiecesOfTheReferences) {
  OpCall call("reshape_like");
  call.Value("x", Counting({24}));
  call.Values("ref_tensors", {Counting({4, 2, 9}), Counting({7, 3})});
  call.Values("begins", {Tensor::Scalar(DataType::kInt32, 0), Tensor::Scalar(DataType::kInt32, -1)});
  call.Values("ends", {Tensor::Scalar(DataType::kInt32, 2), Tensor::Scalar(DataType::kInt32, 0)});
  call.Values("end_masks", {Tensor::Scalar(DataType::kBool, 0), Tensor::Scalar(DataType::kBool, 1)});
  EXPECT_EQ(call.InferredShape(), "[4, 2, 3]");
}

TEST(ExpandDimsTest, AxesAreThoseOfTheResult) {
  const auto shape = [](const std::vector<int64_t>& axes) {
    return OpCall("expand_dims").Typed("x", DataType::kFp16, {3, kUnknownDim}).Ints("axes", axes).InferredShape();
  };
  EXPECT_EQ(shape({-1, -4}), "[1, 3, ?, 1]");
  EXPECT_EQ(shape({2, 0}), "[1, 3, 1, ?]");
  EXPECT_THAT(shape({0, -4}), HasSubstr("the axis -4 stands twice"));
}

TEST(SqueezeTest, LeavesOtherSizesAlone) {
  EXPECT_EQ(OpCall("squeeze").Typed("x", DataType::kFp16, {1, 3, 1}).Ints("axes", {0, 1}).InferredShape(), "[3, 1]");
  EXPECT_EQ(OpCall("squeeze").Typed("x", DataType::kFp16, {1, 3, 1}).InferredShape(), "[3]");
  EXPECT_EQ(OpCall("squeeze").Typed("x", DataType::kFp16, {1, 1}).InferredShape(), "[]");
}

TEST(Flatten2dTest, SplitsAtTheAxis) {
  const auto shape = [](int64_t axis) {
    return OpCall("flatten2d").Typed("x", DataType::kFp16, {4, 2, 5}).Int("axis", axis).InferredShape();
  };
  EXPECT_EQ(shape(0), "[1, 40]");
  EXPECT_EQ(shape(-1), "[8, 5]");
  EXPECT_THAT(shape(4), HasSubstr("axis 4 is outside [4, 2, 5]"));
}

TEST(TransposeTest, MovesElementsOfEveryWidth) {
  for (const DataType dtype : {DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kFp16}) {
    OpCall call("transpose");
    call.Value("x", Counting({2, 3}, dtype)).Ints("perm", {-1, 0});
    EXPECT_THAT(call.Output(), ElementsAre(0, 3, 1, 4, 2, 5)) << DataTypeName(dtype);
  }
  OpCall scalar("transpose");
  scalar.Value("x", Tensor::Scalar(DataType::kInt32, 7)).Ints("perm", {});
  EXPECT_THAT(scalar.Output(), ElementsAre(7));
}

TEST(TransposeTest, RefusesWhatIsNoPermutation) {
  EXPECT_THAT(OpCall("transpose").Typed("x", DataType::kFp16, {2, 3}).Ints("perm", {0}).InferError(),
              HasSubstr("a perm of 1 axes cannot order the shape [2, 3]"));
  EXPECT_THAT(OpCall("transpose").Typed("x", DataType::kFp16, {2, 3}).Ints("perm", {1, -1}).InferError(),
              HasSubstr("twice"));
}

TEST(ReverseTest, TurnsTheNamedAxes) {
  EXPECT_THAT(OpCall("reverse").Value("x", Counting({2, 3})).Ints("axes", {-1}).Output(),
              ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(OpCall("reverse").Value("x", Counting({2, 3})).Output(), ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST(ReverseSequenceTest, TurnsTheFirstElementsOfEachBatch) {
  OpCall call("reverse_sequence");
  call.Value("x", Counting({2, 4})).Ints("lengths", {3, 0}).Int("seq_axis", 1).Int("batch_axis", 0);
  EXPECT_THAT(call.Output(), ElementsAre(2, 1, 0, 3, 4, 5, 6, 7));
  OpCall too_long("reverse_sequence");
  too_long.Value("x", Counting({2, 4})).Ints("lengths", {3, 5}).Int("seq_axis", 1).Int("batch_axis", 0);
  const auto result = too_long.Run();
  EXPECT_EQ(result.status().code(), ErrorCode::kRuntime);
  EXPECT_THAT(result.status().message(), HasSubstr("length 5 of batch 1 is outside the size 4"));
}

// x[c] = c for 1x1 images: the channel order of each op can be read off the output.
TEST(SpaceTest, ChannelOrders) {
  EXPECT_THAT(
      OpCall("depth_to_space").Value("x", Counting({1, 8, 1, 1}, DataType::kFp32)).Int("block_size", 2).Output(),
      ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(
      OpCall("pixel_shuffle").Value("x", Counting({1, 8, 1, 1}, DataType::kFp32)).Int("upscale_factor", 2).Output(),
      ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(
      OpCall("space_to_depth").Value("x", Counting({1, 2, 2, 2}, DataType::kFp32)).Int("block_size", 2).Output(),
      ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
  EXPECT_THAT(OpCall("pixel_unshuffle")
                  .Value("x", Counting({1, 2, 2, 2}, DataType::kFp32))
                  .Value("downscale_factor", Tensor::Scalar(DataType::kUInt32, 2))
                  .Output(),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(SpaceTest, ShapesMustDivide) {
  EXPECT_THAT(OpCall("depth_to_space").Typed("x", DataType::kFp16, {1, 6, 2, 2}).Int("block_size", 2).InferError(),
              HasSubstr("the channel count 6 of x [1, 6, 2, 2] is no multiple of 4"));
  EXPECT_EQ(
      OpCall("depth_to_space").Typed("x", DataType::kFp16, {1, 8, kUnknownDim, 2}).Int("block_size", 2).InferredShape(),
      "[1, 2, ?, 4]");
  EXPECT_THAT(OpCall("pixel_shuffle").Typed("x", DataType::kFp16, {1, 4, 2}).Int("upscale_factor", 2).InferError(),
              HasSubstr("[N, C, H, W]"));
}

TEST(SpaceTest, BatchesAndBack) {
  OpCall forward("space_to_batch");
  forward.Value("x", Counting({1, 1, 2, 2}, DataType::kFp32)).Ints("block_shape", {2, 2});
  forward.Value("paddings", IntTensor(DataType::kInt32, {2, 2}, {0, 0, 2, 0}));
  EXPECT_EQ(forward.InferredShape(), "[4, 1, 1, 2]");
  // Rows 0 0 0 1 and 0 0 2 3; batch (i, j) takes the columns of parity j.
  EXPECT_THAT(forward.Output(), ElementsAre(0, 0, 0, 1, 0, 2, 0, 3));
  OpCall back("batch_to_space");
  back.Value("x", (*forward.Run()).front()).Ints("block_shape", {2, 2});
  back.Value("crops", IntTensor(DataType::kInt32, {2, 2}, {0, 0, 2, 0}));
  EXPECT_THAT(back.Output(), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace milwright
