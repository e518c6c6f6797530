#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/state_analysis.h"
#include "analysis/weight_report.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "format/package.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string FeatureShape(const FeatureDescription* feature, const Value& value) {
  std::string text = TypeToString(value.type.tensor);
  if (feature == nullptr) return text;
  const ArrayFeature& array = feature->type.array;
  if (!array.enumerated_shapes.empty()) {
    text += ", one of";
    for (const Shape& shape : array.enumerated_shapes) text += " " + ShapeToString(shape);
  }
  if (!array.shape_range.empty()) {
    text += ", sizes";
    for (const auto& range : array.shape_range) {
      text += range.upper == static_cast<int64_t>(range.lower)
                  ? fmt::format(" {}", range.lower)
                  : fmt::format(" {}..{}", range.lower, range.upper < 0 ? "any" : std::to_string(range.upper));
    }
  }
  if (feature->type.optional) text += ", optional";
  return text;
}

const FeatureDescription* FindFeature(const std::vector<FeatureDescription>& features, const std::string& name) {
  for (const FeatureDescription& feature : features) {
    if (feature.name == name) return &feature;
  }
  return nullptr;
}

std::map<std::string, int64_t> Histogram(const Function& function) {
  std::map<std::string, int64_t> counts;
  ForEachOperation(function.body(), [&counts](const Operation& op) { ++counts[op.type()]; });
  return counts;
}

Json FeatureJson(const Value& value, const FeatureDescription* feature) {
  Json json = {{"name", value.name}, {"dtype", DataTypeName(value.type.dtype())}, {"shape", value.type.shape()}};
  if (feature != nullptr && !feature->type.array.enumerated_shapes.empty())
    json["enumerated_shapes"] = feature->type.array.enumerated_shapes;
  if (feature != nullptr && !feature->type.array.shape_range.empty()) {
    for (const auto& range : feature->type.array.shape_range) json["shape_range"].push_back({range.lower, range.upper});
  }
  if (feature != nullptr && feature->type.optional) json["optional"] = true;
  return json;
}

int64_t StateBytes(const StateFacts& state) {
  const auto bytes = ByteSize(state.state->type.tensor);
  return bytes.ok() ? *bytes : 0;
}

Json FunctionJson(const ModelSpec& model, const Function& function) {
  const FunctionDescription* described = model.description.Find(function.name);
  const FunctionStates states = AnalyzeStates(function);
  Json json = {{"name", function.name}, {"opset", OpsetName(function.opset)}};
  json["inputs"] = Json::array();
  json["outputs"] = Json::array();
  json["states"] = Json::array();
  json["cache_pairs"] = Json::array();
  for (const Value* input : function.TensorInputs()) {
    json["inputs"].push_back(
        FeatureJson(*input, described != nullptr ? FindFeature(described->inputs, input->name) : nullptr));
  }
  for (const Value* output : function.body().outputs()) {
    json["outputs"].push_back(
        FeatureJson(*output, described != nullptr ? FindFeature(described->outputs, output->name) : nullptr));
  }
  for (const StateFacts& state : states.states) {
    Json entry = FeatureJson(*state.state, nullptr);
    entry["bytes"] = StateBytes(state);
    entry["role"] = StateRoleName(state.role);
    entry["update"] = UpdateFormName(state.form);
    if (state.query_length.has_value()) entry["rows_per_step"] = *state.query_length;
    entry["reads"] = state.reads.size();
    entry["writes"] = state.writes.size();
    json["states"].push_back(std::move(entry));
  }
  for (const CachePair& pair : states.cache_pairs) {
    json["cache_pairs"].push_back({{"input", pair.input->name},
                                   {"output", pair.output->name},
                                   {"output_is", pair.whole ? "whole cache" : "new rows"},
                                   {"role", StateRoleName(pair.role)},
                                   {"update", UpdateFormName(pair.form)}});
  }
  json["operations"] = Histogram(function);
  return json;
}

int PrintJson(const ModelSpec& model, const PackageFiles& files) {
  Json json = {{"path", files.path},
               {"specification_version", model.specification_version},
               {"model_bytes", files.model_bytes},
               {"weight_file_bytes", files.weight_bytes},
               {"default_function", model.DefaultFunction() != nullptr ? model.DefaultFunction()->name : ""}};
  json["metadata"] = Json::object();
  if (!model.description.metadata.short_description.empty())
    json["metadata"]["description"] = model.description.metadata.short_description;
  if (!model.description.metadata.version.empty()) json["metadata"]["version"] = model.description.metadata.version;
  if (!model.description.metadata.author.empty()) json["metadata"]["author"] = model.description.metadata.author;
  for (const auto& [key, value] : model.description.metadata.user_defined) json["metadata"][key] = value;
  for (const auto& function : model.program.functions()) json["functions"].push_back(FunctionJson(model, *function));
  json["weights"] = Json::array();
  for (const WeightTotal& total : ReportWeights(model.program)) {
    json["weights"].push_back({{"format", total.format.name},
                               {"block_size", total.format.block_size},
                               {"count", total.count},
                               {"elements", total.elements},
                               {"stored_bytes", total.stored_bytes},
                               {"dense_bytes", total.dense_bytes}});
  }
  // Names in a package need not be UTF-8; JSON must be.
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return kFine;
}

