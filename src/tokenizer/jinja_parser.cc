#include "tokenizer/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tokenizer/jinja_lexer.h"

namespace milwright::jinja {
namespace {

// Real templates stay below 20 and 10.
constexpr int kMaxExpressionDepth = 200;
constexpr int kMaxNesting = 60;  // of brackets and conditionals: each level costs the parser a dozen calls
constexpr int kMaxBlockDepth = 50;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Block> Run() {
    MW_ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    return block;
  }

 private:
  using Parsed = Result<ExpressionPtr>;
  using ParsedStatement = Result<std::unique_ptr<Statement>>;

  // Tokens.
  [[nodiscard]] const Token& Current() const { return tokens_[position_]; }
  [[nodiscard]] const Token& Next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void Skip() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool TakeOperator(std::string_view op) {
    if (!Current().IsOperator(op)) return false;
    Skip();
    return true;
  }
  bool TakeName(std::string_view name) {
    if (!Current().IsName(name)) return false;
    Skip();
    return true;
  }
  [[nodiscard]] Status Error(std::string_view message) const {
    return {ErrorCode::kUnreadable, fmt::format("line {}: {}", Current().line, message)};
  }
  [[nodiscard]] Status Unexpected(std::string_view wanted) const {
    std::string_view what = Current().text;
    if (Current().kind == TokenKind::kEnd) what = "the end";
    if (Current().kind == TokenKind::kBlockEnd || Current().kind == TokenKind::kVariableEnd)
      what = "the end of the tag";
    return Error(fmt::format("expected {}, found {}", wanted, what));
  }
  Status ExpectOperator(std::string_view op) {
    return TakeOperator(op) ? Status::Ok() : Unexpected(fmt::format("'{}'", op));
  }
  Status ExpectName(std::string_view name) {
    return TakeName(name) ? Status::Ok() : Unexpected(fmt::format("'{}'", name));
  }
  Result<std::string> TakeAnyName() {
    if (Current().kind != TokenKind::kName) return Unexpected("a name");
    std::string name = Current().text;
    Skip();
    return name;
  }
  Status Expect(TokenKind kind, std::string_view wanted) {
    if (Current().kind != kind) return Unexpected(wanted);
    Skip();
    return Status::Ok();
  }
  Status ExpectBlockEnd() { return Expect(TokenKind::kBlockEnd, "'%}'"); }

  // Nodes.
  ExpressionPtr Make(ExpressionKind kind, std::string name = {}) const {
    auto node = std::make_unique<Expression>();
    node->kind = kind;
    node->line = Current().line;
    node->name = std::move(name);
    return node;
  }
  /// Finishes a node: its depth follows from its parts.
  Parsed Finish(ExpressionPtr node) const {
    for (const ExpressionPtr& operand : node->operands) {
      if (operand != nullptr) node->depth = std::max(node->depth, operand->depth + 1);
    }
    for (const ArgumentNode& argument : node->arguments) node->depth = std::max(node->depth, argument.value->depth + 1);
    if (node->depth > kMaxExpressionDepth) return Error("the expression is too deep");
    return node;
  }
  Parsed MakeBinary(std::string name, ExpressionPtr left, ExpressionPtr right) const {
    ExpressionPtr node = Make(ExpressionKind::kBinary, std::move(name));
    node->operands.push_back(std::move(left));
    node->operands.push_back(std::move(right));
    return Finish(std::move(node));
  }

  // Expressions, from the weakest operator to the strongest.
  Parsed ParseExpression(bool with_conditional = true) {
    if (++nesting_ > kMaxNesting) return Error("the expression is too deep");
    Parsed parsed = with_conditional ? ParseConditional() : ParseOr();
    --nesting_;
    return parsed;
  }

  Parsed ParseConditional() {
    MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
    while (TakeName("if")) {
      ExpressionPtr node = Make(ExpressionKind::kConditional);
      MW_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
      ExpressionPtr other;
      if (TakeName("else")) {
        MW_ASSIGN_OR_RETURN(other, ParseExpression());
      }
      node->operands.push_back(std::move(condition));
      node->operands.push_back(std::move(value));
      node->operands.push_back(std::move(other));
      MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
    }
    return value;
  }

