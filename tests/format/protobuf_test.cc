// The model file: every kind of value and type in and out, unknown fields, descriptions; and what is wrong with a
// program, with its place.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <set>

#include "format/protobuf_reader.h"
#include "format/protobuf_writer.h"
#include "protobuf_text.h"
#include "support/test_util.h"

namespace milwright {
namespace {

namespace pb = CoreML::Specification;
using testing::ConstText;
using testing::FloatVector;
using testing::FunctionText;
using ::testing::HasSubstr;
using testing::InputText;
using testing::ModelFromText;
using testing::ModelText;
using testing::NamedText;
using testing::ReluText;
using testing::TensorTypeText;

Result<Tensor> ZeroBlob(const BlobReference& blob, const TensorType& type) {
  if (blob.offset != 64) return Status(ErrorCode::kUnreadable, "no such blob");
  return Tensor::Zeros(type);
}

Result<ModelSpec> Read(const pb::Model& proto) {
  const std::string bytes = proto.SerializeAsString();
  return ReadModelProtobuf(std::as_bytes(std::span(bytes)), "m.mlmodel", ZeroBlob);
}
Result<ModelSpec> Read(const std::string& text) { return Read(ModelFromText(text)); }

pb::Model Written(const ModelSpec& model) {
  const auto bytes = WriteModelProtobuf(model, PackageBlobPolicy(10), [](const Tensor&) -> Result<BlobReference> {
    return BlobReference{"@model_path/weights/weight.bin", 64};
  });
  EXPECT_OK(bytes);
  pb::Model proto;
  EXPECT_TRUE(proto.ParseFromString(*bytes));
  return proto;
}

// The content of the const op 'c' of a program made of it alone, read, written, and read again.
Result<Literal> ConstThereAndBack(const std::string& type, const std::string& value) {
  MW_ASSIGN_OR_RETURN(const ModelSpec model, Read(ModelText(ConstText("c", type, value), "c")));
  const Literal first = *model.program.functions()[0]->body().operations().front()->FindAttribute("val");
  const pb::Model proto = Written(model);
  MW_ASSIGN_OR_RETURN(const ModelSpec again, Read(proto));
  std::string why;
  EXPECT_TRUE(ModelsEqual(model, again, &why)) << why;
  EXPECT_EQ(proto.SerializeAsString(), Written(again).SerializeAsString());
  return first;
}

TEST(ProtobufValues, EveryTensorTypeComesBack) {
  struct Case {
    std::string dtype;
    std::string field;
    std::vector<double> expected;
  };
  const Case cases[] = {
      {"FLOAT32", "floats { values: [1.5, -2] }", {1.5, -2}},
      {"FLOAT64", "doubles { values: [1.5, -2e300] }", {1.5, -2e300}},
      {"FLOAT16", R"(bytes { values: "\x00\x3c\x00\xc0" })", {1, -2}},
      {"BFLOAT16", R"(bytes { values: "\x80\x3f\x00\xc0" })", {1, -2}},
      {"FLOAT8E4M3FN", R"(bytes { values: "\x38\xc0" })", {1, -2}},
      {"FLOAT8E5M2", R"(bytes { values: "\x3c\xc0" })", {1, -2}},
      {"INT8", R"(bytes { values: "\x01\xfe" })", {1, -2}},
      {"INT8", "ints { values: [1, -2] }", {1, -2}},
      {"INT16", "ints { values: [1, -32768] }", {1, -32768}},
      {"INT32", "ints { values: [1, -2147483648] }", {1, -2147483648.0}},
      {"INT64", "longInts { values: [1, -4611686018427387904] }", {1, -4611686018427387904.0}},
      {"UINT8", R"(bytes { values: "\x01\xfe" })", {1, 254}},
      {"UINT16", "ints { values: [1, 65535] }", {1, 65535}},
      {"UINT32", R"(bytes { values: "\x01\x00\x00\x00\xff\xff\xff\xff" })", {1, 4294967295.0}},
      {"UINT64", "longInts { values: [1, 2] }", {1, 2}},
      {"INT4", R"(bytes { values: "\x8f" })", {-1, -8}},
      {"UINT4", R"(bytes { values: "\x8f" })", {15, 8}},
      {"UINT1", R"(bytes { values: "\x02" })", {0, 1}},
      {"UINT2", R"(bytes { values: "\x0b" })", {3, 2}},
      {"UINT3", R"(bytes { values: "\x2f" })", {7, 5}},
      {"UINT6", R"(bytes { values: "\x7f\x00" })", {63, 1}},
      {"BOOL", "bools { values: [true, false] }", {1, 0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.dtype + " " + c.field);
    const auto literal =
        ConstThereAndBack(TensorTypeText(c.dtype, {2}), "immediateValue { tensor { " + c.field + " } }");
    ASSERT_OK(literal);
    EXPECT_EQ((std::vector<double>{literal->tensor.GetDouble(0), literal->tensor.GetDouble(1)}), c.expected);
  }
  const auto text =
      ConstThereAndBack(TensorTypeText("STRING", {2}), "immediateValue { tensor { strings { values: ['a', ''] } } }");
  ASSERT_OK(text);
  EXPECT_EQ(text->tensor.strings(), (std::vector<std::string>{"a", ""}));
  for (const char* empty : {"immediateValue { tensor { floats {} } }", "immediateValue { tensor {} }"}) {
    const auto none = ConstThereAndBack(TensorTypeText("FLOAT32", {0, 3}), empty);
    ASSERT_OK(none);
    EXPECT_EQ(none->tensor.size(), 0);
  }
}

TEST(ProtobufValues, ListsTuplesDictionariesAndBlobsComeBack) {
  const std::string i32 = TensorTypeText("INT32", {});
  const std::string seven = "type { " + i32 + " } immediateValue { tensor { ints { values: 7 } } }";
  const auto list = ConstThereAndBack("listType { type { " + i32 + " } length { constant { size: 2 } } }",
                                      "immediateValue { list { values { " + seven + " } values { " + seven + " } } }");
  ASSERT_OK(list);
  EXPECT_EQ(list->type, Type::List(Type::Scalar(DataType::kInt32), 2));
  EXPECT_EQ(list->elements[1].tensor.GetInt(0), 7);
  const auto tuple =
      ConstThereAndBack("tupleType { types { " + i32 + " } types { " + i32 + " } }",
                        "immediateValue { tuple { values { " + seven + " } values { " + seven + " } } }");
  ASSERT_OK(tuple);
  EXPECT_EQ(tuple->elements.size(), 2U);
  const auto dictionary =
      ConstThereAndBack("dictionaryType { keyType { " + i32 + " } valueType { " + i32 + " } }",
                        "immediateValue { dictionary { values { key { " + seven + " } value { " + seven + " } } } }");
  ASSERT_OK(dictionary);
  EXPECT_EQ(dictionary->entries.size(), 1U);
  const auto blob = ConstThereAndBack(TensorTypeText("FLOAT16", {3}),
                                      "blobFileValue { fileName: '@model_path/weights/weight.bin' offset: 64 }");
  ASSERT_OK(blob);
  ASSERT_TRUE(blob->blob.has_value());
  EXPECT_EQ(blob->blob->offset, 64U);
}

TEST(ProtobufValues, ContentMustMatchTheType) {
  const std::string two = TensorTypeText("FLOAT32", {2});
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {two, "immediateValue { tensor { floats { values: [1] } } }", "holds 1 floats"},
      {two, "immediateValue { tensor { floats { values: [1, 2, 3] } } }", "holds 3 floats"},
      {two, "immediateValue { tensor { ints { values: [1, 2] } } }", "holds 2 ints"},
      {two, "immediateValue { tensor { bytes { values: 'abc' } } }", "holds 3 bytes"},
      {two, "immediateValue { tensor {} }", "holds 0 values"},
      {two, "immediateValue {}", "without content"},
      {two, "", "without content"},
      {two, "immediateValue { list {} }", "another kind than its type"},
      {TensorTypeText("BOOL", {2}), "immediateValue { tensor { bytes { values: 'ab' } } }", "holds 2 bytes"},
      {TensorTypeText("INT8", {1}), "immediateValue { tensor { ints { values: 128 } } }", "does not fit"},
      {TensorTypeText("UINT16", {1}), "immediateValue { tensor { ints { values: -1 } } }", "does not fit"},
      {TensorTypeText("FLOAT32", {-1}), "immediateValue { tensor { floats { values: 1 } } }", "a value of type"},
      {TensorTypeText("FLOAT32", {4294967296, 4294967296}), "immediateValue { tensor { floats {} } }",
       "beyond 64 bits"},
      {TensorTypeText("FLOAT32", {int64_t{1} << 62}), "immediateValue { tensor { floats {} } }", "holds 0 floats"},
      {"tensorType { dataType: UNUSED_TYPE }", "", "unknown data type 0"},
      {"tensorType { dataType: FLOAT32 rank: 1 }", "", "rank 1 with 0 dimensions"},
      {"tensorType { dataType: FLOAT32 rank: 1 dimensions { constant { size: 9223372036854775808 } } }", "",
       "a dimension of size 9223372036854775808"},
      {"tensorType { dataType: FLOAT32 rank: 1 dimensions { unknown { variadic: true } } }", "", "variadic"},
      {"tensorType { dataType: FLOAT32 rank: 1 dimensions {} }", "", "neither constant nor unknown"},
      {"stateType { wrappedType { listType {} } }", "", "wraps no tensor type"},
      {"", "", "a type of no kind"},
      {"listType { type { " + two + " } length { constant { size: 1 } } }", "immediateValue { list {} }",
       "holds 0 elements"},
      {"listType { type { " + two + " } }",
       "immediateValue { list { values { type { " + TensorTypeText("BOOL", {}) +
           " } immediateValue { tensor { bools { values: true } } } } } }",
       "element 0"},
      {two, "blobFileValue { fileName: 'x' offset: 63 }", "no such blob"},
      {"listType { type { " + two + " } }", "blobFileValue { fileName: 'x' offset: 64 }", "a blob of type list"},
  };
  for (const auto& [type, value, message] : cases) {
    SCOPED_TRACE(message);
    const auto model = Read(ModelText(ConstText("c", type, value), "c"));
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), HasSubstr("m.mlmodel: main/op 0"));
    EXPECT_THAT(model.status().message(), HasSubstr(message));
  }
}

