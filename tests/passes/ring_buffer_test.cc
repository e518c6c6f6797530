// shift-to-ring-buffer.
#include <gmock/gmock.h>

#include "analysis/state_analysis.h"
#include "passes/step_host.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::CountOps;
using ::testing::ElementsAre;
using testing::ExpectEqualSteps;
using ::testing::HasSubstr;
using testing::Main;
using testing::MakeSpec;
using testing::Rewritten;

// A window [1,4,2] that moves by one row; `use` makes the output from the new window.
ModelSpec Shifted(const std::function<Value*(Function&, Builder&, Value*)>& use, int64_t rows = 1) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* row = function.AddInput("row", Type::Tensor(DataType::kFp16, {1, rows, 2}));
    Value* window = function.AddInput("my_cache", Type::State({DataType::kFp16, {1, 4, 2}}));
    Value* kept = b.Op(
        "slice_by_index",
        {{"x", b.ReadState(window)}, {"begin", Literal::Int32s({0, rows, 0})}, {"end", Literal::Int32s({1, 4, 2})}},
        "kept");
    Value* moved = b.Op("concat",
                        {{"values", std::vector<Value*>{kept, row}},
                         {"axis", Literal::Int32(-2)},
                         {"interleave", Literal::Bool(false)}},
                        "moved");
    b.WriteState(window, moved);
    function.body().SetOutputs({use(function, b, moved)});
  });
}

// One-headed attention of "query" over the window, with a mask over its rows.
Value* Attention(Function& function, Builder& b, Value* window) {
  Value* query = function.AddInput("query", Type::Tensor(DataType::kFp16, {1, 1, 2}));
  Value* mask = function.AddInput("sliding_mask", Type::Tensor(DataType::kFp16, {1, 1, 4}));
  Value* scores =
      b.Op("matmul",
           {{"x", query}, {"y", window}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(true)}},
           "scores");
  Value* masked = b.Op("add", {{"x", scores}, {"y", mask}}, "masked");
  Value* weights = b.Op("softmax", {{"x", masked}, {"axis", Literal::Int32(-1)}}, "weights");
  return b.Op(
      "matmul",
      {{"x", weights}, {"y", window}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}},
      "out");
}

TEST(ShiftToRingBuffer, WindowOfOneAttention) {
  const ModelSpec before = Shifted(Attention);
  std::vector<PassResult> results;
  auto after = Rewritten(before, "shift-to-ring-buffer=position:current_pos", &results);
  ASSERT_OK(after);
  const std::string text = PrintFunction(Main(*after));
  EXPECT_THAT(text, HasSubstr("current_pos_slot = mod(x = current_pos, y = current_pos_slot_y)"));
  EXPECT_THAT(text, HasSubstr("sliding_mask_ring = gather("));
  EXPECT_THAT(text, HasSubstr("masked = add(x = scores, y = sliding_mask_ring)"));
  EXPECT_THAT(text, HasSubstr("moved = slice_update("));
  EXPECT_EQ(AnalyzeStates(Main(*after)).states[0].form, UpdateForm::kSliceUpdate);
  EXPECT_THAT(
      results[0].report.assumptions,
      ElementsAre("main: 'current_pos' grows by 1 with each prediction, and 'my_cache' is zero before the first"));
  // Four products of fp16 in another order.
  ExpectEqualSteps(before, *after, 17, 1e-3, {""}, {"my_cache"});
}

// coremltools lets what follows read the state that was just written.
TEST(ShiftToRingBuffer, WindowReadBehindItsWrite) {
  const ModelSpec before = Shifted([](Function& function, Builder& b, Value*) {
    return Attention(function, b, b.ReadState(function.FindInput("my_cache")));
  });
  auto after = Rewritten(before, "shift-to-ring-buffer=position:current_pos");
  ASSERT_OK(after);
  ExpectEqualSteps(before, *after, 17, 1e-3, {""}, {"my_cache"});
}

TEST(ShiftToRingBuffer, RowsLieAtPositionModW) {
  auto after = Rewritten(Shifted(Attention), "shift-to-ring-buffer=position:current_pos");
  ASSERT_OK(after);
  const Model model = *Model::FromSpec(std::make_shared<const ModelSpec>(after->Clone()));
  State state = *model.MakeState();
  for (int step = 0; step < 6; ++step) {
    const auto value = static_cast<float>(step + 1);
    ASSERT_OK(model.Predict({{"row", testing::Halves({1, 1, 2}, {value, -value})},
                             {"query", testing::Halves({1, 1, 2}, {0, 0})},
                             {"sliding_mask", testing::Halves({1, 1, 4}, {0, 0, 0, 0})},
                             {"current_pos", testing::Ints({1}, {step})}},
                            &state));
  }
  EXPECT_EQ(state.Read("my_cache")->ToFloats(), (std::vector<float>{5, -5, 6, -6, 3, -3, 4, -4}));
}

