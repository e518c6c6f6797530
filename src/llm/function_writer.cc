#include "llm/function_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "llm/layers.h"

namespace milwright {
namespace {

class FunctionWriter {
 public:
  FunctionWriter(Function& function, const BuildPlan& build, const StageSpec& stage, const CachePlan& caches,
                 const FunctionOption& option, WeightSource& weights, ManifestFunction& manifest)
      : build_(build),
        stage_(stage),
        function_(function),
        b_(function.body()),
        blocks_(b_, build.model, weights, build.style, build.compute,
                build.contract.flexible_length ? kUnknownDim : option.length),
        context_(blocks_, build, stage, caches, manifest),
        manifest_(manifest) {}

  Status Write() {
    Value* stream = Begin();
    Value* per_layer = PerLayerInputs(stream);
    for (int64_t i = stage_.first_layer; i < stage_.last_layer && blocks_.status().ok(); ++i) {
      stream = WriteLayer(context_, i, stream, per_layer);
      stream = Deepstack(i, stream);
    }
    if (stage_.heads) {
      Head(stream);
    } else {
      Output(FeatureKind::kHidden, blocks_.FromStream(stream));
      if (stage_.first_body && per_layer != nullptr && stage_.last_layer < build_.model.layer_count()) {
        Output(FeatureKind::kPerLayerCombined, per_layer);
      }
    }
    SharedOutputs();
    for (const FunctionContext::CacheOutput& cache : context_.Finish()) Add(cache.name, cache.value);
    MW_RETURN_IF_ERROR(blocks_.status());
    return NameOutputs();
  }

 private:
  struct Pending {
    std::string name;
    Value* value;
  };

  Value* Begin() {
    Value* tokens = nullptr;
    if (stage_.embeds && build_.embedding == EmbeddingKind::kInGraph) {
      tokens = b_.Op("gather",
                     {{"x", blocks_.Weight(kNoLayer, "embedding", build_.compute)},
                      {"indices", context_.Input(FeatureKind::kTokenIds)},
                      {"axis", Literal::Int32(0)}},
                     "embedded");
      tokens = blocks_.Multiply(tokens, build_.model.embedding_scale, "embedded_scaled");
    } else {
      tokens = blocks_.Cast(context_.Input(FeatureKind::kHidden), build_.compute);
    }
    if (stage_.first_body && build_.model.learned_positions > 0) {
      Value* rows = b_.Op("gather",
                          {{"x", blocks_.Weight(kNoLayer, "position_embedding", build_.compute)},
                           {"indices", context_.Positions()},
                           {"axis", Literal::Int32(0)}},
                          "position_rows");
      rows = blocks_.Reshape(rows, {1, blocks_.length(), build_.model.hidden}, "position_embedding");
      tokens = blocks_.Binary("add", tokens, rows, "positioned");
    }
    return blocks_.ToStream(tokens);
  }

  Value* PerLayerInputs(Value* stream) {
    if (build_.model.per_layer_size == 0 || stage_.role != PackageRole::kBody) return nullptr;
    if (!stage_.first_body) return blocks_.Cast(context_.Input(FeatureKind::kPerLayerCombined), build_.compute);
    Value* raw = nullptr;
    if (stage_.embeds && build_.embedding == EmbeddingKind::kInGraph) {
      raw = b_.Op("gather",
                  {{"x", blocks_.Weight(kNoLayer, "per_layer_embedding", build_.compute)},
                   {"indices", context_.Input(FeatureKind::kTokenIds)},
                   {"axis", Literal::Int32(0)}},
                  "per_layer_rows");
      raw = blocks_.Multiply(raw, std::sqrt(static_cast<double>(build_.model.per_layer_size)), "per_layer_raw_scaled");
    } else {
      raw = blocks_.Cast(context_.Input(FeatureKind::kPerLayerInputs), build_.compute);
    }
    return WritePerLayerInputs(context_, raw, stream);
  }

  /// Image features are added behind the first layers, at image positions only (families.md, section 5).
  Value* Deepstack(int64_t layer, Value* stream) {
    if (layer >= build_.model.deepstack_layers || !context_.Offers(FeatureKind::kDeepstack)) return stream;
    Value* features = blocks_.Cast(context_.Input(FeatureKind::kDeepstack, layer), build_.compute);
    const bool by_token = context_.Offers(FeatureKind::kVisualMask);
    Value* active =
        blocks_.Cast(context_.Input(by_token ? FeatureKind::kVisualMask : FeatureKind::kVisualActive), build_.compute);
    Value* masked = blocks_.Binary("mul", features, active, Blocks::Name(layer, "deepstack"));
    return blocks_.Binary("add", stream, blocks_.ToStream(masked), Blocks::Name(layer, "deepstack_sum"));
  }

