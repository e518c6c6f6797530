#include "llm/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/dispatch.h"
#include "llm/detect.h"
#include "llm/pipeline_inputs.h"

namespace milwright {
namespace {

class ModelEngine : public PackageEngine {
 public:
  explicit ModelEngine(Model model) : model_(std::move(model)) {}
  Result<State> MakeState() override { return model_.MakeState(); }
  [[nodiscard]] const ModelSpec& spec() const override { return model_.spec(); }
  Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) override {
    PredictOptions options;
    options.function = function;
    return model_.Predict(inputs, state, options);
  }

 private:
  Model model_;
};

class CompiledEngine : public PackageEngine {
 public:
  explicit CompiledEngine(Engine engine) : engine_(std::move(engine)) {}
  Result<State> MakeState() override { return engine_.MakeState(); }
  [[nodiscard]] const ModelSpec& spec() const override { return engine_.model().spec(); }
  Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) override {
    EngineCall call;
    call.function = function;
    return engine_.Predict(inputs, state, std::move(call));
  }
  Result<TensorMap> PredictLast(const std::string& function, const TensorMap& inputs, State* state,
                                const std::vector<std::string>& last_rows) override {
    EngineCall call;
    call.function = function;
    call.last_rows = last_rows;
    return engine_.Predict(inputs, state, std::move(call));
  }

 private:
  Engine engine_;
};

/// Elements [begin, begin + count) of `tensor` as floats.
void CopyFloats(const Tensor& tensor, int64_t begin, int64_t count, float* out) {
  if (tensor.dtype() == DataType::kFp16) {
    kernels::AvailableKernels().front()->half_to_float(tensor.As<uint16_t>().data() + begin, count, out);
  } else if (tensor.dtype() == DataType::kFp32) {
    std::copy_n(tensor.As<float>().data() + begin, count, out);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = tensor.GetFloat(begin + i);
  }
}

/// Writes `fresh` [rows, heads, T, size] into `cache` [rows, heads, C, size] at column `position`.
Status WriteColumns(Tensor& cache, const Tensor& fresh, int64_t position) {
  const Shape& whole = cache.shape();
  const Shape& part = fresh.shape();
  const bool fits = whole.size() == 4 && part.size() == 4 && whole[0] == part[0] && whole[1] == part[1] &&
                    whole[3] == part[3] && position + part[2] <= whole[2] && cache.dtype() == fresh.dtype();
  if (!fits) {
    return {ErrorCode::kRuntime, fmt::format("new columns {} at {} do not fit into cache {}",
                                             TypeToString(fresh.type()), position, TypeToString(cache.type()))};
  }
  const size_t width = static_cast<size_t>(BitWidth(cache.dtype())) / 8;
  const size_t row = static_cast<size_t>(whole[3]) * width;
  const size_t run = static_cast<size_t>(part[2]) * row;
  std::byte* to = cache.mutable_bytes().data();
  const std::byte* from = fresh.bytes().data();
  for (int64_t i = 0; i < whole[0] * whole[1]; ++i) {
    const auto index = static_cast<size_t>(i);
    std::memcpy(to + (index * static_cast<size_t>(whole[2]) + static_cast<size_t>(position)) * row, from + index * run,
                run);
  }
  return Status::Ok();
}

const ManifestFunction* FunctionOfLength(const ManifestStage& stage, int64_t length) {
  for (const ManifestFunction& function : stage.functions) {
    if (function.length == length || function.length == kUnknownDim) return &function;
  }
  return nullptr;
}

}  // namespace

EngineLoader ReferenceEngine() {
  return [](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    MW_ASSIGN_OR_RETURN(Model model, Model::Load(path));
    return std::unique_ptr<PackageEngine>(std::make_unique<ModelEngine>(std::move(model)));
  };
}

std::unique_ptr<PackageEngine> MakePackageEngine(Engine engine) {
  return std::make_unique<CompiledEngine>(std::move(engine));
}

