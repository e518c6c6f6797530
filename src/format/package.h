// Packages: opening a model from any of its three forms, and writing an .mlpackage.
#ifndef MILWRIGHT_FORMAT_PACKAGE_H_
#define MILWRIGHT_FORMAT_PACKAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "mil/model.h"
#include "milwright/status.h"

namespace milwright {

/// Which form a model on disk has.
enum class PackageKind : uint8_t {
  kPackage,   ///< X.mlpackage: a folder with Manifest.json
  kModel,     ///< X.mlmodel: the bare protobuf, without weights
  kCompiled,  ///< X.mlmodelc: a folder compiled by Apple's tools, with model.mil as text
};

/// The files of a model and their sizes in bytes.
struct PackageFiles {
  PackageKind kind = PackageKind::kPackage;
  std::string path;        ///< as given, without a trailing slash
  std::string model_file;  ///< model.mlmodel or model.mil
  uint64_t model_bytes = 0;
  std::string weight_file;  ///< weight.bin; empty when the package has none
  uint64_t weight_bytes = 0;
};

/// Finds the files of the model at `path`; what it is follows from the content, not from the name. Reads Manifest.json,
/// neither the model nor the weights. kUnreadable: missing, no model, or a Manifest that breaks the rules (item paths
/// absolute, with "..", or leading outside the package).
Result<PackageFiles> LocatePackage(const std::string& path);

struct OpenOptions {
  bool verify = true;  ///< run VerifyProgram: the type of every value must be the one that inference gives
};

/// Opens an .mlpackage, a bare .mlmodel or an .mlmodelc. Weights are mapped, not read. Errors are one line that names
/// file, function, operation and value: kUnreadable when the files do not read or are of another kind (a neural
/// network, say), kInvalidProgram when the program in them breaks a rule.
Result<ModelSpec> OpenModel(const std::string& path, const OpenOptions& options = {});

struct WriteOptions {
  /// Numeric constants of at least so many elements go to the weight file, as coremltools has it; smaller ones and
  /// bools and strings stay in the model file. Constants that were read from a weight file go there in any case.
  int64_t blob_threshold = 10;
  /// A model that outlives the write, e.g. what was read before it was rewritten: constants that lie in its model file
  /// stay in the model file, whatever their size. They are known by their storage, which copies of a model share.
  const ModelSpec* immediates_of = nullptr;
  bool durable = true;  ///< wait until the disk has everything; off only for throw-away files in tests and benchmarks
};

/// A package in the making. Large weights may be streamed into it before there is a model that uses them; the rest is
/// what WriteModel does. Without `Write` nothing is left behind.
class PackageWriter {
 public:
  /// `path` as for WriteModel.
  static Result<PackageWriter> Create(const std::string& path, const WriteOptions& options = {});
  PackageWriter(PackageWriter&&) noexcept;
  PackageWriter& operator=(PackageWriter&&) = delete;
  ~PackageWriter();

  /// Writes a weight ahead: see WeightWriter::AddStreamed. A constant of the model that is this tensor, or a reshaped
  /// one, is not written again.
  Result<Tensor> AddWeight(const TensorType& type,
                           const std::function<Status(const std::function<Status(std::span<const std::byte>)>&)>& fill);
  /// Writes everything else and puts the package in its place. May be called once.
  Status Write(const ModelSpec& model);

 private:
  struct Impl;
  explicit PackageWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Writes `model` to `path`, whose name must end in ".mlpackage". The same model gives the same bytes. The package is
/// built beside the target and exchanged with it, so an interrupted or failed write leaves the old or the new one
/// whole; leftovers go with the next write or open. An existing target is replaced only if it is a package. kUsage: a
/// bad path; kInvalidProgram: names that the format does not allow; kIo: the disk.
Status WriteModel(const ModelSpec& model, const std::string& path, const WriteOptions& options = {});

/// SHA-256 (hexadecimal) of everything the model says, weights included, wherever it was read from: equal for models
/// that are equal by ModelsEqual. Reads all weights.
Result<std::string> PackageIdentity(const ModelSpec& model);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_PACKAGE_H_
