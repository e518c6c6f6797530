#include "text/printer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/parser.h"
#include "text_test_util.h"

namespace milwright {
namespace {

Operation* Append(Block& block, const std::string& type) { return block.Insert(std::make_unique<Operation>(type)); }

// A program that uses every construct of the text: two functions, states, nested blocks, inline literals, several
// results, variadic arguments, attributes everywhere, and names that are no identifiers.
Program MakeProgram(Opset opset) {
  Program program;
  program.attributes["buildInfo"] = [] {
    Literal dictionary;
    dictionary.type = Type::Dictionary(Type::Scalar(DataType::kString), Type::Scalar(DataType::kString));
    dictionary.entries.emplace_back(Literal::String("by"), Literal::String("a \"test\"\n"));
    return dictionary;
  }();
  Function* main = program.AddFunction("main", opset);
  Value* x = main->AddInput("x", Type::Tensor(DataType::kFp16, {2, kUnknownDim}));
  Value* state = main->AddInput("kv", Type::State({DataType::kFp16, {2}}));
  main->attributes.emplace("note", Literal::Int32(1));
  Block& body = main->body();
  body.attributes.emplace("mark", Literal::Bool(true));

  Operation* read = Append(body, "read_state");
  read->SetInput("input", state);
  read->attributes.emplace("name", Literal::String("read"));
  Value* old = read->AddOutput("old", Type::Tensor(DataType::kFp16, {2}));

  Operation* split = Append(body, "split");
  split->SetInput("x", old);
  split->SetInput("axis", Literal::Share(Literal::Int32(0)));
  Value* a = split->AddOutput("a", Type::Tensor(DataType::kFp16, {1}));
  Value* b = split->AddOutput("b/1", Type::Tensor(DataType::kFp16, {1}));

  Operation* concat = Append(body, "concat");
  concat->SetInput("values", std::vector<Operand>{a, b, Literal::Share(Literal::Float(DataType::kFp16, -0.0))});
  concat->SetInput("none", std::vector<Operand>{});
  Value* joined = concat->AddOutput("joined", Type::Tensor(DataType::kFp16, {3}));

  Operation* write = Append(body, "write_state");
  write->SetInput("input", state);
  write->SetInput("data", old);

  Operation* pick = Append(body, "cond");
  pick->SetInput("pred", Literal::Share(Literal::Bool(false)));
  pick->attributes.emplace("name", Literal::String("pick"));
  Block* yes = pick->AddBlock();
  Operation* relu = Append(*yes, "relu");
  relu->SetInput("x", joined);
  yes->SetOutputs({relu->AddOutput("inner", Type::Tensor(DataType::kFp16, {3}))});
  Block* no = pick->AddBlock();
  no->SetOutputs({no->AddInput("given", Type::Tensor(DataType::kFp16, {3}))});
  no->attributes.emplace("mark", Literal::Bool(false));
  Value* picked = pick->AddOutput("picked", Type::Tensor(DataType::kFp16, {3}));
  body.SetOutputs({picked, x});

  program.AddFunction("empty", opset);
  return program;
}

void ExpectComesBack(const Program& program, const ParseOptions& options = {}) {
  const std::string text = PrintProgram(program);
  const auto parsed = ParseProgram(text, options);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  std::string why;
  EXPECT_TRUE(ProgramsEqual(program, *parsed, {}, &why)) << why << "\n" << text;
  EXPECT_EQ(PrintProgram(*parsed), text);
}

TEST(Printer, ProgramOfIOS18) {
  const Program program = MakeProgram(Opset::kIOS18);
  EXPECT_EQ(PrintProgram(program), R"(program(1.3)
[buildInfo = dict<string, string>({{"by", "a \"test\"\n"}})]
{
    func main<ios18>(tensor<fp16, [2, ?]> x, state<tensor<fp16, [2]>> kv) [note = int32(1)] {
            tensor<fp16, [2]> old = read_state(input = kv)[name = string("read")];
            tensor<fp16, [1]> a, tensor<fp16, [1]> "b/1" = split(axis = int32(0), x = old);
            tensor<fp16, [3]> joined = concat(none = (), values = (a, "b/1", fp16(-0x0p+0)));
            write_state(data = old, input = kv);
            tensor<fp16, [3]> picked = cond(pred = bool(false))[name = string("pick")]
                () {
                        tensor<fp16, [3]> inner = relu(x = joined);
                    } -> (inner),
                (tensor<fp16, [3]> given) {
                    } -> (given)[mark = bool(false)];
        } -> (picked, x)[mark = bool(true)];
    func empty<ios18>() {
        } -> ();
})");
  ExpectComesBack(program);
}

TEST(Printer, ProgramBeforeIOS18) {
  const Program program = MakeProgram(Opset::kIOS17);
  const std::string text = PrintProgram(program);
  EXPECT_EQ(text.substr(0, text.find('{')), "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>(");
  EXPECT_NE(text.find("cond(pred = tensor<bool, []>(false))[name = tensor<string, []>(\"pick\")]"), std::string::npos);
  ExpectComesBack(program);
}

TEST(Printer, Options) {
  Program program = MakeProgram(Opset::kIOS18);
  program.doc_string = "what \"it\" is";
  program.version = 2;
  EXPECT_EQ(PrintProgram(program).substr(0, 33), "program(2.3, \"what \\\"it\\\" is\")\n[b");
  ExpectComesBack(program);
  PrintOptions options;
  options.program_version = "9.9";
  options.short_scalars = false;
  options.function = "empty";
  program.attributes.clear();
  program.doc_string.clear();
  EXPECT_EQ(PrintProgram(program, options), "program(9.9)\n{\n    func empty<ios18>() {\n        } -> ();\n}");
}

TEST(Printer, ElidedLiteralsSayTheirSize) {
  PrintOptions options;
  options.elide_weights = true;
  options.elide_above = 3;
  EXPECT_EQ(PrintLiteral(Literal::Int32s({1, 2, 3}), options), "tensor<int32, [3]>([1, 2, 3])");
  EXPECT_EQ(PrintLiteral(Literal::Int32s({1, 2, 3, 4}), options), "tensor<int32, [4]>(<4 elements>)");
  const Literal blob(*Tensor::Zeros({DataType::kFp16, {1000}}), BlobReference{"@model_path/weights/weight.bin", 64});
  const std::string text =
      "tensor<fp16, [1000]>(BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))";
  EXPECT_EQ(PrintLiteral(blob, options), text);
  EXPECT_EQ(PrintLiteral(blob), text);
}

TEST(Printer, TypesAndOperationsAlone) {
  const Type type = Type::List(Type::Tuple({Type::Scalar(DataType::kInt32), Type::Tensor(DataType::kBool, {1})}), -1);
  EXPECT_EQ(PrintType(type), "list<tuple<int32, tensor<bool, [1]>>, ?>");
  PrintOptions longer;
  longer.short_scalars = false;
  EXPECT_EQ(PrintType(type, longer), "list<tuple<tensor<int32, []>, tensor<bool, [1]>>, ?>");
  const Program program = MakeProgram(Opset::kIOS18);
  const Function& main = *program.FindFunction("main");
  EXPECT_EQ(PrintOperation(*main.body().operations().front()),
            "tensor<fp16, [2]> old = read_state(input = kv)[name = string(\"read\")];");
  EXPECT_EQ(PrintFunction(*program.FindFunction("empty")), "    func empty<ios18>() {\n        } -> ();\n");
}

// ---- literals of every type and shape come back ----

void ExpectLiteralComesBack(const Literal& literal) {
  Program program;
  Block& body = program.AddFunction("main", Opset::kIOS18)->body();
  Append(body, "const")->attributes.emplace("val", literal);
  ExpectComesBack(program, WithZeroWeights());
}

TEST(Printer, TensorsOfEveryTypeComeBack) {
  uint32_t pattern = 1;
  for (int code = 1; code <= 41; ++code) {
    const auto dtype = static_cast<DataType>(code);
    if (BitWidth(dtype) == 0) continue;
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{2, 0, 3}, Shape{2, 3}, Shape{1, 2, 1, 3}}) {
      Tensor tensor = *Tensor::Zeros({dtype, shape});
      for (int64_t i = 0; i < tensor.size(); ++i) {
        if (dtype == DataType::kBool) {
          tensor.SetInt(i, i % 2);
        } else if (IsSubByte(dtype)) {
          tensor.SetInt(i, i * 5);
        } else {  // any bits: NaNs with payloads, denormals, infinities
          const auto width = static_cast<int64_t>(BitWidth(dtype) / 8);
          for (int64_t k = 0; k < width; ++k) {
            pattern = pattern * 1664525U + 1013904223U;
            tensor.mutable_bytes()[static_cast<size_t>(i * width + k)] = static_cast<std::byte>(pattern >> 24U);
          }
        }
      }
      ExpectLiteralComesBack(Literal(tensor));
    }
  }
}