TEST(ShiftToRingBuffer, RefusesWhatDependsOnTheOrder) {
  const auto refusal = [](const ModelSpec& model) {
    return Rewritten(model, "shift-to-ring-buffer=position:current_pos;states:my_cache").status().message();
  };
  EXPECT_THAT(refusal(Shifted([](Function&, Builder& b, Value* window) {
                return b.Op("cumsum", {{"x", window}, {"axis", Literal::Int32(1)}}, "sums");
              })),
              HasSubstr("'sums' (cumsum) may depend on the order of the rows"));
  EXPECT_THAT(refusal(Shifted([](Function&, Builder&, Value* window) { return window; })),
              HasSubstr("output 'moved' of 'main' shows a window in its order"));
  EXPECT_THAT(refusal(Shifted([](Function&, Builder& b, Value* window) {
                return b.Op("slice_by_index",
                            {{"x", window}, {"begin", Literal::Int32s({0, 3, 0})}, {"end", Literal::Int32s({1, 4, 2})}},
                            "newest");
              })),
              HasSubstr("'newest' (slice_by_index) takes rows of the window"));
  EXPECT_THAT(
      refusal(Shifted([](Function& function, Builder& b, Value* window) {
        Value* taps = function.AddInput("taps", Type::Tensor(DataType::kFp16, {1, 1, 4}));
        return b.Op(
            "matmul",
            {{"x", taps}, {"y", window}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}},
            "convolved");
      })),
      HasSubstr("'convolved' (matmul) weighs the rows by something in another order"));
  EXPECT_THAT(refusal(Shifted(Attention, 2)), HasSubstr("takes rows of the window"));
}

// The position counts steps: a window that takes two rows in one would write both to one place.
TEST(ShiftToRingBuffer, RefusesAWindowThatMovesTwice) {
  const ModelSpec twice = Shifted([](Function& function, Builder& b, Value*) {
    Value* window = function.FindInput("my_cache");
    Value* kept =
        b.Op("slice_by_index",
             {{"x", b.ReadState(window)}, {"begin", Literal::Int32s({0, 1, 0})}, {"end", Literal::Int32s({1, 4, 2})}});
    Value* again = b.Op("concat",
                        {{"values", std::vector<Value*>{kept, function.FindInput("row")}},
                         {"axis", Literal::Int32(1)},
                         {"interleave", Literal::Bool(false)}},
                        "again");
    b.WriteState(window, again);
    return b.Op("relu", {{"x", function.FindInput("row")}}, "out");
  });
  EXPECT_THAT(Rewritten(twice, "shift-to-ring-buffer=position:p;states:my_cache").status().message(),
              HasSubstr("'again' (concat) moves the window a second time in one step"));
}

TEST(ShiftToRingBuffer, FixtureWithSlidingLayers) {
  MW_OPEN_FIXTURE(before, "d_dual_shift");
  for (const char* position : {"current_pos", "ring_position"}) {
    auto after = Rewritten(before, std::string("shift-to-ring-buffer=position:") + position);
    ASSERT_OK(after);
    EXPECT_EQ(CountOps(Main(*after), "gather"), CountOps(Main(before), "gather") + 1) << "the mask is turned once";
    ExpectEqualSteps(before, *after, 40, 1e-3, {""}, {"kv_cache_sliding"});
  }
  // Keys and values in states of their own move together.
  auto split = Rewritten(before, "split-state=state:kv_cache_sliding;into:kv;names:sliding_keys+sliding_values");
  ASSERT_OK(split);
  auto after = Rewritten(*split, "shift-to-ring-buffer=position:current_pos");
  ASSERT_OK(after);
  ExpectEqualSteps(before, *after, 40, 1e-3);
  EXPECT_THAT(Rewritten(*split, "shift-to-ring-buffer=position:current_pos;states:sliding_keys").status().message(),
              HasSubstr("weighs the rows by something in another order"));
}

TEST(ShiftToRingBuffer, RefusesOtherUpdates) {
  MW_OPEN_FIXTURE(before, "b_slice");
  EXPECT_THAT(Rewritten(before, "shift-to-ring-buffer=position:current_pos").status().message(),
              HasSubstr("no window of keys or values is moved"));
  MW_OPEN_FIXTURE(conv, "e_conv");
  EXPECT_EQ(Rewritten(conv, "shift-to-ring-buffer=position:current_pos;states:conv_state").status().code(),
            ErrorCode::kPrecondition);
  EXPECT_EQ(Rewritten(conv, "shift-to-ring-buffer").status().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace milwright
