// concat, stack, split, tile and pad.
#include <gmock/gmock.h>

#include "ops/op_call.h"
#include "ops/op_tensors.h"

namespace milwright {
namespace {

using testing::Counting;
using ::testing::ElementsAre;
using testing::FloatTensor;
using ::testing::HasSubstr;
using testing::OpCall;

TEST(ConcatTest, JoinsAlongTheAxis) {
  OpCall call("concat");
  call.Values("values", {Counting({2, 2}), Counting({2, 1})}).Int("axis", -1);
  EXPECT_EQ(call.InferredShape(), "[2, 3]");
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 0, 2, 3, 1));
}

TEST(ConcatTest, InterleavesAndTakesScalars) {
  OpCall interleaved("concat");
  interleaved.Values("values", {Counting({2, 2}), Counting({2, 2})}).Int("axis", 0).Bool("interleave", true);
  EXPECT_THAT(interleaved.Output(), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  OpCall scalars("concat");
  scalars.Values("values", {Tensor::Scalar(DataType::kFp16, 1.5), Tensor::Scalar(DataType::kFp16, -2)}).Int("axis", 0);
  EXPECT_THAT(scalars.Output(), ElementsAre(1.5F, -2.0F));
}

TEST(ConcatTest, UnknownSizes) {
  OpCall call("concat");
  call.Typed("values", DataType::kFp16, {kUnknownDim, 4}).Typed("values", DataType::kFp16, {2, kUnknownDim});
  call.Int("axis", 1);
  EXPECT_EQ(call.InferredShape(), "[2, ?]");
}

TEST(ConcatTest, SaysWhatDoesNotFit) {
  OpCall sizes("concat");
  sizes.Values("values", {Counting({2, 2}), Counting({3, 2})}).Int("axis", 1);
  EXPECT_EQ(sizes.InferError(), "concat: axis 0 has the sizes 2 and 3, which must be equal");
  OpCall types("concat");
  types.Values("values", {Counting({2}), Counting({2}, DataType::kFp16)}).Int("axis", 0);
  EXPECT_THAT(types.InferError(), HasSubstr("tensor<int32, [2]> and tensor<fp16, [2]> do not go together"));
  OpCall interleave("concat");
  interleave.Values("values", {Counting({2}), Counting({3})}).Int("axis", 0).Bool("interleave", true);
  EXPECT_THAT(interleave.InferError(), HasSubstr("the interleaved axis 0 has the sizes 2 and 3"));
}

TEST(StackTest, MakesANewAxis) {
  OpCall call("stack");
  call.Values("values", {Counting({2}), Counting({2})}).Int("axis", -1);
  EXPECT_EQ(call.InferredShape(), "[2, 2]");
  EXPECT_THAT(call.Output(), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(OpCall("stack").Values("values", {Counting({2})}).Int("axis", 2).InferError(), HasSubstr("axis 2"));
}

TEST(SplitTest, EqualAndGivenPieces) {
  OpCall equal("split");
  equal.Value("x", Counting({2, 4})).Int("num_splits", 2).Int("axis", 1);
  EXPECT_THAT(equal.Output(0), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(equal.Output(1), ElementsAre(2, 3, 6, 7));
  OpCall given("split");
  given.Value("x", Counting({4})).Int("num_splits", 2).Ints("split_sizes", {1, 3}).Int("axis", 0);
  EXPECT_THAT(given.Output(1), ElementsAre(1, 2, 3));
}

TEST(SplitTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(OpCall("split").Typed("x", DataType::kFp16, {5}).Int("num_splits", 2).Int("axis", 0).InferError(),
              HasSubstr("axis 0 of [5] does not split into 2 equal pieces"));
  EXPECT_THAT(OpCall("split").Typed("x", DataType::kFp16, {5}).Ints("split_sizes", {1, 3}).Int("axis", 0).InferError(),
              HasSubstr("[1, 3] do not add up to 5"));
  EXPECT_THAT(
      OpCall("split").Typed("x", DataType::kFp16, {kUnknownDim}).Int("num_splits", 1 << 30).Int("axis", 0).InferError(),
      HasSubstr("there cannot be 1073741824 splits"));
}

TEST(TileTest, RepeatsEveryAxis) {
  OpCall call("tile");
  call.Value("x", Counting({2, 2})).Ints("reps", {2, 2});
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_EQ(OpCall("tile").Typed("x", DataType::kFp16, {2, 3}).Typed("reps", DataType::kInt32, {2}).InferredShape(),
            "[?, ?]");
  EXPECT_THAT(OpCall("tile").Typed("x", DataType::kFp16, {2, 3}).Ints("reps", {2}).InferError(),
              HasSubstr("reps of shape [1] do not fit the shape [2, 3]"));
}

OpCall Pad(const std::vector<int64_t>& pad, std::string mode) {
  OpCall call("pad");
  call.Value("x", FloatTensor(DataType::kFp16, {2, 3}, {1, 2, 3, 4, 5, 6})).Ints("pad", pad);
  call.Text("mode", std::move(mode));
  return call;
}

TEST(PadTest, ConstantBelongsToTheLastAxes) {
  EXPECT_THAT(Pad({1, 0}, "constant").Float("constant_val", 9).Output(), ElementsAre(9, 1, 2, 3, 9, 4, 5, 6));
  EXPECT_THAT(Pad({0, 1, 1, 0}, "constant").Output(), ElementsAre(0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0));
}

TEST(PadTest, ReflectLeavesOutTheEdgeAndReplicateRepeatsIt) {
  EXPECT_THAT(Pad({2, 1}, "reflect").Output(), ElementsAre(3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5));
  EXPECT_THAT(Pad({1, 0, 0, 2}, "replicate").Output(), ElementsAre(1, 2, 3, 3, 3, 1, 2, 3, 3, 3, 4, 5, 6, 6, 6));
}

TEST(PadTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(Pad({3, 0}, "reflect").InferError(), HasSubstr("axis 1 of [2, 3] cannot be padded by 3 and 0"));
  EXPECT_THAT(Pad({1}, "constant").InferError(), HasSubstr("no pairs"));
  EXPECT_THAT(Pad({1, 1}, "mirror").InferError(), HasSubstr("the mode 'mirror' is none of"));
  OpCall unknown("pad");
  unknown.Typed("x", DataType::kFp16, {2, 3}).Typed("pad", DataType::kInt32, {4});
  EXPECT_EQ(unknown.InferredShape(), "[?, ?]");
}

}  // namespace
}  // namespace milwright
