// The programs that the checker is for: mixed roles, a shifted cache, and two shapes that run. What they are said to
// do, and what `check --fix` makes of them.
#include <gmock/gmock.h>

#include "check/fix.h"
#include "check/verdict.h"
#include "format/package.h"
#include "mini_program.h"
#include "passes/verify_rewrite.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr std::string_view kTarget = "ane-macos26";

StateFeatures Cache(std::string name, const Shape& shape, std::string role, std::string update) {
  std::vector<std::optional<int64_t>> sizes(shape.begin(), shape.end());
  return {std::move(name), sizes, "fp16", std::move(role), std::move(update)};
}

ModelSpec ProgramWith(std::vector<StateFeatures> states) {
  ProgramFeatures features;
  features.functions = {{"main", 1}};
  features.states = std::move(states);
  features.flexible_inputs = "none";
  features.weight_format = "fp16";
  return *testing::Rebuild(features);
}

// LFM2.5 in small: keys and values beside the windows of short convolutions.
ModelSpec MixedRoles() {
  return ProgramWith({Cache("kv_cache_0", {4, 2, 64, 64}, "kv", "slice_update_dynamic"),
                      Cache("conv_cache_0", {1, 1, 16, 3}, "conv", "shift_concat")});
}

std::vector<Finding> Check(const ModelSpec& model) { return CheckModel(model, {std::string(kTarget), {}}); }

Verdict JudgeMain(const ModelSpec& model) {
  const std::vector<Finding> findings = Check(model);
  return JudgeModel(model, *FindTarget(kTarget), BuiltInLedger().observations, findings).front();
}

const Finding* FindFinding(const std::vector<Finding>& findings, std::string_view id) {
  const auto it = std::ranges::find(findings, id, &Finding::id);
  return it != findings.end() ? &*it : nullptr;
}

// Fixes `model` and proves the result equal over at least 16 steps.
FixResult FixAndProve(const ModelSpec& model) {
  FixOptions options;
  options.check.target = kTarget;
  auto result = ApplyFixes(model, options);
  EXPECT_OK(result);
  const int steps = StepsToProve(model, *result);
  EXPECT_GE(steps, 16);
  const auto report = CompareRewritten(model, result->model, result->uses(), steps);
  EXPECT_OK(report);
  EXPECT_TRUE(report->equal()) << ::testing::PrintToString(report->faults)
                               << (report->worst() != nullptr ? DescribeDifference(*report->worst()) : "");
  EXPECT_GE(report->steps, static_cast<size_t>(steps));
  EXPECT_THAT(result->attempts, Each(Field(&FixAttempt::refusal, "")));
  EXPECT_THAT(result->findings, Each(Field(&Finding::severity, ::testing::Lt(Severity::kError))));
  return *std::move(result);
}

TEST(GatePrograms, MixedRolesHaveTwoCompetingExplanations) {
  const ModelSpec model = MixedRoles();
  const std::vector<Finding> findings = Check(model);
  const Finding* roles = FindFinding(findings, "MW217");
  const Finding* innermost = FindFinding(findings, "MW301");
  ASSERT_TRUE(roles != nullptr && innermost != nullptr);
  EXPECT_THAT(roles->notes, Contains(HasSubstr("competes with MW301")));
  EXPECT_THAT(innermost->notes, Contains(HasSubstr("competes with MW217")));
  EXPECT_EQ(innermost->location.value, "conv_cache_0");
  EXPECT_EQ(roles->fix->passes, "state-to-io=states:conv_cache_0");
  EXPECT_EQ(innermost->fix->passes, "state-to-io=states:conv_cache_0");
  const Verdict verdict = JudgeMain(model);
  EXPECT_EQ(VerdictText(verdict.kind, *FindTarget(kTarget)), "expected to fail at predict (0x1d)") << verdict.why;
  EXPECT_THAT(verdict.causes, IsSupersetOf({"differing-roles", "innermost-not-mult32"}));
  EXPECT_THAT(verdict.why, HasSubstr("compete as explanations"));
  EXPECT_EQ(verdict.codes.front(), "0x1d");
}

TEST(GatePrograms, MixedRolesAreFixedToOneStateAndOneInput) {
  const FixResult fixed = FixAndProve(MixedRoles());
  const Function& main = *fixed.model.program.functions().front();
  ASSERT_EQ(main.States().size(), 1U);
  EXPECT_EQ(main.States().front()->name, "kv_cache_0");
  EXPECT_TRUE(main.FindInput("conv_cache_0")->type.IsTensor());
  EXPECT_EQ(FindFinding(fixed.findings, "MW217"), nullptr);
  EXPECT_EQ(FindFinding(fixed.findings, "MW301"), nullptr);
  const Verdict verdict = JudgeMain(fixed.model);
  EXPECT_EQ(VerdictText(verdict.kind, *FindTarget(kTarget)), "expected to run on ANE") << verdict.why;
}

