#include "llm/detect.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/file_io.h"
#include "base/sha256.h"
#include "format/package.h"
#include "llm/families.h"
#include "llm/match_contract.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMaxTextBytes = 16 << 20;

bool IsPackageName(const std::string& name) { return name.ends_with(".mlpackage") || name.ends_with(".mlmodelc"); }

std::string Stem(const std::string& file) { return fs::path(file).stem().string(); }

/// The number of a chunk in a package's name: behind "chunk" (chunk_3, chunk_02of04, chunk_b, chunkB), else at the end.
struct ChunkNumber {
  std::optional<int64_t> number;  ///< letters count from 0
  std::optional<int64_t> of;      ///< "02of04"
};

ChunkNumber NumberOf(const std::string& file) {
  const std::string stem = Stem(file);
  ChunkNumber result;
  const auto read = [&stem](size_t at) -> std::pair<std::optional<int64_t>, size_t> {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(stem.data() + at, stem.data() + stem.size(), value);
    if (error != std::errc() || value < 0) return {std::nullopt, at};
    return {value, static_cast<size_t>(end - stem.data())};
  };
  size_t at = stem.rfind("chunk");
  if (at == std::string::npos) {
    at = stem.find_last_not_of("0123456789");
    result.number = read(at == std::string::npos ? 0 : at + 1).first;
    return result;
  }
  at += std::string_view("chunk").size();
  if (at < stem.size() && stem[at] == '_') ++at;
  const auto [number, end] = read(at);
  result.number = number;
  if (number.has_value() && stem.compare(end, 2, "of") == 0) result.of = read(end + 2).first;
  if (!number.has_value() && at + 1 == stem.size()) {
    const char letter = static_cast<char>(stem[at] | 0x20);
    if (letter >= 'a' && letter <= 'z') result.number = letter - 'a';
  }
  return result;
}

/// Descriptions may leave the shapes of outputs out; the program has them.
void StateOutputShapes(ModelSpec& spec) {
  for (FunctionDescription& description : spec.description.functions) {
    const Function* function = spec.program.FindFunction(description.name);
    if (function == nullptr) continue;
    for (FeatureDescription& output : description.outputs) {
      const auto it = std::ranges::find(function->body().outputs(), output.name, &Value::name);
      if (output.type.array.shape.empty() && it != function->body().outputs().end()) {
        output.type.array.shape = (*it)->type.shape();
      }
    }
  }
}

class FolderDetector {
 public:
  explicit FolderDetector(const std::string& folder) : folder_(folder) {}

  Result<Manifest> Run() {
    MW_RETURN_IF_ERROR(ReadPackages());
    MW_RETURN_IF_ERROR(ReadSideFiles());
    MW_RETURN_IF_ERROR(ChooseForm());
    MW_RETURN_IF_ERROR(OrderStages());
    MW_RETURN_IF_ERROR(sizes_.status());
    MW_RETURN_IF_ERROR(ReadPlan());
    MW_RETURN_IF_ERROR(sizes_.status());
    MW_RETURN_IF_ERROR(CheckFlow());
    MW_RETURN_IF_ERROR(Describe());
    MW_RETURN_IF_ERROR(FindSidecars());
    return std::move(manifest_);
  }

 private:
  [[nodiscard]] std::string Path(std::string_view name) const { return fmt::format("{}/{}", folder_, name); }
  [[nodiscard]] bool Exists(std::string_view name) const {
    struct stat info;
    return ::stat(Path(name).c_str(), &info) == 0;
  }
  static Status Mixed(const std::string& what) {
    return {ErrorCode::kUnreadable, "the parts are not of one build: " + what};
  }

