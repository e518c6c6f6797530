// The cases of the state semantics that concern reading and running, with their exact numbers. T-numbers are those of
// the field's case list (docs/state-semantics.md of the book).
#include <cmath>
#include <thread>

#include "support/small_model.h"

namespace milwright {
namespace {

using testing::Floats;
using testing::Halves;
using testing::Ints;
using testing::MakeModel;

const TensorType kPair{DataType::kFp16, {2}};

// Runs one step of a program over fp16[2] inputs x=[1,2], y=[10,20] and states that start at the given contents.
struct Outcome {
  std::vector<float> out;
  std::map<std::string, std::vector<float>> states;
};

Outcome RunPair(const std::function<void(Function&, Builder&)>& fill,
                const std::map<std::string, std::vector<float>>& states = {{"s", {5, 5}}}) {
  const Model model = MakeModel(fill);
  State state = *model.MakeState();
  for (const auto& [name, values] : states) EXPECT_OK(state.Write(name, Halves({2}, values)));
  TensorMap inputs;
  for (const Feature& feature : *model.Inputs()) {
    inputs.emplace(feature.name,
                   Halves({2}, feature.name == "x" ? std::vector<float>{1, 2} : std::vector<float>{10, 20}));
  }
  const auto outputs = model.Predict(inputs, &state);
  EXPECT_OK(outputs);
  Outcome outcome;
  if (outputs.ok()) outcome.out = outputs->begin()->second.ToFloats();
  for (const std::string& name : state.names()) outcome.states[name] = state.Read(name)->ToFloats();
  return outcome;
}

Value* Scaled(Builder& b, Value* x, double factor, std::string_view name) {
  return b.Op("mul", {{"x", x}, {"y", Literal::Float(DataType::kFp16, factor)}}, name);
}
Value* Plus(Builder& b, Value* x, double constant, std::string_view name) {
  return b.Op("add", {{"x", x}, {"y", Literal::Float(DataType::kFp16, constant)}}, name);
}

TEST(StateSemantics, T01ReadWriteRead) {
  const Outcome outcome = RunPair([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    Value* r1 = b.ReadState(s);
    b.WriteState(s, x);
    Value* r2 = b.ReadState(s);
    f.body().SetOutputs({b.Op("add", {{"x", r1}, {"y", r2}}, "out")});
  });
  EXPECT_EQ(outcome.out, (std::vector<float>{6, 7}));
  EXPECT_EQ(outcome.states.at("s"), (std::vector<float>{1, 2}));
}

TEST(StateSemantics, T02WriteAfterRead) {
  const Outcome outcome = RunPair([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    Value* a = Plus(b, x, 1, "a");
    Value* old = b.ReadState(s);
    b.WriteState(s, a);
    f.body().SetOutputs({Scaled(b, old, 2, "out")});
  });
  EXPECT_EQ(outcome.out, (std::vector<float>{10, 10}));
  EXPECT_EQ(outcome.states.at("s"), (std::vector<float>{2, 3}));
}

TEST(StateSemantics, T03TwoWrites) {
  const Outcome outcome = RunPair([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", kPair);
    Value* y = f.AddInput("y", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    Value* a = Plus(b, x, 1, "a");
    Value* c = Plus(b, y, 1, "b");
    b.WriteState(s, c);
    b.WriteState(s, a);
    f.body().SetOutputs({b.Op("mul", {{"x", x}, {"y", y}}, "out")});
  });
  EXPECT_EQ(outcome.states.at("s"), (std::vector<float>{2, 3}));
}

TEST(StateSemantics, T04WritesXYX) {
  const Outcome outcome = RunPair([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", kPair);
    Value* y = f.AddInput("y", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    b.WriteState(s, x);
    b.WriteState(s, y);
    b.WriteState(s, x);
    f.body().SetOutputs({Plus(b, b.ReadState(s), 0.5, "out")});
  });
  EXPECT_EQ(outcome.out, (std::vector<float>{1.5, 2.5}));
  EXPECT_EQ(outcome.states.at("s"), (std::vector<float>{1, 2}));
}

TEST(StateSemantics, T05Delta) {
  const Outcome outcome = RunPair([](Function& f, Builder& b) {
    Value* x = f.AddInput("x", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    Value* r = b.ReadState(s);
    Value* m = b.Op("add", {{"x", r}, {"y", x}}, "m");
    Scaled(b, m, 3, "dead");
    b.WriteState(s, m);
    f.body().SetOutputs({b.Op("sub", {{"x", b.ReadState(s)}, {"y", r}}, "out")});
  });
  EXPECT_EQ(outcome.out, (std::vector<float>{1, 2}));
}

TEST(StateSemantics, T06Swap) {
  const Outcome outcome = RunPair(
      [](Function& f, Builder& b) {
        Value* x = f.AddInput("x", kPair);
        Value* s = f.AddInput("s", Type::State(kPair));
        Value* t = f.AddInput("t", Type::State(kPair));
        Value* a = b.ReadState(s);
        Value* c = b.ReadState(t);
        b.WriteState(s, c);
        b.WriteState(t, a);
        f.body().SetOutputs({Plus(b, x, 0, "out")});
      },
      {{"s", {5, 5}}, {"t", {7, 7}}});
  EXPECT_EQ(outcome.states.at("s"), (std::vector<float>{7, 7}));
  EXPECT_EQ(outcome.states.at("t"), (std::vector<float>{5, 5}));
}

TEST(StateSemantics, T08ToT11RunAsWritten) {
  EXPECT_EQ(RunPair([](Function& f, Builder& b) {
              Value* x = f.AddInput("x", kPair);
              f.AddInput("s", Type::State(kPair));
              f.body().SetOutputs({Plus(b, x, 1, "out")});
            }).states.at("s"),
            (std::vector<float>{5, 5}));
  EXPECT_EQ(RunPair([](Function& f, Builder& b) {
              Value* x = f.AddInput("x", kPair);
              Value* s = f.AddInput("s", Type::State(kPair));
              b.WriteState(s, b.ReadState(s));
              f.body().SetOutputs({Plus(b, x, 1, "out")});
            }).states.at("s"),
            (std::vector<float>{5, 5}));
  EXPECT_EQ(RunPair([](Function& f, Builder& b) {
              Value* x = f.AddInput("x", kPair);
              Value* s = f.AddInput("s", Type::State(kPair));
              b.WriteState(s, x);
              f.body().SetOutputs({Plus(b, x, 1, "out")});
            }).states.at("s"),
            (std::vector<float>{1, 2}));
  EXPECT_EQ(RunPair([](Function& f, Builder& b) {
              Value* x = f.AddInput("x", kPair);
              Value* s = f.AddInput("s", Type::State(kPair));
              f.body().SetOutputs({b.Op("add", {{"x", x}, {"y", b.ReadState(s)}}, "out")});
            }).out,
            (std::vector<float>{6, 7}));
}

// k[:, :, pos:pos+rows, :] = update, as LLM packages write it: the end is position + rows.
void SliceUpdateCache(Function& f, Builder& b, const Shape& cache, int64_t rows) {
  Value* update = f.AddInput("k_new", TensorType{DataType::kFp16, {cache[0], cache[1], rows, cache[3]}});
  Value* position = f.AddInput("pos", TensorType{DataType::kInt32, {1}});
  Value* k = f.AddInput("k", Type::State({DataType::kFp16, cache}));
  Value* zero = b.Const(Literal::Int32s({0}), "zero");
  Value* stop = b.Op("add", {{"x", position}, {"y", Literal::Int32s({rows})}}, "stop");
  Value* begin = b.Op("concat",
                      {{"values", std::vector<Value*>{zero, zero, position, zero}},
                       {"axis", Literal::Int32(0)},
                       {"interleave", Literal::Bool(false)}},
                      "begin");
  Value* end = b.Op("concat",
                    {{"values", std::vector<Value*>{zero, zero, stop, zero}},
                     {"axis", Literal::Int32(0)},
                     {"interleave", Literal::Bool(false)}},
                    "end");
  Value* written = b.Op("slice_update",
                        {{"x", b.ReadState(k)},
                         {"update", update},
                         {"begin", begin},
                         {"end", end},
                         {"begin_mask", Literal::Bools({1, 1, 0, 1})},
                         {"end_mask", Literal::Bools({1, 1, 0, 1})}},
                        "k_updated");
  b.WriteState(k, written);
  f.body().SetOutputs(
      {b.Op("reduce_sum", {{"x", b.ReadState(k)}, {"axes", Literal::Int32s({3})}, {"keep_dims", Literal::Bool(false)}},
            "sums")});
}

TEST(StateSemantics, T12SliceUpdateFillsAndRefusesThePositionPastTheEnd) {
  const Model model = MakeModel([](Function& f, Builder& b) { SliceUpdateCache(f, b, {1, 2, 8, 4}, 1); });
  State state = *model.MakeState();
  for (int64_t pos = 0; pos < 8; ++pos) {
    const auto value = static_cast<float>(pos + 1);
    ASSERT_OK(model.Predict({{"k_new", Halves({1, 2, 1, 4}, std::vector<float>(8, value))}, {"pos", Ints({1}, {pos})}},
                            &state));
    const std::vector<float> cache = state.Read("k")->ToFloats();
    for (int64_t slot = 0; slot < 8; ++slot) {
      EXPECT_EQ(cache[static_cast<size_t>(slot * 4)], slot <= pos ? static_cast<float>(slot + 1) : 0.0F);
    }
  }
  const std::vector<float> before = state.Read("k")->ToFloats();
  const auto past =
      model.Predict({{"k_new", Halves({1, 2, 1, 4}, std::vector<float>(8, 9))}, {"pos", Ints({1}, {8})}}, &state);
  ASSERT_FALSE(past.ok());
  EXPECT_EQ(past.status().code(), ErrorCode::kRuntime);
  for (const char* word : {"k_updated", "slice_update", "8"}) {
    EXPECT_NE(past.status().message().find(word), std::string::npos) << past.status().message();
  }
  EXPECT_EQ(state.Read("k")->ToFloats(), before);
}

TEST(StateSemantics, T13EndOfAnotherRankIsATypeError) {
  ModelSpec spec;
  Function* f = spec.program.AddFunction("main", Opset::kIOS18);
  Value* k = f->AddInput("k", Type::State({DataType::kFp16, {1, 2, 8, 4}}));
  Value* update = f->AddInput("u", TensorType{DataType::kFp16, {1, 2, 1, 4}});
  Builder b(f->body());
  b.Op("slice_update", {{"x", b.ReadState(k)},
                        {"update", update},
                        {"begin", Literal::Int32s({0, 0, 0, 0})},
                        {"end", Literal::Int32s({1, 2, 1})}});
  EXPECT_EQ(b.status().code(), ErrorCode::kInvalidProgram);
  EXPECT_NE(b.status().message().find("end"), std::string::npos) << b.status().message();
}

TEST(StateSemantics, T14ConstantSliceThatClampsIsATypeError) {
  ModelSpec spec;
  Function* f = spec.program.AddFunction("main", Opset::kIOS18);
  Value* k = f->AddInput("k", Type::State({DataType::kFp16, {1, 1, 8, 4}}));
  Value* update = f->AddInput("u", TensorType{DataType::kFp16, {1, 1, 4, 4}});
  Builder b(f->body());
  b.Op("slice_update", {{"x", b.ReadState(k)},
                        {"update", update},
                        {"begin", Literal::Int32s({0, 0, 6, 0})},
                        {"end", Literal::Int32s({1, 1, 10, 4})}});
  EXPECT_FALSE(b.status().ok());
  EXPECT_NE(b.status().message().find("position 6 with 4 rows is outside the size 8"), std::string::npos)
      << b.status().message();
}

TEST(StateSemantics, T15MaskBlendEqualsSliceUpdate) {
  const Model slice = MakeModel([](Function& f, Builder& b) { SliceUpdateCache(f, b, {1, 2, 8, 4}, 1); });
  const Model blend = MakeModel([](Function& f, Builder& b) {
    Value* update = f.AddInput("k_new", TensorType{DataType::kFp16, {1, 2, 1, 4}});
    Value* mask = f.AddInput("mask", TensorType{DataType::kFp16, {1, 1, 8, 1}});
    Value* k = f.AddInput("k", Type::State({DataType::kFp16, {1, 2, 8, 4}}));
    Value* keep = b.Op("sub", {{"x", Literal::Float(DataType::kFp16, 1)}, {"y", mask}}, "keep");
    Value* kept = b.Op("mul", {{"x", b.ReadState(k)}, {"y", keep}}, "kept");
    Value* fresh = b.Op("mul", {{"x", update}, {"y", mask}}, "fresh");
    b.WriteState(k, b.Op("add", {{"x", kept}, {"y", fresh}}, "k_updated"));
    f.body().SetOutputs(
        {b.Op("reduce_sum",
              {{"x", b.ReadState(k)}, {"axes", Literal::Int32s({3})}, {"keep_dims", Literal::Bool(false)}}, "sums")});
  });
  State a = *slice.MakeState();
  State c = *blend.MakeState();
  for (int64_t pos = 0; pos < 8; ++pos) {
    std::vector<float> mask(8, 0);
    mask[static_cast<size_t>(pos)] = 1;
    std::vector<float> values(8);
    for (size_t i = 0; i < 8; ++i) values[i] = static_cast<float>(pos) - 0.37F * static_cast<float>(i);
    ASSERT_OK(slice.Predict({{"k_new", Halves({1, 2, 1, 4}, values)}, {"pos", Ints({1}, {pos})}}, &a));
    ASSERT_OK(blend.Predict({{"k_new", Halves({1, 2, 1, 4}, values)}, {"mask", Halves({1, 1, 8, 1}, mask)}}, &c));
    EXPECT_EQ(a.Read("k")->ToFloats(), c.Read("k")->ToFloats());
  }
}

// w' = concat(w[:, :, 1:], h); y = sum(w' * taps): the window of a short convolution, T new columns a call.
Model ConvWindow(int64_t steps) {
  return MakeModel([steps](Function& f, Builder& b) {
    Value* h = f.AddInput("h", TensorType{DataType::kFp16, {1, 4, steps}});
    Value* w = f.AddInput("w", Type::State({DataType::kFp16, {1, 4, 3}}));
    Value* joined = b.Op("concat",
                         {{"values", std::vector<Value*>{b.ReadState(w), h}},
                          {"axis", Literal::Int32(2)},
                          {"interleave", Literal::Bool(false)}},
                         "joined");
    b.WriteState(
        w, b.Op("slice_by_index",
                {{"x", joined}, {"begin", Literal::Int32s({0, 0, steps})}, {"end", Literal::Int32s({1, 4, steps + 3})}},
                "last"));
    std::vector<Value*> columns;
    for (int64_t t = 0; t < steps; ++t) {
      Value* window =
          b.Op("slice_by_index",
               {{"x", joined}, {"begin", Literal::Int32s({0, 0, t + 1})}, {"end", Literal::Int32s({1, 4, t + 4})}},
               "window");
      Value* product = b.Op("mul", {{"x", window}, {"y", Literal(Halves({1, 1, 3}, {1, 2, 4}))}}, "product");
      columns.push_back(b.Op(
          "reduce_sum", {{"x", product}, {"axes", Literal::Int32s({2})}, {"keep_dims", Literal::Bool(true)}}, "y"));
    }
    f.body().SetOutputs(
        {steps == 1
             ? columns.front()
             : b.Op("concat", {{"values", columns}, {"axis", Literal::Int32(2)}, {"interleave", Literal::Bool(false)}},
                    "ys")});
  });
}

TEST(StateSemantics, T17ConvWindowPrefillEqualsDecode) {
  const Model decode = ConvWindow(1);
  const Model prefill = ConvWindow(5);
  std::vector<float> columns(20);
  for (size_t i = 0; i < 20; ++i) columns[i] = static_cast<float>((i * 7) % 11) - 5;
  State a = *prefill.MakeState();
  const auto whole = prefill.Predict({{"h", Halves({1, 4, 5}, columns)}}, &a);
  ASSERT_OK(whole);
  State c = *decode.MakeState();
  for (size_t t = 0; t < 5; ++t) {
    std::vector<float> column(4);
    for (size_t ch = 0; ch < 4; ++ch) column[ch] = columns[ch * 5 + t];
    const auto step = decode.Predict({{"h", Halves({1, 4, 1}, column)}}, &c);
    ASSERT_OK(step);
    for (size_t ch = 0; ch < 4; ++ch) {
      EXPECT_EQ(step->begin()->second.GetFloat(static_cast<int64_t>(ch)),
                whole->begin()->second.GetFloat(static_cast<int64_t>(ch * 5 + t)));
    }
  }
  EXPECT_EQ(a.Read("w")->ToFloats(), c.Read("w")->ToFloats());
}

TEST(StateSemantics, T18ChunkedPrefillEqualsSteps) {
  std::map<int64_t, Model> models;
  for (int64_t rows : {1, 2, 4})
    models.emplace(rows, MakeModel([rows](Function& f, Builder& b) { SliceUpdateCache(f, b, {1, 2, 8, 4}, rows); }));
  std::vector<float> all(32);
  for (size_t i = 0; i < 32; ++i) all[i] = static_cast<float>(i) * 0.25F;
  std::vector<std::vector<float>> caches;
  for (int64_t rows : {4, 2, 1}) {
    State state = *models.at(rows).MakeState();
    for (int64_t pos = 0; pos < 4; pos += rows) {
      std::vector<float> part;
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t i = 0; i < rows * 4; ++i) part.push_back(all[static_cast<size_t>(head * 16 + pos * 4 + i)]);
      }
      ASSERT_OK(models.at(rows).Predict({{"k_new", Halves({1, 2, rows, 4}, part)}, {"pos", Ints({1}, {pos})}}, &state));
    }
    caches.push_back(state.Read("k")->ToFloats());
  }
  EXPECT_EQ(caches[0], caches[1]);
  EXPECT_EQ(caches[0], caches[2]);
}

// softmax(scores + mask) in fp16 with an fp16 sum, as programs write it.
std::vector<float> MaskedSoftmax(const std::vector<float>& scores, const std::vector<float>& mask) {
  const Model model = MakeModel([](Function& f, Builder& b) {
    Value* x = f.AddInput("scores", kPair);
    Value* m = f.AddInput("mask", kPair);
    f.body().SetOutputs({b.Op(
        "softmax", {{"x", b.Op("add", {{"x", x}, {"y", m}}, "masked")}, {"axis", Literal::Int32(-1)}}, "weights")});
  });
  return model.Predict({{"scores", Halves({2}, scores)}, {"mask", Halves({2}, mask)}})->at("weights").ToFloats();
}

TEST(StateSemantics, T20MaskSumsThatOverflowGiveNan) {
  for (float weight : MaskedSoftmax({-40, -50}, {-65504, -65504})) EXPECT_TRUE(std::isnan(weight));
  // -1e4 leaves the scores' difference after rounding to fp16 (steps of 8 at 1e4): -10040 and -10048, e^-8.
  const std::vector<float> weights = MaskedSoftmax({-40, -50}, {-10000, -10000});
  EXPECT_NEAR(weights[0], 0.99951, 5e-6);
  EXPECT_NEAR(weights[1], 3.3545e-4, 5e-8);
}

TEST(StateSemantics, T21And22MasksBeyondFp16) {
  const Model cast = MakeModel([](Function& f, Builder& b) {
    Value* m = f.AddInput("m", TensorType{DataType::kFp32, {2}});
    Value* scaled = b.Op("mul", {{"x", m}, {"y", Literal::Float(DataType::kFp32, -1e9)}}, "scaled");
    f.body().SetOutputs({b.Op("cast", {{"x", scaled}, {"dtype", Literal::String("fp16")}}, "mask")});
  });
  EXPECT_EQ(cast.Predict({{"m", Floats(DataType::kFp32, {2}, {1, 0})}})->at("mask").GetFloat(0), -INFINITY);
  for (float weight : MaskedSoftmax({0, 0}, {-INFINITY, -INFINITY})) EXPECT_TRUE(std::isnan(weight));
  EXPECT_EQ(RunPair(
                [](Function& f, Builder& b) {
                  Value* x = f.AddInput("x", kPair);
                  Value* zero = Scaled(b, x, 0, "zero");
                  f.body().SetOutputs({Plus(b, Plus(b, zero, -60000, "one"), -60000, "out")});
                },
                {})
                .out[0],
            -INFINITY);
}

TEST(StateSemantics, T23And24NarrowIndicesWrap) {
  const Model narrow = MakeModel([](Function& f, Builder& b) {
    Value* i = f.AddInput("i", TensorType{DataType::kInt32, {1}});
    Value* small = b.Op("cast", {{"x", i}, {"dtype", Literal::String("int16")}}, "small");
    Value* unsigned_small = b.Op("cast", {{"x", i}, {"dtype", Literal::String("uint16")}}, "unsigned_small");
    f.body().SetOutputs({b.Op("cast", {{"x", small}, {"dtype", Literal::String("int32")}}, "wide"),
                         b.Op("cast", {{"x", unsigned_small}, {"dtype", Literal::String("int32")}}, "unsigned_wide")});
  });
  EXPECT_EQ(narrow.Predict({{"i", Ints({1}, {40000})}})->at("wide").GetInt(0), -25536);
  EXPECT_EQ(narrow.Predict({{"i", Ints({1}, {66000})}})->at("unsigned_wide").GetInt(0), 464);
}

TEST(StateSemantics, T40SharedNameWithAnotherShapeIsAnError) {
  ModelSpec spec;
  spec.source = "test.mlpackage";
  for (int64_t size : {2, 4}) {
    Function* f = spec.program.AddFunction(size == 2 ? "prefill" : "decode", Opset::kIOS18);
    Value* x = f->AddInput("x", kPair);
    f->AddInput("s", Type::State({DataType::kFp16, {size}}));
    Builder b(f->body());
    f->body().SetOutputs({Plus(b, x, 1, "out")});
    spec.description.functions.push_back(DescribeFunction(*f));
  }
  const auto model = Model::FromSpec(std::make_shared<const ModelSpec>(std::move(spec)));
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("'s'"), std::string::npos);
}

Model Accumulator(DataType dtype) {
  return MakeModel([dtype](Function& f, Builder& b) {
    const TensorType one{dtype, {1}};
    Value* x = f.AddInput("x", one);
    Value* acc = f.AddInput("acc", Type::State(one));
    Value* sum = b.Op("add", {{"x", b.ReadState(acc)}, {"y", x}}, "sum");
    b.WriteState(acc, sum);
    f.body().SetOutputs({b.Op("mul", {{"x", sum}, {"y", Literal::Float(dtype, 2)}}, "y")});
  });
}

TEST(StateSemantics, T41APredictionCountsOnce) {
  const Model model = Accumulator(DataType::kFp16);
  State state = *model.MakeState();
  ASSERT_OK(model.Predict({{"x", Halves({1}, {3})}}, &state));
  EXPECT_EQ(state.Read("acc")->GetFloat(0), 3);
  ASSERT_OK(model.Predict({{"x", Halves({1}, {3})}}, &state));
  EXPECT_EQ(state.Read("acc")->GetFloat(0), 6);
}

TEST(StateSemantics, T42Fp16AccumulatorStallsAt2048) {
  const Model half = Accumulator(DataType::kFp16);
  State state = *half.MakeState();
  for (int i = 0; i < 3000; ++i) ASSERT_OK(half.Predict({{"x", Halves({1}, {1})}}, &state));
  EXPECT_EQ(state.Read("acc")->GetFloat(0), 2048);
  const Model single = Accumulator(DataType::kFp32);
  State wide = *single.MakeState();
  for (int i = 0; i < 3000; ++i) ASSERT_OK(single.Predict({{"x", Floats(DataType::kFp32, {1}, {1})}}, &wide));
  EXPECT_EQ(wide.Read("acc")->GetFloat(0), 3000);
}

// ---- the rules around states ----

TEST(State, StatefulWithoutStateSaysWhatCoreMlSays) {
  const auto result = Accumulator(DataType::kFp16).Predict({{"x", Halves({1}, {1})}});
  EXPECT_EQ(result.status().message(), "The input feature for acc must be an MLState, but it was not.");
}

TEST(State, StatelessModelsTakeEmptyStates) {
  const Model model =
      MakeModel([](Function& f, Builder& b) { f.body().SetOutputs({Plus(b, f.AddInput("x", kPair), 1, "out")}); });
  State state = *model.MakeState();
  EXPECT_TRUE(state.names().empty());
  EXPECT_OK(model.Predict({{"x", Halves({2}, {1, 2})}}, &state));
}

TEST(State, AnotherModelsStateIsTakenOnlyWhenItIsAlike) {
  const Model a = Accumulator(DataType::kFp16);
  const Model b = Accumulator(DataType::kFp16);
  const Model other = MakeModel([](Function& f, Builder& builder) {
    Value* x = f.AddInput("x", kPair);
    Value* s = f.AddInput("s", Type::State(kPair));
    builder.WriteState(s, x);
    f.body().SetOutputs({Plus(builder, builder.ReadState(s), 1, "out")});
  });
  State state = *a.MakeState();
  EXPECT_OK(b.Predict({{"x", Halves({1}, {1})}}, &state));
  EXPECT_FALSE(b.Predict({{"x", Halves({1}, {1})}}, &state,
                         {.function = {}, .state_binding = StateBinding::kPackage, .on_value = {}})
                   .ok());
  const auto refused = other.Predict({{"x", Halves({2}, {1, 2})}}, &state);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("acc"), std::string::npos);
  EXPECT_NE(refused.status().message().find("s tensor<fp16, [2]>"), std::string::npos) << refused.status().message();
}

TEST(State, ClonesAreIndependentAndCopiesAreNot) {
  const Model model = Accumulator(DataType::kFp16);
  State state = *model.MakeState();
  State same = state;
  State fork = *state.Clone();
  ASSERT_OK(model.Predict({{"x", Halves({1}, {5})}}, &state));
  EXPECT_EQ(same.Read("acc")->GetFloat(0), 5);
  EXPECT_EQ(fork.Read("acc")->GetFloat(0), 0);
  ASSERT_OK(state.Reset());
  EXPECT_EQ(same.Read("acc")->GetFloat(0), 0);
}

TEST(State, OnePredictionAtATime) {
  const Model model = Accumulator(DataType::kFp16);
  State state = *model.MakeState();
  PredictOptions nested;
  Status inner;
  nested.on_value = [&](std::string_view, std::string_view, const Tensor&) {
    if (inner.ok()) inner = model.Predict({{"x", Halves({1}, {1})}}, &state).status();
  };
  ASSERT_OK(model.Predict({{"x", Halves({1}, {1})}}, &state, nested));
  EXPECT_EQ(inner.code(), ErrorCode::kRuntime);
  EXPECT_NE(inner.message().find("in use"), std::string::npos);
  EXPECT_EQ(state.Read("acc")->GetFloat(0), 1);
}

TEST(State, DifferentStatesRunInParallel) {
  const Model model = Accumulator(DataType::kFp16);
  std::vector<std::thread> threads;
  std::vector<float> results(4);
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      State state = *model.MakeState();
      for (int step = 0; step < 50; ++step) {
        if (!model.Predict({{"x", Halves({1}, {static_cast<float>(i)})}}, &state).ok()) return;
      }
      results[i] = state.Read("acc")->GetFloat(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, (std::vector<float>{0, 50, 100, 150}));
}

TEST(Predict, InputsAreChecked) {
  const Model model = Accumulator(DataType::kFp16);
  State state = *model.MakeState();
  const auto message = [&](const TensorMap& inputs) { return model.Predict(inputs, &state).status().message(); };
  EXPECT_EQ(message({}), "the input 'x' is missing");
  EXPECT_EQ(message({{"x", Halves({2}, {1, 2})}}), "the input 'x': has shape [2], but [1] is expected");
  EXPECT_EQ(message({{"x", Halves({1}, {1})}, {"z", Halves({1}, {1})}}),
            "the function 'main' has no input 'z'; its inputs are: x");
  EXPECT_EQ(message({{"x", *Tensor::FromStrings({1}, {"a"})}}), "the input 'x': is string, but fp16 is expected");
  EXPECT_OK(model.Predict({{"x", Floats(DataType::kFp32, {1}, {1})}}, &state));
}

}  // namespace
}  // namespace milwright
