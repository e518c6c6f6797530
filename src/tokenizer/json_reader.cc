#include "tokenizer/json_reader.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

namespace milwright {

Result<std::string> ReadTextFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: no such file", path.string()));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return Status(ErrorCode::kUnreadable, fmt::format("{}: cannot be read", path.string()));
  return text;
}

Status CheckJsonDepth(std::string_view text, std::string_view name) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return {ErrorCode::kUnreadable,
                fmt::format("{}: nested deeper than {} levels at byte {}", name, kMaxJsonDepth, i)};
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return Status::Ok();
}

Result<nlohmann::json> ParseJson(std::string_view text, std::string_view name) {
  MW_RETURN_IF_ERROR(CheckJsonDepth(text, name));
  nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return Status(ErrorCode::kUnreadable, fmt::format("{}: not valid JSON", name));
  return value;
}

bool JsonReader::Has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Result<JsonReader> JsonReader::Get(std::string_view key) const {
  if (!value_->is_object()) return Error("must be an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return Error(fmt::format("has no \"{}\"", key));
  const bool at_top = where_.ends_with(".json");
  return JsonReader(*found, fmt::format("{}{}{}", where_, at_top ? ": " : ".", key));
}

Result<std::vector<JsonReader>> JsonReader::Array(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonReader array, Get(key));
  if (!array.value().is_array()) return array.Error("must be an array");
  std::vector<JsonReader> elements;
  elements.reserve(array.value().size());
  for (const nlohmann::json& element : array.value()) {
    elements.emplace_back(element, fmt::format("{}[{}]", array.where(), elements.size()));
  }
  return elements;
}

Result<std::string> JsonReader::String(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonReader value, Get(key));
  return value.AsString();
}

Result<std::string> JsonReader::StringOr(std::string_view key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  return String(key);
}

Result<bool> JsonReader::Bool(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonReader value, Get(key));
  if (!value.value().is_boolean()) return value.Error("must be true or false");
  return value.value().get<bool>();
}

Result<bool> JsonReader::BoolOr(std::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return Bool(key);
}

Result<int64_t> JsonReader::Int(std::string_view key, int64_t low, int64_t high) const {
  MW_ASSIGN_OR_RETURN(const JsonReader value, Get(key));
  return value.AsInt(low, high);
}

Result<int64_t> JsonReader::AsInt(int64_t low, int64_t high) const {
  const auto refuse = [&] { return Error(fmt::format("must be an integer from {} to {}", low, high)); };
  if (!value_->is_number_integer()) return refuse();
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return refuse();
  const auto number = value_->get<int64_t>();
  if (number < low || number > high) return refuse();
  return number;
}

Result<std::string> JsonReader::AsString() const {
  if (!value_->is_string()) return Error("must be a string");
  return value_->get<std::string>();
}

Status JsonReader::Error(std::string_view message) const {
  return {ErrorCode::kUnreadable, fmt::format("{}{}{}", where_, where_.ends_with(".json") ? ": " : " ", message)};
}

}  // namespace milwright
