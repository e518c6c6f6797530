// WeightStore: weights in the form that kernels read them, once for all functions of a package.
#ifndef MILWRIGHT_ENGINE_WEIGHT_STORE_H_
#define MILWRIGHT_ENGINE_WEIGHT_STORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "engine/graph.h"
#include "kernels/aligned_buffer.h"
#include "kernels/dispatch.h"
#include "kernels/thread_pool.h"
#include "milwright/engine.h"
#include "milwright/status.h"

namespace milwright::engine {

/// A matrix y = W x with the kernels that run it. Shared by plans.
struct WeightMatrix {
  kernels::WeightView view;
  const kernels::MatVecKernel* matvec = nullptr;
  const kernels::MatMulKernel* matmul = nullptr;
  std::vector<uint64_t> row_starts;  ///< sparse weights
};

class WeightStore {
 public:
  WeightStore(const kernels::Kernels& kernels, kernels::ThreadPool& pool, WeightPlacement placement, Numerics numerics)
      : kernels_(kernels), pool_(pool), placement_(placement), numerics_(numerics) {}

  [[nodiscard]] const kernels::Kernels& kernels() const { return kernels_; }
  [[nodiscard]] Numerics numerics() const { return numerics_; }

  /// The weight `value` ([rows, cols] after joining its axes from the second on) as a matrix; null when its storage is
  /// not one that the kernels read. `transposed`: the value is [cols, rows] and a transposed copy is made.
  Result<std::shared_ptr<const WeightMatrix>> Matrix(const GraphValue& value, bool transposed = false);
  /// The content of a constant or compressed weight, decoded.
  Result<Literal> Content(const GraphValue& value);
  /// Bytes of a weight file where plans read them: where they are mapped, or their copy.
  Result<const std::byte*> Place(std::span<const std::byte> bytes);

  [[nodiscard]] WeightCounts counts() const;

 private:
  // All of these are called with mutex_ held. The Fill functions say whether the storage is one that kernels read.
  Status Decide(std::span<const std::byte> bytes);
  Result<std::byte*> Reserve(size_t bytes);
  Result<const std::byte*> PlaceLocked(std::span<const std::byte> bytes);
  Result<const std::byte*> PlaceLiteral(const Literal& literal);
  Result<bool> FillGrid(const Literal& literal, const kernels::WeightView& view, size_t axes, kernels::Grid* grid);
  Result<bool> FillCodes(const Literal& literal, std::optional<kernels::Codec> codec, kernels::WeightView* view);
  Result<bool> FillView(const Operation& op, kernels::WeightView* view, std::vector<uint64_t>* row_starts);
  Result<Literal> DecodeLocked(const Value& value);

  const kernels::Kernels& kernels_;
  kernels::ThreadPool& pool_;
  WeightPlacement placement_;  // kAuto until something large was placed
  const Numerics numerics_;
  mutable std::mutex mutex_;
  std::map<std::tuple<const void*, int64_t, int64_t, bool>, std::shared_ptr<const WeightMatrix>> matrices_;
  std::map<const std::byte*, std::span<const std::byte>> copies_;  ///< by where they are mapped
  std::vector<kernels::AlignedBuffer> slabs_;                      ///< copies side by side, on huge pages
  size_t slab_used_ = 0;
  std::set<const std::byte*> mapped_;
  std::unordered_map<const Operation*, std::vector<Literal>> decoded_;  ///< by output
  std::deque<Tensor> kept_;                                             ///< what views point into
  WeightCounts counts_;
};

}  // namespace milwright::engine

#endif  // MILWRIGHT_ENGINE_WEIGHT_STORE_H_
