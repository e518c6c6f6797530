// What the engine promises beside its results: in-place writes and their counters, errors that change nothing, output
// backings, predictions at the same time, placement of weights.
#include "milwright/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "mil/model.h"
#include "support/small_model.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::Halves;
using ::testing::HasSubstr;
using testing::Ints;
using testing::MakeModel;

Engine Make(Model model, EngineOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  return *Engine::FromModel(std::move(model), options);
}

// out = sum of a [4, 2] state after row `pos` was replaced by x.
Model RowWriter() {
  return MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* pos = f.AddInput("pos", Type::Tensor(DataType::kInt32, {1}));
    Value* end = f.AddInput("end", Type::Tensor(DataType::kInt32, {1}));
    Value* s = f.AddInput("s", Type::State({DataType::kFp16, {4, 2}}));
    Value* zero = b.Const(Literal::Int32s({0}));
    const auto concat = [&](Value* first, std::string_view name) {
      return b.Op("concat",
                  {{"values", std::vector<Value*>{first, zero}},
                   {"axis", Literal::Int32(0)},
                   {"interleave", Literal::Bool(false)}},
                  name);
    };
    Value* updated = b.Op("slice_update", {{"x", b.ReadState(s)},
                                           {"update", x},
                                           {"begin", concat(pos, "begin")},
                                           {"end", concat(end, "stop")},
                                           {"end_mask", Literal::Bools({0, 1})}});
    b.WriteState(s, updated);
    Value* sum =
        b.Op("reduce_sum",
             {{"x", b.ReadState(s)}, {"axes", Literal::Int32s({0, 1})}, {"keep_dims", Literal::Bool(true)}}, "out");
    f.body().SetOutputs({sum});
  });
}

TensorMap Row(float value, int64_t pos) {
  return {{"x", Halves({1, 2}, {value, value})}, {"pos", Ints({1}, {pos})}, {"end", Ints({1}, {pos + 1})}};
}

TEST(Engine, WritesJustTheSlice) {
  const Engine engine = Make(RowWriter());
  State state = *engine.MakeState();
  const auto outputs = engine.Predict(Row(3, 1), &state);
  ASSERT_OK(outputs);
  EXPECT_EQ(outputs->at("out").GetFloat(0), 6);
  EXPECT_EQ(state.Read("s")->ToFloats(), (std::vector<float>{0, 0, 3, 3, 0, 0, 0, 0}));
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.state_bytes_written, 4);  // two fp16 numbers
  EXPECT_EQ(counters.reference_predictions, 0);
  EXPECT_EQ(*engine.WhyNotPlanned(), "");
}

TEST(Engine, AFailedPredictionLeavesStatesAsTheyWere) {
  // The second write is out of range; the first has already happened in place.
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* index = f.AddInput("index", Type::Tensor(DataType::kInt32, {1}));
    Value* s = f.AddInput("s", Type::State({DataType::kFp16, {2}}));
    Value* ones = b.Const(Literal(Halves({2}, {1, 1})));
    b.WriteState(s, b.Op("add", {{"x", b.ReadState(s)}, {"y", ones}}));
    Value* table = f.AddInput("table", Type::Tensor(DataType::kFp16, {3, 2}));
    f.body().SetOutputs({b.Op("gather", {{"x", table}, {"indices", index}, {"axis", Literal::Int32(0)}}, "out")});
  });
  const Engine engine = Make(model);
  State state = *engine.MakeState();
  const Tensor table = Halves({3, 2}, {0, 1, 2, 3, 4, 5});
  ASSERT_OK(engine.Predict({{"index", Ints({1}, {2})}, {"table", table}}, &state));
  EXPECT_EQ(state.Read("s")->ToFloats(), (std::vector<float>{1, 1}));
  const auto failed = engine.Predict({{"index", Ints({1}, {3})}, {"table", table}}, &state);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.status().message(), HasSubstr("index 3 is outside the size 3 of axis 0"));
  EXPECT_EQ(state.Read("s")->ToFloats(), (std::vector<float>{1, 1}));
  ASSERT_OK(engine.Predict({{"index", Ints({1}, {0})}, {"table", table}}, &state));
  EXPECT_EQ(state.Read("s")->ToFloats(), (std::vector<float>{2, 2}));
}

