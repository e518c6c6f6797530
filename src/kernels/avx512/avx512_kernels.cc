#if defined(__x86_64__)

#include "kernels/avx512/vec.h"
#include "kernels/simd/table-inl.h"
#include "kernels/tables.h"

namespace milwright::kernels {
namespace {

constexpr MatVecKernel kMatVec[] = {
    {"matvec_f32_f32_avx512", Operands::kFp32, SupportsDense<Codec::kFp32>, FloatBytes, CopyActivation,
     FloatRows<Avx512, false>::Rows},
    {"matvec_f32_f16_avx512", Operands::kFp32, SupportsDense<Codec::kFp16>, FloatBytes, CopyActivation,
     FloatRows<Avx512, true>::Rows},
    {"matvec_f32_i8_avx512", Operands::kFp32, ByteRows<Avx512, true>::Supports, FloatBytes, CopyActivation,
     ByteRows<Avx512, true>::Rows},
    {"matvec_f32_u8_avx512", Operands::kFp32, ByteRows<Avx512, false>::Supports, FloatBytes, CopyActivation,
     ByteRows<Avx512, false>::Rows},
    {"matvec_f32_any_avx512", Operands::kFp32, SupportsAll, FloatBytes, CopyActivation, DecodedRows<Avx512>},
};

using MatMulAvx512 = FloatMatMul<Avx512>;
constexpr MatMulKernel kMatMul[] = {
    {"matmul_f32_any_avx512", Operands::kFp32, SupportsAll, MatMulAvx512::PackedBytes, MatMulAvx512::Pack,
     MatMulAvx512::kPackRows, Avx512::kTileRows, MatMulAvx512::ScratchBytes, MatMulAvx512::Rows},
};

uint64_t ReadStream(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  __m512i combined[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (size_t j = 0; j < 4; ++j) {
      Prefetch(p + i + j * 64 + 2 * kPrefetchBytes);
      combined[j] = _mm512_xor_si512(combined[j], _mm512_loadu_si512(p + i + j * 64));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(combined[0], combined[1]), _mm512_xor_si512(combined[2], combined[3]));
  return static_cast<uint64_t>(_mm512_reduce_or_epi64(all));
}

constexpr Kernels MakeAvx512() {
  Kernels kernels = MakeTable<Avx512>(Isa::kAvx512, "avx512", kMatVec, kMatMul);
  kernels.read_stream = ReadStream;
  kernels.fma_stream = FmaStream<Avx512>;
  return kernels;
}

}  // namespace

const Kernels* Avx512Kernels() {
  static constexpr Kernels kKernels = MakeAvx512();
  return &kKernels;
}

}  // namespace milwright::kernels

#endif
