#include "serve/session_pool.h"

#include <algorithm>

namespace milwright {
namespace {

// Copying a session's caches pays from about this many tokens on; shorter common prefixes (the chat template's first
// tokens) are run again.
constexpr size_t kCopiedPrefix = 8;

size_t CommonPrefix(std::span<const int64_t> a, std::span<const int64_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

std::unique_ptr<Session> SessionPool::Unlink(Idle::iterator at) {
  std::unique_ptr<Session> session = std::move(*at);
  idle_.erase(at);
  ++taken_;
  return session;
}

// A session that holds nothing: one that does so already, a new one, or the least recently used one.
Result<std::unique_ptr<Session>> SessionPool::Fresh() {
  const auto empty = std::ranges::find_if(idle_, [](const auto& session) { return session->tokens().empty(); });
  if (empty != idle_.end()) return Unlink(empty);
  if (idle_.size() + taken_ < limit_) {
    MW_ASSIGN_OR_RETURN(std::unique_ptr<Pipeline> pipeline, Pipeline::Open(folder_, loader_));
    ++taken_;
    return std::make_unique<Session>(std::move(pipeline));
  }
  if (idle_.empty()) return Status(ErrorCode::kRuntime, "all sessions are in use");
  MW_RETURN_IF_ERROR(idle_.front()->Reset());
  return Unlink(idle_.begin());
}

Result<std::unique_ptr<Session>> SessionPool::Take(std::span<const int64_t> prompt) {
  const std::lock_guard guard(mutex_);
  auto best = idle_.end();
  size_t common = 0;
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    const size_t shared = CommonPrefix((*it)->tokens(), prompt);
    if (shared > common) {
      common = shared;
      best = it;
    }
  }
  if (best == idle_.end()) return Fresh();
  if (2 * common >= (*best)->tokens().size()) return Unlink(best);
  if (common < kCopiedPrefix) return Fresh();
  MW_ASSIGN_OR_RETURN(const Session::Saved copy, (*best)->Save());
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Fresh());
  if (const Status status = session->Restore(copy); !status.ok()) {
    --taken_;
    return status;
  }
  return session;
}

void SessionPool::Return(std::unique_ptr<Session> session) {
  const std::lock_guard guard(mutex_);
  --taken_;
  idle_.push_back(std::move(session));
}

void SessionPool::Drop(std::unique_ptr<Session> session) {
  session.reset();
  const std::lock_guard guard(mutex_);
  --taken_;
}

size_t SessionPool::live() const {
  const std::lock_guard guard(mutex_);
  return idle_.size() + taken_;
}

size_t SessionPool::taken() const {
  const std::lock_guard guard(mutex_);
  return taken_;
}

}  // namespace milwright
