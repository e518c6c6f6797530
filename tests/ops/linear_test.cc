// Matrix products and attention.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "ops/dense_products.h"
#include "ops/op_call.h"
#include "ops/op_tensors.h"

namespace milwright {
namespace {

using testing::Counting;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using testing::FloatTensor;
using ::testing::HasSubstr;
using testing::IntTensor;
using testing::OpCall;

TEST(LinearTest, MultipliesByTheTransposedWeightAndAddsTheBias) {
  OpCall call("linear");
  call.Floats("x", {2, 2}, {1, 2, 3, 4}).Floats("weight", {3, 2}, {1, 0, 0, 1, 1, 1}).Floats("bias", {3}, {0, 10, 100});
  EXPECT_EQ(call.InferredShape(), "[2, 3]");
  EXPECT_THAT(call.Output(), ElementsAre(1, 12, 103, 3, 14, 107));
}

TEST(LinearTest, SumsInFp32AndRoundsOnce) {
  // In fp16 2048 + 1 stays 2048, so a sum kept in fp16 would lose every 1; the fp32 sum is 2052.
  OpCall call("linear");
  call.Floats("x", {1, 5}, {2048, 1, 1, 1, 1}, DataType::kFp16);
  call.Floats("weight", {1, 5}, {1, 1, 1, 1, 1}, DataType::kFp16);
  EXPECT_THAT(call.Output(), ElementsAre(2052));
}

TEST(LinearTest, IntegersWrap) {
  OpCall call("linear");
  call.Value("x", IntTensor(DataType::kInt32, {2}, {1 << 30, 1}))
      .Value("weight", IntTensor(DataType::kInt32, {1, 2}, {4, 7}));
  EXPECT_THAT(call.Output(), ElementsAre(7));
}

TEST(LinearTest, FromIOS17TheWeightMayBeOfAnotherType) {
  OpCall call("linear");
  call.Floats("x", {1, 1}, {1}, DataType::kFp16).Floats("weight", {1, 1}, {0.1F});
  const auto results = call.Run();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->front().dtype(), DataType::kFp16);
  EXPECT_EQ(results->front().GetFloat(0), 0.0999755859375F);
}

TEST(LinearTest, SaysWhatDoesNotFit) {
  OpCall call("linear");
  call.Typed("x", DataType::kFp16, {2, 3}).Typed("weight", DataType::kFp16, {5, 4});
  EXPECT_EQ(call.InferError(), "linear: the last axis of x and of weight has the sizes 3 and 4, which must be equal");
}

std::string ProductShape(Shape x, Shape y, bool transpose_x = false, bool transpose_y = false) {
  OpCall call("matmul");
  call.Typed("x", DataType::kFp16, std::move(x)).Typed("y", DataType::kFp16, std::move(y));
  return call.Bool("transpose_x", transpose_x).Bool("transpose_y", transpose_y).InferredShape();
}

TEST(MatmulTest, Shapes) {
  EXPECT_EQ(ProductShape({2, 3}, {3, 4}), "[2, 4]");
  EXPECT_EQ(ProductShape({3, 2}, {4, 3}, true, true), "[2, 4]");
  EXPECT_EQ(ProductShape({5, 1, 2, 3}, {7, 3, 4}), "[5, 7, 2, 4]");
  EXPECT_EQ(ProductShape({3}, {3}), "[]");
  EXPECT_EQ(ProductShape({3}, {6, 3, 4}), "[6, 4]");
  EXPECT_EQ(ProductShape({6, 2, 3}, {3}), "[6, 2]");
  EXPECT_EQ(ProductShape({kUnknownDim, 2, 3}, {1, kUnknownDim, 4}), "[?, 2, 4]");
  EXPECT_EQ(ProductShape({2, 3}, {4, 5}), "matmul: [2, 3] and [4, 5] do not multiply: the inner sizes differ");
  EXPECT_THAT(ProductShape({2, 2, 3}, {4, 3, 5}), HasSubstr("do not broadcast"));
  EXPECT_THAT(ProductShape({3}, {3, 2}, true), HasSubstr("a vector cannot be transposed"));
}

// Every combination of transposes and broadcast batches against the sum written out.
TEST(MatmulTest, AgreesWithTheDefinition) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<int> digit(-4, 4);  // small integers: every fp32 sum is exact in any order
  const auto fill = [&](Shape shape) {
    Tensor tensor = *Tensor::Zeros({DataType::kFp32, std::move(shape)});
    for (float& value : tensor.MutableAs<float>()) value = static_cast<float>(digit(random));
    return tensor;
  };
  constexpr int64_t kM = 3;
  constexpr int64_t kK = 37;
  constexpr int64_t kN = 5;
  for (const bool transpose_x : {false, true}) {
    for (const bool transpose_y : {false, true}) {
      const Tensor x = fill(transpose_x ? Shape{2, 1, kK, kM} : Shape{2, 1, kM, kK});
      const Tensor y = fill(transpose_y ? Shape{3, kN, kK} : Shape{3, kK, kN});
      const std::vector<float> product = OpCall("matmul")
                                             .Value("x", x)
                                             .Value("y", y)
                                             .Bool("transpose_x", transpose_x)
                                             .Bool("transpose_y", transpose_y)
                                             .Output();
      ASSERT_EQ(product.size(), static_cast<size_t>(2 * 3 * kM * kN)) << "seed " << kSeed;
      for (int64_t p = 0; p < static_cast<int64_t>(product.size()); ++p) {
        const int64_t j = p % kN;
        const int64_t i = p / kN % kM;
        const int64_t batch_y = p / (kN * kM) % 3;
        const int64_t batch_x = p / (kN * kM * 3);
        float sum = 0;
        for (int64_t k = 0; k < kK; ++k) {
          sum += x.GetFloat(batch_x * kM * kK + (transpose_x ? k * kM + i : i * kK + k)) *
                 y.GetFloat(batch_y * kK * kN + (transpose_y ? j * kK + k : k * kN + j));
        }
        ASSERT_EQ(product[static_cast<size_t>(p)], sum) << "seed " << kSeed << ", element " << p;
      }
    }
  }
}

