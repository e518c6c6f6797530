// unify-states, split-state, pad-state-dim.
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
using testing::OperationsOf;
using testing::Rewritten;

std::vector<std::string> StateTypes(const ModelSpec& model) {
  std::vector<std::string> states;
  for (const Value* state : Main(model).States())
    states.push_back(state->name + " " + TypeToString(state->type.tensor));
  return states;
}

// The rows [first, first + count) of axis 0, along the other axes cut to `shape`.
std::vector<float> Rows(const Tensor& tensor, int64_t first, int64_t count, Shape shape) {
  shape[0] = count;
  std::vector<float> values;
  std::vector<int64_t> at(shape.size(), 0);
  const int64_t total = *ElementCount(shape);
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0;) {
      at[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    int64_t index = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      index = index * tensor.shape()[axis] + at[axis] + (axis == 0 ? first : 0);
    }
    values.push_back(tensor.GetFloat(index));
  }
  return values;
}

// k [1,2,3], v [1,2,2]: rows x and y go to position `pos`; out = sum of k and v after the update.
ModelSpec TwoCaches() {
  return MakeSpec([](Function& function, Builder& b) {
    Value* pos = function.AddInput("pos", Type::Tensor(DataType::kInt32, {1}));
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 1, 3}));
    Value* y = function.AddInput("y", Type::Tensor(DataType::kFp16, {1, 1, 2}));
    Value* k = function.AddInput("k_cache", Type::State({DataType::kFp16, {1, 2, 3}}));
    Value* v = function.AddInput("v_cache", Type::State({DataType::kFp16, {1, 2, 2}}));
    Value* zero = b.Const(Literal::Int32s({0}), "zero");
    Value* next = b.Op("add", {{"x", pos}, {"y", Literal::Int32s({1})}}, "next");
    Value* begin = b.Op("concat",
                        {{"values", std::vector<Value*>{zero, pos, zero}},
                         {"axis", Literal::Int32(0)},
                         {"interleave", Literal::Bool(false)}},
                        "begin");
    Value* end = b.Op("concat",
                      {{"values", std::vector<Value*>{zero, next, zero}},
                       {"axis", Literal::Int32(0)},
                       {"interleave", Literal::Bool(false)}},
                      "end");
    const auto update = [&](Value* state, Value* rows, const char* name) {
      Value* updated = b.Op("slice_update",
                            {{"x", b.ReadState(state)},
                             {"update", rows},
                             {"begin", begin},
                             {"end", end},
                             {"begin_mask", Literal::Bools({1, 0, 1})},
                             {"end_mask", Literal::Bools({1, 0, 1})}},
                            name);
      b.WriteState(state, updated);
      return b.Op("reduce_sum",
                  {{"x", updated}, {"axes", Literal::Int32s({1, 2})}, {"keep_dims", Literal::Bool(false)}});
    };
    Value* a = update(k, x, "k_updated");
    Value* c = update(v, y, "v_updated");
    function.body().SetOutputs({b.Op("add", {{"x", a}, {"y", c}}, "out")});
  });
}

TEST(UnifyStates, Text) {
  const ModelSpec before = TwoCaches();
  std::vector<PassResult> results;
  auto after = Rewritten(before, "unify-states=states:k_cache+v_cache", &results);
  ASSERT_OK(after);
  EXPECT_THAT(StateTypes(*after), ElementsAre("kv_cache tensor<fp16, [2, 2, 3]>"));
  const std::string text = PrintFunction(Main(*after));
  // One slice update each on the buffer, the slot moved; the padded row is written and read in part.
  EXPECT_EQ(CountOps(Main(*after), "slice_update"), 2U) << text;
  EXPECT_EQ(CountOps(Main(*after), "slice_by_index"), 2U) << text;
  EXPECT_EQ(CountOps(Main(*after), "read_state"), 4U) << text;
  EXPECT_THAT(text, HasSubstr("write_state(data = v_updated_0, input = kv_cache)"));
  EXPECT_THAT(after->description.functions[0].states[0].name, "kv_cache");
  for (const int64_t pos : {0, 1}) {
    const TensorMap inputs = {{"pos", testing::Ints({1}, {pos})},
                              {"x", testing::Halves({1, 1, 3}, {1, 2, 3})},
                              {"y", testing::Halves({1, 1, 2}, {10, 20})}};
    const Model model = *Model::FromSpec(std::make_shared<const ModelSpec>(after->Clone()));
    State state = *model.MakeState();
    const auto out = model.Predict(inputs, &state);
    ASSERT_OK(out);
    EXPECT_EQ(out->at("out").ToFloats(), (std::vector<float>{36}));
    std::vector<float> expected(12, 0);
    for (int64_t i = 0; i < 3; ++i) expected[static_cast<size_t>(pos * 3 + i)] = static_cast<float>(i + 1);
    expected[static_cast<size_t>(6 + pos * 3)] = 10;
    expected[static_cast<size_t>(7 + pos * 3)] = 20;
    EXPECT_EQ(state.Read("kv_cache")->ToFloats(), expected);
  }
}

