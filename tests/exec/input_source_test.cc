// Input kinds and drawn inputs, held against the golden steps of the fixtures: masks, positions and rotary tables must
// come out as the exporter wrote them, and caches must be copied back as its host loop did.
#include "exec/input_source.h"

#include <cmath>

#include "exec/steps.h"
#include "format/npy.h"
#include "format/package.h"
#include "support/files.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::FindAll;
using testing::Halves;
using testing::MakeSpec;
using testing::SharedDir;
using Path = std::filesystem::path;

bool IsRandom(InputKind kind) {
  return kind == InputKind::kTokenId || kind == InputKind::kHidden || kind == InputKind::kFree;
}

int64_t RowsOf(const Step& step) {
  const auto ids = step.inputs.find("input_ids");
  return ids != step.inputs.end() ? ids->second.shape().back() : 1;
}

// Draws the golden steps of one package anew; returns what differs.
std::vector<std::string> HoldAgainstGolden(const Path& package) {
  Path golden = package;
  golden.replace_extension(".npz");
  const auto model = Model::Load(package);
  if (!model.ok()) return {model.status().message()};
  const StepSequence expected = *StepsFromArrays(*ReadNpz(golden));
  InputSourceOptions options;
  options.query_length = RowsOf(expected.steps.front());
  auto source = InputSource::Make(model->spec(), options);
  if (!source.ok()) return {source.status().message()};
  State state = *model->MakeState();
  std::vector<std::string> failures;
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    const Step& step = expected.steps[i];
    const std::string function = step.function.empty() ? model->default_function() : step.function;
    if (RowsOf(step) != source->QueryLength(function)) break;  // a flexible package whose steps vary
    const auto drawn = source->Draw(function);
    if (!drawn.ok()) return {package.stem().string() + ": " + drawn.status().message()};
    for (const InputFacts& facts : source->Inputs(function)->inputs) {
      const std::string& name = facts.input->name;
      const std::string place = package.stem().string() + " step " + std::to_string(i) + " " + name + " " +
                                std::string(InputKindName(facts.kind));
      // Of the kinds that are drawn at random only the type is given; fixtures know no free input but the
      // accumulator's.
      if (facts.kind == InputKind::kFree && package.stem() != "a_accumulator") failures.push_back(place);
      const Tensor& wanted = step.inputs.at(name);
      if (drawn->at(name).shape() != wanted.shape()) failures.push_back(place + " has another shape");
      if (IsRandom(facts.kind)) continue;
      // Caches hold what this run computed: fp16 against the exporter's fp32 (tolerance of the fixtures). Rotary values
      // may be rounded from fp32 or fp64 angles.
      const bool rotary = facts.kind == InputKind::kRotaryCos || facts.kind == InputKind::kRotarySin;
      const double atol = facts.kind == InputKind::kCache ? 6e-3 : rotary ? 1e-3 : 0;
      const TensorDifference difference = CompareTensors(drawn->at(name), wanted, {atol, 0});
      if (!difference.passed())
        failures.push_back(place + " differs by " + std::to_string(difference.max_error) + " " + difference.note);
    }
    PredictOptions predict;
    predict.function = function;
    const auto outputs = model->Predict(step.inputs, &state, predict);
    if (!outputs.ok()) return {outputs.status().message()};
    EXPECT_OK(source->Accept(function, *outputs));
  }
  return failures;
}

TEST(InputSource, DrawsTheGoldenInputsOfShippedPackages) {
  for (const Path& package : FindAll(DataDir() / "packages", ".mlpackage")) {
    const auto failures = HoldAgainstGolden(package);
    EXPECT_TRUE(failures.empty()) << ::testing::PrintToString(failures);
  }
}

TEST(InputSource, DrawsTheGoldenInputsOfAllFixtures) {
  const Path folder = SharedDir() / "fixtures/coremltools";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  for (const Path& package : FindAll(folder, ".mlpackage")) {
    const auto failures = HoldAgainstGolden(package);
    EXPECT_TRUE(failures.empty()) << ::testing::PrintToString(failures);
  }
}

std::map<std::string, std::string> KindsOf(const Function& function, const InputKindChoices& choices = {}) {
  std::map<std::string, std::string> kinds;
  const auto inputs = FindInputKinds(function, choices);
  EXPECT_OK(inputs);
  for (const InputFacts& facts : inputs->inputs)
    kinds.emplace(facts.input->name, std::string(InputKindName(facts.kind)));
  return kinds;
}

