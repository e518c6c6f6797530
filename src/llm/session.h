// Session: a conversation that keeps what its caches already hold. A new prompt resumes at the longest common prefix
// wherever the caches can go back to it.
#ifndef MILWRIGHT_LLM_SESSION_H_
#define MILWRIGHT_LLM_SESSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llm/pipeline.h"
#include "milwright/status.h"
#include "tokenizer/sampler.h"
#include "tokenizer/tokenizer.h"

namespace milwright {

/// How a prompt was taken up.
struct PromptReport {
  int64_t prompt = 0;      ///< tokens of the prompt
  int64_t reused = 0;      ///< taken from the caches or a snapshot
  int64_t recomputed = 0;  ///< run anew, of which some may have been in the caches already
  bool from_snapshot = false;
  std::string why;  ///< when less than the common prefix was reused: the cache that could not go back
};

class Session {
 public:
  explicit Session(std::unique_ptr<Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  [[nodiscard]] Pipeline& pipeline() { return *pipeline_; }
  [[nodiscard]] const Pipeline& pipeline() const { return *pipeline_; }
  /// The tokens that the caches hold.
  [[nodiscard]] const std::vector<int64_t>& tokens() const { return tokens_; }

  /// Called between calls of a prefill with the tokens done and the tokens to do; false stops it.
  using Progress = std::function<bool(int64_t done, int64_t total)>;

  /// Makes the caches hold exactly `prompt` and gives the result of its last call. Reuses the longest common prefix
  /// with what they hold, or with a snapshot; at least the last token is run. On error, or when `progress` stops it
  /// (kRuntime), the session holds what had been run and goes on from there. kUsage: empty, or longer than the context.
  Result<StepResult> SetPrompt(std::span<const int64_t> prompt, PromptReport* report = nullptr,
                               const Progress& progress = {});
  /// Runs one more token.
  Result<StepResult> Append(int64_t token);

  /// Runs `draft` behind what is held, all in as few calls as the functions allow, and keeps the longest prefix that
  /// greedy decoding would have chosen. Gives the accepted count and the token to follow. The caches end behind the
  /// accepted tokens, by rewinding, or by running them again where they cannot go back.
  struct Verified {
    int64_t accepted = 0;
    int64_t next = 0;
  };
  /// `expected_first`: what greedy decoding gives for the first place (from the result before).
  Result<Verified> VerifyDraft(std::span<const int64_t> draft, int64_t expected_first);

  /// Keeps the caches as they are now, to come back to (the newest eight are kept; nothing where all caches can go back
  /// to any position). Cheap: unchanged parts are shared.
  Status Remember();
  /// Forgets tokens, caches and snapshots.
  Status Reset();

  /// What a snapshot file holds; see snapshot.h.
  struct Saved {
    std::vector<int64_t> tokens;
    Pipeline::Snapshot caches;
  };
  Result<Saved> Save() const;
  Status Restore(const Saved& saved);

 private:
  Result<StepResult> Run(std::span<const int64_t> tokens, const Progress& progress, int64_t done, int64_t total);
  Status Resume(std::span<const int64_t> prompt, PromptReport& report);
  [[nodiscard]] bool GoesBackAnywhere() const;

  std::unique_ptr<Pipeline> pipeline_;
  std::vector<int64_t> tokens_;
  std::vector<Saved> snapshots_;
};

/// The continuation that the text so far suggests: the tokens behind the last earlier place where its final `n` tokens
/// stand (prompt lookup). Empty when there is none.
std::vector<int64_t> PromptLookupDraft(std::span<const int64_t> tokens, size_t n, size_t length);

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<std::string> stop;  ///< ends the text before any of these
  std::vector<int64_t> eos;       ///< besides the manifest's
  bool ignore_eos = false;
  std::vector<LogitsProcessor> processors;
};

enum class FinishReason : uint8_t { kLength, kEos, kStopString, kCancelled, kContextFull };
std::string_view FinishReasonName(FinishReason reason);

struct GenerateResult {
  std::vector<int64_t> tokens;  ///< generated, the end token included
  std::string text;             ///< without special tokens and without the stop string
  FinishReason finish = FinishReason::kLength;
  PromptReport prompt;
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

/// Called with each piece of text that is certain; false cancels.
using OnText = std::function<bool(const std::string& piece)>;

/// Runs `prompt` through the session and generates. The session stays usable whatever happens.
Result<GenerateResult> Generate(Session& session, const Tokenizer& tokenizer, std::span<const int64_t> prompt,
                                const GenerateOptions& options, const OnText& on_text = {},
                                const Session::Progress& progress = {});

}  // namespace milwright

#endif  // MILWRIGHT_LLM_SESSION_H_
