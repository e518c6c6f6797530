// Ops that trade channels or batches for height and width: depth_to_space, pixel_shuffle, space_to_batch and inverses.
//
// Each is one permutation of a finer view of its input. TensorFlow's depth_to_space keeps the block outside the
// channels, channel = (i*b + j)*C + c; PyTorch's pixel_shuffle inside, channel = c*b*b + i*b + j; TensorFlow's
// space_to_batch makes batch (i*b1 + j)*n + b (op-semantics.md, section 3).
#include <fmt/format.h>

#include <utility>

#include "ops/axes.h"
#include "ops/data_movement.h"
#include "ops/op.h"

namespace milwright {
namespace {

Status CheckRank4(const OpContext& ctx) {
  const Shape& x = ctx.ShapeOf("x");
  return x.size() == 4 ? Status::Ok()
                       : ctx.Error(fmt::format("x must be [N, C, H, W], but has the shape {}", ShapeToString(x)));
}

// size / divisor, where the division must leave nothing.
Result<int64_t> DivideSize(const OpContext& ctx, int64_t size, int64_t divisor, std::string_view what) {
  if (size == kUnknownDim) return kUnknownDim;
  if (size % divisor != 0) {
    return ctx.Error(
        fmt::format("the {} {} of x {} is no multiple of {}", what, size, ShapeToString(ctx.ShapeOf("x")), divisor));
  }
  return size / divisor;
}

// ---- channels and space ----

// The edge of a block: the second parameter of depth_to_space, space_to_depth, pixel_shuffle and pixel_unshuffle.
Result<int64_t> BlockEdge(const OpContext& ctx) {
  constexpr int64_t kMaxEdge = 1 << 30;  // its square must stay an int64
  const std::string& parameter = ctx.definition().parameters[1].name;
  const int64_t edge = ctx.Int(parameter);
  if (edge < 1 || edge > kMaxEdge) return ctx.Error(fmt::format("{} cannot be {}", parameter, edge));
  return edge;
}

// [N, C*b*b, H, W] to [N, C, H*b, W*b].
Result<std::vector<Type>> InferSpread(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank4(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t edge, BlockEdge(ctx));
  Type type = ctx.TypeOf("x");
  Shape& shape = type.tensor.shape;
  MW_ASSIGN_OR_RETURN(shape[1], DivideSize(ctx, shape[1], edge * edge, "channel count"));
  MW_ASSIGN_OR_RETURN(shape[2], MultiplySizes(ctx, shape[2], edge));
  MW_ASSIGN_OR_RETURN(shape[3], MultiplySizes(ctx, shape[3], edge));
  return std::vector<Type>{std::move(type)};
}

// [N, C, H*b, W*b] to [N, C*b*b, H, W].
Result<std::vector<Type>> InferFold(const OpContext& ctx) {
  MW_RETURN_IF_ERROR(CheckRank4(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t edge, BlockEdge(ctx));
  Type type = ctx.TypeOf("x");
  Shape& shape = type.tensor.shape;
  MW_ASSIGN_OR_RETURN(shape[1], MultiplySizes(ctx, shape[1], edge * edge));
  MW_ASSIGN_OR_RETURN(shape[2], DivideSize(ctx, shape[2], edge, "height"));
  MW_ASSIGN_OR_RETURN(shape[3], DivideSize(ctx, shape[3], edge, "width"));
  return std::vector<Type>{std::move(type)};
}

Result<std::vector<Literal>> EvaluateDepthToSpace(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& to = types.front().shape();
  MW_ASSIGN_OR_RETURN(const int64_t b, BlockEdge(ctx));
  return One(PermuteView(x, {to[0], b, b, to[1], x.shape()[2], x.shape()[3]}, {0, 3, 4, 1, 5, 2}, to));
}

Result<std::vector<Literal>> EvaluatePixelShuffle(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& to = types.front().shape();
  MW_ASSIGN_OR_RETURN(const int64_t b, BlockEdge(ctx));
  return One(PermuteView(x, {to[0], to[1], b, b, x.shape()[2], x.shape()[3]}, {0, 1, 4, 2, 5, 3}, to));
}

Result<std::vector<Literal>> EvaluateSpaceToDepth(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& to = types.front().shape();
  MW_ASSIGN_OR_RETURN(const int64_t b, BlockEdge(ctx));
  return One(PermuteView(x, {to[0], x.shape()[1], to[2], b, to[3], b}, {0, 3, 5, 1, 2, 4}, to));
}

Result<std::vector<Literal>> EvaluatePixelUnshuffle(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  const Shape& to = types.front().shape();
  MW_ASSIGN_OR_RETURN(const int64_t b, BlockEdge(ctx));
  return One(PermuteView(x, {to[0], x.shape()[1], to[2], b, to[3], b}, {0, 1, 3, 5, 2, 4}, to));
}

// ---- batches and space ----

// block_shape, and paddings or crops, for height and width.
struct BatchBlocks {
  std::vector<int64_t> block;   // [height, width]
  std::vector<int64_t> margin;  // [before height, after height, before width, after width]
};

Result<BatchBlocks> BatchBlocksOf(const OpContext& ctx) {
  constexpr int64_t kMaxBlock = 1 << 30;
  MW_RETURN_IF_ERROR(CheckRank4(ctx));
  const std::string& margin = ctx.definition().parameters[2].name;
  BatchBlocks blocks{ctx.Ints("block_shape"), ctx.Ints(margin)};
  if (blocks.block.size() != 2 || blocks.margin.size() != 4) {
    return ctx.Error(fmt::format("block_shape must be [2] and {} [2, 2], but they are {} and {}", margin,
                                 ShapeToString(ctx.ShapeOf("block_shape")), ShapeToString(ctx.ShapeOf(margin))));
  }
  for (int64_t size : blocks.block) {
    if (size < 1 || size > kMaxBlock) return ctx.Error(fmt::format("block_shape cannot hold {}", size));
  }
  for (int64_t size : blocks.margin) {
    if (size < 0) return ctx.Error(fmt::format("{} cannot hold {}", margin, size));
  }
  return blocks;
}

// A height or width with its margins added (sign 1) or taken away (sign -1).
int64_t WithMargin(int64_t size, const BatchBlocks& blocks, size_t side, int64_t sign) {
  if (size == kUnknownDim) return kUnknownDim;
  return size + sign * (blocks.margin[2 * side] + blocks.margin[2 * side + 1]);
}

Result<std::vector<Type>> InferSpaceToBatch(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const BatchBlocks blocks, BatchBlocksOf(ctx));
  Type type = ctx.TypeOf("x");
  Shape& shape = type.tensor.shape;
  MW_ASSIGN_OR_RETURN(shape[0], MultiplySizes(ctx, shape[0], blocks.block[0] * blocks.block[1]));
  for (size_t side = 0; side < 2; ++side) {
    MW_ASSIGN_OR_RETURN(shape[2 + side], DivideSize(ctx, WithMargin(shape[2 + side], blocks, side, 1),
                                                    blocks.block[side], side == 0 ? "padded height" : "padded width"));
  }
  return std::vector<Type>{std::move(type)};
}

Result<std::vector<Literal>> EvaluateSpaceToBatch(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const BatchBlocks blocks, BatchBlocksOf(ctx));
  MW_ASSIGN_OR_RETURN(const int64_t width, ElementBytes(x.dtype()));
  const Shape& to = types.front().shape();
  const Shape padded_shape{x.shape()[0], x.shape()[1], to[2] * blocks.block[0], to[3] * blocks.block[1]};
  MW_ASSIGN_OR_RETURN(Tensor padded, Tensor::Zeros({x.dtype(), padded_shape}));
  Walk inside = DenseWalk(padded_shape);
  inside.offset = blocks.margin[0] * inside.strides[2] + blocks.margin[2];
  CopyStrided(x.shape(), width, x.bytes().data(), DenseWalk(x.shape()), padded.mutable_bytes().data(), inside);
  const Shape view{x.shape()[0], x.shape()[1], to[2], blocks.block[0], to[3], blocks.block[1]};
  return One(PermuteView(padded, view, {3, 5, 0, 1, 2, 4}, to));
}

Result<std::vector<Type>> InferBatchToSpace(const OpContext& ctx) {
  MW_ASSIGN_OR_RETURN(const BatchBlocks blocks, BatchBlocksOf(ctx));
  Type type = ctx.TypeOf("x");
  Shape& shape = type.tensor.shape;
  MW_ASSIGN_OR_RETURN(shape[0], DivideSize(ctx, shape[0], blocks.block[0] * blocks.block[1], "batch size"));
  for (size_t side = 0; side < 2; ++side) {
    int64_t& size = shape[2 + side];
    MW_ASSIGN_OR_RETURN(size, MultiplySizes(ctx, size, blocks.block[side]));
    const bool known = size != kUnknownDim;
    size = WithMargin(size, blocks, side, -1);
    if (known && size < 0) {
      return ctx.Error(fmt::format("the crops of axis {} leave nothing of x {} in blocks of {}", 2 + side,
                                   ShapeToString(ctx.ShapeOf("x")), blocks.block[side]));
    }
  }
  return std::vector<Type>{std::move(type)};
}

Result<std::vector<Literal>> EvaluateBatchToSpace(const OpContext& ctx, const std::vector<Type>& types) {
  const Tensor& x = *ctx.TensorOf("x");
  MW_ASSIGN_OR_RETURN(const BatchBlocks blocks, BatchBlocksOf(ctx));
  const Shape& from = x.shape();
  const Shape& to = types.front().shape();
  const Shape view{blocks.block[0], blocks.block[1], to[0], from[1], from[2], from[3]};
  const Shape whole_shape{to[0], from[1], from[2] * blocks.block[0], from[3] * blocks.block[1]};
  MW_ASSIGN_OR_RETURN(const Tensor whole, PermuteView(x, view, {2, 3, 4, 0, 5, 1}, whole_shape));
  Walk inside = DenseWalk(whole_shape);
  inside.offset = blocks.margin[0] * inside.strides[2] + blocks.margin[2];
  return One(Collect(whole, to, inside));
}

}  // namespace

std::vector<OpDefinition> SpaceOps() {
  return {
      Op(Opset::kIOS15, "depth_to_space(T x, const int32 block_size) where T=fp16|fp32", InferSpread,
         EvaluateDepthToSpace),
      Op(Opset::kIOS15, "space_to_depth(T x, const int32 block_size) where T=fp16|fp32", InferFold,
         EvaluateSpaceToDepth),
      Op(Opset::kIOS15, "pixel_shuffle(T x, const int32 upscale_factor) where T=fp16|fp32", InferSpread,
         EvaluatePixelShuffle),
      Op(Opset::kIOS16, "pixel_unshuffle(T x, const uint32 downscale_factor) where T=fp16|fp32", InferFold,
         EvaluatePixelUnshuffle),
      Op(Opset::kIOS15, "space_to_batch(T x, const int32 block_shape, const int32 paddings) where T=fp16|fp32",
         InferSpaceToBatch, EvaluateSpaceToBatch),
      Op(Opset::kIOS15, "batch_to_space(T x, const int32 block_shape, const int32 crops) where T=fp16|fp32",
         InferBatchToSpace, EvaluateBatchToSpace),
  };
}

}  // namespace milwright
