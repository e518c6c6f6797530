// safetensors checkpoints: one file, or several with an index (the format of Hugging Face checkpoints).
#ifndef MILWRIGHT_FORMAT_SAFETENSORS_H_
#define MILWRIGHT_FORMAT_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// A checkpoint opened for reading: headers are parsed and checked, tensors stay on disk until loaded.
///
/// Refused (kUnreadable): headers beyond the file or 100 MB, malformed JSON, duplicate names, unknown data types,
/// shapes whose size overflows or differs from the byte range, ranges that overlap, leave holes or lie outside the
/// file.
class Safetensors {
 public:
  /// `path`: a .safetensors file, an index (model.safetensors.index.json), or a folder that holds one of
  /// model.safetensors.index.json, model.safetensors, or a single *.safetensors.
  static Result<Safetensors> Open(const std::string& path);

  /// All tensor names, sorted.
  [[nodiscard]] std::vector<std::string> Names() const;
  [[nodiscard]] bool Contains(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  /// Data type and shape, or null when there is no such tensor.
  [[nodiscard]] const TensorType* TypeOf(std::string_view name) const;
  /// The tensor, borrowed from the mapped file (copied where the file does not align it). kUsage when there is none.
  [[nodiscard]] Result<Tensor> Load(std::string_view name) const;
  /// `__metadata__` of all files together.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  /// Bytes of all tensors.
  [[nodiscard]] uint64_t TotalBytes() const;

 private:
  struct Entry {
    TensorType type;
    std::shared_ptr<const MappedFile> file;
    uint64_t offset = 0;  ///< absolute
    uint64_t bytes = 0;
  };
  Status AddFile(const std::string& path, std::map<std::string, Entry, std::less<>>& entries);
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

/// One tensor to write: `load` is called when its turn comes, so that only one is held at a time.
struct SafetensorsEntry {
  std::string name;
  TensorType type;
  std::function<Result<Tensor>()> load;
};

/// Writes a .safetensors file atomically, in the order given. kUsage: duplicate names, or data types without a name in
/// the format (strings, sub-byte).
Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_SAFETENSORS_H_
