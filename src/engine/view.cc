#include "engine/view.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace milwright::engine {

int64_t View::count() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

Shape DenseStrides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

bool IsDense(const View& view) {
  int64_t stride = 1;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

bool IsPermutedDense(const View& view) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] != 1) axes.emplace_back(view.strides[i], view.shape[i]);
  }
  std::ranges::sort(axes);
  int64_t stride = 1;
  for (const auto& [step, size] : axes) {
    if (step != stride) return false;
    stride *= size;
  }
  return true;
}

std::optional<View> Reshaped(const View& view, const Shape& shape) {
  View result = view;
  result.shape = shape;
  result.strides = DenseStrides(shape);
  if (view.count() == 0 || IsDense(view)) return result;
  // Groups of old axes and groups of new axes of equal size; inside a group of old axes memory must be contiguous.
  size_t old_axis = 0;
  size_t new_axis = 0;
  while (old_axis < view.shape.size() || new_axis < shape.size()) {
    size_t old_end = old_axis;
    size_t new_end = new_axis;
    int64_t old_size = old_end < view.shape.size() ? view.shape[old_end++] : 1;
    int64_t new_size = new_end < shape.size() ? shape[new_end++] : 1;
    while (old_size != new_size) {
      if (old_size < new_size) {
        old_size *= view.shape[old_end++];
      } else {
        new_size *= shape[new_end++];
      }
    }
    int64_t inner = 1;  // stride of the innermost old axis that is longer than 1
    bool first = true;
    int64_t expected = 0;
    for (size_t i = old_end; i-- > old_axis;) {
      if (view.shape[i] == 1) continue;
      if (first) {
        inner = view.strides[i];
        first = false;
      } else if (view.strides[i] != expected) {
        return std::nullopt;
      }
      expected = view.strides[i] * view.shape[i];
    }
    for (size_t i = new_end; i-- > new_axis;) {
      result.strides[i] = inner;
      inner *= shape[i];
    }
    old_axis = old_end;
    new_axis = new_end;
  }
  return result;
}

View Transposed(const View& view, const std::vector<int64_t>& perm) {
  View result = view;
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto from = static_cast<size_t>(perm[i] < 0 ? perm[i] + view.rank() : perm[i]);
    result.shape[i] = view.shape[from];
    result.strides[i] = view.strides[from];
  }
  return result;
}

View Sliced(const View& view, const std::vector<AxisSlice>& slices) {
  View result{view.root, view.offset, view.dtype, {}, {}};
  for (size_t i = 0; i < slices.size(); ++i) {
    result.offset += slices[i].begin * view.strides[i];
    if (slices[i].squeeze) continue;
    result.shape.push_back(slices[i].size);
    result.strides.push_back(slices[i].size > 1 ? view.strides[i] * slices[i].stride : view.strides[i]);
  }
  return result;
}

View BroadcastTo(const View& view, const Shape& shape) {
  View result{view.root, view.offset, view.dtype, shape, Shape(shape.size(), 0)};
  const size_t skipped = shape.size() - view.shape.size();
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == shape[i + skipped]) result.strides[i + skipped] = view.strides[i];
  }
  return result;
}

LoopAxes JoinedAxes(const Dims& shape, const std::vector<Dims>& strides) {
  std::vector<size_t> order;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) order.push_back(i);
  }
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return std::abs(strides[0][a]) > std::abs(strides[0][b]); });
  LoopAxes axes;
  for (const size_t i : order) {
    LoopAxis axis{shape[i], {}};
    for (const Dims& operand : strides) axis.strides.push_back(operand[i]);
    if (!axes.empty()) {
      LoopAxis& outer = axes.back();
      bool joins = true;
      for (size_t k = 0; k < strides.size(); ++k) joins = joins && outer.strides[k] == axis.strides[k] * axis.size;
      if (joins) {
        outer.size *= axis.size;
        outer.strides = axis.strides;
        continue;
      }
    }
    axes.push_back(axis);
  }
  if (axes.empty()) {
    const bool nothing = std::ranges::find(shape, 0) != shape.end();
    axes.push_back({nothing ? 0 : 1, InlineVector<int64_t, LoopAxis::kMaxOperands>(strides.size(), 0)});
  }
  return axes;
}

}  // namespace milwright::engine
