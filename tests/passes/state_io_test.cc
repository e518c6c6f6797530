// state-to-io and io-to-state.
#include <gmock/gmock.h>

#include "analysis/state_analysis.h"
#include "passes/step_host.h"
#include "support/rounded_caches.h"
#include "support/small_model.h"
#include "text/parser.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using testing::ExpectEqualSteps;
using ::testing::HasSubstr;
using testing::MakeSpec;
using testing::OpenFixture;
using testing::Rewritten;

std::vector<std::string> Names(const std::vector<FeatureDescription>& features) {
  std::vector<std::string> names;
  for (const FeatureDescription& feature : features) names.push_back(feature.name);
  return names;
}

// acc += x; out = 2 acc
ModelSpec Accumulator() {
  return MakeSpec([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* s = function.AddInput("acc", Type::State({DataType::kFp16, {1, 2}}));
    Value* sum = b.Op("add", {{"x", b.ReadState(s, "r")}, {"y", x}}, "sum");
    b.WriteState(s, sum);
    function.body().SetOutputs({b.Op("mul", {{"x", sum}, {"y", Literal::Float(DataType::kFp16, 2)}}, "out")});
  });
}

TEST(StateToIo, Text) {
  const ModelSpec before = Accumulator();
  auto after = Rewritten(before, "state-to-io");
  ASSERT_OK(after);
  EXPECT_EQ(PrintFunction(*after->program.FindFunction("main")),
            R"(    func main<ios18>(tensor<fp16, [1, 2]> x, tensor<fp16, [1, 2]> acc) {
            tensor<fp16, [1, 2]> acc_out = add(x = acc, y = x)[name = string("sum")];
            fp16 out_y = const()[name = string("out_y"), val = fp16(0x1p+1)];
            tensor<fp16, [1, 2]> out = mul(x = acc_out, y = out_y)[name = string("out")];
        } -> (out, acc_out);
)");
  EXPECT_THAT(Names(after->description.functions[0].inputs), ElementsAre("x", "acc"));
  EXPECT_THAT(Names(after->description.functions[0].outputs), ElementsAre("out", "acc_out"));
  EXPECT_TRUE(after->description.functions[0].states.empty());
  ExpectEqualSteps(before, *after);

  auto back = Rewritten(*after, "io-to-state");
  ASSERT_OK(back);
  EXPECT_EQ(PrintFunction(*back->program.FindFunction("main")),
            R"(    func main<ios18>(tensor<fp16, [1, 2]> x, state<tensor<fp16, [1, 2]>> acc) {
            tensor<fp16, [1, 2]> acc_read = read_state(input = acc)[name = string("acc_read")];
            tensor<fp16, [1, 2]> acc_out = add(x = acc_read, y = x)[name = string("sum")];
            write_state(data = acc_out, input = acc)[name = string("acc_write")];
            fp16 out_y = const()[name = string("out_y"), val = fp16(0x1p+1)];
            tensor<fp16, [1, 2]> out = mul(x = acc_out, y = out_y)[name = string("out")];
        } -> (out);
)");
  ExpectEqualSteps(before, *back);
}

