#include "format/package.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/file_io.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "format/compiled_model.h"
#include "format/protobuf_reader.h"
#include "format/weight_file.h"
#include "ops/infer.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxManifestBytes = uint64_t{16} << 20U;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30U;
constexpr std::string_view kModelPath = "@model_path/";

std::string WithoutTrailingSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

uint64_t FileSize(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// Checks the Manifest and returns the path of the model file below the package.
Result<std::string> ReadManifest(const std::string& package) {
  const std::string path = package + "/Manifest.json";
  MW_ASSIGN_OR_RETURN(const UniqueFd fd, OpenBeneath(package, "Manifest.json"));
  MW_ASSIGN_OR_RETURN(const std::string text, ReadDescriptor(fd, path, kMaxManifestBytes));
  const json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object()) return Unreadable(path, "not a JSON object");
  const auto version = manifest.find("fileFormatVersion");
  if (version == manifest.end() || !version->is_string() || !version->get_ref<const std::string&>().starts_with("1.")) {
    return Unreadable(path, "fileFormatVersion is not 1.x");
  }
  const auto root = manifest.find("rootModelIdentifier");
  const auto items = manifest.find("itemInfoEntries");
  if (root == manifest.end() || !root->is_string() || items == manifest.end() || !items->is_object()) {
    return Unreadable(path, "rootModelIdentifier or itemInfoEntries is missing");
  }
  std::optional<std::string> model;
  for (const auto& [identifier, item] : items->items()) {
    const auto item_path = item.is_object() ? item.find("path") : item.end();
    if (!item.is_object() || item_path == item.end() || !item_path->is_string()) {
      return Unreadable(path, EscapeForMessage(fmt::format("the item '{}' has no path", identifier)));
    }
    const std::string below = "Data/" + item_path->get<std::string>();
    const auto with_item = [&path, &identifier = identifier](const Status& status) {
      return status.WithContext(fmt::format("{}: item '{}'", path, EscapeForMessage(identifier)));
    };
    if (const Status status = CheckRelativePath(package, item_path->get_ref<const std::string&>()); !status.ok()) {
      return with_item(status);
    }
    const bool is_root = identifier == root->get_ref<const std::string&>();
    // coremltools lists the folder of weights even where it wrote none; only the model must be there.
    std::error_code error;
    if (is_root || fs::exists(fs::symlink_status(package + "/" + below, error))) {
      if (const Result<UniqueFd> file = OpenBeneath(package, below); !file.ok()) return with_item(file.status());
    }
    if (is_root) model = below;
  }
  if (!model) return Unreadable(path, "there is no item of the rootModelIdentifier");
  return *model;
}

// Opens the weight files that a program refers to, each once.
class BlobSource {
 public:
  // Blobs are looked up below `root`, in `folder` of it.
  BlobSource(std::string root, std::string folder) : root_(std::move(root)), folder_(std::move(folder)) {}

  Result<Tensor> Load(const BlobReference& blob, const TensorType& type) {
    auto it = files_.find(blob.file_name);
    if (it == files_.end()) {
      MW_ASSIGN_OR_RETURN(auto file, Open(blob.file_name));
      it = files_.emplace(blob.file_name, std::move(file)).first;
    }
    return it->second->Blob(blob.offset, type);
  }

 private:
  Result<std::shared_ptr<const WeightFile>> Open(const std::string& name) {
    if (!name.starts_with(kModelPath)) {
      return Unreadable(root_, fmt::format("the weight file '{}' does not start with {}", name, kModelPath));
    }
    const std::string below = name.substr(kModelPath.size());
    MW_RETURN_IF_ERROR(CheckRelativePath(root_, below));
    const std::string relative = folder_ + below;
    MW_ASSIGN_OR_RETURN(UniqueFd fd, OpenBeneath(root_, relative));
    MW_ASSIGN_OR_RETURN(auto map,
                        MappedFile::FromDescriptor(std::move(fd), root_ + "/" + relative, AccessPattern::kRandom));
    return WeightFile::FromMap(std::move(map));
  }

  std::string root_;
  std::string folder_;
  std::map<std::string, std::shared_ptr<const WeightFile>> files_;
};

BlobLoader LoaderBelow(const std::string& root, const std::string& folder) {
  auto source = std::make_shared<BlobSource>(root, folder);
  return [source](const BlobReference& blob, const TensorType& type) { return source->Load(blob, type); };
}

