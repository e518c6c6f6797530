#include "text/analytics.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "text/lexer.h"
#include "text/number.h"
#include "text/value_parser.h"

namespace milwright {
namespace {

// The content of a literal without its type: a scalar, or a bracketed list (of lists).
struct Node {
  std::string text;
  std::vector<Node> children;
};

// One attribute: the content of its value, and the whole value as written.
struct Attribute {
  std::string name;
  Node value;
  std::string as_written;
};

std::optional<double> ToDouble(std::string_view text) {
  const ParsedNumber number = ParseNumber(DataType::kFp64, text);
  if (!number.error.empty()) return std::nullopt;
  return std::bit_cast<double>(number.bits);
}

// {{"ane", 0.5}, ...}: calls `store` with each key and value.
template <typename Store>
void ForEachEntry(const Node& dictionary, Store store) {
  for (const Node& entry : dictionary.children) {
    if (entry.children.size() == 2) store(entry.children[0].text, entry.children[1].text);
  }
}

// What stands between `prefix` and `suffix` in `text`; nothing when it has not both.
std::optional<std::string_view> Between(std::string_view text, std::string_view prefix, std::string_view suffix) {
  if (text.size() < prefix.size() + suffix.size() || !text.starts_with(prefix) || !text.ends_with(suffix)) {
    return std::nullopt;
  }
  return text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
}

// Files one attribute of an operation under what it says.
void Store(Attribute attribute, AnalyticsOperation* op) {
  const Node& value = attribute.value;
  if (attribute.name == "name") {
    op->name = value.text;
  } else if (attribute.name == "milId") {
    const ParsedNumber id = ParseNumber(DataType::kUInt64, value.text);
    if (id.error.empty()) op->mil_id = id.bits;
  } else if (attribute.name == "SelectedBackend") {
    op->selected_backend = value.text;
  } else if (attribute.name == "BackendSupport") {
    for (const Node& slot : value.children) {
      op->backend_support.push_back(slot.text);
      if (slot.text != "unsupported") op->supported_backends.push_back(slot.text);
    }
  } else if (attribute.name == "EstimatedRuntime") {
    ForEachEntry(value, [op](const std::string& backend, const std::string& runtime) {
      if (const auto number = ToDouble(runtime); number.has_value()) op->estimated_runtime_ms[backend] = *number;
    });
  } else if (attribute.name == "ValidationMessage") {
    ForEachEntry(value, [op](const std::string& backend, const std::string& message) {
      op->validation_message[backend] = message;
    });
  } else {
    op->other_attributes[std::move(attribute.name)] = std::move(attribute.as_written);
  }
}

// Launch_BACKEND_ms and Src_BACKEND_Dest_BACKEND_ms, or something else.
void Store(Attribute attribute, AnalyticsFunction* function) {
  const auto number = ToDouble(attribute.value.text);
  const auto launched = Between(attribute.name, "Launch_", "_ms");
  const auto transition = Between(attribute.name, "Src_", "_ms");
  const size_t middle = transition.has_value() ? transition->find("_Dest_") : std::string_view::npos;
  if (number.has_value() && launched.has_value()) {
    function->launch_ms[std::string(*launched)] = *number;
  } else if (number.has_value() && middle != std::string_view::npos) {
    const std::string_view destination = transition->substr(middle + std::string_view("_Dest_").size());
    function->transition_ms[{std::string(transition->substr(0, middle)), std::string(destination)}] = *number;
  } else {
    function->other_attributes[std::move(attribute.name)] = std::move(attribute.as_written);
  }
}

bool Opens(const Token& token) { return token.Is('(') || token.Is('[') || token.Is('{') || token.Is('<'); }
bool Closes(const Token& token) { return token.Is(')') || token.Is(']') || token.Is('}') || token.Is('>'); }

class AnalyticsParser {
 public:
  AnalyticsParser(std::string_view text, std::string_view file_name) : lexer_(text, file_name) {}

  Result<Analytics> Parse();

