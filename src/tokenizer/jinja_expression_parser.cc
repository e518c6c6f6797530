#include "tokenizer/jinja_expression_parser.h"

#include <algorithm>
#include <utility>

namespace milwright::jinja {
namespace {

constexpr int kMaxExpressionDepth = 200;  // of a tree; real templates stay below 20
constexpr int kMaxNesting = 60;           // of brackets and conditionals: each costs the parser a dozen calls

}  // namespace

ExpressionPtr ExpressionParser::Make(ExpressionKind kind, std::string name) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = tokens_.Current().line;
  node->name = std::move(name);
  return node;
}

ExpressionParser::Parsed ExpressionParser::Finish(ExpressionPtr node) const {
  for (const ExpressionPtr& operand : node->operands) {
    if (operand != nullptr) node->depth = std::max(node->depth, operand->depth + 1);
  }
  for (const ArgumentNode& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
  if (node->depth > kMaxExpressionDepth) return tokens_.Error("the expression is too deep");
  return node;
}

ExpressionParser::Parsed ExpressionParser::MakeBinary(std::string name, ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr node = Make(ExpressionKind::kBinary, std::move(name));
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return Finish(std::move(node));
}

ExpressionParser::Parsed ExpressionParser::ParseExpression(bool with_conditional) {
  if (++nesting_ > kMaxNesting) return tokens_.Error("the expression is too deep");
  Parsed parsed = with_conditional ? ParseConditional() : ParseOr();
  --nesting_;
  return parsed;
}

ExpressionParser::Parsed ExpressionParser::ParseConditional() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (tokens_.TakeName("if")) {
    ExpressionPtr node = Make(ExpressionKind::kConditional);
    MW_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr other;
    if (tokens_.TakeName("else")) {
      MW_ASSIGN_OR_RETURN(other, ParseExpression());
    }
    node->operands.push_back(std::move(condition));
    node->operands.push_back(std::move(value));
    node->operands.push_back(std::move(other));
    MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  }
  return value;
}

ExpressionParser::Parsed ExpressionParser::ParseOr() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.TakeName("or")) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    MW_ASSIGN_OR_RETURN(left, MakeBinary("or", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParseAnd() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.TakeName("and")) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    MW_ASSIGN_OR_RETURN(left, MakeBinary("and", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParseNot() {
  int count = 0;
  while (tokens_.TakeName("not")) ++count;
  MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseCompare());
  for (; count > 0; --count) {
    ExpressionPtr node = Make(ExpressionKind::kUnary, "not");
    node->operands.push_back(std::move(value));
    MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  }
  return value;
}

std::string ExpressionParser::TakeComparison() {
  for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (tokens_.TakeOperator(op)) return std::string(op);
  }
  if (tokens_.TakeName("in")) return "in";
  if (tokens_.Current().IsName("not") && tokens_.Next().IsName("in")) {
    tokens_.Skip();
    tokens_.Skip();
    return "not in";
  }
  return {};
}

ExpressionParser::Parsed ExpressionParser::ParseCompare() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  ExpressionPtr node = Make(ExpressionKind::kCompare);
  for (std::string op = TakeComparison(); !op.empty(); op = TakeComparison()) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    if (node->operands.empty()) node->operands.push_back(std::move(first));
    node->operands.push_back(std::move(operand));
    node->names.push_back(std::move(op));
  }
  return node->operands.empty() ? Parsed(std::move(first)) : Finish(std::move(node));
}

std::string ExpressionParser::TakeAnyOperator(std::initializer_list<std::string_view> operators) {
  for (const std::string_view op : operators) {
    if (tokens_.TakeOperator(op)) return std::string(op);
  }
  return {};
}

