// Dead code, common subexpressions and constants: program text before and after, with states as ordered effects.
#include "passes/pass_test_util.h"

namespace milwright {
namespace {

using testing::After;
using testing::Short;
using testing::SpecOf;

TEST(DeadCodeElimination, RemovesWhatNobodyUses) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> a = relu(x = x);
      tensor<fp16, [2]> b = add(x = a, y = y);
      tensor<fp16, [2]> r = read_state(input = t);
      tensor<fp16, [2]> c = add(x = r, y = b);
      tensor<fp16, [2]> out = mul(x = x, y = y);)",
                                "out");
  EXPECT_EQ(After(spec, "dead-code-elimination"), "out = mul(x, y)\n-> out");
}

TEST(DeadCodeElimination, KeepsWritesAndWhatTheyNeed) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> a = relu(x = x);
      write_state(input = s, data = a);
      tensor<fp16, [2]> unused = coreml_update_state(state = t, value = y);
      tensor<fp16, [2]> out = mul(x = x, y = y);)",
                                "out");
  EXPECT_EQ(After(spec, "dead-code-elimination"), Short(spec));
}

constexpr std::string_view kConditional = R"(
      fp16 total = reduce_sum(x = x, axes = tensor<int32, [1]>([0]), keep_dims = bool(false));
      bool flag = greater(x = total, y = fp16(0));
      tensor<fp16, [2]> out = cond(pred = flag)
      () {
        tensor<fp16, [2]> r = read_state(input = s);
        tensor<fp16, [2]> dead = relu(x = r);
        tensor<fp16, [2]> yes = add(x = r, y = x);
        write_state(input = s, data = yes);
      } -> (yes),
      () {
        tensor<fp16, [2]> q = read_state(input = s);
        tensor<fp16, [2]> no = add(x = q, y = y);
      } -> (no);)";

TEST(DeadCodeElimination, LooksIntoNestedBlocks) {
  const ModelSpec spec = SpecOf(kConditional, "out");
  const std::string after = After(spec, "dead-code-elimination");
  EXPECT_EQ(after.find("dead"), std::string::npos) << after;
  EXPECT_NE(after.find("write_state(yes, s)"), std::string::npos) << after;
}

TEST(DeadCodeElimination, KeepsABranchThatOnlyWrites) {
  std::string body(kConditional);
  body += "tensor<fp16, [2]> z = relu(x = x);";
  const ModelSpec spec = SpecOf(body, "z");
  EXPECT_NE(After(spec, "dead-code-elimination").find("cond("), std::string::npos);
}

TEST(CommonSubexpressionElimination, MergesEqualExpressions) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> a = add(x = x, y = y);
      tensor<fp16, [2]> b = add(x = x, y = y);
      tensor<fp16, [2]> c = add(x = x, y = fp16(1));
      tensor<fp16, [2]> d = add(x = x, y = fp16(2));
      tensor<fp16, [2]> e = mul(x = a, y = b);
      tensor<fp16, [2]> f = mul(x = c, y = d);
      tensor<fp16, [2]> out = add(x = e, y = f);)",
                                "out");
  EXPECT_EQ(After(spec, "common-subexpression-elimination"),
            "a = add(x, y)\n"
            "c = add(x, 1)\n"
            "d = add(x, 2)\n"
            "e = mul(a, a)\n"
            "f = mul(c, d)\n"
            "out = add(e, f)\n"
            "-> out");
}

TEST(CommonSubexpressionElimination, MergesReadsOnlyWithoutAWriteBetween) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r1 = read_state(input = s);
      tensor<fp16, [2]> r2 = read_state(input = s);
      tensor<fp16, [2]> q1 = read_state(input = t);
      tensor<fp16, [2]> a = add(x = r1, y = r2);
      tensor<fp16, [2]> b = add(x = a, y = x);
      write_state(input = s, data = b);
      tensor<fp16, [2]> r3 = read_state(input = s);
      tensor<fp16, [2]> q2 = read_state(input = t);
      tensor<fp16, [2]> c = add(x = r3, y = r1);
      tensor<fp16, [2]> d = add(x = q1, y = q2);
      tensor<fp16, [2]> out = add(x = c, y = d);)",
                                "out");
  EXPECT_EQ(After(spec, "common-subexpression-elimination"),
            "r1 = read_state(s)\n"
            "q1 = read_state(t)\n"
            "a = add(r1, r1)\n"
            "b = add(a, x)\n"
            "write_state(b, s)\n"
            "r3 = read_state(s)\n"
            "c = add(r3, r1)\n"
            "d = add(q1, q1)\n"
            "out = add(c, d)\n"
            "-> out");
}