 private:
  Result<AnalyticsFunction> ParseFunction();
  Status ParseBody(AnalyticsFunction* function, std::vector<std::string>* outputs, int depth);
  Status ParseOperation(AnalyticsFunction* function, int depth);
  Result<std::vector<AnalyticsResult>> ParseDeclarations();
  Result<std::vector<std::string>> ParseNames();
  Status ParseArguments(AnalyticsOperation* op);
  Result<std::string> ParseArgumentValue();
  Result<std::vector<Attribute>> ParseAttributes();
  Result<Node> ParseNode(int depth);
  Status SkipBrackets();
  Result<std::string> ParseTypeText();

  // The text from `start` to the end of the token before the current one.
  [[nodiscard]] std::string TextFrom(size_t start) const {
    return std::string(lexer_.text().substr(start, end_of_last_ - start));
  }
  Status Advance() {
    const Token& token = lexer_.current();
    end_of_last_ = token.offset + token.text.size() + (token.kind == TokenKind::kString ? 2 : 0);
    return lexer_.Advance();
  }
  // Moves past `c`, and says whether it was there.
  Result<bool> Accept(char c) {
    if (!lexer_.current().Is(c)) return false;
    MW_RETURN_IF_ERROR(Advance());
    return true;
  }
  // Moves past `c`, or fails.
  Status Expect(char c) {
    if (!lexer_.current().Is(c)) return lexer_.Unexpected(fmt::format("'{}'", c));
    return Advance();
  }
  Result<std::string> ParseName(std::string_view what) {
    const Token token = lexer_.current();
    if (token.kind != TokenKind::kIdentifier) return lexer_.Unexpected(what);
    MW_RETURN_IF_ERROR(Advance());
    return std::string(token.text);
  }

