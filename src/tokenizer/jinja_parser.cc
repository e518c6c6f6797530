#include "tokenizer/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/jinja_expression_parser.h"
#include "tokenizer/jinja_token_stream.h"

namespace milwright::jinja {
namespace {

constexpr int kMaxBlockDepth = 50;  // real templates stay below 10

/// Parses statements.
class BlockParser {
 public:
  explicit BlockParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Statements up to a block whose name is in `ends`, which is taken but for its end. No `ends`: to the end.
  Result<Block> ParseBlock(const std::vector<std::string_view>& ends) {
    if (++block_nesting_ > kMaxBlockDepth) return tokens_.Error("blocks nest too deep");
    Block block;
    while (tokens_.Current().kind != TokenKind::kEnd) {
      if (tokens_.Current().kind == TokenKind::kData) {
        auto statement = std::make_unique<Statement>();
        statement->line = tokens_.Current().line;
        statement->text = tokens_.Current().text;
        tokens_.Skip();
        block.push_back(std::move(statement));
        continue;
      }
      if (tokens_.Current().kind == TokenKind::kVariableBegin) {
        auto statement = std::make_unique<Statement>();
        statement->kind = StatementKind::kOutput;
        statement->line = tokens_.Current().line;
        tokens_.Skip();
        MW_ASSIGN_OR_RETURN(statement->value,
                            expressions_.ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false));
        MW_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd, "'}}'"));
        block.push_back(std::move(statement));
        continue;
      }
      tokens_.Skip();  // {%
      MW_ASSIGN_OR_RETURN(std::string name, tokens_.TakeAnyName());
      if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
        --block_nesting_;
        end_name_ = std::move(name);
        return block;
      }
      MW_ASSIGN_OR_RETURN(std::unique_ptr<Statement> statement, ParseStatement(name));
      block.push_back(std::move(statement));
    }
    --block_nesting_;
    if (!ends.empty()) return tokens_.Error(fmt::format("a block has no {}", ends.back()));
    return block;
  }

 private:
  using ParsedStatement = Result<std::unique_ptr<Statement>>;

  Result<Target> ParseTarget(bool with_namespace) {
    if (++nesting_ > kMaxBlockDepth) return tokens_.Error("targets nest too deep");
    Target tuple;
    bool is_tuple = false;
    do {
      Target target;
      if (tokens_.TakeOperator("(")) {
        MW_ASSIGN_OR_RETURN(target, ParseTarget(with_namespace));
        MW_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      } else if (tokens_.Current().kind == TokenKind::kName) {
        MW_ASSIGN_OR_RETURN(target.name, tokens_.TakeAnyName());
        if (with_namespace && tokens_.TakeOperator(".")) {
          MW_ASSIGN_OR_RETURN(target.attribute, tokens_.TakeAnyName());
        }
      } else if (tuple.members.empty()) {
        return tokens_.Unexpected("a name");
      } else {
        break;  // behind a trailing comma
      }
      tuple.members.push_back(std::move(target));
      if (!tokens_.Current().IsOperator(",")) break;
      is_tuple = true;
      tokens_.Skip();
    } while (!tokens_.Current().IsName("in"));
    --nesting_;
    if (is_tuple) return tuple;
    Target only = std::move(tuple.members[0]);
    return only;
  }

  /// A body up to {% `end` %}.
  Result<Block> ParseBody(std::string_view end) {
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    MW_ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
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
    using Method = ParsedStatement (BlockParser::*)();
    static constexpr std::pair<std::string_view, Method> kStatements[] = {
        {"if", &BlockParser::ParseIf},
        {"for", &BlockParser::ParseFor},
        {"set", &BlockParser::ParseSet},
        {"macro", &BlockParser::ParseMacro},
        {"call", &BlockParser::ParseCallBlock},
        {"filter", &BlockParser::ParseFilterBlock},
        {"with", &BlockParser::ParseWith},
        {"break", &BlockParser::ParseBreak},
        {"continue", &BlockParser::ParseContinue},
        {"generation", &BlockParser::ParseGeneration},
    };
    const int line = tokens_.Current().line;
    for (const auto& [known, method] : kStatements) {
      if (name != known) continue;
      ParsedStatement statement = (this->*method)();
      if (statement.ok()) (*statement)->line = line;
      return statement;
    }
    return tokens_.Error(fmt::format("the tag \"{}\" is not supported", name));
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
        MW_ASSIGN_OR_RETURN(branch.condition,
                            expressions_.ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false));
      }
      MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
      const bool is_else = branch.condition == nullptr;
      MW_ASSIGN_OR_RETURN(branch.body, is_else ? ParseBlock({"endif"}) : ParseBlock({"elif", "else", "endif"}));
      if (end_name_ == "endif") break;
    }
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    return statement;
  }

  ParsedStatement ParseFor() {
    auto statement = MakeStatement(StatementKind::kFor);
    MW_ASSIGN_OR_RETURN(statement->target, ParseTarget(/*with_namespace=*/false));
    MW_RETURN_IF_ERROR(tokens_.ExpectName("in"));
    MW_ASSIGN_OR_RETURN(statement->value,
                        expressions_.ParseTuple(/*with_conditional=*/false, /*explicit_parentheses=*/false));
    if (tokens_.TakeName("if")) {
      MW_ASSIGN_OR_RETURN(statement->condition, expressions_.ParseExpression());
    }
    if (tokens_.TakeName("recursive")) statement->name = "recursive";
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    ++loops_;
    MW_ASSIGN_OR_RETURN(statement->body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (end_name_ == "else") {
      MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
      MW_ASSIGN_OR_RETURN(statement->other, ParseBlock({"endfor"}));
    }
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    return statement;
  }

  ParsedStatement ParseSet() {
    auto statement = MakeStatement(StatementKind::kSet);
    MW_ASSIGN_OR_RETURN(statement->target, ParseTarget(/*with_namespace=*/true));
    if (tokens_.TakeOperator("=")) {
      MW_ASSIGN_OR_RETURN(statement->value,
                          expressions_.ParseTuple(/*with_conditional=*/true, /*explicit_parentheses=*/false));
      MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
      return statement;
    }
    statement->kind = StatementKind::kSetBlock;
    while (tokens_.TakeOperator("|")) {
      MW_ASSIGN_OR_RETURN(statement->value, expressions_.ParseFilter(std::move(statement->value)));
    }
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endset"));
    return statement;
  }

  Status ParseParameters(Statement& statement) {
    MW_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.Current().IsOperator(")")) {
      if (!statement.parameters.empty()) MW_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.Current().IsOperator(")")) break;
      Parameter parameter;
      MW_ASSIGN_OR_RETURN(parameter.name, tokens_.TakeAnyName());
      if (tokens_.TakeOperator("=")) {
        MW_ASSIGN_OR_RETURN(parameter.fallback, expressions_.ParseExpression());
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback != nullptr) {
        return tokens_.Error("a parameter without a default stands behind one with a default");
      }
      statement.parameters.push_back(std::move(parameter));
    }
    tokens_.Skip();
    return Status::Ok();
  }

  ParsedStatement ParseMacro() {
    auto statement = MakeStatement(StatementKind::kMacro);
    MW_ASSIGN_OR_RETURN(statement->name, tokens_.TakeAnyName());
    MW_RETURN_IF_ERROR(ParseParameters(*statement));
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endmacro"));
    return statement;
  }

  ParsedStatement ParseCallBlock() {
    auto statement = MakeStatement(StatementKind::kCallBlock);
    if (tokens_.Current().IsOperator("(")) MW_RETURN_IF_ERROR(ParseParameters(*statement));
    MW_ASSIGN_OR_RETURN(statement->value, expressions_.ParseExpression());
    if (statement->value->kind != ExpressionKind::kCall) return tokens_.Error("\"call\" needs a call");
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endcall"));
    return statement;
  }

  ParsedStatement ParseFilterBlock() {
    auto statement = MakeStatement(StatementKind::kFilterBlock);
    MW_ASSIGN_OR_RETURN(statement->value, expressions_.ParseFilter(nullptr));
    while (tokens_.TakeOperator("|")) {
      MW_ASSIGN_OR_RETURN(statement->value, expressions_.ParseFilter(std::move(statement->value)));
    }
    MW_ASSIGN_OR_RETURN(statement->body, ParseCapturedBody("endfilter"));
    return statement;
  }

  ParsedStatement ParseWith() {
    auto statement = MakeStatement(StatementKind::kWith);
    while (tokens_.Current().kind != TokenKind::kBlockEnd) {
      if (!statement->assignments.empty()) MW_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      MW_ASSIGN_OR_RETURN(std::string name, tokens_.TakeAnyName());
      MW_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      MW_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseExpression());
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
    if (loops_ == 0) return tokens_.Error("break and continue stand in loops only");
    MW_RETURN_IF_ERROR(tokens_.ExpectBlockEnd());
    return MakeStatement(kind);
  }
  ParsedStatement ParseBreak() { return ParseLoopControl(StatementKind::kBreak); }
  ParsedStatement ParseContinue() { return ParseLoopControl(StatementKind::kContinue); }

  TokenStream tokens_;
  ExpressionParser expressions_{tokens_};
  int nesting_ = 0;        ///< of targets being parsed
  int block_nesting_ = 0;  ///< of blocks being parsed
  int loops_ = 0;          ///< that break and continue can mean here
  std::string end_name_;   ///< the name of the tag that ended the last block
};

}  // namespace

Result<Block> ParseTemplate(std::string_view source) {
  MW_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return BlockParser(std::move(tokens)).ParseBlock({});
}

}  // namespace milwright::jinja