TEST(Engine, ForksShareNothingThatIsWritten) {
  const Engine engine = Make(RowWriter());
  State state = *engine.MakeState();
  ASSERT_OK(engine.Predict(Row(1, 0), &state));
  State fork = *state.Clone();
  ASSERT_OK(engine.Predict(Row(5, 0), &state));
  EXPECT_EQ(fork.Read("s")->ToFloats().front(), 1);
  EXPECT_EQ(state.Read("s")->ToFloats().front(), 5);
}

// out = cache with row 0 replaced by x: an explicit cache.
Model ExplicitCache() {
  return MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* cache = f.AddInput("cache", Type::Tensor(DataType::kFp16, {3, 2}));
    Value* out = b.Op(
        "slice_update",
        {{"x", cache}, {"update", x}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({1, 2})}}, "out");
    f.body().SetOutputs({out});
  });
}

TEST(Engine, BackingsReceiveOutputs) {
  const Engine engine = Make(ExplicitCache());
  const Tensor cache = Halves({3, 2}, {1, 2, 3, 4, 5, 6});
  Tensor backing = Halves({3, 2}, {0, 0, 0, 0, 0, 0});
  const std::byte* memory = backing.bytes().data();
  EngineCall call;
  call.output_backings["out"] = std::move(backing);
  const auto outputs = engine.Predict({{"x", Halves({1, 2}, {7, 8})}, {"cache", cache}}, nullptr, std::move(call));
  ASSERT_OK(outputs);
  EXPECT_EQ(outputs->at("out").ToFloats(), (std::vector<float>{7, 8, 3, 4, 5, 6}));
  EXPECT_EQ(outputs->at("out").bytes().data(), memory);  // the caller's own buffer
  EXPECT_EQ(engine.counters().locked_backings, 0);
}

