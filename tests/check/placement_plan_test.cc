// Predicted placement of small programs, what rules and figures decide it, and how the share is counted.
#include <gmock/gmock.h>

#include <set>

#include "check/placement/plan.h"
#include "format/package.h"
#include "ops/op.h"
#include "support/small_model.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::MakeSpec;

Literal Zeros(DataType dtype, Shape shape) { return Literal(*Tensor::Zeros({dtype, std::move(shape)})); }

// n convolutions 3x3 64->64 at 32x32, those of the cost table.
ModelSpec Convolutions(int count) {
  return MakeSpec([count](Function& function, Builder& b) {
    Value* x = function.AddInput("x", Type::Tensor(DataType::kFp16, {1, 64, 32, 32}));
    for (int i = 0; i < count; ++i) {
      x = b.Op("conv",
               {{"x", x}, {"weight", Zeros(DataType::kFp16, {64, 64, 3, 3})}, {"pad_type", Literal::String("same")}},
               "y" + std::to_string(i));
    }
    function.body().SetOutputs({x});
  });
}

PlacementPlan Predict(const ModelSpec& spec, std::string_view target = kMeasuredTarget) {
  auto plan = PredictPlacement(*spec.program.functions().front(), target);
  EXPECT_OK(plan);
  return *plan;
}

// A program with one op; gives the rule that decides for it.
std::string RuleOf(const std::function<Value*(Function&, Builder&)>& make, std::string_view target = kMeasuredTarget) {
  const ModelSpec spec =
      MakeSpec([&](Function& function, Builder& b) { function.body().SetOutputs({make(function, b)}); });
  const PlacementPlan plan = Predict(spec, target);
  return plan.operations.empty() ? "" : std::string(plan.operations.back().rule->id);
}

Value* Fp16Input(Function& function, Shape shape) {
  return function.AddInput("x", Type::Tensor(DataType::kFp16, std::move(shape)));
}

// The worked example of section B, from a program.
TEST(PlacementPlan, ConvolutionsOfTheCostTable) {
  for (int n = 1; n <= 4; ++n) {
    const ModelSpec spec = Convolutions(n);
    const PlacementPlan plan = Predict(spec);
    const bool on_ane = n >= 3;
    ASSERT_EQ(plan.operations.size(), static_cast<size_t>(n));
    EXPECT_EQ(plan.share.on_ane, on_ane ? static_cast<size_t>(n) : 0U);
    EXPECT_NEAR(plan.path_us, on_ane ? 4.67 * n + 250 : 100.06 * n, 1e-9);
    EXPECT_EQ(plan.share.ByCount(), on_ane ? 1.0 : 0.0);
    EXPECT_EQ(plan.share.NonAne(), on_ane ? 0.0 : 1.0);
    ASSERT_TRUE(plan.share.ByCost().has_value());
    EXPECT_EQ(*plan.share.ByCost(), on_ane ? 1.0 : 0.0);
    EXPECT_EQ(plan.share.scaled_us, 0);
    EXPECT_EQ(plan.segments.size(), 1U);
    EXPECT_TRUE(plan.notes.empty());
  }
}

// On the CPU everything is there, and the tables of the ANE have nothing to say.
TEST(PlacementPlan, TheCpuTakesAll) {
  const ModelSpec spec = Convolutions(4);
  const PlacementPlan plan = Predict(spec, "cpu");
  EXPECT_EQ(plan.share.on_ane, 0U);
  EXPECT_NEAR(plan.path_us, 400.24, 1e-9);
}

TEST(PlacementPlan, TargetsWithoutFiguresAreRefused) {
  const ModelSpec spec = Convolutions(1);
  for (const std::string_view target : {"gpu", "any", "ane-ios99"}) {
    const auto plan = PredictPlacement(*spec.program.functions().front(), target);
    ASSERT_FALSE(plan.ok()) << target;
    EXPECT_EQ(plan.status().code(), ErrorCode::kUsage);
  }
  EXPECT_THAT(Predict(spec, "ane-ios26").notes, ::testing::ElementsAre(::testing::HasSubstr("measured on an M4")));
}

// 25 MFLOP more than the figure: the same convolution on 32x43, scaled by FLOPs, and no share by cost.
TEST(PlacementPlan, OtherShapesAreScaled) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& b) {
    Value* x = Fp16Input(function, {1, 64, 32, 48});
    function.body().SetOutputs(
        {b.Op("conv",
              {{"x", x}, {"weight", Zeros(DataType::kFp16, {64, 64, 3, 3})}, {"pad_type", Literal::String("same")}})});
  });
  const PlacementPlan plan = Predict(spec);
  EXPECT_TRUE(plan.operations[0].cost.scaled);
  EXPECT_NEAR(plan.operations[0].cost.ane_us, 4.67 * 1.5, 1e-9);
  EXPECT_NEAR(plan.operations[0].cost.cpu_us, 100.06 * 1.5, 1e-9);
  EXPECT_FALSE(plan.share.ByCost().has_value());
}