  Parsed ParseOr() {
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
    while (TakeName("or")) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
      MW_ASSIGN_OR_RETURN(left, MakeBinary("or", std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParseAnd() {
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
    while (TakeName("and")) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
      MW_ASSIGN_OR_RETURN(left, MakeBinary("and", std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParseNot() {
    int count = 0;
    while (TakeName("not")) ++count;
    MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseCompare());
    for (; count > 0; --count) {
      ExpressionPtr node = Make(ExpressionKind::kUnary, "not");
      node->operands.push_back(std::move(value));
      MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
    }
    return value;
  }

  /// Takes a comparison operator, empty if there is none.
  std::string TakeComparison() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (TakeOperator(op)) return std::string(op);
    }
    if (TakeName("in")) return "in";
    if (Current().IsName("not") && Next().IsName("in")) {
      Skip();
      Skip();
      return "not in";
    }
    return {};
  }

  Parsed ParseCompare() {
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

  template <size_t N>
  std::string TakeAnyOperator(const std::array<std::string_view, N>& operators) {
    for (const std::string_view op : operators) {
      if (TakeOperator(op)) return std::string(op);
    }
    return {};
  }

  Parsed ParseSum() {
    static constexpr std::array<std::string_view, 2> kOperators = {"+", "-"};
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
    for (std::string op = TakeAnyOperator(kOperators); !op.empty(); op = TakeAnyOperator(kOperators)) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
      MW_ASSIGN_OR_RETURN(left, MakeBinary(std::move(op), std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParseConcat() {
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseProduct());
    while (TakeOperator("~")) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseProduct());
      MW_ASSIGN_OR_RETURN(left, MakeBinary("~", std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParseProduct() {
    static constexpr std::array<std::string_view, 4> kOperators = {"*", "//", "/", "%"};
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
    for (std::string op = TakeAnyOperator(kOperators); !op.empty(); op = TakeAnyOperator(kOperators)) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
      MW_ASSIGN_OR_RETURN(left, MakeBinary(std::move(op), std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParsePower() {
    MW_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filter=*/true));
    while (TakeOperator("**")) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filter=*/true));
      MW_ASSIGN_OR_RETURN(left, MakeBinary("**", std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed ParseUnary(bool with_filter) {
    ExpressionPtr value;
    if (Current().IsOperator("-") || Current().IsOperator("+")) {
      ExpressionPtr node = Make(ExpressionKind::kUnary, Current().text);
      Skip();
      if (++nesting_ > kMaxNesting) return Error("the expression is too deep");
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

  Parsed ParsePrimary() {
    const Token token = Current();
    ExpressionPtr node = Make(ExpressionKind::kConstant);
    switch (token.kind) {
      case TokenKind::kName:
        Skip();
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
        for (; Current().kind == TokenKind::kString; Skip()) text += Current().text;
        node->value = Value(std::move(text));
        return node;
      }
      case TokenKind::kInteger:
        Skip();
        node->value = Value(token.integer);
        return node;
      case TokenKind::kFloat:
        Skip();
        node->value = Value(token.number);
        return node;
      default:
        break;
    }
    if (TakeOperator("(")) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr inner, ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/true));
      MW_RETURN_IF_ERROR(ExpectOperator(")"));
      return inner;
    }
    if (TakeOperator("[")) {
      node->kind = ExpressionKind::kList;
      while (!Current().IsOperator("]")) {
        if (!node->operands.empty()) MW_RETURN_IF_ERROR(ExpectOperator(","));
        if (Current().IsOperator("]")) break;
        MW_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
        node->operands.push_back(std::move(item));
      }
      Skip();
      return Finish(std::move(node));
    }
    if (TakeOperator("{")) {
      node->kind = ExpressionKind::kDict;
      while (!Current().IsOperator("}")) {
        if (!node->operands.empty()) MW_RETURN_IF_ERROR(ExpectOperator(","));
        if (Current().IsOperator("}")) break;
        MW_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
        MW_RETURN_IF_ERROR(ExpectOperator(":"));
        MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        node->operands.push_back(std::move(key));
        node->operands.push_back(std::move(value));
      }
      Skip();
      return Finish(std::move(node));
    }
    return Unexpected("an expression");
  }

  [[nodiscard]] bool AtTupleEnd() const {
    const TokenKind kind = Current().kind;
    return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || Current().IsOperator(")");
  }

  /// Expressions with commas between; one without a comma is itself.
  Parsed ParseTuple(bool with_conditional, bool explicit_parentheses) {
    ExpressionPtr node = Make(ExpressionKind::kTuple);
    bool is_tuple = false;
    while (!AtTupleEnd()) {
      MW_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(with_conditional));
      node->operands.push_back(std::move(item));
      if (!TakeOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !node->operands.empty()) return std::move(node->operands[0]);
    if (node->operands.empty() && !explicit_parentheses) return Unexpected("an expression");
    return Finish(std::move(node));
  }

  Parsed ParsePostfix(ExpressionPtr value) {
    while (true) {
      if (TakeOperator(".")) {
        ExpressionPtr node = Make(ExpressionKind::kAttribute);
        if (Current().kind == TokenKind::kInteger) {
          node->kind = ExpressionKind::kItem;
          node->operands.push_back(std::move(value));
          ExpressionPtr index = Make(ExpressionKind::kConstant);
          index->value = Value(Current().integer);
          Skip();
          node->operands.push_back(std::move(index));
        } else {
          MW_ASSIGN_OR_RETURN(node->name, TakeAnyName());
          node->operands.push_back(std::move(value));
        }
        MW_ASSIGN_OR_RETURN(value, Finish(std::move(node)));
      } else if (TakeOperator("[")) {
        MW_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
      } else if (Current().IsOperator("(")) {
        MW_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
      } else {
        return value;
      }
    }
  }

  Parsed ParseSubscript(ExpressionPtr value) {
    ExpressionPtr node = Make(ExpressionKind::kItem);
    node->operands.push_back(std::move(value));
    // At most three parts with colons between; each may be missing.
    for (int part = 0; part < 3; ++part) {
      ExpressionPtr index;
      if (!Current().IsOperator(":") && !Current().IsOperator("]")) {
        MW_ASSIGN_OR_RETURN(index, ParseExpression());
      }
      node->operands.push_back(std::move(index));
      if (!TakeOperator(":")) break;
      node->kind = ExpressionKind::kSlice;
    }
    MW_RETURN_IF_ERROR(ExpectOperator("]"));
    if (node->kind == ExpressionKind::kItem && node->operands[1] == nullptr) return Unexpected("a subscript");
    if (node->kind == ExpressionKind::kSlice) node->operands.resize(4);
    return Finish(std::move(node));
  }

  Parsed ParseCall(ExpressionPtr callee) {
    ExpressionPtr node = Make(ExpressionKind::kCall);
    node->operands.push_back(std::move(callee));
    MW_RETURN_IF_ERROR(ParseArguments(*node));
    return Finish(std::move(node));
  }

  Status ParseArguments(Expression& call) {
    MW_RETURN_IF_ERROR(ExpectOperator("("));
    while (!Current().IsOperator(")")) {
      if (!call.arguments.empty()) MW_RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().IsOperator(")")) break;
      ArgumentNode argument;
      if (TakeOperator("*")) {
        argument.name = "*";
      } else if (TakeOperator("**")) {
        argument.name = "**";
      } else if (Current().kind == TokenKind::kName && Next().IsOperator("=")) {
        argument.name = Current().text;
        Skip();
        Skip();
      } else if (!call.arguments.empty() && !call.arguments.back().name.empty()) {
        return Error("a positional argument stands behind a named one");
      }
      MW_ASSIGN_OR_RETURN(argument.value, ParseExpression());
      call.arguments.push_back(std::move(argument));
    }
    Skip();
    return Status::Ok();
  }

  Parsed ParseFiltersAndTests(ExpressionPtr value) {
    while (true) {
      if (TakeOperator("|")) {
        MW_ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
      } else if (TakeName("is")) {
        MW_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
      } else if (Current().IsOperator("(")) {
        MW_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
      } else {
        return value;
      }
    }
  }

  /// The filter behind "|" or "filter".
  Parsed ParseFilter(ExpressionPtr value) {
    ExpressionPtr node = Make(ExpressionKind::kFilter);
    MW_ASSIGN_OR_RETURN(node->name, TakeAnyName());
    node->operands.push_back(std::move(value));
    if (Current().IsOperator("(")) MW_RETURN_IF_ERROR(ParseArguments(*node));
    return Finish(std::move(node));
  }

  /// The test behind "is". Its one argument may stand without parentheses.
  Parsed ParseTest(ExpressionPtr value) {
    const bool negated = TakeName("not");
    ExpressionPtr node = Make(ExpressionKind::kTest);
    MW_ASSIGN_OR_RETURN(node->name, TakeAnyName());
    node->operands.push_back(std::move(value));
    const Token& token = Current();
    const bool operand_follows =
        (token.kind == TokenKind::kName && !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) ||
        token.kind == TokenKind::kString || token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
        token.IsOperator("[") || token.IsOperator("{");
    if (token.IsOperator("(")) {
      MW_RETURN_IF_ERROR(ParseArguments(*node));
    } else if (operand_follows) {
      if (token.IsName("is")) return Error("tests cannot be chained");
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

  Result<Target> ParseTarget(bool with_namespace) {
    if (++nesting_ > kMaxNesting) return Error("targets nest too deep");
    Target tuple;
    bool is_tuple = false;
    do {
      Target target;
      if (TakeOperator("(")) {
        MW_ASSIGN_OR_RETURN(target, ParseTarget(with_namespace));
        MW_RETURN_IF_ERROR(ExpectOperator(")"));
      } else if (Current().kind == TokenKind::kName) {
        MW_ASSIGN_OR_RETURN(target.name, TakeAnyName());
        if (with_namespace && TakeOperator(".")) {
          MW_ASSIGN_OR_RETURN(target.attribute, TakeAnyName());
        }
      } else if (tuple.members.empty()) {
        return Unexpected("a name");
      } else {
        break;  // behind a trailing comma
      }
      tuple.members.push_back(std::move(target));
      if (!Current().IsOperator(",")) break;
      is_tuple = true;
      Skip();
    } while (!Current().IsName("in"));
    --nesting_;
    if (is_tuple) return tuple;
    Target only = std::move(tuple.members[0]);
    return only;
  }

  // Statements.
  /// Statements up to a block whose name is in `ends`, which is taken but for its end. No `ends`: to the end.
  Result<Block> ParseBlock(const std::vector<std::string_view>& ends) {
    if (++block_nesting_ > kMaxBlockDepth) return Error("blocks nest too deep");
    Block block;
    while (Current().kind != TokenKind::kEnd) {
      if (Current().kind == TokenKind::kData) {
        auto statement = std::make_unique<Statement>();
        statement->line = Current().line;
        statement->text = Current().text;
        Skip();
        block.push_back(std::move(statement));
        continue;
      }
      if (Current().kind == TokenKind::kVariableBegin) {
        auto statement = std::make_unique<Statement>();
        statement->kind = StatementKind::kOutput;
        statement->line = Current().line;
        Skip();
        MW_ASSIGN_OR_RETURN(statement->value, ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false));
        MW_RETURN_IF_ERROR(Expect(TokenKind::kVariableEnd, "'}}'"));
        block.push_back(std::move(statement));
        continue;
      }
      Skip();  // {%
      MW_ASSIGN_OR_RETURN(std::string name, TakeAnyName());
      if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
        --block_nesting_;
        end_name_ = std::move(name);
        return block;
      }
      MW_ASSIGN_OR_RETURN(std::unique_ptr<Statement> statement, ParseStatement(name));
      block.push_back(std::move(statement));
    }
    --block_nesting_;
    if (!ends.empty()) return Error(fmt::format("a block has no {}", ends.back()));
    return block;
  }

  /// A body up to {% `end` %}.
  Result<Block> ParseBody(std::string_view end) {
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    MW_ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    return body;
  }

  /// A body that renders into a string: a break cannot leave it.
  Result<Block> ParseCapturedBody(std::string_view end) {
    const int outer_loops = std::exchange(loops_, 0);
    Result<Block> body = ParseBody(end);
    loops_ = outer_loops;
    return body;
  }

  ParsedStatement ParseStatement(const std::string& name) {
    using Method = ParsedStatement (Parser::*)();
    static constexpr std::pair<std::string_view, Method> kStatements[] = {
        {"if", &Parser::ParseIf},
        {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"break", &Parser::ParseBreak},
        {"continue", &Parser::ParseContinue},
        {"generation", &Parser::ParseGeneration},
    };
    const int line = Current().line;
    for (const auto& [known, method] : kStatements) {
      if (name != known) continue;
      ParsedStatement statement = (this->*method)();
      if (statement.ok()) (*statement)->line = line;
      return statement;
    }
    return Error(fmt::format("the tag \"{}\" is not supported", name));
  }

  static std::unique_ptr<Statement> MakeStatement(StatementKind kind) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    return statement;
  }

  ParsedStatement ParseIf() {
    auto statement = MakeStatement(StatementKind::kIf);
    while (true) {
      Branch& branch = statement->branches.emplace_back();
      if (end_name_ != "else" || statement->branches.size() == 1) {
        MW_ASSIGN_OR_RETURN(branch.condition, ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false));
      }
      MW_RETURN_IF_ERROR(ExpectBlockEnd());
      const bool is_else = branch.condition == nullptr;
      MW_ASSIGN_OR_RETURN(branch.body, is_else ? ParseBlock({"endif"}) : ParseBlock({"elif", "else", "endif"}));
      if (end_name_ == "endif") break;
    }
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    return statement;
  }

  ParsedStatement ParseFor() {
    auto statement = MakeStatement(StatementKind::kFor);
    MW_ASSIGN_OR_RETURN(statement->target, ParseTarget(/*with_namespace=*/false));
    MW_RETURN_IF_ERROR(ExpectName("in"));
    MW_ASSIGN_OR_RETURN(statement->value, ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false));
    if (TakeName("if")) {
      MW_ASSIGN_OR_RETURN(statement->condition, ParseExpression());
    }
    if (TakeName("recursive")) statement->name = "recursive";
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    ++loops_;
    MW_ASSIGN_OR_RETURN(statement->body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (end_name_ == "else") {
      MW_RETURN_IF_ERROR(ExpectBlockEnd());
      MW_ASSIGN_OR_RETURN(statement->other, ParseBlock({"endfor"}));
    }
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    return statement;
  }

  ParsedStatement ParseSet() {
    auto statement = MakeStatement(StatementKind::kSet);
    MW_ASSIGN_OR_RETURN(statement->target, ParseTarget(/*with_namespace=*/true));
    if (TakeOperator("=")) {
      MW_ASSIGN_OR_RETURN(statement->value, ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false));
      MW_RETURN_IF_ERROR(ExpectBlockEnd());
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    while (TakeOperator("|")) {
      MW_ASSIGN_OR_RETURN(statement->value, ParseFilter(std::move(statement->value)));
    }
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endset"));
    return statement;
  }

  Status ParseParameters(Statement& statement) {
    MW_RETURN_IF_ERROR(ExpectOperator("("));
    while (!Current().IsOperator(")")) {
      if (!statement.parameters.empty()) MW_RETURN_IF_ERROR(ExpectOperator(","));
      if (Current().IsOperator(")")) break;
      Parameter parameter;
      MW_ASSIGN_OR_RETURN(parameter.name, TakeAnyName());
      if (TakeOperator("=")) {
        MW_ASSIGN_OR_RETURN(parameter.fallback, ParseExpression());
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback != nullptr) {
        return Error("a parameter without a default stands behind one with a default");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    Skip();
    return Status::Ok();
  }

  ParsedStatement ParseMacro() {
    auto statement = MakeStatement(StatementKind::kMacro);
    MW_ASSIGN_OR_RETURN(statement->name, TakeAnyName());
    MW_RETURN_IF_ERROR(ParseParameters(*statement));
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endmacro"));
    return statement;
  }

  ParsedStatement ParseCallBlock() {
    auto statement = MakeStatement(StatementKind::kCallBlock);
    if (Current().IsOperator("(")) MW_RETURN_IF_ERROR(ParseParameters(*statement));
    MW_ASSIGN_OR_RETURN(statement->value, ParseExpression());
    if (statement->value->kind != ExpressionKind::kCall) return Error("\"call\" needs a call");
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endcall"));
    return statement;
  }

  ParsedStatement ParseFilterBlock() {
    auto statement = MakeStatement(StatementKind::kFilterBlock);
    MW_ASSIGN_OR_RETURN(statement->value, ParseFilter(nullptr));
    while (TakeOperator("|")) {
      MW_ASSIGN_OR_RETURN(statement->value, ParseFilter(std::move(statement->value)));
    }
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endfilter"));
    return statement;
  }

  ParsedStatement ParseWith() {
    auto statement = MakeStatement(StatementKind::kWith);
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!statement->assignments.empty()) MW_RETURN_IF_ERROR(ExpectOperator(","));
      MW_ASSIGN_OR_RETURN(std::string name, TakeAnyName());
      MW_RETURN_IF_ERROR(ExpectOperator("="));
      MW_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement->assignments.emplace_back(std::move(name), std::move(value));
    }
    MW_ASSIGN_OR_RETURN(statement->body, ParseBody("endwith"));
    return statement;
  }

  /// Marks what the model itself says, for training; it renders as its body.
  ParsedStatement ParseGeneration() {
    auto statement = MakeStatement(StatementKind::kWith);
    MW_ASSIGN_OR_RETURN(statement->body, ParseBody("endgeneration"));
    return statement;
  }

  ParsedStatement ParseLoopControl(StatementKind kind) {
    if (loops_ == 0) return Error("break and continue stand in loops only");
    MW_RETURN_IF_ERROR(ExpectBlockEnd());
    return MakeStatement(kind);
  }
  ParsedStatement ParseBreak() { return ParseLoopControl(StatementKind::kBreak); }
  ParsedStatement ParseContinue() { return ParseLoopControl(StatementKind::kContinue); }

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;        ///< of expressions being parsed
  int block_nesting_ = 0;  ///< of blocks being parsed
  int loops_ = 0;          ///< that break and continue can mean here
  std::string end_name_;   ///< the name of the tag that ended the last block
};

}  // namespace

Result<Block> ParseTemplate(std::string_view source) {
  MW_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace milwright::jinja