  Lexer lexer_;
  size_t end_of_last_ = 0;
};

Result<Analytics> AnalyticsParser::Parse() {
  MW_RETURN_IF_ERROR(lexer_.Start());
  Analytics analytics;
  if (!lexer_.current().IsWord("program")) return lexer_.Unexpected("'program' at the start of MIL text");
  MW_RETURN_IF_ERROR(Advance());
  MW_RETURN_IF_ERROR(Expect('('));
  analytics.program_version = lexer_.current().text;
  MW_RETURN_IF_ERROR(Advance());
  MW_RETURN_IF_ERROR(Expect(')'));
  MW_ASSIGN_OR_RETURN(const std::vector<Attribute> attributes, ParseAttributes());
  for (const Attribute& attribute : attributes) {
    if (attribute.name != "buildInfo") continue;
    ForEachEntry(attribute.value,
                 [&analytics](const std::string& key, const std::string& value) { analytics.build_info[key] = value; });
  }
  MW_RETURN_IF_ERROR(Expect('{'));
  while (!lexer_.current().Is('}')) {
    MW_ASSIGN_OR_RETURN(AnalyticsFunction function, ParseFunction());
    analytics.functions.push_back(std::move(function));
  }
  return analytics;
}

Result<AnalyticsFunction> AnalyticsParser::ParseFunction() {
  if (!lexer_.current().IsWord("func")) return lexer_.Unexpected("'func' or '}'");
  MW_RETURN_IF_ERROR(Advance());
  AnalyticsFunction function;
  MW_ASSIGN_OR_RETURN(function.name, ParseName("the name of the function"));
  MW_RETURN_IF_ERROR(Expect('<'));
  MW_ASSIGN_OR_RETURN(function.opset, ParseName("an opset"));
  MW_RETURN_IF_ERROR(Expect('>'));
  MW_ASSIGN_OR_RETURN(function.inputs, ParseDeclarations());
  MW_ASSIGN_OR_RETURN(std::vector<Attribute> attributes, ParseAttributes());
  for (Attribute& attribute : attributes) Store(std::move(attribute), &function);
  std::vector<std::string> outputs;
  MW_RETURN_IF_ERROR(ParseBody(&function, &outputs, 0));
  function.outputs = std::move(outputs);
  MW_RETURN_IF_ERROR(Accept(';'));
  return function;
}

Status AnalyticsParser::ParseBody(AnalyticsFunction* function, std::vector<std::string>* outputs, int depth) {
  if (depth > kMaxNesting) return lexer_.ErrorHere(fmt::format("blocks nest deeper than {} levels", kMaxNesting));
  MW_RETURN_IF_ERROR(Expect('{'));
  while (!lexer_.current().Is('}')) MW_RETURN_IF_ERROR(ParseOperation(function, depth));
  MW_RETURN_IF_ERROR(Advance());
  if (lexer_.current().kind != TokenKind::kArrow) return lexer_.Unexpected("'->'");
  MW_RETURN_IF_ERROR(Advance());
  MW_ASSIGN_OR_RETURN(*outputs, ParseNames());
  return Status::Ok();
}

// [TYPE NAME, ... =] OP [<OPSET>] (ARGUMENTS) [ATTRIBUTES] [BLOCKS] ;
Status AnalyticsParser::ParseOperation(AnalyticsFunction* function, int depth) {
  AnalyticsOperation op;
  while (true) {
    // A type and an operation start alike; only the type is followed by a name.
    const size_t start = lexer_.current().offset;
    MW_ASSIGN_OR_RETURN(op.type, ParseName("an operation or '}'"));
    op.opset.clear();
    if (lexer_.current().Is('<')) {
      const size_t inside = lexer_.next().offset;
      MW_RETURN_IF_ERROR(SkipBrackets());
      op.opset = TextFrom(inside);
      op.opset.pop_back();
    }
    if (lexer_.current().kind != TokenKind::kIdentifier) break;
    std::string type = TextFrom(start);
    MW_ASSIGN_OR_RETURN(std::string name, ParseName("a name after the type"));
    op.results.push_back({std::move(type), std::move(name)});
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more) MW_RETURN_IF_ERROR(Expect('='));
  }
  MW_RETURN_IF_ERROR(ParseArguments(&op));
  MW_ASSIGN_OR_RETURN(std::vector<Attribute> attributes, ParseAttributes());
  for (Attribute& attribute : attributes) Store(std::move(attribute), &op);
  function->operations.push_back(std::move(op));
  while (lexer_.current().Is('(') || lexer_.current().Is('{')) {
    if (lexer_.current().Is('(')) MW_RETURN_IF_ERROR(ParseDeclarations());
    std::vector<std::string> outputs;
    MW_RETURN_IF_ERROR(ParseBody(function, &outputs, depth + 1));
    MW_RETURN_IF_ERROR(Accept(','));
  }
  return Expect(';');
}

Result<std::vector<AnalyticsResult>> AnalyticsParser::ParseDeclarations() {
  MW_RETURN_IF_ERROR(Expect('('));
  std::vector<AnalyticsResult> declarations;
  while (!lexer_.current().Is(')')) {
    MW_ASSIGN_OR_RETURN(std::string type, ParseTypeText());
    MW_ASSIGN_OR_RETURN(std::string name, ParseName("a name after the type"));
    declarations.push_back({std::move(type), std::move(name)});
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more && !lexer_.current().Is(')')) return lexer_.Unexpected("',' or ')'");
  }
  MW_RETURN_IF_ERROR(Advance());
  return declarations;
}

Result<std::vector<std::string>> AnalyticsParser::ParseNames() {
  MW_RETURN_IF_ERROR(Expect('('));
  std::vector<std::string> names;
  while (!lexer_.current().Is(')')) {
    MW_ASSIGN_OR_RETURN(std::string name, ParseName("the name of a value"));
    names.push_back(std::move(name));
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more && !lexer_.current().Is(')')) return lexer_.Unexpected("',' or ')'");
  }
  MW_RETURN_IF_ERROR(Advance());
  return names;
}

Status AnalyticsParser::ParseArguments(AnalyticsOperation* op) {
  MW_RETURN_IF_ERROR(Expect('('));
  while (!lexer_.current().Is(')')) {
    AnalyticsArgument argument;
    MW_ASSIGN_OR_RETURN(argument.parameter, ParseName("the name of a parameter"));
    MW_RETURN_IF_ERROR(Expect('='));
    MW_ASSIGN_OR_RETURN(const bool is_list, Accept('('));
    while (!(is_list && lexer_.current().Is(')'))) {
      MW_ASSIGN_OR_RETURN(std::string value, ParseArgumentValue());
      argument.values.push_back(std::move(value));
      if (!is_list) break;
      MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
      if (!more && !lexer_.current().Is(')')) return lexer_.Unexpected("',' or ')'");
    }
    if (is_list) MW_RETURN_IF_ERROR(Advance());
    op->arguments.push_back(std::move(argument));
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more && !lexer_.current().Is(')')) return lexer_.Unexpected("',' or ')'");
  }
  return Advance();
}