TEST(StateToIo, BranchesAndLoopsCarryTheState) {
  // if (p) { s = s + x }; then three times s = s * 2 unless the read in the condition says otherwise; out = s.
  const ModelSpec before = MakeSpec([](Function& function, Builder& b) {
    Value* p = function.AddInput("p", Type::Scalar(DataType::kBool));
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {2}));
    Value* s = function.AddInput("s", Type::State({DataType::kFp16, {2}}));
    Block& body = function.body();
    Operation* cond = body.Insert(std::make_unique<Operation>("cond"));
    cond->SetInput("pred", p);
    cond->attributes.emplace("name", Literal::String("branch"));
    for (int branch = 0; branch < 2; ++branch) {
      Block* block = cond->AddBlock();
      b.SetInsertionPoint(*block, nullptr);
      Value* r = b.ReadState(s);
      Value* sum = b.Op("add", {{"x", r}, {"y", x}}, "branch_value");
      if (branch == 0) b.WriteState(s, sum);
      block->SetOutputs({sum});
    }
    cond->AddOutput("branched", Type::Tensor(DataType::kFp16, {2}));
    b.SetInsertionPoint(body, nullptr);
    Value* i = b.Const(Literal::Int32(0), "i0");
    Operation* loop = body.Insert(std::make_unique<Operation>("while_loop"));
    loop->SetInput("loop_vars", i);
    loop->attributes.emplace("name", Literal::String("loop"));
    Block* condition = loop->AddBlock();
    Value* ci = condition->AddInput("ci", Type::Scalar(DataType::kInt32));
    b.SetInsertionPoint(*condition, nullptr);
    condition->SetOutputs({b.Op("less", {{"x", ci}, {"y", Literal::Int32(3)}}, "more")});
    Block* inner = loop->AddBlock();
    Value* bi = inner->AddInput("bi", Type::Scalar(DataType::kInt32));
    b.SetInsertionPoint(*inner, nullptr);
    Value* twice = b.Op("mul", {{"x", b.ReadState(s)}, {"y", Literal::Float(DataType::kFp16, 2)}}, "twice");
    b.WriteState(s, twice);
    inner->SetOutputs({b.Op("add", {{"x", bi}, {"y", Literal::Int32(1)}}, "next")});
    loop->AddOutput("i_end", Type::Scalar(DataType::kInt32));
    b.SetInsertionPoint(body, nullptr);
    Value* r = b.ReadState(s);
    body.SetOutputs({b.Op("add", {{"x", r}, {"y", cond->output()}}, "out")});
  });
  auto after = Rewritten(before, "state-to-io");
  ASSERT_OK(after);
  const Model a = *Model::FromSpec(std::make_shared<const ModelSpec>(before.Clone()));
  const Model b = *Model::FromSpec(std::make_shared<const ModelSpec>(after->Clone()));
  State state = *a.MakeState();
  Tensor s = testing::Halves({2}, {0, 0});
  for (int step = 0; step < 3; ++step) {
    const TensorMap inputs = {{"p", Tensor::Scalar(DataType::kBool, step % 2)}, {"x", testing::Halves({2}, {1, 2})}};
    TensorMap with_cache = inputs;
    with_cache.emplace("s", s);
    const auto x = a.Predict(inputs, &state);
    const auto y = b.Predict(with_cache);
    ASSERT_OK(x);
    ASSERT_OK(y);
    EXPECT_TRUE(x->at("out").BitEquals(y->at("out"))) << step;
    s = y->at("s_out");
    EXPECT_TRUE(s.BitEquals(*state.Read("s"))) << step;
  }
}

TEST(StateToIo, SwapOfTwoStates) {
  // T06: a = read(s); b = read(t); write(s, b); write(t, a). The outputs are inputs: each gets a value of its own.
  const ModelSpec before = MakeSpec([](Function& function, Builder& b) {
    Value* s = function.AddInput("s", Type::State({DataType::kFp16, {2}}));
    Value* t = function.AddInput("t", Type::State({DataType::kFp16, {2}}));
    Value* x = b.ReadState(s);
    Value* y = b.ReadState(t);
    b.WriteState(s, y);
    b.WriteState(t, x);
    function.body().SetOutputs({b.Op("add", {{"x", x}, {"y", y}}, "out")});
  });
  auto after = Rewritten(before, "state-to-io");
  ASSERT_OK(after);
  const Model model = *Model::FromSpec(std::make_shared<const ModelSpec>(after->Clone()));
  const auto y = model.Predict({{"s", testing::Halves({2}, {5, 5})}, {"t", testing::Halves({2}, {7, 7})}});
  ASSERT_OK(y);
  EXPECT_EQ(y->at("s_out").ToFloats(), (std::vector<float>{7, 7}));
  EXPECT_EQ(y->at("t_out").ToFloats(), (std::vector<float>{5, 5}));
  // Back again, with the pairs named: which output belongs to which input no data flow tells.
  auto back = Rewritten(*after, "io-to-state=inputs:s+t;outputs:s_out+t_out");
  ASSERT_OK(back);
  const Model twice = *Model::FromSpec(std::make_shared<const ModelSpec>(back->Clone()));
  State state = *twice.MakeState();
  ASSERT_OK(state.Write("s", testing::Halves({2}, {5, 5})));
  ASSERT_OK(state.Write("t", testing::Halves({2}, {7, 7})));
  ASSERT_OK(twice.Predict({}, &state));
  EXPECT_EQ(state.Read("s")->ToFloats(), (std::vector<float>{7, 7}));
  EXPECT_EQ(state.Read("t")->ToFloats(), (std::vector<float>{5, 5}));
}

TEST(StateToIo, RefusesRowsOfOtherForms) {
  const auto after = Rewritten(Accumulator(), "state-to-io=outputs:slice");
  ASSERT_FALSE(after.ok());
  EXPECT_EQ(after.status().code(), ErrorCode::kPrecondition);
  EXPECT_THAT(after.status().message(), HasSubstr("main/op 2 'acc_write' (write_state) is no slice update"));
}

