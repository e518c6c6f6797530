// Observations of one's own: what is written reads back, and a check uses it.
#include "check/own_evidence.h"

#include <gmock/gmock.h>

#include "check/verdict.h"
#include "format/package.h"
#include "support/files.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;
using testing::TestPackage;

Observation RowOf(const std::string& package, const std::string& id, std::string_view outcome) {
  const auto model = OpenModel(TestPackage(package));
  EXPECT_OK(model);
  const Function& function = *model->DefaultFunction();
  Observation row;
  row.id = id;
  row.model = package;
  row.program = FeaturesOf(*model, function, AnalyzeStates(function));
  row.environment = {"Mac M4", "macOS 26.1", "coremltools 9.0", "cpuAndNeuralEngine"};
  row.outcome = *ReadOutcome(outcome);
  row.outcome.message = "Error \"17\"\n";
  row.strength = "measured";
  row.date = "2026-11-30";
  row.source_title = row.source_url = "our CI";
  row.caveats = "one run";
  return row;
}

void ExpectSameCaches(const std::vector<StateFeatures>& a, const std::vector<StateFeatures>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].shape, b[i].shape);
    EXPECT_EQ(a[i].dtype, b[i].dtype);
    EXPECT_EQ(a[i].role, b[i].role);
    EXPECT_EQ(a[i].update, b[i].update);
  }
}

TEST(OwnEvidence, ReadsBackAsWritten) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Path("ours.json");
  std::vector<Observation> rows = {RowOf("b_slice", "ours-1", "fail-at-load:-14"),
                                   RowOf("i_multifunction_int4", "ours-2", "ok")};
  rows[1].program.layers = 2;
  rows[1].outcome.ane_share = 0.75;
  rows[1].program.states[0].shape = std::nullopt;
  for (const Observation& row : rows) ASSERT_OK(AppendObservation(path, row));
  const auto read = ReadObservations(testing::ReadAll(path), path);
  ASSERT_OK(read);
  ASSERT_EQ(read->size(), 2U);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Observation& a = rows[i];
    const Observation& b = (*read)[i];
    SCOPED_TRACE(a.id);
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.model, b.model);
    EXPECT_EQ(a.program.opset, b.program.opset);
    ASSERT_EQ(a.program.functions.size(), b.program.functions.size());
    for (size_t j = 0; j < a.program.functions.size(); ++j) {
      EXPECT_EQ(a.program.functions[j].name, b.program.functions[j].name);
      EXPECT_EQ(a.program.functions[j].query_length, b.program.functions[j].query_length);
    }
    ExpectSameCaches(a.program.states, b.program.states);
    ExpectSameCaches(a.program.explicit_caches, b.program.explicit_caches);
    EXPECT_EQ(a.program.flexible_inputs, b.program.flexible_inputs);
    EXPECT_EQ(a.program.weight_format, b.program.weight_format);
    EXPECT_EQ(a.program.layers, b.program.layers);
    EXPECT_EQ(a.program.context_length, b.program.context_length);
    EXPECT_EQ(a.program.tags, b.program.tags);
    EXPECT_EQ(a.program.package_mb, b.program.package_mb);
    EXPECT_EQ(a.program.depalettized_mb, b.program.depalettized_mb);
    EXPECT_EQ(a.environment.device, b.environment.device);
    EXPECT_EQ(a.environment.os, b.environment.os);
    EXPECT_EQ(a.environment.toolchain, b.environment.toolchain);
    EXPECT_EQ(a.environment.compute_units, b.environment.compute_units);
    EXPECT_EQ(a.outcome.status, b.outcome.status);
    EXPECT_EQ(a.outcome.stage, b.outcome.stage);
    EXPECT_EQ(a.outcome.code, b.outcome.code);
    EXPECT_EQ(a.outcome.message, b.outcome.message);
    EXPECT_EQ(a.outcome.ane_share, b.outcome.ane_share);
    EXPECT_EQ(a.strength, b.strength);
    EXPECT_EQ(a.date, b.date);
    EXPECT_EQ(a.source_title, b.source_title);
    EXPECT_EQ(a.source_url, b.source_url);
    EXPECT_EQ(a.caveats, b.caveats);
  }
}

TEST(OwnEvidence, KeepsWhatStandsThere) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Path("ours.json");
  testing::WriteAll(path, R"({"team": "ours", "observations": [{"id": "first", "ticket": 812}]})");
  ASSERT_OK(AppendObservation(path, RowOf("b_slice", "second", "ok")));
  const std::string text = testing::ReadAll(path);
  EXPECT_THAT(text, HasSubstr("\"team\": \"ours\""));
  EXPECT_THAT(text, HasSubstr("\"ticket\": 812"));
  EXPECT_EQ(*FreeObservationId(path, "second"), "second-2");
  EXPECT_EQ(*FreeObservationId(path, "third"), "third");
}

TEST(OwnEvidence, RefusesRepeatedIdsAndOtherFiles) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Path("ours.json");
  const Observation row = RowOf("b_slice", "ours", "ok");
  ASSERT_OK(AppendObservation(path, row));
  EXPECT_EQ(AppendObservation(path, row).code(), ErrorCode::kUsage);
  EXPECT_EQ(AppendObservation(path, RowOf("b_slice", "lfm2-2state-baseline", "ok")).code(), ErrorCode::kUsage);
  EXPECT_EQ(AppendObservation(path, RowOf("b_slice", "", "ok")).code(), ErrorCode::kUsage);
  for (const char* text : {"", "[]", "{\"observations\": 1}", "{\"observations\": [3]}"}) {
    testing::WriteAll(path, text);
    EXPECT_EQ(AppendObservation(path, row).code(), ErrorCode::kUnreadable) << text;
    EXPECT_EQ(testing::ReadAll(path), text);
  }
}

TEST(OwnEvidence, OutcomesInWords) {
  EXPECT_EQ(ReadOutcome("fail-at-predict:0x1d")->code, "0x1d");
  EXPECT_EQ(KindOf(*ReadOutcome("fail-at-predict:0x1d")), VerdictKind::kFailsAtPredict);
  EXPECT_EQ(KindOf(*ReadOutcome("fail-at-load")), VerdictKind::kFailsAtLoad);
  EXPECT_EQ(KindOf(*ReadOutcome("fallback")), VerdictKind::kFallsBack);
  EXPECT_EQ(KindOf(*ReadOutcome("wrong-numerics")), VerdictKind::kRuns);
  for (const char* text : {"", "fail", "ok:1", "fails", ":"}) {
    EXPECT_EQ(ReadOutcome(text).status().code(), ErrorCode::kUsage) << text;
  }
}

}  // namespace
}  // namespace milwright
