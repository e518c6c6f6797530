// The predicates in code against the lists of the ledger.
#include "check/hypotheses.h"

#include <gmock/gmock.h>

#include "support/files.h"
#include "support/test_util.h"

namespace milwright {
namespace {

TEST(Ledger, ReadsWithoutError) {
  const auto observations = ReadObservations(ObservationsJson(), "observations.json");
  ASSERT_OK(observations);
  EXPECT_EQ(observations->size(), 160U);
  EXPECT_EQ(BuiltInLedger().observations.size(), 160U);
  EXPECT_EQ(BuiltInLedger().hypotheses.size(), 32U);
  const Observation* row = BuiltInLedger().Find("lfm2-2state-baseline");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->outcome.code, "0x1d");
  ASSERT_EQ(row->program.states.size(), 2U);
  EXPECT_EQ(row->program.states[1].shape->back(), 3);
  EXPECT_EQ(row->program.states[1].role, "conv");
}

TEST(Ledger, SaysWhichRowIsWrong) {
  EXPECT_FALSE(ReadObservations("[", "mine.json").ok());
  const auto no_id = ReadObservations(R"({"observations": [{"model": "x"}]})", "mine.json");
  ASSERT_FALSE(no_id.ok());
  EXPECT_EQ(no_id.status().message(), "mine.json: observation 0 has no id");
  const auto wrong = ReadObservations(R"({"observations": [{"id": "a", "program": {"layers": "x"}}]})", "mine.json");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().message(), "mine.json: observation 0.program: 'layers' must be a number");
}

TEST(Ledger, TakesFilesBesideTheBuiltInOne) {
  testing::TemporaryFolder folder;
  testing::WriteAll(folder.Path("mine.json"), R"({"observations": [{"id": "mine"}]})");
  const auto observations = GatherObservations({folder.Path("mine.json")});
  ASSERT_OK(observations);
  EXPECT_EQ(observations->size(), 161U);
  EXPECT_FALSE(GatherObservations({folder.Path("mine.json"), folder.Path("mine.json")}).ok());
  EXPECT_FALSE(GatherObservations({folder.Path("missing.json")}).ok());
}

TEST(Hypotheses, AgreeWithTheLedger) {
  const Ledger& ledger = BuiltInLedger();
  ASSERT_EQ(AllHypotheses().size(), ledger.hypotheses.size());
  for (const HypothesisRecord& record : ledger.hypotheses) {
    SCOPED_TRACE(record.id);
    const Hypothesis* hypothesis = FindHypothesis(record.id);
    ASSERT_NE(hypothesis, nullptr);
    const auto that = [&](Bearing bearing) { return ObservationsThat(bearing, *hypothesis, ledger.observations); };
    EXPECT_EQ(that(Bearing::kSupports), record.supported_by);
    EXPECT_EQ(that(Bearing::kContradicts), record.contradicted_by);
    EXPECT_EQ(that(Bearing::kWeakCounterexample), record.weak_counterexamples);
    if (!record.same_outcome_without_property.empty()) {  // listed for hypotheses with codes only
      EXPECT_EQ(that(Bearing::kSameOutcomeWithout), record.same_outcome_without_property);
    }
    EXPECT_EQ(that(Bearing::kConsistentNegative).size(), record.consistent_negatives);
    EXPECT_EQ(that(Bearing::kUndecidable).size(), record.undecidable);
  }
}

}  // namespace
}  // namespace milwright
