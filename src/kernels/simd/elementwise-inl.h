// Elementwise and row kernels, written once for all vector instruction sets.
#ifndef MILWRIGHT_KERNELS_SIMD_ELEMENTWISE_INL_H_
#define MILWRIGHT_KERNELS_SIMD_ELEMENTWISE_INL_H_

#include <cstdint>

#include "kernels/simd/decode-inl.h"

namespace milwright::kernels {
namespace {

/// e^x with a relative error below 2^-22: 2^n times a polynomial of degree 6 on |r| <= ln(2) / 2 (the coefficients are
/// those of Cephes' expf). Below -87.33, where the result would be denormal, it is 0; above 88.37 it stays at e^88.37.
template <typename V>
typename V::F Exp(typename V::F x) {
  const auto clamped = V::Min(V::Set1(88.37F), V::Max(V::Set1(-87.33F), x));  // NaN passes: it is the second operand
  const auto n = V::Round(V::Mul(clamped, V::Set1(1.44269504F)));
  auto r = V::Fnma(n, V::Set1(0.693359375F), clamped);
  r = V::Fnma(n, V::Set1(-2.12194440e-4F), r);
  auto p = V::Set1(1.9875691500e-4F);
  p = V::Fma(p, r, V::Set1(1.3981999507e-3F));
  p = V::Fma(p, r, V::Set1(8.3334519073e-3F));
  p = V::Fma(p, r, V::Set1(4.1665795894e-2F));
  p = V::Fma(p, r, V::Set1(1.6666665459e-1F));
  p = V::Fma(p, r, V::Set1(5.0000001201e-1F));
  p = V::Fma(V::Mul(p, r), r, V::Add(r, V::Set1(1.0F)));
  return V::SelectLess(x, V::Set1(-87.33F), V::Zero(), V::TimesPow2(p, n));
}

/// 1 / (1 + e^-x)
template <typename V>
typename V::F Sigmoid(typename V::F x) {
  return V::Div(V::Set1(1.0F), V::Add(V::Set1(1.0F), Exp<V>(V::Sub(V::Zero(), x))));
}

/// tanh(x) = 2 sigmoid(2x) - 1; absolute error below 2^-22.
template <typename V>
typename V::F Tanh(typename V::F x) {
  return V::Sub(V::Mul(V::Set1(2.0F), Sigmoid<V>(V::Add(x, x))), V::Set1(1.0F));
}

template <typename V>
struct Elementwise {
  using F = typename V::F;
  static constexpr int64_t kWidth = V::kWidth;

  /// y[i] = fn(a[i]): whole vectors and a partial one at the end.
  template <typename Fn>
  static void Map1(const float* a, int64_t n, float* y, Fn fn) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::Store(y + i, fn(V::Load(a + i)));
    if (i < n) V::StoreN(y + i, n - i, fn(V::LoadN(a + i, n - i)));
  }

  template <typename Fn>
  static void Map2(const float* a, const float* b, int64_t n, float* y, Fn fn) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::Store(y + i, fn(V::Load(a + i), V::Load(b + i)));
    if (i < n) V::StoreN(y + i, n - i, fn(V::LoadN(a + i, n - i), V::LoadN(b + i, n - i)));
  }

  static void HalfToFloat(const uint16_t* in, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::Store(out + i, V::LoadHalf(in + i));
    if (i < n) V::StoreN(out + i, n - i, V::LoadHalfN(in + i, n - i));
  }

