// Equality by execution: equal packages are found equal, across layouts of their caches, and small faults are found.
#include "passes/equal.h"

#include "format/package.h"
#include "support/files.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::Halves;
using testing::MakeModel;
using testing::SharedDir;
using testing::TestPackage;

CompareReport Compare(const Model& a, const Model& b, const CompareOptions& options = {}) {
  auto report = CompareModels(a, b, options);
  EXPECT_OK(report);
  return report.ok() ? *report : CompareReport{};
}

std::string Text(const CompareReport& report) {
  std::string text;
  for (const std::string& fault : report.faults) text += "fault: " + fault + "\n";
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  for (const ComparedValue& value : report.values)
    if (!value.worst.passed()) text += DescribeDifference(value) + "\n";
  return text;
}

TEST(Equal, PackagesEqualThemselves) {
  for (const char* name : {"a_accumulator", "b_slice", "h_int4_block32", "i_multifunction_int4"}) {
    const auto model = Model::Load(TestPackage(name));
    ASSERT_OK(model);
    const CompareReport report = Compare(*model, *model);
    EXPECT_TRUE(report.equal()) << name << "\n" << Text(report);
    EXPECT_TRUE(report.notes.empty()) << name << "\n" << Text(report);
    EXPECT_GE(report.steps, 16U);
    EXPECT_EQ(report.worst()->worst.max_error, 0);
  }
}

// s += x (or s += c * x); y = s. `name` names the state.
Model Sum(double factor, const std::string& name = "s", const std::string& input = "x", const std::string& out = "y") {
  return MakeModel([&](Function& function, Builder& b) {
    Value* x = function.AddInput(input, Type::Tensor(DataType::kFp16, {2}));
    Value* state = function.AddInput(name, Type::State({DataType::kFp16, {2}}));
    Value* scaled = b.Op("mul", {{"x", x}, {"y", Literal::Float(DataType::kFp16, factor)}});
    Value* sum = b.Op("add", {{"x", b.ReadState(state)}, {"y", scaled}});
    b.WriteState(state, sum);
    function.body().SetOutputs({b.Op("mul", {{"x", sum}, {"y", Literal::Float(DataType::kFp16, 2)}}, out)});
  });
}

TEST(Equal, FindsADifferenceAndItsPlace) {
  const CompareReport report = Compare(Sum(1), Sum(1.5));
  EXPECT_FALSE(report.equal());
  ASSERT_EQ(report.values.size(), 2U);
  EXPECT_EQ(report.values[0].name_a, "y");
  EXPECT_FALSE(report.values[0].worst.passed());
  EXPECT_EQ(report.values[1].name_a, "s");
  EXPECT_TRUE(report.values[1].is_memory);
  EXPECT_FALSE(report.values[1].worst.passed());
  EXPECT_NE(DescribeDifference(*report.worst()).find("'main', step "), std::string::npos);
  CompareOptions loose;
  loose.tolerance = {100, 0};
  EXPECT_TRUE(Compare(Sum(1), Sum(1.5), loose).equal());
}

TEST(Equal, MatchesRenamedFeatures) {
  const CompareReport report = Compare(Sum(1), Sum(1, "t", "u", "v"));
  EXPECT_TRUE(report.equal()) << Text(report);
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{"input 'x' of A is taken for 'u' of B", "output 'y' of A is taken for 'v' of B",
                                      "'s' of A is taken for 't' of B"}));
  CompareOptions options;
  options.names = {{"x", "u"}, {"y", "v"}, {"s", "t"}};
  EXPECT_TRUE(Compare(Sum(1), Sum(1, "t", "u", "v"), options).notes.empty());
}

TEST(Equal, MissingOutputsAndFailuresAreFaults) {
  const Model two = MakeModel([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {2}));
    Value* y = b.Op("relu", {{"x", x}}, "y");
    Value* z = b.Op("reduce_sum", {{"x", x}, {"axes", Literal::Int32s({0})}, {"keep_dims", Literal::Bool(true)}}, "z");
    function.body().SetOutputs({y, z});
  });
  const Model one = MakeModel([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {2}));
    function.body().SetOutputs({b.Op("relu", {{"x", x}}, "y")});
  });
  EXPECT_EQ(Compare(two, one).faults, std::vector<std::string>{"output 'z' of 'main' is missing in B"});
  EXPECT_TRUE(Compare(one, two).equal());
  EXPECT_EQ(Compare(one, two).notes,
            std::vector<std::string>{"output 'z' of B has no counterpart in A and is not compared"});
}

TEST(Equal, OptionsAreChecked) {
  CompareOptions options;
  options.steps = 0;
  EXPECT_EQ(CompareModels(Sum(1), Sum(1), options).status().code(), ErrorCode::kUsage);
  options = {};
  options.functions = {{"main", "decode"}};
  EXPECT_EQ(CompareModels(Sum(1), Sum(1), options).status().code(), ErrorCode::kUsage);
  options = {};
  options.kinds = {{"nothing", {InputKind::kFree, {}, {}}}};
  EXPECT_EQ(CompareModels(Sum(1), Sum(1), options).status().code(), ErrorCode::kUsage);
}

