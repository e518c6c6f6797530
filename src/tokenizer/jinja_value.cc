// GCC 12 sees uninitialised variants where there are none once it inlines their moves.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "tokenizer/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

/// A string that equal keys share: 1, 1.0 and True are one key in Python. nullopt for what cannot be a key.
std::optional<std::string> HashKey(const Value& key) {
  if (const std::string* text = key.string()) return "s" + *text;
  if (key.is_none()) return "n";
  if (key.is_integral()) return fmt::format("i{}", key.AsInt());
  if (key.is_float()) {
    const double number = key.AsDouble();
    if (number == std::floor(number) && std::abs(number) < 0x1p62)
      return fmt::format("i{}", static_cast<int64_t>(number));
    return fmt::format("f{}", number);
  }
  return std::nullopt;
}

Result<int> DepthOver(const std::vector<Value>& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  if (depth >= kMaxValueDepth) return Error(fmt::format("lists and dicts nest deeper than {} levels", kMaxValueDepth));
  return depth + 1;
}

}  // namespace

Status Budget::Step() {
  if (steps_-- > 0) return Status::Ok();
  return Error("the template takes too many steps");
}

Status Budget::Allocate(size_t bytes) {
  if (bytes <= static_cast<size_t>(std::max<int64_t>(bytes_, 0))) {
    bytes_ -= static_cast<int64_t>(bytes);
    return Status::Ok();
  }
  return Error("the template makes too much text");
}

Status Budget::Allocate(size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) return Allocate(SIZE_MAX);
  return Allocate(count * size);
}

Value::Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
Value::Value(std::shared_ptr<const List> value) : data_(std::move(value)) {}
Value::Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
Value::Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}

Value Value::MakeNone() { return Value(Data(None{})); }

Value Value::MakeUndefined(std::string reason) {
  return Value(Data(Undefined{std::make_shared<const std::string>(std::move(reason))}));
}

const std::string* Value::string() const {
  const auto* data = std::get_if<std::shared_ptr<const std::string>>(&data_);
  return data != nullptr ? data->get() : nullptr;
}

const List* Value::list() const {
  const auto* data = std::get_if<std::shared_ptr<const List>>(&data_);
  return data != nullptr ? data->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* data = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return data != nullptr ? data->get() : nullptr;
}

Object* Value::object() const {
  const auto* data = std::get_if<std::shared_ptr<Object>>(&data_);
  return data != nullptr ? data->get() : nullptr;
}

int64_t Value::AsInt() const { return is_bool() ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_); }

double Value::AsDouble() const { return is_float() ? std::get<double>(data_) : static_cast<double>(AsInt()); }

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return AsDouble() != 0;
  if (string() != nullptr) return !string()->empty();
  if (list() != nullptr) return !list()->items().empty();
  if (dict() != nullptr) return !dict()->items().empty();
  return true;
}

std::string_view Value::TypeName() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (string() != nullptr) return "str";
  if (list() != nullptr) return list()->is_tuple() ? "tuple" : "list";
  if (dict() != nullptr) return "dict";
  return object()->TypeName();
}

Status Value::CheckDefined() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  if (undefined == nullptr) return Status::Ok();
  return Error(undefined->reason != nullptr ? *undefined->reason : "the value is undefined");
}

int Value::depth() const {
  if (list() != nullptr) return list()->depth();
  return dict() != nullptr ? dict()->depth() : 0;
}

Result<Value> List::Make(std::vector<Value> items, Budget& budget, bool is_tuple) {
  MW_RETURN_IF_ERROR(budget.Allocate(items.size() + 1, sizeof(Value)));
  auto list = std::make_shared<List>();
  MW_ASSIGN_OR_RETURN(list->depth_, DepthOver(items));
  list->items_ = std::move(items);
  list->is_tuple_ = is_tuple;
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Result<Value> Dict::Make(std::vector<Item> items, Budget& budget) {
  auto dict = std::make_shared<Dict>();
  std::vector<Value> values;
  for (Item& item : items) {
    MW_RETURN_IF_ERROR(item.first.CheckDefined());
    std::optional<std::string> key = HashKey(item.first);
    if (!key) return Error(fmt::format("a {} cannot be the key of a dict", item.first.TypeName()));
    MW_RETURN_IF_ERROR(budget.Allocate(key->size() + 2 * sizeof(Item)));
    values.push_back(item.second);
    const auto [place, is_new] = dict->index_.emplace(*std::move(key), dict->items_.size());
    if (is_new) {
      dict->items_.push_back(std::move(item));
    } else {
      dict->items_[place->second].second = std::move(item.second);
    }
  }
  MW_ASSIGN_OR_RETURN(dict->depth_, DepthOver(values));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<std::string> hash = HashKey(key);
  const auto found = hash ? index_.find(*hash) : index_.end();
  return found == index_.end() ? nullptr : &items_[found->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = index_.find(fmt::format("s{}", key));
  return found == index_.end() ? nullptr : &items_[found->second].second;
}

Result<std::vector<std::optional<Value>>> Arguments::Bind(const std::vector<std::string_view>& names) const {
  std::vector<std::optional<Value>> bound(names.size());
  if (positional.size() > names.size()) {
    return Error(fmt::format("takes at most {} arguments, but {} are given", names.size(), positional.size()));
  }
  std::copy(positional.begin(), positional.end(), bound.begin());
  for (const auto& [name, value] : keyword) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) return Error(fmt::format("has no argument \"{}\"", name));
    std::optional<Value>& slot = bound[static_cast<size_t>(place - names.begin())];
    if (slot) return Error(fmt::format("got the argument \"{}\" twice", name));
    slot = value;
  }
  return bound;
}