EngineLoader FastEngine(const EngineOptions& options) {
  return [options](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    MW_ASSIGN_OR_RETURN(Engine engine, Engine::Load(path, options));
    return MakePackageEngine(std::move(engine));
  };
}

Result<std::unique_ptr<Pipeline>> Pipeline::Open(const std::string& folder, const EngineLoader& loader) {
  MW_ASSIGN_OR_RETURN(Manifest manifest, OpenManifest(folder));
  std::unique_ptr<Pipeline> pipeline(new Pipeline(std::move(manifest), folder));
  std::map<std::string, std::shared_ptr<PackageEngine>> opened;
  for (const ManifestStage& entry : pipeline->manifest_.stages) {
    Stage stage;
    stage.manifest = &entry;
    for (const ManifestFunction& function : entry.functions) {
      std::shared_ptr<PackageEngine>& engine = opened[function.package];
      if (engine == nullptr) {
        MW_ASSIGN_OR_RETURN(engine, loader(fmt::format("{}/{}", folder, function.package)));
      }
      MW_RETURN_IF_ERROR(CheckPackage(function, engine->spec()).WithContext(folder));
      stage.engines[function.package] = engine;
      stage.has_state = stage.has_state || !function.states.empty();
    }
    pipeline->stages_.push_back(std::move(stage));
  }
  MW_RETURN_IF_ERROR(pipeline->OpenSidecars());
  pipeline->FindRewinds();
  MW_RETURN_IF_ERROR(pipeline->Reset());
  return pipeline;
}

Status Pipeline::OpenSidecars() {
  const auto open = [&](const std::optional<ManifestSidecar>& sidecar,
                        std::shared_ptr<const MappedFile>& file) -> Status {
    if (!sidecar.has_value()) return Status::Ok();
    const std::string path = fmt::format("{}/{}", folder_, sidecar->file);
    MW_ASSIGN_OR_RETURN(file, MappedFile::Open(path));
    const auto bytes = ByteSize({DataType::kFp16, {sidecar->rows, sidecar->columns}});
    if (!bytes.ok() || static_cast<uint64_t>(*bytes) != file->size()) {
      return {ErrorCode::kUnreadable, fmt::format("{}: has {} bytes, not {} rows of {} fp16 numbers", path,
                                                  file->size(), sidecar->rows, sidecar->columns)};
    }
    return Status::Ok();
  };
  MW_RETURN_IF_ERROR(open(manifest_.embedding, embedding_));
  return open(manifest_.per_layer_embedding, per_layer_embedding_);
}

Status Pipeline::Reset() {
  position_ = 0;
  const Stage* maker = nullptr;
  for (Stage& stage : stages_) {
    stage.caches.clear();
    for (const ManifestFunction& function : stage.manifest->functions) {
      for (const ManifestCache& cache : function.caches) {
        MW_ASSIGN_OR_RETURN(stage.caches[cache.input], Tensor::Zeros(cache.type));
      }
    }
    if (!stage.has_state) continue;
    if (manifest_.shared_state && maker != nullptr) {
      stage.state = maker->state;  // a handle: the same states
      continue;
    }
    MW_ASSIGN_OR_RETURN(stage.state, stage.engines.begin()->second->MakeState());
    maker = &stage;
  }
  return Status::Ok();
}

Result<Pipeline::Snapshot> Pipeline::Save() const {
  Snapshot snapshot;
  snapshot.position = position_;
  for (const Stage& stage : stages_) {
    MW_ASSIGN_OR_RETURN(State copy, stage.state.Clone());
    snapshot.states.push_back(std::move(copy));
    snapshot.caches.push_back(stage.caches);
  }
  return snapshot;
}

