// Python's str(), repr() and json.dumps() of values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_value.h"
#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

/// Python's repr of a float: the shortest digits, and always a point or an exponent.
std::string FloatText(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string QuotedText(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += c;
    }
  }
  return out + quote;
}

class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : budget_(budget) {}

  Result<std::string> Str(const Value& value) {
    if (const std::string* text = value.string()) {
      MW_RETURN_IF_ERROR(budget_.Allocate(text->size()));
      return *text;
    }
    if (value.is_undefined()) return std::string();
    MW_RETURN_IF_ERROR(Write(value));
    return std::move(out_);
  }

 private:
  Status Append(std::string_view text) {
    MW_RETURN_IF_ERROR(budget_.Allocate(text.size()));
    out_ += text;
    return Status::Ok();
  }

  Status Write(const Value& value) {
    MW_RETURN_IF_ERROR(budget_.Step());
    if (value.is_undefined()) return Append("Undefined");
    if (value.is_none()) return Append("None");
    if (value.is_bool()) return Append(value.IsTrue() ? "True" : "False");
    if (value.is_int()) return Append(fmt::format("{}", value.AsInt()));
    if (value.is_float()) return Append(FloatText(value.AsDouble()));
    if (value.string() != nullptr) return Append(QuotedText(*value.string()));
    if (const List* list = value.list()) return WriteList(*list);
    if (const Dict* dict = value.dict()) return WriteDict(*dict);
    return Append(fmt::format("<{}>", value.TypeName()));
  }

  Status WriteList(const List& list) {
    out_ += list.is_tuple() ? '(' : '[';
    bool first = true;
    for (const Value& item : list.items()) {
      if (!std::exchange(first, false)) MW_RETURN_IF_ERROR(Append(", "));
      MW_RETURN_IF_ERROR(Write(item));
    }
    if (list.is_tuple() && list.items().size() == 1) out_ += ',';
    out_ += list.is_tuple() ? ')' : ']';
    return Status::Ok();
  }

  Status WriteDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, item] : dict.items()) {
      if (!std::exchange(first, false)) MW_RETURN_IF_ERROR(Append(", "));
      MW_RETURN_IF_ERROR(Write(key));
      MW_RETURN_IF_ERROR(Append(": "));
      MW_RETURN_IF_ERROR(Write(item));
    }
    out_ += '}';
    return Status::Ok();
  }

  Budget& budget_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  Result<std::string> Run(const Value& value) {
    MW_RETURN_IF_ERROR(Write(value, 0));
    return std::move(out_);
  }

 private:
  Status Append(std::string_view text) {
    MW_RETURN_IF_ERROR(budget_.Allocate(text.size()));
    out_ += text;
    return Status::Ok();
  }

  Status AppendString(std::string_view text) {
    std::string quoted = "\"";
    for (size_t position = 0; position < text.size();) {
      const size_t begin = position;
      const char32_t c = NextCodePoint(text, position);
      if (c == '"' || c == '\\') {
        quoted += '\\';
        quoted += static_cast<char>(c);
      } else if (c == '\n') {
        quoted += "\\n";
      } else if (c == '\r') {
        quoted += "\\r";
      } else if (c == '\t') {
        quoted += "\\t";
      } else if (c == '\b') {
        quoted += "\\b";
      } else if (c == '\f') {
        quoted += "\\f";
      } else if (c < 0x20) {
        quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else if (c < 0x7F || !style_.ensure_ascii) {
        quoted += text.substr(begin, position - begin);
      } else if (c < 0x10000) {
        quoted += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else {
        const auto rest = static_cast<uint32_t>(c) - 0x10000;
        quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
      }
    }
    return Append(quoted + "\"");
  }

  static std::string NumberText(const Value& value) {
    if (value.is_bool()) return value.IsTrue() ? "true" : "false";
    if (value.is_int()) return fmt::format("{}", value.AsInt());
    const double number = value.AsDouble();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return FloatText(number);
  }

  Status Write(const Value& value, size_t level) {
    MW_RETURN_IF_ERROR(budget_.Step());
    if (value.is_none()) return Append("null");
    if (value.is_number()) return Append(NumberText(value));
    if (value.string() != nullptr) return AppendString(*value.string());
    if (const List* list = value.list()) return WriteList(*list, level);
    if (const Dict* dict = value.dict()) return WriteDict(*dict, level);
    return Error(fmt::format("a value of type {} has no JSON form", value.TypeName()));
  }

  /// What stands in front of the members and behind the last: the indentation of `level`.
  Status NewLine(size_t level) {
    if (!style_.indent) return Status::Ok();
    MW_RETURN_IF_ERROR(budget_.Allocate(level, style_.indent->size()));
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += *style_.indent;
    return Status::Ok();
  }

  Status WriteList(const List& list, size_t level) {
    if (list.items().empty()) return Append("[]");
    MW_RETURN_IF_ERROR(Append("["));
    bool first = true;
    for (const Value& item : list.items()) {
      if (!std::exchange(first, false)) MW_RETURN_IF_ERROR(Append(style_.item_separator));
      MW_RETURN_IF_ERROR(NewLine(level + 1));
      MW_RETURN_IF_ERROR(Write(item, level + 1));
    }
    MW_RETURN_IF_ERROR(NewLine(level));
    return Append("]");
  }

  Status WriteDict(const Dict& dict, size_t level) {
    if (dict.items().empty()) return Append("{}");
    MW_RETURN_IF_ERROR(Append("{"));
    std::vector<const Dict::Item*> items;
    for (const Dict::Item& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys) {
      Status status;
      std::stable_sort(items.begin(), items.end(), [&](const Dict::Item* a, const Dict::Item* b) {
        const Result<int> order = Compare(a->first, b->first, budget_);
        if (!order.ok()) status = order.status();
        return order.ok() && *order < 0;
      });
      MW_RETURN_IF_ERROR(status);
    }
    bool first = true;
    for (const Dict::Item* item : items) {
      if (!std::exchange(first, false)) MW_RETURN_IF_ERROR(Append(style_.item_separator));
      MW_RETURN_IF_ERROR(NewLine(level + 1));
      const Value& key = item->first;
      const std::string text = key.is_none() ? "null" : key.is_number() ? NumberText(key) : *key.string();
      MW_RETURN_IF_ERROR(AppendString(text));
      MW_RETURN_IF_ERROR(Append(style_.key_separator));
      MW_RETURN_IF_ERROR(Write(item->second, level + 1));
    }
    MW_RETURN_IF_ERROR(NewLine(level));
    return Append("}");
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

Result<std::string> ToString(const Value& value, Budget& budget) { return ReprWriter(budget).Str(value); }

Result<std::string> ToJson(const Value& value, const JsonStyle& style, Budget& budget) {
  return JsonWriter(style, budget).Run(value);
}

}  // namespace milwright::jinja
