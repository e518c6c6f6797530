#include "format/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "base/file_io.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "format/zip.h"

namespace milwright {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kHeaderAlignment = 64;  // of the data, by numpy.lib.format
constexpr std::string_view kNpySuffix = ".npy";

// NumPy's type strings without the byte-order character.
constexpr std::pair<std::string_view, DataType> kNpyTypes[] = {
    {"b1", DataType::kBool},   {"i1", DataType::kInt8},  {"i2", DataType::kInt16},  {"i4", DataType::kInt32},
    {"i8", DataType::kInt64},  {"u1", DataType::kUInt8}, {"u2", DataType::kUInt16}, {"u4", DataType::kUInt32},
    {"u8", DataType::kUInt64}, {"f2", DataType::kFp16},  {"f4", DataType::kFp32},   {"f8", DataType::kFp64},
};

Status UnreadableNpy(const std::string& name, std::string_view what) {
  return {ErrorCode::kUnreadable, fmt::format("{}: not a readable .npy array: {}", name, what)};
}

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// Reads the header, which is the Python text of a dictionary:
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  std::optional<NpyHeader> Parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!Take('{')) return std::nullopt;
    while (!Take('}')) {
      const std::optional<std::string> key = Quoted();
      if (!key || !Take(':')) return std::nullopt;
      bool* seen = *key == "descr" ? &has_descr : *key == "fortran_order" ? &has_order : &has_shape;
      if (*seen) return std::nullopt;
      *seen = true;
      bool good = false;
      if (*key == "descr") {
        const std::optional<std::string> descr = Quoted();
        good = descr.has_value();
        header.descr = descr.value_or("");
      } else if (*key == "fortran_order") {
        header.fortran_order = TakeWord("True");
        good = header.fortran_order || TakeWord("False");
      } else if (*key == "shape") {
        good = ReadShape(&header.shape);
      }
      if (!good) return std::nullopt;
      if (!Take(',') && !Ahead('}')) return std::nullopt;
    }
    SkipSpace();
    if (!text_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return header;
  }

 private:
  void SkipSpace() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_[0])) != 0) text_.remove_prefix(1);
  }
  bool Ahead(char c) {
    SkipSpace();
    return !text_.empty() && text_[0] == c;
  }
  bool Take(char c) {
    if (!Ahead(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> Quoted() {
    SkipSpace();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string content(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return content;
  }
  bool ReadShape(Shape* shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpace();
      int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      shape->push_back(size);
      if (!Take(',') && !Ahead(')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

// Copies elements of `width` bytes from column-major `source` to row-major `target`, both of `shape`.
void ToRowMajor(const Shape& shape, size_t width, const char* source, char* target) {
  const int64_t count = *ElementCount(shape);
  std::vector<int64_t> index(shape.size(), 0);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = 1; axis < shape.size(); ++axis) strides[axis] = strides[axis - 1] * shape[axis - 1];
  int64_t from = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(target + i * static_cast<int64_t>(width), source + from * static_cast<int64_t>(width), width);
    for (size_t axis = shape.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

// The data as row-major elements of `width` bytes, checked to be exactly as many as the shape says.
Result<std::string> RowMajorData(const NpyHeader& header, size_t width, std::string_view data,
                                 const std::string& name) {
  const Result<int64_t> count = ElementCount(header.shape);
  int64_t bytes = 0;
  if (!count.ok() || !CheckedMultiply(*count, static_cast<int64_t>(width), &bytes)) {
    return UnreadableNpy(name, fmt::format("the shape {} is too large", ShapeToString(header.shape)));
  }
  if (static_cast<uint64_t>(bytes) != data.size()) {
    return UnreadableNpy(name, fmt::format("the shape {} takes {} bytes, but there are {}", ShapeToString(header.shape),
                                           bytes, data.size()));
  }
  std::string elements(data);
  if (header.fortran_order && header.shape.size() > 1) {
    ToRowMajor(header.shape, width, data.data(), elements.data());
  }
  return elements;
}

// Unicode strings: `length` code points of 32 bits each, padded with zeros.
Result<Tensor> StringsFrom(const NpyHeader& header, std::string_view data, const std::string& name) {
  constexpr size_t kMaxLength = size_t{1} << 20U;
  size_t length = 0;
  const std::string_view digits = std::string_view(header.descr).substr(2);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc() || end != digits.data() + digits.size() || length > kMaxLength) {
    return UnreadableNpy(name, fmt::format("the data type '{}' is not supported", EscapeForMessage(header.descr)));
  }
  MW_ASSIGN_OR_RETURN(const std::string elements, RowMajorData(header, 4 * length, data, name));
  const int64_t count = *ElementCount(header.shape);
  if (length == 0 && count > static_cast<int64_t>(kMaxLength)) return UnreadableNpy(name, "too many empty strings");
  std::vector<std::string> texts(static_cast<size_t>(count));
  for (size_t i = 0; i < texts.size(); ++i) {
    size_t used = length;  // trailing zeros are padding
    const auto code_point = [&](size_t j) {
      uint32_t value = 0;
      std::memcpy(&value, elements.data() + (i * length + j) * 4, 4);
      return value;
    };
    while (used > 0 && code_point(used - 1) == 0) --used;
    for (size_t j = 0; j < used; ++j) {
      if (!AppendUtf8(code_point(j), &texts[i])) return UnreadableNpy(name, "a string with an invalid code point");
    }
  }
  return Tensor::FromStrings(header.shape, std::move(texts));
}

Result<std::string> DataOf(const Tensor& tensor, std::string* descr) {
  if (tensor.dtype() == DataType::kString) {
    size_t longest = 1;
    std::vector<std::vector<uint32_t>> texts;
    for (const std::string& text : tensor.strings()) {
      if (!IsUtf8(text)) return Status(ErrorCode::kUsage, "a string that is not UTF-8 cannot be written as .npy");
      std::vector<uint32_t>& code_points = texts.emplace_back();
      for (size_t place = 0; place < text.size();) code_points.push_back(DecodeUtf8(text, &place));
      longest = std::max(longest, code_points.size());
    }
    *descr = fmt::format("<U{}", longest);
    std::string data;
    for (std::vector<uint32_t>& code_points : texts) {
      code_points.resize(longest);
      data.append(reinterpret_cast<const char*>(code_points.data()), 4 * longest);
    }
    return data;
  }
  const auto* const type = std::ranges::find(kNpyTypes, tensor.dtype(), [](const auto& pair) { return pair.second; });
  if (type == std::end(kNpyTypes)) {
    return Status(ErrorCode::kUsage, fmt::format("NumPy has no data type for {}", TypeToString(tensor.type())));
  }
  *descr = fmt::format("{}{}", BitWidth(tensor.dtype()) == 8 ? '|' : '<', type->first);
  const auto bytes = tensor.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string_view TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

Result<Tensor> ParseNpy(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 10) return UnreadableNpy(name, "it does not begin as one");
  const auto byte = [bytes](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  const size_t version = byte(6);
  if (version < 1 || version > 3) return UnreadableNpy(name, fmt::format("format version {}", version));
  size_t start = 10;
  size_t length = byte(8) | byte(9) << 8U;
  if (version > 1) {  // the length has four bytes
    start = 12;
    if (bytes.size() < start) return UnreadableNpy(name, "it is cut off");
    length |= byte(10) << 16U | byte(11) << 24U;
  }
  if (length > bytes.size() - start) return UnreadableNpy(name, "the header is cut off");
  const std::optional<NpyHeader> header = HeaderParser(bytes.substr(start, length)).Parse();
  if (!header) return UnreadableNpy(name, "the header is malformed");
  const std::string_view data = bytes.substr(start + length);
  if (header->descr.starts_with("<U")) return StringsFrom(*header, data, name);
  const auto* const type = std::ranges::find(kNpyTypes, std::string_view(header->descr).substr(!header->descr.empty()),
                                             [](const auto& pair) { return pair.first; });
  const bool little = header->descr.starts_with('<') || header->descr.starts_with('|');
  if (type == std::end(kNpyTypes) || !little) {
    return UnreadableNpy(name, fmt::format("the data type '{}' is not supported", EscapeForMessage(header->descr)));
  }
  const auto width = static_cast<size_t>(BitWidth(type->second)) / 8;
  MW_ASSIGN_OR_RETURN(const std::string elements, RowMajorData(*header, width, data, name));
  const auto span = std::as_bytes(std::span(elements));
  std::vector<std::byte> content(span.begin(), span.end());
  if (type->second == DataType::kBool) {
    for (std::byte& value : content) value = std::byte{value != std::byte{0}};
  }
  return Tensor::FromBytes({type->second, header->shape}, std::move(content));
}

Result<Tensor> ReadNpy(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  return ParseNpy(TextOf(*file), path);
}

Result<std::map<std::string, Tensor>> ReadNpz(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  const std::string_view archive = TextOf(*file);
  MW_ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, ReadZipDirectory(archive, path));
  std::map<std::string, Tensor> arrays;
  for (const ZipEntry& entry : entries) {
    const std::string place = fmt::format("{}: '{}'", path, EscapeForMessage(entry.name));
    std::string_view name = entry.name;
    if (!name.ends_with(kNpySuffix)) return UnreadableNpy(place, "its name does not end in .npy");
    name.remove_suffix(kNpySuffix.size());
    MW_ASSIGN_OR_RETURN(const std::string content, ExtractZipEntry(archive, entry, path));
    MW_ASSIGN_OR_RETURN(Tensor tensor, ParseNpy(content, place));
    arrays.emplace(name, std::move(tensor));
  }
  return arrays;
}

Result<std::string> FormatNpy(const Tensor& tensor) {
  std::string descr;
  MW_ASSIGN_OR_RETURN(const std::string data, DataOf(tensor, &descr));
  std::string shape;
  for (const int64_t size : tensor.shape()) shape += fmt::format("{}, ", size);
  if (tensor.rank() > 1) shape.resize(shape.size() - 2);  // a tuple of one keeps its comma
  if (tensor.rank() == 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  const size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kHeaderAlignment - unpadded % kHeaderAlignment) % kHeaderAlignment, ' ');
  header += '\n';
  if (header.size() > 0xFFFF) return Status(ErrorCode::kUsage, "a shape of too many dimensions for .npy");
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xFFU);
  bytes += static_cast<char>(header.size() >> 8U);
  return bytes + header + data;
}

Status WriteNpy(const std::string& path, const Tensor& tensor) {
  MW_ASSIGN_OR_RETURN(const std::string bytes, FormatNpy(tensor));
  return WriteFileAtomically(path, bytes);
}

Status WriteNpz(const std::string& path, const std::map<std::string, Tensor>& arrays) {
  MW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  ZipWriter zip(&file.file());
  for (const auto& [name, tensor] : arrays) {
    MW_ASSIGN_OR_RETURN(const std::string bytes, FormatNpy(tensor));
    MW_RETURN_IF_ERROR(zip.Add(name + std::string(kNpySuffix), bytes));
  }
  MW_RETURN_IF_ERROR(zip.Finish());
  return file.Commit();
}

}  // namespace milwright
