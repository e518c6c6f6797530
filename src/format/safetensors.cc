#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/file_io.h"
#include "base/utf8.h"

namespace milwright {
namespace {

using nlohmann::json;

// The format's own limit for the header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kHeaderStart = 8;
constexpr size_t kMaxJsonDepth = 16;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

constexpr std::pair<std::string_view, DataType> kSafetensorsTypes[] = {
    {"F64", DataType::kFp64},   {"F32", DataType::kFp32},        {"F16", DataType::kFp16},
    {"BF16", DataType::kBf16},  {"F8_E4M3", DataType::kFp8E4M3}, {"F8_E5M2", DataType::kFp8E5M2},
    {"I64", DataType::kInt64},  {"I32", DataType::kInt32},       {"I16", DataType::kInt16},
    {"I8", DataType::kInt8},    {"U64", DataType::kUInt64},      {"U32", DataType::kUInt32},
    {"U16", DataType::kUInt16}, {"U8", DataType::kUInt8},        {"BOOL", DataType::kBool},
};

// Parses JSON of limited depth. nlohmann::json keeps the last of duplicate keys; here they are an error.
Result<json> ParseJson(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;
  std::string fault;
  const json::parser_callback_t callback = [&](int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<size_t>(depth) > kMaxJsonDepth) fault = "JSON that nests too deeply";
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fault = fmt::format("the name '{}' is there twice", EscapeForMessage(parsed.get<std::string>()));
    }
    return fault.empty();
  };
  json parsed = json::parse(text, callback, false);
  if (!fault.empty()) return Unreadable(path, fault);
  if (!parsed.is_object()) return Unreadable(path, "the header is not a JSON object");
  return parsed;
}

std::optional<std::vector<uint64_t>> Numbers(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const json& number : *found) {
    if (!number.is_number_unsigned()) return std::nullopt;
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

struct Range {
  TensorType type;
  uint64_t begin = 0;  ///< from the end of the header
  uint64_t end = 0;
};

// One entry of the header, checked on its own.
Result<Range> ReadEntry(const json& entry, uint64_t data_bytes) {
  const auto fault = [](std::string what) { return Status(ErrorCode::kUnreadable, std::move(what)); };
  if (!entry.is_object()) return fault("is not an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return fault("has no dtype");
  const auto& name = dtype->get_ref<const std::string&>();
  const auto* const known = std::ranges::find(kSafetensorsTypes, name, [](const auto& pair) { return pair.first; });
  if (known == std::end(kSafetensorsTypes))
    return fault(fmt::format("has the unknown dtype '{}'", EscapeForMessage(name)));
  const auto shape = Numbers(entry, "shape");
  const auto offsets = Numbers(entry, "data_offsets");
  if (!shape || !offsets || offsets->size() != 2) return fault("has no proper shape and data_offsets");
  Range range;
  range.type.dtype = known->second;
  for (const uint64_t size : *shape) {
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return fault("has a shape that is too large");
    range.type.shape.push_back(static_cast<int64_t>(size));
  }
  const Result<int64_t> bytes = ByteSize(range.type);
  if (!bytes.ok()) return fault(fmt::format("has a shape that is too large: {}", bytes.status().message()));
  range.begin = (*offsets)[0];
  range.end = (*offsets)[1];
  if (range.begin > range.end || range.end > data_bytes) {
    return fault(fmt::format("lies at {} to {}, outside the {} bytes of data", range.begin, range.end, data_bytes));
  }
  if (range.end - range.begin != static_cast<uint64_t>(*bytes)) {
    return fault(
        fmt::format("has {} bytes, but {} takes {}", range.end - range.begin, TypeToString(range.type), *bytes));
  }
  return range;
}

// The ranges must cover the data without overlap or hole, as the format demands.
Status CheckCover(const std::map<std::string, Range, std::less<>>& ranges, uint64_t data_bytes,
                  const std::string& path) {
  std::vector<std::pair<const Range*, const std::string*>> sorted;
  sorted.reserve(ranges.size());
  for (const auto& [name, range] : ranges) sorted.emplace_back(&range, &name);
  std::ranges::sort(sorted, {}, [](const auto& item) { return std::make_pair(item.first->begin, item.first->end); });
  uint64_t end = 0;
  for (const auto& [range, name] : sorted) {
    if (range->begin != end) {
      return Unreadable(path, fmt::format("tensor '{}' begins at {} of the data, but the one before it ends at {}",
                                          EscapeForMessage(*name), range->begin, end));
    }
    end = range->end;
  }
  if (end != data_bytes) {
    return Unreadable(path, fmt::format("the tensors end at {}, but the file has {} bytes of data", end, data_bytes));
  }
  return {};
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The file to open for `path`, which may be a folder.
Result<std::string> ResolveCheckpoint(const std::string& path) {
  const Result<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return path;  // no folder
  std::vector<std::string> found;
  for (const std::string& name : *names) {
    if (name == kIndexName || name == "model.safetensors") return path + "/" + name;
    if (name.ends_with(".safetensors")) found.push_back(name);
  }
  if (found.size() == 1) return path + "/" + found.front();
  return Unreadable(path, found.empty() ? "there is no .safetensors file in it"
                                        : "there are several .safetensors files, but no index that joins them");
}

}  // namespace

Status Safetensors::AddFile(const std::string& path, std::map<std::string, Entry, std::less<>>& entries) {
  MW_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  uint64_t header_bytes = 0;
  if (file->size() < kHeaderStart) return Unreadable(path, "too short for a safetensors file");
  MW_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file->size() - kHeaderStart) {
    return Unreadable(path, fmt::format("the header claims {} bytes; the file has {}", header_bytes, file->size()));
  }
  const auto* const text = reinterpret_cast<const char*>(file->bytes().data() + kHeaderStart);
  MW_ASSIGN_OR_RETURN(const json header, ParseJson({text, header_bytes}, path));
  const uint64_t data_start = kHeaderStart + header_bytes;
  const uint64_t data_bytes = file->size() - data_start;
  std::map<std::string, Range, std::less<>> ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey) {
      if (!value.is_object()) return Unreadable(path, "__metadata__ is not an object");
      for (const auto& [key, text_value] : value.items()) {
        if (!text_value.is_string()) return Unreadable(path, "__metadata__ holds something else than strings");
        metadata_[key] = text_value.get<std::string>();
      }
      continue;
    }
    Result<Range> range = ReadEntry(value, data_bytes);
    if (!range.ok()) {
      return Unreadable(path, fmt::format("tensor '{}' {}", EscapeForMessage(name), range.status().message()));
    }
    ranges.emplace(name, *std::move(range));
  }
  MW_RETURN_IF_ERROR(CheckCover(ranges, data_bytes, path));
  for (auto& [name, range] : ranges) {
    entries.emplace(name, Entry{std::move(range.type), file, data_start + range.begin, range.end - range.begin});
  }
  return {};
}