  Status ReadPackages() {
    MW_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder_));
    Sha256 identity;
    for (const std::string& name : names) {
      if (!IsPackageName(name)) continue;
      OpenOptions options;
      options.verify = false;  // the engine does
      MW_ASSIGN_OR_RETURN(ModelSpec spec, OpenModel(Path(name), options));
      StateOutputShapes(spec);
      packages_.push_back({name, std::move(spec.description)});
      // What tells builds apart without reading all weights.
      MW_ASSIGN_OR_RETURN(const PackageFiles files, LocatePackage(Path(name)));
      MW_ASSIGN_OR_RETURN(const std::string model, ReadFile(files.model_file, UINT64_MAX));
      identity.Update(std::string_view(model));
      struct stat weights {};
      if (!files.weight_file.empty()) ::stat(files.weight_file.c_str(), &weights);
      const std::string facts =
          fmt::format("{} {} {}.{}", name, weights.st_size, weights.st_mtim.tv_sec, weights.st_mtim.tv_nsec);
      identity.Update(std::string_view(facts));
    }
    if (packages_.empty()) {
      return {ErrorCode::kUnreadable,
              fmt::format("{}: has neither {} nor any .mlpackage or .mlmodelc", folder_, kManifestName)};
    }
    manifest_.provenance.checkpoint_hash = ToHex(identity.Finish());
    return Status::Ok();
  }

  /// What model_config.json and meta.yaml say of sizes, to be compared with the packages.
  Status ReadSideFiles() {
    if (Exists("model_config.json")) {
      MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(Path("model_config.json"), kMaxTextBytes));
      const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) return {ErrorCode::kUnreadable, Path("model_config.json") + ": is not a JSON object"};
      constexpr std::pair<const char*, const char*> kKeys[] = {{"context_length", "context length"},
                                                               {"hidden_size", "hidden size"},
                                                               {"vocab_size", "vocabulary"},
                                                               {"head_dim", "head size"},
                                                               {"num_key_value_heads", "KV heads"}};
      for (const auto& [key, name] : kKeys) {
        const auto it = json.find(key);
        if (it == json.end() || !it->is_number_integer()) continue;
        sizes_.Bind(name, it->get<int64_t>(), fmt::format("model_config.json ('{}')", key));
      }
    }
    if (!Exists("meta.yaml")) return Status::Ok();
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(Path("meta.yaml"), kMaxTextBytes));
    // Of YAML, only "key: number" lines matter here.
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      const std::string_view line = std::string_view(text).substr(start, end - start);
      start = end + 1;
      const size_t key = line.find_first_not_of(" -");
      const size_t colon = line.find(':');
      if (key == std::string_view::npos || colon == std::string_view::npos || colon < key) continue;
      const size_t value = line.find_first_not_of(' ', colon + 1);
      int64_t number = 0;
      if (value == std::string_view::npos ||
          std::from_chars(line.data() + value, line.data() + line.size(), number).ec != std::errc()) {
        continue;
      }
      meta_[std::string(line.substr(key, colon - key))] = number;
    }
    if (const auto context = Meta("context_length"))
      sizes_.Bind("context length", *context, MetaPlace("context_length"));
    return Status::Ok();
  }

  [[nodiscard]] std::optional<int64_t> Meta(const std::string& key) const {
    const auto it = meta_.find(key);
    return it == meta_.end() ? std::nullopt : std::optional(it->second);
  }
  static std::string MetaPlace(std::string_view key) { return fmt::format("meta.yaml ('{}')", key); }

  /// The first form of a known contract that fits all packages; where none does, the complaint of the one that fits
  /// most of them.
  Status ChooseForm() {
    size_t best = 0;
    Status complaint;
    for (const Contract& contract : KnownContracts()) {
      for (const ContractForm& form : contract.forms) {
        AgreedSizes sizes = sizes_;
        std::vector<MatchedPackage> matched;
        Status status;
        for (const PackageFile& package : packages_) {
          auto one = MatchPackage(contract, form, package, sizes);
          if (!one.ok()) {
            if (status.ok()) status = one.status();
            continue;
          }
          matched.push_back(*std::move(one));
        }
        if (status.ok()) {
          contract_ = &contract;
          form_ = &form;
          matched_ = std::move(matched);
          sizes_ = std::move(sizes);
          return Status::Ok();
        }
        if (complaint.ok() || matched.size() > best) {
          best = matched.size();
          complaint = status;
        }
      }
    }
    return complaint.WithContext(folder_ + ": no known contract fits its packages; nearest");
  }

  Status OrderStages() {
    struct Body {
      const PackageFile* package;
      MatchedPackage* matched;
      ChunkNumber number;
    };
    std::vector<Body> bodies;
    ManifestStage embedding, head;
    embedding.role = PackageRole::kEmbedding;
    head.role = PackageRole::kHead;
    for (size_t i = 0; i < packages_.size(); ++i) {
      MatchedPackage& matched = matched_[i];
      if (matched.role == PackageRole::kBody) {
        bodies.push_back({&packages_[i], &matched, NumberOf(packages_[i].name)});
        continue;
      }
      ManifestStage& stage = matched.role == PackageRole::kEmbedding ? embedding : head;
      if (!stage.functions.empty()) {
        return Mixed(fmt::format("both {} and {} are the {}", stage.functions.front().package, packages_[i].name,
                                 PackageRoleName(matched.role)));
      }
      stage.functions = matched.functions;
    }
    if (bodies.empty()) return {ErrorCode::kUnreadable, folder_ + ": no package holds layers"};
    std::ranges::stable_sort(bodies, {}, [](const Body& body) { return body.number.number.value_or(0); });
    for (size_t i = 0; i < bodies.size(); ++i) {
      const Body& body = bodies[i];
      const Body* before = i > 0 ? &bodies[i - 1] : nullptr;
      if (before != nullptr) {
        const int64_t expected = before->number.number.value_or(0) + 1;
        if (!body.number.number.has_value() || *body.number.number != expected) {
          return Mixed(fmt::format("chunk {} is missing between {} and {}", expected, before->package->name,
                                   body.package->name));
        }
        MW_RETURN_IF_ERROR(SameFunctions(*before->package, *before->matched, *body.package, *body.matched));
      }
      if (body.number.of.has_value() && *body.number.of != static_cast<int64_t>(bodies.size())) {
        return Mixed(fmt::format("{} is one of {} chunks, but the folder has {} ({} the last)", body.package->name,
                                 *body.number.of, bodies.size(), bodies.back().package->name));
      }
    }
    if (const auto first = bodies.front().number.number; bodies.size() > 1 && *first > 1) {
      return Mixed(fmt::format("the first chunk is {}: those before it are missing", bodies.front().package->name));
    }
    if (const auto chunks = Meta("num_chunks"); chunks.has_value() && *chunks != static_cast<int64_t>(bodies.size())) {
      return Mixed(fmt::format("{} is {}, but the folder has {} chunks ({} the last)", MetaPlace("num_chunks"), *chunks,
                               bodies.size(), bodies.back().package->name));
    }
    if (const auto batch = Meta("batch_size"); batch.has_value() && *batch > 1) {
      for (const ManifestFunction& function : bodies.front().matched->functions) {
        if (function.length == 1 || function.length == *batch) continue;
        return Mixed(fmt::format("{} is {}, but function '{}' of {} takes {} tokens", MetaPlace("batch_size"), *batch,
                                 function.name, function.package, function.length));
      }
    }
    if (!embedding.functions.empty()) manifest_.stages.push_back(std::move(embedding));
    for (const Body& body : bodies) {
      ManifestStage stage;
      stage.functions = body.matched->functions;
      manifest_.stages.push_back(std::move(stage));
    }
    if (!head.functions.empty()) manifest_.stages.push_back(std::move(head));
    return Status::Ok();
  }

  static Status SameFunctions(const PackageFile& a, const MatchedPackage& x, const PackageFile& b,
                              const MatchedPackage& y) {
    const auto lengths = [](const MatchedPackage& matched) {
      std::set<int64_t> all;
      for (const ManifestFunction& function : matched.functions) all.insert(function.length);
      return all;
    };
    const std::set<int64_t> of_x = lengths(x), of_y = lengths(y);
    if (of_x == of_y) return Status::Ok();
    return Mixed(fmt::format("{} has functions of {} tokens, but {} of {}", a.name, fmt::join(of_x, ", "), b.name,
                             fmt::join(of_y, ", ")));
  }

  /// The checkpoint's config.json, where there is one, and what it says of sizes.
  Status ReadPlan() {
    const auto context = sizes_.Find("context length");
    for (const char* name : {"config.json", "hf_model/config.json"}) {
      if (!Exists(name)) continue;
      MW_ASSIGN_OR_RETURN(ModelPlan plan, ReadModelPlan(Path(name), context.value_or(1)));
      const auto place = [name](const char* what) { return fmt::format("{} ({})", name, what); };
      sizes_.Bind("hidden size", plan.hidden, place("hidden size"));
      sizes_.Bind("vocabulary", plan.vocabulary, place("vocabulary"));
      for (const RopeTable& rope : plan.ropes) {
        const std::string size = rope.name.empty() ? "rotary size" : rope.name + " rotary size";
        if (sizes_.Find(size).has_value()) sizes_.Bind(size, rope.rotary_size(), place("rotary embedding"));
      }
      plan_ = std::move(plan);
      return Status::Ok();
    }
    return Status::Ok();
  }

  /// Whether every stage gets what it takes from the stages before it.
  Status CheckFlow() {
    std::map<std::pair<FeatureKind, int64_t>, std::string> made;  // by which package
    const auto is_passed = [](FeatureKind kind) {
      return kind == FeatureKind::kPerLayerCombined || kind == FeatureKind::kSharedKey ||
             kind == FeatureKind::kSharedValue;
    };
    int64_t last_layer = -1;
    std::string last_layer_of;
    for (const ManifestStage& stage : manifest_.stages) {
      const ManifestFunction& function = stage.functions.front();
      for (const ManifestFeature& input : function.inputs) {
        if (!is_passed(input.kind) || made.contains({input.kind, input.index})) continue;
        const std::string* maker = nullptr;
        for (const ManifestStage& other : manifest_.stages) {
          for (const ManifestFeature& output : other.functions.front().outputs) {
            if (output.kind == input.kind && output.index == input.index) maker = &other.functions.front().package;
          }
        }
        if (maker == nullptr) return Mixed(fmt::format("nothing gives input '{}' of {}", input.name, function.package));
        return Mixed(fmt::format("the chunks are out of order: input '{}' of {} is an output of {}, which comes later",
                                 input.name, function.package, *maker));
      }
      for (const ManifestFeature& output : function.outputs) made[{output.kind, output.index}] = function.package;
      // Caches of single layers tell which layers a chunk has.
      for (const ManifestCache& cache : function.caches) {
        const size_t digit = cache.input.find_last_not_of("0123456789");
        int64_t layer = -1;
        const char* begin = cache.input.data() + digit + 1;
        if (std::from_chars(begin, cache.input.data() + cache.input.size(), layer).ec != std::errc()) continue;
        if (layer < last_layer && function.package != last_layer_of) {
          return Mixed(fmt::format("the chunks are out of order: {} has layer {}, but {} before it layer {}",
                                   function.package, layer, last_layer_of, last_layer));
        }
        if (layer > last_layer) {
          last_layer = layer;
          last_layer_of = function.package;
        }
      }
      const bool is_last = &stage == &manifest_.stages.back();
      const bool has_hidden = std::ranges::any_of(
          function.outputs, [](const ManifestFeature& output) { return output.kind == FeatureKind::kHidden; });
      if (!is_last && !has_hidden) {
        return Mixed(
            fmt::format("{} gives no hidden state for {}", function.package, (&stage + 1)->functions.front().package));
      }
      if (is_last && has_hidden && function.outputs.size() == 1) {
        return Mixed(fmt::format("{} is the last, but gives a hidden state: the head is missing", function.package));
      }
    }
    return Status::Ok();
  }

  Status Describe() {
    manifest_.contract = contract_->name;
    manifest_.mask_fill = contract_->mask_fill;
    manifest_.shared_state = contract_->state_over_all_layers;
    const auto missing = [this](const char* what) {
      return Status(ErrorCode::kUnreadable,
                    fmt::format("{}: its packages do not tell the {}; put the checkpoint's config.json beside them",
                                folder_, what));
    };
    auto context = sizes_.Find("context length");
    // Where all layers are sliding there may be no other mask: its columns are the window, or all positions.
    const auto columns = sizes_.Find("columns of the sliding mask");
    if (!context.has_value() && columns.has_value() && !(plan_.has_value() && plan_->window == *columns)) {
      context = columns;
    }
    if (!context.has_value() && plan_.has_value()) context = plan_->max_positions;
    if (!context.has_value()) return missing("context length");
    manifest_.context_length = *context;
    const auto hidden = sizes_.Find("hidden size");
    const auto vocabulary = sizes_.Find("vocabulary");
    if (!vocabulary.has_value()) return missing("vocabulary");
    manifest_.vocabulary = *vocabulary;
    manifest_.hidden = hidden.value_or(1);  // used by heads and sidecars only, which tell it
    manifest_.window = plan_.has_value() ? plan_->window : columns.value_or(0);
    if (plan_.has_value()) {
      manifest_.family = plan_->family;
      manifest_.eos_ids = plan_->eos_ids;
      manifest_.ropes = plan_->ropes;
    }
    manifest_.provenance.notes = {"found from the packages; there was no " + std::string(kManifestName)};
    bool ring = false;
    bool rotary = false;
    EachInput([&](ManifestFeature& input) {
      ring = ring || input.kind == FeatureKind::kRingPosition;
      rotary = rotary || input.kind == FeatureKind::kCosine;
    });
    manifest_.ring_limit = ring;
    if (rotary && !plan_.has_value()) return missing("rotary embedding");
    // A contract with one mask serves models whose attention layers are all of one kind.
    const bool all_sliding =
        plan_.has_value() && plan_->HasSliding() && std::ranges::all_of(plan_->layers, [](const LayerPlan& layer) {
          return layer.mixer != Mixer::kAttention || layer.sliding;
        });
    EachInput([&](ManifestFeature& input) {
      const bool sliding = input.kind == FeatureKind::kSlidingMask || (input.kind == FeatureKind::kMask && all_sliding);
      if (!sliding) return;
      const int64_t columns = input.type.shape.back();
      input.window = manifest_.window > 0 ? manifest_.window : columns;
      if (columns == kUnknownDim || columns >= manifest_.context_length) return;
      input.columns = ring ? MaskColumns::kRing : MaskColumns::kShift;
    });
    for (const std::string_view name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      if (Exists(name)) manifest_.tokenizer_files.emplace_back(name);
    }
    return Status::Ok();
  }

  void EachInput(const std::function<void(ManifestFeature&)>& visit) {
    for (ManifestStage& stage : manifest_.stages) {
      for (ManifestFunction& function : stage.functions) {
        for (ManifestFeature& input : function.inputs) visit(input);
      }
    }
  }

  /// Tables for inputs of the first stage that no stage gives.
  Status FindSidecars() {
    for (const ManifestFeature& input : manifest_.stages.front().functions.front().inputs) {
      if (input.kind == FeatureKind::kHidden) {
        const double scale = plan_.has_value() ? plan_->embedding_scale : 1;
        MW_ASSIGN_OR_RETURN(manifest_.embedding, Sidecar(contract_->embedding_sidecar, input, scale));
      } else if (input.kind == FeatureKind::kPerLayerInputs && plan_.has_value()) {
        MW_ASSIGN_OR_RETURN(
            manifest_.per_layer_embedding,
            Sidecar(std::string(kPerLayerSidecar), input, std::sqrt(static_cast<double>(plan_->per_layer_size))));
      }
    }
    return Status::Ok();
  }

  Result<ManifestSidecar> Sidecar(const std::string& file, const ManifestFeature& input, double scale) const {
    struct stat info;
    if (::stat(Path(file).c_str(), &info) != 0) {
      return Status(ErrorCode::kUnreadable,
                    fmt::format("{}: is missing; input '{}' of {} takes rows of it", Path(file), input.name,
                                manifest_.stages.front().functions.front().package));
    }
    const int64_t columns = input.type.shape.back();
    const int64_t row = 2 * columns;
    if (info.st_size == 0 || info.st_size % row != 0) {
      return Mixed(
          fmt::format("{} has {} bytes, which are no rows of {} fp16 numbers, the last size of input '{}' of {}", file,
                      info.st_size, columns, input.name, manifest_.stages.front().functions.front().package));
    }
    const int64_t rows = info.st_size / row;
    if (rows < manifest_.vocabulary && file == contract_->embedding_sidecar) {
      return Mixed(fmt::format("{} has {} rows of {} numbers, but the vocabulary is {}", file, rows, columns,
                               manifest_.vocabulary));
    }
    return ManifestSidecar{file, rows, columns, scale};
  }

  const std::string folder_;
  std::vector<PackageFile> packages_;
  std::map<std::string, int64_t> meta_;
  AgreedSizes sizes_;
  const Contract* contract_ = nullptr;
  const ContractForm* form_ = nullptr;
  std::vector<MatchedPackage> matched_;
  std::optional<ModelPlan> plan_;
  Manifest manifest_;
};

}  // namespace

