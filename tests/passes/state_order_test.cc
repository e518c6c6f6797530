// Passes on the order and number of state operations, and all state-safe passes on the cases that coremltools' default
// pipeline gets wrong (state-semantics.md).
#include "exec/steps.h"
#include "format/npy.h"
#include "format/package.h"
#include "passes/pass_test_util.h"

namespace milwright {
namespace {

using testing::After;
using testing::DataDir;
using testing::Rewritten;
using testing::Short;
using testing::SpecOf;

// T06 swaps two states in one step; the others are the table's programs.
constexpr std::string_view kCases[] = {"T01", "T02", "T03", "T04", "T05", "T06",
                                       "T07", "T09", "T10", "T11", "T12", "T17"};
constexpr std::string_view kSafePasses[] = {
    "canonicalize-inplace-pattern", "prefer-state-in-downstream",       "remove-noop-state-update", "drop-output-alias",
    "dead-code-elimination",        "common-subexpression-elimination", "constant-folding",
};

// Runs the golden steps of a case, states included.
void ExpectGolden(const ModelSpec& spec, std::string_view id, std::string_view passes) {
  const StepSequence expected = *StepsFromArrays(*ReadNpz(DataDir() / "state-semantics" / (std::string(id) + ".npz")));
  const Model model = testing::Loaded(spec);
  State state = *model.MakeState();
  const auto actual = RunSteps(model, expected, state);
  ASSERT_OK(actual);
  for (const StepDifference& entry : CompareSteps(*actual, expected, {1e-3, 0}, {1e-3, 0}))
    EXPECT_TRUE(entry.difference.passed()) << id << " after " << passes << ": " << entry.kind << " " << entry.name;
}

TEST(StateSafety, EveryPassAndEveryPairOnTheStateCases) {
  for (const std::string_view id : kCases) {
    const auto spec = OpenModel(DataDir() / "state-semantics" / (std::string(id) + ".mlpackage"));
    ASSERT_OK(spec);
    for (const std::string_view first : kSafePasses) {
      for (const std::string_view second : kSafePasses) {
        const std::string passes = std::string(first) + "," + std::string(second);
        const auto after = Rewritten(*spec, passes);
        ASSERT_OK(after);
        ExpectGolden(*after, id, passes);
        EXPECT_EQ(testing::Differences(*spec, *after), "") << id << " after " << passes;
      }
    }
  }
}

TEST(CanonicalizeInplacePattern, PutsReadUpdateAndWriteTogether) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> a = relu(x = x);
      tensor<fp16, [2]> m = add(x = r, y = a);
      tensor<fp16, [2]> out = mul(x = a, y = y);
      write_state(input = s, data = m);)",
                                "out");
  EXPECT_EQ(After(spec, "canonicalize-inplace-pattern"),
            "a = relu(x)\n"
            "r = read_state(s)\n"
            "m = add(r, a)\n"
            "write_state(m, s)\n"
            "out = mul(a, y)\n"
            "-> out");
}

TEST(CanonicalizeInplacePattern, CrossesOtherStatesOnly) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> a = add(x = x, y = y);
      tensor<fp16, [2]> old = read_state(input = s);
      tensor<fp16, [2]> other = read_state(input = t);
      write_state(input = s, data = a);
      write_state(input = t, data = a);
      tensor<fp16, [2]> out = add(x = old, y = other);)",
                                "out");
  EXPECT_EQ(After(spec, "canonicalize-inplace-pattern"), Short(spec));
}

TEST(CanonicalizeInplacePattern, WorksInsideBlocksAndSeesTheirWrites) {
  const ModelSpec spec = SpecOf(R"(
      fp16 total = reduce_sum(x = x, axes = tensor<int32, [1]>([0]), keep_dims = bool(false));
      bool flag = greater(x = total, y = fp16(0));
      tensor<fp16, [2]> old = read_state(input = s);
      tensor<fp16, [2]> picked = cond(pred = flag)
      () {
        tensor<fp16, [2]> r = read_state(input = t);
        tensor<fp16, [2]> a = relu(x = y);
        tensor<fp16, [2]> m = add(x = r, y = a);
        tensor<fp16, [2]> yes = mul(x = a, y = x);
        write_state(input = t, data = m);
        write_state(input = s, data = yes);
      } -> (yes),
      () {
        tensor<fp16, [2]> no = relu(x = x);
      } -> (no);
      tensor<fp16, [2]> out = add(x = old, y = picked);)",
                                "out");
  const std::string after = After(spec, "canonicalize-inplace-pattern");
  EXPECT_NE(after.find("  a = relu(y)\n  r = read_state(t)\n  m = add(r, a)\n  write_state(m, t)\n"), std::string::npos)
      << after;
  // The branch writes s: the read of s stays before it.
  EXPECT_LT(after.find("old = read_state(s)"), after.find("picked = cond"));
}

