#include "passes/upgrade_constexpr.h"

#include <fmt/format.h>

#include "milwright/tensor.h"

namespace milwright {
namespace {

Status Refuse(const Operation& op, std::string_view why) {
  return {ErrorCode::kPrecondition, fmt::format("{}: {}", OperationPath(op), why)};
}

// The same bytes under another type; a blob keeps its place in the weight file.
Result<Literal> Retyped(const Literal& literal, const TensorType& type) {
  MW_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type));
  const auto have = literal.tensor.bytes();
  if (static_cast<int64_t>(have.size()) < bytes) {
    return Status(ErrorCode::kInvalidProgram,
                  fmt::format("holds {} bytes, but {} takes {}", have.size(), TypeToString(type), bytes));
  }
  // Written anew: the blob's record names another data type than the new form wants.
  MW_ASSIGN_OR_RETURN(Tensor tensor, Tensor::FromBytes(type, {have.begin(), have.begin() + bytes}));
  return Literal(std::move(tensor));
}

Result<DataType> IndexType(int64_t entries) {
  for (const DataType type :
       {DataType::kUInt1, DataType::kUInt2, DataType::kUInt3, DataType::kUInt4, DataType::kUInt6, DataType::kUInt8}) {
    if (int64_t{1} << BitWidth(type) == entries) return type;
  }
  return Status(ErrorCode::kPrecondition, fmt::format("a table of {} entries has no iOS18 form", entries));
}

using Inputs = std::vector<std::pair<std::string, Literal>>;

Result<Inputs> UpgradeLut(const Operation& op) {
  const Shape& shape = op.output()->type.shape();
  const Literal& lut = *op.FindAttribute("lut");
  MW_ASSIGN_OR_RETURN(const DataType index_type, IndexType(lut.tensor.size()));
  MW_ASSIGN_OR_RETURN(Literal indices, Retyped(*op.FindAttribute("indices"), {index_type, shape}));
  Shape lut_shape(shape.size(), 1);
  lut_shape.push_back(lut.tensor.size());
  lut_shape.push_back(1);
  MW_ASSIGN_OR_RETURN(Tensor table, lut.tensor.Reshaped(std::move(lut_shape)));
  return Inputs{{"indices", std::move(indices)}, {"lut", Literal(std::move(table))}};
}

Result<Inputs> UpgradeAffine(const Operation& op) {
  const Literal& data = *op.FindAttribute("quantized_data");
  const auto rank = data.tensor.rank();
  const int64_t axis = op.FindAttribute("axis")->tensor.GetInt(0);
  const int64_t at = axis < 0 ? axis + rank : axis;
  const auto spread = [&](const Tensor& tensor) -> Result<Tensor> {
    Shape shape(static_cast<size_t>(rank), 1);
    if (tensor.size() > 1 && at >= 0 && at < rank) shape[static_cast<size_t>(at)] = tensor.size();
    return tensor.Reshaped(std::move(shape));
  };
  const Tensor& scale = op.FindAttribute("scale")->tensor;
  Tensor zero_point = op.FindAttribute("zero_point")->tensor;
  // The offset must be spread like the scale and have the data's type.
  if (zero_point.size() != scale.size() || zero_point.dtype() != data.tensor.dtype()) {
    MW_ASSIGN_OR_RETURN(Tensor wide, Tensor::Zeros({data.tensor.dtype(), scale.shape()}));
    for (int64_t i = 0; i < wide.size(); ++i) wide.SetDouble(i, zero_point.GetDouble(zero_point.size() == 1 ? 0 : i));
    zero_point = std::move(wide);
  }
  MW_ASSIGN_OR_RETURN(Tensor scale_spread, spread(scale));
  MW_ASSIGN_OR_RETURN(Tensor offset_spread, spread(zero_point));
  return Inputs{
      {"data", data}, {"scale", Literal(std::move(scale_spread))}, {"offset", Literal(std::move(offset_spread))}};
}

Result<Inputs> UpgradeSparse(const Operation& op) {
  MW_ASSIGN_OR_RETURN(Literal mask, Retyped(*op.FindAttribute("mask"), {DataType::kUInt1, op.output()->type.shape()}));
  return Inputs{{"mask", std::move(mask)}, {"nonzero_data", *op.FindAttribute("nonzero_data")}};
}

Result<Inputs> UpgradeCast(const Operation& op) {
  return Inputs{{"source_val", *op.FindAttribute("source_val")}, {"output_dtype", *op.FindAttribute("output_dtype")}};
}

struct Upgrade {
  std::string_view from;
  std::string_view to;
  Result<Inputs> (*inputs)(const Operation&);
};
constexpr Upgrade kUpgrades[] = {
    {"constexpr_lut_to_dense", "constexpr_lut_to_dense", UpgradeLut},
    {"constexpr_affine_dequantize", "constexpr_blockwise_shift_scale", UpgradeAffine},
    {"constexpr_sparse_to_dense", "constexpr_sparse_to_dense", UpgradeSparse},
    {"constexpr_cast", "constexpr_cast", UpgradeCast},
};

}  // namespace

Status UpgradeConstexpr(Function& function, std::vector<std::string>* notes) {
  std::vector<Operation*> old_form;
  ForEachOperation(function.body(), [&old_form](Operation& op) {
    if (op.type().starts_with("constexpr_") && op.inputs().empty()) old_form.push_back(&op);
  });
  for (Operation* op : old_form) {
    const Upgrade* upgrade = nullptr;
    for (const Upgrade& candidate : kUpgrades) {
      if (candidate.from == op->type()) upgrade = &candidate;
    }
    if (upgrade == nullptr) return Refuse(*op, "has no form in iOS18");
    auto inputs = upgrade->inputs(*op);
    if (!inputs.ok()) return Refuse(*op, inputs.status().message());
    auto fresh = std::make_unique<Operation>(std::string(upgrade->to));
    if (const Literal* name = op->FindAttribute("name"); name != nullptr) fresh->attributes.emplace("name", *name);
    Operation* placed = op->parent()->Insert(std::move(fresh), op);
    for (auto& [name, literal] : *inputs) placed->SetInput(name, Operand(Literal::Share(std::move(literal))));
    Value* value = placed->AddOutput(op->output()->name, op->output()->type);
    op->output()->ReplaceAllUsesWith(value);
    op->parent()->Erase(op);
  }
  if (!old_form.empty() && notes != nullptr) {
    notes->push_back(
        fmt::format("{}: {} compressed weights brought into the iOS18 form", function.name, old_form.size()));
  }
  return Status::Ok();
}

}  // namespace milwright
