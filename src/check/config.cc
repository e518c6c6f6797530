#include "check/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "base/file_io.h"
#include "check/targets.h"

namespace milwright {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;
constexpr const char* kFileName = "milwright.toml";

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path) : folder_(std::filesystem::path(path).parent_path()) {
    config_.path = path;
  }

  Result<CheckConfig> Read(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text, config_.path);
    if (parsed.failed()) return Error(parsed.error().source(), parsed.error().description());
    for (const auto& [key, value] : parsed.table()) {
      const toml::table* check = value.as_table();
      if (key.str() != "check" || check == nullptr) {
        return Error(key.source(), fmt::format("'{}' is not known; the only table is [check]", key.str()));
      }
      for (const auto& [name, entry] : *check) MW_RETURN_IF_ERROR(ReadKey(name, entry));
    }
    return std::move(config_);
  }

 private:
  // One key of [check].
  struct Key {
    std::string_view name;
    Status (ConfigReader::*read)(const toml::node& value);
  };
  static constexpr size_t kKeyCount = 6;
  static const std::array<Key, kKeyCount>& Keys() {
    static const std::array<Key, kKeyCount> keys = {{{"target", &ConfigReader::ReadTarget},
                                                     {"fail-on", &ConfigReader::ReadFailOn},
                                                     {"disable", &ConfigReader::ReadDisabled},
                                                     {"severity", &ConfigReader::ReadSeverities},
                                                     {"evidence", &ConfigReader::ReadEvidence},
                                                     {"baseline", &ConfigReader::ReadBaseline}}};
    return keys;
  }

  [[nodiscard]] Status Error(const toml::source_region& at, std::string_view what) const {
    return {ErrorCode::kUnreadable, fmt::format("{}:{}:{}: {}", config_.path, at.begin.line, at.begin.column, what)};
  }

  Status ReadKey(const toml::key& name, const toml::node& value) {
    const auto* key = std::ranges::find(Keys(), name.str(), &Key::name);
    if (key != Keys().end()) return (this->*key->read)(value);
    std::vector<std::string_view> known;
    for (const Key& candidate : Keys()) known.push_back(candidate.name);
    return Error(name.source(),
                 fmt::format("[check] has no key '{}'; there are {}", name.str(), fmt::join(known, ", ")));
  }

  Status ReadText(const toml::node& value, std::string& text) const {
    const auto read = value.value_exact<std::string>();
    if (!read.has_value()) return Error(value.source(), "must be text");
    text = *read;
    return Status::Ok();
  }
  Status ReadPath(const toml::node& value, std::string& path) const {
    MW_RETURN_IF_ERROR(ReadText(value, path));
    path = (folder_ / path).string();
    return Status::Ok();
  }
  Status ReadSeverity(const toml::node& value, Severity& severity) const {
    std::string text;
    MW_RETURN_IF_ERROR(ReadText(value, text));
    const auto known = SeverityFromName(text);
    if (!known.has_value()) {
      return Error(value.source(), fmt::format("'{}' is no severity; there are off, note, warning, error", text));
    }
    severity = *known;
    return Status::Ok();
  }
  Status SetSeverity(const toml::source_region& at, std::string_view name, Severity severity) {
    const Rule* rule = FindRule(name);
    if (rule == nullptr) return Error(at, fmt::format("there is no rule '{}'", name));
    config_.severities.insert_or_assign(std::string(rule->id), severity);
    return Status::Ok();
  }
  // Calls `read` for each entry of a list.
  template <typename Read>
  Status ReadList(const toml::node& value, Read read) {
    const toml::array* list = value.as_array();
    if (list == nullptr) return Error(value.source(), "must be a list of texts");
    for (const toml::node& entry : *list) MW_RETURN_IF_ERROR(read(entry));
    return Status::Ok();
  }

  Status ReadTarget(const toml::node& value) {
    std::string name;
    MW_RETURN_IF_ERROR(ReadText(value, name));
    if (FindTarget(name) == nullptr) {
      return Error(value.source(), fmt::format("there is no target '{}'; see 'milwright targets'", name));
    }
    config_.target = std::move(name);
    return Status::Ok();
  }
  Status ReadFailOn(const toml::node& value) {
    Severity severity{};
    MW_RETURN_IF_ERROR(ReadSeverity(value, severity));
    if (severity == Severity::kOff) return Error(value.source(), "must be note, warning or error");
    config_.fail_on = severity;
    return Status::Ok();
  }
  Status ReadDisabled(const toml::node& value) {
    return ReadList(value, [this](const toml::node& entry) {
      std::string rule;
      MW_RETURN_IF_ERROR(ReadText(entry, rule));
      return SetSeverity(entry.source(), rule, Severity::kOff);
    });
  }
  Status ReadSeverities(const toml::node& value) {
    const toml::table* table = value.as_table();
    if (table == nullptr) return Error(value.source(), "must be a table of rules and severities");
    for (const auto& [rule, entry] : *table) {
      Severity severity{};
      MW_RETURN_IF_ERROR(ReadSeverity(entry, severity));
      MW_RETURN_IF_ERROR(SetSeverity(rule.source(), rule.str(), severity));
    }
    return Status::Ok();
  }
  Status ReadEvidence(const toml::node& value) {
    return ReadList(value, [this](const toml::node& entry) {
      config_.evidence.emplace_back();
      return ReadPath(entry, config_.evidence.back());
    });
  }
  Status ReadBaseline(const toml::node& value) { return ReadPath(value, config_.baseline); }

  std::filesystem::path folder_;
  CheckConfig config_;
};

}  // namespace

Result<CheckConfig> ReadConfig(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  return ConfigReader(path).Read(text);
}

std::string FindConfig(const std::string& path, bool is_folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (error) return {};
  if (!folder.has_filename()) folder = folder.parent_path();  // a slash at the end
  if (!is_folder) folder = folder.parent_path();
  while (true) {
    if (fs::is_regular_file(folder / kFileName, error)) return (folder / kFileName).string();
    if (fs::exists(folder / ".git", error) || folder == folder.root_path()) return {};
    folder = folder.parent_path();
  }
}

}  // namespace milwright
