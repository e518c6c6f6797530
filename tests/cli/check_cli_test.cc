// `check` on the command line: fixes, baselines, configuration, a ledger of one's own.
#include <gmock/gmock.h>

#include "run_cli.h"
#include "support/files.h"

namespace milwright {
namespace {

using ::testing::HasSubstr;
using testing::Milwright;
using testing::Output;
using testing::Package;

// An output that is the value written to a state.
std::string Aliased() { return (testing::DataDir() / "state-semantics/T07.mlpackage").string(); }

TEST(CheckCli, FixWritesWhatIsProvedEqual) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.Path("out.mlpackage");
  EXPECT_EQ(Milwright("check " + Aliased()).code, 1);
  const Output fixed = Milwright("check --fix -o " + out + " " + Aliased());
  EXPECT_EQ(fixed.code, 0) << fixed.text;
  EXPECT_THAT(fixed.text, HasSubstr("fixed MW205"));
  EXPECT_THAT(fixed.text, HasSubstr("equal over 16 steps"));
  EXPECT_EQ(Milwright("check " + out).code, 0);
  EXPECT_EQ(Milwright("equal " + Aliased() + " " + out).code, 0);
}

TEST(CheckCli, FixInPlace) {
  const testing::TemporaryFolder folder;
  const std::string copy = folder.Path("copy.mlpackage");
  testing::CopyPackage(Aliased(), copy);
  EXPECT_EQ(Milwright("check --fix --in-place " + copy).code, 0);
  EXPECT_EQ(Milwright("check " + copy).code, 0);
}

TEST(CheckCli, FixSaysWhereItWrites) {
  const Output nowhere = Milwright("check --fix " + Aliased());
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.text, HasSubstr("-o OUT.mlpackage or --in-place"));
  EXPECT_EQ(Milwright("check --fix --in-place -o x.mlpackage " + Aliased()).code, 2);
  EXPECT_EQ(Milwright("check -o x.mlpackage " + Aliased()).code, 2);
  EXPECT_EQ(Milwright("check --fix -o x.mlpackage --target nothing " + Aliased()).code, 2);
}

// What remains at or above --fail-on gives the exit code; the package is written all the same.
TEST(CheckCli, FixFailsOnWhatRemains) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.Path("out.mlpackage");
  const std::string order = (testing::DataDir() / "state-semantics/T02.mlpackage").string();  // MW210
  EXPECT_EQ(Milwright("check --fix --fail-on warning -o " + out + " " + order).code, 1);
  EXPECT_TRUE(std::filesystem::exists(out));
  const Output json = Milwright("check --fix --json -o " + out + " " + Aliased());
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.text, HasSubstr("\"applied\": true"));
  EXPECT_THAT(json.text, HasSubstr("\"equal\": true"));
}

}  // namespace
}  // namespace milwright
