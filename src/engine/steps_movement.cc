// Moving values: views wherever strides can say it, copies where they cannot, and the slice updates and state writes
// that happen in place.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/copy.h"
#include "engine/integers.h"
#include "engine/plan_builder.h"
#include "ops/axes.h"

namespace milwright::engine {
namespace {

constexpr int64_t kParallelBytes = 1 << 20;

// Copies into memory that may belong to a state: then what is replaced is kept for the case of an error, the bytes are
// counted, and the bound on the state's magnitude follows.
class Writer {
 public:
  Writer() = default;
  Writer(Copier copier, int32_t state, bool whole) : copier_(copier), state_(state), whole_(whole) {}

  void Run(Frame& frame, const std::byte* from, std::byte* to, DataType to_type) const {
    if (state_ < 0) {
      copier_.Run(*frame.kernels, from, to);
      return;
    }
    // The rows of a large state lie on pages of their own: they are looked up together, not one after another.
    Prefetch(to);
    copier_.ForEachRun(to, [&](std::byte* run, size_t bytes) { frame.undo.Save(run, bytes); });
    copier_.Run(*frame.kernels, from, to);
    frame.counters.state_bytes_written += copier_.bytes_written();
    float* bound = frame.state_bounds[static_cast<size_t>(state_)];
    if (bound == nullptr) return;
    float largest = whole_ ? 0.0F : *bound;
    copier_.ForEachRun(to, [&](std::byte* run, size_t bytes) {
      const float here =
          to_type == DataType::kFp16
              ? frame.kernels->abs_max_f16(reinterpret_cast<uint16_t*>(run), static_cast<int64_t>(bytes / 2))
              : frame.kernels->abs_max_f32(reinterpret_cast<float*>(run), static_cast<int64_t>(bytes / 4));
      largest = std::max(largest, here);
    });
    *bound = largest;
  }
  [[nodiscard]] const Copier& copier() const { return copier_; }
  /// Asks for the memory at `to`, unless it is so much that its begin would be gone before it is written.
  void Prefetch(const std::byte* to) const {
    constexpr int64_t kMostBytes = 1 << 14;
    constexpr size_t kLine = 64;
    if (copier_.bytes_written() > kMostBytes) return;
    copier_.ForEachRun(const_cast<std::byte*>(to), [](const std::byte* run, size_t bytes) {
      for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(run + at, 1);
    });
  }

 private:
  Copier copier_;
  int32_t state_ = -1;
  bool whole_ = false;
};

class CopyStep final : public Step {
 public:
  CopyStep(const View& from, const View& to, int32_t state)
      : from_(from),
        to_(to),
        writer_(Copier(from.dtype, from.strides, to.dtype, to.strides, to.shape), state, true),
        counted_(state < 0),
        plain_(from.dtype == to.dtype && IsDense(from) && IsDense(to)) {}

  Status Run(Frame& frame) const override {
    const std::byte* from = frame.At<std::byte>(from_, BitWidth(from_.dtype) / 8);
    std::byte* to = frame.At<std::byte>(to_, BitWidth(to_.dtype) / 8);
    const int64_t bytes = writer_.copier().bytes_written();
    if (counted_) frame.counters.bytes_copied += bytes;
    if (plain_ && counted_ && bytes >= kParallelBytes) {
      frame.pool->ParallelFor(
          bytes,
          [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin)); },
          4096);
    } else {
      writer_.Run(frame, from, to, to_.dtype);
    }
    return Status::Ok();
  }

 private:
  View from_;
  View to_;
  Writer writer_;
  bool counted_;
  bool plain_;
};

// Copies several operands to their places: concat, stack.
class JoinStep final : public Step {
 public:
  JoinStep(std::vector<View> from, std::vector<View> to) : from_(std::move(from)), to_(std::move(to)) {
    for (size_t i = 0; i < from_.size(); ++i) {
      copiers_.emplace_back(from_[i].dtype, from_[i].strides, to_[i].dtype, to_[i].strides, to_[i].shape);
    }
  }
  Status Run(Frame& frame) const override {
    for (size_t i = 0; i < from_.size(); ++i) {
      copiers_[i].Run(*frame.kernels, frame.At<std::byte>(from_[i], BitWidth(from_[i].dtype) / 8),
                      frame.At<std::byte>(to_[i], BitWidth(to_[i].dtype) / 8));
    }
    return Status::Ok();
  }

 private:
  std::vector<View> from_;
  std::vector<View> to_;
  std::vector<Copier> copiers_;
};