ExpressionParser::Parsed ExpressionParser::ParseSum() {
  const auto take = [&] { return TakeAnyOperator({"+", "-"}); };
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  for (std::string op = take(); !op.empty(); op = take()) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    MW_ASSIGN_OR_RETURN(left, MakeBinary(std::move(op), std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParseConcat() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseProduct());
  while (tokens_.TakeOperator("~")) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseProduct());
    MW_ASSIGN_OR_RETURN(left, MakeBinary("~", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParseProduct() {
  const auto take = [&] { return TakeAnyOperator({"*", "//", "/", "%"}); };
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  for (std::string op = take(); !op.empty(); op = take()) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    MW_ASSIGN_OR_RETURN(left, MakeBinary(std::move(op), std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParsePower() {
  MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filter=*/true));
  while (tokens_.TakeOperator("**")) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filter=*/true));
    MW_ASSIGN_OR_RETURN(left, MakeBinary("**", std::move(left), std::move(right)));
  }
  return left;
}

ExpressionParser::Parsed ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPtr value;
  if (tokens_.Current().IsOperator("-") || tokens_.Current().IsOperator("+")) {
    ExpressionPtr node = Make(ExpressionKind::kUnary, tokens_.Current().text);
    tokens_.Skip();
    if (++nesting_ > kMaxNesting) return tokens_.Error("the expression is too deep");
    MW_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filter=*/false));
    --nesting_;
    node->operands.push_back(std::move(operand));
    MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  } else {
    MW_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  MW_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  return with_filter ? ParseFiltersAndTests(std::move(value)) : Parsed(std::move(value));
}

ExpressionParser::Parsed ExpressionParser::ParsePrimary() {
  const Token token = tokens_.Current();
  ExpressionPtr node = Make(ExpressionKind::kConstant);
  switch (token.kind) {
    case TokenKind::kName:
      tokens_.Skip();
      if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
        node->value = Value(token.text == "true" || token.text == "True");
      } else if (token.text == "none" || token.text == "None") {
        node->value = Value::MakeNone();
      } else {
        node->kind = ExpressionKind::kName;
        node->name = token.text;
      }
      return node;
    case TokenKind::kString: {
      std::string text;
      for (; tokens_.Current().kind == TokenKind::kString; tokens_.Skip()) text += tokens_.Current().text;
      node->value = Value(std::move(text));
      return node;
    }
    case TokenKind::kInteger:
      tokens_.Skip();
      node->value = Value(token.integer);
      return node;
    case TokenKind::kFloat:
      tokens_.Skip();
      node->value = Value(token.number);
      return node;
    default:
      break;
  }
  if (tokens_.TakeOperator("(")) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr inner, ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/true));
    MW_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return inner;
  }
  if (tokens_.TakeOperator("[")) return ParseList();
  if (tokens_.TakeOperator("{")) return ParseDict();
  return tokens_.Unexpected("an expression");
}

/// A list whose opening bracket is taken.
ExpressionParser::Parsed ExpressionParser::ParseList() {
  ExpressionPtr node = Make(ExpressionKind::kList);
  while (!tokens_.Current().IsOperator("]")) {
    if (!node->operands.empty()) MW_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.Current().IsOperator("]")) break;
    MW_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    node->operands.push_back(std::move(item));
  }
  tokens_.Skip();
  return Finish(std::move(node));
}

/// A dict whose opening brace is taken.
ExpressionParser::Parsed ExpressionParser::ParseDict() {
  ExpressionPtr node = Make(ExpressionKind::kDict);
  while (!tokens_.Current().IsOperator("}")) {
    if (!node->operands.empty()) MW_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.Current().IsOperator("}")) break;
    MW_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    MW_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
  }
  tokens_.Skip();
  return Finish(std::move(node));
}

bool ExpressionParser::AtTupleEnd() const {
  const TokenKind kind = tokens_.Current().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || tokens_.Current().IsOperator(")");
}

ExpressionParser::Parsed ExpressionParser::ParseTuple(bool with_conditional, bool explicit_parentheses) {
  ExpressionPtr node = Make(ExpressionKind::kTuple);
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    MW_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(with_conditional));
    node->operands.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->operands.empty()) return std::move(node->operands[0]);
  if (node->operands.empty() && !explicit_parentheses) return tokens_.Unexpected("an expression");
  return Finish(std::move(node));
}

/// The attribute, or the index, behind a dot.
ExpressionParser::Parsed ExpressionParser::ParseAttribute(ExpressionPtr value) {
  ExpressionPtr node = Make(ExpressionKind::kAttribute);
  if (tokens_.Current().kind == TokenKind::kInteger) {
    node->kind = ExpressionKind::kItem;
    node->operands.push_back(std::move(value));
    ExpressionPtr index = Make(ExpressionKind::kConstant);
    index->value = Value(tokens_.Current().integer);
    tokens_.Skip();
    node->operands.push_back(std::move(index));
  } else {
    MW_ASSIGN_OR_RETURN(node->name, tokens_.TakeAnyName());
    node->operands.push_back(std::move(value));
  }
  return Finish(std::move(node));
}

