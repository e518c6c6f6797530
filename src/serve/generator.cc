#include "serve/generator.h"

namespace milwright {

Answer::Outcome Answer::Wait(std::chrono::milliseconds timeout, std::string& text) {
  std::unique_lock guard(mutex_);
  changed_.wait_for(guard, timeout, [this] { return !text_.empty() || outcome_ != Outcome::kNone; });
  text += text_;
  text_.clear();
  return outcome_;
}

void Answer::Finish(Outcome outcome, GenerateResult result, Status status) {
  {
    const std::lock_guard guard(mutex_);
    outcome_ = outcome;
    result_ = std::move(result);
    status_ = std::move(status);
  }
  changed_.notify_all();
}

Generator::Generator(const Tokenizer& tokenizer, SessionPool& sessions, size_t parallel, size_t queue_limit)
    : tokenizer_(tokenizer), sessions_(sessions), queue_limit_(queue_limit) {
  for (size_t i = 0; i < parallel; ++i) threads_.emplace_back([this] { Work(); });
}

Generator::~Generator() {
  BeginShutdown();
  Abort();
  for (std::thread& thread : threads_) thread.join();
}

Generator::Refusal Generator::Submit(std::shared_ptr<Answer> answer) {
  {
    const std::lock_guard guard(mutex_);
    if (shutting_down_) return Refusal::kShuttingDown;
    // One that finds an idle thread does not wait.
    const size_t idle = threads_.size() - running_;
    if (queue_.size() >= queue_limit_ + idle) return Refusal::kQueueFull;
    queue_.push_back(std::move(answer));
  }
  changed_.notify_all();
  return Refusal::kNone;
}

void Generator::BeginShutdown() {
  std::deque<std::shared_ptr<Answer>> waiting;
  {
    const std::lock_guard guard(mutex_);
    shutting_down_ = true;
    waiting.swap(queue_);
  }
  changed_.notify_all();
  for (const std::shared_ptr<Answer>& answer : waiting) answer->Finish(Answer::Outcome::kShutDown, {}, {});
}

bool Generator::Drain(std::chrono::milliseconds timeout) {
  std::unique_lock guard(mutex_);
  return changed_.wait_for(guard, timeout, [this] { return running_ == 0 && queue_.empty(); });
}

size_t Generator::queued() const {
  const std::lock_guard guard(mutex_);
  return queue_.size();
}

size_t Generator::running() const {
  const std::lock_guard guard(mutex_);
  return running_;
}

void Generator::Work() {
  for (;;) {
    std::shared_ptr<Answer> answer;
    {
      std::unique_lock guard(mutex_);
      changed_.wait(guard, [this] { return !queue_.empty() || shutting_down_; });
      if (queue_.empty()) return;
      answer = std::move(queue_.front());
      queue_.pop_front();
      ++running_;
    }
    Make(*answer);
    {
      const std::lock_guard guard(mutex_);
      --running_;
    }
    changed_.notify_all();
  }
}

void Generator::Make(Answer& answer) {
  using Outcome = Answer::Outcome;
  if (answer.cancelled_) return answer.Finish(Outcome::kCancelled, {}, {});
  auto session = sessions_.Take(answer.prompt_);
  if (!session.ok()) return answer.Finish(Outcome::kFailed, {}, session.status());
  const auto wanted = [&] { return !answer.cancelled_ && !abort_; };
  auto result = Generate(
      **session, tokenizer_, answer.prompt_, answer.options_,
      [&](const std::string& piece) {
        {
          const std::lock_guard guard(answer.mutex_);
          answer.text_ += piece;
        }
        answer.changed_.notify_all();
        return wanted();
      },
      [&](int64_t, int64_t) { return wanted(); });
  const bool ended_early = !wanted() && (!result.ok() || result->finish == FinishReason::kCancelled);
  if (!result.ok() && !ended_early) {
    // Whatever went wrong, the next conversation shall not start from it.
    sessions_.Drop(*std::move(session));
    return answer.Finish(Outcome::kFailed, {}, result.status());
  }
  sessions_.Return(*std::move(session));
  if (ended_early) {
    return answer.Finish(answer.cancelled_ ? Outcome::kCancelled : Outcome::kShutDown, {}, {});
  }
  answer.Finish(Outcome::kFinished, *std::move(result), {});
}

}  // namespace milwright