TEST(ProtobufProgram, FaultsHaveAPlace) {
  const std::string relu = ReluText("y", "x");
  // A conditional whose first block has `block` as its content.
  const auto nested = [](const std::string& block) {
    return ModelText("operations { type: 'cond' " + InputText("pred", {"x"}) + " blocks { " + block +
                     " } blocks { outputs: 'x' } " + NamedText("outputs", "y", FloatVector(2)) +
                     testing::NameAttribute("y") + "}");
  };
  const std::pair<std::string, std::string> cases[] = {
      {ModelText(ReluText("y", "nowhere")), "main/op 0 'y' (relu): parameter 'x': the value 'nowhere' is not defined"},
      {ModelText(ReluText("a", "y") + ReluText("y", "a")), "the value 'y' is used before it is defined"},
      {ModelText(ReluText("y", "y")), "the value 'y' is used before it is defined"},
      {ModelText(relu + relu), "main/op 1 'y' (relu): the name 'y' is defined twice"},
      {ModelText(ReluText("x", "x")), "the name 'x' is defined twice"},
      {ModelText(ReluText("", "x")), "a value without a name"},
      {ModelText(relu, "z"), "main: block output: the value 'z' is not defined"},
      {nested(ReluText("inner", "none") + "outputs: 'inner' "), "main/'y'/block0/op 0 'inner' (relu): parameter 'x'"},
      {nested("outputs: 'none' "), "main/op 0 'y' (cond)/block0: block output"},
      {nested(ReluText("inner", "y") + "outputs: 'inner' "), "used before it is defined, or outside its block"},
      {ModelText("operations { type: 'relu' " + InputText("x", {"x"}) + InputText("x", {"x"}) +
                 NamedText("outputs", "y", FloatVector(2)) + "}"),
       "main/op 0 'relu' (relu) giving 'y': the parameter 'x' is given twice"},
      {ModelText("operations { type: 'relu' inputs { key: 'x' value { arguments {} } } }"),
       "neither a name nor a value"},
      {ModelText("operations { type: 'relu' " + testing::NameAttribute("a") + testing::NameAttribute("b") + "}"),
       "attribute 'name' is given twice"},
      {"mlProgram { version: 1 }", "the program has no function"},
      {"mlProgram { version: 1 " + FunctionText("main", relu) + FunctionText("main", relu) + "}",
       "the function 'main' is defined twice"},
      {"mlProgram { version: 1 " + FunctionText("main", relu, "y", "CoreML4") + "}", "unknown opset 'CoreML4'"},
      {"mlProgram { version: 1 " + FunctionText("main", relu, "y", "iOS17") + "}", "unknown opset 'iOS17'"},
      {"mlProgram { functions { key: 'f' value { opset: 'CoreML7' } } }", "f: 0 block specializations"},
      {"mlProgram { functions { key: 'f' value { opset: 'CoreML7' block_specializations { key: 'CoreML8' } } } }",
       "f: the body is for opset 'CoreML8', but the function's opset is 'CoreML7'"},
      {"specificationVersion: 9", "there is no ML Program in it"},
      {"mlProgram { " + FunctionText("main", relu) +
           " } description { functions { name: 'main' } functions { name: 'main' } }",
       "'main' is described twice"},
      {"mlProgram { " + FunctionText("main", relu) +
           " } description { functions { name: 'main' } input { name: 'x' } }",
       "in the functions only"},
      {"mlProgram { " + FunctionText("main", relu) +
           " } description { input { name: 'x' type { multiArrayType { shape: -2 } } } }",
       "description of input 'x': a shape with a negative size"},
      {"mlProgram { " + FunctionText("main", relu) +
           " } description { metadata { userDefined { key: 'k' } userDefined { key: 'k' } } }",
       "the key 'k' is given twice"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(message);
    const auto model = Read(text);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), HasSubstr(message));
    EXPECT_EQ(model.status().message().find('\n'), std::string::npos);
  }
}