TEST(PreferStateInDownstream, ReadsTheStateBehindTheWrite) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      tensor<fp16, [2]> early = relu(x = m);
      write_state(input = s, data = m);
      tensor<fp16, [2]> late = mul(x = m, y = early);
      write_state(input = s, data = late);
      tensor<fp16, [2]> out = add(x = m, y = y);)",
                                "out");
  EXPECT_EQ(After(spec, "prefer-state-in-downstream"),
            "r = read_state(s)\n"
            "m = add(r, x)\n"
            "early = relu(m)\n"
            "write_state(m, s)\n"
            "m_state = read_state(s)\n"
            "late = mul(m_state, early)\n"
            "write_state(late, s)\n"
            "out = add(m_state, y)\n"
            "-> out");
}

TEST(PreferStateInDownstream, UsesTheReadThatIsThereAndKeepsOutputs) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> m = add(x = x, y = y);
      write_state(input = s, data = m);
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> out = mul(x = m, y = r);)",
                                "m, out");
  EXPECT_EQ(After(spec, "prefer-state-in-downstream"),
            "m = add(x, y)\nwrite_state(m, s)\nr = read_state(s)\nout = mul(r, r)\n-> m out");
}

TEST(RemoveNoopStateUpdate, RemovesWhatPutsBackWhatWasRead) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp32, [2]> wide = cast(x = r, dtype = string("fp32"));
      tensor<fp16, [2]> back = cast(x = wide, dtype = string("fp16"));
      write_state(input = s, data = back);
      write_state(input = t, data = r);
      tensor<fp16, [2]> out = add(x = r, y = x);)",
                                "out");
  EXPECT_EQ(After(spec, "remove-noop-state-update,dead-code-elimination"),
            "r = read_state(s)\nwrite_state(r, t)\nout = add(r, x)\n-> out");
}

TEST(RemoveNoopStateUpdate, KeepsWritesThatUndoAnother) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      write_state(input = s, data = x);
      tensor<fp16, [2]> q = read_state(input = s);
      write_state(input = s, data = r);
      tensor<fp16, [2]> out = add(x = q, y = y);)",
                                "out");
  EXPECT_EQ(After(spec, "remove-noop-state-update"), Short(spec));
}

TEST(RemoveNoopStateUpdate, KeepsRoundedValues) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp32, [2]> r = read_state(input = s);
      tensor<fp16, [2]> narrow = cast(x = r, dtype = string("fp16"));
      tensor<fp32, [2]> back = cast(x = narrow, dtype = string("fp32"));
      write_state(input = s, data = back);
      tensor<fp16, [2]> out = relu(x = narrow);)",
                                "out", "state<tensor<fp32, [2]>> s");
  const auto after = Rewritten(spec, "remove-noop-state-update");
  ASSERT_OK(after);
  EXPECT_EQ(Short(*after), Short(spec));
}

TEST(DropOutputAlias, GivesTheOutputAValueOfItsOwn) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      write_state(input = s, data = m);)",
                                "m");
  EXPECT_EQ(After(spec, "drop-output-alias"),
            "r = read_state(s)\nm_written = add(r, x)\nwrite_state(m_written, s)\nm = mul(m_written, 1)\n-> m");
}

TEST(DropOutputAlias, HandlesTwoStatesAndRunsTwiceWithoutHarm) {
  const ModelSpec spec = SpecOf(R"(
      tensor<fp16, [2]> r = read_state(input = s);
      tensor<fp16, [2]> m = add(x = r, y = x);
      write_state(input = s, data = m);
      write_state(input = t, data = m);)",
                                "m");
  const std::string once = After(spec, "drop-output-alias");
  EXPECT_EQ(once,
            "r = read_state(s)\nm_written = add(r, x)\nwrite_state(m_written, s)\nwrite_state(m_written, t)\n"
            "m = mul(m_written, 1)\n-> m");
  EXPECT_EQ(After(spec, "drop-output-alias,drop-output-alias"), once);
}

TEST(DropOutputAlias, RefusesAnInputThatIsAnOutput) {
  const ModelSpec spec = SpecOf("write_state(input = s, data = x);", "x");
  const auto after = Rewritten(spec, "drop-output-alias");
  ASSERT_FALSE(after.ok());
  EXPECT_EQ(after.status().code(), ErrorCode::kPrecondition);
  EXPECT_NE(after.status().message().find("pass 'drop-output-alias': output 'x' of 'main'"), std::string::npos)
      << after.status().message();
}

}  // namespace
}  // namespace milwright