Result<Manifest> OpenManifest(const std::string& folder) {
  struct stat info;
  if (::stat(fmt::format("{}/{}", folder, kManifestName).c_str(), &info) == 0) return ReadManifest(folder);
  return DetectManifest(folder);
}

Result<Manifest> DetectManifest(const std::string& folder) { return FolderDetector(folder).Run(); }

Status CheckPackage(const ManifestFunction& function, const ModelSpec& spec) {
  const FunctionDescription* description = spec.description.Find(function.name);
  const auto error = [&](const std::string& what) {
    return Status(ErrorCode::kUnreadable, fmt::format("{}: {}; the package is of another build than {}",
                                                      function.package, what, kManifestName));
  };
  if (description == nullptr) return error(fmt::format("has no function '{}'", function.name));
  const auto check = [&](const std::vector<FeatureDescription>& described, const std::string& name,
                         const TensorType& type) -> Status {
    const auto it = std::ranges::find(described, name, &FeatureDescription::name);
    if (it == described.end()) return error(fmt::format("function '{}' has no '{}'", function.name, name));
    const ArrayFeature& array = it->type.array;
    const bool stated = !array.shape.empty();
    bool same = array.dtype == type.dtype && (!stated || array.shape.size() == type.shape.size());
    for (size_t i = 0; stated && same && i < type.shape.size(); ++i) {
      same = type.shape[i] == kUnknownDim || type.shape[i] == array.shape[i];
    }
    if (same) return Status::Ok();
    return error(fmt::format("'{}' of function '{}' is {}, but {} says {}", name, function.name,
                             TypeToString({array.dtype, array.shape}), kManifestName, TypeToString(type)));
  };
  for (const ManifestFeature& input : function.inputs) {
    MW_RETURN_IF_ERROR(check(description->inputs, input.name, input.type));
  }
  for (const ManifestFeature& output : function.outputs) {
    MW_RETURN_IF_ERROR(check(description->outputs, output.name, output.type));
  }
  for (const ManifestCache& cache : function.caches) {
    MW_RETURN_IF_ERROR(check(description->inputs, cache.input, cache.type));
  }
  for (const std::string& state : function.states) {
    const auto it = std::ranges::find(description->states, state, &FeatureDescription::name);
    if (it == description->states.end())
      return error(fmt::format("function '{}' has no state '{}'", function.name, state));
  }
  return Status::Ok();
}

}  // namespace milwright
