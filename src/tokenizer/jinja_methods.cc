// The methods of strings, lists and dicts, as Python defines them.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/python_text.h"
#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

template <std::string (*kFunction)(std::string_view)>
Result<Value> MappedSelf(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  return interpreter.MakeString(kFunction(*self.string()));
}

/// str.title: a capital at the start of every run of letters.
std::string TitleOfLetters(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    NextCodePoint(text, position);
    const std::string_view character = text.substr(begin, position - begin);
    out += in_word ? Lower(character) : Upper(character);
    in_word = Lower(character) != Upper(character);
  }
  return out;
}

template <std::string_view (*kFunction)(std::string_view, std::optional<std::string_view>)>
Result<Value> Stripped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"chars"}));
  if (!reader[0] || reader[0]->is_none()) {
    return interpreter.MakeString(std::string(kFunction(*self.string(), std::nullopt)));
  }
  MW_ASSIGN_OR_RETURN(const std::string chars, reader.String(0, ""));
  return interpreter.MakeString(std::string(kFunction(*self.string(), chars)));
}

Result<Value> MakeStringList(Interpreter& interpreter, const std::vector<std::string_view>& parts) {
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(parts.size(), sizeof(std::string) + sizeof(Value)));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.emplace_back(std::string(part));
  return interpreter.MakeList(std::move(items));
}

template <bool kFromRight>
Result<Value> SplitMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"sep", "maxsplit"}));
  MW_ASSIGN_OR_RETURN(const int64_t limit, reader.Int(1, -1));
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(self.string()->size()));
  if (!reader[0] || reader[0]->is_none()) {
    return MakeStringList(interpreter, Split(*self.string(), std::nullopt, limit, kFromRight));
  }
  MW_ASSIGN_OR_RETURN(const std::string separator, reader.String(0, ""));
  if (separator.empty()) return Error("the separator of split is empty");
  return MakeStringList(interpreter, Split(*self.string(), separator, limit, kFromRight));
}

Result<Value> SplitLinesMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"keepends"}));
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(self.string()->size()));
  return MakeStringList(interpreter, SplitLines(*self.string(), reader.Bool(0, false)));
}

/// Whether the string has one of the affixes: a string or a tuple of strings.
template <bool kAtStart>
Result<Value> HasAffix(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"affix"}));
  MW_ASSIGN_OR_RETURN(const Value affix, reader.Required(0));
  const std::vector<Value> affixes = affix.list() != nullptr ? affix.list()->items() : std::vector<Value>{affix};
  bool has = false;
  for (const Value& one : affixes) {
    if (one.string() == nullptr) return Error(fmt::format("needs a string, not a {}", one.TypeName()));
    has = has || (kAtStart ? self.string()->starts_with(*one.string()) : self.string()->ends_with(*one.string()));
  }
  return Value(has);
}

template <bool kAtStart>
Result<Value> RemoveAffix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"affix"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string affix, reader.String(0, ""));
  std::string_view text = *self.string();
  if (kAtStart && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kAtStart && text.ends_with(affix)) text.remove_suffix(affix.size());
  return interpreter.MakeString(std::string(text));
}

Result<Value> ReplaceMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return FindFilter("replace")(interpreter, self, arguments);
}

Result<Value> JoinMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"iterable"}));
  MW_ASSIGN_OR_RETURN(const Value iterable, reader.Required(0));
  return FindFilter("join")(interpreter, iterable, Arguments{{self}, {}});
}

/// find, rfind and index count characters, not bytes.
template <bool kFromRight, bool kMustBeThere>
Result<Value> FindMethodOf(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"sub"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string needle, reader.String(0, ""));
  const std::string_view text = *self.string();
  const size_t found = kFromRight ? text.rfind(needle) : text.find(needle);
  if (found == std::string_view::npos) {
    if (kMustBeThere) return Error("the substring is not there");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(CountCharacters(text.substr(0, found))));
}

Result<Value> CountMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"sub"}));
  MW_RETURN_IF_ERROR(reader.Required(0));
  MW_ASSIGN_OR_RETURN(const std::string needle, reader.String(0, ""));
  return Value(static_cast<int64_t>(CountMatches(*self.string(), needle)));
}

/// Whether all characters are in a class, of which there must be one.
template <bool (*kClass)(char32_t)>
Result<Value> AllAre(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  const std::u32string text = ToUtf32(*self.string());
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), kClass));
}

bool IsLetter(char32_t c) { return IsWordCharacter(c) && !IsNumeric(c) && !IsMark(c) && !IsPunctuation(c); }
bool IsLetterOrDigit(char32_t c) { return IsLetter(c) || IsNumeric(c); }

Result<Value> IsUpperMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const bool is, FindTest("upper")(interpreter, self, arguments));
  return Value(is);
}

Result<Value> IsLowerMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const bool is, FindTest("lower")(interpreter, self, arguments));
  return Value(is);
}

