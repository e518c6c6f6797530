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
  EXPECT_EQ(Milwright("check --fix --format html -o x.mlpackage " + Aliased()).code, 2);
  EXPECT_EQ(Milwright("check --in-place " + Aliased()).code, 2);
  EXPECT_EQ(Milwright("check --fix -o x.mlmodel " + Aliased()).code, 2);
  EXPECT_EQ(Milwright("check --fix -o x.mlpackage --target nothing " + Aliased()).code, 2);
}

// What remains at or above --fail-on gives the exit code; the package is written all the same.
TEST(CheckCli, FixFailsOnWhatRemains) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.Path("out.mlpackage");
  const std::string order = (testing::DataDir() / "state-semantics/T02.mlpackage").string();  // MW210
  EXPECT_EQ(Milwright("check --fix --fail-on warning -o " + out + " " + order).code, 1);
  EXPECT_TRUE(std::filesystem::exists(out));
  const Output nothing = Milwright("check --fix -o " + out + " " + Package("b_slice"));
  EXPECT_EQ(nothing.code, 0) << nothing.text;
  EXPECT_THAT(nothing.text, HasSubstr("no warning or error has a fix that is applied by itself"));
  const Output json = Milwright("check --fix --json -o " + out + " " + Aliased());
  EXPECT_EQ(json.code, 0);
  EXPECT_THAT(json.text, HasSubstr("\"applied\": true"));
  EXPECT_THAT(json.text, HasSubstr("\"equal\": true"));
}

// What was seen of a package comes back as the nearest observation of the same package.
TEST(CheckCli, EvidenceOfOnesOwn) {
  const testing::TemporaryFolder folder;
  const std::string ledger = folder.Path("ours.json");
  const std::string add = "evidence add " + Package("b_slice") +
                          " --device 'Mac M4' --os 'macOS 26.1' --compute-unit cpuAndNeuralEngine --source 'our CI' "
                          "--ledger " +
                          ledger;
  const Output added = Milwright(add + " --outcome fail-at-predict:0x1d --note 'one run'");
  EXPECT_EQ(added.code, 0) << added.text;
  EXPECT_EQ(Milwright(add + " --outcome ok").code, 0);  // gets another id
  EXPECT_EQ(Milwright(add + " --outcome ok --id b_slice-cpuAndNeuralEngine").code, 2);
  EXPECT_EQ(Milwright(add).code, 2);
  EXPECT_EQ(Milwright(add + " --outcome perhaps").code, 2);
  EXPECT_EQ(Milwright("evidence show b_slice-cpuAndNeuralEngine").code, 2);
  EXPECT_THAT(Milwright("evidence show b_slice-cpuAndNeuralEngine --ledger " + ledger).text, HasSubstr("one run"));
  EXPECT_THAT(Milwright("evidence list --ledger " + ledger).text, HasSubstr("b_slice-cpuAndNeuralEngine-2"));
  const std::string check = "check " + Package("b_slice") + " --target ane-macos26";
  const Output with = Milwright(check + " --evidence " + ledger);
  EXPECT_THAT(with.text, HasSubstr("b_slice-cpuAndNeuralEngine (fail at predict 0x1d"));
  EXPECT_THAT(with.text, HasSubstr("b_slice-cpuAndNeuralEngine-2 (ok"));
  EXPECT_THAT(with.text, HasSubstr("equal in all features compared"));
  EXPECT_THAT(Milwright(check).text, ::testing::Not(HasSubstr("b_slice-cpuAndNeuralEngine")));
  EXPECT_EQ(Milwright(check + " --evidence " + ledger + " --evidence " + ledger).code, 3);  // ids repeat
}

// Accepted findings fail no more, new ones do, and what is mended is named.
TEST(CheckCli, Baseline) {
  const testing::TemporaryFolder folder;
  const std::string baseline = folder.Path("baseline.json");
  const Output written = Milwright("check --write-baseline " + baseline + " " + Aliased());
  EXPECT_EQ(written.code, 0) << written.text;
  EXPECT_THAT(written.text, HasSubstr("accepted from now on"));
  const Output accepted = Milwright("check --baseline " + baseline + " " + Aliased());
  EXPECT_EQ(accepted.code, 0) << accepted.text;
  EXPECT_THAT(accepted.text, HasSubstr("findings accepted by " + baseline));
  EXPECT_THAT(accepted.text, ::testing::Not(HasSubstr("MW205")));
  // Another package: its findings are new, and those of the baseline are gone.
  const std::string order = (testing::DataDir() / "state-semantics/T02.mlpackage").string();
  const Output other = Milwright("check --fail-on warning --baseline " + baseline + " " + order);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.text, HasSubstr("no longer found: MW205 in main at"));
  EXPECT_EQ(Milwright("check --baseline /no/such.json " + order).code, 3);
}

TEST(CheckCli, ConfigurationAroundThePackage) {
  const testing::TemporaryFolder folder;
  const std::string copy = folder.Path("models/Model.mlpackage");
  testing::CopyPackage(Aliased(), copy);
  EXPECT_EQ(Milwright("check " + copy).code, 1);
  testing::WriteAll(folder.Path("milwright.toml"), "[check]\ndisable = [\"MW205\"]\ntarget = \"cpu\"\n");
  const Output quiet = Milwright("check " + copy);
  EXPECT_EQ(quiet.code, 0) << quiet.text;
  EXPECT_THAT(quiet.text, HasSubstr("(target cpu)"));
  // The command line wins, and --config takes another file.
  EXPECT_THAT(Milwright("check --target gpu " + copy).text, HasSubstr("(target gpu)"));
  testing::WriteAll(folder.Path("strict.toml"), "[check.severity]\nMW205 = \"error\"\n");
  EXPECT_EQ(Milwright("check --config " + folder.Path("strict.toml") + " " + copy).code, 1);
  testing::WriteAll(folder.Path("milwright.toml"), "[check]\ntargt = 1\n");
  const Output wrong = Milwright("check " + copy);
  EXPECT_EQ(wrong.code, 3);
  EXPECT_THAT(wrong.text, HasSubstr("milwright.toml:2:1: [check] has no key 'targt'"));
}

TEST(CheckCli, FolderOfPackages) {
  const testing::TemporaryFolder folder;
  testing::CopyPackage(Aliased(), folder.Path("chunks/chunk_1.mlpackage"));
  testing::CopyPackage(Package("b_slice"), folder.Path("chunks/chunk_2.mlpackage"));
  testing::WriteAll(folder.Path("chunks/readme.txt"), "");
  const std::string chunks = folder.Path("chunks");
  const Output both = Milwright("check " + chunks);
  EXPECT_EQ(both.code, 1);
  EXPECT_THAT(both.text, HasSubstr("chunk_1.mlpackage: 1 errors"));
  EXPECT_THAT(both.text, HasSubstr("chunk_2.mlpackage: 0 errors"));
  const Output json = Milwright("check --json " + chunks);
  EXPECT_THAT(json.text, HasSubstr("\"packages\": ["));
  const std::string baseline = folder.Path("baseline.json");
  EXPECT_EQ(Milwright("check --write-baseline " + baseline + " " + chunks).code, 0);
  EXPECT_THAT(testing::ReadAll(baseline), HasSubstr("\"package\": \"chunk_1.mlpackage\""));
  EXPECT_EQ(Milwright("check --baseline " + baseline + " " + chunks).code, 0);
  EXPECT_EQ(Milwright("check --fix --in-place " + chunks).code, 2);
  EXPECT_EQ(Milwright("check " + folder.Path()).code, 3);  // no packages directly in it
}

}  // namespace
}  // namespace milwright
