// Recurrent layers: gru, lstm, rnn. x is [S, B, I]; the outputs are the sequence ([S, B, H], or [1, B, H] with its last
// step) and the last hidden state [B, H], for lstm the last cell state too. All arithmetic is fp32; results are rounded
// to the declared type once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/float_math.h"
#include "ops/op.h"

namespace milwright {
namespace {

// ---- type inference ----

Status CheckRecurrentShape(const OpContext& ctx, std::string_view parameter, const Shape& expected) {
  if (!ctx.Has(parameter)) return Status::Ok();
  const Shape& shape = ctx.ShapeOf(parameter);
  if (std::ranges::equal(shape, expected, [](int64_t a, int64_t b) { return !KnownToDiffer(a, b); }))
    return Status::Ok();
  return ctx.Error(fmt::format("{} has shape {}, but x {} and weight_hh {} need {}", parameter, ShapeToString(shape),
                               ShapeToString(ctx.ShapeOf("x")), ShapeToString(ctx.ShapeOf("weight_hh")),
                               ShapeToString(expected)));
}

using Activation = float (*)(float);

float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float Tanh(float x) { return std::tanh(x); }
float Relu(float x) { return std::max(x, 0.0F); }
float HardSigmoid(float x) { return std::clamp(0.2F * x + 0.5F, 0.0F, 1.0F); }
float Linear(float x) { return x; }

// Apple's unit tests fix alpha and beta: hard_sigmoid clip(.2x+.5, 0, 1), scaled_tanh = tanh (op-semantics.md,
// section 3, recurrent).
Result<Activation> ReadActivation(const OpContext& ctx, std::string_view parameter) {
  const std::string name = ctx.String(parameter);
  if (name == "sigmoid") return &Sigmoid;
  if (name == "tanh" || name == "scaled_tanh") return &Tanh;
  if (name == "relu") return &Relu;
  if (name == "hard_sigmoid" || name == "sigmoid_hard") return &HardSigmoid;
  if (name == "linear") return &Linear;
  return ctx.Error(fmt::format(
      "{} '{}' is not one of sigmoid, tanh, scaled_tanh, relu, hard_sigmoid, sigmoid_hard, linear", parameter, name));
}

bool Bidirectional(const OpContext& ctx) { return ctx.String("direction") == "bidirectional"; }

// Checks what the three layers have in common. `gates`: rows of the weights per hidden unit.
Result<std::vector<Type>> InferLayer(const OpContext& ctx, int64_t gates) {
  const Shape& x = ctx.ShapeOf("x");
  const Shape& weight = ctx.ShapeOf("weight_hh");
  if (x.size() != 3) {
    return ctx.Error(fmt::format("x has shape {}; it takes [sequence, batch, inputs]", ShapeToString(x)));
  }
  if (std::ranges::count(x, 0) > 0) return ctx.Error(fmt::format("x of shape {} is empty", ShapeToString(x)));
  if (weight.size() != 2 || weight[1] < 0 || weight[1] > (int64_t{1} << 31) ||
      KnownToDiffer(weight[0], gates * weight[1])) {
    return ctx.Error(fmt::format("weight_hh must have shape [{}H, H], but has {}", gates, ShapeToString(weight)));
  }
  const std::string direction = ctx.String("direction");
  const bool lstm = gates == 4;
  if (direction != "forward" && direction != "reverse" && !(lstm && direction == "bidirectional")) {
    return ctx.Error(
        fmt::format("direction '{}' is not forward, reverse{}", direction, lstm ? " or bidirectional" : ""));
  }
  const int64_t hidden = weight[1];
  const int64_t width = Bidirectional(ctx) ? 2 * hidden : hidden;
  for (const std::string_view suffix : {"", "_back"}) {
    const auto named = [suffix](std::string_view name) { return fmt::format("{}{}", name, suffix); };
    MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, named("weight_ih"), {gates * hidden, x[2]}));
    MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, named("weight_hh"), {gates * hidden, hidden}));
    MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, named("bias"), {gates * hidden}));
    MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, named("peephole"), {3 * hidden}));
  }
  if (Bidirectional(ctx) && (!ctx.Has("weight_ih_back") || !ctx.Has("weight_hh_back"))) {
    return ctx.Error("direction bidirectional needs weight_ih_back and weight_hh_back");
  }
  MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, "input_bias", {gates * hidden}));
  for (const std::string_view state : {"initial_h", "initial_c"}) {
    MW_RETURN_IF_ERROR(CheckRecurrentShape(ctx, state, {x[1], width}));
  }
  for (const ParameterSpec& spec : ctx.definition().parameters) {
    if (spec.name.ends_with("activation")) {
      MW_ASSIGN_OR_RETURN([[maybe_unused]] const Activation activation, ReadActivation(ctx, spec.name));
    }
  }
  const DataType dtype = ctx.DTypeOf("x");
  const Type state = Type::Tensor(dtype, {x[1], width});
  std::vector<Type> types = {Type::Tensor(dtype, {ctx.Bool("output_sequence") ? x[0] : 1, x[1], width}), state};
  if (lstm) types.push_back(state);
  return types;
}

