// The vector type of the NEON kernels: 4 floats (64-bit ARM, where fp16 conversion and fused multiply-add always
// exist).
#ifndef MILWRIGHT_KERNELS_NEON_VEC_H_
#define MILWRIGHT_KERNELS_NEON_VEC_H_

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace milwright::kernels {
namespace {

struct Neon {
  using F = float32x4_t;
  static constexpr int64_t kWidth = 4;
  /// Rows of W times vectors of X rows that a matrix-matrix tile keeps in registers (32 in all).
  static constexpr int kTileRows = 8;
  static constexpr int kTileVectors = 3;
  static constexpr int kAttentionVectors = 4;

  static F Zero() { return vdupq_n_f32(0.0F); }
  static F Set1(float x) { return vdupq_n_f32(x); }
  static F Load(const float* p) { return vld1q_f32(p); }
  static F LoadN(const float* p, int64_t n) {
    F lanes = Zero();
    std::memcpy(&lanes, p, static_cast<size_t>(n) * sizeof(float));
    return lanes;
  }
  static void Store(float* p, F x) { vst1q_f32(p, x); }
  static void StoreN(float* p, int64_t n, F x) { std::memcpy(p, &x, static_cast<size_t>(n) * sizeof(float)); }
  static void StoreUpTo(float* p, int64_t n, F x) { n >= kWidth ? Store(p, x) : StoreN(p, n, x); }

  static float FromHalf(uint16_t h) { return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0); }
  static F LoadHalf(const void* p) {
    uint16x4_t halves;
    std::memcpy(&halves, p, sizeof(halves));
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  }
  static F LoadHalfN(const void* p, int64_t n) {
    uint16x4_t halves = vdup_n_u16(0);
    std::memcpy(&halves, p, static_cast<size_t>(n) * 2);
    return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  }
  static uint16x4_t ToHalf(F x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
  static void StoreHalf(uint16_t* p, F x) { vst1_u16(p, ToHalf(x)); }
  static void StoreHalfN(uint16_t* p, int64_t n, F x) {
    const uint16x4_t halves = ToHalf(x);
    std::memcpy(p, &halves, static_cast<size_t>(n) * 2);
  }
  static F RoundToHalf(F x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }
  static F LoadI8(const void* p) { return LoadI8N(p, 4); }
  static F LoadI8N(const void* p, int64_t n) {
    int8x8_t bytes = vdup_n_s8(0);
    std::memcpy(&bytes, p, static_cast<size_t>(n));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
  }
  static F LoadU8(const void* p) { return LoadU8N(p, 4); }
  static F LoadU8N(const void* p, int64_t n) {
    uint8x8_t bytes = vdup_n_u8(0);
    std::memcpy(&bytes, p, static_cast<size_t>(n));
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }

  static F Add(F a, F b) { return vaddq_f32(a, b); }
  static F Sub(F a, F b) { return vsubq_f32(a, b); }
  static F Mul(F a, F b) { return vmulq_f32(a, b); }
  static F Div(F a, F b) { return vdivq_f32(a, b); }
  static F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }   ///< a * b + c
  static F Fnma(F a, F b, F c) { return vfmsq_f32(c, a, b); }  ///< c - a * b
  /// As on the other instruction sets: b if either is NaN.
  static F Max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F Min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F Abs(F x) { return vabsq_f32(x); }
  static F Round(F x) { return vrndnq_f32(x); }
  /// x * 2^n for a whole n in -126..127
  static F TimesPow2(F x, F n) {
    const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
  }
  /// x < y ? a : b
  static F SelectLess(F x, F y, F a, F b) { return vbslq_f32(vcltq_f32(x, y), a, b); }
  static bool AnyEqual(F x, F y) { return vmaxvq_u32(vceqq_f32(x, y)) != 0; }

  static float Sum(F x) { return vaddvq_f32(x); }
  static float Largest(F x) { return vmaxvq_f32(x); }
  /// out[i] = sum of x[i], for four vectors.
  static void Sum4(const F* x, float* out) { Store(out, vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3]))); }

  /// The fields of `packed` that lie behind each other, one per byte of `mask`; all fields of a mask are equally wide.
  static uint64_t SpreadBits(uint64_t packed, uint64_t mask) {
    const auto field = static_cast<unsigned>(mask & 0xFFU);
    const auto bits = static_cast<unsigned>(__builtin_popcount(field));
    uint64_t spread = 0;
    for (unsigned i = 0; i < 8; ++i) spread |= ((packed >> (i * bits)) & field) << (i * 8);
    return spread;
  }

  /// out[i] = table[codes[i]]; table has 2^bits entries of at most 256.
  static void LookUp(const float* table, int, const uint8_t* codes, int64_t n, float* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = table[codes[i]];
  }

  /// Lane i gets the next of `values` if bit i is set, else 0.
  static F Expand(const float* values, uint32_t bits) {
    float lanes[kWidth];
    for (unsigned i = 0; i < kWidth; ++i) {
      const uint32_t bit = (bits >> i) & 1U;
      lanes[i] = bit != 0 ? *values : 0.0F;
      values += bit;
    }
    return Load(lanes);
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_NEON_VEC_H_
