// Baselines: what they accept, what they miss, and what does not read.
#include "check/baseline.h"

#include <gmock/gmock.h>

#include "support/files.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Finding Of(std::string id, Location location) {
  return {std::move(id), Severity::kWarning, std::move(location), "", {}, {}};
}

const Finding kState = Of("MW301", {"main", {}, "kv"});
const Finding kOp = Of("MW602", {"main", "main/op 12 'scores' (add)", {}});

TEST(Baseline, KeysDoNotCountOps) {
  EXPECT_EQ(EntryFor(kState).place, "kv");
  EXPECT_EQ(EntryFor(kOp).place, "main/op 'scores' (add)");
  EXPECT_EQ(EntryFor(Of("MW602", {"main", "main/'loop'/block0/op 3 'op 4' (add)", {}})).place,
            "main/'loop'/block0/op 'op 4' (add)");
  EXPECT_EQ(EntryFor(Of("MW406", {})), (BaselineEntry{{}, "MW406", {}, {}}));
}

TEST(Baseline, AcceptsWhatItLists) {
  const Baseline baseline({EntryFor(kOp), EntryFor(kOp)});
  EXPECT_EQ(baseline.entries().size(), 1U);
  Finding moved = kOp;
  moved.location.op_path = "main/op 99 'scores' (add)";
  EXPECT_TRUE(baseline.Accepts(moved, {}));
  EXPECT_TRUE(baseline.Accepts(moved, "any.mlpackage"));
  EXPECT_FALSE(baseline.Accepts(kState, {}));
  Finding elsewhere = kOp;
  elsewhere.location.function = "prefill";
  EXPECT_FALSE(baseline.Accepts(elsewhere, {}));
}

TEST(Baseline, PackagesOfAFolderAreApart) {
  const Baseline baseline({EntryFor(kState, "a.mlpackage")});
  EXPECT_TRUE(baseline.Accepts(kState, "a.mlpackage"));
  EXPECT_FALSE(baseline.Accepts(kState, "b.mlpackage"));
  EXPECT_THAT(baseline.Stale({}, "a.mlpackage"), ElementsAre(Field(&BaselineEntry::rule, "MW301")));
  EXPECT_THAT(baseline.Stale({}, "b.mlpackage"), IsEmpty());
}

TEST(Baseline, SaysWhatNoLongerOccurs) {
  const Baseline baseline({EntryFor(kOp), EntryFor(kState)});
  const std::vector<Finding> findings = {kOp};
  EXPECT_THAT(baseline.Stale(findings, {}), ElementsAre(EntryFor(kState)));
}

TEST(Baseline, ReadsBackAsWritten) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Path("baseline.json");
  const Baseline baseline({EntryFor(kState, "a.mlpackage"), EntryFor(kOp), EntryFor(Of("MW406", {}))});
  ASSERT_OK(WriteBaseline(baseline, path));
  const auto read = ReadBaseline(path);
  ASSERT_OK(read);
  EXPECT_EQ(read->entries(), baseline.entries());
}

TEST(Baseline, RefusesOtherFiles) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Path("baseline.json");
  const auto message = [&path](std::string_view text) {
    testing::WriteAll(path, text);
    const auto read = ReadBaseline(path);
    EXPECT_EQ(read.status().code(), ErrorCode::kUnreadable) << text;
    return read.status().message();
  };
  EXPECT_THAT(message("[1"), HasSubstr("no baseline"));
  EXPECT_THAT(message("{}"), HasSubstr("no baseline"));
  EXPECT_THAT(message(R"({"format": "milwright-baseline", "version": 2})"), HasSubstr("only version 1"));
  const std::string head = R"({"format": "milwright-baseline", "version": 1, "findings": )";
  EXPECT_THAT(message(head + "3}"), HasSubstr("must be a list"));
  EXPECT_THAT(message(head + "[3]}"), HasSubstr("finding 0: must be an object"));
  EXPECT_THAT(message(head + R"([{"rule": "MW301"}, {"rule": 301}]})"), HasSubstr("finding 1: 'rule' must be text"));
  EXPECT_THAT(message(head + R"([{"rule": "MW999"}]})"), HasSubstr("there is no rule 'MW999'"));
}

}  // namespace
}  // namespace milwright
