// Matrix products and attention. Sums are in fp32 (int32: wrapping), results rounded once to their type.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/dense_products.h"
#include "ops/float_access.h"
#include "ops/op.h"

namespace milwright {
namespace {

using Floats = std::vector<float>;

Floats ReadBlock(const Tensor& tensor, int64_t first, int64_t count) {
  Floats values(static_cast<size_t>(count));
  ReadFloats(tensor, first, values);
  return values;
}

// [rows, columns] to [columns, rows].
Floats Transposed(const Floats& values, int64_t rows, int64_t columns) {
  Floats result(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      result[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
    }
  }
  return result;
}

// ---- linear ----

// x [.., K] times weight [N, K] transposed, plus bias [N].
Result<std::vector<Type>> InferLinear(const OpContext& ctx) {
  Type type = ctx.TypeOf("x");
  const Shape& weight = ctx.ShapeOf("weight");
  if (type.rank() < 1 || weight.size() != 2) {
    return ctx.Error(fmt::format("x {} and weight {} are no vector of inputs and matrix [outputs, inputs]",
                                 ShapeToString(type.shape()), ShapeToString(weight)));
  }
  MW_RETURN_IF_ERROR(EqualSizes(ctx, type.shape().back(), weight[1], "the last axis of x and of weight"));
  if (ctx.Has("bias")) {
    const Shape& bias = ctx.ShapeOf("bias");
    if (bias.size() != 1) return ctx.Error(fmt::format("the bias is {}, not a vector", ShapeToString(bias)));
    MW_RETURN_IF_ERROR(EqualSizes(ctx, bias[0], weight[0], "the bias and axis 0 of weight"));
  }
  type.tensor.shape.back() = weight[0];
  return std::vector<Type>{std::move(type)};
}

// All three operands int32: exact modulo 2^32.
Result<std::vector<Literal>> LinearIntegers(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor result) {
  const int64_t outputs = weight.shape()[0];
  const int64_t inputs = weight.shape()[1];
  const auto values = x.As<int32_t>();
  const auto weights = weight.As<int32_t>();
  for (int64_t i = 0; i < result.size(); ++i) {
    const int64_t column = i % outputs;
    uint32_t sum = bias != nullptr ? static_cast<uint32_t>(bias->GetInt(column)) : 0;
    for (int64_t k = 0; k < inputs; ++k) {
      sum += static_cast<uint32_t>(values[static_cast<size_t>(i / outputs * inputs + k)]) *
             static_cast<uint32_t>(weights[static_cast<size_t>(column * inputs + k)]);
    }
    result.SetInt(i, static_cast<int32_t>(sum));
  }
  return One(std::move(result));
}

Result<std::vector<Literal>> EvaluateLinear(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Tensor& weight = *ctx.TensorOf("weight");
  const Tensor* bias = ctx.Has("bias") ? ctx.TensorOf("bias") : nullptr;  // absent: zeros
  const TensorType& type = types.front().tensor;
  if (x.dtype() == DataType::kInt32 && weight.dtype() == DataType::kInt32) {
    MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros(type));
    return LinearIntegers(x, weight, bias, std::move(result));
  }
  MW_ASSIGN_OR_RETURN(Tensor sums, Tensor::Zeros({DataType::kFp32, type.shape}));
  const int64_t outputs = weight.shape()[0];
  const int64_t inputs = weight.shape()[1];
  const int64_t rows = outputs == 0 ? 0 : sums.size() / outputs;
  const Floats values = x.ToFloats();
  const std::span<float> target = sums.MutableAs<float>();
  // Weights are converted a row at a time: all of them as floats would double the memory of a large layer.
  Floats weights(static_cast<size_t>(inputs));
  for (int64_t column = 0; column < outputs; ++column) {
    ReadFloats(weight, column * inputs, weights);
    const float start = bias != nullptr ? bias->GetFloat(column) : 0.0F;
    for (int64_t row = 0; row < rows; ++row) {
      target[static_cast<size_t>(row * outputs + column)] =
          DotProduct(values.data() + row * inputs, weights.data(), inputs) + start;
    }
  }
  return One(RoundTo(type.dtype, std::move(sums)));
}

// ---- matmul ----

// numpy's matmul: the last two axes multiply, those before broadcast; a vector is a row on the left, a column on the
// right, and its axis is dropped again.
struct MatmulPlan {
  Shape batch_x;  // leading sizes of x
  Shape batch_y;
  Shape batch;  // broadcast
  int64_t m = 1;
  int64_t k = 1;
  int64_t n = 1;
  bool transpose_x = false;
  bool transpose_y = false;
  Shape result;
};

Result<MatmulPlan> PlanMatmul(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& y = ctx.ShapeOf("y");
  MatmulPlan plan;
  plan.transpose_x = ctx.Bool("transpose_x");
  plan.transpose_y = ctx.Bool("transpose_y");
  const auto fails = [&](std::string_view why) {
    return ctx.Error(fmt::format("{}{} and {}{} do not multiply: {}", ShapeToString(x), plan.transpose_x ? "^T" : "",
                                 ShapeToString(y), plan.transpose_y ? "^T" : "", why));
  };
  if (x.empty() || y.empty()) return fails("a scalar has no axis to sum over");
  if ((x.size() == 1 && plan.transpose_x) || (y.size() == 1 && plan.transpose_y)) {
    return fails("a vector cannot be transposed");
  }
  int64_t inner_x = x.back();
  int64_t inner_y = y.back();
  if (x.size() > 1) {
    plan.batch_x.assign(x.begin(), x.end() - 2);
    plan.m = x[x.size() - (plan.transpose_x ? 1 : 2)];
    inner_x = x[x.size() - (plan.transpose_x ? 2 : 1)];
  }
  if (y.size() > 1) {
    plan.batch_y.assign(y.begin(), y.end() - 2);
    plan.n = y[y.size() - (plan.transpose_y ? 2 : 1)];
    inner_y = y[y.size() - (plan.transpose_y ? 1 : 2)];
  }
  if (inner_x != inner_y && inner_x != kUnknownDim && inner_y != kUnknownDim) return fails("the inner sizes differ");
  plan.k = std::max(inner_x, inner_y);
  auto batch = BroadcastShapes(plan.batch_x, plan.batch_y);
  if (!batch.ok()) return fails(batch.status().message());
  plan.batch = *std::move(batch);
  plan.result = plan.batch;
  if (x.size() > 1) plan.result.push_back(plan.m);
  if (y.size() > 1) plan.result.push_back(plan.n);
  return plan;
}

// From iOS17 the two sides may differ in type where one is constant; the result has the type of the other.
DataType MatmulType(const OpContext& ctx) {
  const DataType x = ctx.DTypeOf("x");
  const DataType y = ctx.DTypeOf("y");
  if (ctx.Known("x") != ctx.Known("y")) return ctx.Known("x") ? y : x;
  // In a run, and with compressed weights, it does not show which side is constant; the program says what it gives.
  if (ctx.declared().size() == 1 && ctx.declared().front()->dtype() == y) return y;
  return x;
}

Result<std::vector<Type>> InferMatmul(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(MatmulPlan plan, PlanMatmul(ctx));
  return std::vector<Type>{Type::Tensor(MatmulType(ctx), std::move(plan.result))};
}

// The number of the matrix of an operand with leading sizes `own` that matrix `index` of the broadcast `batch` uses.
int64_t BroadcastMatrix(const Shape& own, const Shape& batch, const std::vector<int64_t>& index) {
  const size_t added = batch.size() - own.size();
  int64_t number = 0;
  for (size_t i = 0; i < own.size(); ++i) number = number * own[i] + (own[i] == 1 ? 0 : index[added + i]);
  return number;
}

void MultiplyIntegers(const MatmulPlan& plan, const Tensor& x, int64_t first_x, const Tensor& y, int64_t first_y,
                      Tensor& result, int64_t first) {
  for (int64_t i = 0; i < plan.m; ++i) {
    for (int64_t j = 0; j < plan.n; ++j) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < plan.k; ++k) {
        const int64_t left = first_x + (plan.transpose_x ? k * plan.m + i : i * plan.k + k);
        const int64_t right = first_y + (plan.transpose_y ? j * plan.k + k : k * plan.n + j);
        sum += static_cast<uint32_t>(x.GetInt(left)) * static_cast<uint32_t>(y.GetInt(right));
      }
      result.SetInt(first + i * plan.n + j, static_cast<int32_t>(sum));
    }
  }
}

