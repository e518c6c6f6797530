#include "text/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "text/printer.h"
#include "text_test_util.h"

namespace milwright {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Operation& OperationAt(const Program& program, size_t index) {
  return **std::next(program.functions().front()->body().operations().begin(), static_cast<std::ptrdiff_t>(index));
}

// The literal `text`, which the parser must accept.
Literal LiteralOf(const std::string& text) {
  const auto program = ParseProgram(InMain("const()[val = " + text + "];"), WithZeroWeights());
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? *OperationAt(*program, 0).FindAttribute("val") : Literal();
}

TEST(Parser, StatefulProgram) {
  const auto program = ParseProgram(R"(program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "3600.25.2"}})]
{
    func main<ios18>(tensor<fp16, [2, ?]> x, state<tensor<fp16, [2]>> kv) {
            tensor<fp16, [2]> old = read_state(input = kv)[name = string("read")];
            tensor<fp16, [2]> sum = add(x = old, y = fp16(0x1p+0))[name = string("sum")];
            write_state(data = sum, input = kv)[name = string("write")];
            tensor<fp16, [1]> a, tensor<fp16, [1]> b = split(axis = int32(0), num_splits = int32(2), x = sum)[name = string("ab")];
            tensor<fp16, [2]> both = concat(axis = int32(0), interleave = bool(false), values = (a, b))[name = string("both")];
        } -> (both, sum);
})");
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->version, 1);
  ASSERT_EQ(program->attributes.count("buildInfo"), 1U);
  EXPECT_EQ(program->attributes.at("buildInfo").entries.front().second.AsString(), "3600.25.2");
  const Function& main = *program->FindFunction("main");
  EXPECT_EQ(main.opset, Opset::kIOS18);
  EXPECT_EQ(main.inputs()[0]->type, Type::Tensor(DataType::kFp16, {2, kUnknownDim}));
  EXPECT_EQ(main.inputs()[1]->type, Type::State({DataType::kFp16, {2}}));
  ASSERT_EQ(main.body().operations().size(), 5U);
  const Operation& read = OperationAt(*program, 0);
  EXPECT_EQ(read.InputValue("input"), main.inputs()[1].get());
  const Operation& add = OperationAt(*program, 1);
  EXPECT_EQ(add.InputValue("x"), read.output());
  EXPECT_EQ(add.InputConstant("y")->tensor.GetDouble(0), 1.0);
  EXPECT_EQ(add.name(), "sum");
  EXPECT_TRUE(OperationAt(*program, 2).outputs().empty());
  EXPECT_EQ(OperationAt(*program, 3).outputs().size(), 2U);
  EXPECT_EQ(OperationAt(*program, 4).FindInput("values")->arguments.size(), 2U);
  EXPECT_EQ(main.body().outputs(), (std::vector<Value*>{OperationAt(*program, 4).output(), add.output()}));
  EXPECT_EQ(add.output()->uses().size(), 3U);
}

TEST(Parser, NestedBlocks) {
  const auto program = ParseProgram(R"(program(1.0)
{
    func main<ios15>(tensor<bool, []> p, tensor<fp32, [2]> x) {
            tensor<fp32, [2]> y = cond(pred = p)[name = tensor<string, []>("y")]
                () {
                        tensor<fp32, [2]> t = add(x = x, y = x)[name = tensor<string, []>("t")];
                    } -> (t),
                () {
                        tensor<fp32, [2]> t = mul(x = x, y = x)[name = tensor<string, []>("t")];
                    } -> (x);
            tensor<fp32, [2]> z = while_loop(loop_vars = y)[name = tensor<string, []>("z")]
                (tensor<fp32, [2]> v) {
                    } -> (p),
                (tensor<fp32, [2]> v) {
                    } -> (v);
        } -> (z);
})");
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Operation& cond = OperationAt(*program, 0);
  ASSERT_EQ(cond.blocks().size(), 2U);
  EXPECT_EQ(cond.blocks()[0]->outputs().front(), cond.blocks()[0]->operations().front()->output());
  EXPECT_EQ(cond.blocks()[1]->outputs().front(), program->functions().front()->inputs()[1].get());
  EXPECT_EQ(cond.blocks()[0]->function(), program->functions().front().get());
  const Operation& loop = OperationAt(*program, 1);
  ASSERT_EQ(loop.blocks().size(), 2U);
  EXPECT_EQ(loop.blocks()[1]->outputs().front(), loop.blocks()[1]->inputs().front().get());
}

