#include "llm/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "tokenizer/stop_strings.h"

namespace milwright {
namespace {

constexpr size_t kMaxSnapshots = 8;

size_t CommonPrefix(std::span<const int64_t> a, std::span<const int64_t> b) {
  const auto [x, y] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(x - a.begin());
}

// The longest call that the bodies' functions allow.
int64_t LongestFunction(const Manifest& manifest) {
  int64_t longest = 1;
  for (const ManifestStage& stage : manifest.stages) {
    for (const ManifestFunction& function : stage.functions) {
      longest = std::max(longest, function.length == kUnknownDim ? manifest.context_length : function.length);
    }
  }
  return longest;
}

}  // namespace

Result<StepResult> Session::Run(std::span<const int64_t> tokens, const Progress& progress, int64_t done,
                                int64_t total) {
  StepResult last;
  const auto step = static_cast<size_t>(LongestFunction(pipeline_->manifest()));
  for (size_t i = 0; i < tokens.size(); i += step) {
    if (progress && !progress(done + static_cast<int64_t>(i), total)) {
      return Status(ErrorCode::kRuntime, "cancelled");
    }
    const auto part = tokens.subspan(i, std::min(step, tokens.size() - i));
    // A call that fails half way may have updated some caches and not others. Where all go back anywhere, what was
    // written beyond the position does no harm, and there is nothing to copy.
    std::optional<Pipeline::Snapshot> before;
    if (!GoesBackAnywhere()) {
      MW_ASSIGN_OR_RETURN(before, pipeline_->Save());
    }
    auto result = pipeline_->Prefill(part);
    if (!result.ok() && before.has_value()) MW_RETURN_IF_ERROR(pipeline_->Restore(*before));
    const auto run = pipeline_->position() - static_cast<int64_t>(tokens_.size());
    tokens_.insert(tokens_.end(), part.begin(), part.begin() + run);
    if (!result.ok()) return result.status();
    last = *std::move(result);
  }
  if (progress) progress(total, total);
  return last;
}

// Brings the caches to the longest prefix of `prompt` that they can hold without running anything.
Status Session::Resume(std::span<const int64_t> prompt, PromptReport& report) {
  // The last token is run in any case: its logits are wanted.
  const size_t common = std::min(CommonPrefix(tokens_, prompt), prompt.size() - 1);
  if (pipeline_->CanRewind(static_cast<int64_t>(common))) {
    MW_RETURN_IF_ERROR(pipeline_->Rewind(static_cast<int64_t>(common)));
    tokens_.resize(common);
    return Status::Ok();
  }
  report.why = pipeline_->Rewind(static_cast<int64_t>(common)).message();
  const Saved* best = nullptr;
  for (const Saved& snapshot : snapshots_) {
    const bool fits =
        snapshot.tokens.size() <= common && CommonPrefix(snapshot.tokens, prompt) == snapshot.tokens.size();
    if (fits && (best == nullptr || snapshot.tokens.size() > best->tokens.size())) best = &snapshot;
  }
  if (best != nullptr) {
    report.from_snapshot = true;
    return Restore(Saved(*best));
  }
  MW_RETURN_IF_ERROR(pipeline_->Reset());
  tokens_.clear();
  return Status::Ok();
}

Result<StepResult> Session::SetPrompt(std::span<const int64_t> prompt, PromptReport* report, const Progress& progress) {
  if (prompt.empty()) return Status(ErrorCode::kUsage, "the prompt has no tokens");
  const int64_t context = pipeline_->manifest().context_length;
  if (static_cast<int64_t>(prompt.size()) > context) {
    return Status(ErrorCode::kUsage,
                  fmt::format("the prompt of {} tokens does not fit the context of {}", prompt.size(), context));
  }
  PromptReport own;
  own.prompt = static_cast<int64_t>(prompt.size());
  MW_RETURN_IF_ERROR(Resume(prompt, own));
  own.reused = static_cast<int64_t>(tokens_.size());
  own.recomputed = own.prompt - own.reused;
  if (report != nullptr) *report = own;
  pipeline_->SetLogitRows(LogitRows::kLast);
  return Run(prompt.subspan(tokens_.size()), progress, own.reused, own.prompt);
}

Result<StepResult> Session::Append(int64_t token) { return Run(std::span(&token, 1), {}, 0, 1); }

Result<Session::Verified> Session::VerifyDraft(std::span<const int64_t> draft, int64_t expected_first) {
  const std::vector<int64_t> before = tokens_;
  std::optional<Saved> saved;
  if (!GoesBackAnywhere()) {
    MW_ASSIGN_OR_RETURN(saved, Save());
  }
  const auto undo = [&] {
    return saved.has_value() ? Restore(*saved) : pipeline_->Rewind(static_cast<int64_t>(before.size()));
  };
  pipeline_->SetLogitRows(LogitRows::kAll);
  const auto outcome = pipeline_->Prefill(draft);
  if (!outcome.ok()) {
    MW_RETURN_IF_ERROR(undo());
    return outcome.status();
  }
  const StepResult& result = *outcome;
  const auto rows = static_cast<size_t>(result.logit_rows);
  if (rows != draft.size()) {
    MW_RETURN_IF_ERROR(undo());
    return Status(ErrorCode::kPrecondition, "verifying a draft needs logits for every token of a call");
  }
  const size_t width = result.logits.size() / rows;
  Verified verified{0, expected_first};
  for (size_t i = 0; i < draft.size() && draft[i] == verified.next; ++i) {
    const auto row = std::span(result.logits).subspan(i * width, width);
    verified.next = std::ranges::max_element(row) - row.begin();
    ++verified.accepted;
  }
  const auto kept = static_cast<int64_t>(before.size()) + verified.accepted;
  if (pipeline_->CanRewind(kept)) {
    MW_RETURN_IF_ERROR(pipeline_->Rewind(kept));
    tokens_ = before;
    tokens_.insert(tokens_.end(), draft.begin(), draft.begin() + static_cast<std::ptrdiff_t>(verified.accepted));
    return verified;
  }
  MW_RETURN_IF_ERROR(undo());
  MW_RETURN_IF_ERROR(Run(draft.first(static_cast<size_t>(verified.accepted)), {}, 0, 1));
  return verified;
}

bool Session::GoesBackAnywhere() const {
  return std::ranges::all_of(pipeline_->cache_rewinds(),
                             [](const CacheRewind& rewind) { return rewind.kind == CacheRewind::Kind::kAnywhere; });
}

Status Session::Remember() {
  if (GoesBackAnywhere()) return Status::Ok();
  MW_ASSIGN_OR_RETURN(Saved saved, Save());
  std::erase_if(snapshots_, [&saved](const Saved& other) { return other.tokens == saved.tokens; });
  snapshots_.push_back(std::move(saved));
  if (snapshots_.size() > kMaxSnapshots) snapshots_.erase(snapshots_.begin());
  return Status::Ok();
}

Status Session::Reset() {
  tokens_.clear();
  snapshots_.clear();
  return pipeline_->Reset();
}

Result<Session::Saved> Session::Save() const {
  MW_ASSIGN_OR_RETURN(Pipeline::Snapshot caches, pipeline_->Save());
  return Saved{tokens_, std::move(caches)};
}

Status Session::Restore(const Saved& saved) {
  MW_RETURN_IF_ERROR(pipeline_->Restore(saved.caches));
  tokens_ = saved.tokens;
  return Status::Ok();
}

std::vector<int64_t> PromptLookupDraft(std::span<const int64_t> tokens, size_t n, size_t length) {
  if (n == 0 || tokens.size() <= n) return {};
  const auto tail = tokens.last(n);
  for (size_t start = tokens.size() - n; start-- > 0;) {
    if (!std::ranges::equal(tokens.subspan(start, n), tail)) continue;
    const auto rest = tokens.subspan(start + n);
    return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(length, rest.size()))};
  }
  return {};
}