Result<std::vector<Type>> InferRnn(const OpContext& ctx) { return InferLayer(ctx, 1); }
Result<std::vector<Type>> InferGru(const OpContext& ctx) { return InferLayer(ctx, 3); }
Result<std::vector<Type>> InferLstm(const OpContext& ctx) { return InferLayer(ctx, 4); }

// ---- kernels ----

// rows x columns weights times a vector, plus a bias that may be absent.
struct Dense {
  std::vector<float> weight;
  std::vector<float> bias;
  size_t columns = 0;

  [[nodiscard]] float Row(size_t row, const float* input) const {
    const float product = Dot(weight.data() + row * columns, input, columns);
    return bias.empty() ? product : product + bias[row];
  }
};

// One direction of a layer: the sizes, the projections of the input and of the hidden state, and where steps lie.
struct Layer {
  size_t steps = 0;
  size_t batch = 0;
  size_t inputs = 0;
  size_t hidden = 0;
  Dense input;
  Dense recurrent;
  bool reverse = false;  // steps are taken from the last to the first
};

Layer ReadLayer(const OpContext& ctx, std::string_view suffix, bool reverse) {
  const Shape& x = ctx.ShapeOf("x");
  Layer layer;
  layer.steps = static_cast<size_t>(x[0]);
  layer.batch = static_cast<size_t>(x[1]);
  layer.inputs = static_cast<size_t>(x[2]);
  layer.hidden = static_cast<size_t>(ctx.ShapeOf("weight_hh")[1]);
  layer.input = {FloatsOf(ctx, fmt::format("weight_ih{}", suffix)), {}, layer.inputs};
  layer.recurrent = {FloatsOf(ctx, fmt::format("weight_hh{}", suffix)), FloatsOf(ctx, fmt::format("bias{}", suffix)),
                     layer.hidden};
  layer.reverse = reverse;
  return layer;
}

// Columns [offset, offset + hidden) of a [batch, width] state.
std::vector<float> StateColumns(const OpContext& ctx, std::string_view parameter, const Layer& layer, size_t offset) {
  const std::vector<float> all = ctx.TensorOf(parameter)->ToFloats();
  const size_t width = layer.batch == 0 ? 0 : all.size() / layer.batch;
  std::vector<float> columns;
  for (size_t b = 0; b < layer.batch; ++b) {
    const float* row = all.data() + b * width + offset;
    columns.insert(columns.end(), row, row + layer.hidden);
  }
  return columns;
}

// Runs one direction: cell(x_row, h_row, b, new_h_row) computes a new hidden row of batch element b from the old one.
// Returns all hidden states in processing order, [steps, batch, hidden].
template <typename Cell>
Result<std::vector<float>> Run(const Layer& layer, const std::vector<float>& x, std::vector<float> h, Cell cell) {
  MW_ASSIGN_OR_RETURN(std::vector<float> sequence,
                      FloatsFor({static_cast<int64_t>(layer.steps), static_cast<int64_t>(h.size())}));
  for (size_t step = 0; step < layer.steps; ++step) {
    const size_t t = layer.reverse ? layer.steps - 1 - step : step;
    float* next = sequence.data() + step * h.size();
    for (size_t b = 0; b < layer.batch; ++b) {
      cell(x.data() + (t * layer.batch + b) * layer.inputs, h.data() + b * layer.hidden, b, next + b * layer.hidden);
    }
    std::copy_n(next, h.size(), h.begin());
  }
  return sequence;
}

// The sequence (or its last step) and the last hidden state of a layer with one direction.
Result<std::vector<Literal>> Results(const std::vector<Type>& types, const std::vector<float>& sequence) {
  MW_ASSIGN_OR_RETURN(const int64_t kept, ElementCount(types[0].shape()));
  MW_ASSIGN_OR_RETURN(const int64_t state, ElementCount(types[1].shape()));
  const std::span<const float> all(sequence);
  MW_ASSIGN_OR_RETURN(Tensor output, Tensor::FromFloats(types[0].tensor, all.last(static_cast<size_t>(kept))));
  MW_ASSIGN_OR_RETURN(Tensor last, Tensor::FromFloats(types[1].tensor, all.last(static_cast<size_t>(state))));
  return std::vector<Literal>{Literal(std::move(output)), Literal(std::move(last))};
}

