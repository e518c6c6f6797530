#include "check/placement/cost_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check/placement/support_table.h"

namespace milwright {
namespace {

constexpr double kBitsPerByte = 8;

double Elements(const Shape& shape) {
  double count = 1;
  for (const int64_t size : shape) count *= size == kUnknownDim ? 1 : static_cast<double>(size);
  return count;
}

double Bytes(const Type& type) {
  return type.IsTensor() ? Elements(type.shape()) * BitWidth(type.dtype()) / kBitsPerByte : 0;
}

// The type of the only argument of `parameter`; null when there is none.
const Type* TypeOf(const Operation& op, std::string_view parameter) {
  if (parameter.empty()) return op.outputs().empty() ? nullptr : &op.output()->type;
  const Input* input = op.FindInput(parameter);
  return input == nullptr || input->arguments.size() != 1 ? nullptr : &input->arguments.front().type();
}

double KernelArea(const Operation& op) {
  const Type* weight = op.type() == "conv" || op.type() == "conv_transpose" ? TypeOf(op, "weight") : nullptr;
  if (weight == nullptr || weight->rank() < 2) return 1;
  return Elements(Shape(weight->shape().begin() + 2, weight->shape().end()));
}

Shape WithoutLeadingOnes(const Shape& shape) {
  return {std::ranges::find_if(shape, [](int64_t size) { return size != 1; }), shape.end()};
}

bool AllFp16OrBool(const Operation& op) {
  const auto fits = [](const Type& type) { return type.dtype() == DataType::kFp16 || type.dtype() == DataType::kBool; };
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) {
      if (operand.value != nullptr && operand.constant() == nullptr && !fits(operand.value->type)) return false;
    }
  }
  return std::ranges::all_of(op.outputs(), [&](const auto& output) { return fits(output->type); });
}

bool IsStaticOp(const Operation& op) {
  return std::ranges::all_of(op.outputs(), [](const auto& output) { return IsStatic(output->type.shape()); });
}

// Attention with a mask and without one are different figures.
bool SameForm(const Operation& op, const CostFigure& figure) {
  const bool figure_has_mask =
      std::ranges::any_of(figure.shapes, [](const auto& entry) { return entry.first == "attn_mask"; });
  return figure_has_mask == (op.FindInput("attn_mask") != nullptr);
}

bool IsExactly(const Operation& op, const CostFigure& figure) {
  if (figure.shapes.empty() || !SameForm(op, figure) || op.type() != figure.ops.substr(0, figure.ops.find(' ')) ||
      !AllFp16OrBool(op))
    return false;
  return std::ranges::all_of(figure.shapes, [&op](const auto& entry) {
    const Type* type = TypeOf(op, entry.first);
    return type != nullptr && WithoutLeadingOnes(type->shape()) == entry.second;
  });
}

// How far a figure is from an op: ratios of work and of kernel area, and a mask where the other has none.
double Distance(const Operation& op, const CostFigure& figure, double work) {
  constexpr double kOtherForm = 1e3;  // beyond any ratio
  return std::abs(std::log(std::max(work, 1.0) / figure.work)) +
         std::abs(std::log(std::max(KernelArea(op), 1.0) / figure.kernel_area)) +
         (SameForm(op, figure) ? 0 : kOtherForm);
}

double WorkOf(const Operation& op, WorkUnit unit) { return unit == WorkUnit::kFlops ? FlopsOf(op) : DataBytesOf(op); }

std::vector<CostFigure> MakeFigures() {
  constexpr double k64x32x32Bytes = 2.0 * 2 * 64 * 32 * 32;  // fp16, in and out
  const Shape image = {64, 32, 32};
  const Shape heads = {8, 128, 64};
  return {
      {"conv 3x3 64->64 at 32x32",
       "conv conv_transpose",
       WorkUnit::kFlops,
       2.0 * 64 * 64 * 9 * 32 * 32,
       9,
       4.67,
       100.06,
       {{"x", image}, {"weight", {64, 64, 3, 3}}, {"", image}}},
      {"conv 1x1 64->64 at 32x32",
       "conv conv_transpose",
       WorkUnit::kFlops,
       2.0 * 64 * 64 * 32 * 32,
       1,
       1.17,
       21.62,
       {{"x", image}, {"weight", {64, 64, 1, 1}}, {"", image}}},
      {"matmul 128x256 256x128",
       "matmul",
       WorkUnit::kFlops,
       2.0 * 128 * 256 * 128,
       1,
       2.24,
       11.12,
       {{"x", {128, 256}}, {"y", {256, 128}}, {"", {128, 128}}}},
      {"linear 64x256 256x256",
       "linear",
       WorkUnit::kFlops,
       2.0 * 64 * 256 * 256,
       1,
       14.45,
       372.1,
       {{"x", {64, 256}}, {"weight", {256, 256}}, {"", {64, 256}}}},
      {"sdpa 1x8x128x64",
       "scaled_dot_product_attention",
       WorkUnit::kFlops,
       4.0 * 8 * 128 * 128 * 64,
       1,
       7.18,
       8.62,
       {{"query", heads}, {"key", heads}, {"value", heads}}},
      {"sdpa 1x8x128x64 with mask",
       "scaled_dot_product_attention",
       WorkUnit::kFlops,
       4.0 * 8 * 128 * 128 * 64,
       1,
       7.63,
       9.16,
       {{"query", heads}, {"key", heads}, {"value", heads}, {"attn_mask", {128, 128}}}},
      {"softmax 64x32x32",
       "softmax instance_norm batch_norm l2_norm local_response_norm reduce_sum reduce_mean reduce_max reduce_min "
       "reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp reduce_sum_square",
       WorkUnit::kBytes,
       k64x32x32Bytes,
       1,
       3.59,
       4.31,
       {{"x", image}, {"", image}}},
      {"layer_norm 64x32x32",
       "layer_norm",
       WorkUnit::kBytes,
       k64x32x32Bytes,
       1,
       3.59,
       4.31,
       {{"x", image}, {"", image}}},
      {"transpose of H and W", "transpose", WorkUnit::kBytes, k64x32x32Bytes, 1, 3.81, 3.00},
      {"concat on channels", "concat stack split tile pad", WorkUnit::kBytes, k64x32x32Bytes, 1, 2.62, 22.79},
      {"bilinear upsample x2",
       "upsample_bilinear resize_bilinear resize upsample_nearest_neighbor resize_nearest_neighbor resample affine",
       WorkUnit::kBytes, 2.0 * 64 * 32 * 32 * 5, 1, 3.31, 499.64},
      // The source has no time of a gather on the ANE; the elementwise rate stands in for one with constant indices.
      {"gather of 64 rows from [1000, 256]", "gather gather_nd gather_along_axis", WorkUnit::kBytes,
       2.0 * (1000 * 256 + 64 * 256) + 2 * 64, 1, std::nullopt, 22.3},
  };
}

}  // namespace