void MultiplyFloats(const MatmulPlan& plan, const Tensor& x, int64_t first_x, const Tensor& y, int64_t first_y,
                    float* product) {
  Floats left = ReadBlock(x, first_x, plan.m * plan.k);
  if (plan.transpose_x) left = Transposed(left, plan.k, plan.m);
  const Floats right = ReadBlock(y, first_y, plan.k * plan.n);
  if (plan.transpose_y) {
    MultiplyTransposed(left.data(), right.data(), product, plan.m, plan.k, plan.n);
  } else {
    MultiplyAdd(left.data(), right.data(), product, plan.m, plan.k, plan.n);
  }
}

Result<std::vector<Literal>> EvaluateMatmul(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const MatmulPlan plan, PlanMatmul(ctx));
  const Tensor& x = *ctx.TensorOf("x");
  const Tensor& y = *ctx.TensorOf("y");
  const TensorType& type = types.front().tensor;
  const bool integers = x.dtype() == DataType::kInt32 && y.dtype() == DataType::kInt32;
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({integers ? DataType::kInt32 : DataType::kFp32, type.shape}));
  if (result.size() == 0) return One(Tensor::Zeros(type));
  std::vector<int64_t> index(plan.batch.size(), 0);
  int64_t first = 0;
  do {
    const int64_t first_x = BroadcastMatrix(plan.batch_x, plan.batch, index) * plan.m * plan.k;
    const int64_t first_y = BroadcastMatrix(plan.batch_y, plan.batch, index) * plan.k * plan.n;
    if (integers) {
      MultiplyIntegers(plan, x, first_x, y, first_y, result, first);
    } else {
      MultiplyFloats(plan, x, first_x, y, first_y, result.MutableAs<float>().data() + first);
    }
    first += plan.m * plan.n;
  } while (NextIndex(plan.batch, index));
  return integers ? One(std::move(result)) : One(RoundTo(type.dtype, std::move(result)));
}

