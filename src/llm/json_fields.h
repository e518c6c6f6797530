// Reading the fields of JSON files that milwright writes itself (manifests, contracts), without exceptions.
#ifndef MILWRIGHT_LLM_JSON_FIELDS_H_
#define MILWRIGHT_LLM_JSON_FIELDS_H_

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "milwright/status.h"
#include "milwright/type.h"

namespace milwright {

/// One JSON object, read field by field; the first error is kept for the whole file.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  /// `place` names the object in messages. `error` is shared by all objects of a file.
  JsonFields(const Json& object, std::string place, Status& error)
      : object_(object), place_(std::move(place)), error_(error) {
    if (!object.is_object()) Fail("must be an object");
  }

  void Fail(std::string_view what) {
    if (error_.ok()) error_ = Status(ErrorCode::kUnreadable, fmt::format("{}: {}", place_, what));
  }
  [[nodiscard]] bool Has(std::string_view key) const { return object_.is_object() && object_.contains(key); }

  std::string Text(std::string_view key, std::string_view fallback = {}) {
    const Json* value = Find(key);
    if (value == nullptr) return std::string(fallback);
    if (value->is_string()) return value->get<std::string>();
    Fail(fmt::format("'{}' must be text", key));
    return {};
  }
  int64_t Integer(std::string_view key, int64_t fallback = 0) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->is_number_integer()) return value->get<int64_t>();
    Fail(fmt::format("'{}' must be an integer", key));
    return fallback;
  }
  double Number(std::string_view key, double fallback = 0) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->is_number()) return value->get<double>();
    Fail(fmt::format("'{}' must be a number", key));
    return fallback;
  }
  bool Flag(std::string_view key, bool fallback = false) {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    Fail(fmt::format("'{}' must be true or false", key));
    return fallback;
  }
  std::vector<int64_t> Integers(std::string_view key) {
    std::vector<int64_t> values;
    for (const Json& one : Array(key)) {
      if (!one.is_number_integer()) {
        Fail(fmt::format("'{}' must hold integers", key));
        return {};
      }
      values.push_back(one.get<int64_t>());
    }
    return values;
  }
  std::vector<double> Numbers(std::string_view key) {
    std::vector<double> values;
    for (const Json& one : Array(key)) {
      if (!one.is_number()) {
        Fail(fmt::format("'{}' must hold numbers", key));
        return {};
      }
      values.push_back(one.get<double>());
    }
    return values;
  }
  std::vector<std::string> Texts(std::string_view key) {
    std::vector<std::string> values;
    for (const Json& one : Array(key)) {
      if (!one.is_string()) {
        Fail(fmt::format("'{}' must hold texts", key));
        return {};
      }
      values.push_back(one.get<std::string>());
    }
    return values;
  }
  /// The array under `key`; an empty one when it is absent.
  const Json& Array(std::string_view key) {
    static const Json empty = Json::array();
    const Json* value = Find(key);
    if (value == nullptr) return empty;
    if (value->is_array()) return *value;
    Fail(fmt::format("'{}' must be a list", key));
    return empty;
  }
  /// The object under `key`; an empty one when it is absent.
  const Json& Object(std::string_view key) {
    static const Json empty = Json::object();
    const Json* value = Find(key);
    if (value == nullptr) return empty;
    if (value->is_object()) return *value;
    Fail(fmt::format("'{}' must be an object", key));
    return empty;
  }
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] Status& error() { return error_; }

 private:
  const Json* Find(std::string_view key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  const Json& object_;
  std::string place_;
  Status& error_;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_JSON_FIELDS_H_
