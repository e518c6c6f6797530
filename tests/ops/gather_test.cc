// gather and scatter in their three forms.
#include <gmock/gmock.h>

#include "ops/op_call.h"
#include "ops/op_tensors.h"

namespace milwright {
namespace {

using testing::Counting;
using ::testing::ElementsAre;
using testing::FloatTensor;
using ::testing::HasSubstr;
using testing::IntTensor;
using testing::OpCall;

Tensor Indices(Shape shape, const std::vector<int64_t>& values) {
  return IntTensor(DataType::kInt32, std::move(shape), values);
}

TEST(GatherTest, TakesSlicesOfTheAxis) {
  OpCall call("gather");
  call.Value("x", Counting({2, 3})).Value("indices", Indices({2, 1}, {2, 0})).Int("axis", 1);
  EXPECT_EQ(call.InferredShape(), "[2, 2, 1]");
  EXPECT_THAT(call.Output(), ElementsAre(2, 0, 5, 3));
}

TEST(GatherTest, ScalarIndexDropsTheAxis) {
  OpCall call("gather");
  call.Value("x", Counting({4}, DataType::kUInt8)).Value("indices", Tensor::Scalar(DataType::kUInt16, 3));
  EXPECT_EQ(call.InferredShape(), "[]");
  EXPECT_THAT(call.Output(), ElementsAre(3));
}

// A negative axis counts in x, whatever the batch axes: TensorFlow's reading (op-semantics.md, section 2).
TEST(GatherTest, BatchAxesWithANegativeAxis) {
  OpCall call("gather");
  call.Value("x", Counting({2, 2, 3})).Value("indices", Indices({2, 1}, {0, 2})).Int("axis", -1).Int("batch_dims", 1);
  EXPECT_EQ(call.InferredShape(), "[2, 2, 1]");
  EXPECT_THAT(call.Output(), ElementsAre(0, 3, 8, 11));
}

TEST(GatherTest, NegativeIndicesCountFromTheEnd) {
  OpCall call("gather", Opset::kIOS15);
  call.Value("x", Counting({3})).Value("indices", Indices({2}, {-1, -3}));
  EXPECT_THAT(call.Output(), ElementsAre(2, 0));
}

// T23: a position of 40000 that went through an int16 cast arrives as -25536.
TEST(GatherTest, T23AWrappedIndexIsNamed) {
  OpCall call("gather");
  call.Value("x", Counting({20000})).Value("indices", IntTensor(DataType::kInt16, {1}, {40000}));
  const auto result = call.Run();
  EXPECT_EQ(result.status().code(), ErrorCode::kRuntime);
  EXPECT_EQ(result.status().message(), "gather: index -25536 is outside the size 20000 of axis 0");
}

TEST(GatherTest, SaysWhatDoesNotFit) {
  OpCall axis("gather");
  axis.Typed("x", DataType::kFp16, {2, 3}).Typed("indices", DataType::kInt32, {1}).Int("axis", 2);
  EXPECT_EQ(axis.InferError(), "gather: axis 2 is outside the shape [2, 3]");
  OpCall batch("gather");
  batch.Typed("x", DataType::kFp16, {2, 3}).Typed("indices", DataType::kInt32, {3, 1}).Int("axis", 1);
  batch.Int("batch_dims", 1);
  EXPECT_THAT(batch.InferError(), HasSubstr("the batch axis 0 has the sizes 2 and 3"));
}

TEST(GatherAlongAxisTest, TakesElementByElement) {
  OpCall call("gather_along_axis");
  call.Value("x", Counting({2, 3}, DataType::kFp16)).Value("indices", Indices({2, 2}, {2, 0, -1, 1})).Int("axis", 1);
  EXPECT_THAT(call.Output(), ElementsAre(2, 0, 5, 4));
  OpCall misfit("gather_along_axis");
  misfit.Typed("x", DataType::kFp16, {2, 3}).Typed("indices", DataType::kInt32, {3, 3}).Int("axis", 1);
  EXPECT_THAT(misfit.InferError(), HasSubstr("axis 0 of x and indices has the sizes 2 and 3"));
}

TEST(GatherNdTest, TuplesNameSlices) {
  OpCall call("gather_nd");
  call.Value("x", Counting({2, 2, 2})).Value("indices", Indices({2, 2}, {1, 0, 0, 1}));
  EXPECT_EQ(call.InferredShape(), "[2, 2]");
  EXPECT_THAT(call.Output(), ElementsAre(4, 5, 2, 3));
  OpCall batched("gather_nd");
  batched.Value("x", Counting({2, 2, 2})).Value("indices", Indices({2, 1}, {1, 0})).Int("batch_dims", 1);
  EXPECT_THAT(batched.Output(), ElementsAre(2, 3, 4, 5));
}

TEST(GatherNdTest, SaysWhatDoesNotFit) {
  OpCall deep("gather_nd");
  deep.Typed("x", DataType::kFp16, {2, 2}).Typed("indices", DataType::kInt32, {4, 3});
  EXPECT_THAT(deep.InferError(), HasSubstr("tuples of 3 indices are too long for x [2, 2]"));
  OpCall outside("gather_nd");
  outside.Value("x", Counting({2, 2})).Value("indices", Indices({1, 2}, {0, 2}));
  EXPECT_EQ(outside.Run().status().message(), "gather_nd: index 2 is outside the size 2 of axis 1");
}

OpCall ScatterWithMode(std::string mode) {
  OpCall call("scatter");
  call.Value("data", FloatTensor(DataType::kFp32, {3}, {8, 4, 2})).Value("indices", Indices({2}, {1, 1}));
  call.Value("updates", FloatTensor(DataType::kFp32, {2}, {2, 5})).Text("mode", std::move(mode));
  return call;
}

TEST(ScatterTest, DuplicatesMeetInOrder) {
  EXPECT_THAT(ScatterWithMode("update").Output(), ElementsAre(8, 5, 2));
  EXPECT_THAT(ScatterWithMode("add").Output(), ElementsAre(8, 11, 2));
  EXPECT_THAT(ScatterWithMode("sub").Output(), ElementsAre(8, -3, 2));
  EXPECT_THAT(ScatterWithMode("mul").Output(), ElementsAre(8, 40, 2));
  EXPECT_THAT(ScatterWithMode("div").Output(), ElementsAre(8, 4.0F / 2 / 5, 2));
  EXPECT_THAT(ScatterWithMode("max").Output(), ElementsAre(8, 5, 2));
  EXPECT_THAT(ScatterWithMode("min").Output(), ElementsAre(8, 2, 2));
  EXPECT_THAT(ScatterWithMode("set").InferError(), HasSubstr("the mode 'set' is none of"));
}

TEST(ScatterTest, AddIsTheDefaultAndRoundsEachStep) {
  // 2048 + 1 rounds back to 2048 in fp16, twice; 2048 + 2 would not.
  OpCall call("scatter");
  call.Value("data", FloatTensor(DataType::kFp16, {1}, {2048})).Value("indices", Indices({2}, {0, 0}));
  call.Value("updates", FloatTensor(DataType::kFp16, {2}, {1, 1}));
  EXPECT_THAT(call.Output(), ElementsAre(2048));
}

TEST(ScatterTest, SaysWhatDoesNotFit) {
  OpCall shape("scatter");
  shape.Typed("data", DataType::kFp32, {3, 4}).Typed("indices", DataType::kInt32, {2});
  shape.Typed("updates", DataType::kFp32, {2, 3}).Int("axis", 1);
  EXPECT_EQ(shape.InferError(),
            "scatter: the updates have the shape [2, 3], but data [3, 4] and indices [2] need [3, 2]");
  OpCall zero("scatter");
  zero.Value("data", Counting({2})).Value("indices", Indices({1}, {0})).Value("updates", Counting({1}));
  zero.Text("mode", "div");
  EXPECT_THAT(zero.Run().status().message(), HasSubstr("update 0 divides by zero"));
}

TEST(ScatterAlongAxisTest, PutsElementByElement) {
  OpCall call("scatter_along_axis");
  call.Value("data", Counting({2, 3})).Value("indices", Indices({2, 1}, {2, 0}));
  call.Value("updates", IntTensor(DataType::kInt32, {2, 1}, {10, 20})).Int("axis", -1);
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 12, 23, 4, 5));
}

TEST(ScatterNdTest, PutsSlices) {
  OpCall call("scatter_nd");
  call.Value("data", Counting({2, 2})).Value("indices", Indices({1, 1}, {1}));
  call.Value("updates", IntTensor(DataType::kInt32, {1, 2}, {10, 20})).Text("mode", "update");
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 10, 20));
}

}  // namespace
}  // namespace milwright