// ---- einsum: nchw,nwhr->nchr and chw,whr->chr in any letters; n and h broadcast (op-semantics.md, section 3) ----

struct EinsumPlan {
  int64_t n, c, h, w, r;        // of the result; n is 1 in the form without batch
  bool repeat_n_x, repeat_n_y;  // the operand has size 1 where the result has n
  bool repeat_h_x, repeat_h_y;
  Shape result;
};

// Whether `equation` is `pattern` with other letters: the same letters equal in both.
bool SameEquation(std::string_view equation, std::string_view pattern) {
  if (equation.size() != pattern.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool letter = std::isalpha(static_cast<unsigned char>(pattern[i])) != 0;
    if (letter != (std::isalpha(static_cast<unsigned char>(equation[i])) != 0)) return false;
    if (!letter && pattern[i] != equation[i]) return false;
    for (size_t j = 0; j < i; ++j) {
      if ((pattern[i] == pattern[j]) != (equation[i] == equation[j])) return false;
    }
  }
  return true;
}

Result<EinsumPlan> PlanEinsum(const OpContext& ctx) {
  std::string equation = ctx.String("equation");
  std::erase(equation, ' ');
  const bool batched = SameEquation(equation, "nchw,nwhr->nchr");
  if (!batched && !SameEquation(equation, "chw,whr->chr")) {
    return ctx.Error(
        fmt::format("the equation '{}' is neither of the two forms nchw,nwhr->nchr and chw,whr->chr", equation));
  }
  const auto values = ctx.Arguments("values");
  if (values.size() != 2 || values[0].type->dtype() != values[1].type->dtype()) {
    return ctx.Error(fmt::format("{} values are given; two of one type are needed", values.size()));
  }
  Shape x = values[0].type->shape();
  Shape y = values[1].type->shape();
  const size_t rank = batched ? 4 : 3;
  if (!values[0].type->IsTensor() || !values[1].type->IsTensor() || x.size() != rank || y.size() != rank) {
    return ctx.Error(fmt::format("{} and {} do not fit the equation '{}'", TypeToString(*values[0].type),
                                 TypeToString(*values[1].type), equation));
  }
  if (!batched) {
    x.insert(x.begin(), 1);
    y.insert(y.begin(), 1);
  }
  EinsumPlan plan{};
  const auto outer = BroadcastShapes({x[0], x[2]}, {y[0], y[2]});
  if (!outer.ok()) {
    return ctx.Error(fmt::format("{} and {} do not broadcast", ShapeToString(values[0].type->shape()),
                                 ShapeToString(values[1].type->shape())));
  }
  MW_ASSIGN_OR_RETURN(plan.w, EqualSizes(ctx, x[3], y[1], "the summed axis"));
  plan.n = (*outer)[0];
  plan.c = x[1];
  plan.h = (*outer)[1];
  plan.r = y[3];
  plan.repeat_n_x = x[0] == 1;
  plan.repeat_n_y = y[0] == 1;
  plan.repeat_h_x = x[2] == 1;
  plan.repeat_h_y = y[2] == 1;
  plan.result = {plan.c, plan.h, plan.r};
  if (batched) plan.result.insert(plan.result.begin(), plan.n);
  return plan;
}

