// Filters that read lists and dicts, as jinja2/filters.py defines them. What are generators there are lists here.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/python_text.h"

namespace milwright::jinja {
namespace {

/// Reads "a.b.0" of an item: attributes or elements, one after the other.
class AttributeGetter {
 public:
  /// Without an attribute it gives the item itself.
  static Result<AttributeGetter> Make(const std::optional<Value>& attribute) {
    AttributeGetter getter;
    if (!attribute || attribute->is_none()) return getter;
    if (attribute->string() == nullptr) {
      getter.path_.push_back(*attribute);
      return getter;
    }
    for (const std::string_view part : Split(*attribute->string(), ".", -1, /*from_right=*/false)) {
      int64_t index = 0;
      const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool is_index = !part.empty() && parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
      getter.path_.push_back(is_index ? Value(index) : Value(std::string(part)));
    }
    return getter;
  }

  Result<Value> Get(Interpreter& interpreter, Value item) const {
    for (const Value& key : path_) {
      MW_ASSIGN_OR_RETURN(item, interpreter.GetItem(item, key));
    }
    return item;
  }

 private:
  std::vector<Value> path_;
};

/// What sort and unique compare: strings without case unless asked otherwise.
Value SortKey(const Value& value, bool case_sensitive) {
  if (case_sensitive || value.string() == nullptr) return value;
  return Value(Lower(*value.string()));
}

Result<Value> Length(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  if (input.string() != nullptr) return Value(static_cast<int64_t>(CountCharacters(*input.string())));
  if (input.list() != nullptr) return Value(static_cast<int64_t>(input.list()->items().size()));
  if (input.dict() != nullptr) return Value(static_cast<int64_t>(input.dict()->items().size()));
  if (input.is_undefined()) return Value(int64_t{0});
  return Error(fmt::format("a {} has no length", input.TypeName()));
}

Result<Value> Default(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"default_value", "boolean"}));
  const bool replaces = input.is_undefined() || (reader.Bool(1, false) && !input.IsTrue());
  return replaces ? reader[0].value_or(Value(std::string())) : input;
}

Result<Value> Join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"d", "attribute"}));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[1]));
  MW_ASSIGN_OR_RETURN(const std::string separator, interpreter.Str(reader[0].value_or(Value(std::string()))));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(items.size(), separator.size()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const Value item, getter.Get(interpreter, items[i]));
    MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(item));
    if (i > 0) out += separator;
    out += text;
  }
  return Value(std::move(out));
}

template <bool kFirst>
Result<Value> End(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  if (items.empty()) return Value::MakeUndefined("the sequence is empty");
  return kFirst ? items.front() : items.back();
}

Result<Value> ListFilter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  MW_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, interpreter.budget()));
  return interpreter.MakeList(std::move(items));
}

Result<Value> Reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  if (input.string() != nullptr) return ApplySlice(input, std::nullopt, std::nullopt, -1, interpreter.budget());
  MW_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, interpreter.budget()));
  std::reverse(items.begin(), items.end());
  return interpreter.MakeList(std::move(items));
}

/// A list of (key, value) tuples.
Result<Value> MakePairs(Interpreter& interpreter, const std::vector<Dict::Item>& items) {
  std::vector<Value> pairs;
  for (const auto& [key, value] : items) {
    MW_ASSIGN_OR_RETURN(Value pair, List::Make({key, value}, interpreter.budget(), /*is_tuple=*/true));
    pairs.push_back(std::move(pair));
  }
  return interpreter.MakeList(std::move(pairs));
}

Result<Value> Items(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  if (input.is_undefined()) return interpreter.MakeList({});
  if (input.dict() == nullptr) return Error(fmt::format("needs a dict, not a {}", input.TypeName()));
  return MakePairs(interpreter, input.dict()->items());
}

