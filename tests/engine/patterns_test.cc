// Single patterns that the engine treats in its own way, against the reference: slice updates that read their bounds
// where they are, what is asked for ahead of its time, and operands of few axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "mil/model.h"
#include "milwright/engine.h"
#include "support/small_model.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::Floats;
using testing::Ints;
using testing::MakeModel;

Engine MakeWith(const Model& model, Numerics numerics = Numerics::kStrict) {
  EngineOptions options;
  options.threads = 2;
  options.numerics = numerics;
  return *Engine::FromModel(model, options);
}

// Runs both on states of their own, prediction after prediction; outputs and the state `s`, if there is one, are equal.
void ExpectSame(const Model& model, const Engine& engine, const std::vector<TensorMap>& calls) {
  ASSERT_EQ(*engine.WhyNotPlanned(), "");
  State expected_state = *model.MakeState();
  State actual_state = *model.MakeState();
  for (const TensorMap& inputs : calls) {
    const auto expected = model.Predict(inputs, &expected_state);
    const auto actual = engine.Predict(inputs, &actual_state);
    ASSERT_OK(expected);
    ASSERT_OK(actual);
    for (const auto& [name, tensor] : *expected) EXPECT_EQ(actual->at(name).ToFloats(), tensor.ToFloats()) << name;
    const auto content = expected_state.Read("s");
    if (content.ok()) {
      EXPECT_EQ(actual_state.Read("s")->ToFloats(), content->ToFloats());
    }
  }
}

bool HasStep(const Engine& engine, const std::string& kind) {
  const auto profile = engine.Profile();
  return std::ranges::find(profile, kind, &ProfileEntry::kind) != profile.end();
}

Value* Concat(Builder& b, const std::vector<Value*>& values) {
  return b.Op("concat", {{"values", values}, {"axis", Literal::Int32(0)}, {"interleave", Literal::Bool(false)}});
}

// A [5, 3, 4] state whose slice [a : a + 2, 1 : 3, 0 : 4] becomes x; `bounds` makes begin and end of the inputs `a` [1]
// and `rest` [2], which hold the same as the constants {1, 0} that it may take instead.
using Bounds = std::function<void(Builder&, Value* a, Value* rest, Value** begin, Value** end)>;
Model Updater(const Bounds& bounds) {
  return MakeModel([&](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {2, 2, 4}));
    Value* a = f.AddInput("a", Type::Tensor(DataType::kInt32, {1}));
    Value* rest = f.AddInput("rest", Type::Tensor(DataType::kInt32, {2}));
    Value* s = f.AddInput("s", Type::State({DataType::kFp32, {5, 3, 4}}));
    Value* begin = nullptr;
    Value* end = nullptr;
    bounds(b, a, rest, &begin, &end);
    b.WriteState(s, b.Op("slice_update", {{"x", b.ReadState(s)}, {"update", x}, {"begin", begin}, {"end", end}}));
    f.body().SetOutputs({b.Op("identity", {{"x", b.ReadState(s)}}, "out")});
  });
}

std::vector<TensorMap> UpdaterCalls() {
  std::vector<TensorMap> calls;
  for (const int64_t a : {0, 3, 1}) {
    std::vector<float> x(16);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(100 * a) + static_cast<float>(i);
    calls.push_back({{"x", Floats(DataType::kFp32, {2, 2, 4}, x)}, {"a", Ints({1}, {a})}, {"rest", Ints({2}, {1, 0})}});
  }
  return calls;
}

TEST(SliceBounds, SingleNumbersAndConstantsOfSeveralAreReadWhereTheyAre) {
  const Model model = Updater([](Builder& b, Value* a, Value*, Value** begin, Value** end) {
    Value* stop = b.Op("add", {{"x", a}, {"y", Literal::Int32s({2})}});
    *begin = Concat(b, {a, b.Const(Literal::Int32s({1, 0}))});
    *end = Concat(b, {stop, b.Const(Literal::Int32s({3, 4}))});
  });
  Engine engine = MakeWith(model);
  engine.SetProfiling(true);
  ExpectSame(model, engine, UpdaterCalls());
  EXPECT_FALSE(HasStep(engine, "concat"));
}

TEST(SliceBounds, OneOfTheTwoMayBeTakenApart) {
  const Model model = Updater([](Builder& b, Value* a, Value* rest, Value** begin, Value** end) {
    Value* stop = b.Op("add", {{"x", a}, {"y", Literal::Int32s({2})}});
    *begin = Concat(b, {a, rest});  // two numbers that are computed: a vector
    *end = Concat(b, {stop, b.Const(Literal::Int32s({3, 4}))});
  });
  Engine engine = MakeWith(model);
  engine.SetProfiling(true);
  ExpectSame(model, engine, UpdaterCalls());
  EXPECT_TRUE(HasStep(engine, "concat"));
}

