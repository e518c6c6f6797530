#include "llm/manifest.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "base/file_io.h"
#include "llm/json_fields.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxManifestBytes = 64 << 20;
constexpr std::array<std::pair<MaskColumns, std::string_view>, 3> kMaskColumns = {
    {{MaskColumns::kAbsolute, "absolute"}, {MaskColumns::kRing, "ring"}, {MaskColumns::kShift, "shift"}}};

/// Whether a path of the manifest stays inside its folder.
bool StaysInside(const std::string& path) {
  const std::filesystem::path p(path);
  if (path.empty() || p.is_absolute()) return false;
  for (const auto& part : p) {
    if (part == "..") return false;
  }
  return true;
}

// ---- writing ----

OrderedJson ShapeToJson(const Shape& shape) {
  OrderedJson json = OrderedJson::array();
  for (const int64_t size : shape) json.push_back(size);
  return json;
}

OrderedJson FeatureToJson(const ManifestFeature& feature) {
  OrderedJson json = {{"kind", FeatureKindName(feature.kind)},
                      {"name", feature.name},
                      {"dtype", DataTypeName(feature.type.dtype)},
                      {"shape", ShapeToJson(feature.type.shape)}};
  if (feature.index >= 0) json["index"] = feature.index;
  if (!feature.table.empty()) json["table"] = feature.table;
  if (IsMask(feature.kind)) {
    for (const auto& [columns, name] : kMaskColumns) {
      if (columns == feature.columns) json["columns"] = name;
    }
    json["window"] = feature.window;
  }
  return json;
}

OrderedJson FunctionToJson(const ManifestFunction& function) {
  OrderedJson json = {{"name", function.name}, {"package", function.package}, {"length", function.length}};
  json["inputs"] = OrderedJson::array();
  for (const ManifestFeature& feature : function.inputs) json["inputs"].push_back(FeatureToJson(feature));
  json["outputs"] = OrderedJson::array();
  for (const ManifestFeature& feature : function.outputs) json["outputs"].push_back(FeatureToJson(feature));
  json["caches"] = OrderedJson::array();
  for (const ManifestCache& cache : function.caches) {
    json["caches"].push_back({{"input", cache.input},
                              {"output", cache.output},
                              {"dtype", DataTypeName(cache.type.dtype)},
                              {"shape", ShapeToJson(cache.type.shape)},
                              {"new_only", cache.new_only}});
  }
  json["states"] = function.states;
  return json;
}

OrderedJson SidecarToJson(const ManifestSidecar& sidecar) {
  return {{"file", sidecar.file}, {"rows", sidecar.rows}, {"columns", sidecar.columns}, {"scale", sidecar.scale}};
}

// ---- reading ----

TensorType ReadType(JsonFields& fields) {
  const auto dtype = DataTypeFromName(fields.Text("dtype"));
  if (!dtype.has_value()) fields.Fail("'dtype' is not known");
  TensorType type{dtype.value_or(DataType::kInvalid), fields.Integers("shape")};
  for (const int64_t size : type.shape) {
    if (size < kUnknownDim || size == 0) fields.Fail("'shape' holds an impossible size");
  }
  return type;
}

ManifestFeature ReadManifestFeature(const OrderedJson& json, const std::string& place, Status& error) {
  JsonFields fields(json, place, error);
  ManifestFeature feature;
  feature.name = fields.Text("name");
  const auto kind = FeatureKindFromName(fields.Text("kind"));
  if (!kind.has_value()) fields.Fail("'kind' is not known");
  feature.kind = kind.value_or(FeatureKind::kTokenIds);
  feature.type = ReadType(fields);
  feature.index = fields.Integer("index", -1);
  feature.table = fields.Text("table");
  feature.window = fields.Integer("window");
  const std::string columns = fields.Text("columns", "absolute");
  bool known = false;
  for (const auto& [value, name] : kMaskColumns) {
    if (name != columns) continue;
    feature.columns = value;
    known = true;
  }
  if (!known) fields.Fail("'columns' is not known");
  return feature;
}