// h = activation(W x + R h + b)
Result<std::vector<Literal>> EvaluateRnn(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const Activation activation, ReadActivation(ctx, "activation"));
  const Layer layer = ReadLayer(ctx, "", ctx.String("direction") == "reverse");
  const auto cell = [&](const float* x, const float* h, size_t, float* next) {
    for (size_t j = 0; j < layer.hidden; ++j) next[j] = activation(layer.input.Row(j, x) + layer.recurrent.Row(j, h));
  };
  MW_ASSIGN_OR_RETURN(const std::vector<float> sequence,
                      Run(layer, FloatsOf(ctx, "x"), StateColumns(ctx, "initial_h", layer, 0), cell));
  return Results(types, sequence);
}

// Gates r, o, z in the rows of the weights; h = (1 - z) * o + z * h, where o = activation(W x + R (r*h) + b), or with
// reset_after W x + b_in + r * (R h + b). The order of reset and product is the one of Apple's unit tests.
Result<std::vector<Literal>> EvaluateGru(const OpContext& ctx, const std::vector<Type>& types) {
  MW_ASSIGN_OR_RETURN(const Activation activation, ReadActivation(ctx, "activation"));
  MW_ASSIGN_OR_RETURN(const Activation gate, ReadActivation(ctx, "recurrent_activation"));
  const bool reset_after = ctx.Bool("reset_after");
  Layer layer = ReadLayer(ctx, "", ctx.String("direction") == "reverse");
  layer.input.bias = FloatsOf(ctx, "input_bias");
  std::vector<float> reset(layer.hidden);
  std::vector<float> reset_h(layer.hidden);
  const auto cell = [&](const float* x, const float* h, size_t, float* next) {
    for (size_t j = 0; j < layer.hidden; ++j) {
      reset[j] = gate(layer.input.Row(j, x) + layer.recurrent.Row(j, h));
      reset_h[j] = reset[j] * h[j];
    }
    for (size_t j = 0; j < layer.hidden; ++j) {
      const size_t new_row = layer.hidden + j;
      const size_t update_row = 2 * layer.hidden + j;
      const float past =
          reset_after ? reset[j] * layer.recurrent.Row(new_row, h) : layer.recurrent.Row(new_row, reset_h.data());
      const float candidate = activation(layer.input.Row(new_row, x) + past);
      const float update = gate(layer.input.Row(update_row, x) + layer.recurrent.Row(update_row, h));
      next[j] = (1.0F - update) * candidate + update * h[j];
    }
  };
  MW_ASSIGN_OR_RETURN(const std::vector<float> sequence,
                      Run(layer, FloatsOf(ctx, "x"), StateColumns(ctx, "initial_h", layer, 0), cell));
  return Results(types, sequence);
}

// One direction of lstm: hidden states in processing order, and the last cell state.
struct LstmRun {
  std::vector<float> sequence;
  std::vector<float> cell;
};

// Gates i, f, o, z in the rows of the weights; c = clip(f*c + i*z), h = o * activation(c). The peephole [i, f, o] adds
// the old c to i and f, the new one to o.
Result<LstmRun> RunLstm(const OpContext& ctx, const std::vector<float>& x, std::string_view suffix, bool reverse,
                        size_t offset_directions) {
  MW_ASSIGN_OR_RETURN(const Activation activation, ReadActivation(ctx, "activation"));
  MW_ASSIGN_OR_RETURN(const Activation cell_activation, ReadActivation(ctx, "cell_activation"));
  MW_ASSIGN_OR_RETURN(const Activation gate, ReadActivation(ctx, "recurrent_activation"));
  const Layer layer = ReadLayer(ctx, suffix, reverse);
  const size_t hidden = layer.hidden;
  const size_t offset = offset_directions * hidden;
  const std::vector<float> peephole = FloatsOf(ctx, fmt::format("peephole{}", suffix));
  const bool clipped = ctx.Has("clip");
  const auto clip = static_cast<float>(ctx.Double("clip"));
  std::vector<float> c = StateColumns(ctx, "initial_c", layer, offset);
  const auto cell = [&](const float* x_row, const float* h, size_t b, float* next) {
    float* cells = c.data() + b * hidden;
    for (size_t j = 0; j < hidden; ++j) {
      const auto projected = [&](size_t row) {
        return layer.input.Row(row * hidden + j, x_row) + layer.recurrent.Row(row * hidden + j, h);
      };
      const auto peek = [&](size_t row) { return peephole.empty() ? 0.0F : peephole[row * hidden + j] * cells[j]; };
      const float in = gate(projected(0) + peek(0));
      const float forget = gate(projected(1) + peek(1));
      const float candidate = cell_activation(projected(3));
      cells[j] = forget * cells[j] + in * candidate;
      if (clipped) cells[j] = std::max(-clip, std::min(clip, cells[j]));
      next[j] = gate(projected(2) + peek(2)) * activation(cells[j]);
    }
  };
  LstmRun run;
  MW_ASSIGN_OR_RETURN(run.sequence, Run(layer, x, StateColumns(ctx, "initial_h", layer, offset), cell));
  run.cell = std::move(c);
  return run;
}

