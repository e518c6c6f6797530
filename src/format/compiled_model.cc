#include "format/compiled_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "text/parser.h"

namespace milwright {
namespace {

using nlohmann::json;

// The string under `key`, or "" when there is none.
std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The array under `key`, or an empty one.
const json& List(const json& object, const char* key) {
  static const json kNone = json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

// Shapes stand as text that is JSON itself: "[1, 576]", "[[1, 1], [1, 64]]".
std::optional<std::vector<int64_t>> Sizes(const json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const json& size : list) {
    if (!size.is_number_integer()) return std::nullopt;
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

std::vector<std::vector<int64_t>> SizeLists(const json& schema, const char* key) {
  std::vector<std::vector<int64_t>> lists;
  const json outer = json::parse(Text(schema, key), nullptr, false);
  if (!outer.is_array()) return lists;
  for (const json& inner : outer) {
    if (auto sizes = Sizes(inner)) lists.push_back(*std::move(sizes));
  }
  return lists;
}

bool IsShape(const Shape& shape) {
  return std::ranges::all_of(shape, [](int64_t size) { return size >= 0; });
}

DataType ArrayType(const std::string& name) {
  constexpr std::pair<std::string_view, DataType> kNames[] = {{"Float16", DataType::kFp16},
                                                              {"Float32", DataType::kFp32},
                                                              {"Double", DataType::kFp64},
                                                              {"Int32", DataType::kInt32},
                                                              {"Int8", DataType::kInt8}};
  const auto* const found = std::ranges::find(kNames, name, [](const auto& pair) { return pair.first; });
  return found != std::end(kNames) ? found->second : DataType::kInvalid;
}

void Amend(const json& schema, FeatureDescription* feature) {
  feature->short_description = Text(schema, "shortDescription");
  feature->type.optional = Text(schema, "isOptional") == "1";
  const std::string kind = Text(schema, "type");
  if (kind != "MultiArray" && kind != "State") return;
  ArrayFeature& array = feature->type.array;
  if (const DataType dtype = ArrayType(Text(schema, "dataType")); dtype != DataType::kInvalid) array.dtype = dtype;
  const auto shape = Sizes(json::parse(Text(schema, "shape"), nullptr, false));
  if (shape && IsShape(*shape) && !shape->empty()) array.shape = *shape;
  for (Shape& enumerated : SizeLists(schema, "enumeratedShapes")) {
    if (IsShape(enumerated)) array.enumerated_shapes.push_back(std::move(enumerated));
  }
  if (!array.enumerated_shapes.empty()) return;
  for (const std::vector<int64_t>& range : SizeLists(schema, "shapeRange")) {
    if (range.size() == 2 && range[0] >= 0) array.shape_range.push_back({static_cast<uint64_t>(range[0]), range[1]});
  }
  if (array.shape_range.size() != array.shape.size()) array.shape_range.clear();
}

// Puts what `schemas` say over `features`, in the order of the schemas; features that they leave out follow.
void AmendAll(const json& schemas, std::vector<FeatureDescription>* features) {
  std::vector<FeatureDescription> amended;
  for (const json& schema : schemas) {
    if (!schema.is_object()) continue;
    const auto found = std::ranges::find(*features, Text(schema, "name"), &FeatureDescription::name);
    if (found == features->end()) continue;
    Amend(schema, &*found);
    amended.push_back(std::move(*found));
    features->erase(found);
  }
  std::ranges::move(*features, std::back_inserter(amended));
  *features = std::move(amended);
}

void AmendFunction(const json& object, FunctionDescription* function) {
  AmendAll(List(object, "inputSchema"), &function->inputs);
  AmendAll(List(object, "outputSchema"), &function->outputs);
  AmendAll(List(object, "stateSchema"), &function->states);
}

void AmendModel(const json& object, ModelSpec* model) {
  ModelDescription& description = model->description;
  description.metadata.short_description = Text(object, "shortDescription");
  description.metadata.author = Text(object, "author");
  description.metadata.license = Text(object, "license");
  description.metadata.version = Text(object, "version");
  if (const auto user = object.find("userDefinedMetadata"); user != object.end() && user->is_object()) {
    for (const auto& [key, value] : user->items()) {
      if (value.is_string()) description.metadata.user_defined[key] = value.get<std::string>();
    }
  }
  if (const auto version = object.find("specificationVersion");
      version != object.end() && version->is_number_integer()) {
    model->specification_version = version->get<int32_t>();
  }
  model->is_updatable = Text(object, "isUpdatable") == "1";
  for (const json& function : List(object, "functions")) {
    if (!function.is_object()) continue;
    if (FunctionDescription* found = description.Find(Text(function, "name"))) AmendFunction(function, found);
  }
  if (const std::string name = Text(object, "defaultFunctionName");
      description.multi_function && description.Find(name) != nullptr) {
    description.default_function = name;
  }
  if (description.functions.size() == 1) AmendFunction(object, &description.functions.front());
}

}  // namespace

Result<ModelSpec> ReadCompiledModel(std::string_view program_text, const std::string& file_name,
                                    const std::string& metadata_text, const BlobLoader& load_blob) {
  ParseOptions options;
  options.file_name = file_name;
  options.load_blob = load_blob;
  options.lenient = true;  // model.mil is also written by tools other than Apple's
  ModelSpec model;
  MW_ASSIGN_OR_RETURN(model.program, ParseProgram(program_text, options));
  Opset newest = Opset::kIOS15;
  for (const auto& function : model.program.functions()) {
    model.description.functions.push_back(DescribeFunction(*function));
    newest = std::max(newest, function->opset);
  }
  model.description.multi_function =
      model.program.functions().size() != 1 || model.program.functions().front()->name != "main";
  model.specification_version = static_cast<int32_t>(newest);
  // A list of one object per model; it only describes, so what is not understood in it is left out.
  const json metadata = json::parse(metadata_text, nullptr, false);
  if (metadata.is_array() && !metadata.empty() && metadata.front().is_object()) AmendModel(metadata.front(), &model);
  return model;
}

}  // namespace milwright
