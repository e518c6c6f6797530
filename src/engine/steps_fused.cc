// Steps of the smaller fusions: RMSNorm, rotary embedding, gated activations, masked updates.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/copy.h"
#include "engine/plan_builder.h"
#include "engine/rows.h"
#include "milwright/half.h"
#include "ops/axes.h"

namespace milwright::engine {
namespace {

// ---- RMSNorm ----

class RmsNormStep final : public Step {
 public:
  RmsNormStep(View x, View weight, View result, float epsilon, bool round)
      : x_(x), weight_(weight), result_(result), epsilon_(epsilon), round_(round) {
    gathered_ = x_.shape[1] > 1 && x_.strides[1] != 1;
    if (gathered_) copier_ = Copier(x_.dtype, {x_.strides[1]}, DataType::kFp32, {1}, {x_.shape[1]});
  }

  Status Run(Frame& frame) const override {
    const float* x = frame.At<float>(x_);
    const float* weight = weight_.root >= 0 ? frame.At<float>(weight_) : nullptr;
    auto* result = frame.At<float>(result_);
    const int64_t n = x_.shape[1];
    ForParts(frame, x_.shape[0], x_.count(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* from = x + row * x_.strides[0];
        float* to = result + row * n;
        if (gathered_) {
          copier_.Run(*frame.kernels, reinterpret_cast<const std::byte*>(from), reinterpret_cast<std::byte*>(to));
          from = to;
        }
        frame.kernels->rms_norm(from, weight, epsilon_, n, to);
        if (round_) frame.kernels->round_to_half(to, n);
      }
    });
    return Status::Ok();
  }

 private:
  View x_;  // [rows, length]
  View weight_;
  View result_;  // dense rows
  float epsilon_;
  bool round_;
  bool gathered_ = false;
  Copier copier_;
};

Result<bool> LowerRmsNorm(PlanBuilder& builder, const Node& node) {
  const std::vector<int64_t> axes{node.numbers.axis};
  MW_ASSIGN_OR_RETURN(const View rows, RowView(builder, node, node.Arg("x"), axes));
  View weight;
  if (node.Arg("weight") != nullptr) {
    MW_ASSIGN_OR_RETURN(weight, builder.FloatsOf(node.Arg("weight")));
  }
  const Shape strides = RowStrides(node.output()->shape(), axes);
  const View result = builder.Allocate(node.output(), &strides);
  builder.Emit(std::make_unique<RmsNormStep>(rows, weight, result, node.numbers.epsilon,
                                             node.output()->dtype() == DataType::kFp16),
               node, {rows, weight, result});
  return true;
}

// ---- rotary embedding ----

class RopeStep final : public Step {
 public:
  RopeStep(View x, View cos, View sin, View result, size_t axis, bool round)
      : x_(x), cos_(cos), sin_(sin), result_(result), length_(x_.shape[axis]), round_(round) {
    std::vector<Dims> strides{result_.strides, x_.strides, cos_.strides, sin_.strides};
    Dims outer = x_.shape;
    outer.erase(outer.begin() + static_cast<int64_t>(axis));
    for (Dims& operand : strides) operand.erase(operand.begin() + static_cast<int64_t>(axis));
    axes_ = JoinedAxes(outer, strides);
    for (const LoopAxis& loop : axes_) rows_ *= loop.size;
  }

  Status Run(Frame& frame) const override {
    const float* x = frame.At<float>(x_);
    const float* cos = frame.At<float>(cos_);
    const float* sin = frame.At<float>(sin_);
    auto* result = frame.At<float>(result_);
    ForParts(frame, rows_, rows_ * length_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        std::array<int64_t, 4> at{};
        int64_t rest = row;
        for (size_t axis = axes_.size(); axis-- > 0;) {
          const int64_t position = rest % axes_[axis].size;
          rest /= axes_[axis].size;
          for (size_t k = 0; k < 4; ++k) at[k] += position * axes_[axis].strides[k];
        }
        frame.kernels->rope(x + at[1], cos + at[2], sin + at[3], length_, result + at[0]);
        if (round_) frame.kernels->round_to_half(result + at[0], length_);
      }
    });
    return Status::Ok();
  }

 private:
  View x_;
  View cos_;
  View sin_;
  View result_;
  int64_t length_;
  bool round_;
  int64_t rows_ = 1;
  LoopAxes axes_;
};

// `value` stretched to `shape` with stride 1 along `axis`; copied when it is not so.
Result<View> AlongAxis(PlanBuilder& builder, const Node& node, GraphValue* value, const Shape& shape, size_t axis) {
  MW_ASSIGN_OR_RETURN(const View floats, builder.FloatsOf(value));
  const View stretched = BroadcastTo(floats, shape);
  if (stretched.strides[axis] == 1) return stretched;
  View copy = builder.AllocateTemporary(DataType::kFp32, shape);
  copy.strides = RowStrides(shape, {static_cast<int64_t>(axis)});
  builder.Emit(MakeCopy(stretched, copy), node, {stretched, copy});
  return copy;
}

