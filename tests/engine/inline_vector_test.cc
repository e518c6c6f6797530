#include "engine/inline_vector.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/view.h"

namespace milwright::engine {
namespace {

TEST(InlineVector, HoldsAsManyAsItsCapacity) {
  InlineVector<int, 3> values;
  EXPECT_TRUE(values.empty());
  for (int i = 1; i <= 3; ++i) values.push_back(i);
  EXPECT_EQ(values.size(), 3U);
  EXPECT_EQ(values.front(), 1);
  EXPECT_EQ(values.back(), 3);
  EXPECT_EQ(values.end() - values.begin(), 3);
  EXPECT_EQ(values, (InlineVector<int, 3>{1, 2, 3}));
  values.clear();
  EXPECT_TRUE(values.empty());
}

TEST(InlineVector, ResizeGivesNewElementsTheValueAndKeepsTheOthers) {
  InlineVector<int, 4> values(2, 7);  // two elements, not those between two places
  values.resize(4, 1);
  EXPECT_EQ(values, (InlineVector<int, 4>{7, 7, 1, 1}));
  values.resize(1);
  EXPECT_EQ(values, (InlineVector<int, 4>{7}));
  values.resize(3);  // what was there before is not seen again
  EXPECT_EQ(values, (InlineVector<int, 4>{7, 0, 0}));
}

TEST(InlineVector, ErasesAndInsertsAtEveryPlace) {
  for (int place = 0; place <= 3; ++place) {
    InlineVector<int, 5> values{0, 1, 2};
    std::vector<int> expected = {0, 1, 2};
    values.insert(values.begin() + place, {8, 9});
    expected.insert(expected.begin() + place, {8, 9});
    EXPECT_EQ(std::vector<int>(values), expected);
    values.erase(values.begin() + place);
    expected.erase(expected.begin() + place);
    EXPECT_EQ(std::vector<int>(values), expected);
  }
}

TEST(InlineVector, TurnsIntoShapesAndBack) {
  const Shape shape = {2, 3, 4};
  const Dims dims = shape;
  EXPECT_TRUE(dims == shape);
  EXPECT_FALSE(dims == (Shape{2, 3}));
  EXPECT_FALSE(dims == (Shape{2, 3, 5}));
  EXPECT_EQ(Shape(dims), shape);
}

TEST(InlineVector, AxesOfTheHighestRankFit) {
  const Shape shape(kMaxAxes, 2);
  const View view{0, 0, DataType::kFp32, shape, DenseStrides(shape)};
  std::vector<int64_t> perm;
  for (size_t i = kMaxAxes; i-- > 0;) perm.push_back(static_cast<int64_t>(i));
  const View turned = Transposed(view, perm);
  // Of four operands with two orders of axes, no two axes join.
  const LoopAxes axes = JoinedAxes(shape, {view.strides, turned.strides, view.strides, turned.strides});
  ASSERT_EQ(axes.size(), kMaxAxes);
  for (const LoopAxis& axis : axes) EXPECT_EQ(axis.strides.size(), LoopAxis::kMaxOperands);
}

}  // namespace
}  // namespace milwright::engine
