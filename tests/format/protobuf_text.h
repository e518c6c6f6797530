// Models written in protobuf's text format, for tests of what the reader makes of them.
#ifndef MILWRIGHT_TESTS_FORMAT_PROTOBUF_TEXT_H_
#define MILWRIGHT_TESTS_FORMAT_PROTOBUF_TEXT_H_

#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "model.pb.h"

namespace milwright::testing {

/// A tensor type: FloatType("FLOAT32", {2, -1}); -1 is an unknown size.
inline std::string TensorTypeText(std::string_view dtype, const std::vector<int64_t>& shape) {
  std::string text = fmt::format("tensorType {{ dataType: {} rank: {}", dtype, shape.size());
  for (const int64_t size : shape) {
    text += size < 0 ? " dimensions { unknown {} }" : fmt::format(" dimensions {{ constant {{ size: {} }} }}", size);
  }
  return text + " }";
}

/// A named value of a type, as function input or op output.
inline std::string NamedText(std::string_view field, std::string_view name, std::string_view type) {
  return fmt::format("{} {{ name: '{}' type {{ {} }} }}\n", field, name, type);
}

inline std::string FloatVector(int64_t size) { return TensorTypeText("FLOAT32", {size}); }

/// An input of an op, bound to values by name.
inline std::string InputText(std::string_view parameter, const std::vector<std::string>& names) {
  std::string text = fmt::format("inputs {{ key: '{}' value {{", parameter);
  for (const std::string& name : names) text += fmt::format(" arguments {{ name: '{}' }}", name);
  return text + " } }\n";
}

inline std::string NameAttribute(std::string_view name) {
  return fmt::format(
      "attributes {{ key: 'name' value {{ type {{ {} }} immediateValue {{ tensor {{ strings {{ values: '{}' }} }} }} "
      "}} }}\n",
      TensorTypeText("STRING", {}), name);
}

/// A const op; `value` is the content of a Value after its type, e.g. "immediateValue { tensor { ... } }".
inline std::string ConstText(std::string_view name, std::string_view type, std::string_view value) {
  return fmt::format("operations {{ type: 'const' {} {} attributes {{ key: 'val' value {{ type {{ {} }} {} }} }} }}\n",
                     NamedText("outputs", name, type), NameAttribute(name), type, value);
}

/// relu of one value.
inline std::string ReluText(std::string_view name, std::string_view input) {
  return fmt::format("operations {{ type: 'relu' {} {} {} }}\n", InputText("x", {std::string(input)}),
                     NamedText("outputs", name, FloatVector(2)), NameAttribute(name));
}

inline std::string FunctionText(std::string_view name, std::string_view operations, std::string_view output = "y",
                                std::string_view opset = "CoreML7") {
  return fmt::format(
      "functions {{ key: '{}' value {{ {} opset: '{}' block_specializations {{ key: '{}' value {{\n{} outputs: '{}' }} "
      "}} }} }}\n",
      name, NamedText("inputs", "x", FloatVector(2)), opset, opset, operations, output);
}

/// A model of one function `main` with input x: fp32[2] and output `output`.
inline std::string ModelText(std::string_view operations, std::string_view output = "y") {
  return fmt::format("specificationVersion: 8 mlProgram {{ version: 1 {} }}", FunctionText("main", operations, output));
}

inline CoreML::Specification::Model ModelFromText(const std::string& text) {
  CoreML::Specification::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_FORMAT_PROTOBUF_TEXT_H_
