// Real compute plans: reading both formats, and what a difference to the prediction is blamed on.
#include <gmock/gmock.h>

#include "check/placement/compute_plan.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeSpec;
using ::testing::Pair;
using testing::SharedDir;

constexpr std::string_view kPlan = R"({
  "format": "milwright-compute-plan", "version": 1, "environment": {"device": "Apple M4"},
  "functions": {"main": [
    {"op": "ios18.const", "outputs": ["c"]},
    {"op": "ios18.relu", "outputs": ["a"], "preferred": "ane", "supported": ["cpu", "ane"], "cost": 0.5},
    {"op": "ios18.tan", "outputs": ["b"], "preferred": "cpu", "supported": ["cpu", "ane"]},
    {"op": "sin", "outputs": ["d"], "preferred": "cpu", "supported": ["cpu"]},
    {"op": "exp", "outputs": ["e"], "preferred": "ane"},
    {"op": "cos", "outputs": ["f"]},
    {"op": "sqrt", "outputs": ["g"], "preferred": "gpu", "supported": null},
    {"op": "abs", "outputs": ["other"], "preferred": "cpu"}]}})";

// x -> relu a -> tan b -> sin d -> exp e -> cos f -> sqrt g -> abs h
ModelSpec Chain() {
  return MakeSpec([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 8}));
    for (const auto& [op, name] : std::vector<std::pair<std::string_view, std::string_view>>{
             {"relu", "a"}, {"tan", "b"}, {"sin", "d"}, {"exp", "e"}, {"cos", "f"}, {"sqrt", "g"}, {"abs", "h"}}) {
      x = b.Op(op, {{"x", x}}, name);
    }
    function.body().SetOutputs({x});
  });
}

TEST(ComputePlan, ReadsJson) {
  const auto plan = ParseRealPlan(kPlan, "plan.json");
  ASSERT_OK(plan);
  EXPECT_THAT(plan->environment, ElementsAre(Pair("device", "Apple M4")));
  const RealFunction* main = plan->Find("main");
  ASSERT_NE(main, nullptr);
  ASSERT_EQ(main->operations.size(), 8U);
  const RealOperation& relu = main->operations[1];
  EXPECT_EQ(relu.type, "relu");
  EXPECT_THAT(relu.outputs, ElementsAre("a"));
  EXPECT_EQ(relu.preferred, ComputeUnit::kAne);
  EXPECT_THAT(*relu.supported, ElementsAre(ComputeUnit::kCpu, ComputeUnit::kAne));
  EXPECT_EQ(relu.cost, 0.5);
  EXPECT_EQ(main->operations[5].preferred, ComputeUnit::kUnknown);
  EXPECT_FALSE(main->operations[6].supported.has_value());

  const PlanShare share = ShareOf(*main);
  EXPECT_EQ(share.dispatchable, 7U);
  EXPECT_EQ(share.on_ane, 2U);
  EXPECT_EQ(share.unknown, 1U);
  EXPECT_EQ(share.constants, 1U);
  EXPECT_FALSE(share.ByCost().has_value());
}

TEST(ComputePlan, SaysWhichPartWasWrong) {
  const ModelSpec spec = Chain();
  const auto predicted = PredictPlacement(*spec.program.functions().front(), kMeasuredTarget);
  ASSERT_OK(predicted);
  EXPECT_EQ(predicted->share.on_ane, 0U);  // a few bytes are not worth a launch
  const auto real = ParseRealPlan(kPlan);
  ASSERT_OK(real);
  const PlanComparison comparison = ComparePlans(*predicted, *real->Find("main"));
  std::map<std::string, PlanVerdict> verdicts;
  for (const ComparedOperation& op : comparison.operations) verdicts[op.predicted->op->output()->name] = op.verdict;
  EXPECT_THAT(verdicts, ElementsAre(Pair("a", PlanVerdict::kCostModelWrong), Pair("b", PlanVerdict::kSupportRuleWrong),
                                    Pair("d", PlanVerdict::kSupportRuleWrong), Pair("e", PlanVerdict::kCostModelWrong),
                                    Pair("f", PlanVerdict::kNoDevice), Pair("g", PlanVerdict::kUndetermined)));
  EXPECT_THAT(comparison.wrong_rules, ElementsAre(Pair("elementwise", 1U), Pair("function-not-on-ane", 1U)));
  ASSERT_EQ(comparison.only_predicted.size(), 1U);
  EXPECT_EQ(comparison.only_predicted[0]->op->output()->name, "h");
  ASSERT_EQ(comparison.only_real.size(), 1U);
  EXPECT_THAT(comparison.only_real[0]->outputs, ElementsAre("other"));
  EXPECT_EQ(comparison.Count(PlanVerdict::kCostModelWrong), 2U);
}

