// What operations that compute and look up demand of the sizes of their operands and results, for context_axes.h; those
// that move and cut are in context_shape_rules.cc.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/effects.h"
#include "passes/context_axes.h"
#include "passes/edit.h"

namespace milwright {
size_t ContextAxes::AxisOf(const Operation& op, size_t rank, int64_t fallback) {
  const Literal* axis = op.InputConstant("axis");
  const int64_t at = axis != nullptr ? axis->tensor.GetInt(0) : fallback;
  return static_cast<size_t>(at < 0 ? at + static_cast<int64_t>(rank) : at);
}

std::set<size_t> ContextAxes::AxesOf(const Operation& op, size_t rank) {
  std::set<size_t> axes;
  const Literal* literal = op.InputConstant("axes");
  if (literal == nullptr) {
    for (size_t i = 0; i < rank; ++i) axes.insert(i);
    return axes;
  }
  for (const int64_t axis : literal->tensor.ToInts())
    axes.insert(static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis));
  return axes;
}

bool ContextAxes::Flag(const Operation& op, std::string_view parameter) {
  const Literal* flag = op.InputConstant(parameter);
  return flag != nullptr && flag->tensor.GetInt(0) != 0;
}

ContextAxes::Rule ContextAxes::RuleOf(std::string_view type) {
  static const std::map<std::string_view, Rule> rules = [] {
    std::map<std::string_view, Rule> table = {
        {"read_state", &ContextAxes::State},
        {"write_state", &ContextAxes::State},
        {"coreml_update_state", &ContextAxes::State},
        {"cond", &ContextAxes::Control},
        {"while_loop", &ContextAxes::Control},
        {"matmul", &ContextAxes::Matmul},
        {"linear", &ContextAxes::Linear},
        {"scaled_dot_product_attention", &ContextAxes::Attention},
        {"einsum", &ContextAxes::Einsum},
        {"conv", &ContextAxes::Conv},
        {"layer_norm", &ContextAxes::LayerNorm},
        {"transpose", &ContextAxes::Transpose},
        {"expand_dims", &ContextAxes::ExpandDims},
        {"squeeze", &ContextAxes::Squeeze},
        {"reshape", &ContextAxes::Reshape},
        {"tile", &ContextAxes::Tile},
        {"concat", &ContextAxes::Concat},
        {"stack", &ContextAxes::Stack},
        {"split", &ContextAxes::Split},
        {"pad", &ContextAxes::Pad},
        {"slice_by_index", &ContextAxes::Slice},
        {"slice_update", &ContextAxes::Slice},
        {"slice_by_size", &ContextAxes::SliceBySize},
        {"gather", &ContextAxes::Gather},
        {"gather_along_axis", &ContextAxes::AlongAxis},
        {"scatter_along_axis", &ContextAxes::AlongAxis},
        {"scatter", &ContextAxes::Scatter},
        {"one_hot", &ContextAxes::OneHot},
        {"fill", &ContextAxes::Fill},
        {"fill_like", &ContextAxes::Elementwise},
        {"range_1d", &ContextAxes::Range},
        {"topk", &ContextAxes::TopK},
        {"shape", &ContextAxes::Nothing},
    };
    for (const char* reduction :
         {"reduce_argmax", "reduce_argmin", "reduce_l1_norm", "reduce_l2_norm", "reduce_log_sum_exp", "reduce_max",
          "reduce_mean", "reduce_min", "reduce_prod", "reduce_log_sum", "reduce_sum", "reduce_sum_square"}) {
      table[reduction] = &ContextAxes::Reduce;
    }
    for (const char* same : {"softmax", "cumsum", "reverse", "band_part"}) table[same] = &ContextAxes::SameShape;
    for (const char* elementwise : {"abs",
                                    "add",
                                    "cast",
                                    "ceil",
                                    "clamped_relu",
                                    "clip",
                                    "cos",
                                    "elu",
                                    "equal",
                                    "erf",
                                    "exp",
                                    "exp2",
                                    "floor",
                                    "floor_div",
                                    "gelu",
                                    "greater",
                                    "identity",
                                    "inverse",
                                    "leaky_relu",
                                    "less",
                                    "less_equal",
                                    "linear_activation",
                                    "log",
                                    "logical_and",
                                    "logical_not",
                                    "logical_or",
                                    "logical_xor",
                                    "maximum",
                                    "greater_equal",
                                    "minimum",
                                    "mod",
                                    "mul",
                                    "not_equal",
                                    "pow",
                                    "real_div",
                                    "relu",
                                    "relu6",
                                    "round",
                                    "rsqrt",
                                    "scaled_tanh",
                                    "select",
                                    "sigmoid",
                                    "sigmoid_hard",
                                    "sign",
                                    "silu",
                                    "sin",
                                    "softplus",
                                    "softsign",
                                    "sqrt",
                                    "square",
                                    "sub",
                                    "tan",
                                    "tanh",
                                    "threshold",
                                    "thresholded_relu"}) {
      table[elementwise] = &ContextAxes::Elementwise;
    }
    return table;
  }();
  const auto it = rules.find(type);
  return it != rules.end() ? it->second : nullptr;
}