TEST(CommonSubexpressionElimination, SeesWritesInsideNestedBlocks) {
  const ModelSpec spec = SpecOf("tensor<fp16, [2]> before = read_state(input = s);" + std::string(kConditional) + R"(
      tensor<fp16, [2]> behind = read_state(input = s);
      tensor<fp16, [2]> both = sub(x = behind, y = before);)",
                                "out, both");
  const std::string after = After(spec, "common-subexpression-elimination");
  EXPECT_NE(after.find("behind = read_state(s)"), std::string::npos) << after;
}

TEST(CommonSubexpressionElimination, KeepsRandomDraws) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp32, [2]> a = random_uniform(shape = tensor<int32, [1]>([2]), low = fp32(0), high = fp32(1), seed = int32(1));
      tensor<fp32, [2]> b = random_uniform(shape = tensor<int32, [1]>([2]), low = fp32(0), high = fp32(1), seed = int32(1));
      tensor<fp32, [2]> out = add(x = a, y = b);)",
                                "out");
  EXPECT_EQ(After(spec, "common-subexpression-elimination"), Short(spec));
}

TEST(CommonSubexpressionElimination, KeepsOutputsApart) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> a = add(x = x, y = y);
      tensor<fp16, [2]> b = add(x = x, y = y);)",
                                "a, b");
  EXPECT_EQ(After(spec, "common-subexpression-elimination"), Short(spec));
}

TEST(CommonSubexpressionElimination, CarriesValuesIntoBlocksButNotOut) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> above = relu(x = y);
      fp16 total = reduce_sum(x = x, axes = tensor<int32, [1]>([0]), keep_dims = bool(false));
      bool flag = greater(x = total, y = fp16(0));
      tensor<fp16, [2]> picked = cond(pred = flag)
      () {
        tensor<fp16, [2]> inner = relu(x = x);
        tensor<fp16, [2]> again = relu(x = y);
        tensor<fp16, [2]> yes = add(x = inner, y = again);
      } -> (yes),
      () {
        tensor<fp16, [2]> no = relu(x = x);
      } -> (no);
      tensor<fp16, [2]> behind = relu(x = x);
      tensor<fp16, [2]> both = add(x = behind, y = above);
      tensor<fp16, [2]> out = add(x = picked, y = both);)",
                                "out");
  const std::string after = After(spec, "common-subexpression-elimination");
  EXPECT_NE(after.find("yes = add(inner, above)"), std::string::npos) << after;
  EXPECT_NE(after.find("no = relu(x)"), std::string::npos) << after;
  EXPECT_NE(after.find("behind = relu(x)"), std::string::npos) << after;
}

TEST(ConstantFolding, ComputesConstantsOnly) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> c = const()[name = string("c"), val = tensor<fp16, [2]>([0x1p+0, 0x1p+1])];
      tensor<fp16, [2]> d = mul(x = c, y = fp16(0x1.8p+1));
      tensor<fp16, [2]> e = exp(x = d);
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> f = add(x = r, y = d);
      tensor<fp16, [2]> out = add(x = f, y = x);)",
                                "out");
  EXPECT_EQ(After(spec, "constant-folding,dead-code-elimination"),
            "r = read_state(s)\n"
            "f = add(r, [3 6])\n"
            "out = add(f, x)\n"
            "-> out");
}

TEST(ConstantFolding, LeavesLargeResultsAndOutputsComputed) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [4096]> big = fill(shape = tensor<int32, [1]>([4096]), value = fp16(1));
      fp16 sum = reduce_sum(x = big, axes = tensor<int32, [1]>([0]), keep_dims = bool(false));
      tensor<fp16, [2]> a = add(x = x, y = sum);
      tensor<fp16, [2]> constant = fill(shape = tensor<int32, [1]>([2]), value = fp16(1));)",
                                "a, constant");
  EXPECT_EQ(After(spec, "constant-folding"), Short(spec));
}

TEST(ConstantFolding, LeavesFailuresWhereTheyAre) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> c = const()[name = string("c"), val = tensor<fp16, [2]>([0x1p+0, 0x1p+1])];
      fp16 picked = gather(x = c, indices = int32(7), axis = int32(0), batch_dims = int32(0), validate_indices = bool(false));
      tensor<fp16, [2]> out = add(x = x, y = picked);)",
                                "out");
  const auto after = testing::Rewritten(spec, "constant-folding");
  ASSERT_OK(after);
  EXPECT_EQ(Short(*after), Short(spec));
}

}  // namespace
}  // namespace milwright