TEST(SliceBounds, AVectorThatOthersReadTooIsStillMade) {
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {1, 2}));
    Value* a = f.AddInput("a", Type::Tensor(DataType::kInt32, {1}));
    Value* s = f.AddInput("s", Type::State({DataType::kFp32, {4, 2}}));
    Value* begin = Concat(b, {a, b.Const(Literal::Int32s({0}))});
    Value* end = b.Op("add", {{"x", begin}, {"y", Literal::Int32s({1, 2})}});
    b.WriteState(s, b.Op("slice_update", {{"x", b.ReadState(s)}, {"update", x}, {"begin", begin}, {"end", end}}));
    f.body().SetOutputs({b.Op("identity", {{"x", begin}}, "out")});
  });
  ExpectSame(model, MakeWith(model),
             {{{"x", Floats(DataType::kFp32, {1, 2}, {1, 2})}, {"a", Ints({1}, {2})}},
              {{"x", Floats(DataType::kFp32, {1, 2}, {3, 4})}, {"a", Ints({1}, {0})}}});
}

TEST(SliceBounds, APositionThatTheUpdateItselfReplacesIsReadBefore) {
  // The state counts its own rows: element 0 says where the next number goes.
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kInt32, {1}));
    Value* s = f.AddInput("s", Type::State({DataType::kInt32, {4}}));
    Value* old = b.ReadState(s);
    Value* at = b.Op("slice_by_index", {{"x", old}, {"begin", Literal::Int32s({0})}, {"end", Literal::Int32s({1})}});
    Value* end = b.Op("add", {{"x", at}, {"y", Literal::Int32s({1})}});
    b.WriteState(s, b.Op("slice_update", {{"x", old}, {"update", x}, {"begin", at}, {"end", end}}));
    f.body().SetOutputs({b.Op("add", {{"x", at}, {"y", x}}, "out")});
  });
  // 3 is written at 0, then 7 at 3, 1 at 3 again.
  ExpectSame(model, MakeWith(model), {{{"x", Ints({1}, {3})}}, {{"x", Ints({1}, {7})}}, {{"x", Ints({1}, {1})}}});
}

TEST(Prefetch, PositionsThatAreNotComputedYetDoNoHarm) {
  // The rows of the update are asked for when the product is done, whose memory the position takes over: it is read as
  // whatever the product left there.
  constexpr int64_t kWidth = 512;  // 1 MB of weights: more than a step may read without emptying the caches
  const Model model = MakeModel([&](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {1, kWidth}));
    Value* a = f.AddInput("a", Type::Tensor(DataType::kInt32, {1}));
    Value* s = f.AddInput("s", Type::State({DataType::kFp32, {3, kWidth}}));
    std::vector<float> diagonal(static_cast<size_t>(kWidth * kWidth));
    for (int64_t i = 0; i < kWidth; ++i) diagonal[static_cast<size_t>(i * (kWidth + 1))] = 1;
    const auto linear = [&](Value* value) {
      return b.Op("linear",
                  {{"x", value}, {"weight", b.Const(Literal(Floats(DataType::kFp32, {kWidth, kWidth}, diagonal)))}});
    };
    Value* y = linear(linear(x));
    Value* at = b.Op("sub", {{"x", a}, {"y", Literal::Int32s({1})}});
    Value* stop = b.Op("add", {{"x", at}, {"y", Literal::Int32s({1})}});
    Value* zero = b.Const(Literal::Int32s({0}));
    b.WriteState(s, b.Op("slice_update", {{"x", b.ReadState(s)},
                                          {"update", y},
                                          {"begin", Concat(b, {at, zero})},
                                          {"end", Concat(b, {stop, b.Const(Literal::Int32s({kWidth}))})}}));
    f.body().SetOutputs({b.Op("identity", {{"x", b.ReadState(s)}}, "out")});
  });
  std::vector<TensorMap> calls;
  for (const int64_t a : {1, 3, 2}) {
    std::vector<float> x(kWidth);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? -3e38F : 2e9F;  // far outside, read as whole numbers
    calls.push_back({{"x", Floats(DataType::kFp32, {1, kWidth}, x)}, {"a", Ints({1}, {a})}});
  }
  ExpectSame(model, MakeWith(model), calls);
}