TEST(ComputePlan, FaultsNameTheirPlace) {
  const auto message = [](std::string_view text) {
    const auto plan = ParseRealPlan(text, "p.json");
    EXPECT_FALSE(plan.ok()) << text;
    EXPECT_EQ(plan.status().code(), ErrorCode::kUnreadable) << text;
    return plan.status().message();
  };
  const auto document = [](std::string_view operation) {
    return R"({"format": "milwright-compute-plan", "version": 1, "functions": {"main": [)" + std::string(operation) +
           "]}}";
  };
  EXPECT_EQ(message("{"), "p.json: is no JSON");
  EXPECT_THAT(message("{}"), HasSubstr("\"format\" is not"));
  EXPECT_THAT(message(R"({"format": 3})"), HasSubstr("\"format\" is not"));
  EXPECT_THAT(message(R"({"format": "milwright-compute-plan", "version": 2})"), HasSubstr("\"version\" is not 1"));
  EXPECT_THAT(message(R"({"format": "milwright-compute-plan", "version": 1})"), HasSubstr("functions is missing"));
  EXPECT_THAT(message(document("3")), HasSubstr("functions.main[0] is no object"));
  EXPECT_THAT(message(document(R"({"outputs": []})")), HasSubstr("functions.main[0] has no string \"op\""));
  EXPECT_THAT(message(document(R"({"op": "relu"})")), HasSubstr("has no array \"outputs\""));
  EXPECT_THAT(message(document(R"({"op": "relu", "outputs": [1]})")), HasSubstr("an output that is no string"));
  EXPECT_THAT(message(document(R"({"op": "relu", "outputs": [], "preferred": "npu"})")), HasSubstr("names a unit"));
  EXPECT_THAT(message(document(R"({"op": "relu", "outputs": [], "supported": "ane"})")), HasSubstr("is no array"));
  EXPECT_THAT(message(document(R"({"op": "relu", "outputs": [], "cost": "much"})")), HasSubstr("is no number"));
  EXPECT_THAT(message("neither"), HasSubstr("expected 'program'"));
  message(std::string(100000, '['));
  message("");
}

// The published file: gather on the CPU with the segmenter's reason, the linears behind it on the ANE.
TEST(ComputePlan, ReadsAnalytics) {
  const auto path = SharedDir() /
                    "real-files/751K__Apple-Neural-Engine-Microarchitecture-Study-M6/data/03_compile/opdispatch/ana/"
                    "ctx/gather_dyn.mil";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  const auto plan = ReadRealPlan(path.string());
  ASSERT_OK(plan);
  const RealFunction& main = *plan->Find("main");
  ASSERT_EQ(main.operations.size(), 11U);  // without three copies of buffers
  const RealOperation& gather = main.operations[6];
  EXPECT_EQ(gather.type, "gather");
  EXPECT_EQ(gather.preferred, ComputeUnit::kCpu);
  EXPECT_THAT(*gather.supported, ElementsAre(ComputeUnit::kCpu));
  EXPECT_EQ(gather.reason, "Unsupported gather index type");
  EXPECT_THAT(main.operations.back().outputs, ElementsAre("wrap_out_1_relu"));
  EXPECT_EQ(main.operations.back().preferred, ComputeUnit::kAne);
  EXPECT_EQ(ShareOf(main).on_ane, 4U);
}

// The same program written by hand: the prediction gives the units that the device chose, every one.
TEST(ComputePlan, PredictionMeetsThePublishedGather) {
  const auto path = SharedDir() /
                    "real-files/751K__Apple-Neural-Engine-Microarchitecture-Study-M6/data/03_compile/opdispatch/ana/"
                    "ctx/gather_dyn.mil";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  const ModelSpec spec = MakeSpec([](Function& function, Builder& b) {
    Value* table = function.AddInput("x0", Type::Tensor(DataType::kFp16, {1000, 256}));
    Value* indices = function.AddInput("x1", Type::Tensor(DataType::kInt32, {1, 64}));
    Value* is_positive = b.Op("greater_equal", {{"x", indices}, {"y", Literal::Int32(0)}}, "greater_equal_0");
    Value* wrapped = b.Op("add", {{"x", indices}, {"y", Literal::Int32(1000)}}, "add_0");
    Value* chosen = b.Op("select", {{"cond", is_positive}, {"a", indices}, {"b", wrapped}}, "select_0");
    Value* narrow = b.Op("cast", {{"x", chosen}, {"dtype", Literal::String("int16")}}, "select_0_to_int16");
    Value* x = b.Op("gather", {{"x", table}, {"indices", narrow}}, "gather_0_cast_uint16_cast_uint16");
    for (const std::string layer : {"wrap_out_0", "wrap_out_1"}) {
      const Literal weight(*Tensor::Zeros({DataType::kFp16, {256, 256}}));
      x = b.Op("linear", {{"x", x}, {"weight", weight}}, layer + "_lin");
      x = b.Op("relu", {{"x", x}}, layer + "_relu");
    }
    function.body().SetOutputs({x});
  });
  const auto predicted = PredictPlacement(*spec.program.functions().front(), kMeasuredTarget);
  ASSERT_OK(predicted);
  const auto real = ReadRealPlan(path.string());
  ASSERT_OK(real);
  const PlanComparison comparison = ComparePlans(*predicted, *real->Find("main"));
  EXPECT_EQ(comparison.operations.size(), 9U);
  for (const ComparedOperation& op : comparison.operations) {
    EXPECT_EQ(op.verdict, PlanVerdict::kAgrees) << op.predicted->op->output()->name << " " << op.predicted->rule->id;
  }
  EXPECT_TRUE(comparison.only_predicted.empty());
  EXPECT_EQ(comparison.only_real.size(), 2U);  // casts that the compiler put around the indices
}

}  // namespace
}  // namespace milwright
