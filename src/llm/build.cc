#include "llm/build.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "format/package.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> kTokenizerFiles = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "generation_config.json",  "tokenizer.model"};
constexpr uint64_t kMaxTokenizerBytes = 256 << 20;

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path, error)) {
    return {ErrorCode::kIo, fmt::format("{}: cannot make the folder: {}", path, error.message())};
  }
  return Status::Ok();
}

uint64_t TreeBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file(error)) bytes += it->file_size(error);
  }
  return bytes;
}

class CheckpointBuild {
 public:
  explicit CheckpointBuild(const BuildOptions& options) : options_(options) {}

  Result<BuildReport> Run() {
    const auto start = std::chrono::steady_clock::now();
    MW_RETURN_IF_ERROR(Read());
    // The hash reads the checkpoint once more, beside the conversion.
    std::future<Result<std::string>> hash;
    if (options_.hash_checkpoint) {
      hash = std::async(std::launch::async, [file = file_] { return CheckpointHash(*file); });
    }
    Status status = Write();
    if (hash.valid()) {
      Result<std::string> digest = hash.get();
      if (status.ok() && !digest.ok()) status = digest.status();
      if (digest.ok()) manifest_.provenance.checkpoint_hash = *digest;
    }
    MW_RETURN_IF_ERROR(status);
    MW_RETURN_IF_ERROR(Finish());
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  std::string Output(std::string_view name) const { return fmt::format("{}/{}", options_.output, name); }

  Status WriteText(std::string_view name, std::string_view content) {
    MW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(Output(name)));
    MW_RETURN_IF_ERROR(file.file().Append(content));
    MW_RETURN_IF_ERROR(file.Commit(options_.durable));
    report_.other_files.emplace_back(name);
    return Status::Ok();
  }

  Status Read() {
    MW_ASSIGN_OR_RETURN(ModelPlan model, ReadModelPlan(options_.checkpoint + "/config.json", options_.context_length));
    MW_ASSIGN_OR_RETURN(Safetensors file, Safetensors::Open(options_.checkpoint));
    file_ = std::make_shared<const Safetensors>(std::move(file));
    const Family* family = FindFamily(model.family);
    MW_ASSIGN_OR_RETURN(CheckpointTensors tensors, BindTensors(*family, model, *file_));
    report_.family = model.family;
    report_.output = options_.output;
    report_.checkpoint_bytes = file_->TotalBytes();
    report_.ignored = tensors.ignored;
    report_.notes = model.notes;
    MW_ASSIGN_OR_RETURN(build_, PlanBuild(options_, model, tensors, report_.warnings, report_.notes));
    MW_RETURN_IF_ERROR(MakeFolder(options_.output));
    weights_.emplace(file_, std::move(tensors));
    return Status::Ok();
  }

  /// Functions by the contract's names.
  std::vector<FunctionOption> Functions(const StageSpec& stage) const {
    std::vector<FunctionOption> functions = options_.functions;
    const Contract& contract = build_.contract;
    for (FunctionOption& function : functions) {
      const std::string& pattern = function.length == 1 ? contract.decode_function : contract.prefill_function;
      if (!pattern.empty()) function.name = ExpandPattern(pattern, {{"T", function.length}});
    }
    if (stage.role == PackageRole::kHead) functions = {{"main", 1}};  // heads take one token
    return functions;
  }

  std::string PackageName(const StageSpec& stage, size_t chunk, size_t chunks) const {
    const Contract& contract = build_.contract;
    std::string name = stage.role == PackageRole::kEmbedding ? contract.embedding_package
                       : stage.role == PackageRole::kHead    ? contract.head_package
                       : build_.stages.size() == 1           ? contract.single_package
                                                             : contract.body_package;
    const auto replace = [&](std::string_view what, const std::string& by) {
      if (const size_t at = name.find(what); at != std::string::npos) name.replace(at, what.size(), by);
    };
    fs::path folder(options_.output);
    if (!folder.has_filename()) folder = folder.parent_path();
    replace("{prefix}", folder.filename().string());
    replace("{k}", std::to_string(chunk));
    replace("{k1}", fmt::format("{:02}", chunk + 1));
    replace("{n}", fmt::format("{:02}", chunks));
    replace("{letter}", std::string(1, static_cast<char>('a' + chunk % 26)));
    return name;
  }