TEST(MatmulTest, TheResultHasTheTypeOfTheSideThatIsNotConstant) {
  OpCall constant_y("matmul");
  constant_y.Typed("x", DataType::kFp16, {2, 2}).Floats("y", {2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(constant_y.Infer()->front().dtype(), DataType::kFp16);
  OpCall constant_x("matmul");
  constant_x.Floats("x", {2, 2}, {1, 2, 3, 4}).Typed("y", DataType::kFp16, {2, 2});
  EXPECT_EQ(constant_x.Infer()->front().dtype(), DataType::kFp16);
}

TEST(MatmulTest, Integers) {
  OpCall call("matmul");
  call.Value("x", Counting({2, 2})).Value("y", Counting({2, 2})).Bool("transpose_y", true);
  EXPECT_THAT(call.Output(), ElementsAre(1, 3, 3, 13));
}

TEST(DotProductTest, AddsEveryElementOnce) {
  std::vector<float> ones(100, 1.0F);
  std::vector<float> counting(100);
  for (size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<float>(i);
  for (const int64_t count : {0, 1, 15, 16, 17, 31, 32, 100}) {
    EXPECT_EQ(DotProduct(ones.data(), counting.data(), count), static_cast<float>(count * (count - 1) / 2)) << count;
  }
}

TEST(EinsumTest, TwoFormsInAnyLetters) {
  OpCall call("einsum");
  call.Values("values", {FloatTensor(DataType::kFp32, {1, 2, 2}, {1, 2, 3, 4}),
                         FloatTensor(DataType::kFp32, {2, 2, 1}, {1, 10, 100, 1000})});
  call.Text("equation", "aij, jik -> aik");
  // out[0, h, 0] = sum over w of x[0, h, w] * y[w, h, 0]
  EXPECT_THAT(call.Output(), ElementsAre(1 * 1 + 2 * 100, 3 * 10 + 4 * 1000));
  OpCall other("einsum");
  other.Values("values", {Counting({2, 2}), Counting({2, 2})}).Text("equation", "ij,jk->ik");
  EXPECT_THAT(other.InferError(), HasSubstr("'ij,jk->ik' is neither of the two forms"));
}

TEST(EinsumTest, Broadcasts) {
  OpCall call("einsum");
  call.Values("values",
              {FloatTensor(DataType::kFp32, {2, 1, 1, 1}, {1, 2}), FloatTensor(DataType::kFp32, {1, 1, 2, 1}, {3, 4})});
  call.Text("equation", "nchw,nwhr->nchr");
  EXPECT_EQ(call.InferredShape(), "[2, 1, 2, 1]");
  EXPECT_THAT(call.Output(), ElementsAre(3, 4, 6, 8));
}

// One query, two keys, width 4: the scores are (4, 0) / 2 = (2, 0).
OpCall Attention() {
  OpCall call("scaled_dot_product_attention");
  call.Floats("query", {1, 1, 4}, {1, 1, 1, 1}).Floats("key", {1, 2, 4}, {1, 1, 1, 1, 0, 0, 0, 0});
  call.Floats("value", {1, 2, 1}, {1, 0});
  return call;
}

TEST(AttentionTest, SoftmaxOfScaledScores) {
  EXPECT_THAT(Attention().Output(), ElementsAre(FloatEq(static_cast<float>(std::exp(2.0) / (std::exp(2.0) + 1)))));
}

TEST(AttentionTest, Masks) {
  EXPECT_THAT(Attention().Value("attn_mask", IntTensor(DataType::kBool, {1, 2}, {0, 1})).Output(), ElementsAre(0));
  EXPECT_THAT(Attention().Floats("attn_mask", {2}, {-2, 0}).Output(), ElementsAre(0.5F));
  // By the formula, a row of which nothing is left is NaN.
  const std::vector<float> nothing =
      Attention().Value("attn_mask", IntTensor(DataType::kBool, {1, 2}, {0, 0})).Output();
  ASSERT_EQ(nothing.size(), 1U);
  EXPECT_TRUE(std::isnan(nothing[0]));
}

TEST(AttentionTest, MaskBroadcastsOverHeads) {
  OpCall call("scaled_dot_product_attention");
  call.Floats("query", {2, 1, 1}, {0, 0}).Floats("key", {2, 2, 1}, {0, 0, 0, 0});
  call.Floats("value", {2, 2, 1}, {1, 2, 3, 4});
  call.Value("attn_mask", IntTensor(DataType::kBool, {2, 1, 2}, {1, 0, 0, 1}));
  EXPECT_THAT(call.Output(), ElementsAre(1, 4));
}

TEST(AttentionTest, SaysWhatDoesNotFit) {
  OpCall heads("scaled_dot_product_attention");
  heads.Typed("query", DataType::kFp16, {1, 8, 1, 64}).Typed("key", DataType::kFp16, {1, 2, 5, 64});
  heads.Typed("value", DataType::kFp16, {1, 2, 5, 64});
  EXPECT_THAT(heads.InferError(), HasSubstr("axis 1 of query, key and value has the sizes 8 and 2"));
  OpCall mask("scaled_dot_product_attention");
  mask.Typed("query", DataType::kFp16, {8, 1, 64}).Typed("key", DataType::kFp16, {8, 5, 64});
  mask.Typed("value", DataType::kFp16, {8, 5, 32}).Typed("attn_mask", DataType::kFp16, {1, 6});
  EXPECT_THAT(mask.InferError(), HasSubstr("attn_mask [1, 6] does not broadcast to the scores [8, 1, 5]"));
}

}  // namespace
}  // namespace milwright
