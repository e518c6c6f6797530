// The command line as a person meets it: help texts, exit codes, messages.
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "run_cli.h"
#include "support/files.h"
#include "support/test_util.h"

namespace milwright {
namespace {

using testing::DataDir;
using testing::FindAll;
using testing::Milwright;
using testing::Output;
using testing::Package;
using testing::TemporaryFolder;

std::vector<std::string> Verbs() {
  std::vector<std::string> verbs;
  std::istringstream help(Milwright("--help").text);
  bool listing = false;
  for (std::string line; std::getline(help, line);) {
    if (line.starts_with("Subcommands")) {
      listing = true;
    } else if (listing && line.starts_with("  ") && line[2] != ' ') {
      verbs.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
  }
  return verbs;
}

// tests/cli/help holds every help text. MILWRIGHT_UPDATE_HELP=1 writes them anew.
TEST(Cli, HelpTextsAreFrozen) {
  const std::filesystem::path folder = std::filesystem::path(MILWRIGHT_SOURCE_DIR) / "tests/cli/help";
  std::vector<std::pair<std::string, std::string>> texts = {{"milwright", Milwright("--help").text}};
  for (const std::string& verb : Verbs()) texts.emplace_back(verb, Milwright(verb + " --help").text);
  EXPECT_GE(texts.size(), 6U);
  for (const auto& [name, text] : texts) {
    const std::filesystem::path path = folder / (name + ".txt");
    if (std::getenv("MILWRIGHT_UPDATE_HELP") != nullptr) std::ofstream(path) << text;
    std::ifstream file(path);
    std::stringstream frozen;
    frozen << file.rdbuf();
    EXPECT_EQ(text, frozen.str()) << name;
    EXPECT_TRUE(name == "milwright" || text.find("Example:") != std::string::npos) << name;
  }
}

TEST(Cli, ExitCodes) {
  EXPECT_EQ(Milwright("--version").code, 0);
  EXPECT_EQ(Milwright("info " + Package("b_slice")).code, 0);
  EXPECT_EQ(Milwright("check " + Package("b_slice")).code, 0);
  EXPECT_EQ(Milwright("check " + (DataDir() / "state-semantics/T07.mlpackage").string()).code, 1);
  EXPECT_EQ(Milwright("").code, 2);
  EXPECT_EQ(Milwright("info").code, 2);
  EXPECT_EQ(Milwright("run " + Package("b_slice") + " --function nothing").code, 2);
  EXPECT_EQ(Milwright("info /no/such/Model.mlpackage").code, 3);
}

// A package rewritten, found equal, and told apart from another; what is refused leaves no package behind.
TEST(Cli, RewriteDiffEqual) {
  const testing::TemporaryFolder folder;
  const std::string out = folder.Path("out.mlpackage");
  const std::string in = Package("b_slice");
  const Output rewritten = Milwright("rewrite " + in + " -o " + out +
                                     " --pass common-subexpression-elimination --pass dead-code-elimination "
                                     "--verify-each --verify-equal --time-passes");
  EXPECT_EQ(rewritten.code, 0) << rewritten.text;
  EXPECT_NE(rewritten.text.find("equal over 16 steps"), std::string::npos) << rewritten.text;
  EXPECT_EQ(Milwright("equal " + in + " " + out).code, 0);
  EXPECT_EQ(Milwright("diff " + in + " " + in).text, "no difference\n");
  EXPECT_EQ(Milwright("diff " + in + " " + out).code, 1);
  EXPECT_EQ(Milwright("equal " + in + " " + Package("h_int4_block32") + " --steps 2").code, 1);
  EXPECT_EQ(Milwright("equal " + in + " " + Package("h_int4_block32") + " --steps 2 --atol 1").code, 0);
  EXPECT_EQ(Milwright("equal " + in + " " + out + " --input-kind nothing").code, 2);
  const std::string refused = folder.Path("refused.mlpackage");
  EXPECT_EQ(Milwright("rewrite " + in + " -o " + refused + " --pass extract-function=function:no").code, 1);
  EXPECT_EQ(Milwright("rewrite " + in + " -o " + refused + " --pass no-such-pass").code, 2);
  EXPECT_FALSE(std::filesystem::exists(refused));
}

// Every way to say where to cut, on a package built from a checkpoint of four layers.
TEST(Cli, SplitChunksOfABuiltPackage) {
  const std::filesystem::path checkpoint = testing::SharedDir() / "checkpoints/qwen3-tiny";
  if (!std::filesystem::exists(checkpoint)) GTEST_SKIP() << checkpoint << " is not there";
  const testing::TemporaryFolder folder;
  const Output built = Milwright("build " + checkpoint.string() + " -o " + folder.Path("built") +
                                 " --context-length 32 --no-hash --functions decode,prefill:4");
  ASSERT_EQ(built.code, 0) << built.text;
  const std::string package = folder.Path("built") + std::string("/model.mlpackage");
  struct Case {
    std::string options;
    std::vector<std::string> files;
  };
  const std::vector<Case> cases = {
      {"count:2", {"chunk_1of2.mlpackage", "chunk_2of2.mlpackage"}},
      {"layers:1+3", {"chunk_1of2.mlpackage", "chunk_2of2.mlpackage"}},
      {"bytes:450000", {"chunk_1of2.mlpackage", "chunk_2of2.mlpackage"}},
      {"count:2;embedding:true", {"chunk_1of2.mlpackage", "chunk_2of2.mlpackage", "embed_weight.bin"}}};
  for (const Case& c : cases) {
    const std::string out = folder.Path("chunks");
    const Output split = Milwright("rewrite " + package + " -o " + out + " --pass 'split-chunks=" + c.options + "'");
    EXPECT_EQ(split.code, 0) << c.options << ": " << split.text;
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(out)) files.push_back(entry.path().filename());
    std::ranges::sort(files);
    EXPECT_EQ(files, c.files) << c.options;
    for (const std::string& file : files) {
      if (!file.ends_with(".mlpackage")) continue;
      EXPECT_EQ(Milwright("info " + out + "/" + file).code, 0);
    }
    std::filesystem::remove_all(out);
  }
  EXPECT_EQ(Milwright("rewrite " + package + " -o " + folder.Path("chunks") + " --pass split-chunks=layers:1+1").code,
            1);
}

TEST(Cli, UnknownWordsGetASuggestion) {
  EXPECT_NE(Milwright("inof x").text.find("did you mean 'info'?"), std::string::npos);
  EXPECT_NE(Milwright("check " + Package("b_slice") + " --targt any").text.find("did you mean '--target'?"),
            std::string::npos);
  EXPECT_NE(Milwright("explain MW25").text.find("did you mean"), std::string::npos);
  EXPECT_NE(Milwright("explain " + Package("b_slice")).text.find("milwright check"), std::string::npos);
  EXPECT_EQ(Milwright("inof x").code, 2);
}

TEST(Cli, RunComparesWithGoldenSteps) {
  const std::string golden = (DataDir() / "packages/b_slice.npz").string();
  const Output close =
      Milwright("run " + Package("b_slice") + " --expect " + golden + " --atol 3e-3 --state-atol 4e-3");
  EXPECT_EQ(close.code, 0) << close.text;
  const Output exact = Milwright("run " + Package("b_slice") + " --expect " + golden);
  EXPECT_EQ(exact.code, 1);
  EXPECT_NE(exact.text.find("worst at ["), std::string::npos) << exact.text;
}

TEST(Cli, StatesGoInAndOut) {
  const TemporaryFolder own;
  const std::string folder = own.Path();
  const std::string golden = (DataDir() / "packages/a_accumulator.npz").string();
  const std::string run = "run " + Package("a_accumulator") + " --input " + golden;
  ASSERT_EQ(Milwright(run + " --steps 2 --state-out " + folder + "/two.npz --output " + folder + "/steps.npz").code, 0);
  // The recorded steps are their own golden, and the states after two steps continue the run.
  EXPECT_EQ(Milwright("run " + Package("a_accumulator") + " --expect " + folder + "/steps.npz").code, 0);
  EXPECT_EQ(Milwright("run " + Package("a_accumulator") + " --fill zero --state-in " + folder + "/two.npz").code, 0);
}

// Checkpoint to text: build, check, compress, verify, generate, and what each says when asked for nonsense.
TEST(Cli, FromCheckpointToText) {
  const TemporaryFolder own;
  const std::string folder = own.Path();
  const std::string example = std::string(MILWRIGHT_SOURCE_DIR) + "/examples/qwen3-jacobean";
  const Output built =
      Milwright("build " + example + " -o " + folder + "/a --functions decode,prefill:16 --context-length 256");
  ASSERT_EQ(built.code, 0) << built.text;
  EXPECT_EQ(Milwright("check --fail-on warning " + folder + "/a/model.mlpackage").code, 0);
  const std::string golden = " --golden " + example + "/golden.safetensors";
  EXPECT_EQ(Milwright("verify " + folder + "/a" + golden + " --atol 0.05").code, 0);
  EXPECT_EQ(Milwright("verify " + folder + "/a" + golden + " --atol 0.0001").code, 1);
  ASSERT_EQ(Milwright("compress " + folder + "/a -o " + folder + "/b --quantize lut4:group16").code, 0);
  EXPECT_EQ(
      Milwright("verify " + folder + "/b --tokens " + example + "/heldout.json --windows 2 --max-perplexity 40").code,
      0);
  EXPECT_EQ(Milwright("verify " + folder + "/b --against " + folder + "/a --min-cosine 0.9").code, 0);
  const Output text = Milwright("generate " + folder + "/a --prompt ROMEO: --greedy --max-tokens 5 --json");
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_NE(text.text.find("\"event\":\"end\""), std::string::npos) << text.text;
  EXPECT_EQ(Milwright("build " + example + " -o " + folder + "/c --state-layout pairs").code, 2);
  EXPECT_EQ(Milwright("build " + folder + " -o " + folder + "/c").code, 3);
  EXPECT_EQ(Milwright("compress " + folder + "/a -o " + folder + "/c --quantize int3").code, 2);
  EXPECT_EQ(Milwright("verify " + folder + "/a").code, 2);
}

TEST(Cli, JsonIsJson) {
  for (const std::string verb : {"info", "check"}) {
    const Output output = Milwright(verb + " --json " + Package("i_multifunction_int4"));
    EXPECT_EQ(output.code, 0);
    EXPECT_EQ(output.text.front(), '{');
    EXPECT_EQ(output.text.substr(output.text.size() - 2), "}\n");
  }
}

// Every format goes to stdout or to a file, whole or not at all, and never changes the exit code.
TEST(Cli, CheckWritesEveryFormat) {
  const testing::TemporaryFolder folder;
  const std::string package = (DataDir() / "state-semantics/T07.mlpackage").string();
  for (const auto& [format, start] : std::vector<std::pair<std::string, std::string>>{{"text", package},
                                                                                      {"json", "{"},
                                                                                      {"sarif", "{"},
                                                                                      {"github", "::error file="},
                                                                                      {"html", "<!DOCTYPE html>"}}) {
    const std::string check = "check " + package + " --format " + format;
    const Output printed = Milwright(check);
    EXPECT_EQ(printed.code, 1) << format;
    EXPECT_TRUE(printed.text.starts_with(start)) << printed.text.substr(0, 80);
    EXPECT_EQ(printed.text.find('\x1b'), std::string::npos) << "no colour but on a terminal: " << format;
    const std::string file = folder.Path("report." + format);
    const Output written = Milwright(check + " --output " + file);
    EXPECT_EQ(written.code, 1);
    EXPECT_NE(written.text.find(file), std::string::npos) << written.text;
    EXPECT_EQ(testing::ReadAll(file), printed.text) << format;
  }
  EXPECT_EQ(Milwright("check --json " + package).text, Milwright("check --format json " + package).text);
  EXPECT_EQ(Milwright("check --json --format html " + package).code, 2);
  EXPECT_EQ(Milwright("check --format pdf " + package).code, 2);
  EXPECT_EQ(Milwright("check --format html " + package + " -o " + folder.Path("no/such/folder.html")).code, 3);
}

}  // namespace
}  // namespace milwright
