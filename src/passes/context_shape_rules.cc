// What operations that move, join and cut demand of the sizes of their operands and results, for context_axes.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "passes/context_axes.h"
#include "passes/edit.h"

namespace milwright {

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

}  // namespace milwright
