// argsort, topk and non-maximum suppression. Semantics: op-semantics.md, section 3.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <type_traits>

#include "ops/axes.h"
#include "ops/kernel_helpers.h"
#include "ops/op.h"

namespace milwright {
namespace {

// The places of the first `count` elements in sorted order. Equal elements keep their order (the documentation leaves
// ties open) and NaN comes last whichever the direction, as in NumPy.
template <typename At>
std::vector<int64_t> SortedPlaces(int64_t size, int64_t count, bool ascending, At&& at) {
  std::vector<int64_t> places(static_cast<size_t>(size));
  std::iota(places.begin(), places.end(), 0);
  const auto before = [&](int64_t i, int64_t j) {
    const auto a = at(i);
    const auto b = at(j);
    if ((a != a) != (b != b)) return b != b;
    if (a == b || a != a) return i < j;
    return ascending ? a < b : b < a;
  };
  std::partial_sort(places.begin(), places.begin() + count, places.end(), before);
  places.resize(static_cast<size_t>(count));
  return places;
}

// ---- argsort ----

Result<std::vector<Type>> InferArgsort(const OpContext& ctx) {
  const Result<int64_t> axis = AxisParameter(ctx, "axis", ctx.ShapeOf("x"));
  if (!axis.ok()) return axis.status();
  return std::vector<Type>{Type::Tensor(DataType::kInt32, ctx.ShapeOf("x"))};
}

Result<std::vector<Literal>> EvaluateArgsort(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  const AxisSplit split = SplitAt(x.shape(), axis);
  const bool ascending = ctx.Bool("ascending");
  return WithNumbers(x, [&](const auto& values) {
    std::vector<int64_t> indices(values.size());
    ForEachLine(split, [&](int64_t first) {
      const auto at = [&](int64_t i) { return values[static_cast<size_t>(first + i * split.inner)]; };
      const std::vector<int64_t> places = SortedPlaces(split.size, split.size, ascending, at);
      for (size_t i = 0; i < places.size(); ++i) {
        indices[static_cast<size_t>(first) + i * static_cast<size_t>(split.inner)] = places[i];
      }
    });
    return One(MakeTensor(types.front().tensor, indices));
  });
}

// ---- topk ----

// Values and their indices. From iOS16 on the indices can be left out, and from iOS17 on they may be uint16, and k may
// be -1 for the whole axis.
Result<std::vector<Type>> InferTopk(const OpContext& ctx) {
  Shape shape = ctx.ShapeOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", shape));
  if (!ctx.Known("k")) return ctx.Error("parameter 'k' must be known");
  const int64_t k = ctx.Int("k");
  int64_t& size = shape[static_cast<size_t>(axis)];
  const bool all = k == -1 && ctx.definition().since >= Opset::kIOS17;
  if (!all && (k < 0 || (size != kUnknownDim && k > size))) {
    return ctx.Error(fmt::format("k {} does not fit axis {} of the shape {}", k, axis, ShapeToString(shape)));
  }
  if (!all) size = k;
  std::vector<Type> types = {Type::Tensor(ctx.DTypeOf("x"), shape)};
  if (!ctx.Bool("return_indices", true)) return types;
  DataType dtype = DataType::kInt32;
  if (ctx.definition().Find("output_indices_dtype") != nullptr) {
    MW_ASSIGN_OR_RETURN(dtype, DataTypeParameter(ctx, "output_indices_dtype"));
    if (dtype != DataType::kInt32 && dtype != DataType::kUInt16) {
      return ctx.Error(fmt::format("output_indices_dtype must be int32 or uint16, not {}", DataTypeName(dtype)));
    }
  }
  types.push_back(Type::Tensor(dtype, std::move(shape)));
  return types;
}

// The result is sorted even when sort=false, which allows any order.
Result<std::vector<Literal>> EvaluateTopk(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const int64_t axis, AxisParameter(ctx, "axis", x.shape()));
  const AxisSplit split = SplitAt(x.shape(), axis);
  const AxisSplit result = SplitAt(types.front().shape(), axis);
  const bool ascending = ctx.Bool("ascending");
  return WithNumbers(x, [&](const auto& values) -> Result<std::vector<Literal>> {
    const auto count = static_cast<size_t>(result.outer * result.size * result.inner);
    std::remove_cvref_t<decltype(values)> best(count);
    std::vector<int64_t> indices(count);
    int64_t line = 0;
    ForEachLine(split, [&](int64_t first) {
      const int64_t target = line / split.inner * result.size * split.inner + line % split.inner;
      ++line;
      const auto at = [&](int64_t i) { return values[static_cast<size_t>(first + i * split.inner)]; };
      const std::vector<int64_t> places = SortedPlaces(split.size, result.size, ascending, at);
      for (size_t i = 0; i < places.size(); ++i) {
        const size_t to = static_cast<size_t>(target) + i * static_cast<size_t>(split.inner);
        best[to] = at(places[i]);
        indices[to] = places[i];
      }
    });
    MW_ASSIGN_OR_RETURN(Tensor value_tensor, MakeTensor(types[0].tensor, best));
    std::vector<Literal> results;
    results.emplace_back(std::move(value_tensor));
    if (types.size() > 1) {
      MW_ASSIGN_OR_RETURN(Tensor index_tensor, MakeTensor(types[1].tensor, indices));
      results.emplace_back(std::move(index_tensor));
    }
    return results;
  });
}

// ---- non_maximum_suppression ----

// From iOS17 on, boxes are [n, 4, B] and scores [n, K, B] (before: [n, B, 4] and [n, B, K]), there is no score
// threshold, and no count is returned.
bool BoxesLast(const OpContext& ctx) { return ctx.definition().since >= Opset::kIOS17; }

Result<std::vector<Type>> InferSuppression(const OpContext& ctx) {
  const Shape& boxes = ctx.ShapeOf("boxes");
  const Shape& scores = ctx.ShapeOf("scores");
  const size_t box_axis = BoxesLast(ctx) ? 2 : 1;
  const size_t component_axis = 3 - box_axis;
  const auto agree = [](int64_t a, int64_t b) { return a == b || a == kUnknownDim || b == kUnknownDim; };
  if (boxes.size() != 3 || scores.size() != 3 || !agree(boxes[0], scores[0]) ||
      !agree(boxes[box_axis], scores[box_axis]) || !agree(boxes[component_axis], 4)) {
    return ctx.Error(fmt::format("boxes of shape {} and scores of shape {} must be {}", ShapeToString(boxes),
                                 ShapeToString(scores),
                                 BoxesLast(ctx) ? "[n, 4, B] and [n, K, B]" : "[n, B, 4] and [n, B, K]"));
  }
  if (!ctx.Known("max_boxes")) return ctx.Error("parameter 'max_boxes' must be known");
  const int64_t max_boxes = ctx.Int("max_boxes");
  if (max_boxes < 0) return ctx.Error(fmt::format("max_boxes {} is negative", max_boxes));
  const int64_t batch = std::max(boxes[0], scores[0]);  // the known one, if any
  Shape chosen_boxes = {batch, max_boxes, max_boxes};
  chosen_boxes[component_axis] = 4;
  Shape chosen_scores = {batch, max_boxes, max_boxes};
  chosen_scores[component_axis] = scores[component_axis];
  std::vector<Type> types = {Type::Tensor(ctx.DTypeOf("boxes"), std::move(chosen_boxes)),
                             Type::Tensor(ctx.DTypeOf("scores"), std::move(chosen_scores)),
                             Type::Tensor(DataType::kInt32, {batch, max_boxes})};
  if (!BoxesLast(ctx)) types.push_back(Type::Tensor(DataType::kInt32, {batch}));
  return types;
}

// A box by its centre and size (x, y, width, height).
using Box = std::array<float, 4>;

float IntersectionOverUnion(const Box& a, const Box& b) {
  const auto overlap = [&](size_t axis) {
    const float low = std::max(a[axis] - a[axis + 2] / 2, b[axis] - b[axis + 2] / 2);
    const float high = std::min(a[axis] + a[axis + 2] / 2, b[axis] + b[axis + 2] / 2);
    return std::max(high - low, 0.0F);
  };
  const float intersection = overlap(0) * overlap(1);
  const float all = a[2] * a[3] + b[2] * b[3] - intersection;
  return all > 0 ? intersection / all : 0;
}

// A [n, items, components] view of a rank-3 tensor whose items lie on axis 1 or 2.
struct ItemView {
  std::vector<float> values;
  int64_t items = 0;
  int64_t components = 0;
  bool items_last = false;