Status ContextAxes::Elementwise(Operation& op) {
  for (const Operand* operand : Operands(op)) {
    if (operand->type().IsTensor()) MW_RETURN_IF_ERROR(LinkBroadcast(op, *operand, op.output()));
  }
  return Status::Ok();
}

Status ContextAxes::SameShape(Operation& op) {
  const Term x(*Only(op, "x"));
  // What comes behind the filled rows must not change what lies in them.
  const bool from_behind = op.type() == "reverse" || Flag(op, "reverse");
  const std::set<size_t> axes = op.type() == "reverse" ? AxesOf(op, x.rank()) : std::set<size_t>{AxisOf(op, x.rank())};
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (from_behind && axes.contains(axis) && Find(x, axis).has_value()) {
      return Open(op, "it runs over the context from behind, so that its results depend on the length");
    }
    MW_RETURN_IF_ERROR(Link(op, x, axis, op.output(), axis));
  }
  return Status::Ok();
}

Status ContextAxes::Nothing(Operation& /*op*/) { return Status::Ok(); }

Status ContextAxes::State(Operation& op) {
  Value* state = StateOf(op);
  if (const Value* data = WrittenValue(op); data != nullptr) MW_RETURN_IF_ERROR(LinkAll(op, state, data));
  return op.outputs().empty() ? Status::Ok() : LinkAll(op, state, op.output());
}

Status ContextAxes::Control(Operation& op) {
  const Input* loop_vars = op.FindInput("loop_vars");
  for (const auto& block : op.blocks()) {
    const bool body = op.type() == "cond" || block == op.blocks().back();
    for (size_t i = 0; body && i < std::min(block->outputs().size(), op.outputs().size()); ++i) {
      MW_RETURN_IF_ERROR(LinkAll(op, block->outputs()[i], op.output(i)));
    }
    for (size_t i = 0; loop_vars != nullptr && i < std::min(block->inputs().size(), loop_vars->arguments.size()); ++i) {
      MW_RETURN_IF_ERROR(LinkAll(op, loop_vars->arguments[i], block->inputs()[i].get()));
      if (i < op.outputs().size()) MW_RETURN_IF_ERROR(LinkAll(op, block->inputs()[i].get(), op.output(i)));
    }
  }
  return Status::Ok();
}

Status ContextAxes::Matmul(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term y(*Only(op, "y"));
  const Term out(op.output());
  if (x.rank() < 2 || y.rank() < 2) return Open(op, "a product with a vector over the context is not handled");
  const size_t rows = x.rank() - (Flag(op, "transpose_x") ? 1 : 2);
  const size_t inner_x = 2 * x.rank() - 3 - rows;
  const size_t inner_y = y.rank() - (Flag(op, "transpose_y") ? 1 : 2);
  const size_t columns = 2 * y.rank() - 3 - inner_y;
  MW_RETURN_IF_ERROR(Link(op, x, inner_x, y, inner_y));
  MW_RETURN_IF_ERROR(Link(op, x, rows, out, out.rank() - 2));
  MW_RETURN_IF_ERROR(Link(op, y, columns, out, out.rank() - 1));
  MW_RETURN_IF_ERROR(LinkBroadcast(op, x, out, 2));
  return LinkBroadcast(op, y, out, 2);
}

Status ContextAxes::Linear(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term out(op.output());
  const Term weight(*Only(op, "weight"));
  if (x.rank() == 0 || weight.rank() != 2) return Open(op, "its shapes are not those of a linear layer");
  for (size_t axis = 0; axis + 1 < x.rank(); ++axis) MW_RETURN_IF_ERROR(Link(op, x, axis, out, axis));
  MW_RETURN_IF_ERROR(Link(op, x, x.rank() - 1, weight, 1));
  MW_RETURN_IF_ERROR(Link(op, out, out.rank() - 1, weight, 0));
  const Operand* bias = Only(op, "bias");
  return bias != nullptr && bias->type().rank() == 1 ? Link(op, out, out.rank() - 1, *bias, 0) : Status::Ok();
}

