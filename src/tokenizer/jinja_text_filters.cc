// Filters that make text and numbers, as jinja2/filters.py defines them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/python_text.h"
#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

/// jinja2's title: a capital at the start and behind any of "-({[<" and whitespace.
std::string TitleOfWords(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = NextCodePoint(text, position);
    const std::string_view character = text.substr(begin, position - begin);
    out += at_start ? Upper(character) : Lower(character);
    at_start = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return out;
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Same(std::string_view text) { return std::string(text); }

/// A filter of str(input) without arguments.
template <std::string (*kFunction)(std::string_view)>
Result<Value> MappedText(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  return interpreter.MakeString(kFunction(text));
}

Result<Value> Trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"chars"}));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  if (!reader[0] || reader[0]->is_none()) return interpreter.MakeString(std::string(Strip(text)));
  MW_ASSIGN_OR_RETURN(const std::string chars, reader.String(0, ""));
  return interpreter.MakeString(std::string(Strip(text, chars)));
}

Result<Value> ReplaceFilter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"old", "new", "count"}));
  MW_ASSIGN_OR_RETURN(const Value old_value, reader.Required(0));
  MW_ASSIGN_OR_RETURN(const Value new_value, reader.Required(1));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  MW_ASSIGN_OR_RETURN(const std::string old_text, interpreter.Str(old_value));
  MW_ASSIGN_OR_RETURN(const std::string new_text, interpreter.Str(new_value));
  const bool limited = reader[2] && !reader[2]->is_none();
  int64_t limit = -1;
  if (limited) {
    MW_ASSIGN_OR_RETURN(limit, reader.Int(2, -1));
  }
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(text.size()));
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(CountMatches(text, old_text), new_text.size()));
  return Value(Replace(text, old_text, new_text, limit));
}

Result<Value> Indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"width", "first", "blank"}));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  std::string indent;
  if (reader[0] && reader[0]->string() != nullptr) {
    indent = *reader[0]->string();
  } else {
    MW_ASSIGN_OR_RETURN(const int64_t width, reader.Int(0, 4));
    const auto count = static_cast<size_t>(std::max<int64_t>(width, 0));
    MW_RETURN_IF_ERROR(interpreter.budget().Allocate(count));
    indent.assign(count, ' ');
  }
  const bool blank = reader.Bool(2, false);
  const std::string terminated = text + "\n";
  const std::vector<std::string_view> lines = SplitLines(terminated, /*keep_ends=*/false);
  MW_RETURN_IF_ERROR(interpreter.budget().Allocate(lines.size() + 1, indent.size() + 1));
  std::string out = reader.Bool(1, false) ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indent;
    }
    out += lines[i];
  }
  return interpreter.MakeString(std::move(out));
}

Result<Value> Truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader,
                      ArgumentReader::Bind(arguments, {"length", "killwords", "end", "leeway"}));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  MW_ASSIGN_OR_RETURN(const int64_t length, reader.Int(0, 255));
  MW_ASSIGN_OR_RETURN(const std::string end, reader.String(2, "..."));
  MW_ASSIGN_OR_RETURN(const int64_t leeway, reader.Int(3, 5));
  const auto end_length = static_cast<int64_t>(CountCharacters(end));
  if (length < end_length || leeway < 0) return Error("the length is too small");
  const std::u32string characters = ToUtf32(text);
  if (static_cast<int64_t>(characters.size()) - leeway <= length) return interpreter.MakeString(text);
  std::string cut = ToUtf8(std::u32string_view(characters).substr(0, static_cast<size_t>(length - end_length)));
  if (!reader.Bool(1, false)) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return interpreter.MakeString(cut + end);
}

Result<Value> WordCount(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  const std::u32string characters = ToUtf32(text);
  int64_t count = 0;
  bool in_word = false;
  for (const char32_t c : characters) {
    const bool is_word = IsWordCharacter(c);
    if (is_word && !in_word) ++count;
    in_word = is_word;
  }
  return Value(count);
}

Result<Value> Format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.keyword.empty()) return Error("named arguments are not supported");
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  return FormatPercent(text, arguments.positional, interpreter.budget());
}

