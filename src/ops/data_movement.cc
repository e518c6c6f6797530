#include "ops/data_movement.h"

#include <cstring>

#include "ops/op.h"

namespace milwright {
namespace {

// One axis of a joint walk; neighbouring axes that both sides cross in one step are merged.
struct Axis {
  int64_t size;
  int64_t from;
  int64_t to;
};

std::vector<Axis> MergedAxes(const Shape& sizes, const Walk& from, const Walk& to) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const Axis axis{sizes[i], from.strides[i], to.strides[i]};
    if (!axes.empty() && axes.back().from == axis.from * axis.size && axes.back().to == axis.to * axis.size) {
      axes.back() = {axes.back().size * axis.size, axis.from, axis.to};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

template <size_t kWidth>
void CopyRow(const Axis& axis, const std::byte* source, std::byte* target) {
  for (int64_t i = 0; i < axis.size; ++i) {
    std::memcpy(target + i * axis.to * static_cast<int64_t>(kWidth),
                source + i * axis.from * static_cast<int64_t>(kWidth), kWidth);
  }
}

void CopyInnermost(const Axis& axis, int64_t width, const std::byte* source, std::byte* target) {
  if (axis.from == 1 && axis.to == 1) {
    std::memcpy(target, source, static_cast<size_t>(axis.size * width));
    return;
  }
  switch (width) {
    case 1:
      return CopyRow<1>(axis, source, target);
    case 2:
      return CopyRow<2>(axis, source, target);
    case 4:
      return CopyRow<4>(axis, source, target);
    default:
      return CopyRow<8>(axis, source, target);
  }
}

}  // namespace

Walk DenseWalk(const Shape& shape) { return {0, Strides(shape)}; }

Result<int64_t> ElementBytes(DataType type) {
  const int bits = BitWidth(type);
  if (bits < 8) {
    return Status(ErrorCode::kInvalidProgram,
                  "elements of type " + std::string(DataTypeName(type)) + " cannot be moved one by one");
  }
  return int64_t{bits / 8};
}

bool NextIndex(const Shape& sizes, std::vector<int64_t>& index) {
  for (size_t i = sizes.size(); i-- > 0;) {
    if (++index[i] < sizes[i]) return true;
    index[i] = 0;
  }
  return false;
}

void CopyStrided(const Shape& sizes, int64_t width, const std::byte* source, const Walk& from, std::byte* target,
                 const Walk& to) {
  for (int64_t size : sizes) {
    if (size == 0) return;
  }
  std::vector<Axis> axes = MergedAxes(sizes, from, to);
  const Axis inner = axes.empty() ? Axis{1, 1, 1} : axes.back();
  if (!axes.empty()) axes.pop_back();
  std::vector<int64_t> index(axes.size(), 0);
  int64_t read = from.offset;
  int64_t written = to.offset;
  bool more = true;
  while (more) {
    CopyInnermost(inner, width, source + read * width, target + written * width);
    more = false;
    for (size_t i = axes.size(); i-- > 0 && !more;) {
      read += axes[i].from;
      written += axes[i].to;
      more = ++index[i] < axes[i].size;
      if (more) continue;
      read -= axes[i].from * axes[i].size;
      written -= axes[i].to * axes[i].size;
      index[i] = 0;
    }
  }
}

Result<Tensor> Collect(const Tensor& source, const Shape& sizes, const Walk& from) {
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(source.dtype()));
  MW_ASSIGN_OR_RETURN(Tensor result, Tensor::Zeros({source.dtype(), sizes}));
  CopyStrided(sizes, width, source.bytes().data(), from, result.mutable_bytes().data(), DenseWalk(sizes));
  return result;
}

Result<Tensor> PermuteView(const Tensor& source, const Shape& view, const std::vector<int64_t>& perm, Shape result) {
  const std::vector<int64_t> strides = Strides(view);
  Shape sizes;
  Walk from;
  for (int64_t axis : perm) {
    sizes.push_back(view[static_cast<size_t>(axis)]);
    from.strides.push_back(strides[static_cast<size_t>(axis)]);
  }
  MW_ASSIGN_OR_RETURN(const Tensor permuted, Collect(source, sizes, from));
  return permuted.Reshaped(std::move(result));
}

}  // namespace milwright
