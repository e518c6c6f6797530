#include "text/analytics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text_test_util.h"

namespace milwright {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(Analytics, EveryFigureIsRead) {
  const auto analytics = ParseAnalytics(R"(program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "1.2"}})]
{
    func main<ios18>(tensor_buffer<fp16, shape=[2], strides=[1], interleave_factors=[1]> x) [Launch_ane_ms = fp64(0x1p-3), Src_ane_Dest_classic_cpu_ms = fp64(0x1p-2), Else = int32(7)] {
            tensor<fp16, [2]> a = tensor_buffer_to_tensor<ios17>(input = x)[BackendSupport = list<string, 3>(["unsupported", "bnns", "ane"]), EstimatedRuntime = dict<string, fp64>({{"ane", 0}, {"bnns", 6.5e-06}}), SelectedBackend = string("bnns"), ValidationMessage = dict<string, string>({{"ane", "no \"y\""}}), milId = uint64(3)];
            tensor<fp16, [1]> b, tensor<fp16, [1]> c = split(axis = int32(0), values = (a, x), w = tensor<fp16, [1]>(BLOBFILE(path = string("w"), offset = uint64(64))))[SelectedBackend = string("ane"), extra = tensor<int32, [2]>([1, 2]), name = string("s")];
            tensor<fp16, [1]> d = cond(pred = b)[milId = uint64(5)]
                () {
                        tensor<fp16, [1]> e = relu(x = c)[milId = uint64(6)];
                    } -> (e),
                (tensor<fp16, [1]> f) {
                    } -> (f);
        } -> (c, d);
})");
  ASSERT_TRUE(analytics.ok()) << analytics.status().message();
  EXPECT_EQ(analytics->program_version, "1.3");
  EXPECT_THAT(analytics->build_info, ElementsAre(Pair("coremlc-version", "1.2")));
  const AnalyticsFunction* main = analytics->Find("main");
  ASSERT_NE(main, nullptr);
  EXPECT_EQ(analytics->Find("other"), nullptr);
  EXPECT_EQ(main->opset, "ios18");
  EXPECT_THAT(main->inputs,
              ElementsAre(AnalyticsResult{"tensor_buffer<fp16, shape=[2], strides=[1], interleave_factors=[1]>", "x"}));
  EXPECT_THAT(main->outputs, ElementsAre("c", "d"));
  EXPECT_THAT(main->launch_ms, ElementsAre(Pair("ane", 0.125)));
  EXPECT_THAT(main->transition_ms, ElementsAre(Pair(Pair("ane", "classic_cpu"), 0.25)));
  EXPECT_THAT(main->other_attributes, ElementsAre(Pair("Else", "int32(7)")));
  ASSERT_EQ(main->operations.size(), 4U);

  const AnalyticsOperation& buffer = main->operations[0];
  EXPECT_EQ(buffer.type, "tensor_buffer_to_tensor");
  EXPECT_EQ(buffer.opset, "ios17");
  EXPECT_EQ(buffer.name, "");
  EXPECT_EQ(buffer.mil_id, 3U);
  EXPECT_THAT(buffer.results, ElementsAre(AnalyticsResult{"tensor<fp16, [2]>", "a"}));
  EXPECT_THAT(buffer.arguments, ElementsAre(AnalyticsArgument{"input", {"x"}}));
  EXPECT_EQ(buffer.selected_backend, "bnns");
  EXPECT_THAT(buffer.backend_support, ElementsAre("unsupported", "bnns", "ane"));
  EXPECT_THAT(buffer.supported_backends, ElementsAre("bnns", "ane"));
  EXPECT_THAT(buffer.estimated_runtime_ms, UnorderedElementsAre(Pair("ane", 0.0), Pair("bnns", 6.5e-06)));
  EXPECT_THAT(buffer.validation_message, ElementsAre(Pair("ane", "no \"y\"")));
  EXPECT_THAT(buffer.other_attributes, IsEmpty());

