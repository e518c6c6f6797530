// Slices: numpy's rules, the update of iOS18 with its run-time error, crop and sliding windows.
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

Literal Mask(const std::vector<int64_t>& values) { return Literal::Bools(values); }

// x[begin:end:stride] of one axis, written as Python defines it: the indices that range() would give after the ends
// are adjusted.
std::vector<float> PythonSlice(int64_t size, std::optional<int64_t> begin, std::optional<int64_t> end, int64_t stride) {
  const auto adjusted = [&](int64_t at) {
    if (at < 0) at += size;
    if (at < 0) return stride < 0 ? int64_t{-1} : int64_t{0};
    if (at >= size) return stride < 0 ? size - 1 : size;
    return at;
  };
  int64_t at = begin ? adjusted(*begin) : (stride < 0 ? size - 1 : 0);
  const int64_t stop = end ? adjusted(*end) : (stride < 0 ? -1 : size);
  std::vector<float> taken;
  for (; stride > 0 ? at < stop : at > stop; at += stride) taken.push_back(static_cast<float>(at));
  return taken;
}

TEST(SliceByIndexTest, FollowsPythonForEverySmallSlice) {
  for (const int64_t size : {0, 1, 4, 5}) {
    for (int64_t begin = -7; begin <= 7; ++begin) {
      for (int64_t end = -7; end <= 7; ++end) {
        for (const int64_t stride : {-3, -2, -1, 1, 2, 3}) {
          for (int masks = 0; masks < 4; ++masks) {
            OpCall call("slice_by_index");
            call.Value("x", Counting({size})).Ints("begin", {begin}).Ints("end", {end}).Ints("stride", {stride});
            call.Value("begin_mask", Mask({masks & 1})).Value("end_mask", Mask({masks >> 1}));
            const auto expected = PythonSlice(size, (masks & 1) != 0 ? std::nullopt : std::optional(begin),
                                              (masks >> 1) != 0 ? std::nullopt : std::optional(end), stride);
            ASSERT_EQ(call.Output(), expected) << size << ": " << begin << ":" << end << ":" << stride << " " << masks;
          }
        }
      }
    }
  }
}

TEST(SliceByIndexTest, SqueezesAxes) {
  OpCall call("slice_by_index");
  call.Value("x", Counting({2, 3, 4})).Ints("begin", {1, 0, -1}).Ints("end", {0, 3, 0});
  call.Value("squeeze_mask", Mask({1, 0, 1}));
  EXPECT_EQ(call.InferredShape(), "[3]");
  EXPECT_THAT(call.Output(), ElementsAre(15, 19, 23));
  OpCall outside("slice_by_index");
  outside.Value("x", Counting({2, 3})).Ints("begin", {2, 0}).Ints("end", {0, 3}).Value("squeeze_mask", Mask({1, 0}));
  EXPECT_EQ(outside.Run().status().message(), "slice_by_index: axis 0: position 2 is outside the size 2");
}

TEST(SliceByIndexTest, InfersWhatIsKnown) {
  OpCall call("slice_by_index");
  call.Typed("x", DataType::kFp16, {kUnknownDim, 8, 6, 3});
  call.Typed("begin", DataType::kInt32, {4}).Ints("end", {0, 0, 0, 0});
  call.Value("begin_mask", Mask({1, 1, 0, 0})).Value("end_mask", Mask({1, 1, 1, 1}));
  call.Value("squeeze_mask", Mask({0, 0, 0, 1})).Ints("stride", {1, 2, 1, 1});
  EXPECT_EQ(call.InferredShape(), "[?, 4, ?]");
  OpCall rank("slice_by_index");
  rank.Typed("x", DataType::kFp16, {2, 8}).Typed("begin", DataType::kInt32, {3}).Ints("end", {0, 0});
  EXPECT_THAT(rank.InferError(), HasSubstr("'begin' has the shape [3], but x is [2, 8]"));
  OpCall stride("slice_by_index");
  stride.Typed("x", DataType::kFp16, {2}).Ints("begin", {0}).Ints("end", {1}).Ints("stride", {0});
  EXPECT_THAT(stride.InferError(), HasSubstr("a stride is 0"));
}

// The cache of cases T12 to T14 of state-semantics.md: [1, 2, 8, 4], one row or more written at a position.
OpCall CacheUpdate(int64_t begin, int64_t end, int64_t rows) {
  OpCall call("slice_update");
  call.Value("x", *Tensor::Zeros({DataType::kFp16, {1, 2, 8, 4}}));
  call.Value("update", Counting({1, 2, rows, 4}, DataType::kFp16));
  call.Ints("begin", {0, 0, begin, 0}).Ints("end", {1, 2, end, 4});
  return call;
}

TEST(SliceUpdateTest, T12FillsEverySlotAndRefusesTheOneBehindTheLast) {
  for (int64_t position = 0; position < 8; ++position) {
    const std::vector<float> cache = CacheUpdate(position, position + 1, 1).Output();
    ASSERT_EQ(cache.size(), 64U);
    for (int64_t i = 0; i < 64; ++i) {
      const bool written = i / 4 % 8 == position;
      EXPECT_EQ(cache[static_cast<size_t>(i)], written ? static_cast<float>(i / 32 * 4 + i % 4) : 0.0F);
    }
  }
  const auto past = CacheUpdate(8, 9, 1).Run();
  EXPECT_EQ(past.status().code(), ErrorCode::kRuntime);
  EXPECT_EQ(past.status().message(), "slice_update: axis 2: position 8 with 1 rows is outside the size 8");
}