std::span<const CostFigure> CostFigures() {
  static const std::vector<CostFigure> figures = MakeFigures();
  return figures;
}

double FlopsOf(const Operation& op) {
  if (op.outputs().empty()) return 0;
  const double outputs = Elements(op.output()->type.shape());
  const Type* x = TypeOf(op, "x");
  const Type* weight = TypeOf(op, "weight");
  if (op.type() == "conv" && weight != nullptr && weight->rank() >= 2) {
    return 2 * outputs * Elements(Shape(weight->shape().begin() + 1, weight->shape().end()));
  }
  if (op.type() == "conv_transpose" && weight != nullptr && weight->rank() >= 2 && x != nullptr) {
    return 2 * Elements(x->shape()) * Elements(Shape(weight->shape().begin() + 1, weight->shape().end()));
  }
  if (op.type() == "linear" && weight != nullptr && weight->rank() == 2) {
    return 2 * outputs * Elements({weight->shape()[1]});
  }
  if (op.type() == "matmul" && x != nullptr && x->rank() >= 1) {
    const Literal* transposed = op.InputConstant("transpose_x");
    const bool swap =
        x->rank() >= 2 && transposed != nullptr && transposed->tensor.size() == 1 && transposed->tensor.GetInt(0) != 0;
    return 2 * outputs * Elements({x->shape()[static_cast<size_t>(x->rank()) - (swap ? 2 : 1)]});
  }
  if (op.type() == "scaled_dot_product_attention") {
    const Type* query = TypeOf(op, "query");
    const Type* key = TypeOf(op, "key");
    if (query == nullptr || key == nullptr || query->rank() < 1 || key->rank() < 2) return 0;
    const double positions = Elements({key->shape()[static_cast<size_t>(key->rank()) - 2]});
    return 2 * positions * (Elements(query->shape()) + outputs);
  }
  return 0;
}

double DataBytesOf(const Operation& op) {
  double bytes = 0;
  for (const Input& input : op.inputs()) {
    for (const Operand& operand : input.arguments) {
      if (operand.value != nullptr && operand.constant() == nullptr) bytes += Bytes(operand.value->type);
    }
  }
  for (const auto& output : op.outputs()) bytes += Bytes(output->type);
  return bytes;
}

CostEstimate EstimateCost(const Operation& op) {
  static const AneSupportRule& elementwise = *FindAneSupportRule("elementwise");
  const double stream_us = DataBytesOf(op) / kElementwiseBytesPerUs;
  if (HasWord(elementwise.ops, op.type())) {
    return {stream_us, stream_us, !AllFp16OrBool(op) || !IsStaticOp(op), "elementwise: bytes in and out at 100 GB/s"};
  }
  const CostFigure* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  for (const CostFigure& figure : CostFigures()) {
    if (!HasWord(figure.ops, op.type())) continue;
    if (IsExactly(op, figure)) return {figure.ane_us.value_or(stream_us), figure.cpu_us, false, figure.name};
    const double distance = Distance(op, figure, WorkOf(op, figure.unit));
    if (distance < nearest_distance) {
      nearest = &figure;
      nearest_distance = distance;
    }
  }
  if (nearest == nullptr) return {stream_us, stream_us, true, "as elementwise: bytes in and out at 100 GB/s"};
  const double factor = WorkOf(op, nearest->unit) / nearest->work;
  return {nearest->ane_us.has_value() ? *nearest->ane_us * factor : stream_us, nearest->cpu_us * factor, true,
          nearest->name};
}

}  // namespace milwright