TEST(Printer, SpecialFloatsComeBackBitForBit) {
  for (const uint16_t bits : {0x0000, 0x8000, 0x0001, 0x83FF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF}) {
    Tensor tensor = *Tensor::Zeros({DataType::kFp16, {}});
    tensor.MutableAs<uint16_t>()[0] = bits;
    ExpectLiteralComesBack(Literal(tensor));
  }
}

TEST(Printer, StringsAndContainersComeBack) {
  ExpectLiteralComesBack(Literal(*Tensor::FromStrings({2, 1}, {"a, b)\"", std::string("\0\xff größe", 9)})));
  Literal list;
  list.type = Type::List(Type::Tensor(DataType::kInt32, {kUnknownDim}), kUnknownDim);
  list.elements = {Literal::Int32s({1, 2}), Literal::Int32s({}), Literal::Int32(3)};
  ExpectLiteralComesBack(list);
  Literal tuple;
  tuple.type = Type::Tuple({list.type, Type::Scalar(DataType::kString), Type::Tuple({})});
  tuple.elements = {list, Literal::String("x"), Literal()};
  tuple.elements[2].type = Type::Tuple({});
  ExpectLiteralComesBack(tuple);
  Literal dictionary;
  dictionary.type = Type::Dictionary(Type::Scalar(DataType::kInt64), list.type);
  ExpectLiteralComesBack(dictionary);
  dictionary.entries.emplace_back(Literal(Tensor::Scalar(DataType::kInt64, 5)), list);
  dictionary.entries.emplace_back(Literal::Int32(6), list);  // not the declared key type
  ExpectLiteralComesBack(dictionary);
}

TEST(Printer, BlobsComeBack) {
  const Literal blob(*Tensor::Zeros({DataType::kInt4, {3}}), BlobReference{"@model_path/weights/\"w\".bin", 1U << 31U});
  ExpectLiteralComesBack(blob);
  const auto text = PrintLiteral(blob);
  const auto program = ParseProgram(InMain("const()[val = " + text + "];"), WithZeroWeights());
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Literal& back = *program->functions().front()->body().operations().front()->FindAttribute("val");
  EXPECT_EQ(back.blob, blob.blob);
}

}  // namespace
}  // namespace milwright