TEST(ProtobufProgram, ScopesOfSiblingBlocksAreApart) {
  const std::string block = "blocks { " + ReluText("inner", "x") + " outputs: 'inner' }";
  const auto model = Read(ModelText("operations { type: 'cond' " + InputText("pred", {"x"}) + block + block +
                                    NamedText("outputs", "y", FloatVector(2)) + "}"));
  EXPECT_OK(model);
}

TEST(ProtobufProgram, FunctionsKeepTheOrderOfTheFile) {
  const std::string relu = ReluText("y", "x");
  const auto model =
      Read("mlProgram { version: 1 " + FunctionText("prefill", relu) + FunctionText("decode", relu) + "}");
  ASSERT_OK(model);
  const auto again = Read(Written(*model));
  ASSERT_OK(again);
  EXPECT_EQ(again->program.functions()[0]->name, "prefill");
  EXPECT_EQ(again->program.functions()[1]->name, "decode");
}

TEST(ProtobufDescription, EveryFeatureComesBack) {
  const auto model = Read(ModelText(ReluText("y", "x")) + R"(
    isUpdatable: true
    description {
      input { name: "a" shortDescription: "text" type { isOptional: true multiArrayType {
        shape: [1, 2] dataType: FLOAT16 enumeratedShapes { shapes { shape: [1, 2] } shapes { shape: [1, 4] } }
        floatDefaultValue: 0.5 } } }
      input { name: "b" type { multiArrayType { shape: 3 dataType: INT32
        shapeRange { sizeRanges { lowerBound: 1 upperBound: -1 } } intDefaultValue: 3 } } }
      input { name: "c" type { multiArrayType { dataType: DOUBLE doubleDefaultValue: 2.5 } } }
      input { name: "d" type { multiArrayType { dataType: INT8 } } }
      input { name: "e" type { imageType { width: 4 height: 5 colorSpace: RGB
        enumeratedSizes { sizes { width: 4 height: 5 } } } } }
      input { name: "f" type { imageType { width: 4 height: 5 colorSpace: GRAYSCALE_FLOAT16
        imageSizeRange { widthRange { lowerBound: 1 upperBound: 9 } heightRange { upperBound: -1 } } } } }
      input { name: "g" type { int64Type {} } }
      input { name: "h" type { doubleType {} } }
      input { name: "i" type { stringType {} } }
      input { name: "j" type { dictionaryType { stringKeyType {} } } }
      input { name: "k" type { dictionaryType { int64KeyType {} } } }
      input { name: "l" type { sequenceType { stringType {} sizeRange { lowerBound: 2 upperBound: 7 } } } }
      input { name: "m" type { sequenceType { int64Type {} } } }
      output { name: "y" }
      state { name: "s" type { stateType { arrayType { shape: [2, 2] dataType: FLOAT16 } } } }
      trainingInput { name: "t" type { int64Type {} } }
      predictedFeatureName: "y" predictedProbabilitiesName: "p"
      metadata { shortDescription: "sd" versionString: "1" author: "au" license: "li"
        userDefined { key: "k1" value: "v1" } userDefined { key: "k2" value: "v2" } }
    })");
  ASSERT_OK(model);
  const FunctionDescription& main = model->description.functions[0];
  EXPECT_EQ(main.inputs.size(), 13U);
  EXPECT_EQ(main.inputs[0].type.array.enumerated_shapes[1], (Shape{1, 4}));
  EXPECT_EQ(main.inputs[1].type.array.shape_range[0].upper, -1);
  EXPECT_EQ(main.inputs[2].type.array.default_value, 2.5);
  EXPECT_EQ(main.states[0].type.array.shape, (Shape{2, 2}));
  EXPECT_EQ(model->description.metadata.user_defined.size(), 2U);
  const pb::Model proto = Written(*model);
  const auto again = Read(proto);
  ASSERT_OK(again);
  std::string why;
  EXPECT_TRUE(ModelsEqual(*model, *again, &why)) << why;
  EXPECT_EQ(proto.description().input(11).type().sequencetype().sizerange().upperbound(), 7);
  EXPECT_EQ(proto.description().functions_size(), 0);
}

