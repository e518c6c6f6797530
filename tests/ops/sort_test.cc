#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/run_op.h"

namespace milwright {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using testing::Fp32;
using ::testing::HasSubstr;
using testing::Int32s;
using testing::Integers;
using testing::kNan;

TEST(Argsort, DescendsByDefaultAndKeepsTies) {
  const Literal x = Fp32({2, 4}, {1, 3, 3, 2, kNan, 5, 6, kNan});
  EXPECT_THAT(Call("argsort", Opset::kIOS15).With("x", x).Result1().ToInts(), ElementsAre(1, 2, 3, 0, 2, 1, 0, 3));
  EXPECT_THAT(Call("argsort", Opset::kIOS15).With("x", x).With("ascending", Literal::Bool(true)).Result1().ToInts(),
              ElementsAre(0, 3, 1, 2, 1, 2, 0, 3));
  EXPECT_THAT(Call("argsort", Opset::kIOS15)
                  .With("x", Int32s({2, 2}, {1, 9, 5, 3}))
                  .With("axis", Literal::Int32(0))
                  .Result1()
                  .ToInts(),
              ElementsAre(1, 0, 0, 1));
}

TEST(Topk, ValuesAndIndices) {
  const auto results = Call("topk", Opset::kIOS16)
                           .With("x", Fp32({2, 3, 2}, {1, 6, 3, 5, 2, 4, 7, 0, 9, 1, 8, 2}))
                           .With("k", Literal::Int32(2))
                           .With("axis", Literal::Int32(1))
                           .Run();
  ASSERT_EQ(results->size(), 2U);
  EXPECT_EQ((*results)[0].tensor.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT((*results)[0].tensor.ToFloats(), ElementsAre(3, 6, 2, 5, 9, 2, 8, 1));
  EXPECT_THAT((*results)[1].tensor.ToInts(), ElementsAre(1, 0, 2, 1, 1, 2, 2, 1));
}

TEST(Topk, VersionsDiffer) {
  const auto topk = [](Opset opset, int64_t k) {
    return Call("topk", opset).With("x", Integers(DataType::kUInt8, {3}, {7, 200, 9})).With("k", Literal::Int32(k));
  };
  const auto all = topk(Opset::kIOS17, -1).With("output_indices_dtype", Literal::String("uint16")).Run();
  EXPECT_EQ((*all)[0].tensor.dtype(), DataType::kUInt8);
  EXPECT_THAT((*all)[0].tensor.ToInts(), ElementsAre(200, 9, 7));
  EXPECT_EQ((*all)[1].tensor.dtype(), DataType::kUInt16);
  EXPECT_EQ(topk(Opset::kIOS16, 1).With("return_indices", Literal::Bool(false)).Run()->size(), 1U);
  EXPECT_EQ(topk(Opset::kIOS16, 4).Infer().status().message(), "topk: k 4 does not fit axis 0 of the shape [3]");
  EXPECT_FALSE(topk(Opset::kIOS16, -1).Infer().ok());
  const auto dynamic =
      Call("topk", Opset::kIOS15).WithType("x", Type::Tensor(DataType::kFp16, {kUnknownDim, kUnknownDim})).Infer();
  EXPECT_EQ((*dynamic)[0], Type::Tensor(DataType::kFp16, {kUnknownDim, 1}));
  EXPECT_EQ((*dynamic)[1], Type::Tensor(DataType::kInt32, {kUnknownDim, 1}));
}

// Boxes (x, y, width, height): 0 and 1 overlap by 1/3, box 2 stands apart.
class Suppression : public ::testing::Test {
 protected:
  static Call Make(float score_threshold, bool per_class) {
    return Call("non_maximum_suppression", Opset::kIOS15)
        .With("boxes", Fp32({1, 3, 4}, {0, 0, 2, 2, 1, 0, 2, 2, 9, 9, 2, 2}))
        .With("scores", Fp32({1, 3, 2}, {0.9F, 0.1F, 0.2F, 0.8F, 0.3F, 0.1F}))
        .With("iou_threshold", Fp32({}, {0.25F}))
        .With("score_threshold", Fp32({}, {score_threshold}))
        .With("max_boxes", Literal::Int32(4))
        .With("per_class_suppression", Literal::Bool(per_class));
  }
};

TEST_F(Suppression, DropsOverlapsAndPads) {
  const auto results = Make(0.2F, false).Run();
  ASSERT_TRUE(results.ok());
  EXPECT_THAT((*results)[2].tensor.ToInts(), ElementsAre(0, 2, -1, -1));
  EXPECT_THAT((*results)[3].tensor.ToInts(), ElementsAre(2));
  EXPECT_EQ((*results)[0].tensor.GetFloat(4), 9);
  EXPECT_THAT((*results)[1].tensor.ToFloats(), ElementsAre(0.9F, 0.1F, 0.3F, 0.1F, 0, 0, 0, 0));
}

TEST_F(Suppression, PerClassAndThreshold) {
  EXPECT_THAT((*Make(0.2F, true).Run())[2].tensor.ToInts(), ElementsAre(0, 1, 2, -1));
  EXPECT_THAT((*Make(0.5F, true).Run())[2].tensor.ToInts(), ElementsAre(0, 1, -1, -1));
  EXPECT_THAT((*Make(2.0F, true).Run())[2].tensor.ToInts(), ElementsAre(0, -1, -1, -1));  // the best one alone
}

TEST_F(Suppression, BoxesLieLastFromIos17On) {
  const auto results = Call("non_maximum_suppression", Opset::kIOS17)
                           .With("boxes", Fp32({1, 4, 3}, {0, 1, 9, 0, 0, 9, 2, 2, 2, 2, 2, 2}))
                           .With("scores", Fp32({1, 1, 3}, {0.9F, 0.8F, 0.3F}))
                           .With("iou_threshold", Fp32({}, {0.25F}))
                           .With("max_boxes", Literal::Int32(2))
                           .Run();
  ASSERT_EQ(results->size(), 3U);
  EXPECT_THAT((*results)[0].tensor.ToFloats(), ElementsAre(0, 9, 0, 9, 2, 2, 2, 2));
  EXPECT_THAT((*results)[2].tensor.ToInts(), ElementsAre(0, 2));
  const auto bad = Call("non_maximum_suppression", Opset::kIOS17)
                       .WithType("boxes", Type::Tensor(DataType::kFp16, {1, 3, 4}))
                       .WithType("scores", Type::Tensor(DataType::kFp16, {1, 1, 3}))
                       .With("max_boxes", Literal::Int32(2))
                       .Infer();
  EXPECT_THAT(bad.status().message(), HasSubstr("boxes of shape [1, 3, 4] and scores of shape [1, 1, 3] must be"));
}

}  // namespace
}  // namespace milwright