  void Head(Value* stream) {
    const auto offers = [&](FeatureKind kind) { return build_.form.FindOutput(kind, stage_.role) != nullptr; };
    const FeatureKind result = build_.head.kind == HeadKind::kLogits   ? FeatureKind::kLogits
                               : build_.head.kind == HeadKind::kArgmax ? FeatureKind::kNextToken
                                                                       : FeatureKind::kTopValues;
    if (OneRow(result) && blocks_.length() != 1) {
      const int64_t axis = blocks_.ane() ? 3 : 1;
      stream = blocks_.Slice(stream, axis, -1, Blocks::kToEnd, "last_token");
      // Further blocks see one token.
      Blocks last(b_, build_.model, blocks_.weights(), build_.style, build_.compute, 1);
      HeadOf(last, stream, offers(FeatureKind::kNormedHidden), offers(FeatureKind::kTokenLogit));
      if (!last.status().ok()) blocks_.Fail(last.status());
      return;
    }
    HeadOf(blocks_, stream, offers(FeatureKind::kNormedHidden), offers(FeatureKind::kTokenLogit));
  }

  /// Whether the contract has this output for the last token only: its shape, say "1, 1, V", does not speak of T.
  bool OneRow(FeatureKind kind) const {
    const ContractFeature* feature = build_.form.FindOutput(kind, stage_.role);
    return feature != nullptr && feature->shape.find('T') == std::string::npos &&
           feature->shape.find('?') == std::string::npos;
  }

  void HeadOf(Blocks& blocks, Value* stream, bool with_hidden, bool with_logit) {
    Value* normed = blocks.Norm(stream, kNoLayer, "final_norm");
    const std::string_view role = build_.model.tied_head ? "embedding" : "head";
    Value* logits = blocks.FromStream(blocks.Project(normed, kNoLayer, role));
    if (const double cap = build_.model.final_softcap; cap > 0) {
      logits = blocks.Multiply(logits, 1 / cap, "logits_divided");
      logits = b_.Op("tanh", {{"x", logits}}, "logits_tanh");
      logits = blocks.Multiply(logits, cap, "logits_capped");
    }
    switch (build_.head.kind) {
      case HeadKind::kLogits:
        LogitsOutputs(blocks, logits);
        return;
      case HeadKind::kArgmax: {
        Value* best =
            b_.Op("reduce_argmax", {{"x", logits}, {"axis", Literal::Int32(-1)}, {"keep_dims", Literal::Bool(false)}},
                  "best_token");
        if (OneRow(FeatureKind::kNextToken)) best = blocks.Reshape(best, {1}, "best_token_1d");
        Output(FeatureKind::kNextToken, best);
        if (with_logit) {
          Value* top =
              b_.Op("reduce_max", {{"x", logits}, {"axes", Literal::Int32s({-1})}, {"keep_dims", Literal::Bool(false)}},
                    "best_logit");
          Output(FeatureKind::kTokenLogit, blocks.Reshape(top, {1}, "best_logit_1d"));
        }
        if (with_hidden) Output(FeatureKind::kNormedHidden, blocks.FromStream(normed));
        return;
      }
      case HeadKind::kTopK: {
        std::vector<Value*> top = b_.Ops("topk",
                                         {{"x", logits},
                                          {"k", Literal::Int32(build_.head.k)},
                                          {"axis", Literal::Int32(-1)},
                                          {"ascending", Literal::Bool(false)}},
                                         "top");
        top.resize(2, nullptr);
        Output(FeatureKind::kTopValues, top[0]);
        Output(FeatureKind::kTopIndices, top[1]);
        return;
      }
    }
  }

  /// The logits, in slices of the vocabulary when the build wants several.
  void LogitsOutputs(Blocks& blocks, Value* logits) {
    if (build_.head_splits == 1) {
      Output(FeatureKind::kLogits, logits);
      return;
    }
    std::vector<int64_t> sizes;
    const int64_t splits = build_.head_splits;
    for (int64_t i = 0; i < splits; ++i) {
      sizes.push_back(build_.model.vocabulary * (i + 1) / splits - build_.model.vocabulary * i / splits);
    }
    const std::vector<Value*> parts = blocks.Split(logits, sizes, 2, "logits_part");
    for (int64_t i = 0; i < splits; ++i) {
      Output(FeatureKind::kLogits, parts[static_cast<size_t>(i)], i + 1, {{"V", sizes[static_cast<size_t>(i)]}});
    }
  }

