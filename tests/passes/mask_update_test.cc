// mask-to-slice-update and slice-update-to-mask.
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

// cache [1,4,2] blended with rows [1,1,2] by `mask`, which `make_mask` computes from the inputs; out = the new cache.
ModelSpec Blended(const std::function<Value*(Function&, Builder&)>& make_mask) {
  return MakeSpec([&](Function& function, Builder& b) {
    Value* rows = function.AddInput("rows", Type::Tensor(DataType::kFp16, {1, 1, 2}));
    Value* mask = make_mask(function, b);
    Value* cache = function.AddInput("my_cache", Type::State({DataType::kFp16, {1, 4, 2}}));
    Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp16, 1)}, {"y", mask}}, "keep");
    Value* kept = b.Op("mul", {{"x", b.ReadState(cache)}, {"y", keep}}, "kept");
    Value* put = b.Op("mul", {{"x", rows}, {"y", mask}}, "put");
    Value* sum = b.Op("add", {{"x", kept}, {"y", put}}, "sum");
    b.WriteState(cache, sum);
    function.body().SetOutputs({b.Op("relu", {{"x", sum}}, "out")});
  });
}

Value* InputMask(Function& function, Builder&) {
  return function.AddInput("update_mask", Type::Tensor(DataType::kFp16, {1, 4, 1}));
}

Value* ComputedMask(Function& function, Builder& b) {
  Value* pos = function.AddInput("pos", Type::Tensor(DataType::kInt32, {1}));
  Tensor range = *Tensor::VectorOf(DataType::kInt32, {0, 1, 2, 3}).Reshaped({1, 4, 1});
  Value* here = b.Op("equal", {{"x", Literal(range)}, {"y", pos}}, "here");
  return b.Op("cast", {{"x", here}, {"dtype", Literal::String("fp16")}}, "mask");
}

TEST(MaskToSliceUpdate, ComputedMaskIsProved) {
  const ModelSpec before = Blended(ComputedMask);
  std::vector<PassResult> results;
  auto after = Rewritten(before, "mask-to-slice-update", &results);
  ASSERT_OK(after);
  EXPECT_TRUE(results[0].report.assumptions.empty());
  const std::string text = PrintFunction(Main(*after));
  EXPECT_THAT(text, HasSubstr("tensor<fp16, [1, 4, 2]> sum = slice_update(begin = begin, end = end, update = rows, x = "
                              "my_cache_read)[name = string(\"sum_0\")];\n            write_state(data = sum, input = "
                              "my_cache)"));
  EXPECT_THAT(text, HasSubstr("begin = concat(axis = begin_axis, interleave = begin_interleave, values = (begin_entry, "
                              "pos, begin_entry_0))"));
  EXPECT_EQ(CountOps(Main(*after), "mul"), 0U);
  EXPECT_EQ(CountOps(Main(*after), "equal"), 0U);
  ExpectEqualSteps(before, *after, 4);
}

TEST(MaskToSliceUpdate, InputMaskNeedsAPosition) {
  const ModelSpec before = Blended(InputMask);
  const auto refused = Rewritten(before, "mask-to-slice-update");
  EXPECT_EQ(refused.status().code(), ErrorCode::kPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("'sum' (add) takes its mask from the input 'update_mask'"));
  std::vector<PassResult> results;
  auto after = Rewritten(before, "mask-to-slice-update=position:current_pos", &results);
  ASSERT_OK(after);
  EXPECT_THAT(results[0].report.assumptions, ElementsAre("main: 'update_mask' is 1 at 'current_pos' and 0 elsewhere"));
  EXPECT_EQ(after->description.metadata.user_defined.at("milwright.assumptions"),
            "mask-to-slice-update: main: 'update_mask' is 1 at 'current_pos' and 0 elsewhere");
  EXPECT_EQ(Main(*after).FindInput("update_mask"), nullptr);
  EXPECT_EQ(Main(*after).FindInput("current_pos")->type, Type::Tensor(DataType::kInt32, {1}));
  ExpectEqualSteps(before, *after, 4);
  EXPECT_THAT(Rewritten(before, "mask-to-slice-update=position:rows").status().message(),
              HasSubstr("a position is one int32"));
}

