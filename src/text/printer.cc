#include "text/printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "text/lexer.h"
#include "text/number.h"

namespace milwright {
namespace {

using Attributes = std::map<std::string, Literal, std::less<>>;

// Columns by which Apple's compiler indents: `func` by 4, operations by 8 more than what holds them, and the bracket
// that ends them by 4 more.
constexpr size_t kFunctionIndent = 4;
constexpr size_t kBodyIndent = 8;
constexpr size_t kCloseIndent = 4;

Opset NewestOpset(const Program& program) {
  Opset newest = Opset::kIOS15;
  for (const auto& function : program.functions()) newest = std::max(newest, function->opset);
  return newest;
}

uint64_t ElementBits(const Tensor& tensor, int64_t i) {
  if (IsSubByte(tensor.dtype())) return static_cast<uint64_t>(tensor.GetInt(i));
  const auto width = static_cast<size_t>(BitWidth(tensor.dtype()) / 8);
  uint64_t bits = 0;
  std::memcpy(&bits, tensor.bytes().data() + static_cast<size_t>(i) * width, width);
  return bits;
}

class Printer {
 public:
  Printer(const PrintOptions& options, bool short_scalars) : options_(options), short_scalars_(short_scalars) {}

  void Whole(const Program& program);
  void FunctionText(const Function& function);
  void OperationText(const Operation& op, size_t indent);
  void TypeText(const Type& type);
  void LiteralText(const Literal& literal);
  std::string Take() { return std::move(text_); }

 private:
  // `{ ... }`-style lists: `print` writes each item of `items`, commas between.
  template <typename Items, typename Print>
  void List(const Items& items, Print print) {
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_ += ", ";
      first = false;
      print(item);
    }
  }
  void Name(std::string_view name) { text_ += IsIdentifier(name) ? std::string(name) : Quote(name); }
  void Declaration(const Value& value) {
    TypeText(value.type);
    text_ += ' ';
    Name(value.name);
  }
  void AttributesText(const Attributes& attributes);
  void OperandText(const Operand& operand);
  void BodyText(const Block& block, size_t indent);
  void ContentText(const Literal& literal);
  void ElementText(const Literal& literal, const Type& whole, size_t index);
  void TensorText(const Tensor& tensor);
  void NestedText(const Tensor& tensor, size_t axis, int64_t* element);