// Adds an unknown field to `message` and all messages below it of the kinds in `kinds`.
void AddUnknownFields(google::protobuf::Message* message, const std::set<std::string>& kinds, int* added) {
  const auto* reflection = message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->type() != google::protobuf::FieldDescriptor::TYPE_MESSAGE) continue;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
        AddUnknownFields(reflection->MutableRepeatedMessage(message, field, i), kinds, added);
      }
    } else {
      AddUnknownFields(reflection->MutableMessage(message, field), kinds, added);
    }
  }
  if (!kinds.contains(message->GetDescriptor()->name())) return;
  reflection->MutableUnknownFields(message)->AddLengthDelimited(7777, "unknown " + std::to_string((*added)++));
}

TEST(ProtobufUnknownFields, SurviveReadingAndWriting) {
  pb::Model proto = ModelFromText(ModelText(ReluText("y", "x")) + R"(
    description { input { name: "x" type { multiArrayType { shape: 2 dataType: FLOAT32 } } }
                  state { name: "s" type { stateType { arrayType { dataType: FLOAT16 } } } }
                  output { name: "y" type { imageType { width: 2 } } } metadata { author: "me" } })");
  int added = 0;
  AddUnknownFields(&proto,
                   {"Model", "ModelDescription", "FeatureDescription", "FeatureType", "Metadata", "Program", "Function",
                    "Block", "Operation", "ArrayFeatureType", "StateFeatureType", "ImageFeatureType"},
                   &added);
  EXPECT_EQ(added, 1 + 1 + 3 + 3 + 1 + 4 + 4);
  const auto model = Read(proto);
  ASSERT_OK(model);
  const pb::Model written = Written(*model);
  EXPECT_EQ(written.ShortDebugString(), proto.ShortDebugString());
  EXPECT_TRUE(ModelsEqual(*model, *Read(written)));
}