Result<bool> LowerRope(PlanBuilder& builder, const Node& node) {
  const Shape& shape = node.output()->shape();
  const auto axis = static_cast<size_t>(node.numbers.axis);
  MW_ASSIGN_OR_RETURN(const View x, AlongAxis(builder, node, node.Arg("x"), shape, axis));
  MW_ASSIGN_OR_RETURN(const View cos, AlongAxis(builder, node, node.Arg("cos"), shape, axis));
  MW_ASSIGN_OR_RETURN(const View sin, AlongAxis(builder, node, node.Arg("sin"), shape, axis));
  const Shape strides = IsPermutedDense(x) ? Shape(x.strides) : RowStrides(shape, {node.numbers.axis});
  const View result = builder.Allocate(node.output(), &strides);
  builder.Emit(std::make_unique<RopeStep>(x, cos, sin, result, axis, node.output()->dtype() == DataType::kFp16), node,
               {x, cos, sin, result});
  return true;
}

// ---- gated activations ----

class GatedStep final : public Step {
 public:
  using Line = void (*)(const float* gate, const float* up, int64_t n, float* y);
  GatedStep(View gate, View up, View result, Line line, bool round)
      : gate_(gate), up_(up), result_(result), line_(line), round_(round) {}
  Status Run(Frame& frame) const override {
    const float* gate = frame.At<float>(gate_);
    const float* up = frame.At<float>(up_);
    auto* result = frame.At<float>(result_);
    ForParts(frame, result_.count(), result_.count(), [&](int64_t begin, int64_t end) {
      line_(gate + begin, up + begin, end - begin, result + begin);
      if (round_) frame.kernels->round_to_half(result + begin, end - begin);
    });
    return Status::Ok();
  }

 private:
  View gate_;
  View up_;
  View result_;
  Line line_;
  bool round_;
};

Result<bool> LowerGated(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(View gate, builder.FloatsOf(node.Arg("gate")));
  MW_ASSIGN_OR_RETURN(View up, builder.FloatsOf(node.Arg("up")));
  // One walk over memory needs one layout: bring both to that of the gate, or to a dense one.
  const Shape strides = IsPermutedDense(gate) ? Shape(gate.strides) : DenseStrides(gate.shape);
  for (View* operand : {&gate, &up}) {
    if (operand->strides == strides) continue;
    View copy = builder.AllocateTemporary(DataType::kFp32, operand->shape);
    copy.strides = strides;
    builder.Emit(MakeCopy(*operand, copy), node, {*operand, copy});
    *operand = copy;
  }
  const View result = builder.Allocate(node.output(), &strides);
  const GatedStep::Line line =
      node.kind == "fused_gelu_mul" ? builder.kernels().gelu_tanh_mul : builder.kernels().silu_mul;
  builder.Emit(std::make_unique<GatedStep>(gate, up, result, line, node.output()->dtype() == DataType::kFp16), node,
               {gate, up, result});
  return true;
}

// ---- masked update ----

// target = round(target * keep) + round(mask * new) (or mask @ new), row by row; rows that keep everything and take
// nothing stay untouched.
class BlendStep final : public Step {
 public:
  BlendStep(View target, const View& keep, const View& mask, const View& fresh, bool product, bool round, int32_t state)
      : target_(target), keep_(BroadcastTo(keep, target_.shape)), product_(product), round_(round), state_(state) {
    const size_t rank = target_.shape.size();
    if (product) {
      Shape of_mask(target_.shape.begin(), target_.shape.end() - 1);
      of_mask.push_back(mask.shape.back());
      mask_ = BroadcastTo(mask, of_mask);
      Shape of_fresh(target_.shape.begin(), target_.shape.end() - 2);
      of_fresh.insert(of_fresh.end(), fresh.shape.end() - 2, fresh.shape.end());
      fresh_ = BroadcastTo(fresh, of_fresh);
      taken_ = mask.shape.back();
    } else {
      mask_ = BroadcastTo(mask, target_.shape);
      fresh_ = BroadcastTo(fresh, target_.shape);
    }
    for (size_t i = 0; i + 1 < rank; ++i) rows_ *= target_.shape[i];
  }

  [[nodiscard]] size_t ScratchBytes() const override {
    return 2 * static_cast<size_t>(target_.shape.back()) * sizeof(float) + 64;
  }

