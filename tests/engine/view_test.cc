#include "engine/view.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/plan.h"

namespace milwright::engine {
namespace {

// The offsets of all elements in row-major order: what a view means.
std::vector<int64_t> Offsets(const View& view) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < view.count(); ++i) {
    int64_t rest = i;
    int64_t at = view.offset;
    for (size_t axis = view.shape.size(); axis-- > 0;) {
      at += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    offsets.push_back(at);
  }
  return offsets;
}

View Dense(Shape shape) {
  View view{0, 0, DataType::kFp32, shape, DenseStrides(shape)};
  return view;
}

TEST(View, ReshapeKeepsTheOrderOfElementsOrSaysNo) {
  std::mt19937 random(5);
  const std::vector<Shape> shapes = {{24}, {2, 12}, {2, 3, 4}, {4, 1, 6}, {1, 24, 1}, {2, 2, 2, 3}, {3, 8}, {6, 4}};
  int viewed = 0;
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    const Shape shape = shapes[random() % shapes.size()];
    std::vector<int64_t> perm;
    for (size_t i = 0; i < shape.size(); ++i) perm.push_back(static_cast<int64_t>(i));
    std::ranges::shuffle(perm, random);
    const View view = Transposed(Dense(shape), perm);
    const auto reshaped = Reshaped(view, shapes[random() % shapes.size()]);
    if (!reshaped.has_value()) {
      ++refused;
      EXPECT_FALSE(IsDense(view));
      continue;
    }
    ++viewed;
    EXPECT_EQ(Offsets(*reshaped), Offsets(view)) << "round " << round;
  }
  EXPECT_GT(viewed, 100);
  EXPECT_GT(refused, 50);
}

TEST(View, HeadsSideBySideJoinToRows) {
  // [heads, queries, dim] over memory [queries][heads][dim], as attention leaves it: both graph styles read rows.
  const View out = Transposed(Dense({5, 4, 8}), {1, 0, 2});
  const auto plain = Reshaped(Transposed(*Reshaped(out, {1, 4, 5, 8}), {0, 2, 1, 3}), {1, 5, 32});
  ASSERT_TRUE(plain.has_value());
  EXPECT_TRUE(IsDense(*plain));
  const auto channels = Reshaped(Transposed(*Reshaped(out, {1, 4, 5, 8}), {0, 1, 3, 2}), {1, 32, 1, 5});
  ASSERT_TRUE(channels.has_value());
  EXPECT_EQ(channels->strides[1], 1);
  EXPECT_EQ(channels->strides[3], 32);
}

TEST(View, SlicesAndBroadcasts) {
  const View view = Dense({3, 4});
  const View slice = Sliced(view, {{1, 1, 1, true}, {3, -2, 2, false}});
  EXPECT_EQ(Offsets(slice), (std::vector<int64_t>{7, 5}));
  const View stretched = BroadcastTo(Dense({4}), {2, 4});
  EXPECT_EQ(Offsets(stretched), (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_FALSE(IsPermutedDense(stretched));
  EXPECT_TRUE(IsPermutedDense(Transposed(view, {1, 0})));
}

TEST(View, JoinedAxesWalkAllElements) {
  const View a = Transposed(Dense({2, 3, 4}), {1, 0, 2});
  const View b = BroadcastTo(Dense({4}), a.shape);
  int64_t count = 1;
  const auto axes = JoinedAxes(a.shape, {a.strides, b.strides});
  for (const LoopAxis& axis : axes) count *= axis.size;
  EXPECT_EQ(count, 24);
  EXPECT_EQ(axes.back().strides, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(JoinedAxes({1, 1}, {{1, 1}}).front().size, 1);
}

TEST(PlaceRoots, RootsThatAreAliveTogetherNeverOverlap) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<Root> roots;
    for (int i = 0; i < 60; ++i) {
      Root root;
      root.bytes = 64 + static_cast<int64_t>(random() % 5000);
      root.first_step = random() % 100;
      root.last_step = root.first_step + random() % 20;
      roots.push_back(root);
    }
    const int64_t size = PlaceRoots(roots);
    int64_t sum = 0;
    for (size_t i = 0; i < roots.size(); ++i) {
      sum += roots[i].bytes;
      EXPECT_EQ(roots[i].offset % 64, 0);
      EXPECT_LE(roots[i].offset + roots[i].bytes, size);
      for (size_t j = 0; j < i; ++j) {
        const bool together = roots[i].first_step <= roots[j].last_step && roots[j].first_step <= roots[i].last_step;
        const bool overlap =
            roots[i].offset < roots[j].offset + roots[j].bytes && roots[j].offset < roots[i].offset + roots[i].bytes;
        EXPECT_FALSE(together && overlap) << "round " << round << ": " << i << " and " << j;
      }
    }
    EXPECT_LT(size, sum / 2);  // about a tenth of them is alive at a time
  }
}

}  // namespace
}  // namespace milwright::engine