TEST(FewAxes, BlendsOfNumbersAndOfVectorsAreLeftAlone) {
  const Model numbers = MakeModel([](Function& f, Builder& b) {
    const auto number = [&](const char* name) {
      Value* input = f.AddInput(name, Type::Tensor(DataType::kFp32, {1}));
      return b.Op("reduce_max", {{"x", input}, {"axes", Literal::Int32s({0})}, {"keep_dims", Literal::Bool(false)}});
    };
    Value* mask = number("mask");
    Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp32, 1)}, {"y", mask}});
    Value* kept = b.Op("mul", {{"x", number("old")}, {"y", keep}});
    Value* placed = b.Op("mul", {{"x", number("new")}, {"y", mask}});
    f.body().SetOutputs({b.Op("add", {{"x", kept}, {"y", placed}}, "out")});
  });
  const TensorMap inputs = {{"mask", Floats(DataType::kFp32, {1}, {0.5F})},
                            {"old", Floats(DataType::kFp32, {1}, {4})},
                            {"new", Floats(DataType::kFp32, {1}, {8})}};
  ExpectSame(numbers, MakeWith(numbers), {inputs});
  const Model vectors = MakeModel([](Function& f, Builder& b) {
    Value* mask = f.AddInput("mask", Type::Tensor(DataType::kFp32, {1}));
    Value* old = f.AddInput("old", Type::Tensor(DataType::kFp32, {3}));
    Value* fresh = f.AddInput("new", Type::Tensor(DataType::kFp32, {1, 3}));
    Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp32, 1)}, {"y", mask}});
    Value* kept = b.Op("mul", {{"x", old}, {"y", keep}});
    f.body().SetOutputs({b.Op("add", {{"x", kept}, {"y", b.Op("matmul", {{"x", mask}, {"y", fresh}})}}, "out")});
  });
  ExpectSame(vectors, MakeWith(vectors),
             {{{"mask", Floats(DataType::kFp32, {1}, {0.5F})},
               {"old", Floats(DataType::kFp32, {3}, {1, 2, 3})},
               {"new", Floats(DataType::kFp32, {1, 3}, {5, 6, 7})}}});
}

TEST(FewAxes, AQueryMadeOfANumberIsTakenAsItIs) {
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {1}));
    Value* k = f.AddInput("k", Type::Tensor(DataType::kFp32, {1, 2, 1}));
    Value* v = f.AddInput("v", Type::Tensor(DataType::kFp32, {1, 2, 3}));
    Value* number = b.Op("reduce_max", {{"x", x}, {"axes", Literal::Int32s({0})}, {"keep_dims", Literal::Bool(false)}});
    Value* q = b.Op("reshape", {{"x", number}, {"shape", Literal::Int32s({1, 1, 1})}});
    Value* scores = b.Op("matmul", {{"x", q}, {"y", k}, {"transpose_y", Literal::Bool(true)}});
    Value* weights = b.Op("softmax", {{"x", scores}, {"axis", Literal::Int32(-1)}});
    f.body().SetOutputs({b.Op("matmul", {{"x", weights}, {"y", v}}, "out")});
  });
  const Engine engine = MakeWith(model, Numerics::kFast);
  ASSERT_EQ(*engine.WhyNotPlanned(), "");
  const TensorMap inputs = {{"x", Floats(DataType::kFp32, {1}, {1})},
                            {"k", Floats(DataType::kFp32, {1, 2, 1}, {0, 0})},
                            {"v", Floats(DataType::kFp32, {1, 2, 3}, {1, 2, 3, 5, 6, 7})}};
  const auto outputs = engine.Predict(inputs);
  ASSERT_OK(outputs);
  EXPECT_EQ(outputs->at("out").ToFloats(), (std::vector<float>{3, 4, 5}));  // both weigh one half
}

// x [4] as 2 x 1 x .. x 1 x 2 of `rank` axes, repeated along the first and the last, and added to itself.
Model OfRank(size_t rank) {
  return MakeModel([&](Function& f, Builder& b) {
    Value* x = f.AddInput("x", Type::Tensor(DataType::kFp32, {4}));
    std::vector<int64_t> shape(rank, 1);
    shape.front() = shape.back() = 2;
    std::vector<int64_t> reps(rank, 1);
    reps.front() = reps.back() = 3;
    Value* wide = b.Op("reshape", {{"x", x}, {"shape", Literal::Int32s(shape)}});
    Value* tiled = b.Op("tile", {{"x", wide}, {"reps", Literal::Int32s(reps)}});
    Value* sum = b.Op("add", {{"x", tiled}, {"y", tiled}});
    f.body().SetOutputs({b.Op("reshape", {{"x", sum}, {"shape", Literal::Int32s({36})}}, "out")});
  });
}

TEST(ManyAxes, UpToTwelveArePlannedAndMoreRunOnTheReference) {
  const TensorMap inputs = {{"x", Floats(DataType::kFp32, {4}, {1, 2, 3, 4})}};
  for (const size_t rank : {2, 6, 7, 12}) {  // from 7 on the halves of a tile's axes are too many for a copy
    const Model model = OfRank(rank);
    ExpectSame(model, MakeWith(model), {inputs});
  }
  const Model model = OfRank(13);
  const Engine engine = MakeWith(model);
  EXPECT_NE(*engine.WhyNotPlanned(), "");
  const auto expected = model.Predict(inputs);
  const auto actual = engine.Predict(inputs);
  ASSERT_OK(expected);
  ASSERT_OK(actual);
  EXPECT_EQ(actual->at("out").ToFloats(), expected->at("out").ToFloats());
}

}  // namespace
}  // namespace milwright