/// Sorts `items` by what `key` gives for each, stably.
template <typename Item, typename Key>
Status SortBy(std::vector<Item>& items, Key key, bool reverse, Budget& budget) {
  std::vector<std::pair<Value, Item>> keyed;
  for (Item& item : items) {
    MW_ASSIGN_OR_RETURN(Value item_key, key(item));
    keyed.emplace_back(std::move(item_key), std::move(item));
  }
  Status status;
  const auto before = [&](const auto& a, const auto& b) {
    if (!status.ok()) return false;
    const Result<int> order = Compare(a.first, b.first, budget);
    if (!order.ok()) status = order.status();
    return order.ok() && (reverse ? *order > 0 : *order < 0);
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  MW_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return Status::Ok();
}

Result<Value> DictSort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader,
                      ArgumentReader::Bind(arguments, {"case_sensitive", "by", "reverse"}));
  MW_ASSIGN_OR_RETURN(const std::string by, reader.String(1, "key"));
  if (input.dict() == nullptr) return Error(fmt::format("needs a dict, not a {}", input.TypeName()));
  if (by != "key" && by != "value") return Error("\"by\" must be \"key\" or \"value\"");
  std::vector<Dict::Item> items = input.dict()->items();
  const auto key = [&](const Dict::Item& item) -> Result<Value> {
    return SortKey(by == "key" ? item.first : item.second, reader.Bool(0, false));
  };
  MW_RETURN_IF_ERROR(SortBy(items, key, reader.Bool(2, false), interpreter.budget()));
  return MakePairs(interpreter, items);
}

Result<Value> Sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader,
                      ArgumentReader::Bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[2]));
  MW_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, interpreter.budget()));
  const auto key = [&](const Value& item) -> Result<Value> {
    MW_ASSIGN_OR_RETURN(const Value value, getter.Get(interpreter, item));
    return SortKey(value, reader.Bool(1, false));
  };
  MW_RETURN_IF_ERROR(SortBy(items, key, reader.Bool(0, false), interpreter.budget()));
  return interpreter.MakeList(std::move(items));
}

template <bool kMaximum>
Result<Value> Extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[1]));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  Value best = Value::MakeUndefined("the sequence is empty");
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const Value value, getter.Get(interpreter, items[i]));
    const Value key = SortKey(value, reader.Bool(0, false));
    if (i > 0) {
      MW_ASSIGN_OR_RETURN(const int order, Compare(key, best_key, interpreter.budget()));
      if (kMaximum ? order <= 0 : order >= 0) continue;
    }
    best = items[i];
    best_key = key;
  }
  return best;
}

Result<Value> Unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[1]));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  std::vector<Value> unique;
  std::vector<Value> keys;
  for (const Value& item : items) {
    MW_ASSIGN_OR_RETURN(const Value value, getter.Get(interpreter, item));
    const Value key = SortKey(value, reader.Bool(0, false));
    bool known = false;
    for (size_t i = 0; i < keys.size() && !known; ++i) {
      MW_ASSIGN_OR_RETURN(known, Equal(keys[i], key, interpreter.budget()));
    }
    if (known) continue;
    keys.push_back(key);
    unique.push_back(item);
  }
  return interpreter.MakeList(std::move(unique));
}

Result<Value> Sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"attribute", "start"}));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[0]));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  Value sum = reader[1].value_or(Value(int64_t{0}));
  for (const Value& item : items) {
    MW_ASSIGN_OR_RETURN(const Value value, getter.Get(interpreter, item));
    MW_ASSIGN_OR_RETURN(sum, ApplyBinary("+", sum, value, interpreter.budget()));
  }
  return sum;
}

