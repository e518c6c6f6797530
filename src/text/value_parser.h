// Types and literals of MIL text; the part of the parser that knows no programs.
#ifndef MILWRIGHT_TEXT_VALUE_PARSER_H_
#define MILWRIGHT_TEXT_VALUE_PARSER_H_

#include <cstdint>
#include <vector>

#include "mil/literal.h"
#include "milwright/status.h"
#include "text/lexer.h"
#include "text/parser.h"

namespace milwright {

/// How deep types, literals and blocks may nest, and how many dimensions a tensor may have. Real programs stay below
/// ten; the limit keeps hostile text from exhausting the stack.
inline constexpr int kMaxNesting = 100;

class ValueParser {
 public:
  ValueParser(Lexer* lexer, const ParseOptions* options) : lexer_(lexer), options_(options) {}

  /// Whether a literal starts here: `int32(`, or a type with parameters (`tensor<`), whose value follows it.
  [[nodiscard]] bool AtLiteral() const;
  Result<Type> ParseType(int depth = 0);
  /// TYPE(VALUE).
  Result<Literal> ParseLiteral(int depth = 0);
  /// Ends a list element: moves past a comma; true when another element follows, false when `close` is next.
  Result<bool> AnotherElement(char close);

 private:
  Result<Shape> ParseShape();
  Result<int64_t> ParseSize();
  Result<Type> ParseTensorType();
  Result<Literal> ParseValue(const Type& type, int depth);
  Result<Literal> ParseElement(const Type& type, int depth);
  Result<Literal> ParseTensorValue(const TensorType& type);
  Result<Literal> ParseListValue(const Type& type, int depth);
  Result<Literal> ParseTupleValue(const Type& type, int depth);
  Result<Literal> ParseDictionaryValue(const Type& type, int depth);
  Result<Literal> ParseBlob(const TensorType& type);
  Result<Literal> ParseBlobField(DataType dtype);

  // Elements of a tensor as read so far: bits of numbers, or strings.
  struct Elements {
    std::vector<uint64_t> bits;
    std::vector<std::string> strings;
  };
  Status ReadElement(DataType dtype, Elements* elements);
  Status ReadNested(const TensorType& type, size_t axis, bool is_empty, Elements* elements);
  Status ReadFlat(const TensorType& type, int64_t count, Elements* elements);
  Result<Tensor> MakeTensor(const TensorType& type, Elements elements);

  Lexer* lexer_;
  const ParseOptions* options_;
};

}  // namespace milwright

#endif  // MILWRIGHT_TEXT_VALUE_PARSER_H_