// A view of `value` that reshapes to `shape`: the value's own, or that of a dense copy.
Result<View> ReshapedView(PlanBuilder& builder, const Node& node, GraphValue* value, const Shape& shape) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(value));
  if (auto reshaped = Reshaped(view, shape); reshaped.has_value()) return *reshaped;
  const View dense = builder.AllocateTemporary(view.dtype, view.shape);
  builder.Emit(MakeCopy(view, dense), node, {view, dense});
  return *Reshaped(dense, shape);
}

Result<bool> LowerReshape(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(View view, ReshapedView(builder, node, node.Arg("x"), node.output()->shape()));
  builder.Bind(node.output(), view);
  return true;
}

Result<bool> LowerTranspose(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(node.Arg("x")));
  builder.Bind(node.output(), Transposed(view, node.Context().Ints("perm")));
  return true;
}

Result<bool> LowerIdentity(PlanBuilder& builder, const Node& node) {
  if (node.Arg("x") == nullptr) return false;
  MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(node.Arg("x")));
  builder.Bind(node.output(), view);
  return true;
}

Result<bool> LowerLastRow(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(node.Arg("x")));
  const size_t axis = view.shape.size() - 2;
  view.offset += (view.shape[axis] - 1) * view.strides[axis];
  view.shape[axis] = 1;
  builder.Bind(node.output(), view);
  return true;
}

// ---- slices ----

// The parameters of slice_by_index and slice_update but for begin and end.
struct SliceForm {
  using Flags = InlineVector<bool, kMaxAxes>;
  Dims stride;
  Flags from_edge;
  Flags to_edge;
  Flags squeeze;

  explicit SliceForm(const OpContext& context) {
    const size_t rank = context.ShapeOf("x").size();
    const auto flags = [&](std::string_view name) {
      Flags result(rank, false);
      const std::vector<int64_t> given = context.Ints(name);
      for (size_t i = 0; i < given.size() && i < rank; ++i) result[i] = given[i] != 0;
      return result;
    };
    stride = context.Ints("stride", std::vector<int64_t>(rank, 1));
    stride.resize(rank, 1);
    from_edge = flags("begin_mask");
    to_edge = flags("end_mask");
    squeeze = flags("squeeze_mask");
  }

  [[nodiscard]] AxisSlice At(size_t axis, int64_t size, int64_t begin, int64_t end) const {
    if (squeeze[axis]) return {begin < 0 ? begin + size : begin, 1, 1, true};
    return ClampedSlice(size, from_edge[axis] ? std::nullopt : std::optional(begin),
                        to_edge[axis] ? std::nullopt : std::optional(end), stride[axis]);
  }
};

Result<bool> LowerSliceByIndex(PlanBuilder& builder, const Node& node) {
  GraphValue* begin = node.Arg("begin");
  GraphValue* end = node.Arg("end");
  if (begin->known == nullptr || end->known == nullptr) return false;
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(node.Arg("x")));
  const OpContext context = node.Context();
  const SliceForm form(context);
  const std::vector<int64_t> from = begin->known->tensor.ToInts();
  const std::vector<int64_t> to = end->known->tensor.ToInts();
  std::vector<AxisSlice> slices;
  for (size_t i = 0; i < view.shape.size(); ++i) slices.push_back(form.At(i, view.shape[i], from[i], to[i]));
  View sliced = Sliced(view, slices);
  if (sliced.shape != node.output()->shape()) return false;
  builder.Bind(node.output(), sliced);
  return true;
}

// A slice of fixed size at a position known at run time.
class SliceAtStep final : public Step {
 public:
  SliceAtStep(View x, View begin, View result)
      : x_(x),
        begin_(begin),
        result_(result),
        copier_(x_.dtype, x_.strides, result_.dtype, result_.strides, result_.shape) {}
  Status Run(Frame& frame) const override {
    int64_t offset = 0;
    for (size_t i = 0; i < x_.shape.size(); ++i) {
      const int64_t asked = LoadInt(frame, begin_, static_cast<int64_t>(i));
      const int64_t at = asked < 0 ? asked + x_.shape[i] : asked;
      if (at < 0 || at + result_.shape[i] > x_.shape[i]) {
        return {ErrorCode::kRuntime, fmt::format("axis {}: position {} with {} rows is outside the size {}", i, asked,
                                                 result_.shape[i], x_.shape[i])};
      }
      offset += at * x_.strides[i];
    }
    const int64_t element = BitWidth(x_.dtype) / 8;
    copier_.Run(*frame.kernels, frame.At<std::byte>(x_, element) + offset * element,
                frame.At<std::byte>(result_, BitWidth(result_.dtype) / 8));
    return Status::Ok();
  }

