#include "tokenizer/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tokenizer/unicode.h"

namespace milwright::jinja {
namespace {

Status Overflow() { return Error("an integer leaves the range of 64 bits"); }

Result<Value> PowerOfIntegers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Error("division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

Result<Value> Integers(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
  if (op == "-") return __builtin_sub_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
  if (op == "*") return __builtin_mul_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
  if (op == "**") return PowerOfIntegers(a, b);
  if (b == 0) return Error("division by zero");
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one case where the quotient overflows
    if (op == "%") return Value(int64_t{0});
    return a == INT64_MIN ? Result<Value>(Overflow()) : Value(-a);
  }
  // Python rounds down, and the remainder has the sign of the divisor.
  const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return op == "//" ? Value(quotient) : Value(a - quotient * b);
}

Result<Value> Floats(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) return Error("division by zero");
  if (op == "/") return Value(a / b);
  const double quotient = std::floor(a / b);
  return op == "//" ? Value(quotient) : Value(a - quotient * b);
}

Result<Value> Concatenate(const Value& left, const Value& right, Budget& budget) {
  if (left.string() != nullptr && right.string() != nullptr) {
    MW_RETURN_IF_ERROR(budget.Allocate(left.string()->size() + right.string()->size()));
    return Value(*left.string() + *right.string());
  }
  const List* a = left.list();
  const List* b = right.list();
  if (a == nullptr || b == nullptr || a->is_tuple() != b->is_tuple()) {
    return Error(fmt::format("a {} and a {} cannot be added", left.TypeName(), right.TypeName()));
  }
  std::vector<Value> items = a->items();
  items.insert(items.end(), b->items().begin(), b->items().end());
  return List::Make(std::move(items), budget, a->is_tuple());
}

Result<Value> Repeat(const Value& value, int64_t count, Budget& budget) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const std::string* text = value.string()) {
    MW_RETURN_IF_ERROR(budget.Allocate(text->size(), times));
    std::string out;
    if (!text->empty()) {
      for (size_t i = 0; i < times; ++i) out += *text;
    }
    return Value(std::move(out));
  }
  const std::vector<Value>& items = value.list()->items();
  MW_RETURN_IF_ERROR(budget.Allocate(items.size() * sizeof(Value), times));
  std::vector<Value> out;
  if (!items.empty()) {
    for (size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return List::Make(std::move(out), budget, value.list()->is_tuple());
}

bool IsTextOrList(const Value& value) { return value.string() != nullptr || value.list() != nullptr; }

/// One conversion of a percent format: "%-08.3f".
struct Conversion {
  bool left = false;
  bool plus = false;
  bool zero = false;
  size_t width = 0;
  std::optional<size_t> precision;
  char type = ' ';
};

Result<Conversion> ParseConversion(std::string_view format, size_t& position) {
  Conversion conversion;
  const auto at = [&] { return position < format.size() ? format[position] : '\0'; };
  const auto number = [&] {
    constexpr size_t kLarge = 1 << 20;
    size_t value = 0;
    for (; at() >= '0' && at() <= '9'; ++position)
      value = std::min(value * 10 + static_cast<size_t>(at() - '0'), kLarge);
    return value;
  };
  for (; at() == '-' || at() == '+' || at() == '0'; ++position) {
    conversion.left = conversion.left || at() == '-';
    conversion.plus = conversion.plus || at() == '+';
    conversion.zero = conversion.zero || at() == '0';
  }
  conversion.width = number();
  if (at() == '.') {
    ++position;
    conversion.precision = number();
    if (*conversion.precision > 100) return Error("a precision above 100 is not supported");
  }
  conversion.type = at();
  ++position;
  return conversion;
}

Result<std::string> Convert(const Conversion& conversion, const Value& value, Budget& budget) {
  if (conversion.type == 's') {
    MW_ASSIGN_OR_RETURN(std::string text, ToString(value, budget));
    return text;
  }
  if (!value.is_number()) return Error(fmt::format("%{} needs a number, not a {}", conversion.type, value.TypeName()));
  std::string text;
  if (conversion.type == 'f') {
    text = fmt::format("{:.{}f}", value.AsDouble(), conversion.precision.value_or(6));
  } else if (conversion.type == 'd' || conversion.type == 'i') {
    text = value.is_float() ? fmt::format("{:.0f}", std::trunc(value.AsDouble())) : fmt::format("{}", value.AsInt());
  } else if (conversion.type == 'x' && value.is_integral()) {
    text = fmt::format("{:x}", value.AsInt());
  } else {
    return Error(fmt::format("the conversion %{} is not supported", conversion.type));
  }
  return conversion.plus && !text.starts_with('-') ? "+" + text : text;
}

}  // namespace

