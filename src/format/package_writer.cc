// WriteModel and PackageIdentity of package.h.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/file_io.h"
#include "base/sha256.h"
#include "format/package.h"
#include "format/protobuf_writer.h"
#include "format/weight_file.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeightFileName = "@model_path/weights/weight.bin";

// Storage met before: its address, elements and type. Valid while the model, which holds the tensors, is not changed.
using StorageKey = std::tuple<const std::byte*, int64_t, DataType>;

StorageKey KeyOf(const Tensor& tensor) { return {tensor.bytes().data(), tensor.size(), tensor.dtype()}; }

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return {ErrorCode::kIo, fmt::format("{}: cannot create: {}", path, error.message())};
  return {};
}

// Where the large numeric constants lie that `model` has in its model file.
std::set<const std::byte*> ImmediatesOf(const ModelSpec& model, int64_t threshold) {
  std::set<const std::byte*> found;
  const auto add = [&](const Literal& literal) {
    const bool numeric = literal.type.IsTensor() && literal.type.dtype() != DataType::kString;
    if (numeric && !literal.blob && literal.tensor.size() >= threshold) found.insert(literal.tensor.bytes().data());
  };
  for (const auto& function : model.program.functions()) {
    ForEachOperation(function->body(), [&add](const Operation& op) {
      for (const auto& [name, literal] : op.attributes) add(literal);
      for (const Input& input : op.inputs()) {
        for (const Operand& operand : input.arguments) {
          if (operand.literal != nullptr) add(*operand.literal);
        }
      }
    });
  }
  return found;
}

// Only a package (or an empty folder) may be replaced: a slip of the hand must not delete someone's folder.
Status CheckTarget(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const bool package = fs::exists(path + "/Manifest.json", error);
  if (package || (fs::is_directory(path, error) && fs::is_empty(path, error))) return {};
  return {ErrorCode::kUsage, path + ": exists and is not a package; it is left alone"};
}

// An identifier in the form of a UUID (version 8, RFC 9562) made from `text`, so that equal packages have equal ones.
std::string IdentifierOf(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  Sha256Digest digest = hash.Finish();
  digest[6] = static_cast<uint8_t>((digest[6] & 0x0FU) | 0x80U);
  digest[8] = static_cast<uint8_t>((digest[8] & 0x3FU) | 0x80U);
  const std::string hex = ToHex(digest);
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4), hex.substr(16, 4),
                     hex.substr(20, 12));
}

std::string ManifestFor(std::string_view model_bytes, bool has_weights) {
  Sha256 hash;
  hash.Update(model_bytes);
  const std::string content = ToHex(hash.Finish());
  const auto item = [](std::string_view description, std::string_view name) {
    return nlohmann::json{{"author", "com.apple.CoreML"},
                          {"description", description},
                          {"name", name},
                          {"path", fmt::format("com.apple.CoreML/{}", name)}};
  };
  const std::string model_identifier = IdentifierOf("model " + content);
  nlohmann::json items;
  items[model_identifier] = item("CoreML Model Specification", "model.mlmodel");
  if (has_weights) items[IdentifierOf("weights " + content)] = item("CoreML Model Weights", "weights");
  const nlohmann::json manifest{
      {"fileFormatVersion", "1.0.0"}, {"itemInfoEntries", items}, {"rootModelIdentifier", model_identifier}};
  return manifest.dump(4) + "\n";
}

Status WriteFileInto(const std::string& path, std::string_view content, bool durable) {
  MW_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  MW_RETURN_IF_ERROR(file.Append(content));
  return file.Finish(durable);
}

}  // namespace

struct PackageWriter::Impl {
  Impl(StagedDirectory staged, const WriteOptions& options) : staged(std::move(staged)), options(options) {}

  [[nodiscard]] std::string Data() const { return staged.path() + "/Data/com.apple.CoreML"; }

  /// The weight file, made when the first blob comes.
  Result<WeightWriter*> Weights() {
    if (!weights) {
      MW_RETURN_IF_ERROR(MakeFolder(Data() + "/weights"));
      MW_ASSIGN_OR_RETURN(weights, WeightWriter::Create(Data() + "/weights/weight.bin"));
      if (options.durable) weights->WriteBehind();
    }
    return &*weights;
  }

