#include "llm/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/sha256.h"
#include "format/safetensors.h"

namespace milwright {
namespace {

constexpr std::string_view kVersion = "1";
namespace fs = std::filesystem;

// "state.0.key_cache", "cache.2.conv_state_0": stage number and name.
std::map<std::string, Tensor> TensorsOf(const Pipeline::Snapshot& snapshot, Status* status) {
  std::map<std::string, Tensor> tensors;
  for (size_t stage = 0; stage < snapshot.states.size(); ++stage) {
    for (const std::string& name : snapshot.states[stage].names()) {
      auto value = snapshot.states[stage].Read(name);
      if (!value.ok()) {
        *status = value.status();
        return tensors;
      }
      tensors.emplace(fmt::format("state.{}.{}", stage, name), *std::move(value));
    }
    for (const auto& [name, value] : snapshot.caches[stage])
      tensors.emplace(fmt::format("cache.{}.{}", stage, name), value);
  }
  return tensors;
}

std::string Checksum(const std::map<std::string, Tensor>& tensors, const std::string& tokens) {
  Sha256 hash;
  hash.Update(std::string_view(tokens));
  for (const auto& [name, tensor] : tensors) {
    const std::string head = name + TypeToString(tensor.type());
    hash.Update(std::string_view(head));
    hash.Update(tensor.bytes());
  }
  return ToHex(hash.Finish());
}

std::string JoinTokens(std::span<const int64_t> tokens) { return fmt::format("{}", fmt::join(tokens, ",")); }

Result<std::vector<int64_t>> SplitTokens(const std::string& text, const std::string& path) {
  std::vector<int64_t> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    int64_t token = 0;
    const auto [rest, error] = std::from_chars(at, end, token);
    if (error != std::errc() || (rest != end && *rest != ',')) {
      return Status(ErrorCode::kUnreadable, path + ": the list of tokens is damaged");
    }
    tokens.push_back(token);
    at = rest == end ? end : rest + 1;
  }
  return tokens;
}

struct SnapshotFile {
  std::vector<int64_t> tokens;
  std::string identity;
  std::map<std::string, Tensor> tensors;
};

Result<SnapshotFile> ReadSnapshot(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::Open(path));
  const auto field = [&file](const char* name) {
    const auto it = file.metadata().find(name);
    return it != file.metadata().end() ? it->second : std::string();
  };
  if (field("milwright.snapshot") != kVersion) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: is no snapshot of version {}", path, kVersion));
  }
  SnapshotFile snapshot;
  snapshot.identity = field("build");
  MW_ASSIGN_OR_RETURN(snapshot.tokens, SplitTokens(field("tokens"), path));
  for (const std::string& name : file.Names()) {
    MW_ASSIGN_OR_RETURN(Tensor tensor, file.Load(name));
    snapshot.tensors.emplace(name, std::move(tensor));
  }
  if (Checksum(snapshot.tensors, field("tokens")) != field("sha256")) {
    return Status(ErrorCode::kUnreadable, path + ": the checksum does not match; the snapshot is damaged");
  }
  return snapshot;
}

}  // namespace

std::string BuildIdentity(const Pipeline& pipeline) {
  Sha256 hash;
  const std::string manifest = FormatManifest(pipeline.manifest());
  hash.Update(std::string_view(manifest));
  return ToHex(hash.Finish());
}

Status SaveSnapshot(const Session& session, const std::string& path) {
  MW_ASSIGN_OR_RETURN(const Session::Saved saved, session.Save());
  Status status;
  const std::map<std::string, Tensor> tensors = TensorsOf(saved.caches, &status);
  MW_RETURN_IF_ERROR(status);
  const std::string tokens = JoinTokens(saved.tokens);
  std::vector<SafetensorsEntry> entries;
  entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name, tensor.type(), [&tensor = tensor]() -> Result<Tensor> { return tensor; }});
  }
  return WriteSafetensors(path, entries,
                          {{"milwright.snapshot", std::string(kVersion)},
                           {"build", BuildIdentity(session.pipeline())},
                           {"tokens", tokens},
                           {"sha256", Checksum(tensors, tokens)}});
}