Result<Value> FormatPercent(std::string_view format, const std::vector<Value>& arguments, Budget& budget) {
  std::string out;
  size_t used = 0;
  for (size_t position = 0; position < format.size();) {
    if (format[position] != '%') {
      out += format[position++];
      continue;
    }
    ++position;
    MW_ASSIGN_OR_RETURN(const Conversion conversion, ParseConversion(format, position));
    if (conversion.type == '%') {
      out += '%';
      continue;
    }
    if (used == arguments.size()) return Error("the format has more conversions than there are arguments");
    MW_ASSIGN_OR_RETURN(std::string text, Convert(conversion, arguments[used++], budget));
    const size_t padding = conversion.width > text.size() ? conversion.width - text.size() : 0;
    MW_RETURN_IF_ERROR(budget.Allocate(text.size() + padding));
    if (conversion.left) {
      text.append(padding, ' ');
    } else if (conversion.zero && conversion.type != 's') {
      text.insert(text.starts_with('-') || text.starts_with('+') ? 1 : 0, padding, '0');
    } else {
      text.insert(0, padding, ' ');
    }
    out += text;
  }
  if (used < arguments.size()) return Error("the format has fewer conversions than there are arguments");
  MW_RETURN_IF_ERROR(budget.Allocate(out.size()));
  return Value(std::move(out));
}

Result<Value> ApplyBinary(std::string_view op, const Value& left, const Value& right, Budget& budget) {
  if (op == "~") {
    MW_ASSIGN_OR_RETURN(std::string text, ToString(left, budget));
    MW_ASSIGN_OR_RETURN(const std::string rest, ToString(right, budget));
    text += rest;
    return Value(std::move(text));
  }
  MW_RETURN_IF_ERROR(left.CheckDefined());
  if (op == "%" && left.string() != nullptr) {
    const bool is_tuple = right.list() != nullptr && right.list()->is_tuple();
    return FormatPercent(*left.string(), is_tuple ? right.list()->items() : std::vector<Value>{right}, budget);
  }
  MW_RETURN_IF_ERROR(right.CheckDefined());
  if (left.is_integral() && right.is_integral()) return Integers(op, left.AsInt(), right.AsInt());
  if (left.is_number() && right.is_number()) return Floats(op, left.AsDouble(), right.AsDouble());
  if (op == "+" && (IsTextOrList(left) || IsTextOrList(right))) return Concatenate(left, right, budget);
  if (op == "*" && IsTextOrList(left) && right.is_integral()) return Repeat(left, right.AsInt(), budget);
  if (op == "*" && IsTextOrList(right) && left.is_integral()) return Repeat(right, left.AsInt(), budget);
  return Error(fmt::format("'{}' does not work on a {} and a {}", op, left.TypeName(), right.TypeName()));
}

Result<Value> ApplySign(std::string_view op, const Value& value) {
  MW_RETURN_IF_ERROR(value.CheckDefined());
  if (!value.is_number()) return Error(fmt::format("a {} has no sign", value.TypeName()));
  if (value.is_float()) return Value(op == "-" ? -value.AsDouble() : value.AsDouble());
  return Integers(op, 0, value.AsInt());
}

Result<bool> ApplyComparison(std::string_view op, const Value& left, const Value& right, Budget& budget) {
  if (op == "==" || op == "!=") {
    MW_ASSIGN_OR_RETURN(const bool equal, Equal(left, right, budget));
    return equal == (op == "==");
  }
  if (op == "in" || op == "not in") {
    MW_ASSIGN_OR_RETURN(const bool contained, Contains(right, left, budget));
    return contained == (op == "in");
  }
  MW_ASSIGN_OR_RETURN(const int order, Compare(left, right, budget));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

Result<Value> ApplySlice(const Value& value, std::optional<int64_t> start, std::optional<int64_t> stop,
                         std::optional<int64_t> step_or_none, Budget& budget) {
  MW_RETURN_IF_ERROR(value.CheckDefined());
  if (!IsTextOrList(value)) return Error(fmt::format("a {} cannot be sliced", value.TypeName()));
  MW_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  const int64_t step = step_or_none.value_or(1);
  if (step == 0) return Error("the step of a slice is zero");
  const auto size = static_cast<int64_t>(items.size());
  // The bounds as Python's slice.indices() gives them.
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto bound = [&](std::optional<int64_t> index, int64_t fallback) {
    if (!index) return fallback;
    return std::clamp(*index < 0 ? std::max(*index, -size - 1) + size : *index, low, high);
  };
  const int64_t begin = bound(start, step > 0 ? low : high);
  const int64_t end = bound(stop, step > 0 ? high : low);
  std::vector<Value> picked;
  std::string text;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    const Value& item = items[static_cast<size_t>(i)];
    if (value.string() != nullptr) {
      text += *item.string();
    } else {
      picked.push_back(item);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.string() != nullptr) return Value(std::move(text));
  return List::Make(std::move(picked), budget, value.list()->is_tuple());
}

}  // namespace milwright::jinja