  static void FloatToHalf(const float* in, int64_t n, uint16_t* out) {
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) V::StoreHalf(out + i, V::Load(in + i));
    if (i < n) V::StoreHalfN(out + i, n - i, V::LoadN(in + i, n - i));
  }

  static void RoundToHalf(float* x, int64_t n) {
    Map1(x, n, x, [](F v) { return V::RoundToHalf(v); });
  }

  static float AbsMaxF32(const float* x, int64_t n) {
    F largest = V::Zero();
    int64_t i = 0;
    // NaN is the first operand and loses.
    for (; i + kWidth <= n; i += kWidth) largest = V::Max(V::Abs(V::Load(x + i)), largest);
    if (i < n) largest = V::Max(V::Abs(V::LoadN(x + i, n - i)), largest);
    return V::Largest(largest);
  }

  static float AbsMaxF16(const uint16_t* x, int64_t n) {
    F largest = V::Zero();
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) largest = V::Max(V::Abs(V::LoadHalf(x + i)), largest);
    if (i < n) largest = V::Max(V::Abs(V::LoadHalfN(x + i, n - i)), largest);
    return V::Largest(largest);
  }

  static void Add(const float* a, const float* b, int64_t n, float* y) {
    Map2(a, b, n, y, [](F p, F q) { return V::Add(p, q); });
  }

  static void Mul(const float* a, const float* b, int64_t n, float* y) {
    Map2(a, b, n, y, [](F p, F q) { return V::Mul(p, q); });
  }

  static void Scale(const float* x, float scale, int64_t n, float* y) {
    const F factor = V::Set1(scale);
    Map1(x, n, y, [factor](F v) { return V::Mul(v, factor); });
  }

  static void SiluMul(const float* gate, const float* up, int64_t n, float* y) {
    Map2(gate, up, n, y, [](F g, F u) { return V::Mul(V::Mul(g, Sigmoid<V>(g)), u); });
  }

  /// 0.5 g (1 + tanh(u)) = g sigmoid(2u), which keeps its relative precision for very negative g.
  static void GeluTanhMul(const float* gate, const float* up, int64_t n, float* y) {
    const F factor = V::Set1(2 * 0.7978845608F);
    const F cubic = V::Set1(0.044715F);
    Map2(gate, up, n, y, [factor, cubic](F g, F u) {
      const F inner = V::Fma(V::Mul(V::Mul(cubic, g), g), g, g);
      return V::Mul(V::Mul(g, Sigmoid<V>(V::Mul(factor, inner))), u);
    });
  }

  static void RmsNorm(const float* x, const float* weight, float epsilon, int64_t n, float* y) {
    F sum = V::Zero();
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) sum = V::Fma(V::Load(x + i), V::Load(x + i), sum);
    if (i < n) sum = V::Fma(V::LoadN(x + i, n - i), V::LoadN(x + i, n - i), sum);
    const F factor = V::Set1(1.0F / __builtin_sqrtf(V::Sum(sum) / static_cast<float>(n) + epsilon));
    if (weight == nullptr) {
      Map1(x, n, y, [factor](F v) { return V::Mul(v, factor); });
    } else {
      Map2(x, weight, n, y, [factor](F v, F w) { return V::Mul(V::Mul(v, factor), w); });
    }
  }

  static void LayerNorm(const float* x, const float* gamma, const float* beta, float epsilon, int64_t n, float* y) {
    F sum = V::Zero();
    for (int64_t i = 0; i < n; i += kWidth) sum = V::Add(LoadUpTo(x + i, n - i), sum);
    const float mean_value = V::Sum(sum) / static_cast<float>(n);
    const F mean = V::Set1(mean_value);
    F squares = V::Zero();
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const F centred = V::Sub(V::Load(x + i), mean);
      squares = V::Fma(centred, centred, squares);
    }
    float total = V::Sum(squares);
    for (; i < n; ++i) {
      const float centred = x[i] - mean_value;
      total += centred * centred;
    }
    const F factor = V::Set1(1.0F / __builtin_sqrtf(total / static_cast<float>(n) + epsilon));
    for (i = 0; i < n; i += kWidth) {
      F v = V::Mul(V::Sub(LoadUpTo(x + i, n - i), mean), factor);
      if (gamma != nullptr) v = V::Mul(v, LoadUpTo(gamma + i, n - i));
      if (beta != nullptr) v = V::Add(v, LoadUpTo(beta + i, n - i));
      V::StoreUpTo(y + i, n - i, v);
    }
  }

  static void Softmax(const float* x, int64_t n, float* y) {
    const float largest = MaxOf(x, n);
    const F shift = V::Set1(largest);
    F sum = V::Zero();
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const F e = Exp<V>(V::Sub(V::Load(x + i), shift));
      V::Store(y + i, e);
      sum = V::Add(sum, e);
    }
    if (i < n) {
      V::StoreN(y + i, n - i, Exp<V>(V::Sub(V::LoadN(x + i, n - i), shift)));
      sum = V::Add(sum, V::LoadN(y + i, n - i));
    }
    const F total = V::Set1(V::Sum(sum));
    Map1(y, n, y, [total](F v) { return V::Div(v, total); });
  }

  static void Rope(const float* x, const float* cos, const float* sin, int64_t n, float* y) {
    const int64_t half = n / 2;
    for (int64_t i = 0; i < half; i += kWidth) {
      const int64_t m = half - i;
      const F low = LoadUpTo(x + i, m);
      const F high = LoadUpTo(x + half + i, m);
      const F sin_low = V::Mul(high, LoadUpTo(sin + i, m));
      const F sin_high = V::Mul(low, LoadUpTo(sin + half + i, m));
      V::StoreUpTo(y + i, m, V::Sub(V::Mul(low, LoadUpTo(cos + i, m)), sin_low));
      V::StoreUpTo(y + half + i, m, V::Add(V::Mul(high, LoadUpTo(cos + half + i, m)), sin_high));
    }
  }

  static int64_t ArgMax(const float* x, int64_t n) {
    const float largest = MaxOf(x, n);
    const F wanted = V::Set1(largest);
    int64_t i = 0;
    while (i + kWidth <= n && !V::AnyEqual(V::Load(x + i), wanted)) i += kWidth;
    while (i < n && x[i] != largest) ++i;
    // No number is larger than -inf: the answer is the first index, as for an empty row.
    return i == n || largest == -__builtin_inff() ? 0 : i;
  }

 private:
  static F LoadUpTo(const float* p, int64_t n) { return n >= kWidth ? V::Load(p) : V::LoadN(p, n); }

  /// Largest number; NaN loses. -inf for an empty row.
  static float MaxOf(const float* x, int64_t n) {
    F largest = V::Set1(-__builtin_inff());
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) largest = V::Max(V::Load(x + i), largest);
    float result = V::Largest(largest);
    for (; i < n; ++i) result = x[i] > result ? x[i] : result;
    return result;
  }
};

}  // namespace
}  // namespace milwright::kernels

#endif  // MILWRIGHT_KERNELS_SIMD_ELEMENTWISE_INL_H_