/// Python's json.dumps in place of Jinja's own tojson, with its options, as Hugging Face's environment has it.
Result<Value> ToJsonFilter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader,
                      ArgumentReader::Bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = reader.Bool(0, false);
  style.sort_keys = reader.Bool(3, false);
  // tojson(2) and tojson(indent=2) both occur; the first would be ensure_ascii, which no template means.
  const std::optional<Value>& positional = reader[0];
  const bool meant_indent = positional && positional->is_int();
  if (meant_indent) style.ensure_ascii = false;
  const std::optional<Value>& indent = meant_indent ? positional : reader[1];
  if (indent && indent->string() != nullptr) {
    style.indent = *indent->string();
  } else if (indent && indent->is_integral()) {
    constexpr int64_t kMaxIndent = 1000;
    if (indent->AsInt() > kMaxIndent) return Error("the indent is too large");
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(indent->AsInt(), 0)), ' ');
  }
  if (style.indent) style.item_separator = std::string(1, ',');
  if (reader[2] && !reader[2]->is_none()) {
    const List* separators = reader[2]->list();
    if (separators == nullptr || separators->items().size() != 2 || separators->items()[0].string() == nullptr ||
        separators->items()[1].string() == nullptr) {
      return Error("separators are two strings");
    }
    style.item_separator = *separators->items()[0].string();
    style.key_separator = *separators->items()[1].string();
  }
  MW_ASSIGN_OR_RETURN(std::string json, ToJson(input, style, interpreter.budget()));
  return Value(std::move(json));
}

/// The number that the whole of `text` spells, underscores between digits allowed as in Python.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  std::string digits(Strip(text));
  if (digits.starts_with('_') || digits.ends_with('_') || digits.find("__") != std::string::npos) return std::nullopt;
  std::erase(digits, '_');
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.erase(0, 1);
  Number number{};
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return number;
}

Result<Value> IntFilter(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"default", "base"}));
  const Value fallback = reader[0].value_or(Value(int64_t{0}));
  MW_ASSIGN_OR_RETURN(const int64_t base, reader.Int(1, 10));
  if (base != 10) return Error("other bases than 10 are not supported");
  if (input.is_integral()) return Value(input.AsInt());
  std::optional<double> number;
  if (const std::string* text = input.string()) {
    if (const auto integer = ParseNumber<int64_t>(*text)) return Value(*integer);
    number = ParseNumber<double>(*text);
  } else if (input.is_float()) {
    number = input.AsDouble();
  }
  constexpr double kLimit = 0x1p63;
  if (!number || !(std::abs(*number) < kLimit)) return fallback;
  return Value(static_cast<int64_t>(*number));
}

Result<Value> FloatFilter(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"default"}));
  if (input.is_number()) return Value(input.AsDouble());
  const std::optional<double> number = input.string() != nullptr ? ParseNumber<double>(*input.string()) : std::nullopt;
  return number ? Value(*number) : reader[0].value_or(Value(0.0));
}

Result<Value> Abs(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  if (!input.is_number()) return Error(fmt::format("needs a number, not a {}", input.TypeName()));
  if (input.is_float()) return Value(std::abs(input.AsDouble()));
  return input.AsInt() < 0 ? ApplySign("-", input) : Value(input.AsInt());
}

/// `value` rounded half to even at `precision` decimals.
double RoundTo(double value, int64_t precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  return std::stod(fmt::format("{:.{}f}", value, precision));
}

Result<Value> Round(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"precision", "method"}));
  MW_ASSIGN_OR_RETURN(const int64_t precision, reader.Int(0, 0));
  MW_ASSIGN_OR_RETURN(const std::string method, reader.String(1, "common"));
  if (!input.is_number()) return Error(fmt::format("needs a number, not a {}", input.TypeName()));
  if (std::abs(precision) > 300) return Error("the precision is too large");
  const double value = input.AsDouble();
  if (method == "common") {
    if (input.is_integral() && precision >= 0) return Value(input.AsInt());
    return std::isfinite(value) ? Value(RoundTo(value, precision)) : Value(value);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  return Error("the method must be common, ceil or floor");
}

constexpr std::pair<std::string_view, Filter> kTextFilters[] = {
    {"upper", MappedText<Upper>},
    {"lower", MappedText<Lower>},
    {"capitalize", MappedText<Capitalize>},
    {"title", MappedText<TitleOfWords>},
    {"string", MappedText<Same>},
    {"safe", MappedText<Same>},
    {"escape", MappedText<EscapeHtml>},
    {"e", MappedText<EscapeHtml>},
    {"trim", Trim},
    {"replace", ReplaceFilter},
    {"indent", Indent},
    {"truncate", Truncate},
    {"wordcount", WordCount},
    {"format", Format},
    {"tojson", ToJsonFilter},
    {"int", IntFilter},
    {"float", FloatFilter},
    {"abs", Abs},
    {"round", Round},
};

}  // namespace

Filter FindTextFilter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTextFilters), std::end(kTextFilters),
                                   [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kTextFilters) ? nullptr : found->second;
}

}  // namespace milwright::jinja
