// The server without its protocol: endpoints as functions from a request to a reply.
#ifndef MILWRIGHT_SERVE_SERVICE_H_
#define MILWRIGHT_SERVE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/pipeline.h"
#include "milwright/status.h"
#include "serve/generator.h"
#include "serve/openai.h"
#include "serve/session_pool.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace milwright {

struct ServiceOptions {
  size_t sessions = 8;              ///< conversations whose caches are kept
  size_t parallel = 2;              ///< answers in the making at a time, taking turns call by call; at most `sessions`
  size_t queue = 64;                ///< answers that may wait; more are refused with 429
  int64_t max_tokens_limit = 4096;  ///< requests for more tokens get this many
};

/// Whether the client is still there. Asked some twenty times a second while it waits.
using IsConnected = std::function<bool()>;

/// Gives the next events of a stream, or nothing at its end. Blocks until there are some.
using NextEvents = std::function<std::optional<std::string>()>;

struct Reply {
  int status = 200;
  std::string body;     ///< JSON; unless `events` is set
  int retry_after = 0;  ///< seconds; 0: no such header
  std::string allow;    ///< with 405: the method that the path has
  NextEvents events;    ///< server-sent events instead of a body
};

/// Serves one built folder. All methods may be called by several threads.
class Service {
 public:
  /// Opens the folder, its tokenizer and (if there is one) its chat template. kUsage: options out of range.
  static Result<std::unique_ptr<Service>> Open(const std::string& folder, const EngineLoader& loader,
                                               const ServiceOptions& options);

  /// Answers a request. A completion that is not streamed is waited for; when `is_connected` says no, it is cancelled,
  /// and the reply is for nobody. The reply's events hold on to the service and to `is_connected`.
  Reply Handle(std::string_view method, std::string_view path, std::string_view body, const IsConnected& is_connected);

  /// An endpoint's method and path.
  struct Route {
    std::string_view method;
    std::string_view path;
    Reply (Service::*handle)(std::string_view body, const IsConnected& is_connected);
  };
  static std::span<const Route> Routes();
  static Reply Error(const ApiError& error);

  /// From now on completions are refused with 503; those that wait are ended, those in the making go on.
  void BeginShutdown() {
    generator_->BeginShutdown();
    shutting_down_ = true;
  }
  /// Waits until no answer is in the making; whether that came within `timeout`.
  bool Drain(std::chrono::milliseconds timeout) { return generator_->Drain(timeout); }
  /// Ends the answers in the making at their next token.
  void Abort() { generator_->Abort(); }

  [[nodiscard]] const std::string& model_name() const { return model_; }
  [[nodiscard]] const ServiceOptions& options() const { return options_; }
  [[nodiscard]] const SessionPool& sessions() const { return *sessions_; }
  [[nodiscard]] const Generator& generator() const { return *generator_; }

 private:
  Service(Manifest manifest, Tokenizer tokenizer, std::string model, const ServiceOptions& options);

  Reply Health(std::string_view body, const IsConnected& is_connected);
  Reply Models(std::string_view body, const IsConnected& is_connected);
  Reply Tokenize(std::string_view body, const IsConnected& is_connected);
  Reply Detokenize(std::string_view body, const IsConnected& is_connected);
  Reply Completions(std::string_view body, const IsConnected& is_connected);
  Reply ChatCompletions(std::string_view body, const IsConnected& is_connected);

  Reply Complete(CompletionRequest request, std::vector<int64_t> prompt, bool chat, const std::string& echo,
                 const IsConnected& is_connected);
  ApiResult<std::vector<int64_t>> Encode(const std::string& text, bool special, const char* param) const;

  const Manifest manifest_;
  const Tokenizer tokenizer_;
  const std::string model_;
  const ServiceOptions options_;
  const int64_t created_;
  std::optional<ChatTemplate> template_;
  std::string template_error_;
  std::unique_ptr<SessionPool> sessions_;
  std::unique_ptr<Generator> generator_;  // behind what it uses
  std::atomic<uint64_t> next_id_ = 1;
  std::atomic<bool> shutting_down_ = false;
};

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_SERVICE_H_
