#if defined(__x86_64__)

#include "kernels/avx2/vec.h"
#include "kernels/simd/table-inl.h"
#include "kernels/tables.h"

namespace milwright::kernels {
namespace {

constexpr MatVecKernel kMatVec[] = {
    {"matvec_f32_f32_avx2", Operands::kFp32, SupportsDense<Codec::kFp32>, FloatBytes, CopyActivation,
     FloatRows<Avx2, false>::Rows},
    {"matvec_f32_f16_avx2", Operands::kFp32, SupportsDense<Codec::kFp16>, FloatBytes, CopyActivation,
     FloatRows<Avx2, true>::Rows},
    {"matvec_f32_i8_avx2", Operands::kFp32, ByteRows<Avx2, true>::Supports, FloatBytes, CopyActivation,
     ByteRows<Avx2, true>::Rows},
    {"matvec_f32_u8_avx2", Operands::kFp32, ByteRows<Avx2, false>::Supports, FloatBytes, CopyActivation,
     ByteRows<Avx2, false>::Rows},
    {"matvec_f32_any_avx2", Operands::kFp32, SupportsAll, FloatBytes, CopyActivation, DecodedRows<Avx2>},
};

using MatMulAvx2 = FloatMatMul<Avx2>;
constexpr MatMulKernel kMatMul[] = {
    {"matmul_f32_any_avx2", Operands::kFp32, SupportsAll, MatMulAvx2::PackedBytes, MatMulAvx2::Pack,
     MatMulAvx2::kPackRows, Avx2::kTileRows, MatMulAvx2::ScratchBytes, MatMulAvx2::Rows},
};

uint64_t ReadStream(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  __m256i combined[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    for (size_t j = 0; j < 4; ++j) {
      Prefetch(p + i + j * 32 + 2 * kPrefetchBytes);
      const __m256i word = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(p + i + j * 32));
      combined[j] = _mm256_xor_si256(combined[j], word);
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(combined[0], combined[1]), _mm256_xor_si256(combined[2], combined[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}

constexpr Kernels MakeAvx2() {
  Kernels kernels = MakeTable<Avx2>(Isa::kAvx2, "avx2", kMatVec, kMatMul);
  kernels.read_stream = ReadStream;
  kernels.fma_stream = FmaStream<Avx2>;
  return kernels;
}

}  // namespace

const Kernels* Avx2Kernels() {
  static constexpr Kernels kKernels = MakeAvx2();
  return &kKernels;
}

}  // namespace milwright::kernels

#endif