TEST(Parser, VariationsThatOtherEmittersWrite) {
  // No blanks, arguments in another order, blocks without input lists and commas, comments.
  const auto program = ParseProgram(
      "program(1.3){func main<ios18>(tensor<fp16,[2]>x,state<tensor<fp16,[2]>>s){// comment\n"
      "write_state(input=s,data=x)[name=string(\"w\")];tensor<fp16,[2]>y=add(y=x,x=x);"
      "tensor<fp16,[2]>z=cond(pred=bool(true)){}->(x){}->(y);}->(z);}");
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(OperationAt(*program, 0).inputs()[0].name, "data");
  EXPECT_EQ(OperationAt(*program, 1).name(), "y");
  EXPECT_EQ(OperationAt(*program, 2).blocks().size(), 2U);
}

TEST(Parser, Literals) {
  EXPECT_EQ(LiteralOf("int32(-7)"), Literal::Int32(-7));
  EXPECT_EQ(LiteralOf("tensor<int32, []>(-7)"), Literal::Int32(-7));
  EXPECT_EQ(LiteralOf("string(\"a\\\"b\\x41\\n\")"), Literal::String("a\"bA\n"));
  EXPECT_EQ(LiteralOf("tensor<bool, [3]>([true, false, 1])"), Literal::Bools({1, 0, 1}));
  EXPECT_EQ(LiteralOf("fp32(1.5)"), Literal::Float(DataType::kFp32, 1.5));
  EXPECT_EQ(LiteralOf("fp32(-inf)").tensor.GetDouble(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(LiteralOf("tensor<int32, [0]>([])").tensor.size(), 0);
  EXPECT_EQ(LiteralOf("tensor<int32, [2, 0]>([[], []])").tensor.size(), 0);
  EXPECT_EQ(LiteralOf("tensor<int32, [0, 9223372036854775807]>([])").tensor.size(), 0);

  const Literal nested = LiteralOf("tensor<int32, [2, 2]>([[1, 2], [3, 4]])");
  EXPECT_EQ(nested.tensor.ToInts(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(LiteralOf("tensor<int32, [2, 2]>([1, 2, 3, 4])"), nested);  // a flat list is accepted too

  const Literal packed = LiteralOf("tensor<uint3, [5]>([7, 0, 1, 2, 3])");
  EXPECT_EQ(packed.tensor.ToInts(), (std::vector<int64_t>{7, 0, 1, 2, 3}));
  EXPECT_EQ(packed.tensor.bytes().size(), 2U);
  EXPECT_EQ(LiteralOf("tensor<int4, [2]>([-8, 7])").tensor.ToInts(), (std::vector<int64_t>{-8, 7}));

  const Literal list = LiteralOf("list<string, 2>([\"a\", \"b\"])");
  ASSERT_EQ(list.elements.size(), 2U);
  EXPECT_EQ(list.elements[1].AsString(), "b");
  const Literal open = LiteralOf("list<tensor<int32, [?]>, ?>([tensor<int32, [2]>([1, 2]), int32(3)])");
  EXPECT_EQ(open.elements[0], Literal::Int32s({1, 2}));
  const Literal tuple = LiteralOf("tuple<int32, list<bool, 1>>((4, [true]))");
  EXPECT_EQ(tuple.elements[0], Literal::Int32(4));
  const Literal dictionary = LiteralOf("dict<string, fp64>({{\"ane\", 0.5}, {\"cpu\", 0x1p-3}})");
  ASSERT_EQ(dictionary.entries.size(), 2U);
  EXPECT_EQ(dictionary.entries[1].second.tensor.GetDouble(0), 0.125);
}

TEST(Parser, BlobsComeFromTheLoader) {
  BlobReference asked;
  ParseOptions options;
  options.load_blob = [&asked](const BlobReference& blob, const TensorType& type) {
    asked = blob;
    return Tensor::Zeros(type);
  };
  const std::string body =
      "tensor<fp16, [2]> w = const()[val = tensor<fp16, [2]>(BLOBFILE(path = "
      "string(\"@model_path/weights/weight.bin\"), "
      "offset = uint64(192)))];";
  const auto program = ParseProgram(InMain(body), options);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(asked, (BlobReference{"@model_path/weights/weight.bin", 192}));
  EXPECT_EQ(OperationAt(*program, 0).FindAttribute("val")->blob, asked);

  options.load_blob = [](const BlobReference&, const TensorType&) -> Result<Tensor> {
    return Status(ErrorCode::kUnreadable, "the offset 192 is outside of weight.bin");
  };
  EXPECT_THAT(ParseProgram(InMain(body), options).status().message(),
              StartsWith("<text>:4:55: error: the offset 192 is outside of weight.bin\n"));
}

TEST(Parser, LenientAcceptsWhatHandsWrite) {
  const std::string text =
      "program(1.3) { func main<ios18>(tensor<fp16, [2,]> x,) { tensor<fp16, [2]> y = cast<ios17>(dtype = "
      "string(\"fp16\"), x = x,)[name = string(\"y\"),] } -> (y,) }";
  EXPECT_FALSE(ParseProgram(text).ok());
  ParseOptions options;
  options.lenient = true;
  const auto program = ParseProgram(text, options);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(OperationAt(*program, 0).name(), "y");
}

// ---- errors ----

struct FaultyText {
  std::string body;
  std::string place;  // line:column
  std::string message;
};

TEST(Parser, ErrorsNamePlaceAndFault) {
  const std::vector<FaultyText> cases = {
      {"tensor<fp16, [2]> y = add(x = x, y = z);", "4:38", "no value 'z' is defined before this"},
      {"tensor<fp16, [2]> y = add(x = x, y = y);", "4:38", "no value 'y' is defined before this"},
      {"tensor<fp16, [2]> x = relu(x = x);", "4:19", "'x' is already defined on line 3"},
      {"tensor<fp16, [2]> y = relu(x = x, x = x);", "4:35", "parameter 'x' is given twice"},
      {"tensor<fp16, [2]> y = relu(x = x)[a = int32(1), a = int32(2)];", "4:49", "attribute 'a' is given twice"},
      {"tensor<fp17, [2]> y = relu(x = x);", "4:8", "there is no data type 'fp17'"},
      {"matrix y = relu(x = x);", "4:1", "there is no type 'matrix'"},
      {"tensor<fp16, [2]> y = relu(x = x)", "5:5", "expected ';' after the operation, found '}'"},
      {"tensor<fp16, [2]> y relu(x = x);", "4:21", "expected '=' and the operation after its results, found 'relu'"},
      {"tensor<fp16, [2]> y = relu(x x);", "4:30", "expected '=' after the name of the parameter, found 'x'"},
      {"tensor<fp16, [2]> y = relu(x = x y = x);", "4:34", "expected ',' or ')', found 'y'"},
      {"tensor<fp16, 2> y = relu(x = x);", "4:14", "expected '[' before the sizes of the tensor, found '2'"},
      {"tensor<fp16, [-1]> y = relu(x = x);", "4:15", "a size is a whole number from 0 to 2^63 - 1, or ?"},
      {"tensor<fp16, [9223372036854775808]> y = relu(x = x);", "4:15",
       "a size is a whole number from 0 to 2^63 - 1, or ?"},
      {"tensor<fp16, [2]> y = relu<ios17>(x = x);", "4:28",
       "an operation cannot have another opset than its function (ios18)"},
      {"tensor<fp16, [2]> y = relu<ios99>(x = x);", "4:28",
       "opset 'ios99' is not known; known are ios15, ios16, ios17, ios18 and ios26"},
      {"tensor_buffer<fp16, shape=[2]> y = relu(x = x);", "4:1",
       "tensor_buffer types belong to the segmenter's analytics.mil, which is no program"},
      {"f(a = state<int32>(1));", "4:20", "a state has no value in a program's text"},
      {"f(a = state<list<int32, 1>>([1]));", "4:13", "a state holds a tensor"},
      {"f(a = int8(128));", "4:12", "'128' as int8: is out of range"},
      {"f(a = int8(1.5));", "4:12", "'1.5' as int8: is not an integer"},
      {"f(a = bool(maybe));", "4:12", "'maybe' as bool: is neither true nor false"},
      {"f(a = fp16(nan(0x7c00)));", "4:16", "'0x7c00' as fp16: is not the bit pattern of a NaN"},
      {"f(a = int32(\"1\"));", "4:13", "expected a value of type int32, found a string"},
      {"f(a = string(1));", "4:14", "expected a string, found '1'"},
      {"f(a = tensor<int32, [?]>([1]));", "4:26", "a value needs a type whose sizes are all known"},
      {"f(a = tensor<int32, [3]>([1, 2]));", "4:26", "2 elements stand here, but the type of this tensor says 3"},
      {"f(a = tensor<int32, [1]>([1, 2]));", "4:30", "the type of this tensor says 1 elements here"},
      {"f(a = tensor<int32, [2, 2]>([1, 2, 3]));", "4:29", "3 elements stand here, but the type of this tensor says 4"},
      {"f(a = tensor<int32, [4294967296, 4294967296, 4294967296]>([]));", "4:59",
       "the sizes of [4294967296, 4294967296, 4294967296] multiply beyond 64 bits"},
      {"f(a = list<int32, 3>([1]));", "4:22", "this list has 1 elements, but its type says 3"},
      {"f(a = tensor<fp32, [9]>(<9 elements>));", "4:25",
       "the elements were left out when this text was printed; print it without eliding them"},
      {"f(a = fp16(BLOBFILE(path = string(\"w\"), offset = uint64(64))));", "4:12",
       "this value lies in a weight file, and the text was given without one; open the whole .mlmodelc folder"},
      {"f(a = fp16(BLOBFILE(path = string(\"w\"), path = string(\"w\"))));", "4:41",
       "expected 'path' and 'offset' in BLOBFILE, found 'path'"},
      {"f(a = fp16(BLOBFILE(path = int32(1), offset = uint64(64))));", "4:28", "expected a scalar of type string"},
      {"f(a = string(\"no end));", "4:14", "this string has no closing quote"},
      {"f(a = string(\"\\q\"));", "4:15", "there is no escape '\\q'"},
      {"f(a = string(\"\\x4\"));", "4:15", "\\x takes two hexadecimal digits"},
      {"/* no end", "4:1", "this comment has no end"},
      {"f(a = $);", "4:7", "'$' has no place in MIL text"},
      {"f(a = );", "4:7", "expected the name of a value, or a literal, found ')'"},
      {"cond(pred = x) { } -> (t);", "4:24", "no value 't' is defined before this"},
      {"tensor<fp16, [2]> a = cond(pred = x) { tensor<fp16, [2]> t = relu(x = x); } -> (t); g(x = t);", "4:91",
       "no value 't' is defined before this"},
  };
  for (const FaultyText& test : cases) {
    const auto program = ParseProgram(InMain(test.body));
    ASSERT_FALSE(program.ok()) << test.body;
    EXPECT_EQ(program.status().code(), ErrorCode::kUnreadable);
    const std::string& message = program.status().message();
    EXPECT_THAT(message, StartsWith("<text>:" + test.place + ": error: " + test.message + "\n")) << test.body;
    // Third line: a caret under the column.
    const size_t caret_line = message.find('\n', message.find('\n') + 1) + 1;
    const auto column = static_cast<size_t>(std::stoi(test.place.substr(2)));
    const bool is_cut = message.find("\n...") != std::string::npos;
    if (!is_cut) {
      EXPECT_EQ(message.substr(caret_line), std::string(column - 1, ' ') + "^") << test.body;
    }
  }
}

TEST(Parser, ErrorsOutsideOfFunctions) {
  const auto message = [](const std::string& text) { return ParseProgram(text).status().message(); };
  EXPECT_EQ(message(""),
            "<text>:1:1: error: expected 'program' at the start of MIL text, found the end of the text\n\n^");
  EXPECT_EQ(message("func main"),
            "<text>:1:1: error: expected 'program' at the start of MIL text, found 'func'\nfunc main\n^");
  EXPECT_EQ(message("program(x)"),
            "<text>:1:9: error: expected the version of the program, found 'x'\nprogram(x)\n        ^");
  EXPECT_EQ(message("program(1.0){"),
            "<text>:1:14: error: expected 'func' or '}', found the end of the text\n"
            "program(1.0){\n             ^");
  EXPECT_THAT(message("program(1.0){} x"), StartsWith("<text>:1:16: error: expected the end of the text, found 'x'\n"));
  EXPECT_THAT(message("program(1.0){func f<ios18>(){}->();func f<ios18>(){}->();}"),
              StartsWith("<text>:1:41: error: there are two functions named 'f'\n"));
  EXPECT_THAT(message("program(1.0){func f<ios18>(){"),
              StartsWith("<text>:1:30: error: expected an operation or '}', found the end of the text\n"));
  EXPECT_THAT(message("program(1.0){func f<ios18>(){}"),
              StartsWith("<text>:1:31: error: expected '->' and the outputs after the operations, found the end"));
}

TEST(Parser, CoremltoolsPrintFormIsNamed) {
  const auto program = ParseProgram(
      "\nmain[CoreML8](%x: (1, 8, fp16)(Tensor),\n              %acc: (1, 8, fp16)(State)) {\n  block0() {\n");
  EXPECT_EQ(program.status().message(),
            "<text>:2:5: error: this is coremltools' print form, not compiler text; it lacks the weights and cannot be "
            "read: open the .mlpackage that it was printed from\nmain[CoreML8](%x: (1, 8, fp16)(Tensor),\n    ^");
}

// ---- hostile text ----

std::string Repeat(const std::string& text, size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Parser, DeepNestingIsAnError) {
  EXPECT_THAT(ParseProgram(InMain("f(a = " + Repeat("list<", 100000))).status().message(),
              HasSubstr("types nest deeper than 100 levels"));
  EXPECT_THAT(ParseProgram(InMain("f(a = tuple<int32>(" + Repeat("tuple<int32>(", 100000))).status().message(),
              HasSubstr("expected '(' before the elements of the tuple"));
  EXPECT_THAT(ParseProgram(InMain("f(a = " + Repeat("list<tuple<int32>, ?>([", 100000))).status().message(),
              HasSubstr("types nest deeper than 100 levels"));
  EXPECT_THAT(ParseProgram(InMain(Repeat("cond() { ", 10000))).status().message(),
              HasSubstr("blocks nest deeper than 100 levels"));
  EXPECT_THAT(ParseProgram(InMain("f(a = tensor<int32, [" + Repeat("1,", 1000000))).status().message(),
              HasSubstr("a tensor has at most 100 dimensions"));
}

TEST(Parser, AHundredNestedBlocksAreFine) {
  std::string text = "g(a = x);";
  for (int i = 0; i < 100; ++i) text = "cond() { " + text + " } -> ();";
  EXPECT_TRUE(ParseProgram(InMain(text)).ok());
}

TEST(Parser, AHugeShapeTakesNoMemory) {
  EXPECT_THAT(ParseProgram(InMain("f(a = tensor<fp32, [1000000000000]>([0x1p+0]));")).status().message(),
              HasSubstr("1 elements stand here, but the type of this tensor says 1000000000000"));
}

// Each text is some 10 MB; quadratic work on it would take hours. The bound is wide enough for sanitizer builds on a
// busy machine.
TEST(Parser, LargeTextTakesLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  const size_t mega = 1000000;
  std::string many_ops;
  std::string many_parameters;
  for (size_t i = 0; i < 200000; ++i) {
    many_ops += "tensor<fp16, [2]> v" + std::to_string(i) + " = add(x = x, y = x);";
    many_parameters += "p" + std::to_string(i) + " = x,";
  }
  EXPECT_TRUE(ParseProgram(InMain(many_ops)).ok());
  EXPECT_FALSE(ParseProgram(InMain("f(" + many_parameters + "$);")).ok());
  EXPECT_TRUE(ParseProgram(InMain("f(" + many_parameters + "last = x);")).ok());
  EXPECT_TRUE(ParseProgram(InMain("f(a = tensor<int32, [3000000]>([" + Repeat("1, ", 3 * mega - 1) + "1]));")).ok());
  EXPECT_FALSE(ParseProgram(InMain("f(a = string(\"" + Repeat("\\n", 5 * mega))).ok());
  EXPECT_FALSE(ParseProgram(InMain(Repeat("/*", 5 * mega))).ok());
  EXPECT_FALSE(ParseProgram(InMain(Repeat("(", 10 * mega))).ok());
  EXPECT_FALSE(ParseProgram(InMain("f(a = int32(" + Repeat("9", 10 * mega) + "));")).ok());
  EXPECT_FALSE(ParseProgram(std::string(10 * mega, '\n') + "x").ok());
  std::string functions = "program(1.3){";
  for (size_t i = 0; i < 200000; ++i) functions += "func f" + std::to_string(i) + "<ios18>(){}->();";
  EXPECT_TRUE(ParseProgram(functions + "}").ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

// ---- real files ----

TEST(Parser, CoremltoolsPrintFormFileIsNamed) {
  const auto path = kRealFiles / "cadamcat__llms-on-apple-neural-engine/s2_clip.mil";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs " << path;
  ParseOptions options;
  options.file_name = "s2_clip.mil";
  EXPECT_THAT(ParseProgram(ReadFile(path), options).status().message(),
              StartsWith("s2_clip.mil:2:5: error: this is coremltools' print form, not compiler text"));
}

// Apple's seven compiled files come back byte for byte (but for the newline that ends one of them).
TEST(Parser, CompiledFilesPrintAsTheyWere) {
  const auto files = FindFiles(kRealFiles, "model.mil");
  if (files.empty()) GTEST_SKIP() << "needs " << kRealFiles;
  EXPECT_EQ(files.size(), 7U);
  for (const auto& path : files) {
    std::string text = ReadFile(path);
    if (text.ends_with('\n')) text.pop_back();
    const auto program = ParseProgram(text, WithZeroWeights(path.string()));
    ASSERT_TRUE(program.ok()) << program.status().message();
    EXPECT_EQ(PrintProgram(*program), text);
  }
}

}  // namespace
}  // namespace milwright
