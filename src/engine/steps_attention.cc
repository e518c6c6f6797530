// Attention as one streaming step over the cache, with the columns that the mask rules out left unread.
#include <algorithm>
#include <limits>

#include "engine/plan_builder.h"
#include "kernels/attention.h"

namespace milwright::engine {
namespace {

class AttentionStep final : public Step {
 public:
  struct Operands {
    View q;     // [heads, queries, dim] fp32
    View k;     // [kv heads, columns, dim]
    View v;     // [kv heads, columns, value dim]
    View mask;  // [queries or 1, columns], or none
    View out;   // [heads, queries, value dim] fp32
  };
  AttentionStep(const Operands& operands, const FusedNumbers& numbers, int32_t scan, int32_t k_state, bool round,
                int threads)
      : operands_(operands), scan_(scan), k_state_(k_state), round_(round) {
    kernels::AttentionParams& p = params_;
    p.heads = numbers.heads;
    p.kv_heads = numbers.kv_heads;
    p.queries = numbers.queries;
    p.columns = operands_.k.shape[1];
    p.dim = operands_.q.shape[2];
    p.value_dim = operands_.v.shape[2];
    p.scale = numbers.scale;
    p.soft_cap = numbers.soft_cap;
    p.q_head_stride = operands_.q.strides[0];
    p.q_row_stride = operands_.q.strides[1];
    p.k = {nullptr, operands_.k.dtype, operands_.k.strides[0], operands_.k.strides[1]};
    p.v = {nullptr, operands_.v.dtype, operands_.v.strides[0], operands_.v.strides[1]};
    p.out_head_stride = operands_.out.strides[0];
    p.out_row_stride = operands_.out.strides[1];
    if (operands_.mask.root >= 0) {
      p.mask = {nullptr, operands_.mask.dtype, operands_.mask.shape[0] == 1 ? 0 : operands_.mask.strides[0]};
    }
    scratch_bytes_ = kernels::AttentionScratchBytes(p, threads);
  }

  [[nodiscard]] size_t ScratchBytes() const override { return scratch_bytes_; }

  Status Run(Frame& frame) const override {
    kernels::AttentionParams p = params_;
    p.q = frame.At<float>(operands_.q);
    p.k.data = frame.At<std::byte>(operands_.k, BitWidth(operands_.k.dtype) / 8);
    p.v.data = frame.At<std::byte>(operands_.v, BitWidth(operands_.v.dtype) / 8);
    p.out = frame.At<float>(operands_.out);
    if (operands_.mask.root >= 0) {
      p.mask.data = frame.At<std::byte>(operands_.mask, BitWidth(operands_.mask.dtype) / 8);
      const auto scan = static_cast<size_t>(scan_);
      if (!frame.scanned[scan]) {
        kernels::ScanMask(p.mask, operands_.mask.shape[0], p.columns, &frame.scans[scan]);
        frame.scanned[scan] = true;
      }
      p.scan = &frame.scans[scan];
      p.k_abs_max = Bound(frame, p);
    }
    const kernels::AttentionStats stats =
        kernels::Attention(*frame.kernels, *frame.pool, p, {frame.scratch.data(), scratch_bytes_});
    frame.counters.attention_columns += stats.columns_visited;
    frame.counters.cache_bytes_read += stats.columns_visited * (p.dim * BitWidth(operands_.k.dtype) / 8 +
                                                                p.value_dim * BitWidth(operands_.v.dtype) / 8);
    if (round_) {
      // The result fills its memory, in whatever order of heads and queries.
      frame.kernels->round_to_half(p.out, operands_.out.count());
    }
    return Status::Ok();
  }

  // The first keys of every head; the kernel asks for the others as it goes.
  void Prefetch(const Frame& frame) const override {
    constexpr int64_t kLine = 64;
    constexpr int64_t kRows = 8;
    constexpr int64_t kMostBytes = 1 << 14;  // of a first-level cache that other steps need too
    const int64_t element = BitWidth(operands_.k.dtype) / 8;
    const int64_t row_bytes = params_.dim * element;
    if (params_.queries > 1 || params_.k.row_stride != params_.dim) return;
    for (int64_t head = 0; head < params_.kv_heads; ++head) {
      const std::byte* keys = frame.At<std::byte>(operands_.k, element) + head * params_.k.head_stride * element;
      const int64_t bytes = std::min(std::min(kRows, params_.columns) * row_bytes, kMostBytes / params_.kv_heads);
      for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(keys + at);
    }
  }