  Status Run(Frame& frame) const override {
    const size_t rank = target_.shape.size();
    const int64_t width = target_.shape.back();
    const int64_t element = BitWidth(target_.dtype) / 8;
    const float* keep = frame.At<float>(keep_);
    const float* mask = frame.At<float>(mask_);
    const float* fresh = frame.At<float>(fresh_);
    auto* sum = reinterpret_cast<float*>(frame.scratch.data());
    float* old = sum + width;
    float* bound = state_ >= 0 ? frame.state_bounds[static_cast<size_t>(state_)] : nullptr;
    std::array<int64_t, kMaxAxes> position{};
    for (int64_t row = 0; row < rows_; ++row) {
      int64_t to = 0;
      int64_t keep_at = 0;
      int64_t mask_at = 0;
      int64_t fresh_at = 0;
      for (size_t i = 0; i + 1 < rank; ++i) {
        to += position[i] * target_.strides[i];
        keep_at += position[i] * keep_.strides[i];
        mask_at += position[i] * mask_.strides[i];
        // In a product the row of the result is no axis of `new`.
        if (!product_ || i + 2 < rank) fresh_at += position[i] * fresh_.strides[i];
      }
      Advance(position);
      const float kept = keep[keep_at];
      if (!Place(frame, mask + mask_at, fresh + fresh_at, sum) && kept == 1.0F) continue;
      std::byte* data = frame.At<std::byte>(target_, element) + to * element;
      ReadRow(frame, data, old);
      for (int64_t i = 0; i < width; ++i) old[i] *= kept;
      if (round_) {
        frame.kernels->round_to_half(old, width);
        frame.kernels->round_to_half(sum, width);
      }
      for (int64_t i = 0; i < width; ++i) sum[i] += old[i];
      if (round_) frame.kernels->round_to_half(sum, width);
      if (state_ >= 0) {
        frame.undo.Save(data, static_cast<size_t>(width * element));
        frame.counters.state_bytes_written += width * element;
        if (bound != nullptr) *bound = std::max(*bound, frame.kernels->abs_max_f32(sum, width));
      }
      WriteRow(frame, sum, data);
    }
    return Status::Ok();
  }

 private:
  void Advance(std::array<int64_t, kMaxAxes>& position) const {
    for (size_t i = target_.shape.size() - 1; i-- > 0;) {
      if (++position[i] < target_.shape[i]) return;
      position[i] = 0;
    }
  }

  // What the mask puts into a row; false when it puts nothing.
  bool Place(const Frame&, const float* mask, const float* fresh, float* sum) const {
    const size_t rank = target_.shape.size();
    const int64_t width = target_.shape.back();
    if (!product_) {
      if (mask[0] == 0) {
        std::fill_n(sum, width, 0.0F);
        return false;
      }
      for (int64_t i = 0; i < width; ++i) sum[i] = fresh[i * fresh_.strides[rank - 1]] * mask[0];
      return true;
    }
    bool any = false;
    std::fill_n(sum, width, 0.0F);
    for (int64_t t = 0; t < taken_; ++t) {
      const float weight = mask[t * mask_.strides[rank - 1]];
      if (weight == 0) continue;
      any = true;
      const float* from = fresh + t * fresh_.strides[rank - 2];
      for (int64_t i = 0; i < width; ++i) sum[i] += weight * from[i * fresh_.strides[rank - 1]];
    }
    return any;
  }

  void ReadRow(const Frame& frame, const std::byte* data, float* row) const {
    const int64_t width = target_.shape.back();
    if (target_.dtype == DataType::kFp16) {
      frame.kernels->half_to_float(reinterpret_cast<const uint16_t*>(data), width, row);
    } else {
      std::copy_n(reinterpret_cast<const float*>(data), width, row);
    }
  }
  void WriteRow(const Frame& frame, const float* row, std::byte* data) const {
    const int64_t width = target_.shape.back();
    if (target_.dtype == DataType::kFp16) {
      frame.kernels->float_to_half(row, width, reinterpret_cast<uint16_t*>(data));
    } else {
      std::copy_n(row, width, reinterpret_cast<float*>(data));
    }
  }

  View target_;
  View keep_;
  View mask_;
  View fresh_;
  bool product_;
  bool round_;
  int32_t state_;
  int64_t taken_ = 0;
  int64_t rows_ = 1;
};

Result<bool> LowerBlend(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(const View keep, builder.FloatsOf(node.Arg("keep")));
  MW_ASSIGN_OR_RETURN(const View mask, builder.FloatsOf(node.Arg("mask")));
  MW_ASSIGN_OR_RETURN(const View fresh, builder.FloatsOf(node.Arg("new")));
  MW_ASSIGN_OR_RETURN(const View whole, builder.UpdateTarget(node, node.Arg("x")));
  View target = whole;
  if (const GraphValue* begin = node.Arg("begin"); begin != nullptr) {
    const std::vector<int64_t> from = begin->known->tensor.ToInts();
    const Shape& region = node.Arg("region")->shape();
    std::vector<AxisSlice> slices;
    for (size_t i = 0; i < region.size(); ++i) slices.push_back({from[i], 1, region[i], false});
    target = Sliced(whole, slices);
  }
  builder.Emit(std::make_unique<BlendStep>(target, keep, mask, fresh, node.numbers.product,
                                           node.output()->dtype() == DataType::kFp16, builder.StateOf(whole)),
               node, {whole, keep, mask, fresh});
  return true;
}

constexpr LoweringEntry kFusedEntries[] = {
    {"fused_blend", LowerBlend}, {"fused_gelu_mul", LowerGated}, {"fused_rms_norm", LowerRmsNorm},
    {"fused_rope", LowerRope},   {"fused_silu_mul", LowerGated},
};

}  // namespace

std::span<const LoweringEntry> FusedLowerings() { return kFusedEntries; }

}  // namespace milwright::engine
