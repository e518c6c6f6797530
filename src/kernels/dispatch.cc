#include "kernels/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "kernels/tables.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace milwright::kernels {
namespace {

#if defined(__x86_64__)
/// clang 14 has no name for this feature in __builtin_cpu_supports.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool MachineHas(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
             HasF16c();
    case Isa::kAvx512:
      return MachineHas(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    default:
      return false;
  }
#elif defined(__aarch64__)
  return isa == Isa::kScalar || isa == Isa::kNeon;  // every 64-bit ARM has NEON
#else
  return isa == Isa::kScalar;
#endif
}

/// All tables of this build, fastest first.
constexpr auto kTables = std::to_array<const Kernels* (*)()>({
#if defined(__x86_64__)
  Avx512Kernels, Avx2Kernels,
#elif defined(__aarch64__)
  NeonKernels,
#endif
      ScalarKernels,
});
constexpr Isa kTableIsas[] = {
#if defined(__x86_64__)
    Isa::kAvx512,
    Isa::kAvx2,
#elif defined(__aarch64__)
    Isa::kNeon,
#endif
    Isa::kScalar,
};

}  // namespace

std::span<const Kernels* const> AvailableKernels() {
  // Made once, on first use, and constant from then on.
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> tables;
    for (size_t i = 0; i < kTables.size(); ++i) {
      // The analyser does not look into the array's constant initialiser.
      if (MachineHas(kTableIsas[i])) tables.push_back(kTables[i]());  // NOLINT(clang-analyzer-core.CallAndMessage)
    }
    return tables;
  }();
  return available;
}

Result<const Kernels*> SelectKernels(std::string_view name) {
  const std::span<const Kernels* const> available = AvailableKernels();
  if (name.empty()) return available.front();
  std::string choices;
  for (const Kernels* kernels : available) {
    if (name == kernels->name) return kernels;
    choices += choices.empty() ? "" : ", ";
    choices += kernels->name;
  }
  constexpr std::string_view kKnown[] = {"scalar", "avx2", "avx512", "neon"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
  return Status(ErrorCode::kUsage, fmt::format("MILWRIGHT_KERNELS: {} '{}'; choose one of: {}",
                                               known ? "this machine cannot run" : "unknown kernels", name, choices));
}

Result<const Kernels*> SelectKernelsFromEnvironment() {
  const char* name = std::getenv("MILWRIGHT_KERNELS");
  return SelectKernels(name == nullptr ? "" : name);
}

const MatVecKernel& FindMatVec(const Kernels& kernels, const WeightView& view, Precision precision) {
  for (const MatVecKernel& kernel : kernels.matvec) {
    if (kernel.supports(view, precision)) return kernel;
  }
  return kernels.matvec.back();
}

const MatMulKernel& FindMatMul(const Kernels& kernels, const WeightView& view, Precision precision) {
  for (const MatMulKernel& kernel : kernels.matmul) {
    if (kernel.supports(view, precision)) return kernel;
  }
  return kernels.matmul.back();
}

void TopK(const float* x, int64_t n, int64_t k, float* values, int32_t* indices) {
  k = std::clamp<int64_t>(k, 0, n);
  if (k == 0) return;
  const auto before = [x](int32_t a, int32_t b) {
    if (std::isnan(x[a]) || std::isnan(x[b])) return std::isnan(x[a]) == std::isnan(x[b]) ? a < b : std::isnan(x[b]);
    return x[a] != x[b] ? x[a] > x[b] : a < b;
  };
  // A heap of the best k so far, the worst of them on top.
  std::vector<int32_t> best(static_cast<size_t>(k));
  std::iota(best.begin(), best.end(), 0);
  std::make_heap(best.begin(), best.end(), before);
  for (int64_t i = k; i < n; ++i) {
    if (!before(static_cast<int32_t>(i), best.front())) continue;
    std::pop_heap(best.begin(), best.end(), before);
    best.back() = static_cast<int32_t>(i);
    std::push_heap(best.begin(), best.end(), before);
  }
  std::sort_heap(best.begin(), best.end(), before);
  for (int64_t i = 0; i < k; ++i) {
    indices[i] = best[static_cast<size_t>(i)];
    values[i] = x[indices[i]];
  }
}

}  // namespace milwright::kernels
