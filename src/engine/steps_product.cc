// Products: linear, 1x1 and depthwise convolution, matmul, and rows gathered from weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "engine/copy.h"
#include "engine/integers.h"
#include "engine/plan_builder.h"
#include "engine/product.h"
#include "kernels/matmul.h"
#include "ops/float_math.h"

namespace milwright::engine {
namespace {

size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// y[m, N] = x[m, K] W^T + bias, for one or several weights of the same x.
class LinearStep final : public Step {
 public:
  struct Part {
    std::shared_ptr<const WeightMatrix> weight;
    View bias;
    View y;
    bool round = false;
  };
  LinearStep(View x, std::vector<Part> parts, int threads) : x_(x) {
    for (Part& part : parts) {
      const WeightMatrix& weight = *part.weight;
      parts_.push_back({std::move(part), weight.view, weight.matvec, weight.matmul});
    }
    rows_ = x_.shape[0];
    packed_ = x_.dtype != DataType::kFp32 || (x_.shape[1] > 1 && x_.strides[1] != 1);
    if (packed_) {
      copier_ = Copier(x_.dtype, x_.strides, DataType::kFp32, DenseStrides(x_.shape), x_.shape);
      pack_bytes_ = RoundUp(static_cast<size_t>(x_.count()) * sizeof(float));
    }
    const WeightMatrix& first = *parts_.front().weight;
    for (const PlacedPart& part : parts_) {
      const WeightMatrix& weight = *part.weight;
      kernel_bytes_ = std::max(kernel_bytes_,
                               rows_ == 1 ? kernels::MatVecScratchBytes(*weight.matvec, weight.view)
                                          : kernels::MatMulScratchBytes(*weight.matmul, weight.view, rows_, threads));
      together_ =
          together_ && weight.matvec->prepare == first.matvec->prepare && weight.matmul->pack == first.matmul->pack;
    }
  }

  [[nodiscard]] size_t ScratchBytes() const override { return pack_bytes_ + RoundUp(kernel_bytes_); }

  Status Run(Frame& frame) const override {
    uint8_t* scratch = frame.scratch.data();
    const float* x = nullptr;
    int64_t ldx = x_.strides[0];
    if (packed_) {
      copier_.Run(*frame.kernels, frame.At<std::byte>(x_, BitWidth(x_.dtype) / 8),
                  reinterpret_cast<std::byte*>(scratch));
      x = reinterpret_cast<const float*>(scratch);
      ldx = x_.shape[1];
    } else {
      x = frame.At<float>(x_);
    }
    std::array<kernels::ProductPart, kMaxProductParts> parts;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const PlacedPart& part = parts_[i];
      parts[i] = {part.matvec, part.matmul, &part.view, part.bias.root >= 0 ? frame.At<float>(part.bias) : nullptr,
                  frame.At<float>(part.y)};
    }
    const std::span<uint8_t> kernel_scratch(scratch + pack_bytes_, kernel_bytes_);
    const size_t step = together_ ? parts_.size() : 1;
    for (size_t i = 0; i < parts_.size(); i += step) {
      const auto some = std::span(parts).subspan(i, step);
      if (rows_ == 1) {
        kernels::MatVecTogether(*frame.pool, some, x, kernel_scratch);
      } else {
        kernels::MatMulTogether(*frame.pool, some, x, ldx, rows_, kernel_scratch);
      }
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].round) continue;
      float* y = parts[i].y;
      frame.pool->ParallelFor(
          rows_ * parts_[i].view.rows,
          [&](int64_t begin, int64_t end) { frame.kernels->round_to_half(y + begin, end - begin); }, int64_t{1} << 14);
    }
    return Status::Ok();
  }

 private:
  // What Run reads of a part, where it reads it.
  struct PlacedPart : Part {
    kernels::WeightView view;
    const kernels::MatVecKernel* matvec = nullptr;
    const kernels::MatMulKernel* matmul = nullptr;
  };

  View x_;  // [rows, K]
  InlineVector<PlacedPart, kMaxProductParts> parts_;
  int64_t rows_ = 0;
  bool packed_ = false;
  bool together_ = true;
  Copier copier_;
  size_t pack_bytes_ = 0;
  size_t kernel_bytes_ = 0;
};