Status Pipeline::Restore(const Snapshot& snapshot) {
  if (snapshot.states.size() != stages_.size()) {
    return {ErrorCode::kUsage, "the snapshot is of another pipeline"};
  }
  const Stage* maker = nullptr;
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i].caches = snapshot.caches[i];
    if (manifest_.shared_state && maker != nullptr && stages_[i].has_state) {
      stages_[i].state = maker->state;
      continue;
    }
    MW_ASSIGN_OR_RETURN(stages_[i].state, snapshot.states[i].Clone());
    if (stages_[i].has_state) maker = &stages_[i];
  }
  position_ = snapshot.position;
  return Status::Ok();
}

Result<int64_t> Pipeline::NextLength(int64_t remaining, int64_t max_length) const {
  const int64_t room = manifest_.context_length - position_;
  if (room < 1) {
    return Status(ErrorCode::kUsage, fmt::format("the context of {} tokens is full", manifest_.context_length));
  }
  const int64_t limit = std::min({remaining, room, max_length > 0 ? max_length : remaining});
  const int64_t ring = std::min(manifest_.window, manifest_.context_length);
  int64_t best = 0;
  for (const ManifestStage& stage : manifest_.stages) {
    if (stage.role != PackageRole::kBody) continue;
    for (const ManifestFunction& function : stage.functions) {
      const int64_t length = function.length == kUnknownDim ? limit : function.length;
      if (manifest_.ring_limit && length > 1 && ring > 0 && position_ % ring + length > ring) continue;
      if (length <= limit) best = std::max(best, length);
    }
    break;  // all bodies have the same functions
  }
  if (best > 0) return best;
  return Status(ErrorCode::kUsage,
                fmt::format("{}: no function takes as few as {} tokens at position {}: build with decode:1 as well",
                            folder_, limit, position_));
}

Result<StepResult> Pipeline::Prefill(std::span<const int64_t> tokens, int64_t max_length,
                                     std::span<const std::array<int64_t, 3>> positions, const ImageFeatures* image) {
  if (!positions.empty() && positions.size() != tokens.size()) {
    return Status(ErrorCode::kUsage, "there must be as many positions as tokens");
  }
  if (image != nullptr && image->is_image.size() != tokens.size()) {
    return Status(ErrorCode::kUsage, "the image must say for every token whether it is part of it");
  }
  for (const int64_t token : tokens) {
    if (token < 0 || token >= manifest_.vocabulary) {
      return Status(ErrorCode::kUsage,
                    fmt::format("token {} is outside the vocabulary of {}", token, manifest_.vocabulary));
    }
  }
  StepResult result;
  int64_t image_row = 0;
  for (size_t done = 0; done < tokens.size();) {
    MW_ASSIGN_OR_RETURN(const int64_t length, NextLength(static_cast<int64_t>(tokens.size() - done), max_length));
    const auto count = static_cast<size_t>(length);
    PipelineCall call;
    call.tokens = tokens.subspan(done, count);
    call.position = position_;
    call.image = image;
    for (size_t t = 0; t < count; ++t) {
      const int64_t index = position_ + static_cast<int64_t>(t);
      call.positions.push_back(positions.empty() ? std::array<int64_t, 3>{index, index, index} : positions[done + t]);
      const bool is_image = image != nullptr && image->is_image[done + t];
      call.image_rows.push_back(is_image ? image_row++ : -1);
    }
    MW_RETURN_IF_ERROR(RunCall(call, result));
    position_ += length;
    done += count;
  }
  return result;
}