TEST(ProtobufUnknownFields, ThatWouldBeLostAreRefused) {
  for (const std::string kind : {"ValueType", "TensorType", "Dimension", "ConstantDimension", "Value", "ImmediateValue",
                                 "TensorValue", "RepeatedStrings", "NamedValueType", "AttributesEntry", "InputsEntry",
                                 "Argument", "Binding", "BlockEntry", "FunctionsEntry"}) {
    pb::Model proto = ModelFromText(ModelText(ReluText("y", "x")));
    int added = 0;
    AddUnknownFields(&proto, {kind}, &added);
    ASSERT_GT(added, 0) << kind;
    const auto model = Read(proto);
    EXPECT_EQ(model.status().code(), ErrorCode::kInvalidProgram) << kind;
    EXPECT_THAT(model.status().message(), ::testing::HasSubstr("the field 7777 of " + kind + " is not known"));
  }
}

TEST(ProtobufWriter, NamesMustBeIdentifiers) {
  for (const std::string name : {"", "1a", "a-b", "a b", "\xC3\xA9"}) {
    auto model = Read(ModelText(ReluText("y", "x")));
    ASSERT_OK(model);
    model->program.functions()[0]->body().operations().front()->output()->name = name;
    const auto bytes = WriteModelProtobuf(*model, PackageBlobPolicy(10), nullptr);
    EXPECT_EQ(bytes.status().code(), ErrorCode::kInvalidProgram) << name;
  }
}

}  // namespace
}  // namespace milwright