  /// K and V of layers here that layers of later chunks attend to.
  void SharedOutputs() {
    std::set<int64_t> wanted;
    for (int64_t i = stage_.last_layer; i < build_.model.layer_count(); ++i) {
      const LayerPlan& l = build_.model.layers[static_cast<size_t>(i)];
      if (l.mixer == Mixer::kAttention && l.kv_source != i && l.kv_source >= stage_.first_layer &&
          l.kv_source < stage_.last_layer) {
        wanted.insert(l.kv_source);
      }
    }
    for (const int64_t layer : wanted) {
      if (!blocks_.status().ok()) return;
      const FunctionContext::View view = context_.Shared(layer);
      if (view.key == nullptr) return;
      const Shape& shape = view.key->type.shape();
      const Symbols extra = {{"K", shape[1]}, {"S", shape[2]}, {"D", shape[3]}};
      Output(FeatureKind::kSharedKey, view.key, layer, extra);
      Output(FeatureKind::kSharedValue, view.value, layer, extra);
    }
  }

  /// An output of the contract. Its shape and type are checked against the contract's.
  void Output(FeatureKind kind, Value* value, int64_t index = -1, const Symbols& extra = {}) {
    if (!blocks_.status().ok()) return;
    const ContractFeature* feature = build_.form.FindOutput(kind, stage_.role);
    if (feature == nullptr) {
      blocks_.Fail({ErrorCode::kUsage, fmt::format("contract {} has no output for the {} that this build gives",
                                                   build_.contract.name, FeatureKindName(kind))});
      return;
    }
    Symbols symbols = PlanSymbols(build_.model, kNoLayer);
    if (blocks_.length() != kUnknownDim) symbols["T"] = blocks_.length();
    symbols["C"] = build_.caches.context_length;
    symbols["k"] = build_.head.k;
    symbols["j"] = index;
    if (index >= 0) symbols["n"] = index;
    for (const auto& [name, size] : extra) symbols[name] = size;
    std::string name = ExpandPattern(feature->name, symbols);
    if (const size_t unnumbered = name.find("{n}"); unnumbered != std::string::npos) name.erase(unnumbered, 3);
    value = blocks_.Cast(value, FeatureDataType(*feature, build_.compute));
    const auto shape = EvaluateShape(feature->shape, symbols);
    if (!shape.ok()) {
      blocks_.Fail(shape.status());
      return;
    }
    if (value != nullptr && value->type.shape() != *shape) {
      blocks_.Fail(
          {ErrorCode::kUsage,
           fmt::format("contract {}: output {} has shape {} by the contract, but the graph gives {}",
                       build_.contract.name, name, ShapeToString(*shape), ShapeToString(value->type.shape()))});
      return;
    }
    Add(name, value);
    if (value == nullptr) return;
    ManifestFeature entry;
    entry.kind = kind;
    entry.name = name;
    entry.type = value->type.tensor;
    entry.index = index;
    manifest_.outputs.push_back(std::move(entry));
  }

  void Add(std::string name, Value* value) { pending_.push_back({std::move(name), value}); }

  /// Gives the outputs the contract's names. A value that already is an output, an input, or the data of a state write
  /// is passed through an identity: outputs that alias a state write crash Core ML's loader (state-semantics.md, T07).
  Status NameOutputs() {
    std::set<Value*> taken;
    std::vector<Value*> outputs;
    for (Pending& output : pending_) {
      Value* value = output.value;
      const bool written = std::any_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
        return use.op != nullptr && use.op->type() == "write_state";
      });
      const bool constant = value->producer() == nullptr || value->producer()->type() == "const";
      if (constant || written || !taken.insert(value).second) {
        value = b_.Op("identity", {{"x", value}}, value->name + "_out");
        MW_RETURN_IF_ERROR(b_.status());
        taken.insert(value);
      }
      outputs.push_back(value);
    }
    const auto names = function_.Names();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i]->name == pending_[i].name) continue;
      if (names.count(pending_[i].name) != 0) {
        return {ErrorCode::kUsage, fmt::format("contract {}: the name '{}' of an output is that of another value",
                                               build_.contract.name, pending_[i].name)};
      }
      outputs[i]->name = pending_[i].name;
    }
    function_.body().SetOutputs(outputs);
    return Status::Ok();
  }

  const BuildPlan& build_;
  const StageSpec& stage_;
  Function& function_;
  Builder b_;
  Blocks blocks_;
  FunctionContext context_;
  ManifestFunction& manifest_;
  std::vector<Pending> pending_;
};

}  // namespace

Result<ManifestFunction> WriteFunction(Program& program, const BuildPlan& build, const StageSpec& stage,
                                       const CachePlan& caches, const FunctionOption& option, WeightSource& weights) {
  ManifestFunction manifest;
  manifest.name = option.name;
  manifest.length = build.contract.flexible_length ? kUnknownDim : option.length;
  Function* function = program.AddFunction(option.name, build.opset);
  FunctionWriter writer(*function, build, stage, caches, option, weights, manifest);
  MW_RETURN_IF_ERROR(writer.Write());
  return manifest;
}

}  // namespace milwright
