#include "analysis/weight_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace milwright {
namespace {

constexpr int64_t kMinWeightElements = 10;  // what coremltools moves to the weight file

int64_t CountOf(const Type& type) {
  const auto count = ElementCount(type.shape());
  return count.ok() ? *count : 0;
}

int64_t BytesOf(const Type& type) {
  const auto bytes = ByteSize(type.tensor);
  return bytes.ok() ? *bytes : 0;
}

const Type* PartType(const Operation& op, std::string_view name) {
  if (const Input* input = op.FindInput(name); input != nullptr && !input->arguments.empty()) {
    return &input->arguments.front().type();
  }
  const Literal* attribute = op.FindAttribute(name);
  return attribute != nullptr ? &attribute->type : nullptr;
}

// The constexpr op that a part comes from, when parts are themselves compressed.
const Operation* PartProducer(const Operation& op, std::string_view name) {
  const Value* value = op.InputValue(name);
  const Operation* producer = value != nullptr ? value->producer() : nullptr;
  return producer != nullptr && producer->type().starts_with("constexpr_") ? producer : nullptr;
}

bool IsConstexpr(const Operation& op) { return op.type().starts_with("constexpr_"); }

// Bytes of the literals that `op` and the constexpr ops under it hold.
int64_t StoredBytes(const Operation& op, std::set<const void*>& seen) {
  if (!seen.insert(&op).second) return 0;
  int64_t bytes = 0;
  // A mask that two ops share lies in the file once.
  const auto stored = [&seen](const Literal& literal) {
    const bool counted = literal.blob.has_value() && !seen.insert(literal.tensor.bytes().data()).second;
    return counted ? 0 : BytesOf(literal.type);
  };
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) {
      if (const Literal* literal = operand.constant(); literal != nullptr) {
        bytes += stored(*literal);
      } else if (operand.value != nullptr && operand.value->producer() != nullptr) {
        bytes += StoredBytes(*operand.value->producer(), seen);
      }
    }
  }
  for (const auto& [name, literal] : op.attributes) {
    if (name != "name" && literal.type.IsTensor()) bytes += stored(literal);
  }
  return bytes;
}

// How a scale of `scale` shape covers data of `data` shape: along channels (one axis), blocks, or everything.
std::string ScaleGranularity(const Shape& data, const Shape& scale, int64_t* block) {
  int64_t scaled_axes = 0;
  bool blocks = false;
  for (size_t axis = 0; axis < data.size() && axis < scale.size(); ++axis) {
    if (scale[axis] <= 1) continue;
    ++scaled_axes;
    if (scale[axis] != data[axis] && scale[axis] > 0) {
      blocks = true;
      *block = data[axis] / scale[axis];
    }
  }
  if (blocks) return "per_block";
  if (scaled_axes == 0) return "per_tensor";
  return scaled_axes == 1 ? "per_channel" : "per_block";
}

std::string LutGranularity(const Shape& indices, const Shape& lut, int64_t* group) {
  int64_t grouped_axes = 0;
  for (size_t axis = 0; axis < indices.size() && axis + 2 < lut.size(); ++axis) {
    if (lut[axis] <= 1) continue;
    ++grouped_axes;
    *group = indices[axis] / lut[axis];
  }
  if (grouped_axes == 0) return "per_tensor";
  return grouped_axes == 1 ? "per_grouped_channel" : "per_row_block";
}

int LutBits(const Operation& op, const Type& lut) {
  // iOS18: [groups..., 2^n, vector]; before: a flat table of 2^n.
  const Shape& shape = lut.shape();
  const bool flat = op.FindAttribute("lut") != nullptr;
  const int64_t entries = flat ? CountOf(lut) : shape.size() >= 2 ? shape[shape.size() - 2] : CountOf(lut);
  int bits = 0;
  while ((int64_t{1} << bits) < entries) ++bits;
  return bits;
}

WeightFormat FormatOf(const Operation& op);

WeightFormat ScaledFormat(const Operation& op, std::string_view data_name) {
  const Type* data = PartType(op, data_name);
  const Type* scale = PartType(op, "scale");
  if (const Operation* inner = PartProducer(op, data_name); inner != nullptr) {
    WeightFormat format = FormatOf(*inner);
    int64_t block = 0;
    const std::string granularity =
        scale != nullptr && data != nullptr ? ScaleGranularity(data->shape(), scale->shape(), &block) : "";
    // A per-channel scale over a palette is one thing to the field, a blockwise one another.
    if (format.name.starts_with("lut")) {
      format.name = granularity == "per_block" ? "lut_plus_blockwise_scale" : format.name + "_scaled";
    }
    return format;
  }
  WeightFormat format;
  const std::string granularity = scale != nullptr && data != nullptr
                                      ? ScaleGranularity(data->shape(), scale->shape(), &format.block_size)
                                      : "per_tensor";
  format.name = fmt::format("{}_{}", data != nullptr ? DataTypeName(data->dtype()) : "int8", granularity);
  return format;
}