ExpressionParser::Parsed ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.TakeOperator(".")) {
      MW_ASSIGN_OR_RETURN(value, ParseAttribute(std::move(value)));
    } else if (tokens_.TakeOperator("[")) {
      MW_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (tokens_.Current().IsOperator("(")) {
      MW_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Parsed ExpressionParser::ParseSubscript(ExpressionPtr value) {
  ExpressionPtr node = Make(ExpressionKind::kItem);
  node->operands.push_back(std::move(value));
  // At most three parts with colons between; each may be missing.
  for (int part = 0; part < 3; ++part) {
    ExpressionPtr index;
    if (!tokens_.Current().IsOperator(":") && !tokens_.Current().IsOperator("]")) {
      MW_ASSIGN_OR_RETURN(index, ParseExpression());
    }
    node->operands.push_back(std::move(index));
    if (!tokens_.TakeOperator(":")) break;
    node->kind = ExpressionKind::kSlice;
  }
  MW_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (node->kind == ExpressionKind::kItem && node->operands[1] == nullptr) return tokens_.Unexpected("a subscript");
  if (node->kind == ExpressionKind::kSlice) node->operands.resize(4);
  return Finish(std::move(node));
}

ExpressionParser::Parsed ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr node = Make(ExpressionKind::kCall);
  node->operands.push_back(std::move(callee));
  MW_RETURN_IF_ERROR(ParseArguments(*node));
  return Finish(std::move(node));
}

Status ExpressionParser::ParseArguments(Expression& call) {
  MW_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.Current().IsOperator(")")) {
    if (!call.arguments.empty()) MW_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.Current().IsOperator(")")) break;
    ArgumentNode argument;
    if (tokens_.TakeOperator("*")) {
      argument.name = "*";
    } else if (tokens_.TakeOperator("**")) {
      argument.name = "**";
    } else if (tokens_.Current().kind == TokenKind::kName && tokens_.Next().IsOperator("=")) {
      argument.name = tokens_.Current().text;
      tokens_.Skip();
      tokens_.Skip();
    } else if (!call.arguments.empty() && !call.arguments.back().name.empty()) {
      return tokens_.Error("a positional argument stands behind a named one");
    }
    MW_ASSIGN_OR_RETURN(argument.value, ParseExpression());
    call.arguments.push_back(std::move(argument));
  }
  tokens_.Skip();
  return Status::Ok();
}

ExpressionParser::Parsed ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  while (true) {
    if (tokens_.TakeOperator("|")) {
      MW_ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
    } else if (tokens_.TakeName("is")) {
      MW_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (tokens_.Current().IsOperator("(")) {
      MW_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Parsed ExpressionParser::ParseFilter(ExpressionPtr value) {
  ExpressionPtr node = Make(ExpressionKind::kFilter);
  MW_ASSIGN_OR_RETURN(node->name, tokens_.TakeAnyName());
  node->operands.push_back(std::move(value));
  if (tokens_.Current().IsOperator("(")) MW_RETURN_IF_ERROR(ParseArguments(*node));
  return Finish(std::move(node));
}

ExpressionParser::Parsed ExpressionParser::ParseTest(ExpressionPtr value) {
  const bool negated = tokens_.TakeName("not");
  ExpressionPtr node = Make(ExpressionKind::kTest);
  MW_ASSIGN_OR_RETURN(node->name, tokens_.TakeAnyName());
  node->operands.push_back(std::move(value));
  const Token& token = tokens_.Current();
  const bool operand_follows =
      (token.kind == TokenKind::kName && !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) ||
      token.kind == TokenKind::kString || token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
      token.IsOperator("[") || token.IsOperator("{");
  if (token.IsOperator("(")) {
    MW_RETURN_IF_ERROR(ParseArguments(*node));
  } else if (operand_follows) {
    if (token.IsName("is")) return tokens_.Error("tests cannot be chained");
    MW_ASSIGN_OR_RETURN(ExpressionPtr operand, ParsePrimary());
    MW_ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    node->arguments.push_back({"", std::move(operand)});
  }
  MW_ASSIGN_OR_RETURN(ExpressionPtr test, Finish(std::move(node)));
  if (!negated) return test;
  ExpressionPtr negation = Make(ExpressionKind::kUnary, "not");
  negation->operands.push_back(std::move(test));
  return Finish(std::move(negation));
}

}  // namespace milwright::jinja
