// Contracts as JSON files (docs/contract-files.md).
#include <fmt/format.h>

#include <algorithm>

#include "base/file_io.h"
#include "llm/contract.h"
#include "llm/json_fields.h"

namespace milwright {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxContractBytes = 1 << 20;

ContractFeature ReadContractFeature(const OrderedJson& json, const std::string& place, Status& error) {
  JsonFields fields(json, place, error);
  const auto kind = FeatureKindFromName(fields.Text("kind"));
  if (!kind.has_value()) fields.Fail(fmt::format("kind '{}' is not known", fields.Text("kind")));
  ContractFeature feature{kind.value_or(FeatureKind::kTokenIds), fields.Text("name"), fields.Text("shape")};
  feature.table = fields.Text("table");
  if (feature.name.empty()) fields.Fail("'name' is missing");
  if (fields.Has("role")) {
    feature.role = PackageRoleFromName(fields.Text("role"));
    if (!feature.role.has_value()) fields.Fail("'role' is not known");
  }
  if (fields.Has("dtype")) {
    feature.dtype = DataTypeFromName(fields.Text("dtype"));
    const bool possible =
        feature.dtype == DataType::kFp16 || feature.dtype == DataType::kFp32 || feature.dtype == DataType::kInt32;
    if (!possible) fields.Fail("'dtype' must be fp16, fp32 or int32");
  }
  return feature;
}

ContractForm ReadForm(const OrderedJson& json, const std::string& place, Status& error) {
  JsonFields fields(json, place, error);
  ContractForm form;
  form.families = fields.Texts("families");
  for (const OrderedJson& one : fields.Array("inputs"))
    form.inputs.push_back(ReadContractFeature(one, place + ", input", error));
  for (const OrderedJson& one : fields.Array("outputs"))
    form.outputs.push_back(ReadContractFeature(one, place + ", output", error));
  for (const auto& [name, one] : fields.Object("caches").items()) {
    JsonFields cache(one, fmt::format("{}, cache {}", place, name), error);
    const auto group = CacheGroupFromName(name);
    if (!group.has_value()) {
      cache.Fail("is not a known kind of cache");
      continue;
    }
    form.caches[*group] = {cache.Text("name"), cache.Text("shape"), cache.Text("whole_output"),
                           cache.Text("new_output")};
  }
  form.separate_head = fields.Flag("separate_head");
  form.separate_embedding = fields.Flag("separate_embedding");
  const auto keep = [&](auto parsed, auto& target) {
    if (!parsed.ok()) {
      fields.Fail(parsed.status().message());
    } else {
      target = *std::move(parsed);
    }
  };
  keep(ParseLayout(fields.Text("state_layout", "kv-pair")), form.layout);
  keep(ParseUpdate(fields.Text("update", "slice")), form.update);
  keep(ParseEmbedding(fields.Text("embedding", "in-graph")), form.embedding);
  const auto head = ParseHead(fields.Text("head", "logits"));
  if (!head.ok()) {
    fields.Fail(head.status().message());
  } else {
    form.head = head->kind;
  }
  return form;
}

OrderedJson FeatureToJson(const ContractFeature& feature) {
  OrderedJson json = {{"kind", FeatureKindName(feature.kind)}, {"name", feature.name}, {"shape", feature.shape}};
  if (!feature.table.empty()) json["table"] = feature.table;
  if (feature.role.has_value()) json["role"] = PackageRoleName(*feature.role);
  if (feature.dtype.has_value()) json["dtype"] = DataTypeName(*feature.dtype);
  return json;
}

}  // namespace

