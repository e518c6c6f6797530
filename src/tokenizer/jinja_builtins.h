// The filters, tests, methods and functions that templates can use, by name.
#ifndef MILWRIGHT_TOKENIZER_JINJA_BUILTINS_H_
#define MILWRIGHT_TOKENIZER_JINJA_BUILTINS_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "milwright/status.h"
#include "tokenizer/jinja_value.h"

namespace milwright::jinja {

using Filter = Result<Value> (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Test = Result<bool> (*)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
using Function = Result<Value> (*)(Interpreter& interpreter, const Arguments& arguments);
using Method = Result<Value> (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);

/// nullptr if there is none of that name.
Filter FindFilter(std::string_view name);
Filter FindTextFilter(std::string_view name);      ///< those of jinja_text_filters.cc
Filter FindSequenceFilter(std::string_view name);  ///< those of jinja_sequence_filters.cc
Test FindTest(std::string_view name);
/// Functions that are variables of every template: range, dict, namespace, raise_exception, strftime_now.
Function FindFunction(std::string_view name);
/// The method of a string, list or dict. Those that would change the object are not there, as in the sandbox that
/// templates run in.
Method FindMethod(const Value& self, std::string_view name);

/// A function as a value.
std::shared_ptr<Object> MakeFunctionObject(Function function);
/// A method of `self` as a value.
std::shared_ptr<Object> MakeMethodObject(Value self, Method method);

/// What namespace() makes: attributes that can be set.
class Namespace : public Object {
 public:
  [[nodiscard]] std::string_view TypeName() const override { return "namespace"; }
  [[nodiscard]] std::optional<Value> GetAttribute(std::string_view name) const override {
    const auto found = attributes_.find(std::string(name));
    return found == attributes_.end() ? std::nullopt : std::make_optional(found->second);
  }
  void Set(const std::string& name, Value value) { attributes_[name] = std::move(value); }
  void Clear() override { attributes_.clear(); }

 private:
  std::unordered_map<std::string, Value> attributes_;
};

/// Reads the arguments of a builtin, in the order of their names.
class ArgumentReader {
 public:
  static Result<ArgumentReader> Bind(const Arguments& arguments, const std::vector<std::string_view>& names);

  [[nodiscard]] const std::optional<Value>& operator[](size_t index) const { return values_[index]; }
  /// The argument, or an error if it is missing.
  [[nodiscard]] Result<Value> Required(size_t index) const;
  [[nodiscard]] Result<std::string> String(size_t index, std::string_view fallback) const;
  [[nodiscard]] Result<int64_t> Int(size_t index, int64_t fallback) const;
  [[nodiscard]] bool Bool(size_t index, bool fallback) const;

 private:
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_BUILTINS_H_
