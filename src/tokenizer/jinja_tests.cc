// The tests of Jinja ("x is defined"), as jinja2/tests.py defines them.
#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_operators.h"
#include "tokenizer/python_text.h"

namespace milwright::jinja {
namespace {

/// A test without arguments.
template <bool (*kPredicate)(const Value&)>
Result<bool> Simple(Interpreter&, const Value& input, const Arguments& arguments) {
  MW_RETURN_IF_ERROR(arguments.Bind({}));
  return kPredicate(input);
}

bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsTrueValue(const Value& v) { return v.is_bool() && v.IsTrue(); }
bool IsFalseValue(const Value& v) { return v.is_bool() && !v.IsTrue(); }
bool IsInteger(const Value& v) { return v.is_int(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.string() != nullptr; }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsSequence(const Value& v) {
  return v.string() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
}
bool IsCallable(const Value& v) { return v.object() != nullptr && v.object()->callable(); }
bool IsNever(const Value&) { return false; }

Result<bool> IsLower(Interpreter& interpreter, const Value& input, const Arguments&) {
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  return Lower(text) == text && Upper(text) != text;
}

Result<bool> IsUpper(Interpreter& interpreter, const Value& input, const Arguments&) {
  MW_ASSIGN_OR_RETURN(const std::string text, interpreter.Str(input));
  return Upper(text) == text && Lower(text) != text;
}

/// The one argument of a test.
Result<Value> Operand(const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const ArgumentReader reader, ArgumentReader::Bind(arguments, {"other"}));
  return reader.Required(0);
}

Result<int64_t> Remainder(const Value& input, int64_t divisor, Budget& budget) {
  if (!input.is_integral()) return Error(fmt::format("needs an integer, not a {}", input.TypeName()));
  MW_ASSIGN_OR_RETURN(const Value rest, ApplyBinary("%", input, Value(divisor), budget));
  return rest.AsInt();
}

Result<bool> IsEven(Interpreter& interpreter, const Value& input, const Arguments&) {
  MW_ASSIGN_OR_RETURN(const int64_t rest, Remainder(input, 2, interpreter.budget()));
  return rest == 0;
}

Result<bool> IsOdd(Interpreter& interpreter, const Value& input, const Arguments&) {
  MW_ASSIGN_OR_RETURN(const int64_t rest, Remainder(input, 2, interpreter.budget()));
  return rest == 1;
}

Result<bool> IsDivisibleBy(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value divisor, Operand(arguments));
  if (!divisor.is_integral()) return Error(fmt::format("needs an integer, not a {}", divisor.TypeName()));
  MW_ASSIGN_OR_RETURN(const int64_t rest, Remainder(input, divisor.AsInt(), interpreter.budget()));
  return rest == 0;
}

Result<bool> IsSameAs(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value other, Operand(arguments));
  if (input.list() != nullptr) return input.list() == other.list();
  if (input.dict() != nullptr) return input.dict() == other.dict();
  if (input.TypeName() != other.TypeName()) return false;
  return Equal(input, other, interpreter.budget());
}

Result<bool> IsKnownFilter(Interpreter&, const Value& input, const Arguments&) {
  return input.string() != nullptr && FindFilter(*input.string()) != nullptr;
}

Result<bool> IsKnownTest(Interpreter&, const Value& input, const Arguments&) {
  return input.string() != nullptr && FindTest(*input.string()) != nullptr;
}

struct Operator {
  static constexpr size_t kSize = 3;
  char text[kSize] = {};
  constexpr Operator(const char* name) { std::copy(name, name + std::string_view(name).size(), text); }
};

template <Operator kOperator>
Result<bool> Comparison(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value other, Operand(arguments));
  return ApplyComparison(kOperator.text, input, other, interpreter.budget());
}

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"defined", Simple<IsDefined>},
    {"undefined", Simple<IsUndefined>},
    {"none", Simple<IsNone>},
    {"boolean", Simple<IsBoolean>},
    {"true", Simple<IsTrueValue>},
    {"false", Simple<IsFalseValue>},
    {"integer", Simple<IsInteger>},
    {"float", Simple<IsFloat>},
    {"number", Simple<IsNumber>},
    {"string", Simple<IsString>},
    {"mapping", Simple<IsMapping>},
    {"sequence", Simple<IsSequence>},
    {"iterable", Simple<IsSequence>},
    {"callable", Simple<IsCallable>},
    {"escaped", Simple<IsNever>},  // nothing is: autoescape is off
    {"lower", IsLower},
    {"upper", IsUpper},
    {"even", IsEven},
    {"odd", IsOdd},
    {"divisibleby", IsDivisibleBy},
    {"sameas", IsSameAs},
    {"filter", IsKnownFilter},
    {"test", IsKnownTest},
    {"in", Comparison<"in">},
    {"==", Comparison<"==">},
    {"eq", Comparison<"==">},
    {"equalto", Comparison<"==">},
    {"!=", Comparison<"!=">},
    {"ne", Comparison<"!=">},
    {">", Comparison<">">},
    {"gt", Comparison<">">},
    {"greaterthan", Comparison<">">},
    {">=", Comparison<">=">},
    {"ge", Comparison<">=">},
    {"<", Comparison<"<">},
    {"lt", Comparison<"<">},
    {"lessthan", Comparison<"<">},
    {"<=", Comparison<"<=">},
    {"le", Comparison<"<=">},
};

}  // namespace

Test FindTest(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kTests) ? nullptr : found->second;
}

}  // namespace milwright::jinja