WeightFormat LutFormat(const Operation& op) {
  WeightFormat format;
  const Type* lut = PartType(op, "lut");
  if (lut == nullptr) return {"lut_unknown", 0};
  const bool flat = op.FindAttribute("lut") != nullptr;
  const std::string granularity =
      flat ? "per_tensor" : LutGranularity(op.outputs().back()->type.shape(), lut->shape(), &format.block_size);
  // Tables that are a float table times a scale: palettization with a scale per channel, expanded into the tables.
  const Operation* scaled = PartProducer(op, "lut");
  const Type* table = scaled != nullptr ? PartType(*scaled, "data") : nullptr;
  if (table != nullptr && IsFloat(table->dtype())) {
    format.name = fmt::format("lut{}_per_channel_scale", LutBits(op, *lut));
    return format;
  }
  const bool vector = !flat && lut->shape().size() >= 2 && lut->shape().back() > 1;
  format.name = granularity == "per_row_block"
                    ? "lut_per_row_block"
                    : fmt::format("lut{}{}_{}", LutBits(op, *lut), vector ? "_vector" : "", granularity);
  return format;
}

WeightFormat FormatOf(const Operation& op) {
  const std::string& type = op.type();
  if (type == "constexpr_blockwise_shift_scale") return ScaledFormat(op, "data");
  if (type == "constexpr_affine_dequantize") {
    WeightFormat format;
    const Type* scale = PartType(op, "scale");
    format.name = fmt::format("int8_{}", scale != nullptr && CountOf(*scale) > 1 ? "per_channel" : "per_tensor");
    return format;
  }
  if (type == "constexpr_lut_to_dense") return LutFormat(op);
  if (type == "constexpr_sparse_to_dense") {
    if (const Operation* inner = PartProducer(op, "nonzero_data"); inner != nullptr) {
      WeightFormat format = FormatOf(*inner);
      format.name = "sparse_" + format.name;
      return format;
    }
    const Type* data = PartType(op, "nonzero_data");
    return {fmt::format("sparse_{}", data != nullptr ? DataTypeName(data->dtype()) : "fp16"), 0};
  }
  if (type == "constexpr_lut_to_sparse") return LutFormat(op);
  if (type == "constexpr_sparse_blockwise_shift_scale") {
    const Type* data = PartType(op, "nonzero_data");
    return {fmt::format("{}_scaled", data != nullptr ? DataTypeName(data->dtype()) : "int8"), 0};
  }
  if (type == "constexpr_cast") return {"fp16", 0};
  return {std::string(DataTypeName(op.output()->type.dtype())), 0};
}

bool FeedsConstexpr(const Operation& op) {
  for (const auto& output : op.outputs()) {
    for (const Use& use : output->uses()) {
      if (use.op != nullptr && IsConstexpr(*use.op)) return true;
    }
  }
  return false;
}

}  // namespace

bool DescribeWeight(const Operation& op, Weight* weight) {
  const bool constant = op.type() == "const";
  if (!constant && !IsConstexpr(op)) return false;
  if (FeedsConstexpr(op) || op.outputs().empty()) return false;
  const Type& type = op.outputs().back()->type;
  if (!type.IsTensor() || type.dtype() == DataType::kString) return false;
  weight->elements = CountOf(type);
  if (constant && weight->elements < kMinWeightElements) return false;
  weight->op = &op;
  weight->format = FormatOf(op);
  weight->dense_bytes = BytesOf(type);
  std::set<const void*> seen;
  weight->stored_bytes = constant ? weight->dense_bytes : StoredBytes(op, seen);
  return true;
}

std::vector<Weight> FindWeights(const Function& function) {
  std::vector<Weight> weights;
  ForEachOperation(function.body(), [&weights](const Operation& op) {
    Weight weight;
    if (DescribeWeight(op, &weight)) weights.push_back(weight);
  });
  return weights;
}

namespace {

// The address of the bytes that tell one weight from another: its largest literal.
const void* Identity(const Operation& op) {
  const std::byte* best = nullptr;
  size_t size = 0;
  const auto consider = [&](const Literal* literal) {
    if (literal == nullptr || literal->tensor.bytes().size() <= size) return;
    size = literal->tensor.bytes().size();
    best = literal->tensor.bytes().data();
  };
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) {
      consider(operand.constant());
      const Operation* producer = operand.value != nullptr ? operand.value->producer() : nullptr;
      if (producer != nullptr && IsConstexpr(*producer) && best == nullptr) return Identity(*producer);
    }
  }
  for (const auto& [name, literal] : op.attributes) consider(&literal);
  return best;
}

}  // namespace

std::vector<WeightTotal> ReportWeights(const Program& program) {
  std::map<WeightFormat, WeightTotal> totals;
  std::set<const void*> counted;
  for (const auto& function : program.functions()) {
    for (const Weight& weight : FindWeights(*function)) {
      if (!counted.insert(Identity(*weight.op)).second) continue;
      WeightTotal& total = totals[weight.format];
      total.format = weight.format;
      ++total.count;
      total.elements += weight.elements;
      total.stored_bytes += weight.stored_bytes;
      total.dense_bytes += weight.dense_bytes;
    }
  }
  std::vector<WeightTotal> sorted;
  sorted.reserve(totals.size());
  for (auto& [format, total] : totals) sorted.push_back(std::move(total));
  std::ranges::stable_sort(sorted, std::greater<>(), &WeightTotal::stored_bytes);
  return sorted;
}

}  // namespace milwright
