#if defined(__aarch64__)

#include "kernels/neon/vec.h"
#include "kernels/simd/table-inl.h"
#include "kernels/tables.h"

namespace milwright::kernels {
namespace {

constexpr MatVecKernel kMatVec[] = {
    {"matvec_f32_f32_neon", Operands::kFp32, SupportsDense<Codec::kFp32>, FloatBytes, CopyActivation,
     FloatRows<Neon, false>::Rows},
    {"matvec_f32_f16_neon", Operands::kFp32, SupportsDense<Codec::kFp16>, FloatBytes, CopyActivation,
     FloatRows<Neon, true>::Rows},
    {"matvec_f32_i8_neon", Operands::kFp32, ByteRows<Neon, true>::Supports, FloatBytes, CopyActivation,
     ByteRows<Neon, true>::Rows},
    {"matvec_f32_u8_neon", Operands::kFp32, ByteRows<Neon, false>::Supports, FloatBytes, CopyActivation,
     ByteRows<Neon, false>::Rows},
    {"matvec_f32_any_neon", Operands::kFp32, SupportsAll, FloatBytes, CopyActivation, DecodedRows<Neon>},
};

using MatMul = FloatMatMul<Neon>;
constexpr MatMulKernel kMatMul[] = {
    {"matmul_f32_any_neon", Operands::kFp32, SupportsAll, MatMul::PackedBytes, MatMul::Pack, MatMul::kPackRows,
     Neon::kTileRows, MatMul::ScratchBytes, MatMul::Rows},
};

uint64_t ReadStream(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  uint8x16_t combined[4] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    for (size_t j = 0; j < 4; ++j) combined[j] = veorq_u8(combined[j], vld1q_u8(p + i + j * 16));
  }
  const uint8x16_t all = veorq_u8(veorq_u8(combined[0], combined[1]), veorq_u8(combined[2], combined[3]));
  const uint64x2_t words = vreinterpretq_u64_u8(all);
  return vgetq_lane_u64(words, 0) ^ vgetq_lane_u64(words, 1);
}

constexpr Kernels MakeNeon() {
  Kernels kernels = MakeTable<Neon>(Isa::kNeon, "neon", kMatVec, kMatMul);
  kernels.read_stream = ReadStream;
  kernels.fma_stream = FmaStream<Neon>;
  return kernels;
}

}  // namespace

const Kernels* NeonKernels() {
  static constexpr Kernels kKernels = MakeNeon();
  return &kKernels;
}

}  // namespace milwright::kernels

#endif