// `view` with axis `channel` last and all others joined to rows: what a matrix is multiplied with. Copied when strides
// cannot join the rows.
Result<View> RowsOf(PlanBuilder& builder, const Node& node, const View& view, int64_t channel) {
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < view.rank(); ++i) {
    if (i != channel) perm.push_back(i);
  }
  perm.push_back(channel);
  const View turned = Transposed(view, perm);
  const int64_t columns = turned.shape.back();
  const Shape shape{columns == 0 ? 0 : turned.count() / columns, columns};
  if (auto rows = Reshaped(turned, shape); rows.has_value()) return *rows;
  const View dense = builder.AllocateTemporary(DataType::kFp32, turned.shape);
  builder.Emit(MakeCopy(turned, dense), node, {turned, dense});
  return *Reshaped(dense, shape);
}

Result<View> BiasOf(PlanBuilder& builder, GraphValue* bias) {
  if (bias == nullptr) return View();
  if (bias->known != nullptr && std::ranges::all_of(bias->known->tensor.ToFloats(), [](float b) { return b == 0; })) {
    return View();
  }
  return builder.FloatsOf(bias);
}

struct PlannedProduct {
  std::shared_ptr<const WeightMatrix> weight;
  GraphValue* bias = nullptr;
  GraphValue* output = nullptr;
};

// Rows by channels in memory, whatever the order of the axes: the next product reads it as it is.
Shape ProductStrides(const Shape& shape, int64_t channel) {
  Shape strides(shape.size());
  int64_t stride = shape[static_cast<size_t>(channel)];
  for (size_t i = shape.size(); i-- > 0;) {
    if (static_cast<int64_t>(i) == channel) {
      strides[i] = 1;
    } else {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  return strides;
}

Result<bool> LowerProducts(PlanBuilder& builder, const Node& node, GraphValue* x,
                           std::span<const PlannedProduct> products, int64_t channel, std::string_view kind) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(x));
  if (view.count() == 0) return false;
  MW_ASSIGN_OR_RETURN(const View rows, RowsOf(builder, node, view, channel));
  std::vector<LinearStep::Part> parts;
  std::vector<View> used{rows};
  StepInfo info;
  for (const PlannedProduct& product : products) {
    if (rows.shape[1] != product.weight->view.cols) return false;
    MW_ASSIGN_OR_RETURN(const View bias, BiasOf(builder, product.bias));
    if (bias.root >= 0 && !IsDense(bias)) return false;
    const Shape strides = ProductStrides(product.output->shape(), channel);
    const View y = builder.Allocate(product.output, &strides);
    info.weight_bytes += kernels::StoredBytes(product.weight->view);
    info.multiply_adds += rows.shape[0] * product.weight->view.rows * product.weight->view.cols;
    used.insert(used.end(), {bias, y});
    parts.push_back({product.weight, bias, y, product.output->dtype() == DataType::kFp16});
  }
  info.kind = std::string(kind) + ":" + kernels::CodecName(products.front().weight->view.codec);
  builder.Emit(std::make_unique<LinearStep>(rows, std::move(parts), builder.threads()), node, used, std::move(info));
  return true;
}

Result<bool> LowerMatrixProduct(PlanBuilder& builder, const Node& node, GraphValue* x,
                                const std::shared_ptr<const WeightMatrix>& weight, GraphValue* bias, int64_t channel) {
  const PlannedProduct product{weight, bias, node.output()};
  return LowerProducts(builder, node, x, {&product, 1}, channel, node.kind);
}

bool IsStored(const GraphValue* value) {
  return value != nullptr && (value->known != nullptr || value->weight != nullptr) && IsFloat(value->dtype());
}

bool AllEqual(const std::vector<int64_t>& values, int64_t value) {
  return std::ranges::all_of(values, [value](int64_t v) { return v == value; });
}

}  // namespace

std::optional<int64_t> ProductChannel(const Node& node) {
  if (node.kind != "linear" && node.kind != "conv") return std::nullopt;
  const GraphValue* x = node.Arg("x");
  const GraphValue* weight = node.Arg("weight");
  if (!IsStored(weight) || x == nullptr || !IsFloat(x->dtype())) return std::nullopt;
  if (node.kind == "linear") return static_cast<int64_t>(x->shape().size()) - 1;
  // A convolution with one tap that looks at every place once.
  const OpContext context = node.Context();
  const Shape& shape = weight->shape();
  const std::string pad_type = context.String("pad_type", "valid");
  const bool unpadded = pad_type != "custom" || AllEqual(context.Ints("pad"), 0);
  const bool pointwise = std::all_of(shape.begin() + 2, shape.end(), [](int64_t size) { return size == 1; });
  if (!pointwise || !unpadded || context.Int("groups", 1) != 1 || !AllEqual(context.Ints("strides"), 1)) {
    return std::nullopt;
  }
  return 1;
}