// A name, or a literal as written.
Result<std::string> AnalyticsParser::ParseArgumentValue() {
  const size_t start = lexer_.current().offset;
  MW_RETURN_IF_ERROR(ParseTypeText());
  if (lexer_.current().Is('(')) MW_RETURN_IF_ERROR(SkipBrackets());
  return TextFrom(start);
}

// A word, and what stands in angle brackets behind it.
Result<std::string> AnalyticsParser::ParseTypeText() {
  const size_t start = lexer_.current().offset;
  MW_RETURN_IF_ERROR(ParseName("a type or a name"));
  if (lexer_.current().Is('<')) MW_RETURN_IF_ERROR(SkipBrackets());
  return TextFrom(start);
}

// [NAME = TYPE(VALUE), ...], or nothing.
Result<std::vector<Attribute>> AnalyticsParser::ParseAttributes() {
  std::vector<Attribute> attributes;
  MW_ASSIGN_OR_RETURN(const bool has_attributes, Accept('['));
  if (!has_attributes) return attributes;
  while (!lexer_.current().Is(']')) {
    Attribute attribute;
    MW_ASSIGN_OR_RETURN(attribute.name, ParseName("the name of an attribute"));
    MW_RETURN_IF_ERROR(Expect('='));
    const size_t start = lexer_.current().offset;
    MW_RETURN_IF_ERROR(ParseTypeText());
    MW_RETURN_IF_ERROR(Expect('('));
    MW_ASSIGN_OR_RETURN(attribute.value, ParseNode(0));
    MW_RETURN_IF_ERROR(Expect(')'));
    attribute.as_written = TextFrom(start);
    attributes.push_back(std::move(attribute));
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more && !lexer_.current().Is(']')) return lexer_.Unexpected("',' or ']'");
  }
  MW_RETURN_IF_ERROR(Advance());
  return attributes;
}

Result<Node> AnalyticsParser::ParseNode(int depth) {
  if (depth > kMaxNesting) return lexer_.ErrorHere(fmt::format("values nest deeper than {} levels", kMaxNesting));
  Node node;
  if (!Opens(lexer_.current())) {
    const Token token = lexer_.current();
    if (Closes(token) || token.kind == TokenKind::kEnd) return lexer_.Unexpected("a value");
    node.text = token.kind == TokenKind::kString ? Unescape(token.text) : std::string(token.text);
    MW_RETURN_IF_ERROR(Advance());
    if (lexer_.current().Is('(')) MW_RETURN_IF_ERROR(SkipBrackets());  // BLOBFILE(...)
    return node;
  }
  MW_RETURN_IF_ERROR(Advance());
  while (!Closes(lexer_.current())) {
    MW_ASSIGN_OR_RETURN(Node child, ParseNode(depth + 1));
    node.children.push_back(std::move(child));
    MW_ASSIGN_OR_RETURN(const bool more, Accept(','));
    if (!more && !Closes(lexer_.current())) return lexer_.Unexpected("',' or a closing bracket");
  }
  MW_RETURN_IF_ERROR(Advance());
  return node;
}

// From an opening bracket to behind the one that closes it.
Status AnalyticsParser::SkipBrackets() {
  const size_t place = lexer_.current().offset;
  size_t open = 0;
  do {
    if (lexer_.current().kind == TokenKind::kEnd) return lexer_.ErrorAt(place, "this bracket is never closed");
    open += Opens(lexer_.current()) ? 1 : 0;
    open -= Closes(lexer_.current()) ? 1 : 0;
    MW_RETURN_IF_ERROR(Advance());
  } while (open > 0);
  return Status::Ok();
}

}  // namespace

const AnalyticsFunction* Analytics::Find(std::string_view function) const {
  for (const AnalyticsFunction& candidate : functions) {
    if (candidate.name == function) return &candidate;
  }
  return nullptr;
}

Result<Analytics> ParseAnalytics(std::string_view text, std::string_view file_name) {
  return AnalyticsParser(text, file_name).Parse();
}

}  // namespace milwright