  ItemView(const TensorType& type, std::vector<float> numbers, bool items_last)
      : values(std::move(numbers)),
        items(type.shape[items_last ? 2 : 1]),
        components(type.shape[items_last ? 1 : 2]),
        items_last(items_last) {}
  float& At(int64_t n, int64_t item, int64_t component) {
    const int64_t within = items_last ? component * items + item : item * components + component;
    return values[static_cast<size_t>(n * items * components + within)];
  }
};

// Greedy by descending best score; a box is dropped when it overlaps one already chosen (of the same class, if
// per_class_suppression). When no score passes the threshold, the best box is returned alone. Unused places hold zero
// boxes and scores and the index -1.
Result<std::vector<Literal>> EvaluateSuppression(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& boxes_tensor = *ctx.TensorOf("boxes");
  const Tensor& scores_tensor = *ctx.TensorOf("scores");
  const bool last = BoxesLast(ctx);
  ItemView boxes(boxes_tensor.type(), boxes_tensor.ToFloats(), last);
  ItemView scores(scores_tensor.type(), scores_tensor.ToFloats(), last);
  MW_ASSIGN_OR_RETURN(const Tensor no_boxes, Tensor::Zeros(types[0].tensor));
  MW_ASSIGN_OR_RETURN(const Tensor no_scores, Tensor::Zeros(types[1].tensor));
  ItemView chosen_boxes(types[0].tensor, no_boxes.ToFloats(), last);
  ItemView chosen_scores(types[1].tensor, no_scores.ToFloats(), last);
  const int64_t batch = types[0].shape()[0];
  const int64_t max_boxes = chosen_boxes.items;
  const auto iou_threshold = static_cast<float>(ctx.Double("iou_threshold"));
  const double score_threshold = ctx.Double("score_threshold", -std::numeric_limits<double>::infinity());
  const bool per_class = ctx.Bool("per_class_suppression");
  std::vector<int64_t> indices(static_cast<size_t>(batch * max_boxes), -1);
  std::vector<int64_t> counts;
  for (int64_t n = 0; n < batch; ++n) {
    std::vector<float> best_score;
    std::vector<int64_t> best_class;
    std::vector<Box> box;
    for (int64_t i = 0; i < boxes.items; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < scores.components; ++k) {
        if (scores.At(n, i, k) > scores.At(n, i, best)) best = k;
      }
      best_class.push_back(best);
      best_score.push_back(scores.components > 0 ? scores.At(n, i, best) : 0);
      box.push_back({boxes.At(n, i, 0), boxes.At(n, i, 1), boxes.At(n, i, 2), boxes.At(n, i, 3)});
    }
    const std::vector<int64_t> order =
        SortedPlaces(boxes.items, boxes.items, false, [&](int64_t i) { return best_score[static_cast<size_t>(i)]; });
    std::vector<int64_t> chosen;
    for (const int64_t i : order) {
      if (static_cast<int64_t>(chosen.size()) == max_boxes) break;
      const auto candidate = static_cast<size_t>(i);
      if (!(best_score[candidate] > score_threshold) && !chosen.empty()) break;
      const bool suppressed = std::ranges::any_of(chosen, [&](int64_t j) {
        const auto other = static_cast<size_t>(j);
        return (!per_class || best_class[candidate] == best_class[other]) &&
               IntersectionOverUnion(box[candidate], box[other]) > iou_threshold;
      });
      if (!suppressed) chosen.push_back(i);
    }
    for (size_t place = 0; place < chosen.size(); ++place) {
      const auto to = static_cast<int64_t>(place);
      for (int64_t c = 0; c < 4; ++c) chosen_boxes.At(n, to, c) = boxes.At(n, chosen[place], c);
      for (int64_t k = 0; k < scores.components; ++k) chosen_scores.At(n, to, k) = scores.At(n, chosen[place], k);
      indices[static_cast<size_t>(n * max_boxes + to)] = chosen[place];
    }
    counts.push_back(static_cast<int64_t>(chosen.size()));
  }
  std::vector<Result<Tensor>> tensors;
  tensors.push_back(MakeTensor(types[0].tensor, chosen_boxes.values));
  tensors.push_back(MakeTensor(types[1].tensor, chosen_scores.values));
  tensors.push_back(MakeTensor(types[2].tensor, indices));
  if (types.size() > 3) tensors.push_back(MakeTensor(types[3].tensor, counts));
  std::vector<Literal> results;
  for (Result<Tensor>& tensor : tensors) {
    if (!tensor.ok()) return tensor.status();
    results.emplace_back(*std::move(tensor));
  }
  return results;
}

}  // namespace