/// str.format with {}, {0} and {name}; conversions and format specifications are errors.
Result<Value> FormatMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const std::string_view format = *self.string();
  std::string out;
  size_t next = 0;
  for (size_t position = 0; position < format.size(); ++position) {
    const char c = format[position];
    const bool doubled = position + 1 < format.size() && format[position + 1] == c;
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (doubled) {
      out += c;
      ++position;
      continue;
    }
    const size_t end = format.find('}', position);
    if (c == '}' || end == std::string_view::npos) return Error("a single brace in a format");
    const std::string_view field = format.substr(position + 1, end - position - 1);
    const bool is_index = !field.empty() && field.size() < 4 && field.find_first_not_of("0123456789") == field.npos;
    const size_t index = field.empty() ? next++ : is_index ? std::stoul(std::string(field)) : SIZE_MAX;
    const auto named = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                    [&](const auto& argument) { return argument.first == field; });
    const Value* value = nullptr;
    if (index < arguments.positional.size()) {
      value = &arguments.positional[index];
    } else if (named != arguments.keyword.end()) {
      value = &named->second;
    } else {
      return Error(
          fmt::format("the format field {{{}}} has no argument, or is of a kind that is not supported", field));
    }
    MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(*value));
    out += text;
    position = end;
  }
  return interpreter.MakeString(std::move(out));
}

Result<Value> GetMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"key", "default"}));
  MW_ASSIGN_OR_RETURN(const Value key, reader.Required(0));
  if (const Value* found = self.dict()->Find(key)) return *found;
  return reader[1] ? *reader[1] : Value::MakeNone();
}

Result<Value> ItemsMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  return FindFilter("items")(interpreter, self, arguments);
}

Result<Value> KeysMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  MW_ASSIGN_OR_RETURN(std::vector<Value> keys, Iterate(self, interpreter.budget()));
  return interpreter.MakeList(std::move(keys));
}

Result<Value> ValuesMethod(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  std::vector<Value> values;
  for (const Dict::Item& item : self.dict()->items()) values.push_back(item.second);
  return interpreter.MakeList(std::move(values));
}

Result<Value> CopyMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  return self;
}

/// list.index and list.count.
template <bool kCount>
Result<Value> SearchList(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"value"}));
  MW_ASSIGN_OR_RETURN(const Value wanted, reader.Required(0));
  int64_t count = 0;
  const std::vector<Value>& items = self.list()->items();
  for (size_t i = 0; i < items.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const bool equal, Equal(items[i], wanted, interpreter.budget()));
    if (!equal) continue;
    if (!kCount) return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (!kCount) return Error("the value is not in the list");
  return Value(count);
}

using Entry = std::pair<std::string_view, Method>;

constexpr Entry kStringMethods[] = {
    {"upper", MappedSelf<Upper>},
    {"lower", MappedSelf<Lower>},
    {"capitalize", MappedSelf<Capitalize>},
    {"title", MappedSelf<TitleOfLetters>},
    {"strip", Stripped<Strip>},
    {"lstrip", Stripped<StripLeft>},
    {"rstrip", Stripped<StripRight>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"splitlines", SplitLinesMethod},
    {"startswith", HasAffix<true>},
    {"endswith", HasAffix<false>},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"find", FindMethodOf<false, false>},
    {"rfind", FindMethodOf<true, false>},
    {"index", FindMethodOf<false, true>},
    {"count", CountMethod},
    {"format", FormatMethod},
    {"isdigit", AllAre<IsNumeric>},
    {"isnumeric", AllAre<IsNumeric>},
    {"isalpha", AllAre<IsLetter>},
    {"isalnum", AllAre<IsLetterOrDigit>},
    {"isspace", AllAre<IsSpace>},
    {"isupper", IsUpperMethod},
    {"islower", IsLowerMethod},
};

constexpr Entry kListMethods[] = {{"index", SearchList<false>}, {"count", SearchList<true>}, {"copy", CopyMethod}};

constexpr Entry kDictMethods[] = {
    {"get", GetMethod}, {"items", ItemsMethod}, {"keys", KeysMethod}, {"values", ValuesMethod}, {"copy", CopyMethod},
};

template <size_t N>
Method FindIn(const Entry (&table)[N], std::string_view name) {
  const auto* found =
      std::find_if(std::begin(table), std::end(table), [&](const Entry& entry) { return entry.first == name; });
  return found == std::end(table) ? nullptr : found->second;
}

}  // namespace

Method FindMethod(const Value& self, std::string_view name) {
  if (self.string() != nullptr) return FindIn(kStringMethods, name);
  if (self.list() != nullptr) return FindIn(kListMethods, name);
  if (self.dict() != nullptr) return FindIn(kDictMethods, name);
  return nullptr;
}

}  // namespace milwright::jinja