TEST(StateToIo, BadOptions) {
  const ModelSpec model = Accumulator();
  EXPECT_THAT(Rewritten(model, "state-to-io=states:t").status().message(), HasSubstr("there is no state 't'"));
  EXPECT_THAT(Rewritten(model, "state-to-io=roles:kv").status().message(), HasSubstr("no state has the role kv"));
  EXPECT_THAT(Rewritten(model, "state-to-io=indices:1").status().message(), HasSubstr("'1' is no index"));
  EXPECT_EQ(Rewritten(model, "state-to-io=roles:keys").status().code(), ErrorCode::kUsage);
  EXPECT_EQ(Rewritten(model, "state-to-io=outputs:all").status().code(), ErrorCode::kUsage);
}

class StateIoOnFixtures : public ::testing::TestWithParam<const char*> {};

TEST_P(StateIoOnFixtures, ThereAndBack) {
  MW_OPEN_FIXTURE(before, GetParam());
  auto after = Rewritten(before, "state-to-io");
  ASSERT_OK(after);
  for (const auto& function : after->program.functions()) EXPECT_TRUE(function->States().empty());
  const bool several = before.program.functions().size() > 1;
  const std::vector<std::string> functions =
      several ? std::vector<std::string>{"prefill", "decode"} : std::vector<std::string>{""};
  ExpectEqualSteps(before, *after, 17, 0, functions);
  auto back = Rewritten(*after, "io-to-state");
  ASSERT_OK(back);
  EXPECT_EQ(back->program.functions()[0]->States().size(), before.program.functions()[0]->States().size());
  ExpectEqualSteps(before, *back, 17, 0, functions);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, StateIoOnFixtures,
                         ::testing::Values("a_accumulator", "b_slice", "b_slice_sdpa", "c_mask", "c_mask_argmax",
                                           "d_dual", "d_dual_shift", "e_conv", "g_unified", "h_int4_block32",
                                           "i_multifunction", "i_multifunction_int4", "j_ane_chunk"));

TEST(StateToIo, ConvStateOutKvStateStays) {
  MW_OPEN_FIXTURE(before, "e_conv");
  auto after = Rewritten(before, "state-to-io=roles:conv");
  ASSERT_OK(after);
  const FunctionDescription& description = after->description.functions[0];
  EXPECT_THAT(Names(description.states), ElementsAre("kv_cache"));
  EXPECT_THAT(Names(description.inputs),
              ElementsAre("input_ids", "position_ids", "current_pos", "causal_mask", "conv_state"));
  EXPECT_THAT(Names(description.outputs), ElementsAre("logits", "conv_state_out"));
  ExpectEqualSteps(before, *after);
  auto back = Rewritten(*after, "io-to-state=roles:conv");
  ASSERT_OK(back);
  ExpectEqualSteps(before, *back);
}

TEST(StateToIo, NewRowsOut) {
  MW_OPEN_FIXTURE(before, "b_slice");
  std::vector<PassResult> results;
  auto after = Rewritten(before, "state-to-io=outputs:slice", &results);
  ASSERT_OK(after);
  EXPECT_THAT(results[0].report.notes,
              ::testing::Contains("main: the host writes 'k_cache_new' into 'k_cache' at 'current_pos' along axis 2"));
  const Function& main = *after->program.FindFunction("main");
  EXPECT_EQ(main.body().outputs()[1]->type.shape(), (Shape{2, 2, 1, 16}));
  ExpectEqualSteps(before, *after);
  auto back = Rewritten(*after, "io-to-state", &results);
  ASSERT_OK(back);
  EXPECT_THAT(results[0].report.assumptions[0], HasSubstr("where the program itself puts it"));
  ExpectEqualSteps(before, *back);
  EXPECT_EQ(back->program.FindFunction("main")->States().size(), 2U);
}

TEST(IoToState, WholeCachesOfTheExplicitFixtures) {
  for (const char* name : {"f_explicit", "f_explicit_ios17"}) {
    MW_OPEN_FIXTURE(before, name);
    auto after = Rewritten(before, "io-to-state");
    ASSERT_OK(after);
    const Function& main = *after->program.FindFunction("main");
    EXPECT_EQ(main.opset, Opset::kIOS18);
    EXPECT_EQ(after->specification_version, 9);
    EXPECT_THAT(Names(after->description.functions[0].states), ElementsAre("k_cache", "v_cache"));
    EXPECT_THAT(Names(after->description.functions[0].outputs), ElementsAre("logits"));
    ExpectEqualSteps(before, *after);
    auto back = Rewritten(*after, "state-to-io");
    ASSERT_OK(back);
    ExpectEqualSteps(before, *back);
  }
}

