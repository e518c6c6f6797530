// The syntax tree of a Jinja template.
#ifndef MILWRIGHT_TOKENIZER_JINJA_AST_H_
#define MILWRIGHT_TOKENIZER_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace milwright::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,     ///< value
  kName,         ///< name
  kList,         ///< operands
  kTuple,        ///< operands
  kDict,         ///< operands: key, value, key, value, ...
  kAttribute,    ///< operands[0] . name
  kItem,         ///< operands[0] [ operands[1] ]
  kSlice,        ///< operands[0] [ operands[1] : operands[2] : operands[3] ], null where left out
  kCall,         ///< operands[0] ( arguments )
  kFilter,       ///< operands[0] | name ( arguments ); operands[0] null in a filter block: its text
  kTest,         ///< operands[0] is name ( arguments )
  kUnary,        ///< name operands[0]: "-", "+" or "not"
  kBinary,       ///< operands[0] name operands[1]: arithmetic and "~", "and", "or"
  kCompare,      ///< operands[0] names[0] operands[1] names[1] operands[2] ...
  kConditional,  ///< operands[1] if operands[0] else operands[2] (may be null)
};

/// One argument of a call: positional without a name; "*" and "**" as names unpack.
struct ArgumentNode {
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  int depth = 1;  ///< of the tree below; the parser limits it
  std::string name;
  std::vector<std::string> names;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<ArgumentNode> arguments;
};

/// What "set" and "for" assign to: a name, an attribute of a namespace, or several targets.
struct Target {
  std::string name;
  std::string attribute;        ///< not empty: namespace `name`
  std::vector<Target> members;  ///< not empty: unpack
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kText,         ///< text
  kOutput,       ///< {{ value }}
  kIf,           ///< branches
  kFor,          ///< for target in value if condition: body else other; name "recursive" or empty
  kSet,          ///< set target = value
  kSetBlock,     ///< set target | value: body
  kMacro,        ///< macro name(parameters): body
  kCallBlock,    ///< call(parameters) value: body
  kFilterBlock,  ///< filter value: body
  kWith,         ///< with assignments: body; "generation" is one without assignments
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  ///< null: undefined unless given
};

/// if / elif / else: the last may have no condition.
struct Branch {
  ExpressionPtr condition;
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  std::string name;
  Target target;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<std::string, ExpressionPtr>> assignments;
  Block body;
  Block other;
};

}  // namespace milwright::jinja

#endif  // MILWRIGHT_TOKENIZER_JINJA_AST_H_