// "relu 64x32x32: 262,144 B -> 2.62 us"
TEST(PlacementPlan, ElementwiseCostsBytes) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& b) {
    function.body().SetOutputs({b.Op("relu", {{"x", Fp16Input(function, {1, 64, 32, 32})}})});
  });
  const CostEstimate cost = Predict(spec).operations[0].cost;
  EXPECT_EQ(cost.ane_us, 2.62144);
  EXPECT_EQ(cost.cpu_us, 2.62144);
  EXPECT_FALSE(cost.scaled);
}

// Figures of products and attention with their own shapes.
TEST(PlacementPlan, FiguresOfTheirOwnShape) {
  const ModelSpec spec = MakeSpec([](Function& function, Builder& b) {
    Value* x = Fp16Input(function, {1, 64, 256});
    Value* linear = b.Op("linear", {{"x", x}, {"weight", Zeros(DataType::kFp16, {256, 256})}});
    Value* q = function.AddInput("q", Type::Tensor(DataType::kFp16, {1, 8, 128, 64}));
    Value* mask = function.AddInput("m", Type::Tensor(DataType::kFp16, {1, 1, 128, 128}));
    Value* plain = b.Op("scaled_dot_product_attention", {{"query", q}, {"key", q}, {"value", q}});
    Value* masked = b.Op("scaled_dot_product_attention", {{"query", q}, {"key", q}, {"value", q}, {"attn_mask", mask}});
    Value* a = function.AddInput("a", Type::Tensor(DataType::kFp16, {128, 256}));
    Value* c = function.AddInput("c", Type::Tensor(DataType::kFp16, {256, 128}));
    Value* product = b.Op("matmul", {{"x", a}, {"y", c}});
    function.body().SetOutputs({linear, plain, masked, product});
  });
  const PlacementPlan plan = Predict(spec);
  ASSERT_EQ(plan.operations.size(), 4U);
  const std::vector<std::pair<double, double>> expected = {{14.45, 372.1}, {7.18, 8.62}, {7.63, 9.16}, {2.24, 11.12}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(plan.operations[i].cost.ane_us, expected[i].first) << i;
    EXPECT_EQ(plan.operations[i].cost.cpu_us, expected[i].second) << i;
    EXPECT_FALSE(plan.operations[i].cost.scaled) << i;
  }
}

// The work that a figure states is that of its shapes.
TEST(PlacementPlan, FiguresStateTheWorkOfTheirShapes) {
  const ModelSpec conv = Convolutions(1);
  EXPECT_EQ(FlopsOf(*Predict(conv).operations[0].op), CostFigures()[0].work);
}

