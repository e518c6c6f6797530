#include "text/value_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/number.h"

namespace milwright {
namespace {

constexpr std::array<std::string_view, 6> kTypeWords = {"tensor", "state", "list", "tuple", "dict", "tensor_buffer"};

bool IsTypeWord(const Token& token) {
  return token.kind == TokenKind::kIdentifier && std::ranges::find(kTypeWords, token.text) != kTypeWords.end();
}

}  // namespace

bool ValueParser::AtLiteral() const {
  if (IsTypeWord(lexer_->current())) return lexer_->next().Is('<');
  return lexer_->current().kind == TokenKind::kIdentifier && lexer_->next().Is('(') &&
         DataTypeFromName(lexer_->current().text).has_value();
}

Result<bool> ValueParser::AnotherElement(char close) {
  if (lexer_->current().Is(close)) return false;
  if (!lexer_->current().Is(',')) return lexer_->Unexpected(fmt::format("',' or '{}'", close));
  MW_RETURN_IF_ERROR(lexer_->Advance());
  return !(options_->lenient && lexer_->current().Is(close));
}

// ---- types ----

Result<Type> ValueParser::ParseType(int depth) {
  const Token word = lexer_->current();
  if (depth > kMaxNesting) return lexer_->ErrorHere(fmt::format("types nest deeper than {} levels", kMaxNesting));
  if (word.kind != TokenKind::kIdentifier) return lexer_->Unexpected("a type");
  if (const auto dtype = DataTypeFromName(word.text); dtype.has_value()) {
    MW_RETURN_IF_ERROR(lexer_->Advance());
    return Type::Scalar(*dtype);
  }
  if (word.text == "tensor_buffer") {
    return lexer_->ErrorHere("tensor_buffer types belong to the segmenter's analytics.mil, which is no program");
  }
  if (!IsTypeWord(word)) return lexer_->ErrorHere(fmt::format("there is no type '{}'", Excerpt(word.text)));
  if (word.text == "tensor") return ParseTensorType();

  MW_RETURN_IF_ERROR(lexer_->Advance());
  MW_RETURN_IF_ERROR(lexer_->Expect('<', fmt::format("after '{}'", word.text)));
  Type type;
  if (word.text == "state") {
    const size_t place = lexer_->current().offset;
    MW_ASSIGN_OR_RETURN(const Type wrapped, ParseType(depth + 1));
    if (!wrapped.IsTensor()) return lexer_->ErrorAt(place, "a state holds a tensor");
    type = Type::State(wrapped.tensor);
  } else if (word.text == "list") {
    MW_ASSIGN_OR_RETURN(Type element, ParseType(depth + 1));
    MW_RETURN_IF_ERROR(lexer_->Expect(',', "and the length of the list"));
    MW_ASSIGN_OR_RETURN(const int64_t length, ParseSize());
    type = Type::List(std::move(element), length);
  } else if (word.text == "dict") {
    MW_ASSIGN_OR_RETURN(Type key, ParseType(depth + 1));
    MW_RETURN_IF_ERROR(lexer_->Expect(',', "and the type of the values"));
    MW_ASSIGN_OR_RETURN(Type value, ParseType(depth + 1));
    type = Type::Dictionary(std::move(key), std::move(value));
  } else {
    std::vector<Type> elements;
    bool more = !lexer_->current().Is('>');
    while (more) {
      MW_ASSIGN_OR_RETURN(Type element, ParseType(depth + 1));
      elements.push_back(std::move(element));
      MW_ASSIGN_OR_RETURN(more, AnotherElement('>'));
    }
    type = Type::Tuple(std::move(elements));
  }
  MW_RETURN_IF_ERROR(lexer_->Expect('>', fmt::format("at the end of the {} type", word.text)));
  return type;
}

Result<Type> ValueParser::ParseTensorType() {
  MW_RETURN_IF_ERROR(lexer_->Advance());
  MW_RETURN_IF_ERROR(lexer_->Expect('<', "after 'tensor'"));
  const Token name = lexer_->current();
  if (name.kind != TokenKind::kIdentifier) return lexer_->Unexpected("a data type");
  const auto dtype = DataTypeFromName(name.text);
  if (!dtype.has_value()) return lexer_->ErrorHere(fmt::format("there is no data type '{}'", Excerpt(name.text)));
  MW_RETURN_IF_ERROR(lexer_->Advance());
  MW_RETURN_IF_ERROR(lexer_->Expect(',', "and the sizes of the tensor"));
  MW_ASSIGN_OR_RETURN(Shape shape, ParseShape());
  MW_RETURN_IF_ERROR(lexer_->Expect('>', "at the end of the tensor type"));
  return Type(TensorType{*dtype, std::move(shape)});
}

Result<Shape> ValueParser::ParseShape() {
  MW_RETURN_IF_ERROR(lexer_->Expect('[', "before the sizes of the tensor"));
  Shape shape;
  bool more = !lexer_->current().Is(']');
  while (more) {
    if (shape.size() == kMaxNesting) {
      return lexer_->ErrorHere(fmt::format("a tensor has at most {} dimensions", kMaxNesting));
    }
    MW_ASSIGN_OR_RETURN(const int64_t size, ParseSize());
    shape.push_back(size);
    MW_ASSIGN_OR_RETURN(more, AnotherElement(']'));
  }
  MW_RETURN_IF_ERROR(lexer_->Advance());
  return shape;
}

Result<int64_t> ValueParser::ParseSize() {
  MW_ASSIGN_OR_RETURN(const bool is_unknown, lexer_->Accept('?'));
  if (is_unknown) return kUnknownDim;
  const Token token = lexer_->current();
  if (token.kind != TokenKind::kNumber) return lexer_->Unexpected("a size");
  const ParsedNumber size = ParseNumber(DataType::kInt64, token.text);
  if (!size.error.empty() || token.text.front() == '-') {
    return lexer_->ErrorHere("a size is a whole number from 0 to 2^63 - 1, or ?");
  }
  MW_RETURN_IF_ERROR(lexer_->Advance());
  return static_cast<int64_t>(size.bits);
}

// ---- literals ----

Result<Literal> ValueParser::ParseLiteral(int depth) {
  MW_ASSIGN_OR_RETURN(const Type type, ParseType(depth));
  MW_RETURN_IF_ERROR(lexer_->Expect('(', "before the value"));
  MW_ASSIGN_OR_RETURN(Literal literal, ParseValue(type, depth));
  MW_RETURN_IF_ERROR(lexer_->Expect(')', "after the value"));
  return literal;
}

Result<Literal> ValueParser::ParseValue(const Type& type, int depth) {
  // `depth` needs no check: values nest no deeper than their types, whose depth ParseType has checked.
  if (lexer_->current().Is('<')) {
    return lexer_->ErrorHere("the elements were left out when this text was printed; print it without eliding them");
  }
  switch (type.kind) {
    case Type::Kind::kTensor:
      return ParseTensorValue(type.tensor);
    case Type::Kind::kList:
      return ParseListValue(type, depth);
    case Type::Kind::kTuple:
      return ParseTupleValue(type, depth);
    case Type::Kind::kDictionary:
      return ParseDictionaryValue(type, depth);
    case Type::Kind::kState:
      break;
  }
  return lexer_->ErrorHere("a state has no value in a program's text");
}

// Elements of lists, tuples and dictionaries stand without their type, unless it differs from the declared one.
Result<Literal> ValueParser::ParseElement(const Type& type, int depth) {
  return AtLiteral() ? ParseLiteral(depth + 1) : ParseValue(type, depth + 1);
}

Result<Literal> ValueParser::ParseListValue(const Type& type, int depth) {
  const size_t place = lexer_->current().offset;
  MW_RETURN_IF_ERROR(lexer_->Expect('[', "before the elements of the list"));
  Literal literal;
  literal.type = type;
  bool more = !lexer_->current().Is(']');
  while (more) {
    MW_ASSIGN_OR_RETURN(Literal element, ParseElement(type.elements.front(), depth));
    literal.elements.push_back(std::move(element));
    MW_ASSIGN_OR_RETURN(more, AnotherElement(']'));
  }
  MW_RETURN_IF_ERROR(lexer_->Advance());
  if (type.length >= 0 && literal.elements.size() != static_cast<uint64_t>(type.length)) {
    return lexer_->ErrorAt(
        place, fmt::format("this list has {} elements, but its type says {}", literal.elements.size(), type.length));
  }
  return literal;
}

Result<Literal> ValueParser::ParseTupleValue(const Type& type, int depth) {
  MW_RETURN_IF_ERROR(lexer_->Expect('(', "before the elements of the tuple"));
  Literal literal;
  literal.type = type;
  for (size_t i = 0; i < type.elements.size(); ++i) {
    if (i > 0) MW_RETURN_IF_ERROR(lexer_->Expect(',', "between the elements of the tuple"));
    MW_ASSIGN_OR_RETURN(Literal element, ParseElement(type.elements[i], depth));
    literal.elements.push_back(std::move(element));
  }
  MW_RETURN_IF_ERROR(lexer_->Expect(')', "after the elements of the tuple"));
  return literal;
}

Result<Literal> ValueParser::ParseDictionaryValue(const Type& type, int depth) {
  MW_RETURN_IF_ERROR(lexer_->Expect('{', "before the entries of the dictionary"));
  Literal literal;
  literal.type = type;
  bool more = !lexer_->current().Is('}');
  while (more) {
    MW_RETURN_IF_ERROR(lexer_->Expect('{', "before a key and its value"));
    MW_ASSIGN_OR_RETURN(Literal key, ParseElement(type.elements[0], depth));
    MW_RETURN_IF_ERROR(lexer_->Expect(',', "between a key and its value"));
    MW_ASSIGN_OR_RETURN(Literal value, ParseElement(type.elements[1], depth));
    MW_RETURN_IF_ERROR(lexer_->Expect('}', "after a key and its value"));
    literal.entries.emplace_back(std::move(key), std::move(value));
    MW_ASSIGN_OR_RETURN(more, AnotherElement('}'));
  }
  MW_RETURN_IF_ERROR(lexer_->Advance());
  return literal;
}

Result<Literal> ValueParser::ParseTensorValue(const TensorType& type) {
  const size_t place = lexer_->current().offset;
  if (!IsStatic(type.shape)) return lexer_->ErrorAt(place, "a value needs a type whose sizes are all known");
  if (lexer_->current().IsWord("BLOBFILE")) return ParseBlob(type);
  const Result<int64_t> count = ElementCount(type.shape);
  if (!count.ok()) return lexer_->ErrorAt(place, count.status().message());
  Elements elements;
  const bool is_flat = type.shape.size() > 1 && lexer_->current().Is('[') && !lexer_->next().Is('[');
  if (is_flat) {
    MW_RETURN_IF_ERROR(ReadFlat(type, *count, &elements));
  } else {
    MW_RETURN_IF_ERROR(ReadNested(type, 0, *count == 0, &elements));
  }
  Result<Tensor> tensor = MakeTensor(type, std::move(elements));
  if (!tensor.ok()) return lexer_->ErrorAt(place, tensor.status().message());
  return Literal(*std::move(tensor));
}

Status ValueParser::ReadNested(const TensorType& type, size_t axis, bool is_empty, Elements* elements) {
  if (axis == type.shape.size()) return ReadElement(type.dtype, elements);
  const size_t place = lexer_->current().offset;
  MW_RETURN_IF_ERROR(lexer_->Expect('[', "before the elements of the tensor"));
  const int64_t size = type.shape[axis];
  int64_t read = 0;
  bool more = !lexer_->current().Is(']');
  while (more) {
    if (read == size) return lexer_->ErrorHere(fmt::format("the type of this tensor says {} elements here", size));
    MW_RETURN_IF_ERROR(ReadNested(type, axis + 1, is_empty, elements));
    ++read;
    MW_ASSIGN_OR_RETURN(more, AnotherElement(']'));
  }
  // A tensor without elements is `[]` whatever its rank: its other sizes may be huge.
  if (read != size && !(is_empty && read == 0)) {
    return lexer_->ErrorAt(place,
                           fmt::format("{} elements stand here, but the type of this tensor says {}", read, size));
  }
  return lexer_->Advance();
}

Status ValueParser::ReadFlat(const TensorType& type, int64_t count, Elements* elements) {
  const size_t place = lexer_->current().offset;
  MW_RETURN_IF_ERROR(lexer_->Advance());
  int64_t read = 0;
  bool more = !lexer_->current().Is(']');
  for (; more; ++read) {
    MW_RETURN_IF_ERROR(ReadElement(type.dtype, elements));
    MW_ASSIGN_OR_RETURN(more, AnotherElement(']'));
  }
  if (read != count) {
    return lexer_->ErrorAt(place,
                           fmt::format("{} elements stand here, but the type of this tensor says {}", read, count));
  }
  return lexer_->Advance();
}

Status ValueParser::ReadElement(DataType dtype, Elements* elements) {
  const Token token = lexer_->current();
  if (dtype == DataType::kString) {
    if (token.kind != TokenKind::kString) return lexer_->Unexpected("a string");
    elements->strings.push_back(Unescape(token.text));
    return lexer_->Advance();
  }
  if (token.kind != TokenKind::kNumber && token.kind != TokenKind::kIdentifier) {
    return lexer_->Unexpected(fmt::format("a value of type {}", DataTypeName(dtype)));
  }
  ParsedNumber number;
  if (token.text == "nan" && lexer_->next().Is('(')) {
    MW_RETURN_IF_ERROR(lexer_->Advance());
    MW_RETURN_IF_ERROR(lexer_->Advance());
    number = ParseNanPattern(dtype, lexer_->current().text);
    if (number.error.empty()) {
      MW_RETURN_IF_ERROR(lexer_->Advance());
      if (!lexer_->current().Is(')')) return lexer_->Unexpected("')' after the bit pattern");
    }
  } else {
    number = ParseNumber(dtype, token.text);
  }
  if (!number.error.empty()) {
    return lexer_->ErrorHere(
        fmt::format("'{}' as {}: {}", Excerpt(lexer_->current().text), DataTypeName(dtype), number.error));
  }
  elements->bits.push_back(number.bits);
  return lexer_->Advance();
}

Result<Tensor> ValueParser::MakeTensor(const TensorType& type, Elements elements) {
  if (type.dtype == DataType::kString) return Tensor::FromStrings(type.shape, std::move(elements.strings));
  if (IsSubByte(type.dtype)) {
    MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(type));
    for (size_t i = 0; i < elements.bits.size(); ++i) {
      tensor.SetInt(static_cast<int64_t>(i), static_cast<int64_t>(elements.bits[i]));
    }
    return tensor;
  }
  const auto width = static_cast<size_t>(BitWidth(type.dtype) / 8);
  std::vector<std::byte> bytes;
  bytes.reserve(elements.bits.size() * width);
  for (const uint64_t bits : elements.bits) {
    for (size_t k = 0; k < width; ++k) bytes.push_back(static_cast<std::byte>(bits >> (8 * k)));
  }
  return Tensor::FromBytes(type, std::move(bytes));
}