Result<std::vector<Type>> InferEinsum(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(EinsumPlan plan, PlanEinsum(ctx));
  return std::vector<Type>{Type::Tensor(ctx.Arguments("values")[0].type->dtype(), std::move(plan.result))};
}

Result<std::vector<Literal>> EvaluateEinsum(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(ctx));
  const Floats x = ctx.Arguments("values")[0].value->tensor.ToFloats();
  const Floats y = ctx.Arguments("values")[1].value->tensor.ToFloats();
  MW_ASSIGN_OR_RETURN(Tensor sums, Tensor::Zeros({DataType::kFp32, types.front().shape()}));
  float* out = sums.MutableAs<float>().data();
  const int64_t height_x = plan.repeat_h_x ? 1 : plan.h;
  const int64_t height_y = plan.repeat_h_y ? 1 : plan.h;
  for (int64_t n = 0; n < plan.n; ++n) {
    for (int64_t c = 0; c < plan.c; ++c) {
      for (int64_t h = 0; h < plan.h; ++h) {
        const int64_t row_x = ((plan.repeat_n_x ? 0 : n) * plan.c + c) * height_x + (plan.repeat_h_x ? 0 : h);
        float* target = out + ((n * plan.c + c) * plan.h + h) * plan.r;
        for (int64_t w = 0; w < plan.w; ++w) {
          const int64_t row_y = ((plan.repeat_n_y ? 0 : n) * plan.w + w) * height_y + (plan.repeat_h_y ? 0 : h);
          MultiplyAdd(x.data() + row_x * plan.w + w, y.data() + row_y * plan.r, target, 1, 1, plan.r);
        }
      }
    }
  }
  return One(RoundTo(types.front().dtype(), std::move(sums)));
}

// ---- scaled_dot_product_attention: softmax(Q K^T / sqrt(E) + mask) V ----

struct AttentionPlan {
  Shape batch;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t width = 0;        // E
  int64_t value_width = 0;  // EV
};

Result<AttentionPlan> PlanAttention(const OpContext& ctx) {
  const Shape& query = ctx.ShapeOf("query");
  const Shape& key = ctx.ShapeOf("key");
  const Shape& value = ctx.ShapeOf("value");
  const size_t rank = query.size();
  if (rank < 3 || key.size() != rank || value.size() != rank) {
    return ctx.Error(fmt::format("query {}, key {} and value {} must share a rank of 3 or more", ShapeToString(query),
                                 ShapeToString(key), ShapeToString(value)));
  }
  AttentionPlan plan;
  for (size_t i = 0; i + 2 < rank; ++i) {
    const std::string what = fmt::format("axis {} of query, key and value", i);
    MW_ASSIGN_OR_RETURN(int64_t size, EqualSizes(ctx, query[i], key[i], what));
    MW_ASSIGN_OR_RETURN(size, EqualSizes(ctx, size, value[i], what));
    plan.batch.push_back(size);
  }
  plan.queries = query[rank - 2];
  plan.value_width = value[rank - 1];
  MW_ASSIGN_OR_RETURN(plan.keys, EqualSizes(ctx, key[rank - 2], value[rank - 2], "the length of key and value"));
  MW_ASSIGN_OR_RETURN(plan.width, EqualSizes(ctx, query[rank - 1], key[rank - 1], "the last axis of query and key"));
  if (ctx.Has("attn_mask")) {
    Shape scores = plan.batch;
    scores.insert(scores.end(), {plan.queries, plan.keys});
    const Shape& mask = ctx.ShapeOf("attn_mask");
    const auto broadcast = BroadcastShapes(scores, mask);
    if (!broadcast.ok() || (IsStatic(scores) && *broadcast != scores)) {
      return ctx.Error(
          fmt::format("attn_mask {} does not broadcast to the scores {}", ShapeToString(mask), ShapeToString(scores)));
    }
  }
  return plan;
}

Result<std::vector<Type>> InferAttention(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const AttentionPlan plan, PlanAttention(ctx));
  Shape shape = plan.batch;
  shape.insert(shape.end(), {plan.queries, plan.value_width});
  return std::vector<Type>{Type::Tensor(ctx.DTypeOf("query"), std::move(shape))};
}

// The mask as what is added to the scores (a bool mask keeps what is true), and its walk over their full shape.
struct AdditiveMask {
  Floats values;
  std::vector<int64_t> strides;  // zero where it broadcasts
};

