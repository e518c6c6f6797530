// The live sessions of a server: which of them takes up a prompt.
#ifndef MILWRIGHT_SERVE_SESSION_POOL_H_
#define MILWRIGHT_SERVE_SESSION_POOL_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "llm/session.h"

namespace milwright {

/// At most `limit` sessions over one built folder. A session belongs to no client: a conversation is found again by the
/// tokens that it shares with what a session holds. All methods may be called by several threads.
class SessionPool {
 public:
  /// `loader` should share packages (ShareEngines).
  SessionPool(std::string folder, EngineLoader loader, size_t limit)
      : folder_(std::move(folder)), loader_(std::move(loader)), limit_(limit) {}

  /// A session for `prompt`, the caller's until it is returned:
  ///  - the idle one with the longest common prefix, when that is at least half of what it holds: the same conversation
  ///    going on, or changed near its end;
  ///  - else a new one, or, when `limit` are live, the idle one that was not used for the longest time, emptied. If an
  ///    idle session shares a longer prefix (a system message, say), the new one starts from a copy of it.
  /// kRuntime: all sessions are taken; errors of opening the folder.
  Result<std::unique_ptr<Session>> Take(std::span<const int64_t> prompt);
  /// Gives a session back, with whatever it holds now.
  void Return(std::unique_ptr<Session> session);
  /// Takes note that a taken session was destroyed instead of returned.
  void Drop(std::unique_ptr<Session> session);

  /// Sessions, idle and taken.
  [[nodiscard]] size_t live() const;
  [[nodiscard]] size_t taken() const;

 private:
  using Idle = std::list<std::unique_ptr<Session>>;
  std::unique_ptr<Session> Unlink(Idle::iterator at);
  Result<std::unique_ptr<Session>> Fresh();

  std::string folder_;
  EngineLoader loader_;
  size_t limit_;
  mutable std::mutex mutex_;
  Idle idle_;  ///< least recently used first
  size_t taken_ = 0;
};

}  // namespace milwright

#endif  // MILWRIGHT_SERVE_SESSION_POOL_H_