  StagedDirectory staged;
  WriteOptions options;
  std::optional<WeightWriter> weights;
};

PackageWriter::PackageWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PackageWriter::PackageWriter(PackageWriter&&) noexcept = default;
PackageWriter::~PackageWriter() = default;

Result<PackageWriter> PackageWriter::Create(const std::string& path, const WriteOptions& options) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  if (!target.ends_with(".mlpackage")) {
    return Status(ErrorCode::kUsage, path + ": the name of a package ends in .mlpackage");
  }
  MW_RETURN_IF_ERROR(CheckTarget(target));
  MW_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::Create(target));
  auto impl = std::make_unique<Impl>(std::move(staged), options);
  MW_RETURN_IF_ERROR(MakeFolder(impl->Data()));
  return PackageWriter(std::move(impl));
}

Result<Tensor> PackageWriter::AddWeight(const TensorType& type,
                                        const std::function<Status(const WeightWriter::Emit&)>& fill) {
  MW_ASSIGN_OR_RETURN(WeightWriter * weights, impl_->Weights());
  return weights->AddStreamed(type, fill);
}

Status PackageWriter::Write(const ModelSpec& model) {
  const WriteOptions& options = impl_->options;
  std::map<StorageKey, uint64_t> known;
  const auto store = [&](const Tensor& tensor) -> Result<BlobReference> {
    MW_ASSIGN_OR_RETURN(WeightWriter * weights, impl_->Weights());
    const auto [it, is_new] = known.try_emplace(KeyOf(tensor), 0);
    if (is_new) {
      MW_ASSIGN_OR_RETURN(it->second, weights->Add(tensor));
    }
    return BlobReference{std::string(kWeightFileName), it->second};
  };
  std::set<const std::byte*> immediates;
  if (options.immediates_of != nullptr) immediates = ImmediatesOf(*options.immediates_of, options.blob_threshold);
  const BlobPolicy usual = PackageBlobPolicy(options.blob_threshold);
  const BlobPolicy policy = [&](const Literal& literal, const Operation* op) {
    const bool stays = !literal.blob && immediates.contains(literal.tensor.bytes().data());
    return !stays && usual(literal, op);
  };
  MW_ASSIGN_OR_RETURN(const std::string bytes, WriteModelProtobuf(model, policy, store));
  if (impl_->weights) MW_RETURN_IF_ERROR(impl_->weights->Finish(options.durable));
  MW_RETURN_IF_ERROR(WriteFileInto(impl_->Data() + "/model.mlmodel", bytes, options.durable));
  MW_RETURN_IF_ERROR(WriteFileInto(impl_->staged.path() + "/Manifest.json",
                                   ManifestFor(bytes, impl_->weights.has_value()), options.durable));
  return impl_->staged.Commit(options.durable);
}

Status WriteModel(const ModelSpec& model, const std::string& path, const WriteOptions& options) {
  MW_ASSIGN_OR_RETURN(PackageWriter writer, PackageWriter::Create(path, options));
  return writer.Write(model);
}

Result<std::string> PackageIdentity(const ModelSpec& model) {
  // Where bytes lie must not matter: every tensor that could be a blob counts as one, named by the hash of its content.
  std::map<StorageKey, std::string> known;
  const auto policy = [](const Literal& literal, const Operation* /*op*/) {
    return BlobDataTypeNumber(literal.type.dtype()).has_value();
  };
  const auto store = [&known](const Tensor& tensor) -> Result<BlobReference> {
    std::string& name = known[KeyOf(tensor)];
    if (name.empty()) {
      Sha256 hash;
      hash.Update(tensor.bytes());
      name = ToHex(hash.Finish());
    }
    return BlobReference{name, 0};
  };
  MW_ASSIGN_OR_RETURN(const std::string bytes, WriteModelProtobuf(model, policy, store));
  Sha256 hash;
  hash.Update(bytes);
  return ToHex(hash.Finish());
}

}  // namespace milwright
