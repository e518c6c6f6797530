// Snapshots of sessions on disk: what comes back, what is refused, and what a kill leaves.
#include "llm/snapshot.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file_io.h"
#include "sessions.h"
#include "support/kill_at.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

class SnapshotTest : public ::testing::Test {
 protected:
  static std::string Example() { return std::string(MILWRIGHT_SOURCE_DIR) + "/examples/qwen3-jacobean"; }
  void SetUp() override {
    BuildOptions options;
    options.checkpoint = Example();
    options.output = folder_.path();
    options.functions = *ParseFunctions("decode,prefill:8");
    options.context_length = 64;
    options.durable = false;
    options.hash_checkpoint = false;
    ASSERT_OK(BuildCheckpoint(options));
  }
  TemporaryFolder folder_;
};

TEST_F(SnapshotTest, SnapshotsComeBackAndForeignOnesAreRefused) {
  const auto session = OpenSession(folder_.path());
  const std::vector<int64_t> prompt = {49, 46, 44, 36, 46, 320};
  const auto first = session->SetPrompt(prompt);
  ASSERT_OK(first);
  const std::string path = folder_.path() + "/a.safetensors";
  ASSERT_OK(SaveSnapshot(*session, path));
  const auto other = OpenSession(folder_.path());
  ASSERT_OK(LoadSnapshot(*other, path));
  EXPECT_EQ(other->tokens(), prompt);
  const auto x = session->Append(40);
  const auto y = other->Append(40);
  ASSERT_OK(x);
  ASSERT_OK(y);
  EXPECT_EQ(x->logits, y->logits);
  const auto difference = DiffSnapshots(path, path);
  ASSERT_OK(difference);
  EXPECT_TRUE(difference->tensors.empty());

  // A damaged file, and one of another build.
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  bytes[bytes.size() - 1] = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(folder_.path() + "/b.safetensors", std::ios::binary) << bytes;
  const Status damaged = LoadSnapshot(*other, folder_.path() + "/b.safetensors");
  EXPECT_NE(damaged.message().find("checksum"), std::string::npos) << damaged.message();
  TemporaryFolder elsewhere;
  BuildOptions options;
  options.checkpoint = Example();
  options.output = elsewhere.path();
  options.context_length = 128;
  options.durable = false;
  ASSERT_OK(BuildCheckpoint(options));
  const auto foreign = OpenSession(elsewhere.path());
  const Status refused = LoadSnapshot(*foreign, path);
  EXPECT_EQ(refused.code(), ErrorCode::kUsage);
  EXPECT_NE(refused.message().find("was made by build"), std::string::npos);
  EXPECT_TRUE(foreign->tokens().empty());
}

TEST_F(SnapshotTest, PromptCacheKeepsTheMostRecentlyUsed) {
  const std::string folder = folder_.path() + "/cache";
  const auto session = OpenSession(folder_.path());
  ASSERT_OK(session->SetPrompt(std::vector<int64_t>{49, 46, 44}));
  PromptCache unlimited(folder, uint64_t{1} << 30);
  ASSERT_OK(unlimited.Store(*session));
  const uint64_t one = std::filesystem::file_size(std::filesystem::directory_iterator(folder)->path());
  ASSERT_OK(session->SetPrompt(std::vector<int64_t>{36, 46, 320, 40}));
  PromptCache small(folder, one + one / 2);
  ASSERT_OK(small.Store(*session));
  const auto fresh = OpenSession(folder_.path());
  EXPECT_FALSE(small.Load(*fresh, std::vector<int64_t>{49, 46, 44, 1})->has_value());
  EXPECT_EQ(small.Load(*fresh, std::vector<int64_t>{36, 46, 320, 40, 7})->value_or(0), 4U);
  EXPECT_EQ(fresh->tokens().size(), 4U);
}

TEST_F(SnapshotTest, LoadingCountsAsUse) {
  const std::string folder = folder_.path() + "/cache";
  const auto session = OpenSession(folder_.path());
  PromptCache cache(folder, uint64_t{1} << 30);
  const std::vector<std::vector<int64_t>> prompts = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_OK(session->SetPrompt(prompts[i]));
    ASSERT_OK(cache.Store(*session));
  }
  const uint64_t one = std::filesystem::file_size(std::filesystem::directory_iterator(folder)->path());
  const auto fresh = OpenSession(folder_.path());
  EXPECT_EQ(cache.Load(*fresh, std::vector<int64_t>{1, 2, 3, 4})->value_or(0), 3U);
  ASSERT_OK(session->SetPrompt(prompts[2]));
  PromptCache two(folder, 2 * one + one / 2);
  ASSERT_OK(two.Store(*session));
  const auto other = OpenSession(folder_.path());
  EXPECT_FALSE(two.Load(*other, std::vector<int64_t>{4, 5, 6, 1})->has_value()) << "the least recently used one";
  EXPECT_EQ(two.Load(*other, std::vector<int64_t>{1, 2, 3, 4})->value_or(0), 3U);
  // A damaged file is no more than a miss, and goes.
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::filesystem::resize_file(file.path(), file.file_size() / 2);
  }
  const auto third = OpenSession(folder_.path());
  EXPECT_FALSE(two.Load(*third, std::vector<int64_t>{1, 2, 3, 4})->has_value());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// SIGKILL at every system call of a write: the old snapshot loads, or the new one.
TEST_F(SnapshotTest, AKilledWriteLeavesTheOldOrTheNewOne) {
  const std::vector<int64_t> old_tokens = {49, 46, 44, 36};
  const std::vector<int64_t> new_tokens = {49, 46, 44, 36, 46, 320};
  const auto session = OpenSession(folder_.path());
  const auto reader = OpenSession(folder_.path());
  ASSERT_OK(session->SetPrompt(old_tokens));
  const std::string path = folder_.path() + "/snapshot.safetensors";
  ASSERT_OK(SaveSnapshot(*session, path));
  const std::string old_bytes = *ReadFile(path, uint64_t{1} << 30);
  ASSERT_OK(session->SetPrompt(new_tokens));
  int old_ones = 0;
  int new_ones = 0;
  for (int stop = 1;; stop += 2) {
    ASSERT_LT(stop, 2000);
    SCOPED_TRACE(stop);
    const End end = RunAndKill([&] { return SaveSnapshot(*session, path).ok(); }, stop);
    if (end == End::kNoTracing) GTEST_SKIP() << "ptrace is not allowed here";
    ASSERT_NE(end, End::kFailed);
    ASSERT_OK(LoadSnapshot(*reader, path));
    const bool is_old = reader->tokens() == old_tokens;
    ASSERT_EQ(reader->tokens(), is_old ? old_tokens : new_tokens);
    ++(is_old ? old_ones : new_ones);
    if (end == End::kFinished) {
      EXPECT_FALSE(is_old);
      break;
    }
    if (!is_old) ASSERT_OK(WriteFileAtomically(path, old_bytes));
  }
  std::printf("killed at %d places: %d times the old snapshot, %d times the new one\n", old_ones + new_ones - 1,
              old_ones, new_ones);
  EXPECT_GT(old_ones, 3);
}

}  // namespace
}  // namespace milwright::testing
