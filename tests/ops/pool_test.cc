#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "op_call.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::OpCall;

OpCall Pool(std::string_view op, const std::vector<float>& x, int64_t kernel, int64_t stride) {
  return OpCall(op)
      .Floats("x", {1, 1, static_cast<int64_t>(x.size())}, x)
      .Ints("kernel_sizes", {kernel})
      .Ints("strides", {stride});
}

TEST(Pool, ReducesTheWindow) {
  const std::vector<float> x = {3, -4, 0, 12};
  EXPECT_THAT(Pool("max_pool", x, 2, 2).Text("pad_type", "valid").Output(), ElementsAre(3, 12));
  EXPECT_THAT(Pool("avg_pool", x, 2, 2).Text("pad_type", "valid").Output(), ElementsAre(-0.5F, 6));
  EXPECT_THAT(Pool("l2_pool", x, 2, 2).Text("pad_type", "valid").Output(), ElementsAre(5, 12));
}

TEST(MaxPool, NeverTakesThePadding) {
  const auto pool = Pool("max_pool", {-3, -5}, 2, 1).Text("pad_type", "custom").Ints("pad", {1, 1});
  EXPECT_THAT(pool.Output(), ElementsAre(-3, -3, -5));
}

TEST(MaxPool, PropagatesNan) {
  const auto results = Pool("max_pool", {1, std::nanf(""), 5}, 3, 1).Text("pad_type", "valid").Output();
  ASSERT_EQ(results.size(), 1);
  EXPECT_TRUE(std::isnan(results[0]));
}

TEST(AvgPool, CountsThePaddingUnlessItIsExcluded) {
  const auto pool = [](bool exclude) {
    return Pool("avg_pool", {2, 4}, 2, 1)
        .Text("pad_type", "custom")
        .Ints("pad", {1, 1})
        .Bool("exclude_padding_from_average", exclude);
  };
  EXPECT_THAT(pool(false).Output(), ElementsAre(1, 3, 2));
  EXPECT_THAT(pool(true).Output(), ElementsAre(2, 3, 4));
}

TEST(AvgPool, CeilModeDividesByTheWindowWithinThePaddedInput) {
  // Windows of 3 with stride 2 over 4 elements: the second holds two elements and nothing else.
  const auto pool = Pool("avg_pool", {1, 2, 3, 5}, 3, 2).Text("pad_type", "valid").Bool("ceil_mode", true);
  EXPECT_THAT(pool.Output(), ElementsAre(2, 4));
  // Without padding the last window of one element stays; with padding one that starts in the padding behind goes.
  EXPECT_EQ(Pool("max_pool", {1, 2, 3}, 2, 2).Text("pad_type", "valid").Bool("ceil_mode", true).InferredShape(),
            "[1, 1, 2]");
  EXPECT_EQ(Pool("max_pool", {1, 2, 3, 4}, 2, 3)
                .Text("pad_type", "custom")
                .Ints("pad", {1, 1})
                .Bool("ceil_mode", true)
                .InferredShape(),
            "[1, 1, 2]");
}

TEST(Pool, AHugeWindowCostsNoMoreThanItsInput) {
  const int64_t huge = (int64_t{1} << 31) - 1;
  const auto pool = [&](std::string_view op) {
    return OpCall(op)
        .Floats("x", {1, 1, 1, 2}, {3, 5})
        .Ints("kernel_sizes", {huge, huge})
        .Text("pad_type", "custom")
        .Ints("pad", {huge - 1, 0, huge - 2, 0});
  };
  EXPECT_THAT(pool("max_pool").Output(), ElementsAre(5));
  EXPECT_THAT(pool("avg_pool").Bool("exclude_padding_from_average", true).Output(), ElementsAre(4));
}

TEST(Pool, StridesDefaultToOneAndUnknownSizesStay) {
  const auto pool = OpCall("avg_pool")
                        .Typed("x", DataType::kFp16, {kUnknownDim, 3, 8, kUnknownDim})
                        .Ints("kernel_sizes", {2, 2})
                        .Text("pad_type", "valid");
  EXPECT_EQ(pool.InferredShape(), "[?, 3, 7, ?]");
}

TEST(Pool, ErrorsNameShapes) {
  const auto pool = [](const std::vector<int64_t>& kernel) {
    return OpCall("max_pool")
        .Typed("x", DataType::kFp32, {1, 3, 4, 4})
        .Ints("kernel_sizes", kernel)
        .Text("pad_type", "valid");
  };
  EXPECT_THAT(pool({2}).InferError(), HasSubstr("the window [2] does not fit x of shape [1, 3, 4, 4]"));
  EXPECT_THAT(pool({5, 2}).InferError(), HasSubstr("spatial dimension 0 of x [1, 3, 4, 4]"));
  EXPECT_THAT(pool({-1, 2}).InferError(), HasSubstr("kernel_sizes [-1, 2] must be positive"));
}

}  // namespace
}  // namespace milwright
