// Which session takes up a prompt.
#include "serve/session_pool.h"

#include "serve/shared_engine.h"
#include "small_build.h"
#include "support/test_util.h"

namespace milwright {
namespace {

std::vector<int64_t> Tokens(int64_t first, size_t count, std::vector<int64_t> prefix = {}) {
  for (size_t i = 0; i < count; ++i) prefix.push_back(first + static_cast<int64_t>(i));
  return prefix;
}

class SessionPoolTest : public ::testing::Test {
 protected:
  // Runs `prompt` in the session that takes it up; returns that session, which is idle again, and what it reused.
  std::pair<const Session*, int64_t> Run(const std::vector<int64_t>& prompt) {
    auto session = pool_.Take(prompt);
    EXPECT_OK(session);
    PromptReport report;
    EXPECT_OK((*session)->SetPrompt(prompt, &report));
    const Session* address = session->get();
    pool_.Return(*std::move(session));
    return {address, report.reused};
  }
  int opened_ = 0;
  SessionPool pool_{testing::SmallBuild(), ShareEngines([this](const std::string& path) {
                      ++opened_;
                      return ReferenceEngine()(path);
                    }),
                    2};
};

TEST_F(SessionPoolTest, ConversationsGoOnAndTheOldestMakesRoom) {
  const std::vector<int64_t> a = Tokens(100, 10);
  const std::vector<int64_t> b = Tokens(200, 10);
  const auto [first, none] = Run(a);
  EXPECT_EQ(none, 0);
  const auto [second, still_none] = Run(b);
  EXPECT_NE(first, second);
  EXPECT_EQ(still_none, 0);
  // Both go on where they were.
  EXPECT_EQ(Run(Tokens(110, 5, a)), std::pair(first, int64_t{10}));
  EXPECT_EQ(Run(Tokens(210, 5, b)), std::pair(second, int64_t{10}));
  // A third conversation: the first session was not used for longest.
  EXPECT_EQ(Run(Tokens(300, 10)), std::pair(first, int64_t{0}));
  EXPECT_EQ(pool_.live(), 2U);
  EXPECT_EQ(pool_.taken(), 0U);
  EXPECT_EQ(opened_, 1) << "sessions share the package";
}

TEST_F(SessionPoolTest, ASharedStartIsCopied) {
  const std::vector<int64_t> system = Tokens(100, 12);
  const auto [first, none] = Run(Tokens(300, 20, system));
  const auto [second, reused] = Run(Tokens(400, 4, system));
  EXPECT_NE(first, second) << "most of what the first session holds is another conversation";
  EXPECT_EQ(reused, 12);
  // The first conversation is whole.
  EXPECT_EQ(Run(Tokens(320, 1, Tokens(300, 20, system))), std::pair(first, int64_t{32}));
}

TEST_F(SessionPoolTest, TakenSessionsAreNotShared) {
  auto a = pool_.Take(Tokens(1, 3));
  auto b = pool_.Take(Tokens(1, 3));
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_NE(a->get(), b->get());
  EXPECT_EQ(pool_.Take(Tokens(1, 3)).status().code(), ErrorCode::kRuntime);
  pool_.Drop(*std::move(a));
  EXPECT_EQ(pool_.live(), 1U);
  EXPECT_OK(pool_.Take(Tokens(1, 3)));
}

}  // namespace
}  // namespace milwright