// Another output looks like an update of the state; the one that carries its name is its own, though nothing changes.
TEST(IoToState, AStateThatIsWrittenBackUnchanged) {
  const ModelSpec before = MakeSpec([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 1}));
    Value* s = function.AddInput("kept_state", Type::State({DataType::kFp16, {1, 2}}));
    Value* content = b.ReadState(s);
    b.WriteState(s, content);
    function.body().SetOutputs({b.Op(
        "slice_update",
        {{"x", content}, {"update", x}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({1, 1})}}, "out")});
  });
  const auto outside = Rewritten(before, "state-to-io");
  ASSERT_OK(outside);
  ExpectEqualSteps(before, *outside);
  for (const char* pass : {"io-to-state", "io-to-state=inputs:kept_state"}) {
    const auto back = Rewritten(*outside, pass);
    ASSERT_OK(back);
    EXPECT_THAT(Names(back->description.functions[0].outputs), ElementsAre("out"));
    EXPECT_THAT(Names(back->description.functions[0].states), ElementsAre("kept_state"));
    ExpectEqualSteps(before, *back);
  }
}

// A sum is no cache by its form, since residual streams are sums; where the input is one, its name decides.
TEST(IoToState, ASumThatIsAlsoGivenOut) {
  const ModelSpec before = MakeSpec([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* s = function.AddInput("acc", Type::State({DataType::kFp16, {1, 2}}));
    b.WriteState(s, b.Op("add", {{"x", b.ReadState(s)}, {"y", x}}));
    function.body().SetOutputs({b.ReadState(s, "acc_seen")});
  });
  const auto outside = Rewritten(before, "state-to-io");
  ASSERT_OK(outside);
  const auto back = Rewritten(*outside, "io-to-state=inputs:acc");
  ASSERT_OK(back);
  EXPECT_THAT(Names(back->description.functions[0].outputs), ElementsAre("acc_seen"));
  ExpectEqualSteps(before, *back);
}

TEST(IoToState, Fp32CachesOnlyWithLeave) {
  MW_OPEN_FIXTURE(before, "f_explicit_fp32");
  const auto refused = Rewritten(before, "io-to-state");
  EXPECT_EQ(refused.status().code(), ErrorCode::kPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("'k_cache' of 'main' is fp32 and a state holds fp16"));
  auto after = Rewritten(before, "io-to-state=allow-rounding:true");
  ASSERT_OK(after);
  ExpectEqualSteps(testing::WithRoundedCaches(before), *after);
}

TEST(IoToState, NewRowsNeedAPosition) {
  MW_OPEN_FIXTURE(before, "f_explicit_newkv");
  const auto refused = Rewritten(before, "io-to-state");
  EXPECT_EQ(refused.status().code(), ErrorCode::kPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("'k_new' of 'main' gives only new rows"));
  for (const char* position : {"position_ids", "current_pos"}) {
    std::vector<PassResult> results;
    auto after = Rewritten(before, std::string("io-to-state=position:") + position, &results);
    ASSERT_OK(after);
    ASSERT_EQ(results[0].report.assumptions.size(), 2U);
    EXPECT_THAT(results[0].report.assumptions[0], HasSubstr("the host wrote 'k_new' into 'k_cache' at"));
    EXPECT_THAT(after->description.metadata.user_defined.at("milwright.assumptions"), HasSubstr("the host wrote"));
    ExpectEqualSteps(before, *after);
  }
  EXPECT_THAT(Rewritten(before, "io-to-state=position:causal_mask").status().message(),
              HasSubstr("a position is one int32"));
}

TEST(IoToState, BadOptions) {
  const ModelSpec model = Accumulator();
  EXPECT_THAT(Rewritten(model, "io-to-state").status().message(), HasSubstr("no input is a cache"));
  EXPECT_THAT(Rewritten(model, "io-to-state=inputs:x").status().message(), HasSubstr("'x' is no cache"));
  EXPECT_EQ(Rewritten(model, "io-to-state=allow-rounding:yes").status().code(), ErrorCode::kUsage);
  EXPECT_THAT(Rewritten(model, "io-to-state=inputs:x;outputs:out").status().message(),
              HasSubstr("'out' is the only output of 'main'"));
}

}  // namespace
}  // namespace milwright