AdditiveMask ReadMask(const Tensor& mask, size_t scores_rank) {
  AdditiveMask result{mask.ToFloats(), std::vector<int64_t>(scores_rank, 0)};
  const std::vector<int64_t> strides = Strides(mask.shape());
  for (size_t i = 0; i < strides.size(); ++i) {
    if (mask.shape()[i] != 1) result.strides[scores_rank - strides.size() + i] = strides[i];
  }
  if (mask.dtype() == DataType::kBool) {
    for (float& value : result.values) value = value != 0 ? 0.0F : -std::numeric_limits<float>::infinity();
  }
  return result;
}

// A row of which nothing is left (all -inf) becomes NaN, as the formula has it.
void Softmax(std::span<float> row) {
  const float largest = *std::ranges::max_element(row);
  float sum = 0;
  for (float& value : row) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (float& value : row) value /= sum;
}

Result<std::vector<Literal>> EvaluateAttention(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const AttentionPlan plan, PlanAttention(ctx));
  const Tensor& query = *ctx.TensorOf("query");
  const Tensor& key = *ctx.TensorOf("key");
  const Tensor& value = *ctx.TensorOf("value");
  const TensorType& type = types.front().tensor;
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({DataType::kFp32, type.shape}));
  if (result.size() == 0 || plan.keys == 0) return One(RoundTo(type.dtype, std::move(result)));
  const size_t scores_rank = plan.batch.size() + 2;
  const AdditiveMask mask = ctx.Has("attn_mask") ? ReadMask(*ctx.TensorOf("attn_mask"), scores_rank) : AdditiveMask{};
  const float scale = 1.0F / std::sqrt(static_cast<float>(plan.width));
  float* out = result.MutableAs<float>().data();
  Floats scores(static_cast<size_t>(plan.keys));
  std::vector<int64_t> head(plan.batch.size(), 0);
  int64_t number = 0;
  do {
    const Floats q = ReadBlock(query, number * plan.queries * plan.width, plan.queries * plan.width);
    const Floats k = ReadBlock(key, number * plan.keys * plan.width, plan.keys * plan.width);
    const Floats v = ReadBlock(value, number * plan.keys * plan.value_width, plan.keys * plan.value_width);
    int64_t mask_start = 0;
    for (size_t i = 0; i < head.size() && !mask.values.empty(); ++i) mask_start += head[i] * mask.strides[i];
    for (int64_t row = 0; row < plan.queries; ++row, out += plan.value_width) {
      MultiplyTransposed(q.data() + row * plan.width, k.data(), scores.data(), 1, plan.width, plan.keys);
      for (int64_t i = 0; i < plan.keys; ++i) {
        float& score = scores[static_cast<size_t>(i)];
        score *= scale;
        if (mask.values.empty()) continue;
        score += mask.values[static_cast<size_t>(mask_start + row * mask.strides[scores_rank - 2] +
                                                 i * mask.strides[scores_rank - 1])];
      }
      Softmax(scores);
      MultiplyAdd(scores.data(), v.data(), out, 1, plan.keys, plan.value_width);
    }
    ++number;
  } while (NextIndex(plan.batch, head));
  return One(RoundTo(type.dtype, std::move(result)));
}

}  // namespace

std::vector<OpDefinition> LinearOps() {
  return {
      Op(Opset::kIOS15, "linear(T x, const T weight, const T bias=\"zeros(weight.shape[0])\") where T=fp16|fp32|int32",
         InferLinear, EvaluateLinear),
      Op(Opset::kIOS17,
         "linear(T x, const U weight, const U bias=\"zeros(weight.shape[0])\") where T=fp16|fp32|int32, "
         "U=fp16|fp32|int32",
         InferLinear, EvaluateLinear),
      Op(Opset::kIOS15,
         "matmul(T x, T y, const bool transpose_x=false, const bool transpose_y=false) where T=fp16|fp32|int32",
         InferMatmul, EvaluateMatmul),
      Op(Opset::kIOS17,
         "matmul(T x, U y, const bool transpose_x=false, const bool transpose_y=false) where T=fp16|fp32|int32, "
         "U=fp16|fp32|int32",
         InferMatmul, EvaluateMatmul),
      Op(Opset::kIOS15, "einsum(any... values, const string equation)", InferEinsum, EvaluateEinsum),
      Op(Opset::kIOS18,
         "scaled_dot_product_attention(T query, T key, T value, M attn_mask?) where T=fp16|fp32, M=bool|fp16|fp32",
         InferAttention, EvaluateAttention),
  };
}

}  // namespace milwright