 private:
  View x_;
  View begin_;
  View result_;
  Copier copier_;
};

Result<bool> LowerSliceBySize(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(node.Arg("x")));
  GraphValue* begin = node.Arg("begin");
  const Shape& shape = node.output()->shape();
  if (begin->known == nullptr) {
    MW_ASSIGN_OR_RETURN(const View begin_view, builder.ViewOf(begin));
    const View result = builder.AllocateAs(node.output(), view.dtype);
    builder.Emit(std::make_unique<SliceAtStep>(view, begin_view, result), node, {view, begin_view, result});
    return true;
  }
  const std::vector<int64_t> from = begin->known->tensor.ToInts();
  std::vector<AxisSlice> slices;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const int64_t at = from[i] < 0 ? from[i] + view.shape[i] : from[i];
    if (at < 0 || at + shape[i] > view.shape[i]) return false;
    slices.push_back({at, 1, shape[i], false});
  }
  builder.Bind(node.output(), Sliced(view, slices));
  return true;
}

Result<bool> LowerSplit(PlanBuilder& builder, const Node& node) {
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(node.Arg("x")));
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(node.Context().Int("axis"), view.rank()));
  int64_t at = 0;
  for (GraphValue* output : node.outputs) {
    View piece = view;
    piece.shape = output->shape();
    piece.offset += at * view.strides[static_cast<size_t>(axis)];
    at += piece.shape[static_cast<size_t>(axis)];
    builder.Bind(output, piece);
  }
  return true;
}

// The type in which moved values are kept: fp16 only when all of them lie in fp16.
DataType MovedType(const std::vector<View>& views, DataType declared) {
  const bool halves = std::ranges::all_of(views, [](const View& view) { return view.dtype == DataType::kFp16; });
  return halves ? DataType::kFp16 : HeldType(declared);
}

Result<bool> LowerConcat(PlanBuilder& builder, const Node& node) {
  const OpContext context = node.Context();
  if (context.Bool("interleave")) return false;
  std::vector<View> from;
  for (GraphValue* value : node.Args("values")) {
    MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(value));
    from.push_back(view);
  }
  if (from.size() == 1) {
    builder.Bind(node.output(), from.front());
    return true;
  }
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(context.Int("axis"), from.front().rank()));
  const View result = builder.AllocateAs(node.output(), MovedType(from, node.output()->dtype()));
  std::vector<View> to;
  int64_t at = 0;
  for (const View& view : from) {
    View piece = result;
    piece.shape = view.shape;
    piece.offset = at * result.strides[static_cast<size_t>(axis)];
    at += view.shape[static_cast<size_t>(axis)];
    to.push_back(piece);
  }
  std::vector<View> used = from;
  used.push_back(result);
  builder.Emit(std::make_unique<JoinStep>(std::move(from), std::move(to)), node, used);
  return true;
}

Result<bool> LowerStack(PlanBuilder& builder, const Node& node) {
  std::vector<View> from;
  for (GraphValue* value : node.Args("values")) {
    MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(value));
    from.push_back(view);
  }
  const View result = builder.AllocateAs(node.output(), MovedType(from, node.output()->dtype()));
  MW_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis(node.Context().Int("axis"), result.rank()));
  std::vector<View> to;
  for (size_t i = 0; i < from.size(); ++i) {
    View piece = result;
    piece.offset = static_cast<int64_t>(i) * result.strides[static_cast<size_t>(axis)];
    piece.shape.erase(piece.shape.begin() + axis);
    piece.strides.erase(piece.strides.begin() + axis);
    to.push_back(piece);
  }
  std::vector<View> used = from;
  used.push_back(result);
  builder.Emit(std::make_unique<JoinStep>(std::move(from), std::move(to)), node, used);
  return true;
}

Result<bool> LowerTile(PlanBuilder& builder, const Node& node) {
  if (node.Arg("reps") == nullptr || node.Arg("reps")->known == nullptr) return false;
  MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(node.Arg("x")));
  const std::vector<int64_t> reps = node.Arg("reps")->known->tensor.ToInts();
  const Shape& shape = node.output()->shape();
  bool stretches = true;  // only axes of size 1 are repeated: a view can say that
  for (size_t i = 0; i < reps.size(); ++i) stretches = stretches && (reps[i] == 1 || view.shape[i] == 1);
  if (stretches) {
    builder.Bind(node.output(), BroadcastTo(view, shape));
    return true;
  }
  if (2 * reps.size() > kMaxAxes) return false;
  const View result = builder.AllocateAs(node.output(), view.dtype);
  View from{view.root, view.offset, view.dtype, {}, {}};
  for (size_t i = 0; i < reps.size(); ++i) {
    from.shape.insert(from.shape.end(), {reps[i], view.shape[i]});
    from.strides.insert(from.strides.end(), {0, view.strides[i]});
  }
  builder.Emit(MakeCopy(from, *Reshaped(result, from.shape)), node, {view, result});
  return true;
}