TEST(MaskToSliceUpdate, Refusals) {
  // A mask made of anything else may be more than one-hot.
  const ModelSpec gated = Blended([](Function& function, Builder& b) {
    return b.Op("sigmoid", {{"x", function.AddInput("gate", Type::Tensor(DataType::kFp16, {1, 4, 1}))}}, "mask");
  });
  EXPECT_THAT(Rewritten(gated, "mask-to-slice-update=position:pos").status().message(),
              HasSubstr("'sum' (add) has a mask that is neither an input nor computed"));
  // Not a range.
  const ModelSpec shuffled = Blended([](Function& function, Builder& b) {
    Value* pos = function.AddInput("pos", Type::Tensor(DataType::kInt32, {1}));
    Tensor range = *Tensor::VectorOf(DataType::kInt32, {0, 2, 1, 3}).Reshaped({1, 4, 1});
    Value* here = b.Op("equal", {{"x", Literal(range)}, {"y", pos}}, "here");
    return b.Op("cast", {{"x", here}, {"dtype", Literal::String("fp16")}}, "mask");
  });
  EXPECT_FALSE(Rewritten(shuffled, "mask-to-slice-update").ok());
  // Rows that differ along the axis.
  const ModelSpec whole = MakeSpec([](Function& function, Builder& b) {
    Value* rows = function.AddInput("rows", Type::Tensor(DataType::kFp16, {1, 4, 2}));
    Value* mask = InputMask(function, b);
    Value* cache = function.AddInput("my_cache", Type::State({DataType::kFp16, {1, 4, 2}}));
    Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp16, 1)}, {"y", mask}}, "keep");
    Value* kept = b.Op("mul", {{"x", b.ReadState(cache)}, {"y", keep}}, "kept");
    Value* sum = b.Op("add", {{"x", kept}, {"y", b.Op("mul", {{"x", rows}, {"y", mask}}, "put")}}, "sum");
    b.WriteState(cache, sum);
    function.body().SetOutputs({b.Op("relu", {{"x", sum}}, "out")});
  });
  EXPECT_THAT(Rewritten(whole, "mask-to-slice-update=position:pos").status().message(),
              HasSubstr("'sum' (add) puts [1, 4, 2] into [1, 4, 2], which is not one row along axis 1"));
  MW_OPEN_FIXTURE(slices, "b_slice");
  EXPECT_THAT(Rewritten(slices, "mask-to-slice-update").status().message(), HasSubstr("no cache is updated by a mask"));
}

TEST(MaskToSliceUpdate, FixturesBecomeSliceUpdates) {
  for (const auto& [fixture, position] :
       {std::pair("c_mask", "position_ids"), std::pair("c_mask", "current_pos"),
        std::pair("c_mask_argmax", "position_ids"), std::pair("f_explicit", "position_ids")}) {
    MW_OPEN_FIXTURE(before, fixture);
    auto after = Rewritten(before, std::string("mask-to-slice-update=position:") + position);
    ASSERT_OK(after);
    EXPECT_EQ(CountOps(Main(*after), "slice_update"), 4U) << fixture;
    for (const StateFacts& facts : AnalyzeStates(Main(*after)).states) {
      EXPECT_EQ(facts.form, UpdateForm::kSliceUpdate) << fixture;
      for (const StateWrite& write : facts.writes) EXPECT_EQ(write.slot_op, nullptr) << "one update, not a nested pair";
    }
    ExpectEqualSteps(before, *after);
    auto back = Rewritten(*after, "slice-update-to-mask");
    ASSERT_OK(back);
    for (const StateFacts& facts : AnalyzeStates(Main(*back)).states) EXPECT_EQ(facts.form, UpdateForm::kMaskBlend);
    ExpectEqualSteps(before, *back);
  }
}

TEST(SliceUpdateToMask, FixturesAndBack) {
  for (const char* fixture : {"b_slice", "d_dual", "e_conv", "g_unified", "j_ane_chunk"}) {
    MW_OPEN_FIXTURE(before, fixture);
    auto after = Rewritten(before, "slice-update-to-mask");
    ASSERT_OK(after);
    for (const StateFacts& facts : AnalyzeStates(Main(*after)).states) {
      if (facts.role != StateRole::kKv) continue;
      EXPECT_EQ(facts.form, UpdateForm::kMaskBlend) << fixture;
    }
    ExpectEqualSteps(before, *after, 20);
    auto back = Rewritten(*after, "mask-to-slice-update");
    ASSERT_OK(back);
    EXPECT_EQ(CountOps(Main(*back), "slice_update"), CountOps(Main(before), "slice_update")) << fixture;
    ExpectEqualSteps(before, *back, 20);
  }
}

TEST(SliceUpdateToMask, MaskAsAnInput) {
  MW_OPEN_FIXTURE(before, "b_slice");
  std::vector<PassResult> results;
  auto after = Rewritten(before, "slice-update-to-mask=mask:update_mask", &results);
  ASSERT_OK(after);
  EXPECT_THAT(results[0].report.assumptions, ElementsAre("main: 'update_mask' is 1 at 'current_pos' and 0 elsewhere"));
  EXPECT_EQ(Main(*after).FindInput("update_mask")->type, Type::Tensor(DataType::kFp16, {1, 1, 64, 1}));
  ExpectEqualSteps(before, *after);
  MW_OPEN_FIXTURE(dual, "d_dual");
  EXPECT_THAT(Rewritten(dual, "slice-update-to-mask=mask:update_mask").status().message(),
              HasSubstr("without mask: each is computed"));
}

TEST(SliceUpdateToMask, RefusesSeveralRows) {
  MW_OPEN_FIXTURE(before, "i_multifunction");
  const auto refused = Rewritten(before, "slice-update-to-mask");
  EXPECT_EQ(refused.status().code(), ErrorCode::kPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("writes 8 rows at once; a mask takes one"));
  EXPECT_THAT(refused.status().message(), HasSubstr("prefill/op "));
}

}  // namespace
}  // namespace milwright
