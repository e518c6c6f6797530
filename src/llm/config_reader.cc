#include "llm/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file_io.h"

namespace milwright {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr int64_t kMaxSize = 1 << 24;  // no dimension of a decoder comes near; keeps products within int64
constexpr size_t kMaxListLength = 1 << 16;

const Json& EmptyObject() {
  static const Json empty = Json::object();
  return empty;
}

std::string AsText(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

ConfigReader::ConfigReader(std::shared_ptr<const Json> document, const Json* object, std::string path,
                           ConfigReader* root)
    : document_(std::move(document)), object_(object), path_(std::move(path)), root_(root == nullptr ? this : root) {}

ConfigReader::~ConfigReader() = default;

Result<std::unique_ptr<ConfigReader>> ConfigReader::Open(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  auto document = std::make_shared<Json>(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!document->is_object()) return Status(ErrorCode::kUnreadable, path + ": is not a JSON object");
  const Json* object = document.get();
  return std::unique_ptr<ConfigReader>(new ConfigReader(std::move(document), object, path, nullptr));
}

std::string ConfigReader::Place(std::string_view key) const { return fmt::format("{}: '{}{}'", path_, prefix_, key); }

void ConfigReader::Fail(std::string_view key, std::string_view what) {
  if (root_->status_.ok()) root_->status_ = Status(ErrorCode::kPrecondition, fmt::format("{}: {}", Place(key), what));
}

const Status& ConfigReader::status() const { return root_->status_; }

bool ConfigReader::Has(std::string_view key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

const Json* ConfigReader::Find(std::string_view key) {
  read_.emplace(key);
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null() ? &*it : nullptr;
}

int64_t ConfigReader::CountOr(std::string_view key, int64_t fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer()) {
    Fail(key, fmt::format("is {}, but must be an integer", value->dump()));
    return fallback;
  }
  const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(kMaxSize)
                                                : value->get<int64_t>() >= 0 && value->get<int64_t>() <= kMaxSize;
  if (!fits) {
    Fail(key, fmt::format("is {}, outside 0 .. {}", value->dump(), kMaxSize));
    return fallback;
  }
  return value->get<int64_t>();
}

int64_t ConfigReader::SizeOr(std::string_view key, int64_t fallback) {
  const int64_t value = CountOr(key, fallback);
  if (value >= 1) return value;
  Fail(key, "must be at least 1");
  return 1;
}

int64_t ConfigReader::Size(std::string_view key) {
  if (!Has(key)) {
    Fail(key, "is missing, and this family needs it");
    return 1;
  }
  return SizeOr(key, 1);
}

double ConfigReader::NumberOr(std::string_view key, double fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Fail(key, fmt::format("is {}, but must be a number", value->dump()));
    return fallback;
  }
  return value->get<double>();
}

double ConfigReader::Number(std::string_view key) {
  if (!Has(key)) Fail(key, "is missing, and this family needs it");
  return NumberOr(key, 1);
}

bool ConfigReader::BoolOr(std::string_view key, bool fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    Fail(key, fmt::format("is {}, but must be true or false", value->dump()));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::StringOr(std::string_view key, std::string_view fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    Fail(key, fmt::format("is {}, but must be text", value->dump()));
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::vector<double> ConfigReader::Numbers(std::string_view key) {
  std::vector<double> numbers;
  const Json* value = Find(key);
  const bool list = value != nullptr && value->is_array() && value->size() <= kMaxListLength &&
                    std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_number(); });
  if (!list) {
    Fail(key, "must be a list of numbers");
    return numbers;
  }
  for (const Json& number : *value) numbers.push_back(number.get<double>());
  return numbers;
}

std::vector<int64_t> ConfigReader::Integers(std::string_view key) {
  std::vector<int64_t> integers;
  const Json* value = Find(key);
  const bool list = value != nullptr && value->is_array() && value->size() <= kMaxListLength &&
                    std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_number_integer(); });
  if (!list) {
    Fail(key, "must be a list of integers");
    return integers;
  }
  for (const Json& number : *value) integers.push_back(number.get<int64_t>());
  return integers;
}

std::vector<std::string> ConfigReader::Strings(std::string_view key) {
  std::vector<std::string> strings;
  const Json* value = Find(key);
  const bool list = value != nullptr && value->is_array() && value->size() <= kMaxListLength &&
                    std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); });
  if (!list) {
    Fail(key, "must be a list of texts");
    return strings;
  }
  for (const Json& text : *value) strings.push_back(text.get<std::string>());
  return strings;
}

std::vector<int64_t> ConfigReader::IntegerOrList(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  if (value->is_number_integer()) return {value->get<int64_t>()};
  return Integers(key);
}

ConfigReader& ConfigReader::Section(std::string_view key) {
  const auto known = sections_.find(key);
  if (known != sections_.end()) return *known->second;
  const Json* value = Find(key);
  if (value != nullptr && !value->is_object()) {
    Fail(key, "must be an object");
    value = nullptr;
  }
  std::unique_ptr<ConfigReader> section(
      new ConfigReader(document_, value == nullptr ? &EmptyObject() : value, path_, root_));
  section->prefix_ = fmt::format("{}{}.", prefix_, key);
  return *sections_.emplace(std::string(key), std::move(section)).first->second;
}

void ConfigReader::Ignore(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

void ConfigReader::RequireOff(std::string_view key) {
  const Json* value = Find(key);
  if (value != nullptr && *value != false) {
    Fail(key, fmt::format("is {}, which is not supported (only absent, null or false)", value->dump()));
  }
}

void ConfigReader::RequireOneOf(std::string_view key, std::span<const std::string_view> allowed) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (std::find(allowed.begin(), allowed.end(), AsText(*value)) == allowed.end()) {
    Fail(key, fmt::format("is {}, which is not supported (supported: {})", value->dump(), fmt::join(allowed, ", ")));
  }
}

void ConfigReader::CollectUnread(std::vector<std::string>& unread) const {
  for (const auto& [key, value] : object_->items()) {
    if (read_.find(key) == read_.end()) unread.push_back(prefix_ + key);
  }
  for (const auto& [key, section] : sections_) section->CollectUnread(unread);
}

Status ConfigReader::Finish() {
  MW_RETURN_IF_ERROR(status());
  std::vector<std::string> unread;
  CollectUnread(unread);
  if (unread.empty()) return Status::Ok();
  return {ErrorCode::kPrecondition,
          fmt::format("{}: does not know what to make of the key{} '{}'; remove what does not change the logits", path_,
                      unread.size() > 1 ? "s" : "", fmt::join(unread, "', '"))};
}

}  // namespace milwright