  const AnalyticsOperation& split = main->operations[1];
  EXPECT_EQ(split.name, "s");
  EXPECT_EQ(split.opset, "");
  EXPECT_FALSE(split.mil_id.has_value());
  EXPECT_EQ(split.results.size(), 2U);
  EXPECT_THAT(
      split.arguments,
      ElementsAre(AnalyticsArgument{"axis", {"int32(0)"}}, AnalyticsArgument{"values", {"a", "x"}},
                  AnalyticsArgument{"w", {"tensor<fp16, [1]>(BLOBFILE(path = string(\"w\"), offset = uint64(64)))"}}));
  EXPECT_THAT(split.other_attributes, ElementsAre(Pair("extra", "tensor<int32, [2]>([1, 2])")));
  EXPECT_EQ(main->operations[2].type, "cond");
  EXPECT_EQ(main->operations[3].mil_id, 6U);
}

TEST(Analytics, WhatIsNoMilIsAnError) {
  EXPECT_EQ(ParseAnalytics("hello", "a.mil").status().message(),
            "a.mil:1:1: error: expected 'program' at the start of MIL text, found 'hello'\nhello\n^");
  for (const std::string text : {"program(1.3){", "program(1.3){func f<ios18>(", "program(1.3){func f<ios18>(){",
                                 "program(1.3){func f<ios18>(){ a = b(c = ", "program(1.3){func f<ios18>(){ a<<<<",
                                 "program(1.3)[a = x(\"", "program(1.3){func f<ios18>(){ b(c = d)[e = f([1, [2, "}) {
    const auto analytics = ParseAnalytics(text);
    ASSERT_FALSE(analytics.ok()) << text;
    EXPECT_EQ(analytics.status().code(), ErrorCode::kUnreadable);
  }
}

TEST(Analytics, DeepNestingIsAnError) {
  std::string values = "program(1.3)[a = x(";
  std::string blocks = "program(1.3){func f<ios18>()";
  for (int i = 0; i < 100000; ++i) {
    values += "[";
    blocks += "{ g()";
  }
  EXPECT_THAT(ParseAnalytics(values).status().message(), testing::HasSubstr("values nest deeper than 100 levels"));
  EXPECT_THAT(ParseAnalytics(blocks).status().message(), testing::HasSubstr("blocks nest deeper than 100 levels"));
}

const std::string kStudy = "751K__Apple-Neural-Engine-Microarchitecture-Study-M6/data/03_compile/opdispatch/ana/";

TEST(Analytics, RealFiles) {
  const auto attention_file = kRealFiles / (kStudy + "iso/sdpa_mask.mil");
  const auto gather_file = kRealFiles / (kStudy + "ctx/gather_dyn.mil");
  if (!std::filesystem::exists(attention_file)) GTEST_SKIP() << "needs " << attention_file;

  const auto attention = ParseAnalytics(ReadFile(attention_file), attention_file.string());
  ASSERT_TRUE(attention.ok()) << attention.status().message();
  const AnalyticsFunction& main = *attention->Find("main");
  EXPECT_EQ(main.inputs.size(), 4U);
  EXPECT_EQ(main.launch_ms.size(), 5U);
  EXPECT_EQ(main.launch_ms.at("ane"), 0.125);
  EXPECT_EQ(main.launch_ms.at("jit_call"), 0.0);
  EXPECT_EQ(main.transition_ms.size(), 20U);
  EXPECT_EQ(main.transition_ms.at({"e5_minimal_cpu", "jit_call"}), 0.125);
  EXPECT_THAT(main.other_attributes, IsEmpty());
  ASSERT_EQ(main.operations.size(), 6U);
  const AnalyticsOperation& fused = main.operations[4];
  EXPECT_EQ(fused.type, "scaled_dot_product_attention");
  EXPECT_EQ(fused.name, "scaled_dot_product_attention_0");
  EXPECT_EQ(fused.mil_id, 4U);
  EXPECT_EQ(fused.selected_backend, "classic_cpu");
  EXPECT_THAT(fused.supported_backends, ElementsAre("bnns", "classic_cpu", "ane"));
  EXPECT_THAT(fused.estimated_runtime_ms,
              UnorderedElementsAre(Pair("ane", 0.00762939453125), Pair("bnns", 0.0091552738483776253),
                                   Pair("classic_cpu", 0.0091552738483776253)));

  const auto gather = ParseAnalytics(ReadFile(gather_file), gather_file.string());
  ASSERT_TRUE(gather.ok()) << gather.status().message();
  const AnalyticsFunction& dynamic = *gather->Find("main");
  ASSERT_EQ(dynamic.operations.size(), 14U);
  EXPECT_EQ(dynamic.operations[8].type, "gather");
  EXPECT_THAT(dynamic.operations[8].validation_message, ElementsAre(Pair("ane", "Unsupported gather index type")));
  EXPECT_EQ(dynamic.operations[8].estimated_runtime_ms.at("classic_cpu"), 0.0256067);
  EXPECT_THAT(dynamic.operations[4].validation_message,
              ElementsAre(Pair("ane", "Unable to resolve operation input \"y\".")));
  for (const AnalyticsOperation& op : dynamic.operations) {
    EXPECT_THAT(op.other_attributes, IsEmpty());
    EXPECT_EQ(op.backend_support.size(), 5U);
    EXPECT_FALSE(op.selected_backend.empty());
    EXPECT_EQ(op.mil_id, static_cast<uint64_t>(&op - dynamic.operations.data()));
  }
}

// The segmenter's dialect is refused by the parser of programs.
TEST(Analytics, IsNoProgram) {
  const auto path = kRealFiles / (kStudy + "iso/sdpa_mask.mil");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  EXPECT_THAT(ParseProgram(ReadFile(path)).status().message(),
              testing::StartsWith("<text>:4:22: error: tensor_buffer types belong to the segmenter's analytics.mil"));
}

}  // namespace
}  // namespace milwright
