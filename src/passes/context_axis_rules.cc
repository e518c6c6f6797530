// What each operation demands of the sizes of its operands and results, for context_axes.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/effects.h"
#include "passes/context_axes.h"
#include "passes/edit.h"

namespace milwright {
namespace {

size_t AxisOf(const Operation& op, size_t rank, int64_t fallback = 0) {
  const Literal* axis = op.InputConstant("axis");
  const int64_t at = axis != nullptr ? axis->tensor.GetInt(0) : fallback;
  return static_cast<size_t>(at < 0 ? at + static_cast<int64_t>(rank) : at);
}

std::set<size_t> AxesOf(const Operation& op, size_t rank) {
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

bool Flag(const Operation& op, std::string_view parameter) {
  const Literal* flag = op.InputConstant(parameter);
  return flag != nullptr && flag->tensor.GetInt(0) != 0;
}

}  // namespace

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

Status ContextAxes::Transpose(Operation& op) {
  const std::vector<int64_t> perm = op.InputConstant("perm")->tensor.ToInts();
  const Term x(*Only(op, "x"));
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto from = static_cast<size_t>(perm[i] < 0 ? perm[i] + static_cast<int64_t>(perm.size()) : perm[i]);
    MW_RETURN_IF_ERROR(Link(op, x, from, op.output(), i));
  }
  return Status::Ok();
}

Status ContextAxes::ExpandDims(Operation& op) {
  const Term x(*Only(op, "x"));
  const std::set<size_t> added = AxesOf(op, op.output()->type.shape().size());
  size_t axis = 0;
  for (size_t i = 0; i < op.output()->type.shape().size(); ++i) {
    if (!added.contains(i)) MW_RETURN_IF_ERROR(Link(op, x, axis++, op.output(), i));
  }
  return Status::Ok();
}

Status ContextAxes::Squeeze(Operation& op) {
  const Term x(*Only(op, "x"));
  const bool all = op.InputConstant("axes") == nullptr;
  const std::set<size_t> gone = AxesOf(op, x.rank());
  size_t target = 0;
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (all ? x.size(axis) == 1 : gone.contains(axis)) continue;
    MW_RETURN_IF_ERROR(Link(op, x, axis, op.output(), target++));
  }
  return Status::Ok();
}

// Runs of axes with equal products belong together; within one, a single axis that changes is matched with the one on
// the other side that can hold it.
Status ContextAxes::Reshape(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term out(op.output());
  const auto all_known = [](const Term& term) {
    return std::ranges::none_of(term.type->shape(), [](int64_t size) { return size == kUnknownDim; });
  };
  if (!all_known(x) || !all_known(out)) return Open(op, "a size of its shapes is open");
  size_t i = 0;
  size_t j = 0;
  while (i < x.rank() || j < out.rank()) {
    std::vector<size_t> from;
    std::vector<size_t> to;
    int64_t product_from = 1;
    int64_t product_to = 1;
    do {
      const bool take_from = j >= out.rank() || (i < x.rank() && product_from <= product_to);
      if (take_from) {
        product_from *= x.size(i);
        if (x.size(i) != 1) from.push_back(i);
        ++i;
      } else {
        product_to *= out.size(j);
        if (out.size(j) != 1) to.push_back(j);
        ++j;
      }
    } while ((product_from != product_to || (from.empty() != to.empty())) && (i < x.rank() || j < out.rank()));
    const auto product = [this](const Term& term, const std::vector<size_t>& axes) {
      int64_t total = 1;
      for (const size_t axis : axes) total *= Find(term, axis).value_or(term.size(axis));
      return total;
    };
    const int64_t want_from = product(x, from);
    const int64_t want_to = product(out, to);
    if (want_from == want_to) continue;
    // One side is marked; the other has one axis whose size makes up for it.
    const bool forward = want_to == product_to;
    const Term& target = forward ? out : x;
    const std::vector<size_t>& axes = forward ? to : from;
    const int64_t want = forward ? want_from : want_to;
    const std::vector<size_t>& marked_axes = forward ? from : to;
    const Term& source = forward ? x : out;
    int64_t old_size = 0;
    for (const size_t axis : marked_axes) {
      if (Find(source, axis).has_value()) old_size = source.size(axis);
    }
    std::vector<size_t> candidates;
    for (const size_t axis : axes) {
      const int64_t others = product_from / target.size(axis);
      // The axis is the context alone, or a multiple of it.
      const bool holds = axes.size() == 1 || target.size(axis) == old_size ||
                         (marked_axes.size() == 1 && target.size(axis) % old_size == 0);
      if (holds && want % others == 0) candidates.push_back(axis);
    }
    if (candidates.size() != 1) {
      return Open(op, fmt::format("which size of {} follows the context is ambiguous", TypeToString(*target.type)));
    }
    MW_RETURN_IF_ERROR(Set(op, target, candidates.front(), want / (product_from / target.size(candidates.front()))));
  }
  const Operand* shape = Only(op, "shape");
  for (size_t axis = 0; axis < out.rank(); ++axis) {
    const auto size = Find(out, axis);
    if (!size.has_value()) continue;
    const Literal* constant = shape->constant();
    if (constant != nullptr && constant->tensor.GetInt(static_cast<int64_t>(axis)) != out.size(axis)) continue;
    MW_RETURN_IF_ERROR(SetEntry(op, "shape", axis, *size));
  }
  return Status::Ok();
}

