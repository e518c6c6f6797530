// Building blocks of a decoder, written as MIL in one of two styles.
#ifndef MILWRIGHT_LLM_BLOCKS_H_
#define MILWRIGHT_LLM_BLOCKS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llm/build_options.h"
#include "llm/checkpoint.h"
#include "llm/model_plan.h"
#include "ops/builder.h"

namespace milwright {

/// Writes blocks into a builder. The *stream* is the residual stream and whatever runs beside it with one vector a
/// token: [1, T, channels] in style plain, [1, channels, 1, T] in style ane. *Heads* are [1, heads, T, size] in both.
/// Weights come by role; an operation that a role's absence makes void (a bias, a norm) is left out.
///
/// Errors are kept: after the first, every method returns null. Check `status()` at the end.
class Blocks {
 public:
  /// `length` is T, or kUnknownDim when functions take any number of tokens (style plain only).
  Blocks(Builder& builder, const ModelPlan& plan, WeightSource& weights, GraphStyle style, DataType compute,
         int64_t length)
      : b_(builder), plan_(plan), weights_(weights), style_(style), compute_(compute), length_(length) {}

  [[nodiscard]] Builder& builder() { return b_; }
  [[nodiscard]] const ModelPlan& plan() const { return plan_; }
  [[nodiscard]] WeightSource& weights() { return weights_; }
  [[nodiscard]] DataType compute() const { return compute_; }
  [[nodiscard]] int64_t length() const { return length_; }
  [[nodiscard]] bool ane() const { return style_ == GraphStyle::kAne; }
  [[nodiscard]] Status status() const { return status_.ok() ? b_.status() : status_; }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // ---- constants and small ops ----
  Value* Constant(const std::vector<float>& values, Shape shape, DataType dtype, std::string_view name);
  Value* Scalar(double value, DataType dtype, std::string_view name);
  Value* Weight(int64_t layer, std::string_view role, DataType dtype);
  Value* Cast(Value* x, DataType dtype);  ///< x itself when it has the type
  Value* Binary(std::string_view op, Value* x, Value* y, std::string_view name = {});
  Value* Multiply(Value* x, double factor, std::string_view name = {});  ///< x itself when the factor is 1
  Value* Reshape(Value* x, const Shape& shape, std::string_view name = {});
  Value* Transpose(Value* x, const std::vector<int64_t>& perm, std::string_view name = {});
  Value* Concat(const std::vector<Value*>& values, int64_t axis, std::string_view name = {});
  Value* Tile(Value* x, const std::vector<int64_t>& reps, std::string_view name = {});
  std::vector<Value*> Split(Value* x, const std::vector<int64_t>& sizes, int64_t axis, std::string_view name = {});
  /// x[..., begin:end, ...] on one axis; negative ends count from the back; end kToEnd: to the end.
  static constexpr int64_t kToEnd = INT64_MAX;
  Value* Slice(Value* x, int64_t axis, int64_t begin, int64_t end, std::string_view name = {});

  // ---- the stream ----
  [[nodiscard]] int64_t channel_axis() const { return ane() ? 1 : 2; }
  Value* ToStream(Value* tokens);                      ///< [1, T, C] to stream
  Value* FromStream(Value* stream);                    ///< stream to [1, T, C]
  Value* ToChannels(Value* stream, int64_t channels);  ///< stream to [1, C, T]
  Value* FromChannels(Value* channels);                ///< [1, C, T] to stream
  Value* ToHeads(Value* stream, int64_t heads, int64_t size, std::string_view name);
  Value* FromHeads(Value* heads, int64_t count, int64_t size, std::string_view name);
  std::vector<Value*> SplitChannels(Value* stream, const std::vector<int64_t>& sizes, std::string_view name);

  /// x W^T (+ b).
  Value* Project(Value* stream, int64_t layer, std::string_view role);
  /// Norm of the model's kind over the channels, by the role's weight.
  Value* Norm(Value* stream, int64_t layer, std::string_view role);
  /// RMS norm over the last axis: of heads, or of any other tensor. `role` may be empty: no weight. `kind` decides how
  /// the weight is applied.
  Value* NormLast(Value* x, int64_t layer, std::string_view role, NormKind kind, std::string_view name);
  Value* Activate(Value* x, Activation activation, std::string_view name);
  /// The MLP with its residual connections and norms left to the caller.
  Value* Mlp(Value* stream, int64_t layer);

  // ---- attention ----
  /// Rotates the first cos.size entries of each head; `cosine` and `sine` are [1, 1, T, r].
  Value* Rotate(Value* heads, Value* cosine, Value* sine, std::string_view name);
  /// softmax(scale q k^T + mask) v for q [1, H, T, d], k and v [1, K, S, d], mask [1, 1, T, S] in the compute type.
  Value* Attend(Value* q, Value* k, Value* v, Value* mask, const LayerPlan& layer, std::string_view name);

  /// "layers_3_q": a value's name from layer and role.
  static std::string Name(int64_t layer, std::string_view role);

 private:
  Value* RmsNorm(Value* x, int64_t axis, Value* weight, std::string_view name);
  Value* NormWeight(int64_t layer, std::string_view role, NormKind kind, Shape shape);
  Value* Softmax(Value* x, std::string_view name);

  Builder& b_;
  const ModelPlan& plan_;
  WeightSource& weights_;
  GraphStyle style_;
  DataType compute_;
  int64_t length_;
  Status status_;
};

}  // namespace milwright

#endif  // MILWRIGHT_LLM_BLOCKS_H_
