// The part of a kernel table that comes from the templates of this folder.
#ifndef MILWRIGHT_KERNELS_SIMD_TABLE_INL_H_
#define MILWRIGHT_KERNELS_SIMD_TABLE_INL_H_

#include "kernels/dispatch.h"
#include "kernels/simd/attention-inl.h"
#include "kernels/simd/decode-inl.h"
#include "kernels/simd/elementwise-inl.h"
#include "kernels/simd/matmul-inl.h"
#include "kernels/simd/matvec-inl.h"

namespace milwright::kernels {
namespace {

template <typename V>
constexpr Kernels MakeTable(Isa isa, const char* name, std::span<const MatVecKernel> matvec,
                            std::span<const MatMulKernel> matmul) {
  return {
      .isa = isa,
      .name = name,
      .matvec = matvec,
      .matmul = matmul,
      .decode_row = DecodeRowOnce<V>,
      .attention_tile = AttentionTileOf<V>,
      .half_to_float = Elementwise<V>::HalfToFloat,
      .float_to_half = Elementwise<V>::FloatToHalf,
      .round_to_half = Elementwise<V>::RoundToHalf,
      .abs_max_f32 = Elementwise<V>::AbsMaxF32,
      .abs_max_f16 = Elementwise<V>::AbsMaxF16,
      .add = Elementwise<V>::Add,
      .mul = Elementwise<V>::Mul,
      .scale = Elementwise<V>::Scale,
      .silu_mul = Elementwise<V>::SiluMul,
      .gelu_tanh_mul = Elementwise<V>::GeluTanhMul,
      .rms_norm = Elementwise<V>::RmsNorm,
      .layer_norm = Elementwise<V>::LayerNorm,
      .softmax = Elementwise<V>::Softmax,
      .rope = Elementwise<V>::Rope,
      .argmax = Elementwise<V>::ArgMax,
      .read_stream = nullptr,
      .fma_stream = nullptr,
      .int8_dot_stream = nullptr,
  };
}

/// Independent chains of multiply-adds, enough to cover their latency. Returns the multiply-adds done.
template <typename V>
int64_t FmaStream(int64_t iterations, float* sink) {
  constexpr int kChains = V::kTileRows;
  typename V::F chains[kChains];
  for (auto& chain : chains) chain = V::Set1(*sink);
  const auto half = V::Set1(0.5F);
  const auto one = V::Set1(1.0F);
  for (int64_t i = 0; i < iterations; ++i) {
    for (auto& chain : chains) chain = V::Fma(chain, half, one);
  }
  for (const auto& chain : chains) *sink += V::Sum(chain);
  return iterations * kChains * V::kWidth;
}

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_TABLE_INL_H_
