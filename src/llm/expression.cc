#include "llm/expression.h"

#include <fmt/format.h>

#include <cctype>

namespace milwright {
namespace {

constexpr int kMaxDepth = 16;

class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  Result<int64_t> Parse() {
    MW_ASSIGN_OR_RETURN(const int64_t value, Sum(0));
    if (position_ != text_.size()) return Error("unexpected text behind it");
    return value;
  }

 private:
  Status Error(std::string_view what) const {
    return {ErrorCode::kUsage, fmt::format("size '{}': {} (at column {})", text_, what, position_ + 1)};
  }

  char Peek() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  Result<int64_t> Sum(int depth) {
    MW_ASSIGN_OR_RETURN(int64_t value, Product(depth));
    while (Peek() == '+' || Peek() == '-') {
      const bool plus = text_[position_++] == '+';
      MW_ASSIGN_OR_RETURN(const int64_t right, Product(depth));
      if (plus ? __builtin_add_overflow(value, right, &value) : __builtin_sub_overflow(value, right, &value)) {
        return Error("the value is too large");
      }
    }
    return value;
  }

  Result<int64_t> Product(int depth) {
    MW_ASSIGN_OR_RETURN(int64_t value, Atom(depth));
    while (Peek() == '*') {
      ++position_;
      MW_ASSIGN_OR_RETURN(const int64_t right, Atom(depth));
      if (__builtin_mul_overflow(value, right, &value)) return Error("the value is too large");
    }
    return value;
  }

  Result<int64_t> Atom(int depth) {
    if (depth > kMaxDepth) return Error("parentheses nest too deep");
    const char c = Peek();
    if (c == '(') {
      ++position_;
      MW_ASSIGN_OR_RETURN(const int64_t value, Sum(depth + 1));
      if (Peek() != ')') return Error("')' is missing");
      ++position_;
      return value;
    }
    const size_t start = position_;
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      int64_t value = 0;
      while (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text_[position_] - '0', &value)) {
          return Error("the number is too large");
        }
        ++position_;
      }
      return value;
    }
    while (position_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 || text_[position_] == '_')) {
      ++position_;
    }
    if (start == position_) return Error("a number, a name or '(' is expected");
    const auto it = symbols_.find(text_.substr(start, position_ - start));
    if (it == symbols_.end()) {
      return Error(fmt::format("'{}' is not known here", text_.substr(start, position_ - start)));
    }
    return it->second;
  }

  std::string_view text_;
  const Symbols& symbols_;
  size_t position_ = 0;
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<int64_t> EvaluateExpression(std::string_view expression, const Symbols& symbols) {
  return ExpressionParser(expression, symbols).Parse();
}

Result<Shape> EvaluateShape(std::string_view expressions, const Symbols& symbols) {
  Shape shape;
  while (!expressions.empty()) {
    const size_t comma = expressions.find(',');
    const std::string_view one = Trim(expressions.substr(0, comma));
    expressions = comma == std::string_view::npos ? std::string_view() : expressions.substr(comma + 1);
    if (one == "?") {
      shape.push_back(kUnknownDim);
      continue;
    }
    MW_ASSIGN_OR_RETURN(const int64_t size, EvaluateExpression(one, symbols));
    if (size < 1) return Status(ErrorCode::kUsage, fmt::format("size '{}' is {}: must be at least 1", one, size));
    shape.push_back(size);
  }
  return shape;
}

bool ConditionHolds(std::string_view condition, const Symbols& symbols) {
  while (!(condition = Trim(condition)).empty()) {
    const size_t space = condition.find(' ');
    std::string_view word = condition.substr(0, space);
    condition = space == std::string_view::npos ? std::string_view() : condition.substr(space);
    const bool wanted = word.front() != '!';
    if (!wanted) word.remove_prefix(1);
    const auto it = symbols.find(word);
    if ((it != symbols.end() && it->second != 0) != wanted) return false;
  }
  return true;
}

std::string ExpandPattern(std::string_view pattern, const Symbols& symbols) {
  std::string text;
  while (!pattern.empty()) {
    const size_t open = pattern.find('{');
    const size_t close = open == std::string_view::npos ? open : pattern.find('}', open);
    if (close == std::string_view::npos) break;
    text += pattern.substr(0, open);
    const auto it = symbols.find(pattern.substr(open + 1, close - open - 1));
    if (it != symbols.end()) {
      text += std::to_string(it->second);
    } else {
      text += pattern.substr(open, close - open + 1);
    }
    pattern.remove_prefix(close + 1);
  }
  text += pattern;
  return text;
}

}  // namespace milwright
