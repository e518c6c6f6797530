#include "text/parser.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/lexer.h"
#include "text/number.h"
#include "text/value_parser.h"

namespace milwright {
namespace {

using Attributes = std::map<std::string, Literal, std::less<>>;

class ProgramParser {
 public:
  ProgramParser(std::string_view text, const ParseOptions& options)
      : options_(options), lexer_(text, options.file_name), values_(&lexer_, &options_) {}

  Result<Program> Parse();

 private:
  struct Declaration {
    std::string name;
    Type type;
    size_t offset;
  };

  [[nodiscard]] std::optional<Status> RefuseOtherForms() const;
  Status ParseHeader(Program* program);
  Status ParseFunction(Program* program);
  Result<Opset> ParseOpset();
  Result<std::vector<Declaration>> ParseDeclarations();
  Result<Declaration> ParseDeclaration();
  Status ParseBody(Block* block, int depth);
  Status ParseOperation(Block* block, int depth);
  Status ParseOperationOpset(const Block& block);
  Status ParseArguments(Operation* op);
  Status ParseArgument(std::vector<Operand>* arguments);
  Status ParseBlock(Operation* op, int depth);
  Status ParseAttributes(Attributes* attributes);
  Status ParseEnd(std::string_view what);
  Result<Value*> ParseValueName();
  Status Define(Value* value, size_t offset);
  void LeaveScope(size_t depth);

