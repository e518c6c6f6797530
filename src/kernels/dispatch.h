// The kernels of one instruction set as a table of function pointers, and how a table is chosen at run time.
//
// Everything computes in fp32 on plain pointers. Kernels are single-threaded; matmul.h and attention.h split the work
// over a ThreadPool. Names of kernels say everything: <op>_<activation>_<weight>_<isa>.
#ifndef MILWRIGHT_KERNELS_DISPATCH_H_
#define MILWRIGHT_KERNELS_DISPATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/weights.h"
#include "milwright/status.h"

namespace milwright::kernels {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kNeon };

/// What a kernel rounds its operands to before multiplying.
enum class Operands : uint8_t {
  kFp32,            ///< nothing is rounded (Precision::kExact)
  kInt8Activation,  ///< x to int8 in blocks of kActivationBlock columns; see QuantizeBlock
  kInt8Table,       ///< the same, and the 16 entries of each 4-bit table as one block
};

/// One way to compute rows of y = W x + bias.
struct MatVecKernel {
  const char* name;
  Operands operands;
  /// Whether this kernel can run `view` at that precision.
  bool (*supports)(const WeightView& view, Precision precision);
  /// Bytes of scratch that `prepare` fills for a matrix of `cols` columns (64-byte aligned memory).
  size_t (*scratch_bytes)(int64_t cols);
  /// Brings the activation x[cols] into the order or format that `rows` wants. Depends on x and cols only, so matrices
  /// with equal `prepare` and `cols` can share one scratch.
  void (*prepare)(const float* x, int64_t cols, void* scratch);
  /// y[begin..end) = rows [begin, end) of W x, plus bias[begin..end) if bias is not null. y and bias are indexed by
  /// row. A row's result does not depend on begin and end.
  void (*rows)(const WeightView& view, const void* scratch, const float* bias, int64_t begin, int64_t end, float* y);
};

/// One way to compute a block of Y[M, N] = X W^T + bias with weights decoded panel by panel.
struct MatMulKernel {
  const char* name;
  Operands operands;
  bool (*supports)(const WeightView& view, Precision precision);
  /// Bytes of the packed activation for X of [m, cols].
  size_t (*packed_bytes)(int64_t m, int64_t cols);
  /// Packs rows [begin, end) of X (fp32, `ldx` elements between rows) of the m rows; begin is a multiple of pack_rows.
  void (*pack)(const float* x, int64_t ldx, int64_t m, int64_t cols, int64_t begin, int64_t end, void* packed);
  int64_t pack_rows;  ///< rows of X that are packed together
  int64_t row_tile;   ///< rows of W that are computed together; threads split N at multiples of it
  /// Bytes of scratch that one thread needs in `rows`.
  size_t (*scratch_bytes)(int64_t m, int64_t cols);
  /// Y[0..m, begin..end) (fp32, `ldy` elements between rows). An output does not depend on begin, end and m.
  void (*rows)(const WeightView& view, const void* packed, int64_t m, const float* bias, int64_t begin, int64_t end,
               void* scratch, float* y, int64_t ldy);
};

/// What one attention task computes; see attention.h, which makes these.
struct AttentionTile;

struct Kernels {
  Isa isa;
  const char* name;  ///< "scalar", "avx2", "avx512", "neon"

  /// In order of preference; the last one of each supports everything at every precision.
  std::span<const MatVecKernel> matvec;
  std::span<const MatMulKernel> matmul;

  /// out[0..count) = the weights of `row` from column `begin` on (also how rows of a compressed embedding are
  /// gathered).
  void (*decode_row)(const WeightView& view, int64_t row, int64_t begin, int64_t count, float* out);

  /// Streaming attention of a tile of queries that share a KV head.
  void (*attention_tile)(const AttentionTile& tile);

  void (*half_to_float)(const uint16_t* in, int64_t n, float* out);
  void (*float_to_half)(const float* in, int64_t n, uint16_t* out);
  /// Rounds x to fp16 values in place.
  void (*round_to_half)(float* x, int64_t n);
  /// max |x|; 0 for n = 0, NaN elements are ignored.
  float (*abs_max_f32)(const float* x, int64_t n);
  float (*abs_max_f16)(const uint16_t* x, int64_t n);

  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*mul)(const float* a, const float* b, int64_t n, float* y);
  /// y = x * scale (one number).
  void (*scale)(const float* x, float scale, int64_t n, float* y);
  /// y = gate * sigmoid(gate) * up
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  /// y = gelu_tanh(gate) * up, gelu_tanh(g) = 0.5 g (1 + tanh(sqrt(2 / pi) (g + 0.044715 g^3)))
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* y);

  /// y = x / sqrt(mean(x^2) + epsilon) * weight; weight may be null (1). One row of n; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t n, float* y);
  /// y = (x - mean) / sqrt(var + epsilon) * gamma + beta; gamma and beta may be null. One row of n; y may be x.
  void (*layer_norm)(const float* x, const float* gamma, const float* beta, float epsilon, int64_t n, float* y);
  /// y = exp(x - max(x)) / sum. One row of n; y may be x. A row of only -inf gives NaN, as the formula does.
  void (*softmax)(const float* x, int64_t n, float* y);
  /// Half-split rotary embedding of one head: y[i] = x[i] cos[i] - x[i + n/2] sin[i], y[i + n/2] = x[i + n/2] cos[i +
  /// n/2]
  /// + x[i] sin[i + n/2]. cos and sin have n entries, n is even; y may be x.
  void (*rope)(const float* x, const float* cos, const float* sin, int64_t n, float* y);

  /// Index of the largest value, the first one if there are several; NaN never wins. 0 for n = 0.
  int64_t (*argmax)(const float* x, int64_t n);

  /// The reading of `bytes` bytes in a form that the compiler cannot remove (bandwidth measurement).
  uint64_t (*read_stream)(const void* data, size_t bytes);
  /// Runs `iterations` of independent fp32 fused multiply-adds; returns the number of multiply-adds done. `sink` gets a
  /// value that depends on all of them.
  int64_t (*fma_stream)(int64_t iterations, float* sink);
  /// The same for 8-bit dot products (VNNI or what the instruction set has instead); null where there is none.
  int64_t (*int8_dot_stream)(int64_t iterations, float* sink);
};

/// The tables that this machine can run, fastest first; the last is scalar.
std::span<const Kernels* const> AvailableKernels();

/// The table that `name` ("scalar", "avx2", "avx512", "neon") asks for; an empty name gives the fastest. Error kUsage
/// when the name is unknown or the machine cannot run it; the text names the choices.
Result<const Kernels*> SelectKernels(std::string_view name);

/// SelectKernels of the environment variable MILWRIGHT_KERNELS (unset: the fastest).
Result<const Kernels*> SelectKernelsFromEnvironment();

/// The kernel that runs `view` at `precision`. Look it up once per matrix, not per call.
const MatVecKernel& FindMatVec(const Kernels& kernels, const WeightView& view, Precision precision);
const MatMulKernel& FindMatMul(const Kernels& kernels, const WeightView& view, Precision precision);

/// The k largest values of x in falling order (ties: lower index first), k <= n. NaN sorts last.
void TopK(const float* x, int64_t n, int64_t k, float* values, int32_t* indices);

}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_DISPATCH_H_