Status Pipeline::RunCall(const PipelineCall& call, StepResult& result) {
  TensorMap passed;  // outputs of the stages so far, by name of kind and index
  for (Stage& stage : stages_) {
    const bool head = stage.manifest->role == PackageRole::kHead;
    const int64_t length = head ? 1 : static_cast<int64_t>(call.tokens.size());
    const ManifestFunction* function = FunctionOfLength(*stage.manifest, length);
    if (function == nullptr) {
      return {ErrorCode::kUnreadable, fmt::format("{}: a stage has no function of {} tokens", folder_, length)};
    }
    if (head) {
      MW_RETURN_IF_ERROR(RunHead(stage, *function, call, passed, result));
      continue;
    }
    MW_ASSIGN_OR_RETURN(TensorMap outputs, RunStage(stage, *function, call, passed));
    MW_RETURN_IF_ERROR(KeepCaches(stage, *function, outputs));
    for (const ManifestFeature& feature : function->outputs) {
      const auto it = outputs.find(feature.name);
      if (it != outputs.end()) passed[PassedName(feature)] = it->second;
    }
    MW_RETURN_IF_ERROR(Collect(*function, outputs, length, result));
  }
  return Status::Ok();
}

Result<TensorMap> Pipeline::RunStage(Stage& stage, const ManifestFunction& function, const PipelineCall& call,
                                     const TensorMap& passed) {
  TensorMap inputs;
  for (const ManifestFeature& feature : function.inputs) {
    MW_ASSIGN_OR_RETURN(inputs[feature.name], MakeInput(feature, call, passed));
  }
  for (const ManifestCache& cache : function.caches) inputs[cache.input] = stage.caches[cache.input];
  State* state = function.states.empty() ? nullptr : &stage.state;
  std::vector<std::string> last_rows;
  if (logit_rows_ == LogitRows::kLast) {
    for (const ManifestFeature& feature : function.outputs) {
      if (feature.kind == FeatureKind::kLogits) last_rows.push_back(feature.name);
    }
  }
  PackageEngine& engine = *stage.engines[function.package];
  auto outputs = last_rows.empty() ? engine.Predict(function.name, inputs, state)
                                   : engine.PredictLast(function.name, inputs, state, last_rows);
  if (!outputs.ok()) return outputs.status().WithContext(function.package);
  return outputs;
}

/// Heads that are packages of their own take one token at a time: those whose logits are wanted.
Status Pipeline::RunHead(Stage& stage, const ManifestFunction& function, const PipelineCall& call,
                         const TensorMap& passed, StepResult& result) {
  const auto hidden = passed.find(std::string(FeatureKindName(FeatureKind::kHidden)));
  if (hidden == passed.end()) {
    return {ErrorCode::kUnreadable, fmt::format("{}: the head has no hidden state to start from", folder_)};
  }
  const Tensor& rows = hidden->second;
  for (size_t t = logit_rows_ == LogitRows::kLast ? call.tokens.size() - 1 : 0; t < call.tokens.size(); ++t) {
    const size_t row_bytes = rows.bytes().size() / call.tokens.size();
    const auto row = rows.bytes().subspan(t * row_bytes, row_bytes);
    MW_ASSIGN_OR_RETURN(Tensor one,
                        Tensor::FromBytes({rows.dtype(), {1, 1, manifest_.hidden}}, {row.begin(), row.end()}));
    const TensorMap single = {{hidden->first, std::move(one)}};
    MW_ASSIGN_OR_RETURN(const TensorMap outputs, RunStage(stage, function, call, single));
    MW_RETURN_IF_ERROR(Collect(function, outputs, 1, result));
  }
  return Status::Ok();
}

