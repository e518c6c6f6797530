// Work along rows: reductions, softmax, layer normalisation, argmax and top-k.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/copy.h"
#include "engine/plan_builder.h"
#include "engine/rows.h"

namespace milwright::engine {

Result<View> RowView(PlanBuilder& builder, const Node& node, GraphValue* value, const std::vector<int64_t>& axes) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(value));
  const std::set<int64_t> inside(axes.begin(), axes.end());
  std::vector<int64_t> perm;
  int64_t length = 1;
  for (int64_t i = 0; i < view.rank(); ++i) {
    if (!inside.contains(i)) perm.push_back(i);
  }
  for (const int64_t axis : inside) {
    perm.push_back(axis);
    length *= view.shape[static_cast<size_t>(axis)];
  }
  const View turned = Transposed(view, perm);
  const Shape shape{length == 0 ? 0 : turned.count() / length, length};
  if (view.dtype == DataType::kFp32) {
    if (auto rows = Reshaped(turned, shape); rows.has_value()) return *rows;
  }
  const View dense = builder.AllocateTemporary(DataType::kFp32, turned.shape);
  builder.Emit(MakeCopy(turned, dense), node, {turned, dense});
  return *Reshaped(dense, shape);
}

Shape RowStrides(const Shape& shape, const std::vector<int64_t>& axes) {
  const std::set<int64_t> inside(axes.begin(), axes.end());
  Shape strides(shape.size());
  int64_t stride = 1;
  for (const bool row : {true, false}) {
    for (size_t i = shape.size(); i-- > 0;) {
      if (inside.contains(static_cast<int64_t>(i)) != row) continue;
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  return strides;
}

namespace {

std::optional<std::vector<int64_t>> AxesOf(const OpContext& context, std::string_view parameter, int64_t rank) {
  std::vector<int64_t> axes;
  if (context.Has(parameter)) {
    axes = context.Ints(parameter);
  } else {
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (int64_t& axis : axes) {
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return std::nullopt;
  }
  if (axes.empty()) return std::nullopt;
  std::ranges::sort(axes);
  return axes;
}

// ---- reductions ----

enum class Fold : uint8_t { kSum, kMean, kMax, kMin };

float Larger(float a, float b) { return b > a || std::isnan(b) ? b : a; }
float Smaller(float a, float b) { return b < a || std::isnan(b) ? b : a; }

class ReduceStep final : public Step {
 public:
  ReduceStep(View x, View result, Fold fold, bool round) : x_(x), result_(result), fold_(fold), round_(round) {}

  Status Run(Frame& frame) const override {
    const float* x = frame.At<float>(x_);
    auto* result = frame.At<float>(result_);
    ForParts(frame, x_.shape[0], x_.count(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) result[row] = FoldRow(x + row * x_.strides[0]);
      if (round_) frame.kernels->round_to_half(result + begin, end - begin);
    });
    return Status::Ok();
  }

 private:
  [[nodiscard]] float FoldRow(const float* x) const {
    const int64_t n = x_.shape[1];
    const int64_t step = x_.strides[1];
    if (fold_ == Fold::kMax || fold_ == Fold::kMin) {
      float value =
          fold_ == Fold::kMax ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < n; ++i) {
        value = fold_ == Fold::kMax ? Larger(value, x[i * step]) : Smaller(value, x[i * step]);
      }
      return value;
    }
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i * step];
    return fold_ == Fold::kMean ? sum / static_cast<float>(n) : sum;
  }

  View x_;
  View result_;
  Fold fold_;
  bool round_;
};

Result<bool> LowerReduce(PlanBuilder& builder, const Node& node) {
  GraphValue* x = node.Arg("x");
  if (!IsFloat(x->dtype())) return false;
  const auto axes = AxesOf(node.Context(), "axes", static_cast<int64_t>(x->shape().size()));
  if (!axes.has_value()) return false;
  MW_ASSIGN_OR_RETURN(const View rows, RowView(builder, node, x, *axes));
  const View result = builder.Allocate(node.output());
  Fold fold = Fold::kSum;
  if (node.kind == "reduce_mean") fold = Fold::kMean;
  if (node.kind == "reduce_max") fold = Fold::kMax;
  if (node.kind == "reduce_min") fold = Fold::kMin;
  builder.Emit(std::make_unique<ReduceStep>(rows, result, fold, node.output()->dtype() == DataType::kFp16), node,
               {rows, result});
  return true;
}

// ---- rows to rows ----

// Softmax, or layer normalisation with gamma and beta.
class RowStep final : public Step {
 public:
  struct Norm {
    View gamma;
    View beta;
    float epsilon = 0;
  };
  RowStep(View x, View result, std::optional<Norm> norm, bool round)
      : x_(x), result_(result), norm_(norm), round_(round) {
    if (x_.strides[1] != 1 && x_.shape[1] > 1) {
      copier_ = Copier(x_.dtype, {x_.strides[1]}, DataType::kFp32, {1}, {x_.shape[1]});
      gathered_ = true;
    }
  }

  Status Run(Frame& frame) const override {
    const float* x = frame.At<float>(x_);
    auto* result = frame.At<float>(result_);
    const int64_t n = x_.shape[1];
    const float* gamma = norm_.has_value() && norm_->gamma.root >= 0 ? frame.At<float>(norm_->gamma) : nullptr;
    const float* beta = norm_.has_value() && norm_->beta.root >= 0 ? frame.At<float>(norm_->beta) : nullptr;
    ForParts(frame, x_.shape[0], x_.count(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = x + row * x_.strides[0];
        float* to = result + row * n;
        if (gathered_) {
          copier_.Run(*frame.kernels, reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to));
          from = to;
        }
        if (norm_.has_value()) {
          frame.kernels->layer_norm(from, gamma, beta, norm_->epsilon, n, to);
        } else {
          frame.kernels->softmax(from, n, to);
        }
        if (round_) frame.kernels->round_to_half(to, n);
      }
    });
    return Status::Ok();
  }

 private:
  View x_;
  View result_;  // dense rows
  std::optional<Norm> norm_;
  bool round_;
  bool gathered_ = false;
  Copier copier_;
};