// One head attending to a cache of 8 rows that is written at `b`, or to what the cache held and its own row `behind`
// that; names say nothing.
void Attention(Function& function, Builder& b, bool bool_mask, bool behind = false) {
  Value* hidden = function.AddInput("a", Type::Tensor(DataType::kFp16, {1, 1, 4}));
  Value* place = function.AddInput("b", Type::Tensor(DataType::kInt32, {1}));
  Value* mask =
      function.AddInput("c", Type::Tensor(bool_mask ? DataType::kBool : DataType::kFp16, {1, 1, behind ? 9 : 8}));
  Value* state = function.AddInput("d", Type::State({DataType::kFp16, {1, 8, 4}}));
  Value* weight = b.Const(Literal(Halves({4, 4}, std::vector<float>(16, 0.25F))));
  Value* key = b.Op("linear", {{"x", hidden}, {"weight", weight}});
  Value* zero = b.Const(Literal::Int32s({0}));
  Value* begin = b.Op("concat", {{"values", std::vector<Value*>{zero, place, zero}},
                                 {"axis", Literal::Int32(0)},
                                 {"interleave", Literal::Bool(false)}});
  Value* next = b.Op("add", {{"x", place}, {"y", Literal::Int32(1)}});
  Value* end = b.Op(
      "concat", {{"values", std::vector<Value*>{b.Const(Literal::Int32s({1})), next, b.Const(Literal::Int32s({4}))}},
                 {"axis", Literal::Int32(0)},
                 {"interleave", Literal::Bool(false)}});
  Value* old = b.ReadState(state);
  Value* updated = b.Op("slice_update", {{"x", old}, {"update", key}, {"begin", begin}, {"end", end}});
  b.WriteState(state, updated);
  if (behind) {
    updated = b.Op(
        "concat",
        {{"values", std::vector<Value*>{old, key}}, {"axis", Literal::Int32(1)}, {"interleave", Literal::Bool(false)}});
  }
  Value* scores = b.Op(
      "matmul",
      {{"x", hidden}, {"y", updated}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(true)}});
  Value* masked = bool_mask
                      ? b.Op("select", {{"cond", mask}, {"a", scores}, {"b", Literal::Float(DataType::kFp16, -1e4)}})
                      : b.Op("add", {{"x", scores}, {"y", mask}});
  Value* weights = b.Op("softmax", {{"x", masked}, {"axis", Literal::Int32(-1)}});
  Value* out = b.Op(
      "matmul",
      {{"x", weights}, {"y", updated}, {"transpose_x", Literal::Bool(false)}, {"transpose_y", Literal::Bool(false)}});
  function.body().SetOutputs({out});
}

TEST(InputKinds, ComeFromDataFlowWhereNamesSayNothing) {
  for (const bool bool_mask : {false, true}) {
    const ModelSpec spec =
        MakeSpec([bool_mask](Function& function, Builder& builder) { Attention(function, builder, bool_mask); });
    const Function& function = *spec.program.functions().front();
    EXPECT_EQ(KindsOf(function),
              (std::map<std::string, std::string>{{"a", "hidden"}, {"b", "position"}, {"c", "causal-mask"}}));
    EXPECT_EQ(FindInputKinds(function)->context_length, 8);
  }
}

TEST(InputKinds, MasksOverTheRowsOfAStateAndOwnRowsBehindThem) {
  for (const bool bool_mask : {false, true}) {
    const ModelSpec spec =
        MakeSpec([bool_mask](Function& function, Builder& builder) { Attention(function, builder, bool_mask, true); });
    const auto inputs = FindInputKinds(*spec.program.functions().front());
    ASSERT_OK(inputs);
    EXPECT_EQ(inputs->inputs[2].kind, InputKind::kCausalMask);
    EXPECT_TRUE(inputs->inputs[2].own_rows_last);
    EXPECT_EQ(inputs->context_length, 8);
  }
}

TEST(InputKinds, ChoicesWin) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& builder) { Attention(function, builder, false); });
  const Function& function = *spec.program.functions().front();
  InputKindChoices choices;
  ASSERT_OK(AddInputKindChoice("b=ring-position:8", choices));
  ASSERT_OK(AddInputKindChoice("c=sliding-mask-right", choices));
  EXPECT_EQ(KindsOf(function, choices),
            (std::map<std::string, std::string>{{"a", "hidden"}, {"b", "ring-position"}, {"c", "sliding-mask-right"}}));
  InputKindChoices wrong;
  ASSERT_OK(AddInputKindChoice("a=position", wrong));
  EXPECT_EQ(FindInputKinds(function, wrong).status().code(), ErrorCode::kUsage);
}

TEST(InputKinds, BadChoicesAreNamed) {
  InputKindChoices choices;
  EXPECT_NE(AddInputKindChoice("a=pos", choices).message().find("the kinds are: free, position"), std::string::npos);
  EXPECT_EQ(AddInputKindChoice("a", choices).code(), ErrorCode::kUsage);
  EXPECT_EQ(AddInputKindChoice("a=ring-position:0", choices).code(), ErrorCode::kUsage);
  EXPECT_EQ(AddInputKindChoice("=free", choices).code(), ErrorCode::kUsage);
  const ModelSpec spec = MakeSpec([](Function& function, Builder& builder) { Attention(function, builder, false); });
  ASSERT_OK(AddInputKindChoice("nowhere=free", choices));
  EXPECT_NE(InputSource::Make(spec, {0, choices, 0}).status().message().find("'nowhere'"), std::string::npos);
}

TEST(InputSource, StopsWhereTheContextEnds) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& builder) { Attention(function, builder, false); });
  auto source = InputSource::Make(spec, {});
  ASSERT_OK(source);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(source->HasRoom("main"));
    const auto inputs = source->Draw("main");
    ASSERT_OK(inputs);
    EXPECT_EQ(inputs->at("b").ToInts(), std::vector<int64_t>{i});
    for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(inputs->at("c").GetDouble(j), j <= i ? 0 : -10000);
    EXPECT_OK(source->Accept("main", {}));
  }
  EXPECT_FALSE(source->HasRoom("main"));
  EXPECT_EQ(source->Draw("main").status().code(), ErrorCode::kUsage);
  EXPECT_OK(source->Restart(1));
  EXPECT_TRUE(source->HasRoom("main"));
}

TEST(InputSource, ValuesDependOnSeedStepAndName) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& builder) { Attention(function, builder, false); });
  auto one = *InputSource::Make(spec, {});
  auto two = *InputSource::Make(spec, {});
  EXPECT_TRUE(one.Draw("main")->at("a").BitEquals(two.Draw("main")->at("a")));
  EXPECT_OK(two.Restart(1));
  EXPECT_FALSE(one.Draw("main")->at("a").BitEquals(two.Draw("main")->at("a")));
  EXPECT_OK(two.Restart(0));
  two.SetKey("a", "other");
  EXPECT_FALSE(one.Draw("main")->at("a").BitEquals(two.Draw("main")->at("a")));
}

}  // namespace
}  // namespace milwright