  const PrintOptions& options_;
  bool short_scalars_;
  std::string text_;
};

void Printer::Whole(const Program& program) {
  const int minor = short_scalars_ ? 3 : 0;
  text_ += fmt::format("program({}", options_.program_version.value_or(fmt::format("{}.{}", program.version, minor)));
  if (!program.doc_string.empty()) text_ += ", " + Quote(program.doc_string);
  text_ += ")\n";
  if (!program.attributes.empty()) {
    AttributesText(program.attributes);
    text_ += '\n';
  }
  text_ += "{\n";
  for (const auto& function : program.functions()) {
    if (options_.function.empty() || function->name == options_.function) FunctionText(*function);
  }
  text_ += '}';
}

void Printer::FunctionText(const Function& function) {
  text_.append(kFunctionIndent, ' ');
  text_ += "func ";
  Name(function.name);
  text_ += fmt::format("<{}>(", OpsetTextName(function.opset));
  List(function.inputs(), [this](const auto& input) { Declaration(*input); });
  text_ += ") ";
  if (!function.attributes.empty()) {
    AttributesText(function.attributes);
    text_ += ' ';
  }
  BodyText(function.body(), kFunctionIndent);
  text_ += ";\n";
}

// From `{` on; `indent` is that of the line on which it stands.
void Printer::BodyText(const Block& block, size_t indent) {
  text_ += "{\n";
  for (const auto& op : block.operations()) {
    text_.append(indent + kBodyIndent, ' ');
    OperationText(*op, indent + kBodyIndent);
    text_ += '\n';
  }
  text_.append(indent + kCloseIndent, ' ');
  text_ += "} -> (";
  List(block.outputs(), [this](const Value* output) { Name(output->name); });
  text_ += ')';
  AttributesText(block.attributes);
}

void Printer::OperationText(const Operation& op, size_t indent) {
  List(op.outputs(), [this](const auto& output) { Declaration(*output); });
  if (!op.outputs().empty()) text_ += " = ";
  Name(op.type());
  text_ += '(';
  List(op.inputs(), [this](const Input& input) {
    Name(input.name);
    text_ += " = ";
    if (input.arguments.size() == 1) {
      OperandText(input.arguments.front());
    } else {
      text_ += '(';
      List(input.arguments, [this](const Operand& operand) { OperandText(operand); });
      text_ += ')';
    }
  });
  text_ += ')';
  AttributesText(op.attributes);
  for (size_t i = 0; i < op.blocks().size(); ++i) {
    const Block& block = *op.blocks()[i];
    text_ += i == 0 ? "\n" : ",\n";
    text_.append(indent + kCloseIndent, ' ');
    text_ += '(';
    List(block.inputs(), [this](const auto& input) { Declaration(*input); });
    text_ += ") ";
    BodyText(block, indent + kCloseIndent);
  }
  text_ += ';';
}

void Printer::OperandText(const Operand& operand) {
  if (operand.value != nullptr) {
    Name(operand.value->name);
  } else {
    LiteralText(*operand.literal);
  }
}

void Printer::AttributesText(const Attributes& attributes) {
  if (attributes.empty()) return;
  text_ += '[';
  List(attributes, [this](const auto& attribute) {
    Name(attribute.first);
    text_ += " = ";
    LiteralText(attribute.second);
  });
  text_ += ']';
}

void Printer::TypeText(const Type& type) {
  switch (type.kind) {
    case Type::Kind::kTensor:
      text_ += short_scalars_ && type.rank() == 0 ? std::string(DataTypeName(type.dtype())) : TypeToString(type.tensor);
      return;
    case Type::Kind::kState:
      text_ += TypeToString(type);
      return;
    case Type::Kind::kList:
      text_ += "list<";
      break;
    case Type::Kind::kTuple:
      text_ += "tuple<";
      break;
    case Type::Kind::kDictionary:
      text_ += "dict<";
      break;
  }
  List(type.elements, [this](const Type& element) { TypeText(element); });
  if (type.kind == Type::Kind::kList) text_ += type.length < 0 ? ", ?" : fmt::format(", {}", type.length);
  text_ += '>';
}

void Printer::LiteralText(const Literal& literal) {
  TypeText(literal.type);
  text_ += '(';
  ContentText(literal);
  text_ += ')';
}

void Printer::ContentText(const Literal& literal) {
  switch (literal.type.kind) {
    case Type::Kind::kTensor:
    case Type::Kind::kState:
      if (literal.blob.has_value()) {
        const BlobReference& blob = *literal.blob;
        text_ += "BLOBFILE(path = ";
        TypeText(Type::Scalar(DataType::kString));
        text_ += fmt::format("({}), offset = ", Quote(blob.file_name));
        TypeText(Type::Scalar(DataType::kUInt64));
        text_ += fmt::format("({}))", blob.offset);
      } else {
        TensorText(literal.tensor);
      }
      return;
    case Type::Kind::kList:
      text_ += '[';
      List(literal.elements, [&](const Literal& element) { ElementText(element, literal.type, 0); });
      text_ += ']';
      return;
    case Type::Kind::kTuple: {
      text_ += '(';
      size_t i = 0;
      List(literal.elements, [&](const Literal& element) { ElementText(element, literal.type, i++); });
      text_ += ')';
      return;
    }
    case Type::Kind::kDictionary:
      text_ += '{';
      List(literal.entries, [&](const auto& entry) {
        text_ += '{';
        ElementText(entry.first, literal.type, 0);
        text_ += ", ";
        ElementText(entry.second, literal.type, 1);
        text_ += '}';
      });
      text_ += '}';
      return;
  }
}

// An element stands bare when its type is the one that the type of the whole declares.
void Printer::ElementText(const Literal& literal, const Type& whole, size_t index) {
  if (index < whole.elements.size() && literal.type == whole.elements[index]) {
    ContentText(literal);
  } else {
    LiteralText(literal);
  }
}

void Printer::TensorText(const Tensor& tensor) {
  if (options_.elide_weights && static_cast<uint64_t>(tensor.size()) > options_.elide_above) {
    text_ += fmt::format("<{} elements>", tensor.size());
  } else if (tensor.size() == 0) {
    text_ += "[]";
  } else {
    int64_t element = 0;
    NestedText(tensor, 0, &element);
  }
}

void Printer::NestedText(const Tensor& tensor, size_t axis, int64_t* element) {
  if (axis == tensor.shape().size()) {
    const int64_t i = (*element)++;
    text_ += tensor.dtype() == DataType::kString ? Quote(tensor.strings()[static_cast<size_t>(i)])
                                                 : FormatNumber(tensor.dtype(), ElementBits(tensor, i));
    return;
  }
  text_ += '[';
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i > 0) text_ += ", ";
    NestedText(tensor, axis + 1, element);
  }
  text_ += ']';
}

}  // namespace

std::string PrintProgram(const Program& program, const PrintOptions& options) {
  Printer printer(options, options.short_scalars.value_or(NewestOpset(program) >= Opset::kIOS18));
  printer.Whole(program);
  return printer.Take();
}

std::string PrintFunction(const Function& function, const PrintOptions& options) {
  Printer printer(options, options.short_scalars.value_or(function.opset >= Opset::kIOS18));
  printer.FunctionText(function);
  return printer.Take();
}

std::string PrintOperation(const Operation& operation, const PrintOptions& options) {
  const Block* block = operation.parent();
  const bool is_new = block == nullptr || block->function() == nullptr || block->function()->opset >= Opset::kIOS18;
  Printer printer(options, options.short_scalars.value_or(is_new));
  printer.OperationText(operation, 0);
  return printer.Take();
}

std::string PrintLiteral(const Literal& literal, const PrintOptions& options) {
  Printer printer(options, options.short_scalars.value_or(true));
  printer.LiteralText(literal);
  return printer.Take();
}

std::string PrintType(const Type& type, const PrintOptions& options) {
  Printer printer(options, options.short_scalars.value_or(true));
  printer.TypeText(type);
  return printer.Take();
}

}  // namespace milwright
