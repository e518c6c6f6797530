#include "passes/slot_slice.h"

#include <algorithm>

namespace milwright {
namespace {

int64_t Resolved(int64_t at, int64_t size) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); }

}  // namespace

bool SlotSlice::DynamicBegin(size_t axis) const { return begin_mask[axis] == 0 && !begin[axis].constant.has_value(); }

bool SlotSlice::DynamicEnd(size_t axis) const {
  if (squeeze_mask[axis] != 0) return DynamicBegin(axis);
  return end_mask[axis] == 0 && !end[axis].constant.has_value();
}

std::optional<int64_t> SlotSlice::Begin(size_t axis, int64_t size) const {
  if (DynamicBegin(axis)) return std::nullopt;
  // A squeezed axis is taken at `begin`, whatever its mask says.
  if (begin_mask[axis] != 0 && squeeze_mask[axis] == 0) return 0;
  if (!begin[axis].constant.has_value()) return std::nullopt;
  return Resolved(*begin[axis].constant, size);
}

std::optional<int64_t> SlotSlice::End(size_t axis, int64_t size) const {
  if (squeeze_mask[axis] != 0) {
    const auto from = Begin(axis, size);
    return from.has_value() ? std::optional(*from + 1) : std::nullopt;
  }
  if (end_mask[axis] != 0) return size;
  if (!end[axis].constant.has_value()) return std::nullopt;
  return Resolved(*end[axis].constant, size);
}

std::optional<SlotSlice> ReadSlotSlice(const Operation& op, const Shape& shape) {
  if (op.type() != "slice_by_index" && op.type() != "slice_update") return std::nullopt;
  const size_t rank = shape.size();
  if (rank == 0) return std::nullopt;
  auto begin = VectorEntries(op, "begin", rank);
  auto end = VectorEntries(op, "end", rank);
  if (!begin.has_value() || !end.has_value()) return std::nullopt;
  SlotSlice slice;
  slice.begin = *std::move(begin);
  slice.end = *std::move(end);
  slice.begin_mask = AxisConstants(op, "begin_mask", rank, 0);
  slice.end_mask = AxisConstants(op, "end_mask", rank, 0);
  slice.squeeze_mask = AxisConstants(op, "squeeze_mask", rank, 0);
  const std::vector<int64_t> strides = AxisConstants(op, "stride", rank, 1);
  if (std::ranges::any_of(strides, [](int64_t stride) { return stride != 1; })) return std::nullopt;
  const auto first = slice.Begin(0, shape[0]);
  const auto last = slice.End(0, shape[0]);
  if (!first.has_value() || !last.has_value() || *first >= *last) return std::nullopt;
  slice.slot = *first;
  slice.count = *last - *first;
  return slice;
}

SlotSlice Retarget(SlotSlice slice, const Shape& from, const Shape& to, int64_t shift) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (i > 0 && from[i] == to[i]) continue;
    const int64_t moved = i == 0 ? shift : 0;
    if (const auto begin = slice.Begin(i, from[i]); begin.has_value()) {
      slice.begin[i] = {*begin + moved, nullptr};
      slice.begin_mask[i] = 0;
    }
    if (const auto end = slice.End(i, from[i]); end.has_value()) {
      slice.end[i] = {*end + moved, nullptr};
      slice.end_mask[i] = 0;
    }
  }
  slice.slot += shift;
  return slice;
}

void SetSlice(Operation& op, const SlotSlice& slice, Builder& builder, const std::string& name) {
  std::vector<Value*> replaced;
  for (const char* parameter : {"begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask"}) {
    Value* value = op.InputValue(parameter);
    if (value != nullptr && std::ranges::find(replaced, value) == replaced.end()) replaced.push_back(value);
  }
  op.SetInput("begin", MakeVector(builder, slice.begin, name + "_begin"));
  op.SetInput("end", MakeVector(builder, slice.end, name + "_end"));
  op.RemoveInput("stride");
  const auto set_mask = [&](const char* parameter, const std::vector<int64_t>& mask) {
    op.RemoveInput(parameter);
    if (std::ranges::all_of(mask, [](int64_t flag) { return flag == 0; })) return;
    op.SetInput(parameter, builder.Const(Literal::Bools(mask), name + "_" + parameter));
  };
  set_mask("begin_mask", slice.begin_mask);
  set_mask("end_mask", slice.end_mask);
  set_mask("squeeze_mask", slice.squeeze_mask);
  for (Value* value : replaced) EraseUnused(value);
}

Value* UpdateSlice(Builder& builder, Value* x, Value* update, const SlotSlice& slice, const std::string& name) {
  std::vector<Binding> bindings = {{"x", x},
                                   {"update", update},
                                   {"begin", MakeVector(builder, slice.begin, name + "_begin")},
                                   {"end", MakeVector(builder, slice.end, name + "_end")}};
  const auto add_mask = [&](const char* parameter, const std::vector<int64_t>& mask) {
    if (std::ranges::any_of(mask, [](int64_t flag) { return flag != 0; })) {
      bindings.emplace_back(parameter, Literal::Bools(mask));
    }
  };
  add_mask("begin_mask", slice.begin_mask);
  add_mask("end_mask", slice.end_mask);
  add_mask("squeeze_mask", slice.squeeze_mask);
  return builder.Op("slice_update", std::move(bindings), name);
}

}  // namespace milwright