Result<bool> LowerRows(PlanBuilder& builder, const Node& node, const std::vector<int64_t>& axes,
                       std::optional<RowStep::Norm> norm) {
  MW_ASSIGN_OR_RETURN(const View rows, RowView(builder, node, node.Arg("x"), axes));
  const Shape strides = RowStrides(node.output()->shape(), axes);
  const View result = builder.Allocate(node.output(), &strides);
  std::vector<View> used{rows, result};
  if (norm.has_value()) used.insert(used.end(), {norm->gamma, norm->beta});
  builder.Emit(std::make_unique<RowStep>(rows, result, norm, node.output()->dtype() == DataType::kFp16), node, used);
  return true;
}

Result<bool> LowerSoftmax(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(node.Context().Int("axis", -1),
                                                        static_cast<int64_t>(node.Arg("x")->shape().size())));
  return LowerRows(builder, node, {axis}, std::nullopt);
}

Result<bool> LowerLayerNorm(PlanBuilder& builder, const Node& node) {
  const OpContext context = node.Context();
  const auto axes = AxesOf(context, "axes", static_cast<int64_t>(node.Arg("x")->shape().size()));
  if (!axes.has_value()) return false;
  RowStep::Norm norm{{}, {}, static_cast<float>(context.Double("epsilon"))};
  if (node.Arg("gamma") != nullptr) {
    MW_ASSIGN_OR_RETURN(norm.gamma, builder.FloatsOf(node.Arg("gamma")));
  }
  if (node.Arg("beta") != nullptr) {
    MW_ASSIGN_OR_RETURN(norm.beta, builder.FloatsOf(node.Arg("beta")));
  }
  if ((norm.gamma.root >= 0 && !IsDense(norm.gamma)) || (norm.beta.root >= 0 && !IsDense(norm.beta))) return false;
  return LowerRows(builder, node, *axes, norm);
}

// ---- the head's tail ----

class ArgmaxStep final : public Step {
 public:
  ArgmaxStep(View x, View result) : x_(x), result_(result) {}
  Status Run(Frame& frame) const override {
    for (int64_t row = 0; row < x_.shape[0]; ++row) {
      const float* x = frame.At<float>(x_) + row * x_.strides[0];
      frame.At<int32_t>(result_)[row] = static_cast<int32_t>(frame.kernels->argmax(x, x_.shape[1]));
    }
    return Status::Ok();
  }

 private:
  View x_;
  View result_;
};

Result<bool> LowerArgmax(PlanBuilder& builder, const Node& node) {
  GraphValue* x = node.Arg("x");
  if (!IsFloat(x->dtype()) || node.output()->dtype() != DataType::kInt32) return false;
  MW_ASSIGN_OR_RETURN(const int64_t axis,
                      NormalizeAxis(node.Context().Int("axis", -1), static_cast<int64_t>(x->shape().size())));
  MW_ASSIGN_OR_RETURN(const View rows, RowView(builder, node, x, {axis}));
  if (rows.shape[1] > 1 && rows.strides[1] != 1) return false;
  const View result = builder.Allocate(node.output());
  builder.Emit(std::make_unique<ArgmaxStep>(rows, result), node, {rows, result});
  return true;
}

class TopkStep final : public Step {
 public:
  TopkStep(View x, View values, View indices, int64_t k) : x_(x), values_(values), indices_(indices), k_(k) {}
  Status Run(Frame& frame) const override {
    for (int64_t row = 0; row < x_.shape[0]; ++row) {
      kernels::TopK(frame.At<float>(x_) + row * x_.strides[0], x_.shape[1], k_, frame.At<float>(values_) + row * k_,
                    frame.At<int32_t>(indices_) + row * k_);
    }
    return Status::Ok();
  }

 private:
  View x_;
  View values_;
  View indices_;
  int64_t k_;
};

Result<bool> LowerTopk(PlanBuilder& builder, const Node& node) {
  const OpContext context = node.Context();
  GraphValue* x = node.Arg("x");
  const auto rank = static_cast<int64_t>(x->shape().size());
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(context.Int("axis", -1), rank));
  if (!IsFloat(x->dtype()) || axis != rank - 1 || context.Bool("ascending") || node.outputs.size() != 2 ||
      node.outputs[1]->dtype() != DataType::kInt32) {
    return false;
  }
  MW_ASSIGN_OR_RETURN(const View rows, RowView(builder, node, x, {axis}));
  if (rows.shape[1] > 1 && rows.strides[1] != 1) return false;
  const View values = builder.Allocate(node.outputs[0]);
  const View indices = builder.Allocate(node.outputs[1]);
  builder.Emit(std::make_unique<TopkStep>(rows, values, indices, values.shape.back()), node, {rows, values, indices});
  return true;
}

constexpr LoweringEntry kReductionEntries[] = {
    {"layer_norm", LowerLayerNorm}, {"reduce_argmax", LowerArgmax},
    {"reduce_max", LowerReduce},    {"reduce_mean", LowerReduce},
    {"reduce_min", LowerReduce},    {"reduce_sum", LowerReduce},
    {"softmax", LowerSoftmax},      {"topk", LowerTopk},
};

}  // namespace

std::span<const LoweringEntry> ReductionLowerings() { return kReductionEntries; }

}  // namespace milwright::engine