// ---- gather of rows ----

class GatherStep final : public Step {
 public:
  GatherStep(View x, int64_t axis, View indices, View result) : x_(x), axis_(axis), result_(result) {
    // The indices as one axis between those of x before and after `axis`.
    count_ = indices.count();
    indices_ = *Reshaped(indices, {count_});
    Shape shape = x_.shape;
    shape[static_cast<size_t>(axis)] = count_;
    joined_ = *Reshaped(result_, shape);
    shape[static_cast<size_t>(axis)] = 1;
    copier_ = Copier(x_.dtype, x_.strides, joined_.dtype, joined_.strides, shape);
  }
  Status Run(Frame& frame) const override {
    const auto axis = static_cast<size_t>(axis_);
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t asked = LoadInt(frame, indices_, i);
      const int64_t at = asked < 0 ? asked + x_.shape[axis] : asked;
      if (at < 0 || at >= x_.shape[axis]) {
        return {ErrorCode::kRuntime,
                fmt::format("gather: index {} is outside the size {} of axis {}", asked, x_.shape[axis], axis_)};
      }
      const int64_t from_bytes = BitWidth(x_.dtype) / 8;
      const int64_t to_bytes = BitWidth(joined_.dtype) / 8;
      copier_.Run(*frame.kernels, frame.At<std::byte>(x_, from_bytes) + at * x_.strides[axis] * from_bytes,
                  frame.At<std::byte>(joined_, to_bytes) + i * joined_.strides[axis] * to_bytes);
    }
    return Status::Ok();
  }

 private:
  View x_;
  int64_t axis_;
  View indices_;
  View result_;
  View joined_;
  int64_t count_ = 0;
  Copier copier_;
};

// ---- slice_update and states ----

class SliceUpdateStep final : public Step {
 public:
  SliceUpdateStep(View target, View update, IntegerList begin, IntegerList end, SliceForm form, int32_t state)
      : target_(target), update_(update), begin_(begin), end_(end), form_(form) {
    // Strides and sizes of the slice are known; only its offset is not.
    Shape strides;
    for (size_t i = 0; i < target_.shape.size(); ++i) {
      if (!form_.squeeze[i]) strides.push_back(target_.strides[i] * form_.stride[i]);
    }
    writer_ = Writer(Copier(update_.dtype, update_.strides, target_.dtype, strides, update_.shape), state, false);
  }

  Status Run(Frame& frame) const override {
    int64_t offset = 0;
    size_t row = 0;
    for (size_t i = 0; i < target_.shape.size(); ++i) {
      const int64_t begin = begin_.Load(frame, i);
      const int64_t end = end_.Load(frame, i);
      const AxisSlice axis = form_.At(i, target_.shape[i], begin, end);
      const int64_t rows = axis.squeeze ? 1 : update_.shape[row++];
      if (axis.size != rows || axis.begin < 0 || axis.begin >= std::max<int64_t>(1, target_.shape[i])) {
        return {ErrorCode::kRuntime,
                fmt::format("slice_update: axis {}: position {} with {} rows is outside the size {}", i, begin, rows,
                            target_.shape[i])};
      }
      offset += axis.begin * target_.strides[i];
    }
    const int64_t element = BitWidth(target_.dtype) / 8;
    writer_.Run(frame, frame.At<std::byte>(update_, BitWidth(update_.dtype) / 8),
                frame.At<std::byte>(target_, element) + offset * element, target_.dtype);
    return Status::Ok();
  }

  void Prefetch(const Frame& frame) const override {
    int64_t offset = 0;
    size_t row = 0;
    for (size_t i = 0; i < target_.shape.size(); ++i) {
      // A begin that is not computed yet is any number: it leads astray, not outside.
      const int64_t begin = form_.from_edge[i] ? 0 : begin_.Load(frame, i);
      const int64_t rows = form_.squeeze[i] ? 1 : update_.shape[row++];
      offset += std::clamp<int64_t>(begin, 0, std::max<int64_t>(target_.shape[i] - rows, 0)) * target_.strides[i];
    }
    const int64_t element = BitWidth(target_.dtype) / 8;
    writer_.Prefetch(frame.At<std::byte>(target_, element) + offset * element);
  }