TEST(Engine, ABackingThatIsAnInputIsLocked) {
  const Engine engine = Make(ExplicitCache());
  const Tensor cache = Halves({3, 2}, {1, 2, 3, 4, 5, 6});
  EngineCall call;
  call.output_backings["out"] = cache;  // shares its memory with the input
  const auto outputs = engine.Predict({{"x", Halves({1, 2}, {7, 8})}, {"cache", cache}}, nullptr, std::move(call));
  ASSERT_OK(outputs);
  EXPECT_EQ(outputs->at("out").ToFloats(), (std::vector<float>{7, 8, 3, 4, 5, 6}));
  EXPECT_NE(outputs->at("out").bytes().data(), cache.bytes().data());
  EXPECT_EQ(cache.ToFloats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(engine.counters().locked_backings, 1);
}

TEST(Engine, RefusesBackingsThatDoNotFit) {
  const Engine engine = Make(ExplicitCache());
  const TensorMap inputs = {{"x", Halves({1, 2}, {7, 8})}, {"cache", Halves({3, 2}, {1, 2, 3, 4, 5, 6})}};
  EngineCall call;
  call.output_backings["out"] = Halves({2, 2}, {0, 0, 0, 0});
  const auto wrong_type = engine.Predict(inputs, nullptr, call);
  ASSERT_FALSE(wrong_type.ok());
  EXPECT_EQ(wrong_type.status().code(), ErrorCode::kUsage);
  EXPECT_THAT(wrong_type.status().message(), HasSubstr("the backing of output 'out' is tensor<fp16, [2, 2]>"));
  call.output_backings = {{"nothing", Halves({3, 2}, {0, 0, 0, 0, 0, 0})}};
  const auto no_output = engine.Predict(inputs, nullptr, call);
  ASSERT_FALSE(no_output.ok());
  EXPECT_THAT(no_output.status().message(), HasSubstr("there is no output 'nothing'"));
}

TEST(Engine, RunsIndependentStatesAtTheSameTime) {
  const Engine engine = Make(RowWriter());
  constexpr int kStates = 8;
  std::vector<State> states;
  for (int i = 0; i < kStates; ++i) states.push_back(*engine.MakeState());
  for (int round = 0; round < 20; ++round) {
    std::vector<std::future<Result<TensorMap>>> running;
    for (int i = 0; i < kStates; ++i) {
      running.push_back(
          engine.PredictAsync(Row(static_cast<float>(i + round), round % 4), states[static_cast<size_t>(i)]));
    }
    for (auto& future : running) ASSERT_OK(future.get());
  }
  for (int i = 0; i < kStates; ++i) {
    const auto f = [i](int round) { return static_cast<float>(i + round); };
    EXPECT_EQ(states[static_cast<size_t>(i)].Read("s")->ToFloats(),
              (std::vector<float>{f(16), f(16), f(17), f(17), f(18), f(18), f(19), f(19)}));
  }
}

TEST(Engine, OnePredictionAtATimeUsesAState) {
  const Engine engine = Make(RowWriter());
  State state = *engine.MakeState();
  int done = 0;
  int refused = 0;
  for (int round = 0; round < 50; ++round) {
    auto a = engine.PredictAsync(Row(1, 0), state);
    auto b = engine.PredictAsync(Row(1, 0), state);
    for (auto* future : {&a, &b}) {
      const auto result = future->get();
      if (result.ok()) {
        ++done;
      } else {
        EXPECT_THAT(result.status().message(), HasSubstr("one prediction at a time may use a state"));
        ++refused;
      }
    }
  }
  EXPECT_EQ(done + refused, 100);
  EXPECT_GE(done, 50);
}

TEST(Engine, ErrorsAreThoseOfTheModel) {
  const Engine engine = Make(RowWriter());
  State state = *engine.MakeState();
  EXPECT_THAT(engine.Predict({}, &state).status().message(), HasSubstr("the input 'x' is missing"));
  EXPECT_THAT(engine.Predict(Row(1, 0)).status().message(), HasSubstr("must be an MLState, but it was not"));
  const auto outside = engine.Predict(Row(1, 9), &state);
  ASSERT_FALSE(outside.ok());
  EXPECT_THAT(outside.status().message(), HasSubstr("position 9 with 1 rows is outside the size 4"));
  EngineCall call;
  call.function = "nothing";
  EXPECT_THAT(engine.Predict(Row(1, 0), &state, call).status().message(), HasSubstr("there is no function 'nothing'"));
}

TEST(Engine, FunctionsThatCannotBePlannedRunOnTheReference) {
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp16, {4}));
    f.body().SetOutputs({b.Op("non_zero", {{"x", x}}, "out")});
  });
  const Engine engine = Make(model);
  EXPECT_THAT(*engine.WhyNotPlanned(), HasSubstr("shape that depends on contents"));
  const auto outputs = engine.Predict({{"x", Halves({4}, {0, 1, 0, 2})}});
  ASSERT_OK(outputs);
  EXPECT_EQ(outputs->at("out").ToInts(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(engine.counters().reference_predictions, 1);
}

TEST(Engine, NormsOverAllAxesAreNotTakenForRmsNorm) {
  // layer_norm without axes, and a reduction without axes: their defaults are no lists of numbers.
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {2, 3}));
    Value* negative = b.Op("mul", {{"x", x}, {"y", Literal::Float(DataType::kFp32, -1)}});
    Value* both = b.Op("concat", {{"values", std::vector<Value*>{x, negative}},
                                  {"axis", Literal::Int32(1)},
                                  {"interleave", Literal::Bool(false)}});
    Value* normed = b.Op("layer_norm", {{"x", both}});
    Value* half =
        b.Op("slice_by_index", {{"x", normed}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({2, 3})}});
    Value* mean = b.Op("reduce_mean", {{"x", b.Op("square", {{"x", half}})}, {"keep_dims", Literal::Bool(true)}});
    Value* out = b.Op("mul", {{"x", half}, {"y", b.Op("rsqrt", {{"x", mean}})}}, "out");
    f.body().SetOutputs({out});
  });
  const Engine engine = Make(model);
  const TensorMap inputs = {{"x", testing::Floats(DataType::kFp32, {2, 3}, {1, -2, 3, 0.5F, 2, -1})}};
  const auto actual = engine.Predict(inputs);
  const auto expected = model.Predict(inputs);
  ASSERT_OK(actual);
  ASSERT_OK(expected);
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(actual->at("out").GetFloat(i), expected->at("out").GetFloat(i), 1e-5);
}

TEST(Engine, ProfilesSteps) {
  Engine engine = Make(RowWriter());
  State state = *engine.MakeState();
  ASSERT_OK(engine.Predict(Row(1, 0), &state));
  EXPECT_TRUE(engine.Profile().empty());
  engine.SetProfiling(true);
  ASSERT_OK(engine.Predict(Row(1, 0), &state));
  ASSERT_OK(engine.Predict(Row(1, 1), &state));
  const auto profile = engine.Profile();
  ASSERT_FALSE(profile.empty());
  EXPECT_EQ(profile.front().runs, 2);
  EXPECT_THAT(profile.back().path, HasSubstr("'out'"));
}

TEST(Engine, UnknownKernelsAreAUsageError) {
  EngineOptions options;
  options.kernels = "mmx";
  const auto engine = Engine::FromModel(RowWriter(), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace milwright