  Status Write() {
    size_t chunks = 0, chunk = 0;
    for (const StageSpec& stage : build_.stages) chunks += stage.role == PackageRole::kBody ? 1 : 0;
    for (const StageSpec& stage : build_.stages) {
      ManifestStage entry;
      entry.role = stage.role;
      entry.first_layer = stage.first_layer;
      entry.last_layer = stage.last_layer;
      const std::string name = PackageName(stage, chunk, chunks);
      const std::vector<FunctionOption> functions = Functions(stage);
      if (options_.separate_functions && functions.size() > 1) {
        for (const FunctionOption& function : functions) {
          MW_RETURN_IF_ERROR(WritePackage(stage, {function}, fmt::format("{}_{}", name, function.name), entry));
        }
      } else {
        MW_RETURN_IF_ERROR(WritePackage(stage, functions, name, entry));
      }
      manifest_.stages.push_back(std::move(entry));
      if (stage.role == PackageRole::kBody) ++chunk;
    }
    return Status::Ok();
  }

  Status WritePackage(const StageSpec& stage, const std::vector<FunctionOption>& functions, const std::string& name,
                      ManifestStage& entry) {
    const std::string file = name + ".mlpackage";
    WriteOptions write;
    write.durable = options_.durable;
    MW_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(Output(file), write));
    weights_->SetSink([&writer](const TensorType& type, const std::function<Status(const EmitBytes&)>& fill) {
      return writer.AddWeight(type, fill);
    });
    std::vector<ManifestFunction> written;
    auto spec = BuildPackage(build_, stage, functions, *weights_, written);
    MW_RETURN_IF_ERROR(spec.status().ok() ? Status::Ok() : spec.status().WithContext(name));
    MW_RETURN_IF_ERROR(CheckContract(*spec, written).WithContext(name));
    spec->description.metadata.user_defined["com.milwright.tool"] = options_.tool;
    MW_RETURN_IF_ERROR(writer.Write(*spec));
    weights_->SetSink({});
    report_.packages.push_back({file, TreeBytes(Output(file))});
    for (ManifestFunction& function : written) {
      function.package = file;
      entry.functions.push_back(std::move(function));
    }
    return Status::Ok();
  }

  /// Writes a table of the checkpoint as fp16 rows.
  Result<ManifestSidecar> WriteTable(std::string_view role, const std::string& file, double scale) {
    MW_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::Create(Output(file)));
    MW_RETURN_IF_ERROR(weights_->Stream(kNoLayer, role, DataType::kFp16,
                                        [&](std::span<const std::byte> piece) { return out.file().Append(piece); }));
    MW_RETURN_IF_ERROR(out.Commit(options_.durable));
    report_.other_files.push_back(file);
    const Shape& shape = weights_->Find(kNoLayer, role)->shape;
    return ManifestSidecar{file, shape[0], shape[1], scale};
  }

  Status WriteSidecars() {
    const ModelPlan& model = build_.model;
    if (build_.embedding == EmbeddingKind::kSidecar && !build_.form.separate_embedding) {
      MW_ASSIGN_OR_RETURN(manifest_.embedding,
                          WriteTable("embedding", build_.contract.embedding_sidecar, model.embedding_scale));
      if (model.per_layer_size > 0) {
        MW_ASSIGN_OR_RETURN(manifest_.per_layer_embedding,
                            WriteTable("per_layer_embedding", std::string(kPerLayerSidecar),
                                       std::sqrt(static_cast<double>(model.per_layer_size))));
      }
    }
    if (!build_.contract.head_sidecars || model.family != "qwen3_5") return Status::Ok();
    MW_ASSIGN_OR_RETURN(std::vector<float> norm, weights_->Values(kNoLayer, "final_norm"));
    if (model.norm == NormKind::kRmsPlusOne) {
      for (float& value : norm) value += 1;
    }
    MW_ASSIGN_OR_RETURN(const Tensor half, Tensor::FromFloats({DataType::kFp16, {model.hidden}}, norm));
    const std::string_view bytes(reinterpret_cast<const char*>(half.bytes().data()), half.bytes().size());
    MW_RETURN_IF_ERROR(WriteText("final_norm.bin", bytes));
    const nlohmann::ordered_json meta = {{"rms_norm_eps", model.norm_eps},
                                         {"tie_word_embeddings", model.tied_head},
                                         {"vocab_size", model.vocabulary},
                                         {"hidden_size", model.hidden}};
    return WriteText("head_meta.json", meta.dump(2) + "\n");
  }

  Status CopyTokenizer() {
    for (const std::string_view name : kTokenizerFiles) {
      const std::string source = fmt::format("{}/{}", options_.checkpoint, name);
      struct stat info;
      if (::stat(source.c_str(), &info) != 0) continue;
      MW_ASSIGN_OR_RETURN(const std::string content, ReadFile(source, kMaxTokenizerBytes));
      MW_RETURN_IF_ERROR(WriteText(name, content));
      manifest_.tokenizer_files.emplace_back(name);
    }
    return Status::Ok();
  }

  /// meta.yaml of ANEMLL (contracts.md, "anemll").
  Status WriteMetaYaml() {
    if (!build_.contract.meta_yaml) return Status::Ok();
    fs::path folder(options_.output);
    if (!folder.has_filename()) folder = folder.parent_path();
    int64_t batch = 1;
    for (const FunctionOption& function : options_.functions) batch = std::max(batch, function.length);
    size_t chunks = 0;
    for (const StageSpec& stage : build_.stages) chunks += stage.role == PackageRole::kBody ? 1 : 0;
    std::string text = "model_info:\n  parameters:\n";
    text += fmt::format("    model_prefix: {}\n", folder.filename().string());
    text += fmt::format("    context_length: {}\n", options_.context_length);
    text += fmt::format("    batch_size: {}\n", batch);
    text += "    lut_ffn: none\n    lut_lmhead: none\n    lut_embeddings: none\n";
    text += fmt::format("    num_chunks: {}\n", chunks);
    text += fmt::format("    split_lm_head: {}\n", build_.head_splits);
    return WriteText("meta.yaml", text);
  }

  void DescribeOptions() {
    std::map<std::string, std::string>& entries = manifest_.provenance.options;
    LayoutOption layout = build_.caches.layout;
    const bool ordered = layout.layout == StateLayout::kUnified || layout.layout == StateLayout::kByRole;
    if (ordered) layout.order = build_.caches.order;
    entries["contract"] = options_.contract;
    entries["state-layout"] = LayoutText(layout);
    entries["update"] = UpdateName(build_.caches.update);
    entries["style"] = StyleName(build_.style);
    entries["compute"] = DataTypeName(build_.compute);
    if (HasRoundedCaches(build_.model, build_.caches)) {
      entries["hybrid-precision"] = HybridPrecisionName(build_.caches.precision);
    }
    entries["context-length"] = std::to_string(options_.context_length);
    entries["min-target"] = OpsetName(build_.opset);
    entries["embedding"] = build_.embedding == EmbeddingKind::kInGraph ? "in-graph" : "sidecar-fp16";
    entries["head"] = build_.head.kind == HeadKind::kLogits   ? "logits"
                      : build_.head.kind == HeadKind::kArgmax ? "argmax"
                                                              : fmt::format("topk:{}", build_.head.k);
    entries["chunks"] = options_.chunks.max_bytes > 0 ? fmt::format("{}B", options_.chunks.max_bytes)
                                                      : std::to_string(options_.chunks.count);
    std::vector<std::string> functions;
    for (const FunctionOption& f : options_.functions) functions.push_back(fmt::format("{}:{}", f.name, f.length));
    entries["functions"] = fmt::format("{}", fmt::join(functions, ","));
  }

  Status Finish() {
    MW_RETURN_IF_ERROR(WriteSidecars());
    MW_RETURN_IF_ERROR(CopyTokenizer());
    MW_RETURN_IF_ERROR(WriteMetaYaml());
    const ModelPlan& model = build_.model;
    manifest_.contract = build_.contract.name;
    manifest_.family = model.family;
    manifest_.context_length = options_.context_length;
    manifest_.vocabulary = model.vocabulary;
    manifest_.hidden = model.hidden;
    manifest_.window = model.window;
    manifest_.mask_fill = build_.contract.mask_fill;
    manifest_.shared_state = build_.contract.state_over_all_layers;
    manifest_.ring_limit = build_.caches.update == CacheUpdate::kRing;
    manifest_.eos_ids = model.eos_ids;
    manifest_.ropes = model.ropes;
    DescribeOptions();
    manifest_.provenance.tool = options_.tool;
    fs::path checkpoint(options_.checkpoint);
    if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
    manifest_.provenance.checkpoint = checkpoint.filename().string();
    for (const IgnoredTensor& tensor : report_.ignored) {
      manifest_.provenance.ignored_tensors.push_back(fmt::format("{}: {}", tensor.name, tensor.reason));
    }
    manifest_.provenance.notes = report_.notes;
    manifest_.provenance.warnings = report_.warnings;
    return WriteText(kManifestName, FormatManifest(manifest_));
  }

  const BuildOptions& options_;
  BuildReport report_;
  BuildPlan build_;
  std::shared_ptr<const Safetensors> file_;
  std::optional<WeightSource> weights_;
  Manifest manifest_;
};

}  // namespace

Result<BuildReport> BuildCheckpoint(const BuildOptions& options) { return CheckpointBuild(options).Run(); }

}  // namespace milwright