TEST(SliceUpdateTest, T13EndOfAnotherRankIsATypeError) {
  OpCall call("slice_update");
  call.Typed("x", DataType::kFp16, {1, 2, 8, 4}).Typed("update", DataType::kFp16, {1, 2, 1, 4});
  call.Typed("begin", DataType::kInt32, {4}).Typed("end", DataType::kInt32, {3});
  EXPECT_EQ(call.Infer().status().code(), ErrorCode::kInvalidProgram);
  EXPECT_THAT(call.InferError(), HasSubstr("'end' has the shape [3], but x is [1, 2, 8, 4]"));
}

TEST(SliceUpdateTest, T14AnEndPastTheSizeLeavesTooLittleRoom) {
  EXPECT_EQ(CacheUpdate(6, 10, 4).InferError(), "slice_update: axis 2: position 6 with 4 rows is outside the size 8");
  // The same ends with an update of the clamped size are numpy's, and fine.
  EXPECT_EQ(CacheUpdate(6, 10, 2).InferError(), "");
}

TEST(SliceUpdateTest, OtherMisfitsNameTheShapes) {
  EXPECT_EQ(CacheUpdate(2, 5, 2).InferError(),
            "slice_update: an update of shape [1, 2, 2, 4] does not fill the slice of shape [1, 2, 3, 4] of x "
            "[1, 2, 8, 4]");
  OpCall rank("slice_update");
  rank.Value("x", Counting({4, 4})).Value("update", Counting({4})).Ints("begin", {0, 0}).Ints("end", {1, 4});
  EXPECT_THAT(rank.InferError(), HasSubstr("has not the rank of the slice [1, 4]"));
}

TEST(SliceUpdateTest, SqueezedAndNegativeStrides) {
  OpCall call("slice_update");
  call.Value("x", *Tensor::Zeros({DataType::kInt8, {2, 5}})).Value("update", IntTensor(DataType::kInt8, {2}, {7, 9}));
  call.Ints("begin", {1, 4}).Ints("end", {0, 0}).Ints("stride", {1, -2}).Value("squeeze_mask", Mask({1, 0}));
  EXPECT_THAT(call.Output(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 9, 0, 7));
}

TEST(SliceUpdateTest, LeavesItsInputAlone) {
  const Tensor x = Counting({3});
  OpCall call("slice_update");
  call.Value("x", x).Value("update", IntTensor(DataType::kInt32, {1}, {9})).Ints("begin", {1}).Ints("end", {2});
  EXPECT_THAT(call.Output(), ElementsAre(0, 9, 2));
  EXPECT_THAT(x.ToInts(), ElementsAre(0, 1, 2));
}

TEST(SliceBySizeTest, RestAndNegativeBegin) {
  OpCall call("slice_by_size");
  call.Value("x", Counting({3, 4})).Ints("begin", {-2, 1}).Ints("size", {1, -1});
  EXPECT_THAT(call.Output(), ElementsAre(5, 6, 7));
  OpCall outside("slice_by_size");
  outside.Value("x", Counting({3})).Ints("begin", {2}).Ints("size", {2});
  EXPECT_EQ(outside.InferError(), "slice_by_size: axis 0: position 2 with 2 rows is outside the size 3");
  OpCall unknown("slice_by_size");
  unknown.Typed("x", DataType::kFp16, {3, kUnknownDim}).Typed("begin", DataType::kInt32, {2}).Ints("size", {2, -1});
  EXPECT_EQ(unknown.InferredShape(), "[2, ?]");
}

TEST(CropTest, TakesFromHeightAndWidth) {
  OpCall call("crop");
  call.Value("x", Counting({1, 3, 3}, DataType::kFp32)).Ints("crop_height", {1, 0}).Ints("crop_width", {0, 1});
  EXPECT_THAT(call.Output(), ElementsAre(3, 4, 6, 7));
  OpCall all("crop");
  all.Typed("x", DataType::kFp32, {1, 3, 3}).Ints("crop_height", {2, 2}).Ints("crop_width", {0, 0});
  EXPECT_THAT(all.InferError(), HasSubstr("leaves nothing of axis 1 of [1, 3, 3]"));
}

TEST(SlidingWindowsTest, DropsTheTail) {
  OpCall call("sliding_windows");
  call.Value("x", Counting({6})).Int("axis", 0).Int("size", 3).Int("stride", 2);
  EXPECT_EQ(call.InferredShape(), "[2, 3]");
  EXPECT_THAT(call.Output(), ElementsAre(0, 1, 2, 2, 3, 4));
  EXPECT_THAT(OpCall("sliding_windows").Typed("x", DataType::kFp16, {2, 2}).Int("axis", 1).Int("size", 3).InferError(),
              HasSubstr("do not fit axis 1 of [2, 2]"));
}

}  // namespace
}  // namespace milwright
