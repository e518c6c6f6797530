// Resuming, drafts and cancelling, against fresh sessions.
#include "llm/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "llm/families.h"
#include "sessions.h"
#include "support/test_util.h"

namespace milwright::testing {
namespace {

BuildOptions Options(const std::string& checkpoint, const std::string& output, bool states) {
  BuildOptions options;
  options.checkpoint = checkpoint;
  options.output = output;
  options.layout = *ParseLayout(states ? "kv-pair" : "explicit-io");
  options.functions = *ParseFunctions("decode:1,prefill:4");
  options.context_length = 64;  // the golden's length; phi3 chooses its rotary factors by it
  options.compute = DataType::kFp32;
  options.durable = false;
  options.hash_checkpoint = false;
  return options;
}

class SessionTest : public ::testing::TestWithParam<std::string> {};

// Random edits of a transcript: whatever a session resumed from, its logits are those of a fresh one.
TEST_P(SessionTest, ResumedEqualsFresh) {
  const std::string checkpoint = FindCheckpoint(GetParam());
  if (checkpoint.empty()) GTEST_SKIP() << GetParam() << " is not there";
  constexpr uint64_t kSeed = 20261130;
  // Explicit fp32 caches; fp16 states; rings, where the model has a window. A reused prefix may have been run by calls
  // of other lengths: in fp32 that is within the bound of golden logits. In fp16 states a sum that differs in its last
  // bits may round the other way, which moves the logits no more than rounding does at all (checkpoints/README.md:
  // 1.2e-2 for K and V alone; both sessions may be off).
  struct Variant {
    const char* layout;
    const char* update;
    double bound;
  };
  std::vector<Variant> variants = {{"explicit-io", "slice", Fp32Bound(GetParam())}, {"kv-pair", "slice", 2.4e-2}};
  const auto plan = ReadModelPlan(checkpoint + "/config.json", 64);
  ASSERT_TRUE(plan.ok());
  if (plan->HasSliding()) variants.push_back({"by-role", "ring", 2.4e-2});
  for (const Variant& variant : variants) {
    std::mt19937_64 random(kSeed);
    const TemporaryFolder folder;
    BuildOptions options = Options(checkpoint, folder.path(), false);
    options.layout = *ParseLayout(variant.layout);
    options.update = *ParseUpdate(variant.update);
    const auto built = BuildCheckpoint(options);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const auto resumed = OpenSession(folder.path());
    const auto fresh = OpenSession(folder.path());
    const auto vocabulary = static_cast<uint64_t>(resumed->pipeline().manifest().vocabulary);
    std::vector<int64_t> transcript;
    int64_t reused = 0;
    int64_t explained = 0;
    for (int turn = 0; turn < 8; ++turn) {
      const uint64_t kind = turn == 0 ? 0 : random() % 4;
      if (kind == 1) {  // change in the middle
        transcript[random() % transcript.size()] = static_cast<int64_t>(random() % vocabulary);
      } else if (kind == 2) {  // truncate
        transcript.resize(1 + random() % transcript.size());
      }
      const uint64_t room = 60 - std::min<uint64_t>(transcript.size(), 60);
      const uint64_t added = kind == 3 ? 0 : std::min<uint64_t>(1 + random() % 9, room);  // 3: the same again
      for (uint64_t i = 0; i < added; ++i) transcript.push_back(static_cast<int64_t>(random() % vocabulary));
      const std::vector<int64_t> held = resumed->tokens();
      const auto common = std::ranges::mismatch(held, transcript).in1 - held.begin();
      PromptReport report;
      const auto a = resumed->SetPrompt(transcript, &report);
      ASSERT_TRUE(a.ok()) << a.status().message();
      ASSERT_TRUE(resumed->Remember().ok());
      ASSERT_TRUE(fresh->Reset().ok());
      const auto b = fresh->SetPrompt(transcript);
      ASSERT_TRUE(b.ok());
      reused += report.reused;
      EXPECT_EQ(report.reused + report.recomputed, report.prompt);
      // Less than the common prefix is never reused in silence.
      if (report.reused < std::min<int64_t>(common, report.prompt - 1)) {
        EXPECT_FALSE(report.why.empty());
        ++explained;
      }
      const std::vector<float> x = LastRow(*a);
      const std::vector<float> y = LastRow(*b);
      double error = 0;
      for (size_t i = 0; i < x.size(); ++i) error = std::max(error, std::abs(static_cast<double>(x[i]) - y[i]));
      EXPECT_LE(error, variant.bound) << variant.layout << " turn " << turn << " kind " << kind << " seed " << kSeed;
    }
    EXPECT_GT(reused, 0) << variant.layout;
    std::printf("%-18s %-11s %-5s: %ld tokens reused, %ld of 8 turns could not go back\n", GetParam().c_str(),
                variant.layout, variant.update, static_cast<long>(reused), static_cast<long>(explained));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, SessionTest, ::testing::ValuesIn(CheckpointNames()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Rewind, IsDecidedFromTheProgram) {
  const auto kinds = [](const std::string& name, const char* update) {
    std::vector<CacheRewind::Kind> found;
    const std::string checkpoint = FindCheckpoint(name);
    if (checkpoint.empty()) return found;
    const TemporaryFolder folder;
    BuildOptions options = Options(checkpoint, folder.path(), true);
    if (update != nullptr) options.update = *ParseUpdate(update);
    if (update != nullptr) options.layout = *ParseLayout("by-role");
    const auto built = BuildCheckpoint(options);
    EXPECT_TRUE(built.ok()) << built.status().message();
    const auto session = OpenSession(folder.path());
    for (const CacheRewind& rewind : session->pipeline().cache_rewinds()) found.push_back(rewind.kind);
    return found;
  };
  if (FindCheckpoint("llama-tiny").empty()) GTEST_SKIP() << "the checkpoints are not there";
  using Kind = CacheRewind::Kind;
  EXPECT_EQ(kinds("llama-tiny", nullptr), (std::vector<Kind>{Kind::kAnywhere, Kind::kAnywhere}));
  const auto has = [](const std::vector<Kind>& found, Kind kind) {
    return std::count(found.begin(), found.end(), kind) > 0;
  };
  EXPECT_TRUE(has(kinds("gemma3-tiny", "ring"), Kind::kRing));
  EXPECT_TRUE(has(kinds("gemma3-tiny", "shift"), Kind::kNever));
  EXPECT_TRUE(has(kinds("lfm2-tiny", nullptr), Kind::kNever));
}

// ---- the trained example, which ships with the project ----

class Jacobean : public ::testing::Test {
 protected:
  static std::string Example() { return std::string(MILWRIGHT_SOURCE_DIR) + "/examples/qwen3-jacobean"; }
  void Build(const std::string& chunks = "1", const std::string& layout = "kv-pair",
             DataType compute = DataType::kFp16) {
    BuildOptions options;
    options.layout = *ParseLayout(layout);
    options.compute = compute;
    options.checkpoint = Example();
    options.output = folder_.path();
    options.functions = *ParseFunctions("decode,prefill:8");
    options.chunks = *ParseChunks(chunks);
    options.context_length = 256;
    options.durable = false;
    const auto built = BuildCheckpoint(options);
    ASSERT_TRUE(built.ok()) << built.status().message();
  }
  TemporaryFolder folder_;
};

/// Predictions so far, and which of them fails (0: none).
struct Predictions {
  int count = 0;
  int failing = 0;
};

/// An engine that counts its predictions, and fails when told to.
class WatchedEngine : public PackageEngine {
 public:
  WatchedEngine(std::unique_ptr<PackageEngine> engine, Predictions& predictions)
      : engine_(std::move(engine)), predictions_(predictions) {}
  Result<State> MakeState() override { return engine_->MakeState(); }
  [[nodiscard]] const ModelSpec& spec() const override { return engine_->spec(); }
  Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) override {
    if (++predictions_.count == predictions_.failing) return Status(ErrorCode::kRuntime, "told to fail");
    return engine_->Predict(function, inputs, state);
  }

 private:
  std::unique_ptr<PackageEngine> engine_;
  Predictions& predictions_;
};

EngineLoader Watch(Predictions& predictions) {
  return [&predictions](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    auto engine = ReferenceEngine()(path);
    if (!engine.ok()) return engine.status();
    return std::unique_ptr<PackageEngine>(std::make_unique<WatchedEngine>(*std::move(engine), predictions));
  };
}

// A prediction that fails, whichever it is, leaves a session that holds what its tokens say.
TEST_P(SessionTest, AFailedPredictionLeavesTheSessionConsistent) {
  const std::string checkpoint = FindCheckpoint(GetParam());
  if (checkpoint.empty()) GTEST_SKIP() << GetParam() << " is not there";
  const TemporaryFolder folder;
  BuildOptions options = Options(checkpoint, folder.path(), true);
  options.chunks.count = 2;
  const auto built = BuildCheckpoint(options);
  ASSERT_TRUE(built.ok()) << built.status().message();
  const std::vector<int64_t> prompt = {5, 9, 2, 7, 33, 5, 9, 11, 3, 20, 6};
  const auto fresh = OpenSession(folder.path());
  const auto wanted = fresh->SetPrompt(prompt);
  ASSERT_OK(wanted);
  for (int failing = 1; failing < 40; failing += 3) {
    SCOPED_TRACE(failing);
    Predictions predictions;
    const auto session = OpenSession(folder.path(), Watch(predictions));
    ASSERT_OK(session->SetPrompt(std::span(prompt).first(3)));
    predictions = {0, failing};
    const auto failed = session->SetPrompt(prompt);
    if (predictions.count < failing) {
      EXPECT_OK(failed);
      break;
    }
    EXPECT_FALSE(failed.ok());
    const std::vector<int64_t>& held = session->tokens();
    EXPECT_EQ(session->pipeline().position(), static_cast<int64_t>(held.size()));
    EXPECT_TRUE(std::equal(held.begin(), held.end(), prompt.begin()));
    // As in ResumedEqualsFresh: calls of other lengths, on fp16 states.
    const auto resumed = session->SetPrompt(prompt);
    ASSERT_OK(resumed);
    const std::vector<float> x = LastRow(*resumed);
    const std::vector<float> y = LastRow(*wanted);
    double error = 0;
    for (size_t i = 0; i < x.size(); ++i) error = std::max(error, std::abs(static_cast<double>(x[i]) - y[i]));
    EXPECT_LE(error, 2.4e-2);
  }
}

/// The first `count` greedy ids behind `prompt`.
std::vector<int64_t> Greedy(const std::string& folder, const std::vector<int64_t>& prompt, int count) {
  const auto session = OpenSession(folder);
  auto step = session->SetPrompt(prompt);
  std::vector<int64_t> greedy;
  for (int i = 0; i < count; ++i) {
    EXPECT_OK(step);
    greedy.push_back(ArgMax(LastRow(*step)));
    step = session->Append(greedy.back());
  }
  return greedy;
}

TEST_F(Jacobean, DraftsAreAcceptedAsGreedyWouldChoose) {
  Build();
  const auto prompt = ReadJson(Example() + "/golden.json").at("greedy").at(0).at("ids").get<std::vector<int64_t>>();
  const std::vector<int64_t> greedy = Greedy(folder_.path(), prompt, 12);
  Predictions predictions;
  const auto session = OpenSession(folder_.path(), Watch(predictions));
  const auto first = session->SetPrompt(prompt);
  ASSERT_OK(first);
  // Eight tokens are one call of the prefill function; the fifth is wrong.
  std::vector<int64_t> draft(greedy.begin(), greedy.begin() + 8);
  draft[4] = (draft[4] + 1) % 1024;
  predictions.count = 0;
  const auto verified = session->VerifyDraft(draft, ArgMax(LastRow(*first)));
  ASSERT_OK(verified);
  EXPECT_EQ(predictions.count, 1);
  EXPECT_EQ(verified->accepted, 4);
  EXPECT_EQ(verified->next, greedy[4]);
  EXPECT_EQ(session->tokens().size(), prompt.size() + 4);
  // What was rolled back is as if it had never been.
  const auto all = session->VerifyDraft(std::span(greedy).subspan(4, 8), verified->next);
  ASSERT_OK(all);
  EXPECT_EQ(all->accepted, 8);
  EXPECT_EQ(predictions.count, 2);
}

TEST(PromptLookup, TakesTheLastPlaceWhereTheTextStood) {
  const std::vector<int64_t> text = {1, 2, 3, 9, 2, 3, 7, 8, 1, 2, 3};
  EXPECT_EQ(PromptLookupDraft(text, 2, 4), (std::vector<int64_t>{7, 8, 1, 2}));
  EXPECT_EQ(PromptLookupDraft(text, 3, 2), (std::vector<int64_t>{9, 2}));
  EXPECT_EQ(PromptLookupDraft(text, 4, 2), std::vector<int64_t>());
  EXPECT_EQ(PromptLookupDraft(text, 0, 2), std::vector<int64_t>());
  EXPECT_EQ(PromptLookupDraft({}, 1, 2), std::vector<int64_t>());
}

// Where caches cannot go back, the accepted tokens are run again.
TEST_P(SessionTest, DraftsRollBack) {
  const std::string checkpoint = FindCheckpoint(GetParam());
  if (checkpoint.empty()) GTEST_SKIP() << GetParam() << " is not there";
  const TemporaryFolder folder;
  const auto built = BuildCheckpoint(Options(checkpoint, folder.path(), false));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const std::vector<int64_t> prompt = {5, 9, 2, 7, 33, 5, 9};
  const std::vector<int64_t> greedy = Greedy(folder.path(), prompt, 8);
  const auto session = OpenSession(folder.path());
  const auto first = session->SetPrompt(prompt);
  ASSERT_OK(first);
  std::vector<int64_t> draft(greedy.begin(), greedy.begin() + 4);
  draft[2] = draft[2] == 0 ? 1 : 0;
  const auto verified = session->VerifyDraft(draft, ArgMax(LastRow(*first)));
  ASSERT_OK(verified);
  EXPECT_EQ(verified->accepted, 2);
  EXPECT_EQ(verified->next, greedy[2]);
  EXPECT_EQ(session->pipeline().position(), static_cast<int64_t>(prompt.size()) + 2);
  const auto rest = session->VerifyDraft(std::span(greedy).subspan(2, 4), verified->next);
  ASSERT_OK(rest);
  EXPECT_EQ(rest->accepted, 4);
  EXPECT_EQ(rest->next, greedy[6]);
}

TEST_F(Jacobean, CancellingLeavesTheSessionUsable) {
  Build();
  const auto tokenizer = Tokenizer::Load(folder_.path());
  ASSERT_OK(tokenizer);
  const auto session = OpenSession(folder_.path());
  std::vector<int64_t> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(i * 13 % 1000);
  const auto stopped = session->SetPrompt(prompt, nullptr, [](int64_t done, int64_t) { return done < 16; });
  EXPECT_FALSE(stopped.ok());
  EXPECT_EQ(session->tokens(), std::vector<int64_t>(prompt.begin(), prompt.begin() + 16));
  PromptReport report;
  const auto resumed = session->SetPrompt(prompt, &report);
  ASSERT_OK(resumed);
  EXPECT_EQ(report.reused, 16);
  GenerateOptions options;
  options.max_tokens = 50;
  int pieces = 0;
  const auto result =
      Generate(*session, *tokenizer, prompt, options, [&pieces](const std::string&) { return ++pieces < 3; });
  ASSERT_OK(result);
  EXPECT_EQ(result->finish, FinishReason::kCancelled);
  EXPECT_FALSE(session->SetPrompt(std::vector<int64_t>(300, 1)).ok());
  EXPECT_OK(session->SetPrompt(prompt));
}

}  // namespace
}  // namespace milwright::testing