Status ContextAxes::Attention(Operation& op) {
  const Term query(*Only(op, "query"));
  const Term key(*Only(op, "key"));
  const Term value(*Only(op, "value"));
  const Term out(op.output());
  MW_RETURN_IF_ERROR(Link(op, query, query.rank() - 1, key, key.rank() - 1));
  MW_RETURN_IF_ERROR(Link(op, key, key.rank() - 2, value, value.rank() - 2));
  MW_RETURN_IF_ERROR(Link(op, query, query.rank() - 2, out, out.rank() - 2));
  MW_RETURN_IF_ERROR(Link(op, value, value.rank() - 1, out, out.rank() - 1));
  for (const Term& term : {query, key, value}) MW_RETURN_IF_ERROR(LinkBroadcast(op, term, out, 2));
  const Operand* mask_operand = Only(op, "attn_mask");
  if (mask_operand == nullptr) {
    if (!Find(key, key.rank() - 2).has_value()) return Status::Ok();
    return Open(op, "it has no mask, so that rows of the cache that are not filled count");
  }
  const Term mask(*mask_operand);
  MW_RETURN_IF_ERROR(LinkBroadcast(op, mask, out, 2));
  if (mask.size(mask.rank() - 1) != 1) MW_RETURN_IF_ERROR(Link(op, mask, mask.rank() - 1, key, key.rank() - 2));
  if (mask.rank() < 2 || mask.size(mask.rank() - 2) == 1) return Status::Ok();
  return Link(op, mask, mask.rank() - 2, query, query.rank() - 2);
}

Status ContextAxes::Einsum(Operation& op) {
  const Literal* equation = op.InputConstant("equation");
  const std::string text = equation != nullptr ? equation->AsString() : "";
  const size_t comma = text.find(',');
  const size_t arrow = text.find("->");
  const auto& values = op.FindInput("values")->arguments;
  if (comma == std::string::npos || arrow == std::string::npos || values.size() != 2) {
    return Open(op, "its equation is not of two operands");
  }
  const std::vector<std::pair<std::string, Term>> terms = {{text.substr(0, comma), values[0]},
                                                           {text.substr(comma + 1, arrow - comma - 1), values[1]},
                                                           {text.substr(arrow + 2), op.output()}};
  for (const auto& [letters_a, a] : terms) {
    for (const auto& [letters_b, b] : terms) {
      for (size_t i = 0; i < std::min(letters_a.size(), a.rank()); ++i) {
        const size_t j = letters_b.find(letters_a[i]);
        if (j == std::string::npos || j >= b.rank() || a.size(i) != b.size(j)) continue;
        MW_RETURN_IF_ERROR(Link(op, a, i, b, j));
      }
    }
  }
  return Status::Ok();
}

Status ContextAxes::Conv(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term weight(*Only(op, "weight"));
  const Term out(op.output());
  if (x.rank() != out.rank() || weight.rank() != x.rank()) return Open(op, "its shapes are not those of a convolution");
  MW_RETURN_IF_ERROR(Link(op, x, 0, out, 0));
  MW_RETURN_IF_ERROR(Link(op, out, 1, weight, 0));
  if (!Flag(op, "groups") || op.InputConstant("groups")->tensor.GetInt(0) == 1) {
    MW_RETURN_IF_ERROR(Link(op, x, 1, weight, 1));
  }
  for (size_t axis = 2; axis < x.rank(); ++axis) {
    const bool point = weight.size(axis) == 1 && x.size(axis) == out.size(axis);
    if (!point && (Find(x, axis).has_value() || Find(out, axis).has_value())) {
      return Open(op, "it convolves along the context");
    }
    if (point) MW_RETURN_IF_ERROR(Link(op, x, axis, out, axis));
  }
  return Status::Ok();
}

Status ContextAxes::LayerNorm(Operation& op) {
  const Term x(*Only(op, "x"));
  for (const size_t axis : AxesOf(op, x.rank())) {
    if (Find(x, axis).has_value()) return Open(op, "it normalizes over the context");
  }
  return LinkAll(op, x, op.output());
}