void PrintFunctionInfo(const ModelSpec& model, const Function& function) {
  const FunctionDescription* described = model.description.Find(function.name);
  const bool is_default = model.program.functions().size() > 1 && model.DefaultFunction() == &function;
  std::cout << fmt::format("\nfunction {} {}{}\n", Styled(function.name, Style::kBold), OpsetName(function.opset),
                           is_default ? " (default)" : "");
  std::vector<std::vector<std::string>> rows;
  for (const Value* input : function.TensorInputs()) {
    rows.push_back(
        {"input", input->name,
         FeatureShape(described != nullptr ? FindFeature(described->inputs, input->name) : nullptr, *input)});
  }
  for (const Value* output : function.body().outputs()) {
    rows.push_back(
        {"output", output->name,
         FeatureShape(described != nullptr ? FindFeature(described->outputs, output->name) : nullptr, *output)});
  }
  const FunctionStates states = AnalyzeStates(function);
  for (const StateFacts& state : states.states) {
    rows.push_back(
        {"state", state.state->name,
         fmt::format("{}, {}, role {}, update {}{}, {} reads, {} writes", TypeToString(state.state->type.tensor),
                     Bytes(StateBytes(state)), StateRoleName(state.role), UpdateFormName(state.form),
                     state.query_length.has_value() ? fmt::format(" of {} rows", *state.query_length) : "",
                     state.reads.size(), state.writes.size())});
  }
  for (const CachePair& pair : states.cache_pairs) {
    rows.push_back(
        {"cache", pair.input->name,
         fmt::format("kept by the host: {} {}, role {}, update {}", pair.whole ? "copied back from" : "new rows in",
                     pair.output->name, StateRoleName(pair.role), UpdateFormName(pair.form))});
  }
  std::cout << Table(rows);
  std::vector<std::pair<std::string, int64_t>> counts;
  int64_t total = 0;
  for (const auto& [type, count] : Histogram(function)) {
    total += count;
    counts.emplace_back(type, count);
  }
  std::ranges::stable_sort(counts, std::greater<>(), &std::pair<std::string, int64_t>::second);
  std::string histogram;
  for (const auto& [type, count] : counts)
    histogram += fmt::format("{}{} {}", histogram.empty() ? "" : ", ", type, count);
  std::cout << fmt::format("  {} operations: {}\n", total, histogram);
}

}  // namespace

int Info(const InfoArguments& arguments) {
  const auto files = LocatePackage(arguments.path);
  if (!files.ok()) return Fail(files.status());
  const auto model = OpenModel(arguments.path);
  if (!model.ok()) return Fail(model.status());
  if (arguments.json) return PrintJson(*model, *files);
  std::cout << fmt::format("{}: ML Program, specification version {}, model {}, weights {}\n", files->path,
                           model->specification_version, Bytes(static_cast<int64_t>(files->model_bytes)),
                           files->weight_file.empty() ? "none" : Bytes(static_cast<int64_t>(files->weight_bytes)));
  const Metadata& metadata = model->description.metadata;
  std::vector<std::vector<std::string>> rows;
  if (!metadata.short_description.empty()) rows.push_back({"description", metadata.short_description});
  if (!metadata.version.empty()) rows.push_back({"version", metadata.version});
  if (!metadata.author.empty()) rows.push_back({"author", metadata.author});
  if (!metadata.license.empty()) rows.push_back({"license", metadata.license});
  for (const auto& [key, value] : metadata.user_defined) rows.push_back({key, value});
  std::cout << Table(rows);
  for (const auto& function : model->program.functions()) PrintFunctionInfo(*model, *function);
  rows.clear();
  for (const WeightTotal& total : ReportWeights(model->program)) {
    rows.push_back(
        {total.format.name + (total.format.block_size > 0 ? fmt::format(" ({})", total.format.block_size) : ""),
         fmt::format("{} tensors", total.count), Bytes(total.stored_bytes) + " stored",
         Bytes(total.dense_bytes) + " decompressed"});
  }
  if (!rows.empty()) std::cout << "\nweights\n" << Table(rows);
  return kFine;
}

}  // namespace milwright::cli