ManifestFunction ReadFunction(const OrderedJson& json, const std::string& place, Status& error) {
  JsonFields fields(json, place, error);
  ManifestFunction function;
  function.name = fields.Text("name");
  function.package = fields.Text("package");
  if (!StaysInside(function.package)) fields.Fail("'package' is not a path inside the folder");
  function.length = fields.Integer("length", 1);
  if (function.length < kUnknownDim || function.length == 0) fields.Fail("'length' is not possible");
  for (const OrderedJson& one : fields.Array("inputs"))
    function.inputs.push_back(ReadManifestFeature(one, place + ", input", error));
  for (const OrderedJson& one : fields.Array("outputs")) {
    function.outputs.push_back(ReadManifestFeature(one, place + ", output", error));
  }
  for (const OrderedJson& one : fields.Array("caches")) {
    JsonFields cache(one, place + ", cache", error);
    function.caches.push_back({cache.Text("input"), cache.Text("output"), ReadType(cache), cache.Flag("new_only")});
  }
  function.states = fields.Texts("states");
  return function;
}

std::optional<ManifestSidecar> ReadSidecar(JsonFields& fields, std::string_view key, Status& error) {
  if (!fields.Has(key)) return std::nullopt;
  JsonFields sidecar(fields.Object(key), fmt::format("{}, {}", fields.place(), key), error);
  ManifestSidecar result{sidecar.Text("file"), sidecar.Integer("rows"), sidecar.Integer("columns"),
                         sidecar.Number("scale", 1)};
  if (!StaysInside(result.file)) sidecar.Fail("'file' is not a path inside the folder");
  if (result.rows < 1 || result.columns < 1) sidecar.Fail("'rows' and 'columns' must be positive");
  return result;
}

RopeTable ReadRopeTable(const OrderedJson& json, const std::string& place, Status& error) {
  JsonFields fields(json, place, error);
  RopeTable table;
  table.name = fields.Text("name");
  table.frequencies = fields.Numbers("frequencies");
  table.scale = fields.Number("scale", 1);
  table.mrope_section = fields.Integers("mrope_section");
  if (!table.mrope_section.empty() && table.mrope_section.size() != 3) fields.Fail("'mrope_section' wants three sizes");
  return table;
}

ManifestProvenance ReadProvenance(JsonFields& manifest, Status& error) {
  JsonFields fields(manifest.Object("provenance"), manifest.place() + ", provenance", error);
  ManifestProvenance provenance;
  provenance.tool = fields.Text("tool");
  provenance.checkpoint = fields.Text("checkpoint");
  provenance.checkpoint_hash = fields.Text("checkpoint_sha256");
  for (const auto& [key, value] : fields.Object("options").items()) {
    if (value.is_string()) provenance.options[key] = value.get<std::string>();
  }
  provenance.ignored_tensors = fields.Texts("ignored_tensors");
  provenance.notes = fields.Texts("notes");
  provenance.warnings = fields.Texts("warnings");
  return provenance;
}

}  // namespace