 private:
  // Upper bound on |k|: kept up to date for states; else found now, when the mask leaves enough out to be worth it.
  float Bound(const Frame& frame, const kernels::AttentionParams& p) const {
    if (k_state_ >= 0 && frame.state_bounds[static_cast<size_t>(k_state_)] != nullptr) {
      return *frame.state_bounds[static_cast<size_t>(k_state_)];
    }
    int64_t kept = 0;
    for (const kernels::ColumnRange& range : p.scan->ranges) kept = std::max<int64_t>(kept, range.end - range.begin);
    if (2 * kept > p.columns) return std::numeric_limits<float>::infinity();
    float largest = 0;
    for (int64_t head = 0; head < p.kv_heads; ++head) {
      for (int64_t row = 0; row < p.columns; ++row) {
        const int64_t at = head * p.k.head_stride + row * p.k.row_stride;
        largest = std::max(largest, p.k.type == DataType::kFp16
                                        ? frame.kernels->abs_max_f16(static_cast<const uint16_t*>(p.k.data) + at, p.dim)
                                        : frame.kernels->abs_max_f32(static_cast<const float*>(p.k.data) + at, p.dim));
      }
    }
    return largest;
  }

  Operands operands_;
  int32_t scan_;
  int32_t k_state_;
  bool round_;
  kernels::AttentionParams params_;
  size_t scratch_bytes_ = 0;
};

// `value` as three axes with the last one contiguous; copied when strides cannot say it.
Result<View> ThreeAxes(PlanBuilder& builder, const Node& node, GraphValue* value, const Shape& shape, bool floats) {
  MW_ASSIGN_OR_RETURN(const View view, floats ? builder.FloatsOf(value) : builder.ViewOf(value));
  auto reshaped = Reshaped(view, shape);
  if (reshaped.has_value() && (reshaped->strides[2] == 1 || shape[2] == 1)) return *reshaped;
  const View dense = builder.AllocateTemporary(view.dtype, view.shape);
  builder.Emit(MakeCopy(view, dense), node, {view, dense});
  return *Reshaped(dense, shape);
}

Result<bool> Lower(PlanBuilder& builder, const Node& node, const FusedNumbers& numbers, GraphValue* q, GraphValue* k,
                   GraphValue* v, GraphValue* mask) {
  AttentionStep::Operands operands;
  const int64_t columns = k->shape()[k->shape().size() - 2];
  const int64_t value_dim = v->shape().back();
  MW_ASSIGN_OR_RETURN(operands.q,
                      ThreeAxes(builder, node, q, {numbers.heads, numbers.queries, q->shape().back()}, true));
  MW_ASSIGN_OR_RETURN(operands.k, ThreeAxes(builder, node, k, {numbers.kv_heads, columns, k->shape().back()}, false));
  MW_ASSIGN_OR_RETURN(operands.v, ThreeAxes(builder, node, v, {numbers.kv_heads, columns, value_dim}, false));
  int32_t scan = -1;
  if (mask != nullptr) {
    MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(mask));
    const int64_t rows = mask->shape()[mask->shape().size() - 2];
    auto flat = Reshaped(view, {rows, columns});
    if (!flat.has_value() || (columns > 1 && flat->strides[1] != 1)) {
      const View dense = builder.AllocateTemporary(view.dtype, view.shape);
      builder.Emit(MakeCopy(view, dense), node, {view, dense});
      flat = Reshaped(dense, {rows, columns});
    }
    operands.mask = *flat;
    scan = builder.ScanOf(operands.mask);
  }
  // Heads side by side for each query: the output projection reads them as one row.
  const Shape& shape = node.output()->shape();
  const int64_t heads = numbers.heads;
  View out = builder.AllocateTemporary(DataType::kFp32, {numbers.queries, heads, value_dim});
  out = Transposed(out, {1, 0, 2});
  if (!Reshaped(out, shape).has_value()) {
    out = builder.AllocateTemporary(DataType::kFp32, {heads, numbers.queries, value_dim});
  }
  operands.out = out;
  builder.Bind(node.output(), *Reshaped(out, shape));
  const std::vector<View> used{operands.q, operands.k, operands.v, operands.mask, operands.out};
  const int32_t k_state = builder.StateOf(operands.k);
  StepInfo info;
  info.kind = node.kind;
  builder.Emit(std::make_unique<AttentionStep>(operands, numbers, scan, k_state,
                                               node.output()->dtype() == DataType::kFp16, builder.threads()),
               node, used, std::move(info));
  return true;
}

Result<bool> LowerFused(PlanBuilder& builder, const Node& node) {
  return Lower(builder, node, node.numbers, node.Arg("q"), node.Arg("k"), node.Arg("v"), node.Arg("mask"));
}

constexpr LoweringEntry kAttentionEntries[] = {{"fused_attention", LowerFused}};

}  // namespace

std::span<const LoweringEntry> AttentionLowerings() { return kAttentionEntries; }

}  // namespace milwright::engine
