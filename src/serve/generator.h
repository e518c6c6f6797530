// The queue of a server: answers wait in it, and a fixed number of threads makes them.
#ifndef MILWRIGHT_SERVE_GENERATOR_H_
#define MILWRIGHT_SERVE_GENERATOR_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "llm/session.h"
#include "serve/session_pool.h"
#include "tokenizer/tokenizer.h"

namespace milwright {

/// An answer: waiting, in the making, or made. One thread makes it, another takes its text.
class Answer {
 public:
  enum class Outcome : uint8_t {
    kNone,       ///< not made yet
    kFinished,   ///< result() is whole
    kCancelled,  ///< by Cancel()
    kShutDown,   ///< the server stopped before it was whole
    kFailed,     ///< status() says why
  };

  Answer(std::vector<int64_t> prompt, GenerateOptions options)
      : prompt_(std::move(prompt)), options_(std::move(options)) {}

  /// Waits until there is text, or the outcome, for at most `timeout`. Appends the text made since the last call, whole
  /// characters, to `text`.
  Outcome Wait(std::chrono::milliseconds timeout, std::string& text);
  /// Asks for the end; it comes at the next token, or when the answer's turn comes.
  void Cancel() { cancelled_ = true; }

  /// Once there is an outcome.
  [[nodiscard]] const GenerateResult& result() const { return result_; }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  friend class Generator;
  void Finish(Outcome outcome, GenerateResult result, Status status);

  const std::vector<int64_t> prompt_;
  const GenerateOptions options_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  Outcome outcome_ = Outcome::kNone;
  GenerateResult result_;
  Status status_;
};

/// Makes answers, `parallel` at a time, in the order in which they were submitted.
class Generator {
 public:
  Generator(const Tokenizer& tokenizer, SessionPool& sessions, size_t parallel, size_t queue_limit);
  /// Cancels what is left.
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  enum class Refusal : uint8_t { kNone, kQueueFull, kShuttingDown };
  /// Puts an answer into the queue, unless it is full or the generator is shutting down.
  Refusal Submit(std::shared_ptr<Answer> answer);

  /// Takes no more answers; those that wait end as kShutDown, those in the making go on.
  void BeginShutdown();
  /// After BeginShutdown: waits until the answers in the making are made, or `timeout`. Whether none is left.
  bool Drain(std::chrono::milliseconds timeout);
  /// Ends the answers in the making as kShutDown, at their next token.
  void Abort() { abort_ = true; }

  [[nodiscard]] size_t queued() const;
  [[nodiscard]] size_t running() const;

 private:
  void Work();
  void Make(Answer& answer);

  const Tokenizer& tokenizer_;
  SessionPool& sessions_;
  const size_t queue_limit_;
  std::atomic<bool> abort_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Answer>> queue_;
  size_t running_ = 0;
  bool shutting_down_ = false;
  std::vector<std::thread> threads_;  // last: they use what is above
};

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_GENERATOR_H_