std::string FormatManifest(const Manifest& manifest) {
  OrderedJson json;
  json["format"] = "milwright-build";
  json["version"] = kManifestVersion;
  json["contract"] = manifest.contract;
  json["family"] = manifest.family;
  json["context_length"] = manifest.context_length;
  json["vocabulary"] = manifest.vocabulary;
  json["hidden"] = manifest.hidden;
  json["window"] = manifest.window;
  json["mask_fill"] = manifest.mask_fill;
  json["shared_state"] = manifest.shared_state;
  json["ring_limit"] = manifest.ring_limit;
  json["eos_ids"] = manifest.eos_ids;
  json["stages"] = OrderedJson::array();
  for (const ManifestStage& stage : manifest.stages) {
    OrderedJson entry = {{"role", PackageRoleName(stage.role)},
                         {"first_layer", stage.first_layer},
                         {"last_layer", stage.last_layer},
                         {"functions", OrderedJson::array()}};
    for (const ManifestFunction& function : stage.functions) entry["functions"].push_back(FunctionToJson(function));
    json["stages"].push_back(std::move(entry));
  }
  json["ropes"] = OrderedJson::array();
  for (const RopeTable& table : manifest.ropes) {
    json["ropes"].push_back({{"name", table.name},
                             {"frequencies", table.frequencies},
                             {"scale", table.scale},
                             {"mrope_section", table.mrope_section}});
  }
  if (manifest.embedding.has_value()) json["embedding"] = SidecarToJson(*manifest.embedding);
  if (manifest.per_layer_embedding.has_value()) {
    json["per_layer_embedding"] = SidecarToJson(*manifest.per_layer_embedding);
  }
  json["tokenizer_files"] = manifest.tokenizer_files;
  const ManifestProvenance& provenance = manifest.provenance;
  json["provenance"] = {{"tool", provenance.tool},
                        {"checkpoint", provenance.checkpoint},
                        {"checkpoint_sha256", provenance.checkpoint_hash},
                        {"options", provenance.options},
                        {"ignored_tensors", provenance.ignored_tensors},
                        {"notes", provenance.notes},
                        {"warnings", provenance.warnings}};
  // Text that is not UTF-8 (a tensor name, say) is replaced rather than refused.
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<Manifest> ParseManifest(const std::string& text, const std::string& source) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  Status error;
  JsonFields fields(json, source, error);
  if (fields.Text("format") != "milwright-build") fields.Fail("is not a build manifest of milwright");
  if (const int64_t version = fields.Integer("version"); version != kManifestVersion) {
    fields.Fail(fmt::format("has version {}; this program reads version {}", version, kManifestVersion));
  }
  MW_RETURN_IF_ERROR(error);
  Manifest manifest;
  manifest.contract = fields.Text("contract");
  manifest.family = fields.Text("family");
  manifest.context_length = fields.Integer("context_length");
  manifest.vocabulary = fields.Integer("vocabulary");
  manifest.hidden = fields.Integer("hidden");
  manifest.window = fields.Integer("window");
  manifest.mask_fill = fields.Number("mask_fill", -1e4);
  manifest.shared_state = fields.Flag("shared_state");
  manifest.ring_limit = fields.Flag("ring_limit");
  manifest.eos_ids = fields.Integers("eos_ids");
  if (manifest.context_length < 1 || manifest.vocabulary < 1 || manifest.hidden < 1 || manifest.window < 0) {
    fields.Fail("'context_length', 'vocabulary' and 'hidden' must be positive");
  }
  for (const OrderedJson& one : fields.Array("stages")) {
    JsonFields entry(one, fmt::format("{}, stage {}", source, manifest.stages.size()), error);
    ManifestStage stage;
    const auto role = PackageRoleFromName(entry.Text("role"));
    if (!role.has_value()) entry.Fail("'role' is not known");
    stage.role = role.value_or(PackageRole::kBody);
    stage.first_layer = entry.Integer("first_layer");
    stage.last_layer = entry.Integer("last_layer");
    for (const OrderedJson& function : entry.Array("functions")) {
      stage.functions.push_back(
          ReadFunction(function, fmt::format("{}, function {}", entry.place(), stage.functions.size()), error));
    }
    if (stage.functions.empty()) entry.Fail("has no functions");
    manifest.stages.push_back(std::move(stage));
  }
  if (manifest.stages.empty()) fields.Fail("has no stages");
  for (const OrderedJson& one : fields.Array("ropes"))
    manifest.ropes.push_back(ReadRopeTable(one, source + ", rope", error));
  manifest.embedding = ReadSidecar(fields, "embedding", error);
  manifest.per_layer_embedding = ReadSidecar(fields, "per_layer_embedding", error);
  manifest.tokenizer_files = fields.Texts("tokenizer_files");
  for (const std::string& file : manifest.tokenizer_files) {
    if (!StaysInside(file)) fields.Fail("'tokenizer_files' names a path outside the folder");
  }
  manifest.provenance = ReadProvenance(fields, error);
  MW_RETURN_IF_ERROR(error);
  return manifest;
}

Result<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kManifestName);
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxManifestBytes));
  return ParseManifest(text, path);
}

}  // namespace milwright