namespace {

Result<bool> LowerGroup(PlanBuilder& builder, const Node& node) {
  std::vector<PlannedProduct> products;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    MW_ASSIGN_OR_RETURN(auto weight, builder.weights().Matrix(*node.Args("weights")[i]));
    if (weight == nullptr) return false;
    products.push_back({std::move(weight), node.Arg("bias" + std::to_string(i)), node.outputs[i]});
  }
  return LowerProducts(builder, node, node.Arg("x"), products, node.numbers.axis, node.op->type());
}

Result<bool> LowerLinear(PlanBuilder& builder, const Node& node) {
  const auto channel = ProductChannel(node);
  if (!channel.has_value()) return false;
  MW_ASSIGN_OR_RETURN(const auto matrix, builder.weights().Matrix(*node.Arg("weight")));
  if (matrix == nullptr) return false;
  return LowerMatrixProduct(builder, node, node.Arg("x"), matrix, node.Arg("bias"), *channel);
}

// ---- convolution ----

class DepthwiseStep final : public Step {
 public:
  DepthwiseStep(View x, View weight, View bias, View y, bool round)
      : x_(x), weight_(weight), bias_(bias), y_(y), round_(round) {}

  Status Run(Frame& frame) const override {
    const auto* x = frame.At<float>(x_);
    const auto* weight = frame.At<float>(weight_);
    const float* bias = bias_.root >= 0 ? frame.At<float>(bias_) : nullptr;
    auto* y = frame.At<float>(y_);
    const int64_t taps = weight_.shape[1];
    for (int64_t b = 0; b < y_.shape[0]; ++b) {
      for (int64_t c = 0; c < y_.shape[1]; ++c) {
        const float* from = x + b * x_.strides[0] + c * x_.strides[1];
        float* to = y + b * y_.strides[0] + c * y_.strides[1];
        for (int64_t t = 0; t < y_.shape[2]; ++t) {
          float sum = 0;
          for (int64_t j = 0; j < taps; ++j) {
            sum += from[(t + j) * x_.strides[2]] * weight[c * weight_.strides[0] + j * weight_.strides[1]];
          }
          to[t * y_.strides[2]] = sum + (bias != nullptr ? bias[c * bias_.strides[0]] : 0.0F);
        }
      }
    }
    if (round_) frame.kernels->round_to_half(y, y_.count());
    return Status::Ok();
  }

 private:
  View x_;       // [batch, channels, length]
  View weight_;  // [channels, taps]
  View bias_;
  View y_;
  bool round_;
};

Result<bool> LowerConv(PlanBuilder& builder, const Node& node) {
  if (ProductChannel(node).has_value()) return LowerLinear(builder, node);
  const OpContext context = node.Context();
  GraphValue* weight = node.Arg("weight");
  GraphValue* x = node.Arg("x");
  if (!IsStored(weight) || !IsFloat(x->dtype())) return false;
  const Shape& shape = weight->shape();
  const std::string pad_type = context.String("pad_type", "valid");
  const bool unpadded = pad_type == "valid" || (pad_type == "custom" && AllEqual(context.Ints("pad"), 0));
  if (!AllEqual(context.Ints("strides"), 1) || !AllEqual(context.Ints("dilations"), 1)) return false;
  const int64_t groups = context.Int("groups", 1);
  // Depthwise, along the one axis that has more than one tap.
  if (!unpadded || groups != x->shape()[1] || shape[0] != groups || shape[1] != 1) return false;
  int64_t taps = 1;
  int64_t along = -1;
  int64_t long_axes = 0;
  for (size_t i = 2; i < shape.size(); ++i) {
    if (shape[i] == 1 && x->shape()[i] == 1) continue;
    taps = shape[i];
    along = static_cast<int64_t>(i);
    ++long_axes;
  }
  if (long_axes != 1) return false;
  MW_ASSIGN_OR_RETURN(View from, builder.FloatsOf(x));
  MW_ASSIGN_OR_RETURN(const View stored, builder.FloatsOf(weight));
  MW_ASSIGN_OR_RETURN(const View bias, BiasOf(builder, node.Arg("bias")));
  const auto flat_weight = Reshaped(stored, {shape[0], taps});
  if (!flat_weight.has_value()) return false;
  const View result = builder.Allocate(node.output());
  const auto three_axes = [along](const View& view) {
    const auto axis = static_cast<size_t>(along);
    return View{view.root,
                view.offset,
                view.dtype,
                {view.shape[0], view.shape[1], view.shape[axis]},
                {view.strides[0], view.strides[1], view.strides[axis]}};
  };
  builder.Emit(std::make_unique<DepthwiseStep>(three_axes(from), *flat_weight, bias, three_axes(result),
                                               node.output()->dtype() == DataType::kFp16),
               node, {from, stored, bias, result});
  return true;
}