Result<Value> Object::Call(Interpreter&, const Arguments&) {
  return Error(fmt::format("a {} cannot be called", TypeName()));
}

Result<bool> Equal(const Value& a, const Value& b, Budget& budget) {
  MW_RETURN_IF_ERROR(budget.Step());
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.AsInt() == b.AsInt() : a.AsDouble() == b.AsDouble();
  }
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto& left = a.list()->items();
    const auto& right = b.list()->items();
    if (a.list()->is_tuple() != b.list()->is_tuple() || left.size() != right.size()) return false;
    for (size_t i = 0; i < left.size(); ++i) {
      MW_ASSIGN_OR_RETURN(const bool equal, Equal(left[i], right[i], budget));
      if (!equal) return false;
    }
    return true;
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->items().size() != b.dict()->items().size()) return false;
    for (const auto& [key, value] : a.dict()->items()) {
      const Value* other = b.dict()->Find(key);
      if (other == nullptr) return false;
      MW_ASSIGN_OR_RETURN(const bool equal, Equal(value, *other, budget));
      if (!equal) return false;
    }
    return true;
  }
  return a.object() != nullptr && a.object() == b.object();
}

Result<int> Compare(const Value& a, const Value& b, Budget& budget) {
  MW_RETURN_IF_ERROR(budget.Step());
  MW_RETURN_IF_ERROR(a.CheckDefined());
  MW_RETURN_IF_ERROR(b.CheckDefined());
  const auto order = [](const auto& left, const auto& right) { return left < right ? -1 : right < left ? 1 : 0; };
  if (a.is_integral() && b.is_integral()) return order(a.AsInt(), b.AsInt());
  if (a.is_number() && b.is_number()) return order(a.AsDouble(), b.AsDouble());
  // The order of UTF-8 is that of code points.
  if (a.string() != nullptr && b.string() != nullptr) return order(*a.string(), *b.string());
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto& left = a.list()->items();
    const auto& right = b.list()->items();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      MW_ASSIGN_OR_RETURN(const bool equal, Equal(left[i], right[i], budget));
      if (!equal) return Compare(left[i], right[i], budget);
    }
    return order(left.size(), right.size());
  }
  return Error(fmt::format("a {} and a {} have no order", a.TypeName(), b.TypeName()));
}

Result<bool> Contains(const Value& haystack, const Value& needle, Budget& budget) {
  if (const std::string* text = haystack.string()) {
    MW_RETURN_IF_ERROR(needle.CheckDefined());
    if (needle.string() == nullptr) return Error(fmt::format("a {} cannot be in a string", needle.TypeName()));
    return text->find(*needle.string()) != std::string::npos;
  }
  if (const Dict* dict = haystack.dict()) return dict->Find(needle) != nullptr;
  if (haystack.is_undefined()) return false;
  if (haystack.list() == nullptr) return Error(fmt::format("nothing can be in a {}", haystack.TypeName()));
  for (const Value& item : haystack.list()->items()) {
    MW_ASSIGN_OR_RETURN(const bool equal, Equal(item, needle, budget));
    if (equal) return true;
  }
  return false;
}

Result<std::vector<Value>> Iterate(const Value& value, Budget& budget) {
  if (const List* list = value.list()) {
    MW_RETURN_IF_ERROR(budget.Allocate(list->items().size(), sizeof(Value)));
    return list->items();
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    MW_RETURN_IF_ERROR(budget.Allocate(dict->items().size(), sizeof(Value)));
    for (const Dict::Item& item : dict->items()) items.push_back(item.first);
    return items;
  }
  if (const std::string* text = value.string()) {
    MW_RETURN_IF_ERROR(budget.Allocate(text->size(), sizeof(Value) + sizeof(std::string)));
    for (size_t position = 0; position < text->size();) {
      const size_t length = Utf8Length((*text)[position]);
      items.emplace_back(text->substr(position, length));
      position += length;
    }
    return items;
  }
  if (value.is_undefined()) return items;
  return Error(fmt::format("a {} cannot be iterated over", value.TypeName()));
}

Result<Value> FromJson(const nlohmann::ordered_json& json, Budget& budget) {
  MW_RETURN_IF_ERROR(budget.Step());
  if (json.is_null()) return Value::MakeNone();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Error(fmt::format("the integer {} is larger than 64 bits", json.get<uint64_t>()));
  }
  if (json.is_number_integer()) return Value(json.get<int64_t>());
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    MW_RETURN_IF_ERROR(budget.Allocate(text.size()));
    if (FindInvalidUtf8(text)) return Error("a string of the messages is not UTF-8");
    return Value(text);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& element : json) {
      MW_ASSIGN_OR_RETURN(Value item, FromJson(element, budget));
      items.push_back(std::move(item));
    }
    return List::Make(std::move(items), budget);
  }
  if (!json.is_object()) return Error("binary JSON values have no meaning in a template");
  std::vector<Dict::Item> items;
  for (const auto& [key, element] : json.items()) {
    MW_ASSIGN_OR_RETURN(Value item, FromJson(element, budget));
    items.emplace_back(Value(key), std::move(item));
  }
  return Dict::Make(std::move(items), budget);
}

}  // namespace milwright::jinja
