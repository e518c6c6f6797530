// Values of the Jinja interpreter, with the semantics of the Python objects that templates are written for.
#ifndef MILWRIGHT_TOKENIZER_JINJA_VALUE_H_
#define MILWRIGHT_TOKENIZER_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "milwright/status.h"

namespace milwright::jinja {

/// kRuntime: what a rendering fails with.
inline Status Error(std::string message) { return {ErrorCode::kRuntime, std::move(message)}; }

/// What a rendering may use up. Everything whose cost the template controls charges here before it does the work.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}

  /// One unit of work.
  Status Step();
  /// Memory that is about to be made.
  Status Allocate(size_t bytes);
  /// `count` objects of `size` bytes each.
  Status Allocate(size_t count, size_t size);

 private:
  int64_t steps_;
  int64_t bytes_;
};

class Value;
class Object;
class List;
class Dict;

/// Nothing: of an unknown variable or attribute. `reason` is the error of whoever needs it to be something.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};

/// A value, cheap to copy. Strings, lists and dicts are immutable, as in the sandbox that templates run in.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(bool value) : data_(value) {}        // NOLINT(google-explicit-constructor): literals
  Value(int64_t value) : data_(value) {}     // NOLINT(google-explicit-constructor)
  Value(double value) : data_(value) {}      // NOLINT(google-explicit-constructor)
  Value(std::string value);                  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const List> value);  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Dict> value);  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Object> value);      // NOLINT(google-explicit-constructor)
  static Value MakeNone();
  static Value MakeUndefined(std::string reason);

  [[nodiscard]] bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  [[nodiscard]] bool is_none() const { return std::holds_alternative<None>(data_); }
  [[nodiscard]] bool is_bool() const { return std::holds_alternative<bool>(data_); }
  [[nodiscard]] bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  [[nodiscard]] bool is_float() const { return std::holds_alternative<double>(data_); }
  /// bool, int or float: bools count as 0 and 1, as in Python.
  [[nodiscard]] bool is_number() const { return is_bool() || is_int() || is_float(); }
  [[nodiscard]] bool is_integral() const { return is_bool() || is_int(); }

  /// nullptr if the value is of another kind.
  [[nodiscard]] const std::string* string() const;
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] Object* object() const;

  [[nodiscard]] int64_t AsInt() const;    ///< of an integral value
  [[nodiscard]] double AsDouble() const;  ///< of a number
  [[nodiscard]] bool IsTrue() const;      ///< Python's bool()

  /// "str", "int", ... as Python's errors call it.
  [[nodiscard]] std::string_view TypeName() const;
  /// The error for using an undefined value; ok for all others.
  [[nodiscard]] Status CheckDefined() const;
  /// How deep lists and dicts nest in it; 0 for everything else.
  [[nodiscard]] int depth() const;

 private:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>;
  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

/// The deepest nesting of lists and dicts: what walks a value may recurse this far.
inline constexpr int kMaxValueDepth = 100;

/// A Python list or tuple.
class List {
 public:
  static Result<Value> Make(std::vector<Value> items, Budget& budget, bool is_tuple = false);

  [[nodiscard]] const std::vector<Value>& items() const { return items_; }
  [[nodiscard]] bool is_tuple() const { return is_tuple_; }
  [[nodiscard]] int depth() const { return depth_; }

 private:
  std::vector<Value> items_;
  bool is_tuple_ = false;
  int depth_ = 1;
};

/// A Python dict: keeps the order of insertion.
class Dict {
 public:
  using Item = std::pair<Value, Value>;

  /// Of equal keys the last value wins, in the first place.
  static Result<Value> Make(std::vector<Item> items, Budget& budget);

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }
  /// nullptr if there is no such key.
  [[nodiscard]] const Value* Find(const Value& key) const;
  [[nodiscard]] const Value* Find(std::string_view key) const;
  [[nodiscard]] int depth() const { return depth_; }

 private:
  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> index_;  ///< by HashKey
  int depth_ = 1;
};

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  /// The arguments in the order of `names`, nullopt where one is missing; an error for one too many.
  [[nodiscard]] Result<std::vector<std::optional<Value>>> Bind(const std::vector<std::string_view>& names) const;
};

class Interpreter;

/// Everything else: functions, macros, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  [[nodiscard]] virtual std::string_view TypeName() const = 0;
  /// nullopt if it has no such attribute.
  [[nodiscard]] virtual std::optional<Value> GetAttribute(std::string_view) const { return std::nullopt; }
  [[nodiscard]] virtual bool callable() const { return false; }
  virtual Result<Value> Call(Interpreter& interpreter, const Arguments& arguments);
  /// Drops references to other values, so that cycles come apart.
  virtual void Clear() {}
};

/// Python's ==.
Result<bool> Equal(const Value& a, const Value& b, Budget& budget);
/// Negative, 0 or positive for numbers, strings and lists; an error for what Python cannot order.
Result<int> Compare(const Value& a, const Value& b, Budget& budget);
/// Python's `needle in haystack`.
Result<bool> Contains(const Value& haystack, const Value& needle, Budget& budget);
/// The elements that a for loop sees: of lists, the keys of dicts, the characters of strings; none of undefined.
Result<std::vector<Value>> Iterate(const Value& value, Budget& budget);

/// Python's str().
Result<std::string> ToString(const Value& value, Budget& budget);

/// How json.dumps formats.
struct JsonStyle {
  std::optional<std::string> indent;  ///< one level; nullopt: all in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

/// Python's json.dumps(value, ensure_ascii=False, ...), which Hugging Face puts in place of Jinja's own tojson.
Result<std::string> ToJson(const Value& value, const JsonStyle& style, Budget& budget);

/// The value of a JSON document.
Result<Value> FromJson(const nlohmann::ordered_json& json, Budget& budget);

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_VALUE_H_