std::string_view FinishReasonName(FinishReason reason) {
  constexpr std::string_view kNames[] = {"length", "eos", "stop", "cancelled", "context"};
  return kNames[static_cast<size_t>(reason)];
}

namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The next token from what a step gave: sampled from the last row of logits, or the head's own choice.
Result<int64_t> Choose(Sampler& sampler, const StepResult& step, const std::vector<int32_t>& ids, bool greedy) {
  if (step.logits.empty()) {
    if (step.next_token.has_value() && greedy) return *step.next_token;
    if (step.top_tokens.empty()) {
      return Status(ErrorCode::kPrecondition,
                    "the build's head gives the best token only; sampling needs --head logits or topk");
    }
    // A top-k head: everything else is out of the question.
    std::vector<float> logits(step.top_logits);
    MW_ASSIGN_OR_RETURN(const int32_t chosen, sampler.Sample(logits, {}));
    return step.top_tokens[static_cast<size_t>(chosen)];
  }
  const size_t width = step.logits.size() / static_cast<size_t>(std::max<int64_t>(step.logit_rows, 1));
  MW_ASSIGN_OR_RETURN(const int32_t id, sampler.Sample(std::span(step.logits).last(width), ids));
  return static_cast<int64_t>(id);
}

}  // namespace

Result<GenerateResult> Generate(Session& session, const Tokenizer& tokenizer, std::span<const int64_t> prompt,
                                const GenerateOptions& options, const OnText& on_text,
                                const Session::Progress& progress) {
  GenerateResult result;
  MW_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(options.sampling));
  for (const LogitsProcessor& processor : options.processors) sampler.AddProcessor(processor);
  const Manifest& manifest = session.pipeline().manifest();
  const auto start = Clock::now();
  MW_ASSIGN_OR_RETURN(StepResult step, session.SetPrompt(prompt, &result.prompt, progress));
  result.prompt_seconds = Since(start);
  MW_RETURN_IF_ERROR(session.Remember());

  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  StreamDecoder decoder(tokenizer, true);
  MW_ASSIGN_OR_RETURN(StopStrings stop, StopStrings::Create(options.stop));
  bool cancelled = false;
  const auto emit = [&](const std::string& text) {
    result.text += text;
    if (!text.empty() && on_text && !on_text(text)) cancelled = true;
  };
  const auto is_end = [&](int64_t token) {
    return !options.ignore_eos && (std::ranges::find(manifest.eos_ids, token) != manifest.eos_ids.end() ||
                                   std::ranges::find(options.eos, token) != options.eos.end());
  };
  const auto decode_start = Clock::now();
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    MW_ASSIGN_OR_RETURN(const int64_t token, Choose(sampler, step, ids, options.sampling.temperature == 0));
    result.tokens.push_back(token);
    ids.push_back(static_cast<int32_t>(token));
    if (is_end(token)) {
      result.finish = FinishReason::kEos;
      break;
    }
    MW_ASSIGN_OR_RETURN(const std::string piece, decoder.Push(static_cast<int32_t>(token)));
    emit(stop.Push(piece));
    if (stop.stopped().has_value() || cancelled) {
      result.finish = cancelled ? FinishReason::kCancelled : FinishReason::kStopString;
      break;
    }
    if (static_cast<int64_t>(result.tokens.size()) == options.max_tokens) break;
    if (session.pipeline().position() >= manifest.context_length) {
      result.finish = FinishReason::kContextFull;
      break;
    }
    MW_ASSIGN_OR_RETURN(step, session.Append(token));
  }
  if (!stop.stopped().has_value()) {
    MW_ASSIGN_OR_RETURN(const std::string rest, decoder.Finish());
    emit(stop.Push(rest));
    if (!stop.stopped().has_value()) emit(stop.Finish());
  }
  result.decode_seconds = Since(decode_start);
  return result;
}

}  // namespace milwright