Status LoadSnapshot(Session& session, const std::string& path) {
  MW_ASSIGN_OR_RETURN(const SnapshotFile file, ReadSnapshot(path));
  const std::string identity = BuildIdentity(session.pipeline());
  if (file.identity != identity) {
    return {ErrorCode::kUsage, fmt::format("{}: was made by build {}, but this is build {}", path,
                                           file.identity.substr(0, 12), identity.substr(0, 12))};
  }
  // Into a copy first: a snapshot that does not fit must not leave the session half changed.
  MW_ASSIGN_OR_RETURN(Session::Saved saved, session.Save());
  for (const auto& [name, tensor] : file.tensors) {
    size_t stage = 0;
    const size_t first = name.find('.');
    const size_t second = name.find('.', first + 1);
    if (second == std::string::npos)
      return {ErrorCode::kUnreadable, fmt::format("{}: unknown tensor '{}'", path, name)};
    const auto [rest, error] = std::from_chars(name.data() + first + 1, name.data() + second, stage);
    if (error != std::errc() || rest != name.data() + second || stage >= saved.caches.states.size()) {
      return {ErrorCode::kUnreadable, fmt::format("{}: unknown tensor '{}'", path, name)};
    }
    const std::string feature = name.substr(second + 1);
    if (name.starts_with("state.")) {
      MW_RETURN_IF_ERROR(saved.caches.states[stage].Write(feature, tensor).WithContext(path));
      continue;
    }
    const auto it = saved.caches.caches[stage].find(feature);
    if (it == saved.caches.caches[stage].end() || !(it->second.type() == tensor.type())) {
      return {ErrorCode::kUnreadable, fmt::format("{}: the cache '{}' does not fit this build", path, feature)};
    }
    it->second = tensor;
  }
  saved.tokens = file.tokens;
  saved.caches.position = static_cast<int64_t>(file.tokens.size());
  return session.Restore(saved);
}

Result<SnapshotDifference> DiffSnapshots(const std::string& a, const std::string& b) {
  MW_ASSIGN_OR_RETURN(const SnapshotFile x, ReadSnapshot(a));
  MW_ASSIGN_OR_RETURN(const SnapshotFile y, ReadSnapshot(b));
  SnapshotDifference difference;
  const auto mismatch = std::ranges::mismatch(x.tokens, y.tokens);
  difference.common_tokens = static_cast<size_t>(mismatch.in1 - x.tokens.begin());
  for (const auto& [name, tensor] : x.tensors) {
    const auto it = y.tensors.find(name);
    if (it == y.tensors.end() || !tensor.BitEquals(it->second)) difference.tensors.push_back(name);
  }
  for (const auto& [name, tensor] : y.tensors) {
    if (!x.tensors.contains(name)) difference.tensors.push_back(name);
  }
  return difference;
}

Status PromptCache::Store(const Session& session) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return {ErrorCode::kIo, fmt::format("{}: {}", folder_, error.message())};
  Sha256 hash;
  const std::string key = BuildIdentity(session.pipeline()) + JoinTokens(session.tokens());
  hash.Update(std::string_view(key));
  MW_RETURN_IF_ERROR(SaveSnapshot(session, fmt::format("{}/{}.safetensors", folder_, ToHex(hash.Finish()))));
  struct Entry {
    fs::file_time_type used;
    fs::path path;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    if (file.path().extension() != ".safetensors") continue;
    const uint64_t bytes = file.file_size(error);
    entries.push_back({file.last_write_time(error), file.path(), bytes});
    total += bytes;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (total <= limit_) break;
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
  return Status::Ok();
}

Result<std::optional<size_t>> PromptCache::Load(Session& session, std::span<const int64_t> prompt) {
  const auto prefix = [prompt](const std::vector<int64_t>& tokens) {
    return static_cast<size_t>(std::ranges::mismatch(tokens, prompt).in1 - tokens.begin());
  };
  const std::string identity = BuildIdentity(session.pipeline());
  size_t best = prefix(session.tokens());
  fs::path chosen;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    if (file.path().extension() != ".safetensors") continue;
    const auto snapshot = ReadSnapshot(file.path());
    if (!snapshot.ok()) {
      fs::remove(file.path(), error);
      continue;
    }
    const bool whole = snapshot->identity == identity && prefix(snapshot->tokens) == snapshot->tokens.size();
    if (whole && snapshot->tokens.size() > best) {
      best = snapshot->tokens.size();
      chosen = file.path();
    }
  }
  if (chosen.empty()) return std::optional<size_t>();
  MW_RETURN_IF_ERROR(LoadSnapshot(session, chosen));
  fs::last_write_time(chosen, fs::file_time_type::clock::now(), error);  // used now
  return std::optional<size_t>(best);
}

}  // namespace milwright
