#include "check/features.h"

#include <algorithm>
#include <set>

#include "analysis/effects.h"
#include "analysis/input_kind.h"
#include "analysis/weight_report.h"

namespace milwright {
namespace {

PartialShape ToPartial(const Shape& shape) {
  std::vector<std::optional<int64_t>> sizes;
  for (const int64_t size : shape) sizes.push_back(size == kUnknownDim ? std::nullopt : std::optional(size));
  return sizes;
}

StateFeatures Describe(const Value& value, StateRole role, UpdateForm form) {
  // What is written back unchanged is, to the ledger, only read.
  const UpdateForm update = form == UpdateForm::kWrittenBack ? UpdateForm::kReadOnly : form;
  return {value.name, ToPartial(value.type.shape()), std::string(DataTypeName(value.type.dtype())),
          std::string(StateRoleName(role)), std::string(UpdateFormName(update))};
}

std::string FlexibilityOf(const ModelSpec& model, const Function& function) {
  std::string flexible = "none";
  if (const FunctionDescription* description = model.description.Find(function.name); description != nullptr) {
    for (const FeatureDescription& input : description->inputs) {
      if (!input.type.array.shape_range.empty()) flexible = "range";
      if (!input.type.array.enumerated_shapes.empty() && flexible == "none") flexible = "enumerated";
    }
  }
  for (const Value* input : function.TensorInputs()) {
    if (!IsStatic(input->type.shape()) && flexible == "none") flexible = "range";
  }
  return flexible;
}

// Rows of one step: what the states' updates show, else the query axis of the inputs.
std::optional<int64_t> QueryLengthOf(const Function& function, const FunctionStates& states) {
  std::optional<int64_t> longest;
  for (const StateFacts& state : states.states) {
    if (state.query_length.has_value()) longest = std::max(longest.value_or(0), *state.query_length);
  }
  if (longest.has_value()) return longest;
  const auto inputs = FindInputKinds(function);
  if (!inputs.ok() || inputs->query_length == kUnknownDim) return std::nullopt;
  return inputs->query_length;
}

// Rows that a KV cache holds: the sequence axis of the largest one (the second but last by every public layout).
std::optional<int64_t> ContextLengthOf(const ProgramFeatures& features) {
  std::optional<int64_t> longest;
  const auto consider = [&longest](const StateFeatures& cache) {
    if (cache.role != "kv" || !cache.shape.has_value() || cache.shape->size() < 2) return;
    const auto rows = (*cache.shape)[cache.shape->size() - 2];
    if (rows.has_value()) longest = std::max(longest.value_or(0), *rows);
  };
  std::ranges::for_each(features.states, consider);
  std::ranges::for_each(features.explicit_caches, consider);
  return longest;
}

bool IsOutput(const Value& value) {
  return std::ranges::any_of(value.uses(), [](const Use& use) { return use.op == nullptr; });
}

// A depthwise convolution as in LFM2.5's short convolutions.
bool IsDepthwise1024(const Operation& op) {
  const Literal* groups = op.InputConstant("groups");
  const Value* weight = op.InputValue("weight");
  return op.type() == "conv" && groups != nullptr && groups->tensor.size() == 1 && groups->tensor.GetInt(0) == 1024 &&
         weight != nullptr && !weight->type.shape().empty() && weight->type.shape().back() == 3;
}

std::vector<std::string> TagsOf(const Function& function, const FunctionStates& states, size_t functions) {
  std::set<std::string> tags;
  if (functions > 1) tags.insert("multifunction");
  if (states.states.empty()) tags.insert("stateless");
  for (const StateFacts& state : states.states) {
    if (state.form == UpdateForm::kNone) tags.insert("dead_state");
    if (state.form == UpdateForm::kScatter) tags.insert("scatter_on_cache");
    for (const ExposedOutput& exposed : state.exposed) {
      tags.insert(exposed.is_slice ? "state_slice_is_output" : "output_aliases_state_write");
    }
    for (const StateWrite& write : state.writes) {
      if (write.begin != nullptr && write.begin->type.dtype() == DataType::kInt32) tags.insert("state_index_int32");
    }
  }
  for (const CachePair& pair : states.cache_pairs) {
    if (pair.form == UpdateForm::kScatter) tags.insert("scatter_on_cache");
  }
  ForEachOperation(function.body(), [&tags](const Operation& op) {
    if (op.type() == "reduce_argmax" && IsOutput(*op.output())) tags.insert("in_graph_argmax");
    if (op.type() == "quantize") tags.insert("activation_quant");
    if (op.type() == "scaled_dot_product_attention") tags.insert("fused_sdpa");
    if (IsDepthwise1024(op)) tags.insert("depthwise_conv_groups_1024_k3");
  });
  return {tags.begin(), tags.end()};
}

}  // namespace

bool ProgramFeatures::Has(std::string_view tag) const { return std::ranges::find(tags, tag) != tags.end(); }

ProgramFeatures FeaturesOf(const ModelSpec& model, const Function& function, const FunctionStates& states) {
  ProgramFeatures features;
  features.opset = OpsetName(function.opset);
  features.functions.push_back({function.name, QueryLengthOf(function, states)});
  for (const auto& other : model.program.functions()) {
    if (other.get() == &function) continue;
    features.functions.push_back({other->name, QueryLengthOf(*other, AnalyzeStates(*other))});
  }
  for (const StateFacts& state : states.states) {
    features.states.push_back(Describe(*state.state, state.role, state.form));
  }
  for (const CachePair& pair : states.cache_pairs) {
    features.explicit_caches.push_back(Describe(*pair.input, pair.role, pair.form));
  }
  features.flexible_inputs = FlexibilityOf(model, function);
  double stored = 0;
  double dense = 0;
  features.weight_format = "unknown";
  for (const WeightTotal& total : ReportWeights(model.program)) {
    // Norms and tables stay fp16 beside compressed weights: the compressed format names the package.
    if (features.weight_format == "unknown" || features.weight_format == "fp16") {
      features.weight_format = total.format.name;
    }
    stored += static_cast<double>(total.stored_bytes);
    dense += static_cast<double>(total.dense_bytes);
  }
  features.package_mb = stored / 1e6;
  features.depalettized_mb = dense / 1e6;
  features.context_length = ContextLengthOf(features);
  features.tags = TagsOf(function, states, model.program.functions().size());
  return features;
}

}  // namespace milwright