TEST(PlacementPlan, RulesOfTheAne) {
  const auto conv = [](Shape input, Shape weight, int64_t groups = 1) {
    return [=](Function& function, Builder& b) {
      return b.Op("conv", {{"x", Fp16Input(function, input)},
                           {"weight", Zeros(DataType::kFp16, weight)},
                           {"groups", Literal::Int32(groups)}});
    };
  };
  // Kernel sizes on both sides of the limits: 1x15 and 1x16, 31x1 and 32x1, 16x16 and 17x17.
  EXPECT_EQ(RuleOf(conv({1, 8, 1, 64}, {8, 8, 1, 15})), "convolution");
  EXPECT_EQ(RuleOf(conv({1, 8, 1, 64}, {8, 8, 1, 16})), "conv-kernel-size");
  EXPECT_EQ(RuleOf(conv({1, 8, 64, 1}, {8, 8, 31, 1})), "convolution");
  EXPECT_EQ(RuleOf(conv({1, 8, 64, 1}, {8, 8, 32, 1})), "conv-kernel-size");
  EXPECT_EQ(RuleOf(conv({1, 8, 64, 64}, {8, 8, 16, 16})), "convolution");
  EXPECT_EQ(RuleOf(conv({1, 8, 64, 64}, {8, 8, 17, 17})), "conv-kernel-size");
  // The conflict about depthwise convolutions belongs to macOS 26.
  EXPECT_EQ(RuleOf(conv({1, 1024, 1, 8}, {1024, 1, 1, 3}, 1024), "ane-macos26"), "depthwise-1024");
  EXPECT_EQ(RuleOf(conv({1, 1024, 1, 8}, {1024, 1, 1, 3}, 1024)), "convolution");

  const auto matmul = [](int64_t inner) {
    return [=](Function& function, Builder& b) {
      return b.Op("matmul", {{"x", Fp16Input(function, {1, inner})}, {"y", Zeros(DataType::kFp16, {inner, 1})}});
    };
  };
  EXPECT_EQ(RuleOf(matmul(32768)), "matmul");
  EXPECT_EQ(RuleOf(matmul(40000)), "matmul-inner");
  EXPECT_EQ(RuleOf(matmul(65537)), "dimension-65536");
  EXPECT_EQ(RuleOf(matmul(32768), "ane-ios26"), "dimension-16384");

  const auto unary = [](std::string_view op, DataType dtype) {
    return [=](Function& function, Builder& b) {
      return b.Op(op, {{"x", function.AddInput("x", Type::Tensor(dtype, {1, 8}))}});
    };
  };
  EXPECT_EQ(RuleOf(unary("sin", DataType::kFp16)), "elementwise");
  EXPECT_EQ(RuleOf(unary("tan", DataType::kFp16)), "function-not-on-ane");
  EXPECT_EQ(RuleOf(unary("sin", DataType::kFp32)), "fp32-compute");
  EXPECT_EQ(RuleOf(unary("abs", DataType::kInt32)), "int32-tensor");
  EXPECT_EQ(RuleOf(unary("reduce_argmax", DataType::kFp16)), "argmax-argsort");
  EXPECT_EQ(RuleOf([](Function& function, Builder& b) {
              return b.Ops("topk", {{"x", Fp16Input(function, {1, 80})}, {"k", Literal::Int32(40)}}).front();
            }),
            "topk");

  const auto cast = [](DataType from, std::string to) {
    return [=](Function& function, Builder& b) {
      return b.Op("cast", {{"x", function.AddInput("x", Type::Tensor(from, {1, 8}))}, {"dtype", Literal::String(to)}});
    };
  };
  EXPECT_EQ(RuleOf(cast(DataType::kFp32, "fp16")), "cast-float");
  EXPECT_EQ(RuleOf(cast(DataType::kFp16, "int32")), "int32-tensor");
  EXPECT_EQ(RuleOf(cast(DataType::kFp16, "int8")), "cast-int8");

  EXPECT_EQ(RuleOf([](Function& function, Builder& b) {
              return b.Op("gather", {{"x", Fp16Input(function, {8, 4})}, {"indices", Literal::Int32s({1, 2})}});
            }),
            "gather-constant-index");
  EXPECT_EQ(RuleOf([](Function& function, Builder& b) {
              Value* indices = function.AddInput("i", Type::Tensor(DataType::kInt32, {2}));
              return b.Op("gather", {{"x", Fp16Input(function, {8, 4})}, {"indices", indices}});
            }),
            "gather-dynamic-index");
}

// State ops have no device and stand apart; slice_update is taken as long as only states read it.
TEST(PlacementPlan, StateOpsStandApart) {
  const auto model = OpenModel(DataDir() / "packages/b_slice.mlpackage");
  ASSERT_OK(model);
  const PlacementPlan plan = Predict(*model);
  EXPECT_EQ(plan.share.state_ops, plan.state_ops.size());
  EXPECT_GT(plan.share.state_ops, 0U);
  EXPECT_GT(plan.share.constants, 0U);
  for (const PlacedOperation& placed : plan.operations) {
    EXPECT_EQ(PlanRoleOf(placed.op->type()), PlanRole::kDispatchable);
  }
  size_t operations = 0;
  ForEachOperation(model->program.functions().front()->body(), [&operations](Operation&) { ++operations; });
  EXPECT_EQ(operations, plan.share.dispatchable + plan.share.state_ops + plan.share.constants);
}

TEST(PlacementPlan, BlockQuantizedWeightsAreRefused) {
  const auto model = OpenModel(DataDir() / "packages/h_int4_block32.mlpackage");
  ASSERT_OK(model);
  const PlacementPlan plan = Predict(*model);
  EXPECT_TRUE(
      std::ranges::any_of(plan.operations, [](const auto& placed) { return placed.rule->id == "per-block-weight"; }));
}

TEST(SupportTable, IsWellFormed) {
  std::set<std::string_view> ids;
  for (const AneSupportRule& rule : AneSupportRules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
    EXPECT_FALSE(rule.statement.empty()) << rule.id;
    EXPECT_FALSE(rule.source.empty()) << rule.id;
    for (std::string_view rest = rule.ops; !rest.empty();) {
      const std::string_view op = rest.substr(0, rest.find(' '));
      EXPECT_TRUE(OpRegistry::Get().FirstOpset(op).has_value()) << rule.id << " names " << op;
      rest.remove_prefix(std::min(rest.size(), op.size() + 1));
    }
  }
  const AneSupportRule& last = AneSupportRules().back();
  EXPECT_TRUE(last.ops.empty() && last.applies == nullptr && last.applies_to == nullptr);
  EXPECT_EQ(FindAneSupportRule("no-such-rule"), nullptr);
}

}  // namespace
}  // namespace milwright
