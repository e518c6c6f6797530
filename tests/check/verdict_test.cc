// Leave one source out: every row of the ledger whose program can be rebuilt is judged without itself and without every
// row of its source or its model.
#include "check/verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>

#include "check/ledger.h"
#include "mini_program.h"

namespace milwright {
namespace {

std::vector<Observation> WithoutKin(const Observation& row) {
  std::vector<Observation> rest;
  for (const Observation& other : BuiltInLedger().observations) {
    if (other.id == row.id || other.source_url == row.source_url || other.model == row.model) continue;
    rest.push_back(other);
  }
  return rest;
}

Verdict JudgeFirstFunction(const ModelSpec& model, const Target& target, std::span<const Observation> ledger) {
  const Function& function = *model.program.functions().front();
  Observation program;
  program.program = FeaturesOf(model, function, AnalyzeStates(function));
  program.environment = EnvironmentOf(target);
  return Judge(program, target, ledger, CheckModel(model, {std::string(target.name), {}}));
}

TEST(Verdict, LeaveOneSourceOut) {
  int rebuilt = 0;
  int unknown = 0;
  int disputed = 0;
  int contradicted = 0;
  for (const Observation& row : BuiltInLedger().observations) {
    const VerdictKind observed = KindOf(row.outcome);
    if (row.outcome.stage == "convert" || observed == VerdictKind::kUnknown) continue;
    SCOPED_TRACE(row.id);
    const auto model = testing::Rebuild(row.program);
    if (!model.has_value()) continue;
    const Target& target = TargetOf(row.environment);
    const Verdict verdict = JudgeFirstFunction(*model, target, WithoutKin(row));
    const bool wrong = verdict.IsCertain() && verdict.kind != observed;
    ++rebuilt;
    unknown += verdict.kind == VerdictKind::kUnknown ? 1 : 0;
    disputed += verdict.kind == VerdictKind::kDisputed ? 1 : 0;
    contradicted += wrong ? 1 : 0;
    std::cout << fmt::format("{:<8}{:<46}{:<14}{:<28}{:<38}{}\n", wrong ? "WRONG" : "", row.id, target.name,
                             VerdictText(observed, target).substr(sizeof("expected to")),
                             VerdictText(verdict.kind, target), verdict.why);
  }
  std::cout << fmt::format("{} rebuilt: {} certain, of them {} wrong; {} disputed, {} unknown\n", rebuilt,
                           rebuilt - disputed - unknown, contradicted, disputed, unknown);
  EXPECT_GE(rebuilt, 60);
  EXPECT_LE(contradicted, 4);
  EXPECT_LE(unknown * 3, rebuilt);
}

// What the rebuilt program shows is what the row says.
TEST(Verdict, RebuiltProgramsHaveTheFeaturesOfTheirRows) {
  for (const Observation& row : BuiltInLedger().observations) {
    const auto model = testing::Rebuild(row.program);
    if (!model.has_value()) continue;
    SCOPED_TRACE(row.id);
    const Function& function = *model->program.functions().front();
    const ProgramFeatures features = FeaturesOf(*model, function, AnalyzeStates(function));
    ASSERT_EQ(features.states.size(), row.program.states.size());
    for (size_t i = 0; i < features.states.size(); ++i) {
      EXPECT_EQ(features.states[i].role, row.program.states[i].role) << features.states[i].name;
      EXPECT_EQ(features.states[i].update, row.program.states[i].update) << features.states[i].name;
    }
    ASSERT_EQ(features.functions.size(), row.program.functions.size());
    for (size_t i = 0; i < features.functions.size(); ++i) {
      if (row.program.functions[i].query_length.has_value()) {
        EXPECT_EQ(features.functions[i].query_length, row.program.functions[i].query_length);
      }
    }
  }
}

TEST(Verdict, OrderAndNamesOfStatesPlayNoPart) {
  for (const char* id : {"lfm2-2state-baseline", "qwen35-0.8b-3state-mac-ane", "gemma4-e2b-4chunk-c1-mac-placement"}) {
    const Observation& row = *BuiltInLedger().Find(id);
    const Target& target = TargetOf(row.environment);
    const std::vector<Observation> ledger = WithoutKin(row);
    const auto model = testing::Rebuild(row.program);
    ProgramFeatures other = row.program;
    std::ranges::reverse(other.states);
    for (size_t i = 0; i < other.states.size(); ++i) other.states[i].name = fmt::format("renamed_{}", i);
    const auto renamed = testing::Rebuild(other);
    ASSERT_TRUE(model.has_value() && renamed.has_value()) << id;
    const Verdict a = JudgeFirstFunction(*model, target, ledger);
    const Verdict b = JudgeFirstFunction(*renamed, target, ledger);
    EXPECT_EQ(a.kind, b.kind) << id;
    EXPECT_EQ(a.causes, b.causes) << id;
  }
}

TEST(Verdict, NamesBothExplanationsOfMixedRoles) {
  const Observation& row = *BuiltInLedger().Find("lfm2-2state-baseline");
  const auto model = testing::Rebuild(row.program);
  ASSERT_TRUE(model.has_value());
  const Target& target = TargetOf(row.environment);
  const Verdict verdict = JudgeFirstFunction(*model, target, BuiltInLedger().observations);
  EXPECT_TRUE(verdict.kind == VerdictKind::kFailsAtPredict) << verdict.why;
  EXPECT_THAT(verdict.causes, ::testing::IsSupersetOf({"differing-roles", "innermost-not-mult32"}));
}

TEST(Verdict, TwoShapesWithSliceUpdatesRun) {
  const Observation& row = *BuiltInLedger().Find("gemma4-e2b-4chunk-c1-mac-placement");
  const auto model = testing::Rebuild(row.program);
  ASSERT_TRUE(model.has_value());
  const Verdict verdict = JudgeFirstFunction(*model, *FindTarget("ane-macos26"), BuiltInLedger().observations);
  EXPECT_TRUE(verdict.kind == VerdictKind::kRuns) << verdict.why;
  EXPECT_THAT(verdict.dismissed, ::testing::Contains("differing-shapes"));
}

TEST(Verdict, ShiftedKeysFailAtLoad) {
  const Observation& row = *BuiltInLedger().Find("bonsai-swa-shiftcat-ane");
  const auto model = testing::Rebuild(row.program);
  ASSERT_TRUE(model.has_value());
  const Verdict verdict = JudgeFirstFunction(*model, *FindTarget("ane-macos26"), BuiltInLedger().observations);
  EXPECT_TRUE(verdict.kind == VerdictKind::kFailsAtLoad) << verdict.why;
}

}  // namespace
}  // namespace milwright