// ---- products of activations ----

class BatchedProductStep final : public Step {
 public:
  BatchedProductStep(View x, View y, View result, bool round) : x_(x), y_(y), result_(result), round_(round) {
    const size_t rank = result_.shape.size();
    rows_ = result_.shape[rank - 2];
    columns_ = result_.shape[rank - 1];
    depth_ = x_.shape[rank - 1];
    const Shape batch(result_.shape.begin(), result_.shape.end() - 2);
    for (const int64_t size : batch) batches_ *= size;
    const auto leading = [&](const View& view) { return Shape(view.strides.begin(), view.strides.end() - 2); };
    axes_ = JoinedAxes(batch, {leading(result_), leading(x_), leading(y_)});
  }

  Status Run(Frame& frame) const override {
    const int64_t tasks = batches_ * rows_;
    constexpr int64_t kParallelProducts = 1 << 16;
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) RunRow(frame, task / rows_, task % rows_);
    };
    if (tasks * columns_ * depth_ >= kParallelProducts) {
      frame.pool->ParallelFor(tasks, run);
    } else {
      run(0, tasks);
    }
    return Status::Ok();
  }

 private:
  void RunRow(const Frame& frame, int64_t batch, int64_t row) const {
    const size_t rank = result_.shape.size();
    std::array<int64_t, 3> at{};
    for (size_t axis = axes_.size(); axis-- > 0;) {
      const int64_t position = batch % axes_[axis].size;
      batch /= axes_[axis].size;
      for (size_t k = 0; k < 3; ++k) at[k] += position * axes_[axis].strides[k];
    }
    const float* x = frame.At<float>(x_) + at[1] + row * x_.strides[rank - 2];
    const float* y = frame.At<float>(y_) + at[2];
    float* result = frame.At<float>(result_) + at[0] + row * result_.strides[rank - 2];
    const int64_t x_step = x_.strides[rank - 1];
    const int64_t y_row = y_.strides[rank - 2];
    const int64_t y_column = y_.strides[rank - 1];
    if (y_row == 1 && (x_step == 1 || depth_ == 1)) {
      for (int64_t n = 0; n < columns_; ++n) result[n] = Dot(x, y + n * y_column, static_cast<size_t>(depth_));
    } else {
      std::fill_n(result, columns_, 0.0F);
      for (int64_t k = 0; k < depth_; ++k) {
        const float factor = x[k * x_step];
        const float* from = y + k * y_row;
        if (y_column == 1) {
          for (int64_t n = 0; n < columns_; ++n) result[n] += factor * from[n];
        } else {
          for (int64_t n = 0; n < columns_; ++n) result[n] += factor * from[n * y_column];
        }
      }
    }
    if (round_) frame.kernels->round_to_half(result, columns_);
  }

  View x_;
  View y_;
  View result_;
  bool round_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t depth_ = 0;
  int64_t batches_ = 1;
  LoopAxes axes_;
};

View SwapLast(const View& view) {
  View swapped = view;
  std::swap(swapped.shape[swapped.shape.size() - 1], swapped.shape[swapped.shape.size() - 2]);
  std::swap(swapped.strides[swapped.strides.size() - 1], swapped.strides[swapped.strides.size() - 2]);
  return swapped;
}