TEST(UnifyStates, Refusals) {
  const ModelSpec model = TwoCaches();
  EXPECT_THAT(Rewritten(model, "unify-states").status().message(), HasSubstr("no state has the role kv"));
  EXPECT_THAT(Rewritten(model, "unify-states=states:k_cache").status().message(), HasSubstr("'k_cache' is alone"));
  EXPECT_THAT(Rewritten(model, "unify-states=states:k_cache+v_cache;name:x").status().message(),
              HasSubstr("'x' is taken by another feature"));
  EXPECT_EQ(Rewritten(model, "unify-states=states:k_cache+v_cache;order:mixed").status().code(), ErrorCode::kUsage);
  EXPECT_THAT(Rewritten(model, "split-state=state:k_cache;into:slot").status().message(),
              HasSubstr("'k_cache' is one part by slot"));
  EXPECT_THAT(Rewritten(model, "split-state=state:k_cache;into:kv").status().message(), HasSubstr("come in pairs"));
  EXPECT_EQ(Rewritten(model, "split-state=into:kv").status().code(), ErrorCode::kUsage);
  EXPECT_THAT(Rewritten(model, "pad-state-dim=axis:3").status().message(), HasSubstr("it has no axis 3"));
  EXPECT_EQ(Rewritten(model, "pad-state-dim=multiple:0").status().code(), ErrorCode::kUsage);
}

TEST(UnifyStates, DualStatesIntoOneAndBack) {
  MW_OPEN_FIXTURE(before, "d_dual");
  std::vector<PassResult> results;
  auto unified = Rewritten(before, "unify-states=name:kv_cache_unified", &results);
  ASSERT_OK(unified);
  EXPECT_THAT(StateTypes(*unified), ElementsAre("kv_cache_unified tensor<fp16, [4, 2, 64, 16]>"));
  EXPECT_THAT(results[0].report.notes, ElementsAre(HasSubstr("'ring_pos' must stay below 16")));
  // Every update stays one slice update at a position, every read one slice.
  const FunctionStates facts = AnalyzeStates(Main(*unified));
  EXPECT_EQ(facts.states[0].form, UpdateForm::kSliceUpdate);
  EXPECT_EQ(facts.states[0].role, StateRole::kKv);
  EXPECT_EQ(CountOps(Main(*unified), "slice_update"), CountOps(Main(before), "slice_update"));
  EXPECT_EQ(CountOps(Main(*unified), "slice_by_index"), CountOps(Main(before), "slice_by_index"));
  ExpectEqualSteps(before, *unified, 20);

  auto back = Rewritten(*unified, "split-state=into:role;names:kv_cache_sliding+kv_cache_full");
  ASSERT_OK(back);
  EXPECT_THAT(StateTypes(*back), ElementsAre("kv_cache_sliding tensor<fp16, [2, 2, 16, 16]>",
                                             "kv_cache_full tensor<fp16, [2, 2, 64, 16]>"));
  ExpectEqualSteps(before, *back, 20);
}

TEST(UnifyStates, ContentsLieWhereTheLayoutSays) {
  MW_OPEN_FIXTURE(before, "b_slice");
  auto split = Rewritten(before, "unify-states=order:split");
  auto interleaved = Rewritten(before, "unify-states=order:interleaved");
  ASSERT_OK(split);
  ASSERT_OK(interleaved);
  testing::StepHost host(before);
  testing::StepHost split_host(*split);
  testing::StepHost interleaved_host(*interleaved);
  for (int step = 0; step < 16; ++step) {
    const auto expected = host.Step(step);
    const auto a = split_host.Step(step);
    const auto b = interleaved_host.Step(step);
    ASSERT_OK(expected);
    ASSERT_OK(a);
    ASSERT_OK(b);
    EXPECT_TRUE(a->at("logits").BitEquals(expected->at("logits")));
    EXPECT_TRUE(b->at("logits").BitEquals(expected->at("logits")));
  }
  const Shape slot = {1, 2, 64, 16};
  for (int64_t layer = 0; layer < 2; ++layer) {
    const std::vector<float> k = Rows(host.Content("k_cache"), layer, 1, slot);
    const std::vector<float> v = Rows(host.Content("v_cache"), layer, 1, slot);
    EXPECT_EQ(Rows(split_host.Content("kv_cache"), layer, 1, slot), k);
    EXPECT_EQ(Rows(split_host.Content("kv_cache"), 2 + layer, 1, slot), v);
    EXPECT_EQ(Rows(interleaved_host.Content("kv_cache"), 2 * layer, 1, slot), k);
    EXPECT_EQ(Rows(interleaved_host.Content("kv_cache"), 2 * layer + 1, 1, slot), v);
  }
}