// coremltools' conversion of a hybrid decoder: the windows of two layers are slots of one state.
TEST(GatePrograms, SlotsOfAWindowBecomeInputsOfTheirOwn) {
  const std::string path = testing::SharedDir() / "fixtures/coremltools/e_conv.mlpackage";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto model = OpenModel(path);
  ASSERT_OK(model);
  EXPECT_EQ(JudgeMain(*model).kind, VerdictKind::kFailsAtPredict);
  const FixResult fixed = FixAndProve(*model);
  const Function& main = *fixed.model.program.functions().front();
  ASSERT_EQ(main.States().size(), 1U);
  EXPECT_EQ(main.States().front()->name, "kv_cache");
  EXPECT_TRUE(main.FindInput("conv_state_0") != nullptr && main.FindInput("conv_state_1") != nullptr);
  const Verdict verdict = JudgeMain(fixed.model);
  EXPECT_EQ(verdict.kind, VerdictKind::kRuns) << verdict.why;
}

ModelSpec ShiftedKeys() { return ProgramWith({Cache("kv", {1, 2, 24, 64}, "kv", "shift_concat")}); }

TEST(GatePrograms, ShiftedKeysAreFlagged) {
  const ModelSpec model = ShiftedKeys();
  const std::vector<Finding> findings = Check(model);
  const Finding* shift = FindFinding(findings, "MW212");
  ASSERT_NE(shift, nullptr);
  EXPECT_EQ(shift->severity, Severity::kError);
  EXPECT_THAT(shift->notes, Contains(HasSubstr("-14")));
  const Verdict verdict = JudgeMain(model);
  EXPECT_EQ(VerdictText(verdict.kind, *FindTarget(kTarget)), "expected to fail at load (-14…)") << verdict.why;
  EXPECT_EQ(verdict.codes.front(), "-14");
}

// 24 rows: the proof runs past the turn of the ring.
TEST(GatePrograms, ShiftedKeysBecomeARing) {
  const ModelSpec model = ShiftedKeys();
  const FixResult fixed = FixAndProve(model);
  EXPECT_EQ(StepsToProve(model, fixed), 28);
  EXPECT_EQ(fixed.attempts.front().uses.front().pass->name, "shift-to-ring-buffer");
  const FunctionStates states = AnalyzeStates(*fixed.model.program.functions().front());
  EXPECT_EQ(states.states.front().form, UpdateForm::kSliceUpdate);
  EXPECT_EQ(FindFinding(fixed.findings, "MW212"), nullptr);
}

// Two fixes of one window: a ring, and rows rounded up to 32 elements.
TEST(GatePrograms, AShiftedWindowIsPaddedToo) {
  const FixResult fixed = FixAndProve(ProgramWith({Cache("kv", {1, 2, 24, 16}, "kv", "shift_concat")}));
  ASSERT_EQ(fixed.attempts.size(), 2U);
  EXPECT_EQ(fixed.model.program.functions().front()->States().front()->type.shape(), (Shape{1, 2, 24, 32}));
}

// Several rows a step: no ring; the cache becomes an input and output.
TEST(GatePrograms, WhatIsNoRingBecomesInputAndOutput) {
  ProgramFeatures features;
  features.functions = {{"main", 4}};
  features.states = {Cache("kv", {1, 2, 24, 64}, "kv", "shift_concat")};
  features.flexible_inputs = "none";
  const FixResult fixed = FixAndProve(*testing::Rebuild(features));
  EXPECT_TRUE(fixed.model.program.functions().front()->States().empty());
}

TEST(GatePrograms, TwoShapesWithSliceUpdatesRun) {
  const ModelSpec model = ProgramWith({Cache("kv_cache_sliding", {2, 1, 64, 64}, "kv", "slice_update_dynamic"),
                                       Cache("kv_cache_full", {2, 1, 128, 64}, "kv", "slice_update_dynamic")});
  const std::vector<Finding> findings = Check(model);
  EXPECT_THAT(findings, Each(Field(&Finding::severity, ::testing::Lt(Severity::kWarning))));
  const Finding* shapes = FindFinding(findings, "MW218");
  ASSERT_NE(shapes, nullptr);
  EXPECT_THAT(shapes->notes, Contains(HasSubstr("not a cause by itself")));
  const Verdict verdict = JudgeMain(model);
  EXPECT_EQ(VerdictText(verdict.kind, *FindTarget(kTarget)), "expected to run on ANE") << verdict.why;
  EXPECT_THAT(verdict.dismissed, Contains("differing-shapes"));
  // The older failures are shown, with what sets them apart.
  ASSERT_FALSE(verdict.contrary.empty());
  for (const Neighbour& neighbour : verdict.contrary) {
    EXPECT_EQ(neighbour.observation->outcome.status, "fail");
    EXPECT_THAT(neighbour.differences, Contains(HasSubstr("update forms (slice_update_dynamic here")));
  }
}

TEST(GatePrograms, NothingToFixChangesNothing) {
  const ModelSpec model = ProgramWith({Cache("kv", {2, 1, 64, 64}, "kv", "slice_update_dynamic")});
  const FixResult fixed = FixAndProve(model);
  EXPECT_TRUE(fixed.attempts.empty());
  EXPECT_TRUE(ModelsEqual(model, fixed.model));
}

TEST(GatePrograms, AcceptedFindingsAreLeftAlone) {
  FixOptions options;
  options.check.target = kTarget;
  options.accepted = [](const Finding&) { return true; };
  const auto result = ApplyFixes(MixedRoles(), options);
  ASSERT_OK(result);
  EXPECT_TRUE(result->attempts.empty());
  EXPECT_THAT(result->findings, Contains(Field(&Finding::id, "MW217")));
}

}  // namespace
}  // namespace milwright