 private:
  View target_;
  View update_;
  IntegerList begin_;
  IntegerList end_;
  SliceForm form_;
  Writer writer_;
};

// The numbers of a parameter, which a fusion may have taken apart; the views that hold them are added to `used`.
Result<IntegerList> IntegersOf(PlanBuilder& builder, const Node& node, std::string_view parameter,
                               std::vector<View>* used) {
  IntegerList numbers;
  for (GraphValue* value : node.Args(parameter)) {
    if (value->known != nullptr) {
      for (const int64_t number : value->known->tensor.ToInts()) numbers.Add(number);
      continue;
    }
    MW_ASSIGN_OR_RETURN(const View view, builder.ViewOf(value));
    for (int64_t i = 0; i < view.count(); ++i) numbers.Add(view, i);
    used->push_back(view);
  }
  return numbers;
}

Result<bool> LowerSliceUpdate(PlanBuilder& builder, const Node& node) {
  std::vector<View> used;
  MW_ASSIGN_OR_RETURN(const View update, builder.ViewOf(node.Arg("update")));
  MW_ASSIGN_OR_RETURN(IntegerList begin, IntegersOf(builder, node, "begin", &used));
  MW_ASSIGN_OR_RETURN(IntegerList end, IntegersOf(builder, node, "end", &used));
  MW_ASSIGN_OR_RETURN(const View target, builder.UpdateTarget(node, node.Arg("x")));
  View source = update;
  if (update.root == target.root) {  // a part of what is written: read it first
    source = builder.AllocateTemporary(update.dtype, update.shape);
    builder.Emit(MakeCopy(update, source), node, {update, source});
  }
  used.insert(used.end(), {target, source});
  const int32_t state = builder.StateOf(target);
  builder.Emit(std::make_unique<SliceUpdateStep>(target, source, begin, end, SliceForm(node.Context()), state), node,
               used);
  return true;
}

Result<bool> LowerReadState(PlanBuilder& builder, const Node& node) {
  builder.Bind(node.output(), builder.StateView(node.state));
  return true;
}

Status WriteState(PlanBuilder& builder, const Node& node, GraphValue* data) {
  MW_ASSIGN_OR_RETURN(View view, builder.ViewOf(data));
  const View target = builder.StateView(node.state);
  if (view.root == target.root) {
    if (view.offset == 0 && IsDense(view) && view.count() == target.count()) return Status::Ok();  // it is there
    const View copy = builder.AllocateTemporary(view.dtype, view.shape);
    builder.Emit(MakeCopy(view, copy), node, {view, copy});
    view = copy;
  }
  builder.SaveViews(node, target.root);
  builder.Emit(std::make_unique<CopyStep>(view, target, node.state), node, {view, target});
  return Status::Ok();
}

Result<bool> LowerWriteState(PlanBuilder& builder, const Node& node) {
  MW_RETURN_IF_ERROR(WriteState(builder, node, node.Arg("data")));
  return true;
}

Result<bool> LowerUpdateState(PlanBuilder& builder, const Node& node) {
  MW_RETURN_IF_ERROR(WriteState(builder, node, node.Arg("value")));
  builder.Bind(node.output(), builder.StateView(node.state));
  return true;
}

constexpr LoweringEntry kMovementEntries[] = {
    {"coreml_update_state", LowerUpdateState},
    {"concat", LowerConcat},
    {"expand_dims", LowerReshape},
    {"flatten2d", LowerReshape},
    {"identity", LowerIdentity},
    {"last_row", LowerLastRow},
    {"read_state", LowerReadState},
    {"reshape", LowerReshape},
    {"slice_by_index", LowerSliceByIndex},
    {"slice_by_size", LowerSliceBySize},
    {"slice_update", LowerSliceUpdate},
    {"split", LowerSplit},
    {"squeeze", LowerReshape},
    {"stack", LowerStack},
    {"tile", LowerTile},
    {"transpose", LowerTranspose},
    {"write_state", LowerWriteState},
};

}  // namespace

std::span<const LoweringEntry> MovementLowerings() { return kMovementEntries; }

NewStep MakeCopy(const View& from, const View& to) { return std::make_unique<CopyStep>(from, to, -1); }

NewStep MakeGather(const View& x, int64_t axis, const View& indices, const View& result) {
  return std::make_unique<GatherStep>(x, axis, indices, result);
}

}  // namespace milwright::engine