struct LayoutCase {
  const char* fixture;
  const char* passes;
};

class LayoutOnFixtures : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(LayoutOnFixtures, Equal) {
  MW_OPEN_FIXTURE(before, GetParam().fixture);
  auto after = Rewritten(before, GetParam().passes);
  ASSERT_OK(after);
  const bool several = before.program.functions().size() > 1;
  ExpectEqualSteps(before, *after, 17, 0,
                   several ? std::vector<std::string>{"prefill", "decode"} : std::vector<std::string>{""});
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, LayoutOnFixtures,
    ::testing::Values(LayoutCase{"b_slice", "unify-states"}, LayoutCase{"b_slice", "unify-states=order:interleaved"},
                      LayoutCase{"b_slice", "unify-states,split-state=into:kv"},
                      LayoutCase{"b_slice", "unify-states,split-state=into:layer"},
                      LayoutCase{"b_slice", "unify-states=order:interleaved,split-state=into:layer;order:interleaved"},
                      LayoutCase{"b_slice", "split-state=state:k_cache;into:slot,split-state=state:v_cache;into:slot"},
                      LayoutCase{"b_slice_sdpa", "unify-states"}, LayoutCase{"c_mask", "unify-states"},
                      LayoutCase{"c_mask", "unify-states,split-state=into:slot"},
                      LayoutCase{"c_mask_argmax", "split-state=into:kv"},
                      LayoutCase{"c_mask_argmax", "split-state=into:slot"},
                      LayoutCase{"d_dual", "unify-states=order:interleaved,split-state=into:role"},
                      LayoutCase{"d_dual_shift", "unify-states"},
                      LayoutCase{"d_dual_shift", "unify-states,split-state=into:slot"},
                      LayoutCase{"d_dual_shift", "pad-state-dim=axis:2;multiple:48"},
                      LayoutCase{"e_conv", "split-state=state:kv_cache;into:kv"},
                      LayoutCase{"e_conv", "split-state=state:conv_state;into:slot"},
                      LayoutCase{"f_explicit", "io-to-state,unify-states=order:interleaved"},
                      LayoutCase{"f_explicit", "io-to-state,unify-states,split-state=into:slot,state-to-io"},
                      LayoutCase{"g_unified", "split-state=into:kv;order:interleaved"},
                      LayoutCase{"g_unified", "split-state=into:layer;order:interleaved,pad-state-dim"},
                      LayoutCase{"h_int4_block32", "unify-states"}, LayoutCase{"i_multifunction", "unify-states"},
                      LayoutCase{"i_multifunction", "split-state=state:k_cache;into:slot"},
                      LayoutCase{"i_multifunction", "pad-state-dim=axis:2;multiple:96"},
                      LayoutCase{"i_multifunction_unified", "split-state=into:kv;order:interleaved"},
                      LayoutCase{"i_multifunction_int4", "unify-states"},
                      LayoutCase{"j_ane_chunk", "split-state=into:kv"}, LayoutCase{"a_accumulator", "pad-state-dim"},
                      LayoutCase{"b_slice", "pad-state-dim"}, LayoutCase{"b_slice", "pad-state-dim=axis:0;multiple:4"},
                      LayoutCase{"c_mask", "pad-state-dim"}, LayoutCase{"d_dual", "pad-state-dim=axis:2;multiple:48"},
                      LayoutCase{"e_conv", "pad-state-dim"}, LayoutCase{"j_ane_chunk", "pad-state-dim=multiple:64"}));

TEST(PadStateDim, Text) {
  auto after = Rewritten(TwoCaches(), "pad-state-dim=multiple:4;states:v_cache");
  ASSERT_OK(after);
  EXPECT_THAT(StateTypes(*after), ElementsAre("k_cache tensor<fp16, [1, 2, 3]>", "v_cache tensor<fp16, [1, 2, 4]>"));
  EXPECT_EQ(after->description.functions[0].states[1].type.array.shape, (Shape{1, 2, 4}));
  EXPECT_EQ(CountOps(Main(*after), "slice_update"), 2U);
  auto again = Rewritten(*after, "pad-state-dim=multiple:4;states:v_cache");
  ASSERT_OK(again);
  EXPECT_TRUE(ModelsEqual(*after, *again));
}

}  // namespace
}  // namespace milwright