Result<Value> Batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"linecount", "fill_with"}));
  MW_ASSIGN_OR_RETURN(const int64_t size, reader.Int(0, 0));
  if (size <= 0) return Error("the size of a batch must be positive");
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(size)) {
    const size_t count = std::min(static_cast<size_t>(size), items.size() - begin);
    const auto first = items.begin() + static_cast<ptrdiff_t>(begin);
    std::vector<Value> batch(first, first + static_cast<ptrdiff_t>(count));
    if (reader[1] && !reader[1]->is_none() && count < static_cast<size_t>(size)) {
      MW_RETURN_IF_ERROR(interpreter.budget().Allocate(static_cast<size_t>(size), sizeof(Value)));
      batch.resize(static_cast<size_t>(size), *reader[1]);
    }
    MW_ASSIGN_OR_RETURN(Value list, interpreter.MakeList(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return interpreter.MakeList(std::move(batches));
}

Result<Value> Attr(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"name"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string name, reader.String(0, ""));
  // The elements of a dict are no attributes of it.
  if (input.dict() != nullptr && FindMethod(input, name) == nullptr) {
    return Value::MakeUndefined(fmt::format("a dict has no attribute '{}'", name));
  }
  return interpreter.GetAttribute(input, name);
}

/// The arguments behind the first `count`.
Arguments Without(const Arguments& arguments, size_t count) {
  const auto first = arguments.positional.begin() + static_cast<ptrdiff_t>(count);
  return {{first, arguments.positional.end()}, arguments.keyword};
}

Result<std::string> NameArgument(const Arguments& arguments, size_t index) {
  if (arguments.positional.size() <= index || arguments.positional[index].string() == nullptr) {
    return Error("needs a name as argument");
  }
  return *arguments.positional[index].string();
}

Result<Value> Map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(input, interpreter.budget()));
  if (!arguments.positional.empty()) {
    MW_ASSIGN_OR_RETURN(const std::string name, NameArgument(arguments, 0));
    const Arguments rest = Without(arguments, 1);
    for (Value& item : items) {
      MW_ASSIGN_OR_RETURN(item, interpreter.CallFilter(name, item, rest));
    }
    return interpreter.MakeList(std::move(items));
  }
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"attribute", "default"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::Make(reader[0]));
  for (Value& item : items) {
    MW_ASSIGN_OR_RETURN(item, getter.Get(interpreter, item));
    if (item.is_undefined() && reader[1]) item = *reader[1];
  }
  return interpreter.MakeList(std::move(items));
}

/// select, reject, selectattr and rejectattr.
template <bool kKeep, bool kAttribute>
Result<Value> Select(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  AttributeGetter getter;
  if (kAttribute) {
    if (arguments.positional.empty()) return Error("needs the name of an attribute");
    MW_ASSIGN_OR_RETURN(getter, AttributeGetter::Make(arguments.positional[0]));
  }
  const Arguments rest = Without(arguments, kAttribute ? 1 : 0);
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(input, interpreter.budget()));
  std::vector<Value> kept;
  for (const Value& item : items) {
    MW_ASSIGN_OR_RETURN(const Value value, getter.Get(interpreter, item));
    bool passes = value.IsTrue();
    if (!rest.positional.empty()) {
      MW_ASSIGN_OR_RETURN(const std::string name, NameArgument(rest, 0));
      MW_ASSIGN_OR_RETURN(passes, interpreter.CallTest(name, value, Without(rest, 1)));
    }
    if (passes == kKeep) kept.push_back(item);
  }
  return interpreter.MakeList(std::move(kept));
}

constexpr std::pair<std::string_view, Filter> kSequenceFilters[] = {
    {"length", Length},
    {"count", Length},
    {"default", Default},
    {"d", Default},
    {"join", Join},
    {"first", End<true>},
    {"last", End<false>},
    {"list", ListFilter},
    {"reverse", Reverse},
    {"items", Items},
    {"dictsort", DictSort},
    {"sort", Sort},
    {"min", Extreme<false>},
    {"max", Extreme<true>},
    {"unique", Unique},
    {"sum", Sum},
    {"batch", Batch},
    {"attr", Attr},
    {"map", Map},
    {"select", Select<true, false>},
    {"reject", Select<false, false>},
    {"selectattr", Select<true, true>},
    {"rejectattr", Select<false, true>},
};

}  // namespace

Filter FindSequenceFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kSequenceFilters), std::end(kSequenceFilters),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kSequenceFilters) ? nullptr : found->second;
}

}  // namespace milwright::jinja