Result<Contract> ParseContract(const std::string& text, const std::string& source) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  Status error;
  JsonFields fields(json, source, error);
  const Contract defaults;
  Contract contract;
  contract.name = fields.Text("name", "custom");
  contract.description = fields.Text("description");
  contract.decode_function = fields.Text("decode_function");
  contract.prefill_function = fields.Text("prefill_function");
  contract.single_package = fields.Text("single_package", defaults.single_package);
  contract.body_package = fields.Text("body_package", defaults.body_package);
  contract.embedding_package = fields.Text("embedding_package", defaults.embedding_package);
  contract.head_package = fields.Text("head_package", defaults.head_package);
  contract.embedding_sidecar = fields.Text("embedding_sidecar", defaults.embedding_sidecar);
  contract.state_over_all_layers = fields.Flag("state_over_all_layers");
  contract.flexible_length = fields.Flag("flexible_length");
  contract.meta_yaml = fields.Flag("meta_yaml");
  contract.head_sidecars = fields.Flag("head_sidecars");
  contract.mask_fill = fields.Number("mask_fill", defaults.mask_fill);
  if (!(contract.mask_fill < 0 && contract.mask_fill >= -65504)) fields.Fail("'mask_fill' must be in [-65504, 0)");
  for (const std::string* name : {&contract.single_package, &contract.body_package, &contract.embedding_package,
                                  &contract.head_package, &contract.embedding_sidecar}) {
    if (name->empty() || name->find('/') != std::string::npos) fields.Fail("names of files must not hold '/'");
  }
  for (const OrderedJson& one : fields.Array("forms")) {
    contract.forms.push_back(ReadForm(one, fmt::format("{}, form {}", source, contract.forms.size()), error));
  }
  if (contract.forms.empty()) fields.Fail("has no forms");
  if (!error.ok()) return Status(ErrorCode::kPrecondition, error.message());
  return contract;
}

std::string FormatContract(const Contract& contract) {
  OrderedJson json = {{"name", contract.name},
                      {"description", contract.description},
                      {"decode_function", contract.decode_function},
                      {"prefill_function", contract.prefill_function},
                      {"single_package", contract.single_package},
                      {"body_package", contract.body_package},
                      {"embedding_package", contract.embedding_package},
                      {"head_package", contract.head_package},
                      {"embedding_sidecar", contract.embedding_sidecar},
                      {"state_over_all_layers", contract.state_over_all_layers},
                      {"flexible_length", contract.flexible_length},
                      {"meta_yaml", contract.meta_yaml},
                      {"head_sidecars", contract.head_sidecars},
                      {"mask_fill", contract.mask_fill},
                      {"forms", OrderedJson::array()}};
  for (const ContractForm& form : contract.forms) {
    OrderedJson entry = {
        {"families", form.families}, {"inputs", OrderedJson::array()}, {"outputs", OrderedJson::array()}};
    for (const ContractFeature& feature : form.inputs) entry["inputs"].push_back(FeatureToJson(feature));
    for (const ContractFeature& feature : form.outputs) entry["outputs"].push_back(FeatureToJson(feature));
    entry["caches"] = OrderedJson::object();
    for (const auto& [group, names] : form.caches) {
      entry["caches"][std::string(CacheGroupName(group))] = {{"name", names.name},
                                                             {"shape", names.shape},
                                                             {"whole_output", names.whole_output},
                                                             {"new_output", names.new_output}};
    }
    entry["separate_head"] = form.separate_head;
    entry["separate_embedding"] = form.separate_embedding;
    entry["state_layout"] = LayoutText(form.layout);
    entry["update"] = UpdateName(form.update);
    entry["embedding"] = form.embedding == EmbeddingKind::kInGraph ? "in-graph" : "sidecar-fp16";
    entry["head"] = form.head == HeadKind::kArgmax ? "argmax" : "logits";
    json["forms"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

Result<Contract> FindContract(const std::string& name) {
  std::string known;
  for (const Contract& contract : KnownContracts()) {
    if (contract.name == name) return contract;
    known += (known.empty() ? "" : ", ") + contract.name;
  }
  if (!name.ends_with(".json")) {
    return Status(ErrorCode::kUsage,
                  fmt::format("contract '{}' is not known (known: {}, or a file that ends in .json)", name, known));
  }
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(name, kMaxContractBytes));
  return ParseContract(text, name);
}

}  // namespace milwright