// The state lives with the host: an input and an output.
TEST(Equal, StatesEqualCachesThatTheHostKeeps) {
  const Model outside = MakeModel([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* s = function.AddInput("s", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* sum = b.Op("add", {{"x", s}, {"y", x}}, "s_out");
    function.body().SetOutputs({b.Op("mul", {{"x", sum}, {"y", Literal::Float(DataType::kFp16, 2)}}, "y"), sum});
  });
  const Model inside = MakeModel([](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 2}));
    Value* s = function.AddInput("s", Type::State({DataType::kFp16, {1, 2}}));
    Value* sum = b.Op("add", {{"x", b.ReadState(s)}, {"y", x}});
    b.WriteState(s, sum);
    function.body().SetOutputs({b.Op("mul", {{"x", sum}, {"y", Literal::Float(DataType::kFp16, 2)}}, "y")});
  });
  for (const auto& [a, b] : {std::pair(outside, inside), std::pair(inside, outside)}) {
    const CompareReport report = Compare(a, b);
    EXPECT_TRUE(report.equal()) << Text(report);
    ASSERT_EQ(report.values.size(), 2U);
    EXPECT_EQ(report.values[1].name_a, "s");
  }
}

// A state that is only written back needs no output where the host keeps it, and what looks like an update of it is
// none.
TEST(Equal, StatesWrittenBackUnchangedStayAsTheyAreOutside) {
  const auto out = [](Builder& b, Value* content, Value* x) {
    return b.Op("slice_update",
                {{"x", content}, {"update", x}, {"begin", Literal::Int32s({0, 0})}, {"end", Literal::Int32s({1, 1})}},
                "out");
  };
  const Model inside = MakeModel([&out](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 1}));
    Value* s = function.AddInput("s", Type::State({DataType::kFp16, {1, 2}}));
    Value* content = b.ReadState(s);
    b.WriteState(s, content);
    function.body().SetOutputs({out(b, content, x)});
  });
  const Model outside = MakeModel([&out](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 1}));
    Value* s = function.AddInput("s", Type::Tensor(DataType::kFp16, {1, 2}));
    function.body().SetOutputs({out(b, s, x)});
  });
  for (const auto& [a, b] : {std::pair(outside, inside), std::pair(inside, outside)}) {
    const CompareReport report = Compare(a, b);
    EXPECT_TRUE(report.equal()) << Text(report);
    EXPECT_EQ(report.values.size(), 2U);
  }
}

// Fixtures of one network in several layouts: what one keeps in two states, the other keeps in one, or outside.
TEST(Equal, LayoutsOfOneNetworkAreEqual) {
  const auto folder = SharedDir() / "fixtures/coremltools";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  struct Case {
    const char* a;
    const char* b;
    double atol;
  };
  // Different exporters' graphs of one network: fp16 rounding in another order, within the fixtures' own tolerance.
  constexpr Case kCases[] = {{"b_slice", "g_unified", 0},
                             {"g_unified", "b_slice", 0},
                             {"b_slice", "c_mask", 0},
                             {"c_mask", "f_explicit", 0},
                             {"f_explicit", "c_mask", 0},
                             {"f_explicit", "f_explicit_ios17", 0},
                             {"f_explicit", "f_explicit_fp32", 6e-3},
                             {"c_mask", "f_explicit_newkv", 6e-3},
                             {"d_dual_shift", "d_dual", 6e-3},
                             {"d_dual", "d_dual_shift", 6e-3},
                             {"i_multifunction", "i_multifunction_unified", 0}};
  for (const Case& test : kCases) {
    const auto a = Model::Load(folder / (std::string(test.a) + ".mlpackage"));
    const auto b = Model::Load(folder / (std::string(test.b) + ".mlpackage"));
    ASSERT_OK(a);
    ASSERT_OK(b);
    CompareOptions options;
    options.steps = 20;
    options.tolerance = {test.atol, 0};
    const CompareReport report = Compare(*a, *b, options);
    EXPECT_TRUE(report.equal()) << test.a << " " << test.b << "\n" << Text(report);
    const bool compared = std::ranges::any_of(report.values, &ComparedValue::is_memory);
    EXPECT_TRUE(compared) << test.a << " " << test.b << " compared no caches";
  }
}

TEST(Equal, AnotherNetworkIsNotEqual) {
  const auto folder = SharedDir() / "fixtures/coremltools";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const auto a = Model::Load(folder / "b_slice.mlpackage");
  const auto b = Model::Load(folder / "h_int8_channel.mlpackage");
  const CompareReport report = Compare(*a, *b);
  EXPECT_FALSE(report.equal());
  EXPECT_GT(report.worst()->worst.max_error, 1e-4);
}

// Re-optimising T01 to T05 changes what they compute, and the comparison sees it.
TEST(Equal, SeesWhatTheDefaultPipelineBreaks) {
  for (const char* id : {"T01", "T02", "T03", "T04", "T05", "T06", "T07", "T09", "T10", "T11"}) {
    const auto a = Model::Load(DataDir() / "state-semantics" / (std::string(id) + ".mlpackage"));
    const auto b = Model::Load(DataDir() / "state-semantics" / (std::string(id) + "__default_pipeline.mlpackage"));
    ASSERT_OK(a);
    ASSERT_OK(b);
    const bool broken = std::string_view(id) <= "T05";
    EXPECT_EQ(Compare(*a, *b).equal(), !broken) << id << "\n" << Text(Compare(*a, *b));
  }
}

}  // namespace
}  // namespace milwright
