// milwright.toml: every key, where it is looked for, and the place of every mistake.
#include "check/config.h"

#include <gmock/gmock.h>

#include "support/files.h"

namespace milwright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::TemporaryFolder;
using testing::WriteAll;

TEST(Config, EveryKey) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("milwright.toml");
  WriteAll(path, R"(
[check]
target = "ane-macos26"
fail-on = "warning"
disable = ["MW304", "state-count"]
severity = { MW217 = "error", wide-slice-update = "note" }
evidence = ["ours.json", "/abs/theirs.json"]
baseline = "ci/baseline.json"
)");
  const auto config = ReadConfig(path);
  ASSERT_OK(config);
  EXPECT_EQ(config->path, path);
  EXPECT_EQ(config->target, "ane-macos26");
  EXPECT_EQ(config->fail_on, Severity::kWarning);
  EXPECT_THAT(config->severities, ElementsAre(Pair("MW214", Severity::kNote), Pair("MW217", Severity::kError),
                                              Pair("MW219", Severity::kOff), Pair("MW304", Severity::kOff)));
  EXPECT_THAT(config->evidence, ElementsAre(folder.Path("ours.json"), "/abs/theirs.json"));
  EXPECT_EQ(config->baseline, folder.Path("ci/baseline.json"));
}

TEST(Config, EmptyFileSaysNothing) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("milwright.toml"), "# nothing yet\n");
  const auto config = ReadConfig(folder.Path("milwright.toml"));
  ASSERT_OK(config);
  EXPECT_FALSE(config->target.has_value());
  EXPECT_TRUE(config->severities.empty() && config->evidence.empty() && config->baseline.empty());
}

TEST(Config, MistakesHaveTheirPlace) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("milwright.toml");
  const auto message = [&path](std::string_view text) {
    WriteAll(path, text);
    const auto config = ReadConfig(path);
    EXPECT_EQ(config.status().code(), ErrorCode::kUnreadable) << text;
    const std::string& message = config.status().message();
    EXPECT_THAT(message, ::testing::StartsWith(path + ":"));
    return message.substr(std::min(path.size(), message.size()));
  };
  EXPECT_THAT(message("[check\n"), HasSubstr(":1:7: "));
  EXPECT_THAT(message("\n[chekc]\n"), HasSubstr(":2:2: 'chekc' is not known"));
  EXPECT_THAT(message("check = 1\n"), HasSubstr(":1:1: 'check' is not known"));
  EXPECT_THAT(message("[check]\ntarget = \"cpu\"\n  fail_on = \"note\"\n"),
              HasSubstr(":3:3: [check] has no key 'fail_on'"));
  EXPECT_THAT(message("[check]\ntarget = \"ane\"\n"), HasSubstr(":2:10: there is no target 'ane'"));
  EXPECT_THAT(message("[check]\ntarget = 26\n"), HasSubstr(":2:10: must be text"));
  EXPECT_THAT(message("[check]\nfail-on = \"off\"\n"), HasSubstr(":2:11: must be note, warning or error"));
  EXPECT_THAT(message("[check]\nfail-on = \"fatal\"\n"), HasSubstr(":2:11: 'fatal' is no severity"));
  EXPECT_THAT(message("[check]\ndisable = \"MW304\"\n"), HasSubstr(":2:11: must be a list"));
  EXPECT_THAT(message("[check]\ndisable = [\"MW304\", \"MW399\"]\n"), HasSubstr(":2:21: there is no rule 'MW399'"));
  EXPECT_THAT(message("[check]\nseverity = 1\n"), HasSubstr(":2:12: must be a table"));
  EXPECT_THAT(message("[check.severity]\nMW217 = \"bad\"\n"), HasSubstr(":2:9: 'bad' is no severity"));
  EXPECT_THAT(message("[check.severity]\nMW9 = \"off\"\n"), HasSubstr(":2:1: there is no rule 'MW9'"));
  EXPECT_THAT(message("[check]\nevidence = [1]\n"), HasSubstr(":2:13: must be text"));
  EXPECT_THAT(message("[check]\nbaseline = true\n"), HasSubstr(":2:12: must be text"));
}

TEST(Config, IsFoundAboveThePackage) {
  const TemporaryFolder folder;
  const std::string package = folder.Path("repository/models/a/Model.mlpackage");
  std::filesystem::create_directories(package);
  EXPECT_EQ(FindConfig(package, false), "");
  WriteAll(folder.Path("milwright.toml"), "");
  EXPECT_EQ(FindConfig(package, false), folder.Path("milwright.toml"));
  std::filesystem::create_directories(folder.Path("repository/.git"));
  EXPECT_EQ(FindConfig(package, false), "");  // not beyond the repository
  WriteAll(folder.Path("repository/milwright.toml"), "");
  EXPECT_EQ(FindConfig(package, false), folder.Path("repository/milwright.toml"));
  WriteAll(folder.Path("repository/models/a/milwright.toml"), "");
  EXPECT_EQ(FindConfig(package + "/", false), folder.Path("repository/models/a/milwright.toml"));
  EXPECT_EQ(FindConfig(folder.Path("repository/models/a/"), true), folder.Path("repository/models/a/milwright.toml"));
  EXPECT_EQ(FindConfig(folder.Path("repository/models"), true), folder.Path("repository/milwright.toml"));
}

}  // namespace
}  // namespace milwright
