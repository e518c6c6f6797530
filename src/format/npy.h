// NumPy's .npy and .npz files.
#ifndef MILWRIGHT_FORMAT_NPY_H_
#define MILWRIGHT_FORMAT_NPY_H_

#include <map>
#include <string>
#include <string_view>

#include "milwright/status.h"
#include "milwright/tensor.h"

namespace milwright {

/// Reads the bytes of an .npy file (format versions 1 to 3, little endian). Data types: bool, int8 to int64, uint8 to
/// uint64, fp16, fp32, fp64, and unicode strings (any shape). Fortran order is turned to row-major. `name` is for
/// messages. kUnreadable when malformed, of another type, or of another size than its header says.
Result<Tensor> ParseNpy(std::string_view bytes, const std::string& name);
Result<Tensor> ReadNpy(const std::string& path);

/// Reads every array of an .npz, stored or deflated, with zip64; keys without ".npy". Every entry's CRC is checked;
/// duplicate names, overlapping or encrypted entries and sizes that do not fit are refused (kUnreadable).
Result<std::map<std::string, Tensor>> ReadNpz(const std::string& path);

/// The bytes of an .npy file, format version 1. kUsage for data types that NumPy lacks (bf16, fp8, sub-byte).
Result<std::string> FormatNpy(const Tensor& tensor);
Status WriteNpy(const std::string& path, const Tensor& tensor);
/// Stored, sorted by name, with a fixed time stamp: equal arrays give equal bytes. Written atomically.
Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& arrays);

}  // namespace milwright

#endif  // MILWRIGHT_FORMAT_NPY_H_