Status ContextAxes::Tile(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term out(op.output());
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) == out.size(axis) && x.size(axis) != 1) {
      MW_RETURN_IF_ERROR(Link(op, x, axis, out, axis));
    } else if (x.size(axis) == 1) {
      if (const auto size = Find(out, axis)) MW_RETURN_IF_ERROR(SetEntry(op, "reps", axis, *size));
    } else if (Find(x, axis).has_value() || Find(out, axis).has_value()) {
      return Open(op, "it repeats the context");
    }
  }
  return Status::Ok();
}

Status ContextAxes::Concat(Operation& op) {
  const auto& values = op.FindInput("values")->arguments;
  const Term out(op.output());
  if (out.rank() == 0) return Status::Ok();
  const size_t joined = AxisOf(op, out.rank());
  for (const Operand& value : values) {
    for (size_t axis = 0; axis < out.rank(); ++axis) {
      if (axis != joined) MW_RETURN_IF_ERROR(Link(op, value, axis, out, axis));
    }
  }
  int64_t growth = 0;
  const Operand* longest = &values.front();
  for (const Operand& value : values) {
    const Term part(value);
    growth += Find(part, joined).value_or(part.size(joined)) - part.size(joined);
    if (part.size(joined) > Term(*longest).size(joined)) longest = &value;
  }
  const auto total = Find(out, joined);
  if (total.has_value() && growth == 0) {
    // A context with a few rows added: the longer part is the context.
    const Term part(*longest);
    if (2 * part.size(joined) <= out.size(joined)) return Open(op, "which of its parts is the context is ambiguous");
    return Set(op, part, joined, part.size(joined) + *total - out.size(joined));
  }
  return growth != 0 ? Set(op, out, joined, out.size(joined) + growth) : Status::Ok();
}

Status ContextAxes::Stack(Operation& op) {
  const Term out(op.output());
  const size_t added = AxisOf(op, out.rank());
  for (const Operand& value : op.FindInput("values")->arguments) {
    for (size_t axis = 0; axis < Term(value).rank(); ++axis) {
      MW_RETURN_IF_ERROR(Link(op, value, axis, out, axis < added ? axis : axis + 1));
    }
  }
  return Status::Ok();
}

Status ContextAxes::Split(Operation& op) {
  const Term x(*Only(op, "x"));
  const size_t cut = AxisOf(op, x.rank());
  size_t longest = 0;
  int64_t growth = 0;
  for (size_t i = 0; i < op.outputs().size(); ++i) {
    const Term part(op.output(i));
    for (size_t axis = 0; axis < x.rank(); ++axis) {
      if (axis != cut) MW_RETURN_IF_ERROR(Link(op, x, axis, part, axis));
    }
    growth += Find(part, cut).value_or(part.size(cut)) - part.size(cut);
    if (part.size(cut) > op.output(longest)->type.shape()[cut]) longest = i;
  }
  if (const auto total = Find(x, cut); total.has_value() && growth == 0) {
    const Term part(op.output(longest));
    if (2 * part.size(cut) <= x.size(cut)) return Open(op, "which of its parts is the context is ambiguous");
    MW_RETURN_IF_ERROR(Set(op, part, cut, part.size(cut) + *total - x.size(cut)));
  } else if (growth != 0) {
    MW_RETURN_IF_ERROR(Set(op, x, cut, x.size(cut) + growth));
  }
  for (size_t i = 0; i < op.outputs().size(); ++i) {
    const auto size = Find(Term(op.output(i)), cut);
    if (size.has_value()) MW_RETURN_IF_ERROR(SetEntry(op, "split_sizes", i, *size));
  }
  return Status::Ok();
}

Status ContextAxes::Pad(Operation& op) {
  const Term x(*Only(op, "x"));
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    MW_RETURN_IF_ERROR(Link(op, x, axis, op.output(), axis, op.output()->type.shape()[axis] - x.size(axis)));
  }
  return Status::Ok();
}

