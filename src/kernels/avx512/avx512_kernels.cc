#if defined(__x86_64__)

#include "kernels/avx512/extensions.h"
#include "kernels/avx512/matvec_permute.h"
#include "kernels/avx512/vec.h"
#include "kernels/simd/table-inl.h"
#include "kernels/tables.h"

namespace milwright::kernels {
namespace {

template <int kBits>
constexpr MatVecKernel MakePermute(const char* name) {
  using Kernel = PermuteRows<kBits>;
  return {name, Operands::kFp32, Kernel::Supports, Kernel::ScratchBytes, Kernel::Prepare, Kernel::Rows};
}

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

// Made when asked for: initialising it at program start would run this file's instructions on every machine.
Kernels MakeAvx512() {
  static const MatVecKernel matvec[] = {
      kMatVecInt8Vnni[0],
      kMatVecInt8Vnni[1],
      kMatVecInt8Vnni[2],
      kMatVecInt8Vnni[3],
      kMatVecInt8Vnni[4],
      {"matvec_f32_f32_avx512", Operands::kFp32, SupportsDense<Codec::kFp32>, FloatBytes, CopyActivation,
       FloatRows<Avx512, false>::Rows},
      {"matvec_f32_f16_avx512", Operands::kFp32, SupportsDense<Codec::kFp16>, FloatBytes, CopyActivation,
       FloatRows<Avx512, true>::Rows},
      {"matvec_f32_i8_avx512", Operands::kFp32, ByteRows<Avx512, true>::Supports, FloatBytes, CopyActivation,
       ByteRows<Avx512, true>::Rows},
      {"matvec_f32_u8_avx512", Operands::kFp32, ByteRows<Avx512, false>::Supports, FloatBytes, CopyActivation,
       ByteRows<Avx512, false>::Rows},
      MakePermute<4>("matvec_f32_4bit_avx512"),
      MakePermute<2>("matvec_f32_2bit_avx512"),
      MakePermute<1>("matvec_f32_1bit_avx512"),
      kMatVecTableVbmi[0],
      kMatVecTableVbmi[1],
      kMatVecTableVbmi[2],
      {"matvec_f32_any_avx512", Operands::kFp32, SupportsAll, FloatBytes, CopyActivation, DecodedRows<Avx512>},
  };
  using MatMul = FloatMatMul<Avx512>;
  static const MatMulKernel matmul[] = {
      kMatMulAmx,
      kMatMulInt8Vnni[0],
      kMatMulInt8Vnni[1],
      {"matmul_f32_any_avx512", Operands::kFp32, SupportsAll, MatMul::PackedBytes, MatMul::Pack, MatMul::kPackRows,
       Avx512::kTileRows, MatMul::ScratchBytes, MatMul::Rows},
  };
  Kernels kernels = MakeTable<Avx512>(Isa::kAvx512, "avx512", matvec, matmul);
  kernels.read_stream = ReadStream;
  kernels.fma_stream = FmaStream<Avx512>;
  kernels.int8_dot_stream = MachineHasVnni() ? Int8DotStreamVnni : nullptr;
  return kernels;
}

}  // namespace

const Kernels* Avx512Kernels() {
  static const Kernels kKernels = MakeAvx512();
  return &kKernels;
}

}  // namespace milwright::kernels

#endif