Result<Safetensors> Safetensors::Open(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string file, ResolveCheckpoint(path));
  Safetensors checkpoint;
  if (!file.ends_with(".json")) {
    MW_RETURN_IF_ERROR(checkpoint.AddFile(file, checkpoint.entries_));
    return checkpoint;
  }
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxHeaderBytes));
  MW_ASSIGN_OR_RETURN(const json index, ParseJson(text, file));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) return Unreadable(file, "there is no weight_map in it");
  std::map<std::string, std::map<std::string, Entry, std::less<>>> shards;
  for (const auto& [name, shard] : weight_map->items()) {
    if (!shard.is_string()) return Unreadable(file, "the weight_map names something else than files");
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (shard_name.empty() || shard_name.front() == '.' || shard_name.find('/') != std::string::npos ||
        shard_name.find('\0') != std::string::npos) {
      return Unreadable(
          file, fmt::format("the weight_map names '{}', which is no file beside it", EscapeForMessage(shard_name)));
    }
    if (!shards.contains(shard_name)) {
      MW_RETURN_IF_ERROR(checkpoint.AddFile(FolderOf(file) + "/" + shard_name, shards[shard_name]));
    }
    const auto& entries = shards[shard_name];
    const auto entry = entries.find(name);
    if (entry == entries.end()) {
      return Unreadable(file, fmt::format("tensor '{}' is not in {}, where the weight_map puts it",
                                          EscapeForMessage(name), shard_name));
    }
    checkpoint.entries_.emplace(name, entry->second);
  }
  return checkpoint;
}

std::vector<std::string> Safetensors::Names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const TensorType* Safetensors::TypeOf(std::string_view name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() ? &found->second.type : nullptr;
}

Result<Tensor> Safetensors::Load(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return Status(ErrorCode::kUsage, fmt::format("there is no tensor '{}' in the checkpoint", name));
  }
  const Entry& entry = found->second;
  const auto bytes = entry.file->bytes().subspan(entry.offset, entry.bytes);
  const auto width = static_cast<uint64_t>(BitWidth(entry.type.dtype)) / 8;
  // The map begins at a page, so the offset tells the alignment. Bools must be 0 or 1 to be read in place.
  const bool in_place = entry.offset % width == 0 && entry.type.dtype != DataType::kBool;
  if (in_place) return Tensor::Borrow(entry.type, bytes, entry.file);
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  if (entry.type.dtype == DataType::kBool) {
    for (std::byte& value : copy) value = std::byte{value != std::byte{0}};
  }
  return Tensor::FromBytes(entry.type, std::move(copy));
}

uint64_t Safetensors::TotalBytes() const {
  uint64_t total = 0;
  for (const auto& [name, entry] : entries_) total += entry.bytes;
  return total;
}

Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (!names.insert(entry.name).second || entry.name == kMetadataKey || !IsUtf8(entry.name)) {
      return {ErrorCode::kUsage,
              fmt::format("{}: the tensor name '{}' is taken or not allowed", path, EscapeForMessage(entry.name))};
    }
    const auto* const type =
        std::ranges::find(kSafetensorsTypes, entry.type.dtype, [](const auto& pair) { return pair.second; });
    if (type == std::end(kSafetensorsTypes)) {
      return {ErrorCode::kUsage,
              fmt::format("{}: safetensors has no data type for {}", path, TypeToString(entry.type))};
    }
    MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(entry.type));
    const uint64_t begin = end;
    end += static_cast<uint64_t>(bytes);
    header[entry.name] = {{"dtype", type->first}, {"shape", entry.type.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data are aligned
  const uint64_t header_bytes = text.size();
  MW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  MW_RETURN_IF_ERROR(file.file().Append(std::as_bytes(std::span(&header_bytes, 1))));
  MW_RETURN_IF_ERROR(file.file().Append(text));
  for (const SafetensorsEntry& entry : entries) {
    MW_ASSIGN_OR_RETURN(const Tensor tensor, entry.load());
    if (tensor.type() != entry.type) {
      return {ErrorCode::kUsage, fmt::format("{}: tensor '{}' is {}, but was announced as {}", path, entry.name,
                                             TypeToString(tensor.type()), TypeToString(entry.type))};
    }
    MW_RETURN_IF_ERROR(file.file().Append(tensor.bytes()));
  }
  return file.Commit();
}

}  // namespace milwright
