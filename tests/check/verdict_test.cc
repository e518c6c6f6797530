// Leave one source out: every stateful row of the ledger is judged without itself, its source and its model.
#include "check/verdict.h"

#include <gmock/gmock.h>

#include <iostream>

#include "check/ledger.h"

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

TEST(Verdict, FeaturesLeftOneSourceOut) {
  int judged = 0;
  int unknown = 0;
  int disputed = 0;
  int contradicted = 0;
  for (const Observation& row : BuiltInLedger().observations) {
    if (row.program.states.empty() || row.outcome.stage == "convert") continue;
    const VerdictKind observed = KindOf(row.outcome);
    if (observed == VerdictKind::kUnknown) continue;
    Observation program = row;
    program.outcome = {};
    const Target& target = TargetOf(row.environment);
    const Verdict verdict = Judge(program, target, WithoutKin(row), {});
    ++judged;
    unknown += verdict.kind == VerdictKind::kUnknown ? 1 : 0;
    disputed += verdict.kind == VerdictKind::kDisputed ? 1 : 0;
    const bool wrong = verdict.IsCertain() && verdict.kind != observed;
    contradicted += wrong ? 1 : 0;
    std::cout << (wrong ? "WRONG " : "      ") << row.id << " [" << target.name << "] observed "
              << VerdictText(observed, target) << ", verdict " << VerdictText(verdict.kind, target) << ": "
              << verdict.why << "\n";
  }
  std::cout << judged << " judged, " << unknown << " unknown, " << disputed << " disputed, " << contradicted
            << " certain and wrong\n";
  EXPECT_LE(contradicted, 4);
  EXPECT_LE(unknown * 3, judged);
}

}  // namespace
}  // namespace milwright
