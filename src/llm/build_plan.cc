// From options to a BuildPlan, and from a stage of it to a package in memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/errors.h"
#include "llm/build.h"
#include "llm/function_writer.h"
#include "llm/layers.h"

namespace milwright {
namespace {

/// Bytes of a layer's weights in the build's data type.
int64_t LayerBytes(const CheckpointTensors& tensors, int64_t layer, DataType compute) {
  int64_t bytes = 0;
  for (const auto& [key, role] : tensors.roles) {
    if (key.first != layer) continue;
    const auto size = ByteSize({compute, role.shape});
    bytes += size.ok() ? *size : 0;
  }
  return bytes;
}

/// Bounds of the chunks: first layers, and the end.
Result<std::vector<int64_t>> SplitLayers(const BuildOptions& options, const ModelPlan& model,
                                         const CheckpointTensors& tensors) {
  const int64_t layers = model.layer_count();
  std::vector<int64_t> bounds = {0};
  if (options.chunks.max_bytes > 0) {
    int64_t filled = 0;
    for (int64_t i = 0; i < layers; ++i) {
      const int64_t bytes = LayerBytes(tensors, i, options.compute);
      if (bytes > options.chunks.max_bytes) {
        return Usage(fmt::format("layer {} alone has {} bytes of weights, more than the {} of a chunk", i, bytes,
                                 options.chunks.max_bytes));
      }
      if (filled + bytes > options.chunks.max_bytes) {
        bounds.push_back(i);
        filled = 0;
      }
      filled += bytes;
    }
  } else {
    if (options.chunks.count > layers) {
      return Usage(fmt::format("{} layers cannot be split into {} chunks", layers, options.chunks.count));
    }
    for (int64_t c = 1; c < options.chunks.count; ++c) bounds.push_back(layers * c / options.chunks.count);
  }
  bounds.push_back(layers);
  return bounds;
}

void MakeStages(const std::vector<int64_t>& bounds, BuildPlan& build) {
  if (build.form.separate_embedding) {
    StageSpec embedding;
    embedding.role = PackageRole::kEmbedding;
    embedding.embeds = true;
    build.stages.push_back(embedding);
  }
  for (size_t c = 0; c + 1 < bounds.size(); ++c) {
    StageSpec body;
    body.first_layer = bounds[c];
    body.last_layer = bounds[c + 1];
    body.first_body = c == 0;
    body.embeds = c == 0 && !build.form.separate_embedding;
    body.heads = c + 2 == bounds.size() && !build.form.separate_head;
    build.stages.push_back(body);
  }
  if (build.form.separate_head) {
    StageSpec head;
    head.role = PackageRole::kHead;
    head.first_layer = head.last_layer = build.model.layer_count();
    head.heads = true;
    build.stages.push_back(head);
  }
}

Status CheckLengths(const BuildOptions& options, const BuildPlan& build) {
  const bool windowed = build.caches.update == CacheUpdate::kRing || build.caches.update == CacheUpdate::kShift;
  for (const FunctionOption& function : options.functions) {
    const bool flexible = build.contract.flexible_length;
    if (function.length == kUnknownDim && !flexible) {
      return Usage(
          fmt::format("function {}: contract {} wants a fixed number of tokens", function.name, build.contract.name));
    }
    if (flexible) continue;
    if (function.length > options.context_length) {
      return Usage(fmt::format("function {} takes {} tokens, more than the context length {}", function.name,
                               function.length, options.context_length));
    }
    if (windowed && function.length > std::min(build.model.window, options.context_length)) {
      return Usage(fmt::format("function {} takes {} tokens, more than the window {}: not possible with update form {}",
                               function.name, function.length, build.model.window, UpdateName(build.caches.update)));
    }
    if (build.model.HasMixer(Mixer::kDeltaNet) && function.length > kMaxDeltaNetLength) {
      return Usage(fmt::format("function {} takes {} tokens: Gated DeltaNet layers are unrolled for up to {}",
                               function.name, function.length, kMaxDeltaNetLength));
    }
  }
  return Status::Ok();
}

/// Gives every flexible size of the description a range: from 1, its default, to the context length.
void DescribeFlexibility(const Function& function, int64_t context_length, FunctionDescription& description) {
  for (FeatureDescription& feature : description.inputs) {
    const Value* input = function.FindInput(feature.name);
    if (input == nullptr || IsStatic(input->type.shape())) continue;
    ArrayFeature& array = feature.type.array;
    array.shape.clear();
    for (const int64_t size : input->type.shape()) {
      const bool open = size == kUnknownDim;
      array.shape.push_back(open ? 1 : size);
      array.shape_range.push_back({open ? 1U : static_cast<uint64_t>(size), open ? context_length : size});
    }
  }
}

}  // namespace

Result<BuildPlan> PlanBuild(const BuildOptions& options, const ModelPlan& model, const CheckpointTensors& tensors,
                            std::vector<std::string>& warnings, std::vector<std::string>& notes) {
  BuildPlan build;
  build.model = model;
  MW_ASSIGN_OR_RETURN(build.contract, FindContract(options.contract));
  const ContractForm* form = build.contract.FormFor(model.family);
  if (form == nullptr) {
    return Usage(fmt::format("contract {} has no form for {}", build.contract.name, model.family));
  }
  build.form = *form;
  build.style = options.style;
  build.compute = options.compute;
  build.opset = options.min_target;
  build.embedding = options.embedding.value_or(form->embedding);
  build.head = options.head.value_or(HeadOption{form->head, 1});
  build.head_splits = options.head_splits;
  if (options.context_length < 1 || options.context_length > 1 << 20) {
    return Usage(fmt::format("context length {} is outside 1 .. {}", options.context_length, 1 << 20));
  }
  if (options.context_length > model.max_positions) {
    const std::string text = fmt::format("context length {} is beyond the {} positions of the checkpoint",
                                         options.context_length, model.max_positions);
    if (model.learned_positions > 0) return Usage(text);
    warnings.push_back(text);
  }
  if (build.head.kind == HeadKind::kTopK && build.head.k > model.vocabulary) {
    return Usage(fmt::format("head topk:{}: the vocabulary has {} tokens", build.head.k, model.vocabulary));
  }
  if (build.head_splits < 1 || build.head_splits > std::min<int64_t>(model.vocabulary, 64)) {
    return Usage(fmt::format("the head cannot be split into {} parts", build.head_splits));
  }
  if (build.style == GraphStyle::kAne && build.contract.flexible_length) {
    return Usage(fmt::format("contract {} wants flexible lengths, which style ane does not have: use style plain",
                             build.contract.name));
  }
  if (build.contract.flexible_length) {
    warnings.emplace_back("flexible shapes: no report shows them running on the Neural Engine (field report rule K09)");
  }
  MW_ASSIGN_OR_RETURN(build.caches, ChooseCaches(model, build.contract, build.form, options, warnings, notes));
  MW_RETURN_IF_ERROR(CheckLengths(options, build));
  MW_ASSIGN_OR_RETURN(const std::vector<int64_t> bounds, SplitLayers(options, model, tensors));
  MakeStages(bounds, build);
  return build;
}

Result<ModelSpec> BuildPackage(const BuildPlan& build, const StageSpec& stage,
                               const std::vector<FunctionOption>& functions, WeightSource& weights,
                               std::vector<ManifestFunction>& entries) {
  const bool all = build.contract.state_over_all_layers && stage.role == PackageRole::kBody;
  const int64_t first = all ? 0 : stage.first_layer;
  const int64_t last = all ? build.model.layer_count() : stage.last_layer;
  MW_ASSIGN_OR_RETURN(const CachePlan caches, PlanCaches(build.model, build.form, build.caches, first, last));
  ModelSpec spec;
  spec.specification_version = static_cast<int32_t>(build.opset);
  const bool single = functions.size() == 1;
  for (FunctionOption function : functions) {
    if (single) function.name = "main";
    MW_ASSIGN_OR_RETURN(ManifestFunction entry, WriteFunction(spec.program, build, stage, caches, function, weights));
    entries.push_back(std::move(entry));
    const Function& written = *spec.program.FindFunction(function.name);
    FunctionDescription description = DescribeFunction(written);
    if (build.contract.flexible_length) DescribeFlexibility(written, build.caches.context_length, description);
    spec.description.functions.push_back(std::move(description));
  }
  spec.description.multi_function = !single;
  if (!single) spec.description.default_function = functions.front().name;
  spec.description.metadata.short_description =
      fmt::format("{}, contract {}: {}", build.model.family, build.contract.name, PackageRoleName(stage.role));
  if (build.contract.flexible_length) {
    spec.description.metadata.user_defined["co.huggingface.exporters.name"] = build.model.family;
    if (build.model.window > 0) {
      spec.description.metadata.user_defined["co.huggingface.exporters.sliding_window"] =
          std::to_string(build.model.window);
    }
  }
  return spec;
}

Status CheckContract(const ModelSpec& spec, const std::vector<ManifestFunction>& functions) {
  const auto complain = [](const std::string& what) { return Status(ErrorCode::kInternal, "contract: " + what); };
  for (const ManifestFunction& function : functions) {
    const FunctionDescription* description = spec.description.Find(function.name);
    if (description == nullptr) return complain(fmt::format("function {} is not described", function.name));
    std::map<std::string, TensorType> inputs, outputs;
    for (const ManifestFeature& feature : function.inputs) inputs[feature.name] = feature.type;
    for (const ManifestFeature& feature : function.outputs) outputs[feature.name] = feature.type;
    for (const ManifestCache& cache : function.caches) {
      inputs[cache.input] = cache.type;
      outputs[cache.output] = cache.type;
    }
    const auto compare = [&](const std::vector<FeatureDescription>& features,
                             const std::map<std::string, TensorType>& expected, std::string_view what) {
      std::set<std::string> seen;
      for (const FeatureDescription& feature : features) {
        const auto it = expected.find(feature.name);
        if (it == expected.end()) return complain(fmt::format("{} '{}' is not of the contract", what, feature.name));
        const ArrayFeature& array = feature.type.array;
        const bool same_shape = array.IsFlexible() || array.shape.empty() || array.shape == it->second.shape;
        // The new slice of a cache has fewer columns than the cache.
        const bool slice = what == "output" && array.shape.size() == it->second.shape.size();
        if (array.dtype != it->second.dtype || (!same_shape && !slice)) {
          return complain(fmt::format("{} '{}' is {}{}, not {}", what, feature.name, DataTypeName(array.dtype),
                                      ShapeToString(array.shape), TypeToString(it->second)));
        }
        seen.insert(feature.name);
      }
      for (const auto& [name, type] : expected) {
        if (seen.count(name) == 0) return complain(fmt::format("{} '{}' is missing", what, name));
      }
      return Status::Ok();
    };
    MW_RETURN_IF_ERROR(compare(description->inputs, inputs, "input"));
    MW_RETURN_IF_ERROR(compare(description->outputs, outputs, "output"));
    std::set<std::string> states(function.states.begin(), function.states.end());
    for (const FeatureDescription& state : description->states) {
      if (states.erase(state.name) == 0) return complain(fmt::format("state '{}' is not of the contract", state.name));
    }
    if (!states.empty()) return complain(fmt::format("state '{}' is missing", *states.begin()));
  }
  return Status::Ok();
}

}  // namespace milwright