// Places the two directions side by side: [rows, hidden] and [rows, hidden] to [rows, 2*hidden].
std::vector<float> Interleave(std::span<const float> forward, std::span<const float> backward, size_t hidden) {
  std::vector<float> both;
  both.reserve(forward.size() + backward.size());
  for (size_t row = 0; row * hidden < forward.size(); ++row) {
    const auto left = forward.subspan(row * hidden, hidden);
    const auto right = backward.subspan(row * hidden, hidden);
    both.insert(both.end(), left.begin(), left.end());
    both.insert(both.end(), right.begin(), right.end());
  }
  return both;
}

// A reversed sequence stays in processing order; only the backward half of a bidirectional one is in the order of x.
Result<std::vector<Literal>> EvaluateLstm(const OpContext& ctx, const std::vector<Type>& types) {
  const std::vector<float> x = FloatsOf(ctx, "x");
  MW_ASSIGN_OR_RETURN(LstmRun run, RunLstm(ctx, x, "", ctx.String("direction") == "reverse", 0));
  std::vector<Literal> results;
  if (!Bidirectional(ctx)) {
    MW_ASSIGN_OR_RETURN(results, Results(types, run.sequence));
  } else {
    MW_ASSIGN_OR_RETURN(const LstmRun back, RunLstm(ctx, x, "_back", true, 1));
    const auto hidden = static_cast<size_t>(ctx.ShapeOf("weight_hh")[1]);
    const size_t state = run.cell.size();
    const std::span<const float> forward(run.sequence);
    const std::span<const float> backward(back.sequence);
    const std::vector<float> last = Interleave(forward.last(state), backward.last(state), hidden);
    std::vector<float> sequence = last;
    if (ctx.Bool("output_sequence")) {
      std::vector<float> in_order;
      in_order.reserve(backward.size());
      for (size_t end = backward.size(); end > 0; end -= state) {
        in_order.insert(in_order.end(), backward.begin() + static_cast<ptrdiff_t>(end - state),
                        backward.begin() + static_cast<ptrdiff_t>(end));
      }
      sequence = Interleave(forward, in_order, hidden);
    }
    MW_ASSIGN_OR_RETURN(Tensor output, Tensor::FromFloats(types[0].tensor, sequence));
    MW_ASSIGN_OR_RETURN(Tensor last_h, Tensor::FromFloats(types[1].tensor, last));
    results = {Literal(std::move(output)), Literal(std::move(last_h))};
    run.cell = Interleave(run.cell, back.cell, hidden);
  }
  MW_ASSIGN_OR_RETURN(Tensor last_c, Tensor::FromFloats(types[2].tensor, run.cell));
  results.emplace_back(std::move(last_c));
  return results;
}

}  // namespace

std::vector<OpDefinition> RecurrentOps() {
  return {
      Op(Opset::kIOS15,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\") where T=fp32",
         InferGru, EvaluateGru),
      Op(Opset::kIOS17,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\") where T=fp16|fp32",
         InferGru, EvaluateGru),
      Op(Opset::kIOS18,
         "gru(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string activation=\"tanh\", const bool reset_after?, const T input_bias?) where T=fp16|fp32",
         InferGru, EvaluateGru),
      Op(Opset::kIOS15,
         "lstm(T x, T initial_h, T initial_c, const T weight_ih, const T weight_hh, const T bias?, const T peephole?, "
         "const T weight_ih_back?, const T weight_hh_back?, const T bias_back?, const T peephole_back?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string cell_activation=\"tanh\", const string activation=\"tanh\", const T clip?) where T=fp32",
         InferLstm, EvaluateLstm),
      Op(Opset::kIOS17,
         "lstm(T x, T initial_h, T initial_c, const T weight_ih, const T weight_hh, const T bias?, const T peephole?, "
         "const T weight_ih_back?, const T weight_hh_back?, const T bias_back?, const T peephole_back?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string recurrent_activation=\"sigmoid\", "
         "const string cell_activation=\"tanh\", const string activation=\"tanh\", const T clip?) where T=fp16|fp32",
         InferLstm, EvaluateLstm),
      Op(Opset::kIOS15,
         "rnn(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string activation=\"tanh\") where T=fp32",
         InferRnn, EvaluateRnn),
      Op(Opset::kIOS17,
         "rnn(T x, T initial_h, const T weight_ih, const T weight_hh, const T bias?, const string "
         "direction=\"forward\", const bool output_sequence=false, const string activation=\"tanh\") where T=fp16|fp32",
         InferRnn, EvaluateRnn),
  };
}

}  // namespace milwright