// BLOBFILE(path = string("..."), offset = uint64(64)); the order of the two is free.
Result<Literal> ValueParser::ParseBlob(const TensorType& type) {
  const size_t place = lexer_->current().offset;
  MW_RETURN_IF_ERROR(lexer_->Advance());
  MW_RETURN_IF_ERROR(lexer_->Expect('(', "after 'BLOBFILE'"));
  std::optional<std::string> path;
  std::optional<uint64_t> offset;
  for (int field = 0; field < 2; ++field) {
    if (field > 0) MW_RETURN_IF_ERROR(lexer_->Expect(',', "between path and offset"));
    const bool is_path = lexer_->current().IsWord("path");
    if (is_path ? path.has_value() : !lexer_->current().IsWord("offset") || offset.has_value()) {
      return lexer_->Unexpected("'path' and 'offset' in BLOBFILE");
    }
    MW_RETURN_IF_ERROR(lexer_->Advance());
    MW_RETURN_IF_ERROR(lexer_->Expect('=', "after the name of the field"));
    MW_ASSIGN_OR_RETURN(const Literal value, ParseBlobField(is_path ? DataType::kString : DataType::kUInt64));
    if (is_path) {
      path = value.AsString();
    } else {
      offset = static_cast<uint64_t>(value.tensor.GetInt(0));
    }
  }
  MW_RETURN_IF_ERROR(lexer_->Expect(')', "after the fields of BLOBFILE"));
  if (!options_->load_blob) {
    return lexer_->ErrorAt(place,
                           "this value lies in a weight file, and the text was given without one; open the "
                           "whole .mlmodelc folder");
  }
  BlobReference blob{*std::move(path), *offset};
  Result<Tensor> tensor = options_->load_blob(blob, type);
  if (!tensor.ok()) return lexer_->ErrorAt(place, tensor.status().message());
  if (tensor->type() != type) {
    return lexer_->ErrorAt(place,
                           fmt::format("the blob holds {}, not {}", TypeToString(tensor->type()), TypeToString(type)));
  }
  return Literal(*std::move(tensor), std::move(blob));
}

Result<Literal> ValueParser::ParseBlobField(DataType dtype) {
  const Type expected = Type::Scalar(dtype);
  if (!AtLiteral()) return ParseTensorValue(expected.tensor);
  const size_t place = lexer_->current().offset;
  MW_ASSIGN_OR_RETURN(Literal literal, ParseLiteral());
  const bool fits = dtype == DataType::kString
                        ? literal.IsString()
                        : literal.type.IsTensor() && literal.type.rank() == 0 && IsInteger(literal.type.dtype());
  if (!fits || literal.blob.has_value()) {
    return lexer_->ErrorAt(place, fmt::format("expected a scalar of type {}", DataTypeName(dtype)));
  }
  return literal;
}

}  // namespace milwright
