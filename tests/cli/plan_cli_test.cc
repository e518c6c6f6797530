// `plan` on the command line: a compute plan of a device, the gate, and files that do not read.
#include <gmock/gmock.h>

#include "run_cli.h"
#include "support/files.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;
using testing::Milwright;
using testing::Output;

// One add, between a read and a write of a state.
std::string OneAdd() { return (testing::DataDir() / "state-semantics/T07.mlpackage").string(); }

// A plan in which the add runs on `unit`.
std::string PlanOn(const std::string& unit) {
  return R"({"format": "milwright-compute-plan", "version": 1, "environment": {"device": "Apple M4"},
             "functions": {"main": [{"op": "ios18.read_state", "outputs": ["read_state_0"]},
                                    {"op": "ios18.add", "outputs": ["out"], "preferred": ")" +
         unit + R"(", "supported": ["cpu", "ane"], "cost": 1.0}]}})";
}

TEST(PlanCli, ComparesWithAnImportedPlan) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Path("plan.json");
  testing::WriteAll(file, PlanOn("ane"));
  const Output output = Milwright("plan " + OneAdd() + " --import " + file);
  EXPECT_EQ(output.code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("real:      1 of 1 dispatchable operations on the ANE (100.0 %)"));
  EXPECT_THAT(output.text, HasSubstr("compared: 1 operations, 0 agree"));
  EXPECT_THAT(output.text, HasSubstr("cost model wrong"));
  testing::WriteAll(file, PlanOn("cpu"));
  EXPECT_THAT(Milwright("plan " + OneAdd() + " --import " + file).text, HasSubstr("compared: 1 operations, 1 agree"));
  const Output json = Milwright("plan --json " + OneAdd() + " --import " + file);
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.text, HasSubstr("\"device\": \"Apple M4\""));
  EXPECT_THAT(json.text, HasSubstr("\"verdict\": \"agrees\""));
}

// The gate looks at the real plan when there is one, else at the predicted one.
TEST(PlanCli, Gate) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Path("plan.json");
  testing::WriteAll(file, PlanOn("ane"));
  EXPECT_EQ(Milwright("plan " + OneAdd() + " --max-non-ane 5% --import " + file).code, 0);
  testing::WriteAll(file, PlanOn("cpu"));
  const Output fails = Milwright("plan " + OneAdd() + " --max-non-ane 5% --import " + file);
  EXPECT_EQ(fails.code, 1);
  EXPECT_THAT(fails.text, HasSubstr("gate: 100.0 % not on the ANE, at most 5.0 % allowed: fails"));
  EXPECT_EQ(Milwright("plan " + OneAdd() + " --max-non-ane 0.05").code, 1);  // two elements are not worth a change
  EXPECT_EQ(Milwright("plan " + OneAdd() + " --max-non-ane 100%").code, 0);
  for (const char* share : {"5", "-1%", "many", "101%"}) {
    EXPECT_EQ(Milwright("plan " + OneAdd() + " --max-non-ane=" + share).code, 2) << share;
  }
}

TEST(PlanCli, BrokenPlans) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Path("plan.json");
  const std::string import = "plan " + OneAdd() + " --import " + file;
  EXPECT_EQ(Milwright(import).code, 3);  // missing
  const std::string whole = PlanOn("ane");
  std::string other_version = whole;
  other_version.replace(other_version.find("\"version\": 1"), 12, "\"version\": 2");
  for (const std::string& text : {std::string(), std::string("{"), whole.substr(0, whole.size() / 2), std::string("[]"),
                                  std::string("{\"format\": \"other\"}"), other_version, PlanOn("tpu")}) {
    testing::WriteAll(file, text);
    const Output output = Milwright(import);
    EXPECT_EQ(output.code, 3) << text << output.text;
    EXPECT_THAT(output.text, HasSubstr(file));
  }
}

TEST(PlanCli, UnknownWords) {
  EXPECT_EQ(Milwright("plan " + OneAdd() + " --target nothing").code, 2);
  EXPECT_EQ(Milwright("plan " + OneAdd() + " --function nothing").code, 2);
}

}  // namespace
}  // namespace milwright