  const ParseOptions& options_;
  Lexer lexer_;
  ValueParser values_;
  // Values in sight, with the place that defines them; `defined_` has them in order, so that the end of a block can
  // take its own out of sight.
  struct Defined {
    Value* value;
    size_t offset;
  };
  std::unordered_map<std::string, Defined> visible_;
  std::vector<std::string> defined_;
  std::unordered_set<std::string> function_names_;
};

Result<Program> ProgramParser::Parse() {
  if (auto refusal = RefuseOtherForms(); refusal.has_value()) return *refusal;
  MW_RETURN_IF_ERROR(lexer_.Start());
  Program program;
  MW_RETURN_IF_ERROR(ParseHeader(&program));
  MW_RETURN_IF_ERROR(lexer_.Expect('{', "before the functions"));
  while (!lexer_.current().Is('}')) MW_RETURN_IF_ERROR(ParseFunction(&program));
  MW_RETURN_IF_ERROR(lexer_.Advance());
  if (lexer_.current().kind != TokenKind::kEnd) return lexer_.Unexpected("the end of the text");
  return program;
}

// coremltools prints a program as `main[CoreML8](%x: (1, 8, fp16)(Tensor)) { block0() { ...`, which leaves out the
// contents of large constants and cannot be read back.
std::optional<Status> ProgramParser::RefuseOtherForms() const {
  const std::string_view text = lexer_.text();
  const size_t bracket = text.find("[CoreML");
  if (bracket == std::string_view::npos || text.find_first_of("{\"") < bracket) return std::nullopt;
  const size_t close = text.find(']', bracket);
  if (close == std::string_view::npos || !text.substr(close + 1).starts_with('(')) return std::nullopt;
  return lexer_.ErrorAt(bracket,
                        "this is coremltools' print form, not compiler text; it lacks the weights and cannot be read: "
                        "open the .mlpackage that it was printed from");
}

Status ProgramParser::ParseHeader(Program* program) {
  if (!lexer_.current().IsWord("program")) return lexer_.Unexpected("'program' at the start of MIL text");
  MW_RETURN_IF_ERROR(lexer_.Advance());
  MW_RETURN_IF_ERROR(lexer_.Expect('(', "after 'program'"));
  if (lexer_.current().kind != TokenKind::kNumber) return lexer_.Unexpected("the version of the program");
  // "1.3": the major number is the program's version; the minor one says how scalars are written, which shows anyway.
  const std::string_view version = lexer_.current().text;
  const ParsedNumber major = ParseNumber(DataType::kInt64, version.substr(0, version.find('.')));
  if (!major.error.empty()) return lexer_.ErrorHere("a version is written like 1.3");
  program->version = static_cast<int64_t>(major.bits);
  MW_RETURN_IF_ERROR(lexer_.Advance());
  MW_ASSIGN_OR_RETURN(const bool has_doc_string, lexer_.Accept(','));
  if (has_doc_string) {
    if (lexer_.current().kind != TokenKind::kString) return lexer_.Unexpected("the doc string of the program");
    program->doc_string = Unescape(lexer_.current().text);
    MW_RETURN_IF_ERROR(lexer_.Advance());
  }
  MW_RETURN_IF_ERROR(lexer_.Expect(')', "after the version"));
  return ParseAttributes(&program->attributes);
}

Status ProgramParser::ParseFunction(Program* program) {
  if (!lexer_.current().IsWord("func")) return lexer_.Unexpected("'func' or '}'");
  MW_RETURN_IF_ERROR(lexer_.Advance());
  const size_t place = lexer_.current().offset;
  MW_ASSIGN_OR_RETURN(std::string name, lexer_.ExpectName("the name of the function"));
  if (!function_names_.insert(name).second) {
    return lexer_.ErrorAt(place, fmt::format("there are two functions named '{}'", Excerpt(name)));
  }
  MW_RETURN_IF_ERROR(lexer_.Expect('<', "and the opset after the name of the function"));
  MW_ASSIGN_OR_RETURN(const Opset opset, ParseOpset());
  MW_RETURN_IF_ERROR(lexer_.Expect('>', "after the opset"));

  Function* function = program->AddFunction(std::move(name), opset);
  MW_ASSIGN_OR_RETURN(std::vector<Declaration> inputs, ParseDeclarations());
  for (Declaration& input : inputs) {
    MW_RETURN_IF_ERROR(Define(function->AddInput(std::move(input.name), std::move(input.type)), input.offset));
  }
  MW_RETURN_IF_ERROR(ParseAttributes(&function->attributes));
  MW_RETURN_IF_ERROR(ParseBody(&function->body(), 0));
  LeaveScope(0);
  return ParseEnd("the function");
}

Result<Opset> ProgramParser::ParseOpset() {
  const Token token = lexer_.current();
  if (token.kind != TokenKind::kIdentifier) return lexer_.Unexpected("an opset");
  const auto opset = OpsetFromName(token.text);
  if (!opset.has_value()) {
    return lexer_.ErrorHere(
        fmt::format("opset '{}' is not known; known are ios15, ios16, ios17, ios18 and ios26", Excerpt(token.text)));
  }
  MW_RETURN_IF_ERROR(lexer_.Advance());
  return *opset;
}

// ( TYPE NAME, ... )
Result<std::vector<ProgramParser::Declaration>> ProgramParser::ParseDeclarations() {
  MW_RETURN_IF_ERROR(lexer_.Expect('(', "before the inputs"));
  std::vector<Declaration> declarations;
  bool more = !lexer_.current().Is(')');
  while (more) {
    MW_ASSIGN_OR_RETURN(Declaration declaration, ParseDeclaration());
    declarations.push_back(std::move(declaration));
    MW_ASSIGN_OR_RETURN(more, values_.AnotherElement(')'));
  }
  MW_RETURN_IF_ERROR(lexer_.Advance());
  return declarations;
}

Result<ProgramParser::Declaration> ProgramParser::ParseDeclaration() {
  MW_ASSIGN_OR_RETURN(Type type, values_.ParseType());
  const size_t offset = lexer_.current().offset;
  MW_ASSIGN_OR_RETURN(std::string name, lexer_.ExpectName("a name after the type"));
  return Declaration{std::move(name), std::move(type), offset};
}

// { OPERATION ... } -> ( NAME, ... ) [ATTRIBUTES]
Status ProgramParser::ParseBody(Block* block, int depth) {
  MW_RETURN_IF_ERROR(lexer_.Expect('{', "before the operations"));
  while (!lexer_.current().Is('}')) {
    if (lexer_.current().kind == TokenKind::kEnd) return lexer_.Unexpected("an operation or '}'");
    MW_RETURN_IF_ERROR(ParseOperation(block, depth));
  }
  MW_RETURN_IF_ERROR(lexer_.Advance());
  if (lexer_.current().kind != TokenKind::kArrow) return lexer_.Unexpected("'->' and the outputs after the operations");
  MW_RETURN_IF_ERROR(lexer_.Advance());
  MW_RETURN_IF_ERROR(lexer_.Expect('(', "before the outputs"));
  std::vector<Value*> outputs;
  bool more = !lexer_.current().Is(')');
  while (more) {
    MW_ASSIGN_OR_RETURN(Value * output, ParseValueName());
    outputs.push_back(output);
    MW_ASSIGN_OR_RETURN(more, values_.AnotherElement(')'));
  }
  MW_RETURN_IF_ERROR(lexer_.Advance());
  block->SetOutputs(std::move(outputs));
  return ParseAttributes(&block->attributes);
}

// [RESULT, ... =] OP ( ARGUMENTS ) [ATTRIBUTES] [BLOCK, ...] ;
Status ProgramParser::ParseOperation(Block* block, int depth) {
  std::vector<Declaration> results;
  const Token& next = lexer_.next();
  const bool has_results = next.Is('<') ? values_.AtLiteral()  // not `op<ios17>(`
                                        : next.kind == TokenKind::kIdentifier || next.kind == TokenKind::kString;
  if (has_results) {
    while (true) {
      MW_ASSIGN_OR_RETURN(Declaration result, ParseDeclaration());
      results.push_back(std::move(result));
      MW_ASSIGN_OR_RETURN(const bool more, lexer_.Accept(','));
      if (!more) break;
    }
    MW_RETURN_IF_ERROR(lexer_.Expect('=', "and the operation after its results"));
  }
  MW_ASSIGN_OR_RETURN(std::string type, lexer_.ExpectName("an operation"));
  MW_RETURN_IF_ERROR(ParseOperationOpset(*block));
  Operation* op = block->Insert(std::make_unique<Operation>(std::move(type)));
  MW_RETURN_IF_ERROR(ParseArguments(op));
  MW_RETURN_IF_ERROR(ParseAttributes(&op->attributes));
  while (lexer_.current().Is('(') || lexer_.current().Is('{')) {
    MW_RETURN_IF_ERROR(ParseBlock(op, depth + 1));
    MW_RETURN_IF_ERROR(lexer_.Accept(','));
  }
  for (Declaration& result : results) {
    MW_RETURN_IF_ERROR(Define(op->AddOutput(std::move(result.name), std::move(result.type)), result.offset));
  }
  return ParseEnd("the operation");
}

// An operation may carry an opset, as in analytics.mil. The IR has one opset for a function.
Status ProgramParser::ParseOperationOpset(const Block& block) {
  MW_ASSIGN_OR_RETURN(const bool has_opset, lexer_.Accept('<'));
  if (!has_opset) return Status::Ok();
  const size_t place = lexer_.current().offset;
  MW_ASSIGN_OR_RETURN(const Opset opset, ParseOpset());
  if (!options_.lenient && opset != block.function()->opset) {
    return lexer_.ErrorAt(place, fmt::format("an operation cannot have another opset than its function ({})",
                                             OpsetTextName(block.function()->opset)));
  }
  return lexer_.Expect('>', "after the opset");
}

Status ProgramParser::ParseArguments(Operation* op) {
  MW_RETURN_IF_ERROR(lexer_.Expect('(', "before the arguments"));
  std::map<std::string, std::vector<Operand>> inputs;
  bool more = !lexer_.current().Is(')');
  while (more) {
    const size_t place = lexer_.current().offset;
    MW_ASSIGN_OR_RETURN(std::string name, lexer_.ExpectName("the name of a parameter"));
    MW_RETURN_IF_ERROR(lexer_.Expect('=', "after the name of the parameter"));
    const auto [input, is_new] = inputs.try_emplace(std::move(name));
    if (!is_new) return lexer_.ErrorAt(place, fmt::format("parameter '{}' is given twice", Excerpt(input->first)));
    MW_RETURN_IF_ERROR(ParseArgument(&input->second));
    MW_ASSIGN_OR_RETURN(more, values_.AnotherElement(')'));
  }
  MW_RETURN_IF_ERROR(lexer_.Advance());
  for (auto& [name, arguments] : inputs) op->SetInput(name, std::move(arguments));
  return Status::Ok();
}

// A value, a literal, or several of them in parentheses.
Status ProgramParser::ParseArgument(std::vector<Operand>* arguments) {
  const auto parse_one = [&]() -> Status {
    if (values_.AtLiteral()) {
      MW_ASSIGN_OR_RETURN(Literal literal, values_.ParseLiteral());
      arguments->emplace_back(Literal::Share(std::move(literal)));
    } else {
      MW_ASSIGN_OR_RETURN(Value * value, ParseValueName());
      arguments->emplace_back(value);
    }
    return Status::Ok();
  };
  MW_ASSIGN_OR_RETURN(const bool is_list, lexer_.Accept('('));
  if (!is_list) return parse_one();
  bool more = !lexer_.current().Is(')');
  while (more) {
    MW_RETURN_IF_ERROR(parse_one());
    MW_ASSIGN_OR_RETURN(more, values_.AnotherElement(')'));
  }
  return lexer_.Advance();
}

// [( INPUTS )] BODY: a branch of cond, or condition and body of while_loop.
Status ProgramParser::ParseBlock(Operation* op, int depth) {
  if (depth > kMaxNesting) return lexer_.ErrorHere(fmt::format("blocks nest deeper than {} levels", kMaxNesting));
  const size_t scope = defined_.size();
  Block* block = op->AddBlock();
  if (lexer_.current().Is('(')) {
    MW_ASSIGN_OR_RETURN(std::vector<Declaration> inputs, ParseDeclarations());
    for (Declaration& input : inputs) {
      MW_RETURN_IF_ERROR(Define(block->AddInput(std::move(input.name), std::move(input.type)), input.offset));
    }
  }
  MW_RETURN_IF_ERROR(ParseBody(block, depth));
  LeaveScope(scope);
  return Status::Ok();
}

// [ NAME = LITERAL, ... ], or nothing.
Status ProgramParser::ParseAttributes(Attributes* attributes) {
  MW_ASSIGN_OR_RETURN(const bool has_attributes, lexer_.Accept('['));
  if (!has_attributes) return Status::Ok();
  bool more = !lexer_.current().Is(']');
  while (more) {
    const size_t place = lexer_.current().offset;
    MW_ASSIGN_OR_RETURN(std::string name, lexer_.ExpectName("the name of an attribute"));
    MW_RETURN_IF_ERROR(lexer_.Expect('=', "after the name of the attribute"));
    MW_ASSIGN_OR_RETURN(Literal value, values_.ParseLiteral());
    const auto [attribute, is_new] = attributes->try_emplace(std::move(name), std::move(value));
    if (!is_new) return lexer_.ErrorAt(place, fmt::format("attribute '{}' is given twice", Excerpt(attribute->first)));
    MW_ASSIGN_OR_RETURN(more, values_.AnotherElement(']'));
  }
  return lexer_.Advance();
}

Status ProgramParser::ParseEnd(std::string_view what) {
  if (options_.lenient && !lexer_.current().Is(';')) return Status::Ok();
  return lexer_.Expect(';', fmt::format("after {}", what));
}

Result<Value*> ProgramParser::ParseValueName() {
  const size_t place = lexer_.current().offset;
  MW_ASSIGN_OR_RETURN(const std::string name, lexer_.ExpectName("the name of a value, or a literal"));
  const auto it = visible_.find(name);
  if (it == visible_.end())
    return lexer_.ErrorAt(place, fmt::format("no value '{}' is defined before this", Excerpt(name)));
  return it->second.value;
}

Status ProgramParser::Define(Value* value, size_t offset) {
  const auto [it, is_new] = visible_.try_emplace(value->name, Defined{value, offset});
  if (!is_new) {
    return lexer_.ErrorAt(offset, fmt::format("'{}' is already defined on line {}", Excerpt(value->name),
                                              lexer_.LineOf(it->second.offset)));
  }
  defined_.push_back(value->name);
  return Status::Ok();
}

void ProgramParser::LeaveScope(size_t depth) {
  for (; defined_.size() > depth; defined_.pop_back()) visible_.erase(defined_.back());
}

}  // namespace

Result<Program> ParseProgram(std::string_view text, const ParseOptions& options) {
  return ProgramParser(text, options).Parse();
}

}  // namespace milwright
