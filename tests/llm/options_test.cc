// The small languages of build options, sizes as text, and contract files.
#include <gtest/gtest.h>

#include "llm/build_options.h"
#include "llm/contract.h"
#include "llm/expression.h"

namespace milwright {
namespace {

TEST(Expression, Evaluates) {
  const Symbols symbols = {{"H", 4}, {"K", 2}, {"d", 16}};
  EXPECT_EQ(*EvaluateExpression("(H+2*K)*d", symbols), 128);
  EXPECT_EQ(*EvaluateExpression(" 2 * K - 1 ", symbols), 3);
  EXPECT_EQ(*EvaluateShape("1, 2*K, ?, d", symbols), (Shape{1, 4, kUnknownDim, 16}));
}

TEST(Expression, RefusesNonsense) {
  const Symbols symbols = {{"H", 4}};
  for (const char* text : {"", "H+", "X", "(H", "H)", "H H", "9223372036854775807+1", "99999999999999999999"}) {
    EXPECT_FALSE(EvaluateExpression(text, symbols).ok()) << text;
  }
  EXPECT_FALSE(EvaluateExpression(std::string(100, '(') + "1" + std::string(100, ')'), symbols).ok());
  EXPECT_FALSE(EvaluateShape("H-4", symbols).ok());
}

TEST(Expression, Conditions) {
  const Symbols symbols = {{"a", 1}, {"b", 0}};
  EXPECT_TRUE(ConditionHolds("", symbols));
  EXPECT_TRUE(ConditionHolds("a !b !c", symbols));
  EXPECT_FALSE(ConditionHolds("a b", symbols));
  EXPECT_FALSE(ConditionHolds("c", symbols));
}

TEST(Expression, Patterns) { EXPECT_EQ(ExpandPattern("h.{i}.x{y}", {{"i", 3}}), "h.3.x{y}"); }

TEST(BuildOptionsText, Layouts) {
  const auto unified = ParseLayout("unified:split");
  ASSERT_TRUE(unified.ok());
  EXPECT_EQ(unified->layout, StateLayout::kUnified);
  EXPECT_EQ(unified->order, SlotOrder::kSplit);
  const auto explicit_new = ParseLayout("explicit-io:new");
  ASSERT_TRUE(explicit_new.ok());
  EXPECT_EQ(explicit_new->storage, CacheStorage::kExplicitNew);
  EXPECT_EQ(explicit_new->layout, StateLayout::kKvPair);
  const auto grouped = ParseLayout("explicit-io:whole:per-layer");
  ASSERT_TRUE(grouped.ok());
  EXPECT_EQ(grouped->layout, StateLayout::kPerLayer);
  for (const char* text : {"kv-pair", "unified:interleaved", "by-role:split", "explicit-io:new:unified:split"}) {
    const auto layout = ParseLayout(text);
    ASSERT_TRUE(layout.ok()) << text;
    EXPECT_EQ(LayoutText(*layout), text);
  }
  for (const char* text : {"", "kvpair", "kv-pair:split", "unified:sorted", "explicit-io:old"}) {
    EXPECT_EQ(ParseLayout(text).status().code(), ErrorCode::kUsage) << text;
  }
}

TEST(BuildOptionsText, Functions) {
  const auto functions = ParseFunctions("decode,prefill:8");
  ASSERT_TRUE(functions.ok());
  EXPECT_EQ(*functions, (std::vector<FunctionOption>{{"decode", 1}, {"prefill", 8}}));
  EXPECT_EQ(ParseFunctions("main:any")->front().length, kUnknownDim);
  for (const char* text : {"", "a:0", "a:-1", "a:x", ":3", "a,a:2", "a:2,b:2", "a:5000"}) {
    EXPECT_FALSE(ParseFunctions(text).ok()) << text;
  }
}

TEST(BuildOptionsText, ChunksAndHeads) {
  EXPECT_EQ(ParseChunks("4")->count, 4);
  EXPECT_EQ(ParseChunks("1.5GB")->max_bytes, 1500000000);
  EXPECT_EQ(ParseChunks("900MB")->max_bytes, 900000000);
  for (const char* text : {"0", "-1", "MB", "4TB", "x", "1e30GB"}) EXPECT_FALSE(ParseChunks(text).ok()) << text;
  EXPECT_EQ(ParseHead("topk:40")->k, 40);
  for (const char* text : {"topk", "topk:0", "softmax"}) EXPECT_FALSE(ParseHead(text).ok()) << text;
}

TEST(Contracts, KnownOnesSurviveTheirFileForm) {
  for (const Contract& contract : KnownContracts()) {
    const std::string text = FormatContract(contract);
    const auto read = ParseContract(text, contract.name);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(FormatContract(*read), text);
  }
}

TEST(Contracts, RefusesMalformedFiles) {
  for (const char* text :
       {"", "[]", "{}", R"({"forms": [{"inputs": [{"kind": "nonsense", "name": "x", "shape": "1"}]}]})",
        R"({"forms": [{}], "mask_fill": 1})", R"({"forms": [{}], "body_package": "../x"})",
        R"({"forms": [{"caches": {"unknown": {}}}]})", R"({"forms": [{"state_layout": "none"}]})"}) {
    EXPECT_EQ(ParseContract(text, "test").status().code(), ErrorCode::kPrecondition) << text;
  }
  EXPECT_EQ(FindContract("unknown").status().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace milwright