// One axis of a slice: the whole follows; a part at the front keeps its length; a part up to the end follows when what
// it is made of or goes into does.
Status ContextAxes::SliceAxis(Operation& op, const Term& x, size_t axis, const Term& part, size_t part_axis) {
  const auto rank = x.rank();
  const auto begins = VectorEntries(op, "begin", rank);
  const auto ends = VectorEntries(op, "end", rank);
  const bool from_start = AxisConstants(op, "begin_mask", rank, 0)[axis] != 0;
  const bool to_end = AxisConstants(op, "end_mask", rank, 0)[axis] != 0;
  const int64_t size = x.size(axis);
  const bool follows = Find(x, axis).has_value();
  const auto constant = [axis](const std::optional<std::vector<VectorEntry>>& entries) {
    return entries.has_value() ? (*entries)[axis].constant : std::nullopt;
  };
  const auto begin = from_start ? std::optional<int64_t>(0) : constant(begins);
  const auto end = to_end ? std::optional<int64_t>(size) : constant(ends);
  if (AxisConstants(op, "stride", rank, 1)[axis] != 1) {
    return follows ? Open(op, "it takes every so many rows of the context") : Status::Ok();
  }
  const bool grows = Find(part, part_axis).has_value();
  if (!begin.has_value() || !end.has_value()) {  // rows at a position known at run time
    return grows ? Open(op, "the length of a slice at a position would change with the context") : Status::Ok();
  }
  const int64_t new_size = Find(x, axis).value_or(size);
  const bool ends_at_end = to_end || *end >= size;
  const auto set_end = [&](int64_t value) {
    return to_end || *end < 0 || *end > size ? Status::Ok() : SetEntry(op, "end", axis, value);
  };
  if (*begin < 0) return Status::Ok();  // counted from the end: so many of the last rows
  if (ends_at_end || *end < 0) {
    const bool tail = *begin > 0 && *end >= 0;
    if (tail && !grows) {
      // Not settled yet: a shift (the rest grows), or the last rows (they do not).
      if (follows) open_tails_.emplace(&op, axis);
      return Status::Ok();
    }
    open_tails_.erase({&op, axis});
    MW_RETURN_IF_ERROR(Link(op, part, part_axis, x, axis, size - part.size(part_axis)));
    const auto now = Find(x, axis);
    return now.has_value() && ends_at_end ? set_end(*now) : Status::Ok();
  }
  if (!grows) {
    if (*end > new_size)
      return Open(op, fmt::format("it takes {} rows of the context, which would be too short", *end));
    return Status::Ok();
  }
  const int64_t new_end = *end + *Find(part, part_axis) - part.size(part_axis);
  if (!follows) MW_RETURN_IF_ERROR(Set(op, x, axis, size + new_end - *end));
  return SetEntry(op, "end", axis, new_end);
}

Status ContextAxes::Slice(Operation& op) {
  const Term x(*Only(op, "x"));
  const bool update = op.type() == "slice_update";
  const Term part = update ? Term(*Only(op, "update")) : Term(op.output());
  if (update) MW_RETURN_IF_ERROR(LinkAll(op, x, op.output()));
  const std::vector<int64_t> squeezed = AxisConstants(op, "squeeze_mask", x.rank(), 0);
  size_t target = 0;
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (squeezed[axis] == 0) {
      if (target < part.rank()) MW_RETURN_IF_ERROR(SliceAxis(op, x, axis, part, target));
      ++target;
      continue;
    }
    const auto size = Find(x, axis);
    const auto begins = VectorEntries(op, "begin", x.rank());
    if (!size.has_value() || !begins.has_value() || !(*begins)[axis].constant.has_value()) continue;
    const int64_t row = *(*begins)[axis].constant;
    if (row >= *size) return Open(op, fmt::format("it takes row {} of the context, which would be too short", row));
    if (row > 0 && row + 1 == x.size(axis)) {
      return Open(op, fmt::format("row {} is the last of the context: whether it stays or moves is ambiguous", row));
    }
  }
  return Status::Ok();
}

Status ContextAxes::SliceBySize(Operation& op) {
  const Term x(*Only(op, "x"));
  const Term out(op.output());
  for (size_t axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) != out.size(axis)) {
      if (Find(out, axis).has_value()) return Open(op, "the length of a slice would change with the context");
      continue;
    }
    MW_RETURN_IF_ERROR(Link(op, x, axis, out, axis));
    const auto size = Find(out, axis);
    const Literal* constant = op.InputConstant("size");
    if (!size.has_value() || (constant != nullptr && constant->tensor.GetInt(static_cast<int64_t>(axis)) < 0)) continue;
    MW_RETURN_IF_ERROR(SetEntry(op, "size", axis, *size));
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