Status ContextAxes::Reduce(Operation& op) {
  const Term x(*Only(op, "x"));
  const bool arg = op.type().starts_with("reduce_arg");
  const std::set<size_t> axes = arg ? std::set<size_t>{AxisOf(op, x.rank(), -1)} : AxesOf(op, x.rank());
  const bool keep = op.output()->type.shape().size() == x.rank();
  // A sum, an extreme: masked rows add nothing. A mean or a product takes them all.
  const bool whole = op.type() == "reduce_mean" || op.type() == "reduce_prod" || op.type() == "reduce_log_sum";
  size_t target = 0;
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (axes.contains(axis)) {
      if (whole && Find(x, axis).has_value()) return Open(op, "its result depends on the length of the context");
      target += keep ? 1 : 0;
      continue;
    }
    MW_RETURN_IF_ERROR(Link(op, x, axis, op.output(), target++));
  }
  return Status::Ok();
}

Status ContextAxes::Gather(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term indices(*Only(op, "indices"));
  const Term out(op.output());
  if (Flag(op, "batch_dims")) return Open(op, "a gather by batches over the context is not handled");
  const size_t axis = AxisOf(op, x.rank());
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != axis) MW_RETURN_IF_ERROR(Link(op, x, i, out, i < axis ? i : i + indices.rank() - 1));
  }
  for (size_t i = 0; i < indices.rank(); ++i) MW_RETURN_IF_ERROR(Link(op, indices, i, out, axis + i));
  return Status::Ok();
}

Status ContextAxes::AlongAxis(Operation& op) {
  const bool gather = op.type() == "gather_along_axis";
  const Term x(*Only(op, gather ? "x" : "data"));
  const Term indices(*Only(op, "indices"));
  const Term other = gather ? Term(op.output()) : Term(*Only(op, "updates"));
  const size_t axis = AxisOf(op, x.rank());
  MW_RETURN_IF_ERROR(LinkAll(op, indices, other));
  if (!gather) MW_RETURN_IF_ERROR(LinkAll(op, x, op.output()));
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != axis) MW_RETURN_IF_ERROR(Link(op, x, i, indices, i));
  }
  return Status::Ok();
}

Status ContextAxes::Scatter(Operation& op) {
  const Term data(*Only(op, "data"));
  const Term indices(*Only(op, "indices"));
  const Term updates(*Only(op, "updates"));
  const size_t axis = AxisOf(op, data.rank());
  MW_RETURN_IF_ERROR(LinkAll(op, data, op.output()));
  for (size_t i = 0; i < data.rank(); ++i) {
    if (i != axis) MW_RETURN_IF_ERROR(Link(op, data, i, updates, i < axis ? i : i + indices.rank() - 1));
  }
  for (size_t i = 0; i < indices.rank(); ++i) MW_RETURN_IF_ERROR(Link(op, indices, i, updates, axis + i));
  return Status::Ok();
}

Status ContextAxes::OneHot(Operation& op) {
  const Term indices(*Only(op, "indices"));
  const Term out(op.output());
  const size_t axis = AxisOf(op, out.rank(), -1);
  for (size_t i = 0; i < indices.rank(); ++i) MW_RETURN_IF_ERROR(Link(op, indices, i, out, i < axis ? i : i + 1));
  const auto size = Find(out, axis);
  return size.has_value() ? SetEntry(op, "one_hot_vector_size", 0, *size) : Status::Ok();
}

Status ContextAxes::Fill(Operation& op) {
  const Term out(op.output());
  for (size_t axis = 0; axis < out.rank(); ++axis) {
    if (const auto size = Find(out, axis)) MW_RETURN_IF_ERROR(SetEntry(op, "shape", axis, *size));
  }
  return Status::Ok();
}

Status ContextAxes::Range(Operation& op) {
  const auto size = Find(Term(op.output()), 0);
  if (!size.has_value()) return Status::Ok();
  const Literal* start = op.InputConstant("start");
  const Literal* step = op.InputConstant("step");
  if (start == nullptr || step == nullptr || step->tensor.GetDouble(0) != 1) {
    return Open(op, "only a range of constant start and step 1 is set to another length");
  }
  return SetEntry(op, "end", 0, start->tensor.GetInt(0) + *size);
}

Status ContextAxes::TopK(Operation& op) {
  const Term x(*Only(op, "x"));
  const size_t axis = AxisOf(op, x.rank(), -1);
  if (Find(x, axis).has_value()) return Open(op, "it sorts the context");
  for (const auto& output : op.outputs()) {
    for (size_t i = 0; i < x.rank(); ++i) {
      if (i != axis) MW_RETURN_IF_ERROR(Link(op, x, i, output.get(), i));
    }
  }
  return Status::Ok();
}

}  // namespace milwright
