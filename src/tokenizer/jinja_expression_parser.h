// From tokens to the expressions of a template.
#ifndef MILWRIGHT_TOKENIZER_JINJA_EXPRESSION_PARSER_H_
#define MILWRIGHT_TOKENIZER_JINJA_EXPRESSION_PARSER_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "milwright/status.h"
#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_token_stream.h"

namespace milwright::jinja {

/// Parses expressions by recursive descent, as jinja2/parser.py does.
class ExpressionParser {
 public:
  using Parsed = Result<ExpressionPtr>;

  /// Takes tokens from `tokens`, which must outlive the parser.
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// One expression. Without `with_conditional`, "if" ends it.
  Parsed ParseExpression(bool with_conditional = true);
  /// Expressions with commas between make a tuple; one without a comma is itself. None is an error unless
  /// `explicit_parentheses` stand around.
  Parsed ParseTuple(bool with_conditional, bool explicit_parentheses);
  /// The filter behind "|" or "filter", applied to `value`.
  Parsed ParseFilter(ExpressionPtr value);

 private:
  [[nodiscard]] ExpressionPtr Make(ExpressionKind kind, std::string name = {}) const;
  /// Finishes a node: its depth follows from its parts.
  [[nodiscard]] Parsed Finish(ExpressionPtr node) const;
  [[nodiscard]] Parsed MakeBinary(std::string name, ExpressionPtr left, ExpressionPtr right) const;

  // From the weakest operator to the strongest.
  Parsed ParseConditional();
  Parsed ParseOr();
  Parsed ParseAnd();
  Parsed ParseNot();
  Parsed ParseCompare();
  Parsed ParseSum();
  Parsed ParseConcat();
  Parsed ParseProduct();
  Parsed ParsePower();
  Parsed ParseUnary(bool with_filter);
  Parsed ParsePrimary();
  Parsed ParseList();
  Parsed ParseDict();
  Parsed ParsePostfix(ExpressionPtr value);
  Parsed ParseAttribute(ExpressionPtr value);
  Parsed ParseSubscript(ExpressionPtr value);
  Parsed ParseCall(ExpressionPtr callee);
  Status ParseArguments(Expression& call);
  Parsed ParseFiltersAndTests(ExpressionPtr value);
  /// The test behind "is". Its one argument may stand without parentheses.
  Parsed ParseTest(ExpressionPtr value);

  /// Takes one of `operators`; empty if none follows.
  std::string TakeAnyOperator(std::initializer_list<std::string_view> operators);
  /// Takes a comparison operator; empty if none follows.
  std::string TakeComparison();
  [[nodiscard]] bool AtTupleEnd() const;

  TokenStream& tokens_;
  int nesting_ = 0;  ///< of expressions being parsed
};

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_EXPRESSION_PARSER_H_