Result<Tensor> Pipeline::MakeInput(const ManifestFeature& feature, const PipelineCall& call,
                                   const TensorMap& passed) const {
  const auto error = [&](std::string_view what) {
    return Status(ErrorCode::kUsage,
                  fmt::format("{}: input '{}' ({}): {}", folder_, feature.name, FeatureKindName(feature.kind), what));
  };
  if (const auto it = passed.find(PassedName(feature)); it != passed.end()) return it->second;
  switch (feature.kind) {
    case FeatureKind::kHidden:
      if (!manifest_.embedding.has_value()) return error("no stage and no sidecar gives it");
      return MakeRows(feature, call, *manifest_.embedding, *embedding_);
    case FeatureKind::kPerLayerInputs:
      if (!manifest_.per_layer_embedding.has_value()) return error("there is no sidecar for it");
      return MakeRows(feature, call, *manifest_.per_layer_embedding, *per_layer_embedding_);
    case FeatureKind::kMask:
    case FeatureKind::kSlidingMask:
      return MakeMask(feature, call, manifest_.mask_fill);
    case FeatureKind::kCosine:
    case FeatureKind::kSine: {
      const auto table = std::find_if(manifest_.ropes.begin(), manifest_.ropes.end(),
                                      [&](const RopeTable& rope) { return rope.name == feature.table; });
      if (table == manifest_.ropes.end()) return error("the manifest has no such rotary table");
      return MakeRotary(feature, call, *table);
    }
    case FeatureKind::kRingPosition:
      return MakeRingPosition(call, std::min(manifest_.window, manifest_.context_length));
    default:
      return MakePlainInput(feature, call);
  }
}

Status Pipeline::KeepCaches(Stage& stage, const ManifestFunction& function, const TensorMap& outputs) const {
  for (const ManifestCache& cache : function.caches) {
    const auto it = outputs.find(cache.output);
    if (it == outputs.end()) {
      return {ErrorCode::kUnreadable, fmt::format("{}: gives no output '{}'", function.package, cache.output)};
    }
    if (!cache.new_only) {
      stage.caches[cache.input] = it->second;
    } else {
      MW_RETURN_IF_ERROR(WriteColumns(stage.caches[cache.input], it->second, position_).WithContext(cache.input));
    }
  }
  return Status::Ok();
}

Status Pipeline::Collect(const ManifestFunction& function, const TensorMap& outputs, int64_t length,
                         StepResult& result) const {
  std::vector<const Tensor*> parts;  // slices of the vocabulary, in order
  for (const ManifestFeature& feature : function.outputs) {
    const auto it = outputs.find(feature.name);
    if (it == outputs.end()) continue;
    const Tensor& tensor = it->second;
    switch (feature.kind) {
      case FeatureKind::kLogits:
        parts.push_back(&tensor);
        break;
      case FeatureKind::kNextToken:
        result.next_token = tensor.GetInt(tensor.size() - 1);
        break;
      case FeatureKind::kTopValues:
      case FeatureKind::kTopIndices: {
        const int64_t k = tensor.shape().back();
        if (feature.kind == FeatureKind::kTopValues) result.top_logits.clear();
        if (feature.kind == FeatureKind::kTopIndices) result.top_tokens.clear();
        for (int64_t i = tensor.size() - k; i < tensor.size(); ++i) {
          if (feature.kind == FeatureKind::kTopValues) result.top_logits.push_back(tensor.GetFloat(i));
          if (feature.kind == FeatureKind::kTopIndices) result.top_tokens.push_back(tensor.GetInt(i));
        }
        if (!result.top_tokens.empty()) result.next_token = result.top_tokens.front();
        break;
      }
      default:
        break;
    }
  }
  if (parts.empty()) return Status::Ok();
  const int64_t rows = parts.front()->shape()[parts.front()->shape().size() - 2];
  int64_t first = 0;
  if (rows != length || logit_rows_ == LogitRows::kLast) {  // of the last token only, by contract or by wish
    result.logits.clear();
    result.logit_rows = 0;
    first = logit_rows_ == LogitRows::kLast ? rows - 1 : 0;
  }
  int64_t vocabulary = 0;
  for (const Tensor* part : parts) vocabulary += part->shape().back();
  size_t at = result.logits.size();
  result.logits.resize(at + static_cast<size_t>((rows - first) * vocabulary));
  for (int64_t row = first; row < rows; ++row) {
    for (const Tensor* part : parts) {
      const int64_t width = part->shape().back();
      CopyFloats(*part, row * width, width, result.logits.data() + at);
      at += static_cast<size_t>(width);
    }
  }
  result.logit_rows += rows - first;
  return Status::Ok();
}

}  // namespace milwright