Result<Tensor> NoWeights(const BlobReference& blob, const TensorType& /*type*/) {
  return Status(ErrorCode::kUnreadable,
                fmt::format("the constant lies in '{}', but a bare .mlmodel has no weights", blob.file_name));
}

Result<ModelSpec> ReadFiles(const PackageFiles& files) {
  switch (files.kind) {
    case PackageKind::kModel: {
      MW_ASSIGN_OR_RETURN(const auto map, MappedFile::Open(files.model_file));
      return ReadModelProtobuf(map->bytes(), files.model_file, NoWeights);
    }
    case PackageKind::kPackage: {
      const std::string relative = files.model_file.substr(files.path.size() + 1);
      MW_ASSIGN_OR_RETURN(UniqueFd fd, OpenBeneath(files.path, relative));
      MW_ASSIGN_OR_RETURN(const auto map, MappedFile::FromDescriptor(std::move(fd), files.model_file));
      const std::string folder = relative.substr(0, relative.rfind('/') + 1);
      return ReadModelProtobuf(map->bytes(), files.model_file, LoaderBelow(files.path, folder));
    }
    case PackageKind::kCompiled: {
      MW_ASSIGN_OR_RETURN(const UniqueFd fd, OpenBeneath(files.path, "model.mil"));
      MW_ASSIGN_OR_RETURN(const std::string text, ReadDescriptor(fd, files.model_file, kMaxTextBytes));
      std::string metadata;
      if (const Result<UniqueFd> file = OpenBeneath(files.path, "metadata.json"); file.ok()) {
        MW_ASSIGN_OR_RETURN(metadata, ReadDescriptor(*file, files.path + "/metadata.json", kMaxManifestBytes));
      }
      return ReadCompiledModel(text, files.model_file, metadata, LoaderBelow(files.path, ""));
    }
  }
  return Status(ErrorCode::kInternal, "unknown kind of package");
}

}  // namespace

Result<PackageFiles> LocatePackage(const std::string& path) {
  PackageFiles files;
  files.path = WithoutTrailingSlash(path);
  if (files.path.ends_with(".mlpackage")) RecoverDirectory(files.path);
  struct stat info {};
  if (::stat(files.path.c_str(), &info) != 0) return Unreadable(files.path, "no such file or folder");
  if (S_ISREG(info.st_mode)) {
    files.kind = PackageKind::kModel;
    files.model_file = files.path;
    files.model_bytes = FileSize(files.path);
    return files;
  }
  if (!S_ISDIR(info.st_mode)) return Unreadable(files.path, "neither a file nor a folder");
  const auto has = [&files](std::string_view name) {
    std::error_code error;
    return fs::exists(fmt::format("{}/{}", files.path, name), error);
  };
  std::string folder = files.path + "/";
  if (has("Manifest.json")) {
    files.kind = PackageKind::kPackage;
    MW_ASSIGN_OR_RETURN(const std::string model, ReadManifest(files.path));
    files.model_file = files.path + "/" + model;
    folder = files.model_file.substr(0, files.model_file.rfind('/') + 1);
  } else if (has("model.mil")) {
    files.kind = PackageKind::kCompiled;
    files.model_file = files.path + "/model.mil";
  } else if (has("coremldata.bin")) {
    return Unreadable(files.path, "a compiled model without model.mil: not an ML Program");
  } else {
    return Unreadable(files.path, "no model: there is neither Manifest.json nor model.mil in it");
  }
  files.model_bytes = FileSize(files.model_file);
  const std::string weights = folder + "weights/weight.bin";
  std::error_code error;
  if (fs::is_regular_file(weights, error)) {
    files.weight_file = weights;
    files.weight_bytes = FileSize(weights);
  }
  return files;
}

Result<ModelSpec> OpenModel(const std::string& path, const OpenOptions& options) {
  MW_ASSIGN_OR_RETURN(const PackageFiles files, LocatePackage(path));
  MW_ASSIGN_OR_RETURN(ModelSpec model, ReadFiles(files));
  model.source = files.path;
  if (options.verify) {
    const std::vector<Status> faults = VerifyProgram(model.program);
    if (!faults.empty()) {
      const std::string more = faults.size() > 1 ? fmt::format(" (and {} more)", faults.size() - 1) : "";
      return Status(faults.front().code(),
                    fmt::format("{}: {}{}", files.model_file, EscapeForMessage(faults.front().message()), more));
    }
  }
  return model;
}

}  // namespace milwright