std::vector<OpDefinition> SortOps() {
  return {
      Op(Opset::kIOS15, "argsort(T x, const int32 axis=-1, const bool ascending=false) where T=fp16|fp32|int32",
         InferArgsort, EvaluateArgsort),
      Op(Opset::kIOS15,
         "topk(T x, const int32 k=1, const int32 axis=-1, const bool ascending=false) where T=fp16|fp32|int32",
         InferTopk, EvaluateTopk),
      Op(Opset::kIOS16,
         "topk(T x, const int32 k=1, const int32 axis=-1, const bool ascending=false, const bool sort=true, const bool "
         "return_indices=true) where T=fp16|fp32|int32",
         InferTopk, EvaluateTopk),
      Op(Opset::kIOS17,
         "topk(T x, const K k=1, const int32 axis=-1, const bool ascending=false, const bool sort=true, const bool "
         "return_indices=true, const string output_indices_dtype=\"int32\") where "
         "T=fp16|fp32|int8|int16|int32|uint8|uint16, K=int8|int16|int32",
         InferTopk, EvaluateTopk),
      Op(Opset::kIOS15,
         "non_maximum_suppression(T boxes, T scores, const T iou_threshold, const T score_threshold, const int32 "
         "max_boxes, const bool per_class_suppression=false) where T=fp16|fp32",
         InferSuppression, EvaluateSuppression),
      Op(Opset::kIOS17,
         "non_maximum_suppression(T boxes, T scores, const T iou_threshold, const int32 max_boxes, const bool "
         "per_class_suppression=false) where T=fp16|fp32",
         InferSuppression, EvaluateSuppression),
  };
}

}  // namespace milwright
