#include "check/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/file_io.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxBaselineBytes = uint64_t{64} << 20;
constexpr std::string_view kBaselineFormat = "milwright-baseline";
constexpr int kBaselineVersion = 1;

struct Field {
  const char* key;
  std::string BaselineEntry::*member;
};
constexpr std::array<Field, 4> kFields = {{{"package", &BaselineEntry::package},
                                           {"rule", &BaselineEntry::rule},
                                           {"function", &BaselineEntry::function},
                                           {"place", &BaselineEntry::place}}};

// "main/op 205 'scores' (matmul)" without the 205, which an op added in front would change.
std::string WithoutNumbers(std::string_view path) {
  constexpr std::string_view kOp = "op ";
  std::string stable;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool starts_word = i == 0 || path[i - 1] == '/';
    if (starts_word && path.substr(i).starts_with(kOp)) {
      size_t end = i + kOp.size();
      while (end < path.size() && std::isdigit(static_cast<unsigned char>(path[end])) != 0) ++end;
      if (path.substr(end).starts_with(" '")) {
        stable += "op";
        i = end - 1;
        continue;
      }
    }
    stable += path[i];
  }
  return stable;
}

Result<BaselineEntry> ReadEntry(const OrderedJson& json, const std::string& place) {
  BaselineEntry entry;
  if (!json.is_object()) return Status(ErrorCode::kUnreadable, place + ": must be an object");
  for (const Field& field : kFields) {
    const auto it = json.find(field.key);
    if (it == json.end()) continue;
    if (!it->is_string()) return Status(ErrorCode::kUnreadable, fmt::format("{}: '{}' must be text", place, field.key));
    entry.*field.member = it->get<std::string>();
  }
  if (FindRule(entry.rule) == nullptr) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: there is no rule '{}'", place, entry.rule));
  }
  return entry;
}

}  // namespace

BaselineEntry EntryFor(const Finding& finding, std::string_view package) {
  const Location& location = finding.location;
  return {std::string(package), finding.id, location.function,
          !location.value.empty() ? location.value : WithoutNumbers(location.op_path)};
}

Baseline::Baseline(std::vector<BaselineEntry> entries) : entries_(std::move(entries)) {
  std::ranges::sort(entries_);
  entries_.erase(std::unique(entries_.begin(), entries_.end()), entries_.end());
}

bool Baseline::Accepts(const Finding& finding, std::string_view package) const {
  return std::ranges::binary_search(entries_, EntryFor(finding, package)) ||
         std::ranges::binary_search(entries_, EntryFor(finding));
}

std::vector<BaselineEntry> Baseline::Stale(std::span<const Finding> findings, std::string_view package) const {
  std::vector<BaselineEntry> met;
  for (const Finding& finding : findings) met.push_back(EntryFor(finding));
  std::ranges::sort(met);
  std::vector<BaselineEntry> stale;
  for (const BaselineEntry& entry : entries_) {
    if (!entry.package.empty() && entry.package != package) continue;
    BaselineEntry key = entry;
    key.package.clear();
    if (!std::ranges::binary_search(met, key)) stale.push_back(entry);
  }
  return stale;
}

Result<Baseline> ReadBaseline(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBaselineBytes));
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", OrderedJson()) != OrderedJson(kBaselineFormat)) {
    return Status(ErrorCode::kUnreadable, path + ": no baseline; write one with `milwright check --write-baseline`");
  }
  if (json.value("version", OrderedJson()) != OrderedJson(kBaselineVersion)) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: only version {} is read", path, kBaselineVersion));
  }
  const OrderedJson findings = json.value("findings", OrderedJson());
  if (!findings.is_array()) return Status(ErrorCode::kUnreadable, path + ": 'findings' must be a list");
  std::vector<BaselineEntry> entries;
  for (const OrderedJson& entry : findings) {
    MW_ASSIGN_OR_RETURN(BaselineEntry read, ReadEntry(entry, fmt::format("{}: finding {}", path, entries.size())));
    entries.push_back(std::move(read));
  }
  return Baseline(std::move(entries));
}

Status WriteBaseline(const Baseline& baseline, const std::string& path) {
  OrderedJson findings = OrderedJson::array();
  for (const BaselineEntry& entry : baseline.entries()) {
    OrderedJson json = OrderedJson::object();
    for (const Field& field : kFields) {
      if (!(entry.*field.member).empty()) json[field.key] = entry.*field.member;
    }
    findings.push_back(std::move(json));
  }
  const OrderedJson file = {
      {"format", kBaselineFormat}, {"version", kBaselineVersion}, {"findings", std::move(findings)}};
  return WriteFileAtomically(path, file.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace milwright
