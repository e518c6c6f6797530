// A checkpoint's tensors by role, and their conversion to the data type of a build.
#ifndef MILWRIGHT_LLM_CHECKPOINT_H_
#define MILWRIGHT_LLM_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/safetensors.h"
#include "llm/families.h"
#include "llm/model_plan.h"

namespace milwright {

inline constexpr int64_t kNoLayer = -1;  ///< "layer" of tensors that belong to the whole model

/// Rows of a checkpoint tensor that play a role. As a matrix [rows, columns] (rank 1: one column), the role takes
/// `count` rows from `offset` on in every period of `period` rows.
struct RoleTensor {
  std::string tensor;  ///< name in the checkpoint
  Shape shape;         ///< of the role: rows first, as [out, in] even when stored transposed
  int64_t offset = 0;
  int64_t count = 0;
  int64_t period = 0;
  bool transposed = false;
};

struct IgnoredTensor {
  std::string name;
  std::string reason;
};

struct CheckpointTensors {
  std::map<std::pair<int64_t, std::string>, RoleTensor, std::less<>> roles;
  std::vector<IgnoredTensor> ignored;
};

/// Finds every tensor of `family` in the checkpoint. Errors (kPrecondition) name the tensor: missing, of another shape
/// or no float type, or unexpected.
Result<CheckpointTensors> BindTensors(const Family& family, const ModelPlan& plan, const Safetensors& file);

/// Where converted weights go: takes the type and a function that hands over the bytes piece by piece, and gives the
/// tensor, borrowed from wherever it was put (PackageWriter::AddWeight).
using EmitBytes = std::function<Status(std::span<const std::byte>)>;
using WeightSink = std::function<Result<Tensor>(const TensorType&, const std::function<Status(const EmitBytes&)>&)>;

/// Weights in the data type of a build, converted when they are asked for, piece by piece.
class WeightSource {
 public:
  WeightSource(std::shared_ptr<const Safetensors> file, CheckpointTensors tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  /// Where `Load` puts converted tensors from now on; without a sink they are held in memory. Forgets the tensors
  /// loaded so far.
  void SetSink(WeightSink sink);

  [[nodiscard]] bool Has(int64_t layer, std::string_view role) const { return Find(layer, role) != nullptr; }
  /// The role's tensor; null when it is not bound.
  [[nodiscard]] const RoleTensor* Find(int64_t layer, std::string_view role) const;
  [[nodiscard]] const CheckpointTensors& tensors() const { return tensors_; }

  /// The role's tensor as fp16 or fp32, in its shape; values beyond fp16 are an error that names the tensor. The same
  /// tensor when it is asked for again.
  Result<Tensor> Load(int64_t layer, std::string_view role, DataType dtype);
  /// Hands over the bytes of the role's tensor, converted, in pieces of at most a few MB.
  Status Stream(int64_t layer, std::string_view role, DataType dtype, const EmitBytes& emit) const;
  /// All values of a small tensor (at most 2^22 elements) as floats.
  Result<std::vector<float>> Values(int64_t layer, std::string_view role) const;

 private:
  std::shared_ptr<const Safetensors> file_;
  CheckpointTensors tensors_;
  WeightSink sink_;
  std::map<std::pair<const RoleTensor*, DataType>, Tensor> loaded_;
};

/// SHA-256 (hexadecimal) over name, data type, shape and bytes of every tensor in name order: the same however the
/// tensors are spread over files. Reads everything.
Result<std::string> CheckpointHash(const Safetensors& file);

}  // namespace milwright

#endif  // MILWRIGHT_LLM_CHECKPOINT_H_