Result<bool> LowerMatmul(PlanBuilder& builder, const Node& node) {
  const OpContext context = node.Context();
  GraphValue* x = node.Arg("x");
  GraphValue* y = node.Arg("y");
  if (!IsFloat(x->dtype()) || !IsFloat(y->dtype()) || x->shape().size() < 2 || y->shape().size() < 2) return false;
  const bool transpose_x = context.Bool("transpose_x");
  const bool transpose_y = context.Bool("transpose_y");
  const bool matrix = std::all_of(y->shape().begin(), y->shape().end() - 2, [](int64_t size) { return size == 1; });
  if (IsStored(y) && matrix && !transpose_x && y->shape().size() == 2) {
    MW_ASSIGN_OR_RETURN(const auto weight, builder.weights().Matrix(*y, !transpose_y));
    if (weight != nullptr && node.output()->shape().size() == x->shape().size()) {
      return LowerMatrixProduct(builder, node, x, weight, nullptr, static_cast<int64_t>(x->shape().size()) - 1);
    }
  }
  MW_ASSIGN_OR_RETURN(View from_x, builder.FloatsOf(x));
  MW_ASSIGN_OR_RETURN(View from_y, builder.FloatsOf(y));
  if (transpose_x) from_x = SwapLast(from_x);
  if (transpose_y) from_y = SwapLast(from_y);
  const Shape& shape = node.output()->shape();
  if (shape.size() < 2 || node.output()->type.tensor.shape.empty()) return false;
  const View result = builder.Allocate(node.output());
  const auto stretched = [&shape](const View& view) {
    Shape full(shape.begin(), shape.end() - 2);
    full.insert(full.end(), view.shape.end() - 2, view.shape.end());
    return BroadcastTo(view, full);
  };
  builder.Emit(std::make_unique<BatchedProductStep>(stretched(from_x), stretched(from_y), result,
                                                    node.output()->dtype() == DataType::kFp16),
               node, {from_x, from_y, result});
  return true;
}

// ---- gather ----

// Rows of a weight matrix, decoded: embeddings and tables.
class GatherWeightStep final : public Step {
 public:
  GatherWeightStep(std::shared_ptr<const WeightMatrix> weight, View indices, View result, bool round)
      : weight_(std::move(weight)), indices_(indices), result_(result), round_(round) {}
  Status Run(Frame& frame) const override {
    const kernels::WeightView& view = weight_->view;
    for (int64_t i = 0; i < indices_.shape[0]; ++i) {
      const int64_t asked = LoadInt(frame, indices_, i);
      const int64_t at = asked < 0 ? asked + view.rows : asked;
      if (at < 0 || at >= view.rows) {
        return {ErrorCode::kRuntime,
                fmt::format("gather: index {} is outside the size {} of axis 0", asked, view.rows)};
      }
      frame.kernels->decode_row(view, at, 0, view.cols, frame.At<float>(result_) + i * view.cols);
    }
    if (round_) frame.kernels->round_to_half(frame.At<float>(result_), result_.count());
    return Status::Ok();
  }

 private:
  std::shared_ptr<const WeightMatrix> weight_;
  View indices_;
  View result_;
  bool round_;
};

Result<bool> LowerGather(PlanBuilder& builder, const Node& node) {
  const OpContext context = node.Context();
  if (context.Int("batch_dims") != 0) return false;
  GraphValue* x = node.Arg("x");
  const auto rank = static_cast<int64_t>(x->shape().size());
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(context.Int("axis"), rank));
  MW_ASSIGN_OR_RETURN(const View indices, builder.ViewOf(node.Arg("indices")));
  const auto flat = Reshaped(indices, {indices.count()});
  if (!flat.has_value()) return false;
  if (IsStored(x) && axis == 0 && rank >= 2) {
    MW_ASSIGN_OR_RETURN(const auto weight, builder.weights().Matrix(*x));
    if (weight != nullptr) {
      const View result = builder.Allocate(node.output());
      builder.Emit(std::make_unique<GatherWeightStep>(weight, *flat, result, node.output()->dtype() == DataType::kFp16),
                   node, {indices, result});
      return true;
    }
  }
  MW_ASSIGN_OR_RETURN(const View from, builder.ViewOf(x));
  const View result = builder.AllocateAs(node.output(), from.dtype);
  builder.Emit(MakeGather(from, axis, *flat, result), node, {from, indices, result});
  return true;
}

constexpr LoweringEntry kProductEntries[] = {
    {"conv", LowerConv},     {"fused_products", LowerGroup}, {"gather", LowerGather},
    {"linear", LowerLinear}, {"matmul", LowerMatmul},
};

}  // namespace

std::span<const LoweringEntry> ProductLowerings() { return kProductEntries; }

}  // namespace milwright::engine
