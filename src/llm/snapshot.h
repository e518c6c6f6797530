// Snapshots of sessions on disk: the caches of all packages with the tokens they hold.
#ifndef MILWRIGHT_LLM_SNAPSHOT_H_
#define MILWRIGHT_LLM_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/session.h"

namespace milwright {

/// What ties a snapshot to a build: SHA-256 of its manifest (which carries the checkpoint's hash and all options) and
/// of the types of its caches.
std::string BuildIdentity(const Pipeline& pipeline);

/// Writes what `session` holds to `path` (a .safetensors file: a tensor for each state and cache, metadata with the
/// format's version, the tokens, the build's identity and a SHA-256 of the tensors). Written beside and renamed: an
/// interrupted write leaves the old file whole.
Status SaveSnapshot(const Session& session, const std::string& path);

/// Brings `session` to what `path` holds. kUnreadable: no snapshot, another version, or a checksum that does not match;
/// kUsage: made by another build, both identities named. The session is unchanged on error.
Status LoadSnapshot(Session& session, const std::string& path);

/// Where two snapshots differ.
struct SnapshotDifference {
  size_t common_tokens = 0;
  std::vector<std::string> tensors;  ///< names of tensors whose bytes differ or that only one has
};
Result<SnapshotDifference> DiffSnapshots(const std::string& a, const std::string& b);

/// A folder of snapshots by prompt, least recently used ones deleted beyond `limit_bytes`.
class PromptCache {
 public:
  PromptCache(std::string folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_(limit_bytes) {}

  /// Stores what the session holds, then deletes the least recently used files until the limit holds.
  Status Store(const Session& session);
  /// Loads the snapshot of this build with the longest tokens that are a prefix of `prompt`, if it is longer than what
  /// the session shares with `prompt` already; returns the number of its tokens. Damaged files are deleted.
  Result<std::optional<size_t>> Load(Session& session, std::span<const int64_t> prompt);

 private:
  std::string folder_;
  uint64_t limit_;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_SNAPSHOT_H_
