#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ops/run_op.h"

namespace milwright {
namespace {

using testing::Call;
using ::testing::ElementsAre;
using testing::Fp16;
using testing::Fp32;
using ::testing::HasSubstr;
using testing::Int32s;
using testing::Integers;

TEST(Fill, TypeAndValue) {
  const Tensor filled =
      Call("fill", Opset::kIOS15).With("shape", Literal::Int32s({2, 2})).With("value", Fp16({}, {2.5F})).Result1();
  EXPECT_EQ(filled.type(), (TensorType{DataType::kFp16, {2, 2}}));
  EXPECT_THAT(filled.ToFloats(), ElementsAre(2.5F, 2.5F, 2.5F, 2.5F));
  EXPECT_EQ(Call("fill", Opset::kIOS15).With("shape", Literal::Int32s({1})).Result1().dtype(), DataType::kFp32);
  const Tensor like = Call("fill_like", Opset::kIOS16)
                          .With("ref_tensor", Fp32({1, 2}, {0, 0}))
                          .With("value", Literal::Bool(true))
                          .Result1();
  EXPECT_EQ(like.type(), (TensorType{DataType::kBool, {1, 2}}));
  EXPECT_THAT(like.ToInts(), ElementsAre(1, 1));
}

TEST(Fill, InferenceOfUnknownShapes) {
  const auto unknown = Call("fill", Opset::kIOS15).WithType("shape", Type::Tensor(DataType::kInt32, {3})).Infer();
  EXPECT_EQ(unknown->front(), Type::Tensor(DataType::kFp32, {kUnknownDim, kUnknownDim, kUnknownDim}));
  const auto fill = [](const std::vector<int64_t>& shape) {
    return Call("fill", Opset::kIOS15).With("shape", Literal::Int32s(shape)).Run().status().message();
  };
  EXPECT_EQ(fill({2, -1}), "fill: the shape [2, -1] has a negative size");
  EXPECT_THAT(fill({1 << 30, 1 << 30, 1 << 30}), HasSubstr("beyond 64 bits"));
  EXPECT_FALSE(
      Call("fill", Opset::kIOS15).WithType("shape", Type::Tensor(DataType::kInt32, {int64_t{1} << 40})).Infer().ok());
}

TEST(OneHot, AxisTypeAndRange) {
  const auto one_hot = [](int64_t axis) {
    return Call("one_hot", Opset::kIOS15)
        .With("indices", Int32s({3}, {2, 0, 7}))
        .With("one_hot_vector_size", Literal::Int32(3))
        .With("axis", Literal::Int32(axis));
  };
  const Tensor last = one_hot(-1).Result1();
  EXPECT_EQ(last.type(), (TensorType{DataType::kInt32, {3, 3}}));
  EXPECT_THAT(last.ToInts(), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(one_hot(0).Result1().ToInts(), ElementsAre(0, 1, 0, 0, 0, 0, 1, 0, 0));
  EXPECT_THAT(one_hot(2).Infer().status().message(), HasSubstr("axis 2"));
  Call typed = one_hot(1);
  typed.With("on_value", Fp16({}, {5})).With("off_value", Fp16({}, {-1}));
  EXPECT_THAT(typed.Result1().ToFloats(), ElementsAre(-1, -1, 5, 5, -1, -1, -1, -1, -1));
  const auto dynamic = Call("one_hot", Opset::kIOS15)
                           .WithType("indices", Type::Tensor(DataType::kInt32, {kUnknownDim}))
                           .WithType("one_hot_vector_size", Type::Scalar(DataType::kInt32))
                           .Infer();
  EXPECT_EQ(dynamic->front(), Type::Tensor(DataType::kInt32, {kUnknownDim, kUnknownDim}));
}

TEST(Range, LengthAndValues) {
  const auto range = [](const Literal& start, const Literal& end, const Literal& step) {
    return Call("range_1d", Opset::kIOS15).With("start", start).With("end", end).With("step", step);
  };
  const auto integer = [](int64_t value) { return Literal::Int32(value); };
  const auto number = [](float value) { return Fp32({}, {value}); };
  EXPECT_THAT(range(integer(2), integer(11), integer(3)).Result1().ToInts(), ElementsAre(2, 5, 8));
  EXPECT_THAT(range(integer(5), integer(-5), integer(-4)).Result1().ToInts(), ElementsAre(5, 1, -3));
  EXPECT_EQ(range(integer(5), integer(1), integer(1)).Result1().size(), 0);
  EXPECT_THAT(range(number(0), number(1), number(0.25F)).Result1().ToFloats(), ElementsAre(0, 0.25F, 0.5F, 0.75F));
  EXPECT_EQ(range(number(0), number(7), number(0.7F)).Result1().size(), 10);  // 7 / 0.7 is 10 in fp32
  EXPECT_THAT(range(integer(0), integer(4), integer(0)).Infer().status().message(), HasSubstr("in steps of 0"));
  EXPECT_FALSE(range(number(0), number(1e30F), number(1)).Infer().ok());
  const auto unknown = Call("range_1d", Opset::kIOS15)
                           .With("start", integer(0))
                           .WithType("end", Type::Scalar(DataType::kInt32))
                           .With("step", integer(1))
                           .Infer();
  EXPECT_EQ(unknown->front(), Type::Tensor(DataType::kInt32, {kUnknownDim}));
}

// Bounds: the mean of n draws lies within 5 standard errors, the deviation within 10 %.
TEST(RandomOps, DistributionsAndRepetition) {
  const Literal shape = Literal::Int32s({100, 40});
  const auto check = [](const Tensor& drawn, double mean, double deviation) {
    const std::vector<float> values = drawn.ToFloats();
    const auto n = static_cast<double>(values.size());
    const double average = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    for (const float value : values) squares += (value - average) * (value - average);
    EXPECT_NEAR(average, mean, 5 * deviation / std::sqrt(n));
    EXPECT_NEAR(std::sqrt(squares / n), deviation, deviation / 10);
  };
  const auto normal = [&shape](int64_t seed) {
    return Call("random_normal", Opset::kIOS15)
        .With("shape", shape)
        .With("mean", Fp32({}, {5}))
        .With("stddev", Fp32({}, {2}))
        .With("seed", Literal::Int32(seed))
        .Result1();
  };
  check(normal(7), 5, 2);
  EXPECT_TRUE(normal(7).BitEquals(normal(7)));
  EXPECT_FALSE(normal(7).BitEquals(normal(8)));
  const Tensor uniform = Call("random_uniform", Opset::kIOS15)
                             .With("shape", shape)
                             .With("low", Fp16({}, {-3}))
                             .With("high", Fp16({}, {1}))
                             .Result1();
  EXPECT_EQ(uniform.dtype(), DataType::kFp16);
  check(uniform, -1, 4 / std::sqrt(12.0));
  const Tensor coins =
      Call("random_bernoulli", Opset::kIOS15).With("shape", shape).With("prob", Fp32({}, {0.2F})).Result1();
  check(coins, 0.2, std::sqrt(0.2 * 0.8));
  const auto categorical = [](const Literal& x, const char* mode) {
    return Call("random_categorical", Opset::kIOS15)
        .With("x", x)
        .With("mode", Literal::String(mode))
        .With("size", Literal::Int32(4000));
  };
  const Tensor classes = categorical(Fp32({2, 3}, {0.1F, 0.2F, 0.7F, 0, 1, 0}), "probs").Result1();
  EXPECT_EQ(classes.shape(), (Shape{2, 4000}));
  const std::vector<float> drawn = classes.ToFloats();
  const auto often = static_cast<double>(std::count(drawn.begin(), drawn.begin() + 4000, 2.0F)) / 4000;
  EXPECT_NEAR(often, 0.7, 5 * std::sqrt(0.7 * 0.3 / 4000));
  EXPECT_EQ(std::count(drawn.begin() + 4000, drawn.end(), 1.0F), 4000);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(categorical(Fp32({1, 2}, {-infinity, 3}), "logits").Result1().GetFloat(9), 1);
  EXPECT_THAT(categorical(Fp32({1, 2}, {0, 0}), "probs").Run().status().message(), HasSubstr("is no distribution"));
}

TEST(NonZero, RowsOfPositions) {
  const Tensor rows =
      Call("non_zero", Opset::kIOS15).With("x", Fp32({2, 3}, {0, 1, -0.0F, 2, 0, std::nanf("")})).Result1();
  EXPECT_EQ(rows.type(), (TensorType{DataType::kInt32, {3, 2}}));
  EXPECT_THAT(rows.ToInts(), ElementsAre(0, 1, 1, 0, 1, 2));
  EXPECT_EQ(Call("non_zero", Opset::kIOS15).With("x", Int32s({2, 2}, {0, 0, 0, 0})).Result1().shape(), (Shape{0, 2}));
  const auto type =
      Call("non_zero", Opset::kIOS15).WithType("x", Type::Tensor(DataType::kBool, {kUnknownDim, 4})).Infer();
  EXPECT_EQ(type->front(), Type::Tensor(DataType::kInt32, {kUnknownDim, 2}));
}

TEST(BandPart, KeepsTheBand) {
  const auto band = [](int64_t lower, int64_t upper) {
    return Call("band_part", Opset::kIOS15)
        .With("x", Int32s({2, 3}, {1, 2, 3, 4, 5, 6}))
        .With("lower", Literal::Int32(lower))
        .With("upper", Literal::Int32(upper))
        .Result1()
        .ToInts();
  };
  EXPECT_THAT(band(-1, -1), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(band(0, -1), ElementsAre(1, 2, 3, 0, 5, 6));
  EXPECT_THAT(band(-1, 0), ElementsAre(1, 0, 0, 4, 5, 0));
  EXPECT_THAT(band(0, 1), ElementsAre(1, 2, 0, 0, 5, 6));
  EXPECT_FALSE(Call("band_part", Opset::kIOS15).With("x", Int32s({2}, {1, 2})).Infer().ok());
}

TEST(ShapeOp, GivesTheSizes) {
  const Tensor shape = Call("shape", Opset::kIOS15).With("x", Fp16({1, 3, 2}, {1, 2, 3, 4, 5, 6})).Result1();
  EXPECT_EQ(shape.type(), (TensorType{DataType::kInt32, {3}}));
  EXPECT_THAT(shape.ToInts(), ElementsAre(1, 3, 2));
}

TEST(Classify, LabelAndTable) {
  Literal classes;
  classes.elements = {Literal::String("cat"), Literal::String("dog")};
  classes.type = Type::List(Type::Scalar(DataType::kString), 2);
  const auto results = Call("classify", Opset::kIOS15)
                           .With("probabilities", Fp32({1, 2}, {0.25F, 0.75F}))
                           .With("classes", classes)
                           .Run();
  ASSERT_TRUE(results.ok());
  EXPECT_EQ((*results)[0].AsString(), "dog");
  EXPECT_EQ(TypeToString((*results)[1].type), "dict<tensor<string, []>, tensor<fp64, []>>");
  ASSERT_EQ((*results)[1].entries.size(), 2U);
  EXPECT_EQ((*results)[1].entries[0].first.AsString(), "cat");
  EXPECT_EQ((*results)[1].entries[0].second.tensor.GetDouble(0), 0.25);
  EXPECT_EQ(Call("classify", Opset::kIOS15)
                .With("probabilities", Fp32({3}, {0, 0, 1}))
                .With("classes", classes)
                .Infer()
                .status()
                .message(),
            "classify: 2 classes for probabilities of shape [3]");
  Literal numbers;
  numbers.elements = {Literal(Tensor::Scalar(DataType::kInt64, 40)), Literal(Tensor::Scalar(DataType::kInt64, 50))};
  numbers.type = Type::List(Type::Scalar(DataType::kInt64), 2);
  const auto numbered =
      Call("classify", Opset::kIOS15).With("probabilities", Fp32({2}, {0.5F, 0.25F})).With("classes", numbers).Run();
  EXPECT_EQ((*numbered)[0].tensor.GetInt(0), 40);
}

}  // namespace
}  // namespace milwright
